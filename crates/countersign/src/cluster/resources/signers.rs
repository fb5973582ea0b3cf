//! Signers of the cluster: read as those of the configuration are, each with an issuer of its own.
//!
//! A Signer that is gone, or broken, signs nothing from then on. Its issuer's key, the ledger and the revocations stay.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use countersign_authority::{Issuer, IssuerId};
use countersign_cluster::{
    Attention, Cluster, Found, FoundState, Readiness, ResourceObject, ResourceStatus, Secrets,
    Steward,
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::cluster::signing::ClusterSigner;
use crate::config::SignerSection;
use crate::data_folder::{DataFolder, Secrecy, create_folder, write};
use crate::signers;

/// Puts the Signers of a cluster in force.
pub(in crate::cluster) struct SignerSteward {
    signer: Arc<ClusterSigner>,
    cluster: Cluster,
    /// The issuers that a Signer may name beside its own.
    shared: Vec<String>,
    one_at_a_time: Mutex<()>,
}

/// A Signer that can be used, if its issuer can.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    section: SignerSection,
    issuer: IssuerId,
    /// Whether nobody but this signer uses the issuer.
    is_own: bool,
}

impl SignerSteward {
    pub(in crate::cluster) fn new(
        signer: Arc<ClusterSigner>,
        cluster: Cluster,
        shared: Vec<String>,
    ) -> Self {
        Self {
            signer,
            cluster,
            shared,
            one_at_a_time: Mutex::default(),
        }
    }

    async fn take(&self, found: &Found) -> Attention {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let objects: &[Arc<ResourceObject>] = match &found.state {
            FoundState::NotServed => &[],
            // Nothing is known of them, and so nothing is signed.
            FoundState::Unreadable(_) => return Attention::default(),
            FoundState::Objects(objects) => objects,
        };
        let mut attention = Attention::default();
        let mut sections = Vec::new();
        for object in objects {
            let mut status = |ready, issuer: Option<&Issuer>| {
                let fields = Map::from_iter([
                    (
                        "issuer".to_owned(),
                        json!(issuer.map(|it| it.id().as_str())),
                    ),
                    (
                        "notAfter".to_owned(),
                        json!(issuer.map(|it| it.not_after().to_string())),
                    ),
                ]);
                let status = ResourceStatus { ready, fields };
                attention.statuses.push((object.uid.clone(), status));
            };
            let wanted = match self.wanted(object, sections.len()) {
                Ok(wanted) => wanted,
                Err(why) => {
                    status(why, None);
                    continue;
                }
            };
            match self.issuer(&wanted).await {
                Ok(issuer) => {
                    let lifetime = wanted.section.lifetime;
                    let words = format!("signs by issuer {}, for {lifetime}", issuer.id());
                    status(Readiness::ready(words), Some(issuer.as_ref()));
                    sections.push(wanted.section);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    status(Readiness::not_ready("IssuerUnusable", why), None);
                    attention.again = Some(LOOK_AT_ISSUERS);
                }
            }
        }
        let count = sections.len();
        match self.signer.declare(sections) {
            Ok(false) => {}
            Ok(true) => {
                info!(count, "signers of the cluster in force");
                // What was approved for one of them before waits for nothing else.
                self.cluster.look_again();
            }
            Err(error) => {
                warn!(error = %format!("{error:#}"), "the signers of the cluster are not in force");
                attention.again = Some(LOOK_AT_ISSUERS);
            }
        }
        attention
    }

    /// What an object asks for, if that can be.
    fn wanted(&self, object: &ResourceObject, before: usize) -> Result<Wanted, Readiness> {
        let section = section(&object.spec).map_err(invalid)?;
        if self.signer.is_taken(&section.name) {
            let message = format!(
                "signer {} is built in or stands in the configuration: choose another name",
                section.name
            );
            return Err(Readiness::not_ready("NameTaken", message));
        }
        if before >= MAX_SIGNERS {
            let message = format!("there are more than {MAX_SIGNERS} Signers");
            return Err(Readiness::not_ready("TooMany", message));
        }
        signers::custom(&section).map_err(|error| invalid(format!("{error:#}")))?;
        let issuer = signers::issuer_of(&section).map_err(|error| invalid(format!("{error:#}")))?;
        let is_shared = self.shared.iter().any(|id| id == issuer.as_str());
        let is_own = issuer.as_str() == own_issuer(&section.name);
        if !is_shared && (!is_own || self.signer.is_issuer_taken(&issuer)) {
            let message = format!(
                "cluster.resources.issuers in the configuration does not name {issuer}: leave issuer out for one of its own"
            );
            return Err(Readiness::not_ready("IssuerNotPermitted", message));
        }
        Ok(Wanted {
            section,
            issuer,
            is_own: !is_shared,
        })
    }

    async fn issuer(&self, wanted: &Wanted) -> Result<Arc<Issuer>> {
        if wanted.is_own {
            claim(self.signer.folder(), &wanted.issuer, &wanted.section.name)?;
        }
        self.signer.issuer(&wanted.issuer).await
    }
}

impl Steward for SignerSteward {
    fn look<'a>(&'a self, found: &'a Found, _: &'a Secrets) -> BoxFuture<'a, Attention> {
        Box::pin(self.take(found))
    }
}

/// Makes sure that the folder of an issuer is this signer's: an authority that was made for something else does not come
/// back because somebody in the cluster knows its name.
fn claim(folder: &DataFolder, issuer: &IssuerId, signer: &str) -> Result<()> {
    let (place, marker) = (folder.issuer(issuer, ""), folder.issuer(issuer, OWNER_FILE));
    match fs::read_to_string(&marker) {
        Ok(owner) if owner.trim_end() == signer => Ok(()),
        Ok(owner) => anyhow::bail!("issuer {issuer} belongs to signer {}", owner.trim_end()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // An empty one is left from a try that was cut short.
            let is_used = place.try_exists()? && fs::read_dir(&place)?.next().is_some();
            anyhow::ensure!(
                !is_used,
                "issuer {issuer} was not made for this Signer: name it in cluster.resources.issuers if it shall be used"
            );
            create_folder(&place)
                .with_context(|| format!("cannot create the folder of issuer {issuer}"))?;
            write(&marker, format!("{signer}\n").as_bytes(), Secrecy::Public)?;
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", marker.display())),
    }
}

/// Reads a spec as `signers` of the configuration is read; its keys are the same in camel case.
fn section(spec: &Value) -> Result<SignerSection, String> {
    let mut named = snake(spec);
    if let Some(members) = named.as_object_mut()
        && let Some(name) = members.remove("signer_name")
    {
        members.insert("name".to_owned(), name);
    }
    serde_json::from_value(named).map_err(|fault| fault.to_string())
}

fn snake(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let renamed = members.iter().map(|(key, value)| {
                let mut name = String::with_capacity(key.len());
                for letter in key.chars() {
                    if letter.is_ascii_uppercase() {
                        name.push('_');
                    }
                    name.push(letter.to_ascii_lowercase());
                }
                (name, snake(value))
            });
            Value::Object(renamed.collect())
        }
        other => other.clone(),
    }
}

fn own_issuer(signer: &str) -> String {
    signer.replace('/', ".")
}

fn invalid(message: impl Into<String>) -> Readiness {
    Readiness::not_ready("Invalid", message)
}

/// Whose an issuer is.
const OWNER_FILE: &str = "signer";
/// Each has a key in memory.
const MAX_SIGNERS: usize = 256;
const LOOK_AT_ISSUERS: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_as_the_configuration_is() {
        let spec = json!({
            "signerName": "example.com/vpn",
            "subject": {"commonNames": ["*.vpn.example.com"], "organizations": ["team-*"],
                        "requiredOrganizations": ["team-vpn"]},
            "names": ["dns", "ip"], "requiredNames": ["dns"],
            "namePatterns": {"dns": ["*.vpn.example.com"], "ip": ["10.0.0.0/8"]},
            "usages": ["digital signature", "server auth"], "requiredUsages": ["server auth"],
            "extensions": {"copied": ["1.3.6.1.4.1.99999.1"], "others": "refused"},
            "lifetime": "30d", "maxLifetime": "90d", "backdate": "1m", "issuer": "vpn",
        });
        let configured: SignerSection = serde_saphyr::from_str(
            "
name: example.com/vpn
subject:
  common_names: ['*.vpn.example.com']
  organizations: ['team-*']
  required_organizations: [team-vpn]
names: [dns, ip]
required_names: [dns]
name_patterns: {dns: ['*.vpn.example.com'], ip: [10.0.0.0/8]}
usages: [digital signature, server auth]
required_usages: [server auth]
extensions: {copied: [1.3.6.1.4.1.99999.1], others: refused}
lifetime: 30d
max_lifetime: 90d
backdate: 1m
issuer: vpn
",
        )
        .unwrap();
        assert_eq!(section(&spec).unwrap(), configured);
        let least = section(&json!({"signerName": "example.com/vpn"})).unwrap();
        assert_eq!(own_issuer(&least.name), "example.com.vpn");
        for (spec, part) in [
            (json!({}), "missing field `name`"),
            (
                json!({"signerName": "example.com/a", "lifetimes": "1d"}),
                "unknown field",
            ),
            (
                json!({"signerName": "example.com/a", "lifetime": "soon"}),
                "soon",
            ),
            (
                json!({"signerName": "example.com/a", "names": ["x500"]}),
                "unknown variant",
            ),
        ] {
            let fault = section(&spec).unwrap_err();
            assert!(fault.contains(part), "{fault}");
        }
    }

    #[test]
    fn an_issuer_of_something_else_does_not_come_back() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = DataFolder::new(temporary.path().join("data"));
        folder.create().unwrap();
        let id = |name: &str| IssuerId::parse(name).unwrap();
        claim(&folder, &id("example.com.vpn"), "example.com/vpn").unwrap();
        claim(&folder, &id("example.com.vpn"), "example.com/vpn").unwrap();
        let fault = claim(&folder, &id("example.com.vpn"), "example/com.vpn").unwrap_err();
        assert_eq!(
            fault.to_string(),
            "issuer example.com.vpn belongs to signer example.com/vpn"
        );
        let old = folder.issuer(&id("example.com.old"), "");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("ca_key.pem"), "").unwrap();
        let fault = claim(&folder, &id("example.com.old"), "example.com/old").unwrap_err();
        assert!(
            fault.to_string().contains("was not made for this Signer"),
            "{fault}"
        );
    }
}
