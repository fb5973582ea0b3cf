//! Faults of the engine and of the resource's own rules, in Kubernetes' words.

use countersign_authority::profile::{AltNameRule, NameKinds, UsageRule};
use countersign_authority::store::StoreFault;
use countersign_authority::{
    ActFault, Authority, EngineError, Profile, ProfileFault, RequestRecord, SignFault,
};
use countersign_kapi::decode::DecodeFault;
use countersign_kapi::negotiate::MediaFault;
use countersign_kapi::ownership::ApplyFault;
use countersign_kapi::patch::PatchFault;
use countersign_kapi::selector::SelectorFault;
use countersign_kapi::{Resource, Status};
use countersign_pki::AltName;
use tracing::error;

use super::answer::Refusal;

/// Why the signer of a record failed it, worded as kube-controller-manager words it: people and
/// programs look for these sentences in the Failed condition.
pub(super) fn failure_text(authority: &Authority, record: &RequestRecord) -> String {
    let recorded = || record.failure.clone().unwrap_or_default();
    let (Some(fault), Some(signer)) = (
        authority.requests.unsignable(record),
        authority.rules().signer(&record.signer),
    ) else {
        return recorded();
    };
    profile_text(&fault, record.signer.as_str(), &signer.profile)
}

/// A profile's fault in the words of the signer's original.
pub fn profile_text(fault: &ProfileFault, signer: &str, profile: &Profile) -> String {
    match fault {
        ProfileFault::UsageNotPermitted { usage } if signer == CLIENT_SIGNER => {
            format!("invalid usage for client certificate: {usage}")
        }
        ProfileFault::UsageMissing { usage } if signer == CLIENT_SIGNER => {
            format!("missing required usage for client certificate: {usage}")
        }
        ProfileFault::UsageNotPermitted { .. } | ProfileFault::UsageMissing { .. } => {
            match &profile.usages {
                UsageRule::Asked { permitted, .. } if signer.starts_with("kubernetes.io/") => {
                    let mut names: Vec<&str> = permitted.iter().map(|usage| usage.name()).collect();
                    names.sort_unstable();
                    format!("usages did not match [{}]", names.join(" "))
                }
                UsageRule::Asked { .. } | UsageRule::ServerAndClient => fault.to_string(),
            }
        }
        ProfileFault::AltNames { names, .. } => match profile.alt_names {
            AltNameRule::Kinds(kinds) => refused_kind(names, kinds)
                .map(|kind| format!("{kind} subjectAltNames are not allowed"))
                .unwrap_or_else(|| fault.to_string()),
            AltNameRule::OwnName { .. } => fault.to_string(),
        },
        ProfileFault::NameRequired { kinds } => format!("{kinds} subjectAltName is required"),
        ProfileFault::Organizations { exactly } => {
            format!("subject organization is not {}", exactly.join(", "))
        }
        ProfileFault::CommonName { permitted, .. } => match permitted.as_slice() {
            [only] if let Some(prefix) = only.as_prefix() => {
                format!("subject common name does not begin with {prefix}")
            }
            _ => fault.to_string(),
        },
        other => other.to_string(),
    }
}

/// The first kind of name that is not permitted, in the order in which the original looks.
fn refused_kind(names: &[AltName], permitted: NameKinds) -> Option<&'static str> {
    let refused = |name: &&AltName| !permitted.has(name);
    let mut asked = NameKinds::NONE;
    for name in names.iter().filter(refused) {
        match name {
            AltName::Dns(_) => asked.dns = true,
            AltName::Email(_) => asked.email = true,
            AltName::Ip(_) => asked.ip = true,
            AltName::Uri(_) => asked.uri = true,
            AltName::Other { .. } => {}
        }
    }
    asked.words().first().copied()
}

/// An act that the engine refused for a reason the client can do nothing about. Conflicts are not
/// among them: those are looked at again first.
pub(super) fn act_refusal(fault: ActFault, name: &str) -> Refusal {
    match fault {
        ActFault::NotFound { .. } => Resource::CSR.not_found(name).into(),
        ActFault::AlreadyDecided { .. } | ActFault::Conflict { .. } => {
            Resource::CSR.modified(name).into()
        }
        ActFault::Unsignable { fault, .. } => {
            Resource::CSR.not_admitted(name, &fault.to_string()).into()
        }
        ActFault::Forbidden(needed) => Resource::CSR.not_admitted(name, &needed.to_string()).into(),
        ActFault::Engine(broken) => broken.into(),
    }
}

impl From<EngineError> for Refusal {
    fn from(broken: EngineError) -> Self {
        match broken {
            EngineError::Store(fault) => fault.into(),
            EngineError::Sign(fault @ SignFault::Overloaded { .. }) => later(&fault),
            fault @ (EngineError::Contended
            | EngineError::ShuttingDown
            | EngineError::Entropy(_)) => later(&fault),
            fault => {
                error!(
                    fault = &fault as &dyn std::error::Error,
                    "request not carried through"
                );
                Status::internal_error(&fault.to_string()).into()
            }
        }
    }
}

impl From<StoreFault> for Refusal {
    fn from(fault: StoreFault) -> Self {
        error!(
            fault = &fault as &dyn std::error::Error,
            "the store did not answer"
        );
        match fault {
            StoreFault::Corrupt { .. } => Status::internal_error(&fault.to_string()).into(),
            StoreFault::Full
            | StoreFault::ReadOnly
            | StoreFault::Overloaded
            | StoreFault::Stopped
            | StoreFault::Failed { .. } => later(&fault),
        }
    }
}

impl From<DecodeFault> for Refusal {
    fn from(fault: DecodeFault) -> Self {
        match fault {
            DecodeFault::TooLarge => Status::too_large(&fault.to_string()).into(),
            _ => Status::bad_request(fault.to_string()).into(),
        }
    }
}

/// A patch that cannot be applied to the object of this name.
pub(super) fn patch_refusal(fault: PatchFault, of: Resource<'_>, name: &str) -> Refusal {
    match fault {
        PatchFault::Decode(fault) => fault.into(),
        PatchFault::TooMany { .. } => Status::too_large(&fault.to_string()).into(),
        PatchFault::Form { .. } | PatchFault::Directive { .. } => {
            Status::bad_request(fault.to_string()).into()
        }
        PatchFault::Operation { .. } => {
            let mut status = of.invalid(name, &[]);
            status.message = fault.to_string();
            status.into()
        }
    }
}

impl From<ApplyFault> for Refusal {
    fn from(fault: ApplyFault) -> Self {
        match fault {
            ApplyFault::Decode(fault) => fault.into(),
            ApplyFault::Conflict(status) => status.into(),
        }
    }
}

impl From<MediaFault> for Refusal {
    fn from(fault: MediaFault) -> Self {
        match fault {
            MediaFault::Body | MediaFault::Patch => {
                Status::unsupported_media_type(fault.to_string()).into()
            }
            MediaFault::Answer => Status::not_acceptable(fault.to_string()).into(),
        }
    }
}

impl From<SelectorFault> for Refusal {
    fn from(fault: SelectorFault) -> Self {
        Status::bad_request(fault.to_string()).into()
    }
}

fn later(fault: &dyn std::error::Error) -> Refusal {
    Status::service_unavailable(fault.to_string(), RETRY_SECONDS).into()
}

/// Signs for clients of API servers; its refusals have sentences of their own.
pub(super) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Clients wait so long before they try a passing fault again.
const RETRY_SECONDS: u32 = 2;

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use countersign_authority::profile::Usage;
    use countersign_pki::{CheckedCsr, CsrLimits};
    use countersign_policy::Wishes;
    use countersign_testkit::csr::CsrBuilder;
    use countersign_testkit::keys;

    use super::*;
    use crate::kubernetes::profiles;

    #[test]
    fn passing_faults_say_when_to_come_back() {
        let failed = || StoreFault::Failed {
            source: "a secret path".into(),
        };
        let rows: [(Refusal, u16, bool); 9] = [
            (StoreFault::Full.into(), 503, true),
            (StoreFault::ReadOnly.into(), 503, true),
            (StoreFault::Overloaded.into(), 503, true),
            (StoreFault::Stopped.into(), 503, true),
            (failed().into(), 503, true),
            (StoreFault::Corrupt { what: "request" }.into(), 500, false),
            (EngineError::Store(StoreFault::Full).into(), 503, true),
            (EngineError::Contended.into(), 503, true),
            (
                act_refusal(ActFault::Engine(EngineError::ShuttingDown), "a"),
                503,
                true,
            ),
        ];
        for (index, (refusal, code, retry)) in rows.into_iter().enumerate() {
            let told = format!("{refusal:?}");
            assert!(!told.contains("secret"), "{told}");
            let response = refusal.into_response();
            assert_eq!(response.status().as_u16(), code, "row {index}");
            assert_eq!(
                response.headers().contains_key("retry-after"),
                retry,
                "row {index}"
            );
        }
    }

    fn text(signer: &str, profile: &Profile, csr: &CsrBuilder, usages: &[&str]) -> Option<String> {
        let der = csr.sign(keys::p256_a());
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        let wishes = Wishes {
            usages: usages.iter().map(ToString::to_string).collect(),
            expiration_seconds: None,
        };
        let fault = profile.examine(&csr, "object", &wishes).err()?;
        Some(profile_text(&fault, signer, profile))
    }

    fn node() -> CsrBuilder {
        CsrBuilder::new("system:node:a").organization("system:nodes")
    }

    /// What the kubelets' signers say to the same request.
    struct Row {
        what: &'static str,
        csr: CsrBuilder,
        usages: &'static [&'static str],
        client: Option<&'static str>,
        serving: Option<&'static str>,
    }

    #[test]
    fn faults_of_kubelets_are_told_in_the_order_and_the_words_of_the_original_signers() {
        let ip = "192.0.2.1".parse().unwrap();
        let named = || CsrBuilder::new("jane").organization("system:nodes");
        let rows = [
            Row {
                what: "a client",
                csr: node(),
                usages: &CLIENT,
                client: None,
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "a client with an RSA key",
                csr: node(),
                usages: &RSA_CLIENT,
                client: None,
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "a server",
                csr: node().dns("a").ip(ip),
                usages: &SERVER,
                client: Some("DNS subjectAltNames are not allowed"),
                serving: None,
            },
            Row {
                what: "a server with an RSA key and an address alone",
                csr: node().ip(ip),
                usages: &RSA_SERVER,
                client: Some("IP subjectAltNames are not allowed"),
                serving: None,
            },
            Row {
                what: "no group",
                csr: CsrBuilder::new("jane").dns("a"),
                usages: &[],
                client: Some(NOT_NODES),
                serving: Some(NOT_NODES),
            },
            Row {
                what: "another group beside",
                csr: node().organization("other"),
                usages: &CLIENT,
                client: Some(NOT_NODES),
                serving: Some(NOT_NODES),
            },
            Row {
                what: "the group twice",
                csr: node().organization("system:nodes"),
                usages: &CLIENT,
                client: Some(NOT_NODES),
                serving: Some(NOT_NODES),
            },
            Row {
                what: "the group in other letters",
                csr: CsrBuilder::new("system:node:a").organization("System:nodes"),
                usages: &CLIENT,
                client: Some(NOT_NODES),
                serving: Some(NOT_NODES),
            },
            Row {
                what: "every kind of name",
                csr: node().uri("spiffe://a").ip(ip).email("a@b").dns("a"),
                usages: &[],
                client: Some("DNS subjectAltNames are not allowed"),
                serving: Some("Email subjectAltNames are not allowed"),
            },
            Row {
                what: "every kind but DNS",
                csr: node().uri("spiffe://a").ip(ip).email("a@b"),
                usages: &[],
                client: Some("Email subjectAltNames are not allowed"),
                serving: Some("Email subjectAltNames are not allowed"),
            },
            Row {
                what: "address and URI",
                csr: node().uri("spiffe://a").ip(ip),
                usages: &[],
                client: Some("IP subjectAltNames are not allowed"),
                serving: Some("URI subjectAltNames are not allowed"),
            },
            Row {
                what: "URI alone",
                csr: node().uri("spiffe://a"),
                usages: &[],
                client: Some("URI subjectAltNames are not allowed"),
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "another common name and no usages",
                csr: named(),
                usages: &[],
                client: Some(NOT_A_NODE),
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "another common name, a DNS name and no usages",
                csr: named().dns("a"),
                usages: &[],
                client: Some("DNS subjectAltNames are not allowed"),
                serving: Some(SERVER_USAGES),
            },
            Row {
                what: "another common name and a server's usages",
                csr: named().dns("a"),
                usages: &SERVER,
                client: Some("DNS subjectAltNames are not allowed"),
                serving: Some(NOT_A_NODE),
            },
            Row {
                what: "no common name",
                csr: CsrBuilder::without_subject().organization("system:nodes"),
                usages: &CLIENT,
                client: Some(NOT_A_NODE),
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "a usage too few",
                csr: node(),
                usages: &["client auth"],
                client: Some(CLIENT_USAGES),
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "a usage too many",
                csr: node(),
                usages: &["digital signature", "client auth", "server auth"],
                client: Some(CLIENT_USAGES),
                serving: Some(NAME_REQUIRED),
            },
            Row {
                what: "a client's usages for a server",
                csr: node().dns("a"),
                usages: &CLIENT,
                client: Some("DNS subjectAltNames are not allowed"),
                serving: Some(SERVER_USAGES),
            },
        ];
        for row in &rows {
            let told =
                |signer: &str, profile: &Profile| text(signer, profile, &row.csr, row.usages);
            let client = told(
                "kubernetes.io/kube-apiserver-client-kubelet",
                &profiles::kubelet_client(),
            );
            assert_eq!(client.as_deref(), row.client, "{}: client", row.what);
            let serving = told(
                "kubernetes.io/kubelet-serving",
                &profiles::kubelet_serving(),
            );
            assert_eq!(serving.as_deref(), row.serving, "{}: serving", row.what);
        }
    }

    #[test]
    fn faults_of_clients_are_told_in_the_words_of_the_original_signer() {
        let client = profiles::apiserver_client();
        let any = CsrBuilder::new("jane")
            .dns("a")
            .email("a@b")
            .ip("2001:db8::1".parse().unwrap())
            .uri("spiffe://a");
        let rows: [(&[&str], Option<&str>); 7] = [
            (&["client auth"], None),
            (&CLIENT, None),
            (&RSA_CLIENT, None),
            (
                &["digital signature", "server auth", "any"],
                Some("invalid usage for client certificate: server auth"),
            ),
            (
                &["any", "server auth", "client auth"],
                Some("invalid usage for client certificate: any"),
            ),
            (
                &["digital signature"],
                Some("missing required usage for client certificate: client auth"),
            ),
            (
                &[],
                Some("missing required usage for client certificate: client auth"),
            ),
        ];
        for (usages, expected) in rows {
            let told = text(CLIENT_SIGNER, &client, &any, usages);
            assert_eq!(told.as_deref(), expected, "{usages:?}");
        }
        // Usages are looked at before anything else is.
        let masters = any.organization("system:masters");
        let told = text(CLIENT_SIGNER, &client, &masters, &[]);
        assert!(told.unwrap().starts_with("missing required usage"));
        let told = text(CLIENT_SIGNER, &client, &masters, &CLIENT);
        assert!(told.unwrap().contains("system:masters"));
    }

    #[test]
    fn the_legacy_signer_takes_whatever_has_a_name() {
        let legacy = profiles::legacy_unknown();
        let all: Vec<&str> = Usage::names().collect();
        let csr = CsrBuilder::new("x").organization("a").uri("spiffe://a");
        for usages in [all.as_slice(), &[]] {
            assert_eq!(
                text("kubernetes.io/legacy-unknown", &legacy, &csr, usages),
                None
            );
        }
    }

    #[test]
    fn other_signers_speak_for_themselves() {
        let mut own = profiles::kubelet_serving();
        own.order = &[];
        let told = text("example.com/vpn", &own, &node().dns("a"), &["any"]);
        let fault = ProfileFault::UsageNotPermitted {
            usage: "any".to_owned(),
        };
        assert_eq!(told.unwrap(), fault.to_string());
    }

    const CLIENT: [&str; 2] = ["digital signature", "client auth"];
    const RSA_CLIENT: [&str; 3] = ["key encipherment", "digital signature", "client auth"];
    const SERVER: [&str; 2] = ["server auth", "digital signature"];
    const RSA_SERVER: [&str; 3] = ["server auth", "digital signature", "key encipherment"];
    const NOT_NODES: &str = "subject organization is not system:nodes";
    const NOT_A_NODE: &str = "subject common name does not begin with system:node:";
    const NAME_REQUIRED: &str = "DNS or IP subjectAltName is required";
    const CLIENT_USAGES: &str =
        "usages did not match [client auth digital signature key encipherment]";
    const SERVER_USAGES: &str =
        "usages did not match [digital signature key encipherment server auth]";
}
