//! Calls to the API server about the operator's objects.

use countersign_policy::json::{items, text};
use serde_json::{Value, json};

use super::object::{GROUP, Meta, ObjectName, VERSION};
use super::secret::Secret;
use crate::api::{Api, CallFault, segment};

/// A kind of objects that the operator reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Certificate,
    CertificateAuthority,
    SigningPolicy,
    /// Of the other operator: who runs the CA in the cluster.
    Config,
    Server,
    Pool,
    Secret,
    Service,
    EndpointSlice,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Certificate => "Certificate",
            Self::CertificateAuthority => "CertificateAuthority",
            Self::SigningPolicy => "SigningPolicy",
            Self::Config => "Config",
            Self::Server => "Server",
            Self::Pool => "Pool",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Certificate => "certificates",
            Self::CertificateAuthority => "certificateauthorities",
            Self::SigningPolicy => "signingpolicies",
            Self::Config => "configs",
            Self::Server => "servers",
            Self::Pool => "pools",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
        }
    }

    /// Group and version.
    pub(crate) fn group(self) -> (&'static str, &'static str) {
        match self {
            Self::Certificate
            | Self::CertificateAuthority
            | Self::SigningPolicy
            | Self::Config
            | Self::Server
            | Self::Pool => (GROUP, VERSION),
            Self::Secret | Self::Service => ("", "v1"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1"),
        }
    }

    /// Where the objects of a namespace are.
    pub(crate) fn path(self, namespace: &str) -> String {
        let (namespace, plural) = (segment(namespace), self.plural());
        match self.group() {
            ("", version) => format!("/api/{version}/namespaces/{namespace}/{plural}"),
            (group, version) => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"),
        }
    }

    /// Where one is.
    pub(crate) fn path_of(self, name: &ObjectName) -> String {
        format!("{}/{}", self.path(&name.namespace), segment(&name.name))
    }
}

/// The API server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Calls {
    api: Api,
}

impl Calls {
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Whether the cluster has a kind.
    pub(crate) async fn is_served(&self, kind: Kind) -> Result<bool, CallFault> {
        let path = match kind.group() {
            ("", version) => format!("/api/{version}"),
            (group, version) => format!("/apis/{group}/{version}"),
        };
        let found = self.api.get(&path).await?;
        let resources = found.as_ref().and_then(|it| it.get("resources"));
        Ok(items(resources).any(|it| text(it, "name") == kind.plural()))
    }

    pub(crate) async fn event(&self, namespace: &str, event: &Value) -> Result<(), CallFault> {
        let namespace = segment(namespace);
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        self.api.post(&path, event).await.map(drop)
    }

    pub(crate) async fn get(
        &self,
        kind: Kind,
        name: &ObjectName,
    ) -> Result<Option<Value>, CallFault> {
        self.api.get(&kind.path_of(name)).await
    }

    pub(crate) async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, CallFault> {
        let found = self.get(Kind::Secret, name).await?;
        Ok(found.as_ref().and_then(Secret::read))
    }

    pub(crate) async fn create(
        &self,
        kind: Kind,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, CallFault> {
        self.api.post(&kind.path(namespace), object).await
    }

    /// A merge patch. What it is for stands in its metadata: `resourceVersion` and `uid`.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        name: &ObjectName,
        patch: &Value,
    ) -> Result<Value, CallFault> {
        self.api.patch(&kind.path_of(name), patch).await
    }

    pub(crate) async fn patch_status(
        &self,
        kind: Kind,
        name: &ObjectName,
        patch: &Value,
    ) -> Result<Value, CallFault> {
        let path = format!("{}/status", kind.path_of(name));
        self.api.patch(&path, patch).await
    }

    /// Deletes exactly what was read.
    pub(crate) async fn delete(&self, kind: Kind, meta: &Meta) -> Result<(), CallFault> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.version},
        });
        match self.api.delete(&kind.path_of(&meta.name), &options).await {
            Ok(_) | Err(CallFault::NotFound) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}
