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
    pub(crate) credential: Credential<'a>,
}

/// How the user shows who it is.
pub(crate) enum Credential<'a> {
    Certificate { pem: &'a [u8], key_pem: &'a [u8] },
    Token(&'a str),
}

impl Credential<'_> {
    /// The lines below `user:`.
    fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(match self {
            Self::Certificate { pem, key_pem } => {
                let key = Zeroizing::new(BASE64_STANDARD.encode(key_pem));
                format!(
                    "    client-certificate-data: {}\n    client-key-data: {}",
                    BASE64_STANDARD.encode(pem),
                    *key
                )
            }
            Self::Token(token) => format!("    token: {token}"),
        })
    }
}

impl Kubeconfig<'_> {
    /// The file.
    pub(crate) fn text(&self) -> Zeroizing<String> {
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
{credential}
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
            credential = *self.credential.text(),
        ))
    }
}
