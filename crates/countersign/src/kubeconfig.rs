//! Kubeconfig files: where the Kubernetes door is, whom to trust there, and who one is.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

/// What a kubeconfig says.
pub(crate) struct Kubeconfig<'a> {
    pub(crate) url: &'a str,
    /// The CA certificates that verify the server, in PEM.
    pub(crate) ca_pem: &'a [u8],
    pub(crate) user: &'a str,
    pub(crate) certificate_pem: &'a [u8],
    pub(crate) key_pem: &'a [u8],
}

impl Kubeconfig<'_> {
    /// The file.
    pub(crate) fn text(&self) -> Zeroizing<String> {
        let key = Zeroizing::new(BASE64_STANDARD.encode(self.key_pem));
        Zeroizing::new(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: countersign
  cluster:
    server: {url}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: countersign
  context:
    cluster: countersign
    user: {user}
current-context: countersign
",
            url = Value::from(self.url),
            ca = BASE64_STANDARD.encode(self.ca_pem),
            // As JSON, which is YAML: names may hold anything.
            user = Value::from(self.user),
            certificate = BASE64_STANDARD.encode(self.certificate_pem),
            key = *key,
        ))
    }
}
