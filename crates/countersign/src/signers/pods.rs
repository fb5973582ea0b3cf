//! Signers that sign for pods: what their certificates are called, and what they take.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use countersign_authority::Profile;
use countersign_authority::profile::{Lifetime, UsageRule};
use countersign_cluster::{PodKeyType, PodTerms};
use countersign_pki::{
    AltName, CheckedCsr, KeyType, RequestTemplate, StringKind, SubjectBuilder, ext, oid,
};
use countersign_policy::PodFacts;

use crate::config::{NameKind, PodsSection, SignerSection, nearest};

/// How the certificates of a signer's pods are named. Every name comes from what the cluster knows of the pod.
#[derive(Clone, Debug)]
pub(crate) struct PodNames {
    pub(crate) terms: PodTerms,
    trust_domain: Option<String>,
}

impl PodNames {
    /// Checks what a signer declares for pods.
    pub(crate) fn of(section: &SignerSection, pods: &PodsSection) -> Result<Self> {
        let domain = section.name.split('/').next().unwrap_or_default();
        ensure!(
            domain != RESERVED && !domain.ends_with(&format!(".{RESERVED}")),
            "signers of {RESERVED} and the domains below it are Kubernetes' own"
        );
        let maximum = section.max_lifetime.unwrap_or(section.lifetime);
        ensure!(
            maximum.as_seconds() >= MIN_LIFETIME,
            "certificates of pods live an hour at least, those of this signer {maximum} at most"
        );
        if let Some(domain) = &pods.trust_domain {
            let legal = |c: char| {
                c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_')
            };
            ensure!(
                !domain.is_empty() && domain.len() <= MAX_TRUST_DOMAIN && domain.chars().all(legal),
                "trust_domain: {domain:?} is not a domain in lower case, such as prod.example.com"
            );
            ensure!(
                section.names.contains(&NameKind::Uri),
                "trust_domain: certificates would have a URI; add uri to `names` of the signer"
            );
        }
        let mut key_types = Vec::new();
        for word in &pods.key_types {
            let known = PodKeyType::ALL.map(PodKeyType::word);
            let hint = nearest(word, known)
                .map_or_else(|| known.join(", "), |near| format!("did you mean {near}?"));
            let kind = PodKeyType::parse(word);
            let Some(kind) = kind else {
                anyhow::bail!("key_types: unknown key type {word:?}; {hint}");
            };
            key_types.push(kind);
        }
        if key_types.is_empty() {
            key_types.extend(PodKeyType::ALL);
        }
        Ok(Self {
            terms: PodTerms {
                key_types,
                annotations: pods.annotations.iter().cloned().collect::<BTreeSet<_>>(),
            },
            trust_domain: pods.trust_domain.clone(),
        })
    }

    /// The request that a pod's stub stands for: its key, with the names of the pod. `None` if it cannot be worded.
    pub(crate) fn request(&self, pod: &PodFacts, stub: &CheckedCsr) -> Option<CheckedCsr> {
        let subject = SubjectBuilder::new()
            .push(oid::COMMON_NAME, &pod.username(), StringKind::Utf8)
            .build();
        let uri = self.trust_domain.as_ref().map(|domain| {
            // The form that service meshes have settled on.
            let (namespace, account) = (&pod.namespace, &pod.service_account);
            AltName::Uri(format!("spiffe://{domain}/ns/{namespace}/sa/{account}"))
        });
        let names: Vec<AltName> = uri.into_iter().collect();
        let extensions = match names.is_empty() {
            true => Vec::new(),
            false => vec![ext::subject_alt_name(&names, false)],
        };
        // The holder of the key has proven to have it by signing the stub.
        let template = RequestTemplate {
            subject_der: &subject,
            spki_der: stub.spki_der(),
            extensions: &extensions,
            attributes: &[],
        };
        template.unsigned()
    }
}

/// What the API server wants of the life of a pod's certificate: it begins less than five minutes ago, and all of it counts.
pub(super) fn shape(lifetime: &mut Lifetime) {
    lifetime.backdate = lifetime.backdate.min(BACKDATE);
    lifetime.backdate_included_from = Some(0);
}

/// What a pod's certificate is for: whatever the signer insists on, and of what it permits that which TLS needs.
pub(crate) fn usages(profile: &Profile, key: KeyType) -> Vec<String> {
    let UsageRule::Asked {
        required,
        permitted,
    } = &profile.usages
    else {
        return Vec::new();
    };
    // RFC 5480 3: an EC or Ed25519 key enciphers no keys.
    let enciphers = matches!(key, KeyType::Rsa { .. });
    let is_usual = |name: &str| USUAL.contains(&name) || (enciphers && name == ENCIPHERS);
    let usages = permitted
        .iter()
        .filter(|usage| required.contains(usage) || is_usual(usage.name()));
    usages.map(|usage| usage.name().to_owned()).collect()
}

/// The shortest life that the API server takes.
pub(crate) const MIN_LIFETIME: u64 = 3600;
/// For clocks that lag.
const BACKDATE: u64 = 60;
const MAX_TRUST_DOMAIN: usize = 255;
const RESERVED: &str = "kubernetes.io";
const USUAL: [&str; 4] = ["digital signature", "signing", "server auth", "client auth"];
const ENCIPHERS: &str = "key encipherment";

#[cfg(test)]
mod tests {
    use countersign_pki::CsrLimits;
    use countersign_testkit::csr::CsrBuilder;
    use countersign_testkit::keys::{self, Key};
    use serde_json::{Value, json};

    use super::*;
    use crate::signers::custom::custom;

    fn section(more: &Value) -> SignerSection {
        let mut section = json!({"name": "example.com/web", "names": ["uri"]});
        for (key, value) in more.as_object().unwrap() {
            section[key] = value.clone();
        }
        serde_json::from_value(section).unwrap()
    }

    fn stub(key: &Key) -> CheckedCsr {
        let message = CsrBuilder::without_subject().sign(key);
        CheckedCsr::check(&message, &CsrLimits::STANDARD).unwrap()
    }

    fn pod() -> PodFacts {
        PodFacts {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            service_account: "web".to_owned(),
            ..PodFacts::default()
        }
    }

    #[test]
    fn a_declaration_for_pods_is_checked() {
        for good in [
            json!({"pods": {}}),
            json!({"pods": {"trust_domain": "prod.example.com", "key_types": ["ED25519"]}}),
            json!({"names": [], "lifetime": "1h", "pods": {}}),
        ] {
            custom(&section(&good)).unwrap();
        }
        for (bad, said) in [
            (
                json!({"names": [], "pods": {"trust_domain": "a.example"}}),
                "add uri to `names`",
            ),
            (
                json!({"pods": {"trust_domain": "A.example/x"}}),
                "is not a domain",
            ),
            (
                json!({"pods": {"key_types": ["ECDSAP255"]}}),
                "did you mean ECDSAP256?",
            ),
            (
                json!({"lifetime": "30m", "pods": {}}),
                "live an hour at least",
            ),
            (
                json!({"name": "x.kubernetes.io/web", "pods": {}}),
                "Kubernetes' own",
            ),
        ] {
            let fault = custom(&section(&bad)).unwrap_err();
            assert!(format!("{fault:#}").contains(said), "{fault:#}");
        }
    }

    #[test]
    fn names_come_from_the_pod_and_the_key_from_the_stub() {
        let (uri, none) = (
            json!({"pods": {"trust_domain": "a.example"}}),
            json!({"pods": {}}),
        );
        let uri_name = AltName::Uri("spiffe://a.example/ns/shop/sa/web".to_owned());
        for (declared, names) in [(uri, vec![uri_name]), (none, Vec::new())] {
            let section = section(&declared);
            let declared = PodNames::of(&section, section.pods.as_ref().unwrap()).unwrap();
            for key in [
                keys::p256_a(),
                keys::p521(),
                keys::ed25519(),
                keys::rsa3072(),
            ] {
                let request = declared.request(&pod(), &stub(key)).unwrap();
                assert_eq!(request.spki_der(), key.spki_der());
                let subject = request.subject().to_string();
                assert_eq!(subject, "CN=system:serviceaccount:shop:web");
                assert_eq!(request.alt_names(), names);
                let profile = custom(&section).unwrap().profile;
                let wishes = countersign_policy::Wishes {
                    usages: usages(&profile, request.public_key().key_type),
                    expiration_seconds: Some(3600),
                };
                profile.examine(&request, "k", &wishes).unwrap();
            }
        }
    }

    #[test]
    fn a_certificate_is_for_tls_as_far_as_its_key_and_signer_go() {
        let usage_names = [
            "cert sign",
            "digital signature",
            "key encipherment",
            "server auth",
            "timestamping",
        ];
        let declared =
            json!({"usages": usage_names, "required_usages": ["timestamping"], "pods": {}});
        let profile = custom(&section(&declared)).unwrap().profile;
        let of = |key: &Key| usages(&profile, stub(key).public_key().key_type);
        assert_eq!(
            of(keys::p256_a()),
            ["digital signature", "server auth", "timestamping"]
        );
        assert_eq!(
            of(keys::rsa3072()),
            [
                "digital signature",
                "key encipherment",
                "server auth",
                "timestamping"
            ]
        );
    }
}
