//! The operator's objects as plain facts. They are somebody else's data: what is missing or of another type reads as if it
//! were not there.

use std::collections::BTreeMap;
use std::fmt;

use countersign_pki::UnixTime;
use countersign_policy::json::{is_deleting, items, named, part, text, texts, time};
use serde_json::{Value, json};

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectName {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Another object of the same namespace.
    pub(crate) fn beside(&self, name: impl Into<String>) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What all objects have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) generation: i64,
    pub(crate) created: Option<UnixTime>,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owners: Vec<Owner>,
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) is_controller: bool,
}

impl Meta {
    /// Reads the metadata of an object; `None` for one without a name.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let owners = items(metadata.get("ownerReferences"));
        Some(Self {
            name: ObjectName {
                namespace: text(metadata, "namespace"),
                name: named(metadata, "name")?,
            },
            uid: text(metadata, "uid"),
            version: text(metadata, "resourceVersion"),
            generation: metadata
                .get("generation")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            created: time(metadata, "creationTimestamp"),
            deleting: is_deleting(metadata),
            finalizers: texts(metadata.get("finalizers")),
            labels: text_map(metadata.get("labels")),
            annotations: text_map(metadata.get("annotations")),
            owners: owners
                .map(|owner| Owner {
                    uid: text(owner, "uid"),
                    kind: text(owner, "kind"),
                    name: text(owner, "name"),
                    is_controller: owner.get("controller") == Some(&Value::Bool(true)),
                })
                .collect(),
        })
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// The object that controls this one.
    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.is_controller)
    }

    /// Whether it is left alone until somebody says otherwise.
    pub(crate) fn is_paused(&self) -> bool {
        self.annotation(PAUSED) == Some("true")
    }
}

/// An owner reference that makes `kind` `meta` the controller of an object.
pub(crate) fn controller_reference(kind: &str, meta: &Meta) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "name": meta.name.name,
        "uid": meta.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

pub(crate) fn text_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// A Certificate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CertificateObject {
    pub(crate) meta: Meta,
    pub(crate) spec: CertificateSpec,
    pub(crate) status: Value,
}

/// What somebody wants of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateSpec {
    pub(crate) authority: String,
    pub(crate) certname: String,
    pub(crate) dns_alt_names: Vec<String>,
    pub(crate) pp_cli_auth: bool,
    pub(crate) pp_role: Option<String>,
    pub(crate) pp_environment: Option<String>,
    pub(crate) custom_extensions: BTreeMap<String, String>,
    pub(crate) renew_before: Option<String>,
}

impl CertificateObject {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let spec = part(object, "spec");
        let extensions = part(spec, "csrExtensions");
        Some(Self {
            meta: Meta::read(object)?,
            spec: CertificateSpec {
                authority: text(spec, "authorityRef"),
                certname: match spec.get("certname") {
                    Some(Value::String(name)) => name.clone(),
                    Some(_) | None => DEFAULT_CERTNAME.to_owned(),
                },
                dns_alt_names: texts(spec.get("dnsAltNames")),
                pp_cli_auth: extensions.get("ppCliAuth") == Some(&Value::Bool(true)),
                pp_role: named(extensions, "ppRole"),
                pp_environment: named(extensions, "ppEnvironment"),
                custom_extensions: text_map(extensions.get("customExtensions")),
                renew_before: named(spec, "renewBefore"),
            },
            status: part(object, "status").clone(),
        })
    }

    pub(crate) fn authority(&self) -> ObjectName {
        self.meta.name.beside(self.spec.authority.clone())
    }

    /// The Secret with certificate and key.
    pub(crate) fn secret(&self) -> ObjectName {
        self.meta
            .name
            .beside(format!("{}-tls", self.meta.name.name))
    }

    /// The Secret with the key that a certificate is asked for with.
    pub(crate) fn pending_secret(&self) -> ObjectName {
        let name = format!("{}-tls-pending", self.meta.name.name);
        self.meta.name.beside(name)
    }

    /// The name of the certificate that it has obtained.
    pub(crate) fn obtained_name(&self) -> Option<&str> {
        self.meta.annotation(OBTAINED)?.split('/').next()
    }

    pub(crate) fn phase(&self) -> &str {
        self.status
            .get("phase")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.phase() == "Signed"
    }
}

/// A CertificateAuthority.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthorityObject {
    pub(crate) meta: Meta,
    pub(crate) spec: Value,
    pub(crate) external: Option<External>,
    pub(crate) status: Value,
}

/// A CA that somebody else runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct External {
    pub(crate) url: String,
    pub(crate) ca_secret: Option<String>,
    pub(crate) tls_secret: Option<String>,
    pub(crate) is_unverified: bool,
}

impl AuthorityObject {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let spec = part(object, "spec");
        let external = spec.get("external").filter(|it| it.is_object());
        Some(Self {
            meta: Meta::read(object)?,
            external: external.map(|external| External {
                url: text(external, "url"),
                ca_secret: named(external, "caSecretRef"),
                tls_secret: named(external, "tlsSecretRef"),
                is_unverified: external.get("insecureSkipVerify") == Some(&Value::Bool(true)),
            }),
            spec: spec.clone(),
            status: part(object, "status").clone(),
        })
    }

    /// Another object's name that begins with this one's.
    pub(crate) fn own(&self, suffix: &str) -> ObjectName {
        let name = format!("{}-{suffix}", self.meta.name.name);
        self.meta.name.beside(name)
    }

    /// The certnames that the operator may have at this CA: the usual one, and the one where another CA of the same name,
    /// behind the same authority, has that.
    pub(crate) fn operator_certnames(&self) -> [String; 2] {
        let usual = format!("{}-operator", self.meta.name.name);
        let further = format!("{usual}.{}", self.meta.name.namespace);
        [usual, further]
    }

    pub(crate) fn phase(&self) -> &str {
        self.status
            .get("phase")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Whether certificates can be asked for.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase(), "Ready" | "External")
    }

    pub(crate) fn status_text(&self, key: &str) -> Option<String> {
        named(&self.status, key)
    }
}

/// A SigningPolicy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyObject {
    pub(crate) meta: Meta,
    pub(crate) authority: String,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl PolicyObject {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let spec = part(object, "spec");
        Some(Self {
            meta: Meta::read(object)?,
            authority: text(spec, "certificateAuthorityRef"),
            spec: spec.clone(),
            status: part(object, "status").clone(),
        })
    }

    /// The CA that it is for.
    pub(crate) fn authority(&self) -> ObjectName {
        self.meta.name.beside(self.authority.clone())
    }
}

/// A Config of the other operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigObject {
    pub(crate) name: String,
    pub(crate) authority: String,
}

impl ConfigObject {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        Some(Self {
            name: Meta::read(object)?.name.name,
            authority: text(part(object, "spec"), "authorityRef"),
        })
    }
}

/// A Server of the other operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerObject {
    pub(crate) config: String,
    pub(crate) certificate: String,
    pub(crate) is_ca: bool,
    pub(crate) pools: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

impl ServerObject {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let spec = part(object, "spec");
        Some(Self {
            config: text(spec, "configRef"),
            certificate: text(spec, "certificateRef"),
            is_ca: spec.get("ca") == Some(&Value::Bool(true)),
            pools: texts(spec.get("poolRefs")),
            labels: Meta::read(object)?.labels,
        })
    }
}

/// A Pool of the other operator: a Service in front of Servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolObject {
    pub(crate) name: String,
    pub(crate) config: String,
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) service: String,
    pub(crate) port: u16,
}

impl PoolObject {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let spec = part(object, "spec");
        let name = Meta::read(object)?.name.name;
        let service = named(part(object, "status"), "serviceName");
        let port = part(spec, "service").get("port").and_then(Value::as_u64);
        Some(Self {
            config: text(spec, "configRef"),
            selector: text_map(spec.get("selector")),
            service: service.unwrap_or_else(|| name.clone()),
            port: port
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(8140),
            name,
        })
    }
}

pub(crate) const GROUP: &str = "openvox.voxpupuli.org";
pub(crate) const VERSION: &str = "v1alpha1";
pub(crate) const CLEANUP_FINALIZER: &str = "openvox.voxpupuli.org/certificate-cleanup";
/// The condition of an object that is left alone.
pub(crate) const PAUSED_CONDITION: &str = "Paused";
pub(crate) const PAUSED: &str = "openvox.voxpupuli.org/paused";
/// On a Certificate: the name and the key of the certificate that it has obtained. Only such a name is cleaned at the CA.
pub(crate) const OBTAINED: &str = "countersign.dev/obtained";
/// On Secrets: the Certificate, or the CertificateAuthority, that they are about.
pub(crate) const CERTIFICATE_LABEL: &str = "openvox.voxpupuli.org/certificate";
pub(crate) const AUTHORITY_LABEL: &str = "openvox.voxpupuli.org/certificateauthority";
const DEFAULT_CERTNAME: &str = "puppet";
