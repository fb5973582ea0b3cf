//! Secrets that are written once, for whoever ordered them. None is read, changed or deleted.

use serde_json::{Value, json};

use super::object::{GROUP, ResourceKind, ResourceObject, VERSION};
use crate::api::{Api, CallFault, segment};

/// Whoever writes Secrets.
pub struct Secrets {
    api: Api,
}

/// A Secret that shall be there. The garbage collector deletes it with its order.
#[derive(Clone, Copy)]
pub struct NewSecret<'a> {
    /// The EnrollmentToken that orders it; it stands in the same namespace.
    pub order: &'a ResourceObject,
    /// Its name.
    pub name: &'a str,
}

/// What became of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretAnswer {
    /// It is written, or could be.
    Free,
    /// There is one of that name.
    Exists,
    /// Neither: in words. Whether it was written may be unknown.
    Refused(String),
}

impl Secrets {
    pub(crate) fn of(api: Api) -> Self {
        Self { api }
    }

    /// Whether there is no Secret of that name, and one may be written. The API server is asked to do everything but write.
    pub async fn is_free(&self, secret: NewSecret<'_>) -> SecretAnswer {
        let path = format!("{}?dryRun=All", path(secret.order));
        self.post(&path, &object(secret, "")).await
    }

    /// Writes it, with the text under the key `token`.
    pub async fn write(&self, secret: NewSecret<'_>, text: &str) -> SecretAnswer {
        self.post(&path(secret.order), &object(secret, text)).await
    }

    async fn post(&self, path: &str, object: &Value) -> SecretAnswer {
        match self.api.post(path, object).await {
            Ok(_) => SecretAnswer::Free,
            Err(CallFault::Exists) => SecretAnswer::Exists,
            Err(fault) => SecretAnswer::Refused(fault.to_string()),
        }
    }
}

fn path(order: &ResourceObject) -> String {
    format!("/api/v1/namespaces/{}/secrets", segment(&order.namespace))
}

fn object(secret: NewSecret<'_>, text: &str) -> Value {
    let NewSecret { order, name } = secret;
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": order.namespace,
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": ResourceKind::EnrollmentToken.word(),
                "name": order.name,
                "uid": order.uid,
            }],
        },
        "type": "Opaque",
        "immutable": true,
        "stringData": {"token": text},
    })
}
