//! What is written to a PodCertificateRequest: the whole outcome in one write, for exactly the state that was judged.

use countersign_pki::UnixTime;
use serde_json::{Value, json};

use super::objects::PodRequest;
use super::signing::PodCertificate;
use crate::plan::shortened;

/// The object with its certificate.
pub(crate) fn issued(request: &PodRequest, certificate: &PodCertificate, now: UnixTime) -> Value {
    let PodCertificate {
        chain,
        not_before,
        not_after,
        ..
    } = certificate;
    with_status(
        request,
        json!({
            "conditions": [condition("Issued", "CountersignIssued", "", now)],
            "certificateChain": chain,
            "notBefore": not_before.to_string(),
            "notAfter": not_after.to_string(),
            "beginRefreshAt": begin_refresh(*not_before, *not_after).to_string(),
        }),
    )
}

/// The object with the condition `Denied` or `Failed`.
pub(crate) fn refused(
    request: &PodRequest,
    kind: &'static str,
    reason: &str,
    message: &str,
    now: UnixTime,
) -> Value {
    let conditions = [condition(kind, reason, message, now)];
    with_status(request, json!({"conditions": conditions}))
}

/// When two thirds of the lifetime have passed. The API server wants ten minutes from either end, which a lifetime of an hour
/// or more always leaves.
pub(crate) fn begin_refresh(not_before: UnixTime, not_after: UnixTime) -> UnixTime {
    let lifetime = u64::try_from(not_after.seconds_since(not_before)).unwrap_or(0);
    not_after.minus_seconds(lifetime / 3)
}

fn condition(kind: &str, reason: &str, message: &str, now: UnixTime) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": shortened(message),
        "lastTransitionTime": now.to_string(),
    })
}

fn with_status(request: &PodRequest, status: Value) -> Value {
    let mut object = request.object.clone();
    if let Some(members) = object.as_object_mut() {
        members.insert("status".to_owned(), status);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_begins_ten_minutes_inside_both_ends() {
        for lifetime in [3600, 7200, 86_400, 7_862_400] {
            let (begin, end) = (UnixTime(1_000_000), UnixTime(1_000_000 + lifetime));
            let refresh = begin_refresh(begin, end);
            assert!(refresh.seconds_since(begin) >= 600, "{lifetime}");
            assert!(end.seconds_since(refresh) >= 600, "{lifetime}");
        }
    }
}
