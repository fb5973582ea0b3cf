//! Faults of the engine and of the resource's own rules, in Kubernetes' words.

use countersign_authority::profile::{AltNameRule, NameKinds, UsageRule};
use countersign_authority::store::StoreFault;
use countersign_authority::{ActFault, Authority, Broken, ProfileFault, RequestRecord, SignFault};
use countersign_kapi::decode::DecodeFault;
use countersign_kapi::negotiate::MediaFault;
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
        authority.unsignable(record),
        authority.signer(&record.signer),
    ) else {
        return recorded();
    };
    let profile = &signer.profile;
    profile_text(
        &fault,
        record.signer.as_str(),
        &profile.alt_names,
        &profile.usages,
    )
}

/// A profile's fault in the words of the signer's original.
fn profile_text(
    fault: &ProfileFault,
    signer: &str,
    alt_names: &AltNameRule,
    usages: &UsageRule,
) -> String {
    match fault {
        ProfileFault::UsageNotPermitted { usage } if signer == CLIENT_SIGNER => {
            format!("invalid usage for client certificate: {usage}")
        }
        ProfileFault::UsageMissing { usage } if signer == CLIENT_SIGNER => {
            format!("missing required usage for client certificate: {usage}")
        }
        ProfileFault::UsageNotPermitted { .. } | ProfileFault::UsageMissing { .. } => {
            match usages {
                UsageRule::Asked { permitted, .. } if signer.starts_with("kubernetes.io/") => {
                    let mut names: Vec<&str> = permitted.iter().map(|usage| usage.name()).collect();
                    names.sort_unstable();
                    format!("usages did not match [{}]", names.join(" "))
                }
                UsageRule::Asked { .. } | UsageRule::ServerAndClient => fault.to_string(),
            }
        }
        ProfileFault::AltNames { names } => match alt_names {
            AltNameRule::Kinds(kinds) => refused_kind(names, *kinds)
                .map(|kind| format!("{kind} subjectAltNames are not allowed"))
                .unwrap_or_else(|| fault.to_string()),
            AltNameRule::OwnName { .. } => fault.to_string(),
        },
        other => other.to_string(),
    }
}

/// The first kind of name that is not permitted, in the order in which the original looks.
fn refused_kind(names: &[AltName], permitted: NameKinds) -> Option<&'static str> {
    let has = |is: fn(&AltName) -> bool| names.iter().any(is);
    let kinds = [
        (
            "DNS",
            permitted.dns,
            has(|name| matches!(name, AltName::Dns(_))),
        ),
        (
            "Email",
            permitted.email,
            has(|name| matches!(name, AltName::Email(_))),
        ),
        (
            "IP",
            permitted.ip,
            has(|name| matches!(name, AltName::Ip(_))),
        ),
        (
            "URI",
            permitted.uri,
            has(|name| matches!(name, AltName::Uri(_))),
        ),
    ];
    kinds
        .into_iter()
        .find(|(_, permitted, asked)| *asked && !permitted)
        .map(|(kind, ..)| kind)
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
        ActFault::Broken(broken) => broken.into(),
    }
}

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Store(fault) => fault.into(),
            Broken::Sign(fault @ SignFault::Overloaded { .. }) => later(&fault),
            fault @ (Broken::Contended | Broken::ShuttingDown | Broken::Entropy(_)) => {
                later(&fault)
            }
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
pub(super) fn patch_refusal(fault: PatchFault, name: &str) -> Refusal {
    match fault {
        PatchFault::Decode(fault) => fault.into(),
        PatchFault::TooMany { .. } => Status::too_large(&fault.to_string()).into(),
        PatchFault::Form { .. } | PatchFault::Directive { .. } => {
            Status::bad_request(fault.to_string()).into()
        }
        PatchFault::Operation { .. } => {
            let mut status = Resource::CSR.invalid(name, &[]);
            status.message = fault.to_string();
            status.into()
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
    use countersign_authority::Profile;

    use super::*;

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
            (Broken::Store(StoreFault::Full).into(), 503, true),
            (Broken::Contended.into(), 503, true),
            (
                act_refusal(ActFault::Broken(Broken::ShuttingDown), "a"),
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

    fn usage(name: &str) -> ProfileFault {
        ProfileFault::UsageNotPermitted {
            usage: name.to_owned(),
        }
    }

    fn missing(name: &str) -> ProfileFault {
        ProfileFault::UsageMissing {
            usage: name.to_owned(),
        }
    }

    fn names(names: &[AltName]) -> ProfileFault {
        ProfileFault::AltNames {
            names: names.to_vec(),
        }
    }

    #[test]
    fn faults_read_as_the_original_signers_word_them() {
        let client = Profile::kube_apiserver_client();
        let none = NameKinds {
            dns: false,
            ip: false,
            email: false,
            uri: false,
        };
        let uri = AltName::Uri("spiffe://a".into());
        let mail = AltName::Email("a@b".into());
        let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
        let rows = [
            (
                CLIENT_SIGNER,
                usage("server auth"),
                "invalid usage for client certificate: server auth",
            ),
            (
                CLIENT_SIGNER,
                missing("client auth"),
                "missing required usage for client certificate: client auth",
            ),
            (
                kubelet,
                missing("client auth"),
                "usages did not match [client auth digital signature key encipherment]",
            ),
            (
                kubelet,
                names(&[uri.clone(), mail]),
                "Email subjectAltNames are not allowed",
            ),
            (
                kubelet,
                names(&[uri]),
                "URI subjectAltNames are not allowed",
            ),
        ];
        for (signer, fault, text) in rows {
            let told = profile_text(&fault, signer, &AltNameRule::Kinds(none), &client.usages);
            assert_eq!(told, text, "{signer}");
        }
        let own = profile_text(
            &usage("any"),
            "example.com/vpn",
            &client.alt_names,
            &client.usages,
        );
        assert_eq!(own, usage("any").to_string());
    }
}
