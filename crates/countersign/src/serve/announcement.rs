//! What is said when the service is ready.

use crate::data_folder::{DataFolder, ServerFile};

impl ServerFile {
    /// Where everything is, in one line.
    pub(super) fn status(&self) -> String {
        let mut line = format!("puppet={}", self.puppet);
        for (name, url) in [
            ("kubernetes", &self.kubernetes),
            ("foreman", &self.foreman),
            ("metrics", &self.metrics),
        ] {
            if let Some(url) = url {
                line.push_str(&format!(" {name}={url}"));
            }
        }
        line
    }
}

/// What the first start has made, and what to do next.
pub(super) fn welcome(folder: &DataFolder, addresses: &ServerFile, was_there: bool) -> String {
    let root = folder.root().display();
    let port = addresses.puppet.rsplit(':').next().unwrap_or("8140");
    // What works when it is typed as it stands, on this machine.
    let host = if addresses.puppet.starts_with("https://127.") || addresses.puppet.contains("[::1]")
    {
        "localhost"
    } else {
        &addresses.certname
    };
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "countersign".to_owned());
    let title = match was_there {
        true => format!("Took over the certificate authority that was in {root} already, with:"),
        false => format!("Created a certificate authority in {root}:"),
    };
    let mut text = format!(
        "\
{title}
  issuers    {root}/issuers
  server     {root}/tls, certname {certname}
  admin      {root}/admin/admin.pem and admin-key.pem, verified with ca.pem

Enrol a Puppet agent:
  puppet ssl bootstrap --server {host} --serverport {port} --certname NAME
  {program} csr list --data {root}
  {program} csr approve --data {root} NAME
",
        certname = addresses.certname,
    );
    if addresses.kubernetes.is_some() {
        text.push_str(&format!(
            "
Use the Kubernetes API:
  kubectl --kubeconfig {} get csr
",
            folder.admin("kubeconfig").display()
        ));
    }
    text
}
