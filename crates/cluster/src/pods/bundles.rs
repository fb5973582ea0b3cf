//! What is published for pods to trust: one ClusterTrustBundle per signer, whose name says what is in it. Pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{Certificate, fingerprint_sha256};
use countersign_policy::SignerName;
use countersign_policy::json::{named, text};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The bundles that the cluster has.
#[derive(Default)]
pub(super) struct Bundles {
    known: Mutex<BTreeMap<String, Existing>>,
    /// Something has changed.
    pub(super) changed: Notify,
}

impl Bundles {
    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<String, Existing>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bundle in the cluster.
#[derive(Clone, Debug)]
pub(super) struct Existing {
    pub(super) name: String,
    pub(super) uid: String,
    signer: String,
    text: String,
    is_ours: bool,
    /// The whole object without its managed fields, for whoever writes it back.
    object: Value,
}

impl Existing {
    /// Reads one; `None` if it is for no signer.
    pub(super) fn read(mut object: Value) -> Option<Self> {
        let metadata = object.get_mut("metadata")?;
        metadata.as_object_mut()?.remove("managedFields");
        let labels = metadata.get("labels").unwrap_or(&Value::Null);
        let is_ours = labels.get(LABEL.0).and_then(Value::as_str) == Some(LABEL.1);
        let (name, uid) = (named(metadata, "name")?, named(metadata, "uid")?);
        let spec = object.get("spec")?;
        Some(Self {
            signer: named(spec, "signerName")?,
            text: text(spec, "trustBundle"),
            name,
            uid,
            is_ours,
            object,
        })
    }

    /// It as it is to be: with this text, and marked as ours.
    pub(super) fn with(&self, wanted: &Wanted) -> Value {
        let mut object = self.object.clone();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("trustBundle".to_owned(), json!(wanted.text));
        }
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let labels = metadata.map(|it| it.entry("labels").or_insert(json!({})));
        if let Some(labels) = labels.and_then(Value::as_object_mut) {
            labels.insert(LABEL.0.to_owned(), json!(LABEL.1));
        }
        object
    }
}

/// A bundle that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) signer: SignerName,
    pub(super) name: String,
    text: String,
}

impl Wanted {
    /// Cleans what is to be trusted: each CA certificate once, nothing else, no text around.
    ///
    /// # Errors
    /// If the text is not PEM, or no CA certificate is in it, in words.
    pub(super) fn of(signer: &SignerName, anchors: &str) -> Result<Self, String> {
        let anchors = certificates(anchors)?;
        let mut seen = BTreeSet::new();
        let mut text = String::new();
        for anchor in &anchors {
            if anchor.is_ca() && seen.insert(anchor.der()) {
                text.push_str(&anchor.to_pem());
            }
        }
        if text.is_empty() {
            return Err("there is no CA certificate".to_owned());
        }
        let hash = fingerprint_sha256(text.as_bytes()).to_hex();
        let suffix = hash.get(..SUFFIX).unwrap_or_default().to_ascii_lowercase();
        let prefix = signer.as_str().replace('/', ":");
        Ok(Self {
            signer: signer.clone(),
            name: format!("{prefix}:{suffix}"),
            text,
        })
    }

    /// It as an object.
    pub(super) fn object(&self) -> Value {
        let (label, value) = LABEL;
        json!({
            "apiVersion": "certificates.k8s.io/v1beta1",
            "kind": "ClusterTrustBundle",
            "metadata": {"name": self.name, "labels": {label: value}},
            "spec": {"signerName": self.signer.as_str(), "trustBundle": self.text},
        })
    }
}

/// One thing that is to be done; each only if those before it were.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create,
    /// Somebody has changed it.
    Restore(Existing),
    /// It is an earlier one of ours.
    Delete(Existing),
}

/// What leads from the bundles that are there to the one that is wanted.
///
/// Only what carries our label and has an anchor in common with the wanted one is deleted. Whatever this authority publishes
/// has one in common with what it published before; another installation under the same signer has none.
pub(super) fn steps<'a>(
    wanted: &Wanted,
    existing: impl Iterator<Item = &'a Existing>,
) -> Vec<Step> {
    let of_signer: Vec<&Existing> = existing
        .filter(|it| it.signer == wanted.signer.as_str())
        .collect();
    let own = of_signer.iter().find(|it| it.name == wanted.name);
    let first = match own {
        None => Some(Step::Create),
        Some(own) if own.text != wanted.text || !own.is_ours => {
            Some(Step::Restore(Existing::clone(own)))
        }
        Some(_) => None,
    };
    let anchors = fingerprints(&wanted.text);
    let is_earlier = |it: &&&Existing| {
        it.is_ours && it.name != wanted.name && !fingerprints(&it.text).is_disjoint(&anchors)
    };
    let earlier = of_signer.iter().filter(is_earlier);
    let earlier = earlier.map(|it| Step::Delete(Existing::clone(it)));
    first.into_iter().chain(earlier).collect()
}

fn fingerprints(text: &str) -> BTreeSet<String> {
    let all = certificates(text).unwrap_or_default();
    all.iter().map(|it| it.fingerprint().to_hex()).collect()
}

fn certificates(text: &str) -> Result<Vec<Certificate>, String> {
    let blocks = pem::decode_all(text.as_bytes(), &LIMITS).map_err(|fault| fault.to_string())?;
    let certificates = blocks.iter().filter(|block| block.label == "CERTIFICATE");
    certificates
        .map(|block| Certificate::parse(&block.der).map_err(|fault| fault.to_string()))
        .collect()
}

/// By which our bundles are known.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "countersign");
/// Twelve bytes in hexadecimal, as kube-controller-manager names its own.
const SUFFIX: usize = 24;
/// The API server's bound for a bundle.
const LIMITS: PemLimits = PemLimits {
    max_text: 1024 * 1024,
    max_blocks: 1024,
};

#[cfg(test)]
mod tests {
    use countersign_pki::{AltName, UnixTime};
    use countersign_testkit::chain::{Ca, Leaf};
    use countersign_testkit::keys;

    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn signer() -> SignerName {
        SignerName::parse("example.com/web").unwrap()
    }

    fn cas() -> (Ca, Ca) {
        (
            Ca::root("one", keys::p256_a(), NOW),
            Ca::root("two", keys::p256_b(), NOW),
        )
    }

    fn pem_of(ca: &Ca) -> String {
        ca.certificate.to_pem()
    }

    /// A bundle in the cluster with this text, under the name that belongs to another.
    fn existing(named_after: &Wanted, text: &str, is_ours: bool) -> Existing {
        let mut object = named_after.object();
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["resourceVersion"] = json!("7");
        object["spec"]["trustBundle"] = json!(text);
        if !is_ours {
            object["metadata"]["labels"] = json!({"team": "x"});
        }
        Existing::read(object).unwrap()
    }

    fn words(steps: &[Step]) -> Vec<String> {
        let word = |step: &Step| match step {
            Step::Create => "create".to_owned(),
            Step::Restore(it) => format!("restore {}", it.name),
            Step::Delete(it) => format!("delete {}", it.name),
        };
        steps.iter().map(word).collect()
    }

    #[test]
    fn pc_29_what_is_published_is_cleaned_first() {
        let (one, two) = cas();
        let leaf = one.leaf(&Leaf {
            common_name: "leaf",
            names: &[AltName::Dns("leaf.example.com".to_owned())],
            usage: countersign_pki::oid::EKU_SERVER_AUTH,
            key: keys::p256_c(),
            serial: 7,
            now: NOW,
        });
        let clean = format!("{}{}", pem_of(&one), pem_of(&two));
        let wanted = Wanted::of(&signer(), &clean).unwrap();
        assert_eq!(wanted.text, clean);
        assert!(
            wanted.name.starts_with("example.com:web:"),
            "{}",
            wanted.name
        );
        assert_eq!(wanted.name.len(), "example.com:web:".len() + 24);
        let doubled = format!("{clean}{}", pem_of(&one));
        let with_leaf = format!("{}{}{}", pem_of(&one), leaf.to_pem(), pem_of(&two));
        let with_text = format!("who: me\n{}between\n{}", pem_of(&one), pem_of(&two));
        for dirty in [doubled, with_leaf, with_text] {
            assert_eq!(
                Wanted::of(&signer(), &dirty).as_ref(),
                Ok(&wanted),
                "{dirty}"
            );
        }
        let header = pem_of(&one).replacen("-----\n", "-----\nOwner: me\n\n", 1);
        if let Ok(published) = Wanted::of(&signer(), &header) {
            assert!(!published.text.contains("Owner"), "{}", published.text);
        }
        let broken = clean.replacen("MII", "M!I", 1);
        for refused in ["", &leaf.to_pem(), &broken] {
            assert!(Wanted::of(&signer(), refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_new_bundle_comes_before_the_old_one_goes() {
        let (one, two) = cas();
        let (first, both) = (pem_of(&one), format!("{}{}", pem_of(&two), pem_of(&one)));
        let old = Wanted::of(&signer(), &first).unwrap();
        let new = Wanted::of(&signer(), &both).unwrap();
        assert_ne!(old.name, new.name);
        let published = existing(&old, &first, true);
        let found = steps(&new, [&published].into_iter());
        assert_eq!(
            words(&found),
            ["create".to_owned(), format!("delete {}", old.name)]
        );
        let there = existing(&new, &both, true);
        assert!(steps(&new, [&there].into_iter()).is_empty());
    }

    #[test]
    fn bundles_of_others_are_left_alone() {
        let (one, two) = cas();
        let (mine, theirs) = (pem_of(&one), pem_of(&two));
        let wanted = Wanted::of(&signer(), &mine).unwrap();
        let other = Wanted::of(&signer(), &theirs).unwrap();
        // Without our label; of another installation that has the label; of another signer.
        let unlabelled = existing(&other, &format!("{mine}{theirs}"), false);
        let installation = existing(&other, &theirs, true);
        let elsewhere = SignerName::parse("example.com/other").unwrap();
        let elsewhere = existing(&Wanted::of(&elsewhere, &mine).unwrap(), &mine, true);
        for left in [&unlabelled, &installation, &elsewhere] {
            assert_eq!(
                words(&steps(&wanted, [left].into_iter())),
                ["create"],
                "{left:?}"
            );
        }
    }

    #[test]
    fn an_edited_bundle_is_restored_with_what_others_put_beside() {
        let (one, two) = cas();
        let wanted = Wanted::of(&signer(), &pem_of(&one)).unwrap();
        for edited in [
            existing(&wanted, &pem_of(&two), true),
            existing(&wanted, &pem_of(&one), false),
        ] {
            let found = steps(&wanted, [&edited].into_iter());
            assert_eq!(words(&found), [format!("restore {}", wanted.name)]);
            let object = edited.with(&wanted);
            assert_eq!(object["spec"]["trustBundle"], pem_of(&one));
            assert_eq!(object["metadata"]["resourceVersion"], "7");
            assert!(Existing::read(object).unwrap().is_ours);
        }
    }
}
