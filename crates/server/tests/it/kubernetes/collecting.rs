//! Garbage collection of objects: each row of Kubernetes' own cleaner, to the second.

use countersign_authority::{RequestState, Retention};
use countersign_pki::pem;
use countersign_server::kubernetes::SPEC;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::signing::{certified, elsewhere, one};
use super::{Api, approval_of, manifest, path_of, with_condition};
use crate::world::{Forged, START};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// The defaults: what cleans up behind kube-controller-manager since 1.35.
fn rules() -> Vec<Retention> {
    [
        (RequestState::Pending, 24 * HOUR),
        (RequestState::Denied, HOUR),
        (RequestState::Failed, HOUR),
        (RequestState::Approved, 24 * HOUR),
        (RequestState::Issued, HOUR),
    ]
    .into_iter()
    .map(|(state, seconds)| Retention {
        door: &SPEC,
        state,
        seconds: seconds.unsigned_abs(),
    })
    .collect()
}

/// How an object came to where it stands; each wait is half an hour.
#[derive(Clone, Copy, Debug)]
enum Life {
    Pending,
    PendingNoted,
    Denied,
    Unsignable,
    Failed,
    FailedAfterApproval,
    Approved,
    Issued,
    IssuedForTenMinutes,
    Certified,
    CertifiedUnapproved,
    CertifiedForTenMinutes,
    CertifiedAndEnded,
    ApprovedByABadClock,
    ApprovedByAFastClock,
}

impl Life {
    async fn lead(self, api: &Api) -> Value {
        let later = || api.world.clock.advance(HOUR / 2);
        let mut sent = match self {
            Self::Approved | Self::Certified | Self::CertifiedUnapproved => elsewhere("one"),
            Self::CertifiedForTenMinutes | Self::CertifiedAndEnded | Self::FailedAfterApproval => {
                elsewhere("one")
            }
            _ => manifest("one"),
        };
        match self {
            Self::Unsignable => sent["spec"]["usages"] = json!(["server auth"]),
            Self::IssuedForTenMinutes => sent["spec"]["expirationSeconds"] = json!(600),
            _ => {}
        }
        let created = api.create(&sent).await;
        later();
        let condition = |kind: &str, time: Option<&str>| {
            let mut object = with_condition(&created, kind);
            object["status"]["conditions"][0]["lastUpdateTime"] = json!(time);
            object
        };
        let put = |object: Value| async move {
            let path = approval_of(&object);
            api.call("PUT", &path).json(&object).send().await.ok()
        };
        match self {
            Self::Pending => created,
            Self::PendingNoted => put(condition("Seen", None)).await,
            Self::Denied => put(condition("Denied", None)).await,
            Self::Failed => put(condition("Failed", None)).await,
            Self::Unsignable | Self::Approved | Self::Issued | Self::IssuedForTenMinutes => {
                put(condition("Approved", None)).await
            }
            // As if it had been approved hours before it was created.
            Self::ApprovedByABadClock => {
                put(condition("Approved", Some("2026-01-01T20:00:00Z"))).await
            }
            // An hour ahead: 2026-01-02T03:34:05Z is now.
            Self::ApprovedByAFastClock => {
                put(condition("Approved", Some("2026-01-02T04:34:05Z"))).await
            }
            Self::FailedAfterApproval => {
                let approved = put(condition("Approved", None)).await;
                later();
                let mut failed = with_condition(&approved, "Failed");
                failed["status"]["conditions"][1]["lastUpdateTime"] = json!(null);
                api.put_status(&failed).await.ok()
            }
            Self::Certified | Self::CertifiedForTenMinutes | Self::CertifiedAndEnded => {
                let approved = put(condition("Approved", None)).await;
                later();
                let minutes = match self {
                    Self::CertifiedForTenMinutes => 10,
                    Self::CertifiedAndEnded => -1,
                    _ => 1000,
                };
                let now = api.world.authority.now();
                let forged = Forged {
                    not_after: countersign_pki::UnixTime(now.0 + minutes * MINUTE),
                    not_before: START,
                    ..Forged::client("jane")
                };
                let issuer = api.world.kubernetes_issuer();
                let der = api.world.forge(&issuer, keys::p256_a(), &forged).await;
                let text = pem::encode("CERTIFICATE", &der);
                api.put_status(&certified(&approved, &text)).await.ok()
            }
            Self::CertifiedUnapproved => api.put_status(&certified(&created, &one(2))).await.ok(),
        }
    }
}

async fn is_there(api: &Api) -> bool {
    api.world
        .authority
        .requests
        .collect(&rules())
        .await
        .unwrap();
    api.record("one").await.is_some()
}

#[tokio::test]
async fn objects_go_when_their_time_is_over_and_not_before() {
    // How many seconds after its last change it goes.
    let rows = [
        (Life::Pending, 24 * HOUR - HOUR / 2, "its arrival counts"),
        (
            Life::PendingNoted,
            24 * HOUR - HOUR / 2,
            "a foreign condition keeps nothing",
        ),
        (Life::Denied, HOUR, ""),
        (Life::Unsignable, HOUR, ""),
        (Life::Failed, HOUR, ""),
        (Life::FailedAfterApproval, HOUR, "not its approval counts"),
        (Life::Approved, 24 * HOUR, ""),
        (Life::Issued, HOUR, ""),
        (
            Life::IssuedForTenMinutes,
            10 * MINUTE,
            "its certificate ends",
        ),
        (Life::Certified, HOUR, "who asked has an hour to fetch it"),
        (Life::CertifiedUnapproved, HOUR, ""),
        (
            Life::CertifiedForTenMinutes,
            10 * MINUTE,
            "its certificate ends",
        ),
        (Life::ApprovedByABadClock, HOUR, "the decision counts"),
        (Life::ApprovedByAFastClock, 2 * HOUR, "the condition counts"),
    ];
    for (life, seconds, why) in rows {
        let api = Api::start().await;
        life.lead(&api).await;
        assert!(is_there(&api).await, "{life:?} {why}");
        api.world.clock.advance(seconds - 1);
        assert!(is_there(&api).await, "{life:?} {why}: a second before");
        api.world.clock.advance(1);
        assert!(is_there(&api).await, "{life:?} {why}: to the second");
        api.world.clock.advance(1);
        assert!(!is_there(&api).await, "{life:?} {why}");
    }
    let api = Api::start().await;
    Life::CertifiedAndEnded.lead(&api).await;
    assert!(!is_there(&api).await, "at once");
}

/// What has finalizers is marked whatever its state, and goes when they are removed.
#[tokio::test]
async fn finalizers_hold_back_in_every_state() {
    for life in [
        Life::Pending,
        Life::Denied,
        Life::Failed,
        Life::Approved,
        Life::Issued,
        Life::CertifiedForTenMinutes,
    ] {
        let api = Api::start().await;
        let object = life.lead(&api).await;
        let finalizers = |names: Value| json!({"metadata": {"finalizers": names}}).to_string();
        let patch = |body: String| {
            let call = api.call("PATCH", &path_of(&object));
            call.body("application/merge-patch+json", body).send()
        };
        patch(finalizers(json!(["example.com/audit"]))).await.ok();
        api.world.clock.advance(25 * HOUR);
        assert!(is_there(&api).await, "{life:?}");
        let marked = api.get(&path_of(&object)).await.ok();
        assert!(
            marked["metadata"]["deletionTimestamp"].is_string(),
            "{life:?}"
        );
        assert_eq!(marked["status"], object["status"], "{life:?}");
        assert!(is_there(&api).await, "{life:?}");
        let version = &marked["metadata"]["resourceVersion"];
        let again = api.get(&path_of(&object)).await.ok();
        assert_eq!(
            again["metadata"]["resourceVersion"], *version,
            "marked once"
        );
        patch(finalizers(json!(null))).await.ok();
        assert!(api.record("one").await.is_none(), "{life:?}");
    }
}
