//! Where a Certificate stands: a pure function of its object, its CA, its Secret and the clock. The phase that an earlier
//! pass wrote is not asked: whoever edits or loses a status changes nothing.

use std::time::Duration;

use countersign_pki::UnixTime;

use super::holding::{Holding, Pair};
use super::object::{AuthorityObject, CertificateObject, ObjectName};
use super::order::{Order, OrderFault};
use super::renewal::{self, Due};

/// Everything that counts.
pub(crate) struct Observed<'a> {
    pub(crate) certificate: &'a CertificateObject,
    pub(crate) authority: Option<&'a AuthorityObject>,
    /// Whether its CA waits for it before it is ready.
    pub(crate) is_awaited: bool,
    /// Who had the name first.
    pub(crate) rival: Option<&'a ObjectName>,
    pub(crate) order: &'a Result<Order, OrderFault>,
    pub(crate) holding: &'a Holding,
    pub(crate) now: UnixTime,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It waits for an object that does not exist.
    NoAuthority,
    /// It waits for a CA that can be asked.
    NotReady,
    /// Nobody is asked for it, and why.
    Refused {
        reason: &'static str,
        message: String,
    },
    /// There is a certificate; this is due for it.
    Held(Due),
    /// A certificate is needed.
    Wanted(Why),
}

/// Why a certificate is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is none.
    First,
    /// There is one for another order.
    Changed,
    /// The one that there is has ended.
    Ended,
}

/// See above.
pub(crate) fn standing(observed: &Observed<'_>) -> Standing {
    let Observed {
        certificate,
        authority,
        is_awaited,
        rival,
        order,
        holding,
        now,
    } = observed;
    let Some(authority) = authority else {
        return Standing::NoAuthority;
    };
    let is_ready = authority.is_ready() || *is_awaited;
    if let Some(rival) = rival {
        let message = format!(
            "Certificate {} has the certname {} at this CA; this one is issued when that is gone",
            rival.name, certificate.spec.certname
        );
        return refused(CONFLICT, message);
    }
    if is_reserved(certificate, authority) {
        let fault = OrderFault::Reserved(certificate.spec.certname.clone());
        return refused(FAILED, fault.to_string());
    }
    let wanted = match holding {
        Holding::Absent => Why::First,
        Holding::Unfit(why) => return refused(FAILED, why.clone()),
        Holding::Pair(pair) => match of_pair(certificate, order.as_ref().ok(), pair, *now) {
            Ok(Due::Ended) if authority.external.is_some() => {
                let message = format!(
                    "the certificate has expired at {}: an external CA renews only certificates that are valid; have it cleaned there and delete Secret {}",
                    pair.life.not_after,
                    certificate.secret().name
                );
                return refused(EXPIRED, message);
            }
            Ok(Due::Ended) if !pair.is_owned => {
                let message = format!(
                    "Secret {} has a certificate that has expired at {}; delete it, and one is issued",
                    certificate.secret().name,
                    pair.life.not_after
                );
                return refused(EXPIRED, message);
            }
            Ok(Due::Ended) => Why::Ended,
            Ok(due @ (Due::Later(_) | Due::Cooling(_))) => return Standing::Held(due),
            Ok(Due::Renewal) if is_ready => return Standing::Held(Due::Renewal),
            // It is still valid: whoever uses it does not have to know that the CA is away.
            Ok(Due::Renewal) => return Standing::Held(Due::Later(LOOK_AT_CA)),
            Err(Misfit::Changed) => Why::Changed,
            Err(Misfit::OtherName) => {
                let message = format!(
                    "Secret {} has a certificate for {:?} and not for {:?}; delete it, and one is issued",
                    certificate.secret().name,
                    pair.certname,
                    certificate.spec.certname
                );
                return refused(FAILED, message);
            }
        },
    };
    if let Err(fault) = order {
        return refused(FAILED, fault.to_string());
    }
    match is_ready {
        true => Standing::Wanted(wanted),
        false => Standing::NotReady,
    }
}

/// Why a pair is not what is wanted.
enum Misfit {
    Changed,
    /// Somebody else brought it, for another name.
    OtherName,
}

fn of_pair(
    certificate: &CertificateObject,
    order: Option<&Order>,
    pair: &Pair,
    now: UnixTime,
) -> Result<Due, Misfit> {
    if pair.is_given_up {
        return Err(Misfit::Changed);
    }
    let issued_for = pair.order.as_deref();
    if pair.certname != certificate.spec.certname {
        return Err(match issued_for.is_some() || pair.is_owned {
            true => Misfit::Changed,
            false => Misfit::OtherName,
        });
    }
    let is_changed = order
        .zip(issued_for)
        .is_some_and(|(order, issued_for)| order.digest() != issued_for);
    if is_changed {
        return Err(Misfit::Changed);
    }
    let renewed = certificate.meta.annotation(LAST_RENEWAL);
    let renewed = renewed.and_then(|text| UnixTime::parse_rfc3339(text).ok());
    let before = certificate.spec.renew_before.as_deref();
    Ok(renewal::due(pair.life, before, renewed, now))
}

/// Whether it asks for the operator's own name without being the operator's own.
fn is_reserved(certificate: &CertificateObject, authority: &AuthorityObject) -> bool {
    let certname = &certificate.spec.certname;
    let mut reserved = authority.operator_certnames().into_iter();
    authority.external.is_none()
        && reserved.any(|it| certname.eq_ignore_ascii_case(&it))
        && !is_operators(certificate, authority)
}

/// Whether a Certificate is the operator's own at a CA.
pub(crate) fn is_operators(certificate: &CertificateObject, authority: &AuthorityObject) -> bool {
    let owner = certificate.meta.controller();
    certificate.meta.name == authority.own("operator-signing")
        && owner.is_some_and(|owner| owner.uid == authority.meta.uid)
}

fn refused(reason: &'static str, message: String) -> Standing {
    Standing::Refused { reason, message }
}

/// On a Certificate: when it was renewed last (RFC 3339).
pub(crate) const LAST_RENEWAL: &str = "openvox.voxpupuli.org/last-renewal-time";
pub(crate) const FAILED: &str = "SigningFailed";
const CONFLICT: &str = "CertnameConflict";
const EXPIRED: &str = "CertificateExpired";
const LOOK_AT_CA: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::duration::DAY;
    use crate::operator::renewal::Life;
    use countersign_pki::fingerprint_sha256;
    use serde_json::{Value, json};

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn certificate(spec: Value) -> CertificateObject {
        let object = json!({"metadata": {"namespace": "ns", "name": "a", "uid": "u"}, "spec": spec,
                            "status": {"phase": "Error"}});
        CertificateObject::read(&object).unwrap()
    }

    fn authority(spec: Value, phase: &str) -> AuthorityObject {
        let object = json!({"metadata": {"namespace": "ns", "name": "ca", "uid": "ca"}, "spec": spec,
                            "status": {"phase": phase}});
        AuthorityObject::read(&object).unwrap()
    }

    fn pair(days_left: i64, order: Option<&str>, is_owned: bool) -> Holding {
        Holding::Pair(Box::new(Pair {
            certname: "web".to_owned(),
            life: Life {
                not_before: UnixTime(NOW.0 - 400 * DAY),
                not_after: UnixTime(NOW.0 + days_left * DAY),
            },
            key: fingerprint_sha256(b"key"),
            order: order.map(str::to_owned),
            is_given_up: false,
            has_rights: false,
            is_owned,
        }))
    }

    #[test]
    fn a_certificate_stands_where_its_objects_say_and_not_its_phase() {
        let web = json!({"authorityRef": "ca", "certname": "web"});
        let digest = Order::read(&certificate(web.clone()).spec, &[])
            .unwrap()
            .digest();
        let external = json!({"external": {"url": "https://x"}});
        let half_a_day = Standing::Held(Due::Later(Duration::from_secs(43_200)));
        let refused = |part: &'static str| Err(part);
        let rival = ObjectName::new("ns", "first");
        for (case, spec, ca, rival, holding, expected) in [
            (
                "no CA",
                web.clone(),
                None,
                None,
                Holding::Absent,
                Ok(Standing::NoAuthority),
            ),
            (
                "a CA that is being made",
                web.clone(),
                Some(authority(json!({}), "Initializing")),
                None,
                Holding::Absent,
                Ok(Standing::NotReady),
            ),
            (
                "a ready CA",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                Holding::Absent,
                Ok(Standing::Wanted(Why::First)),
            ),
            (
                "an external CA",
                web.clone(),
                Some(authority(external.clone(), "External")),
                None,
                Holding::Absent,
                Ok(Standing::Wanted(Why::First)),
            ),
            (
                "somebody had the name first",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                Some(&rival),
                pair(300, None, true),
                refused("Certificate first has"),
            ),
            (
                "the operator's own name",
                json!({"authorityRef": "ca", "certname": "CA-operator"}),
                Some(authority(json!({}), "Ready")),
                None,
                Holding::Absent,
                refused("reserved"),
            ),
            (
                "the one that it may have elsewhere",
                json!({"authorityRef": "ca", "certname": "ca-operator.ns"}),
                Some(authority(json!({}), "Ready")),
                None,
                Holding::Absent,
                refused("reserved"),
            ),
            (
                "an order that cannot be meant",
                json!({"authorityRef": "ca", "certname": "web", "csrExtensions": {"customExtensions": {"bogus": "x"}}}),
                Some(authority(json!({}), "Ready")),
                None,
                Holding::Absent,
                refused("bogus"),
            ),
            (
                "the same of one that is signed: it stays",
                json!({"authorityRef": "ca", "certname": "web", "csrExtensions": {"customExtensions": {"bogus": "x"}}}),
                Some(authority(json!({}), "Ready")),
                None,
                pair(300, Some("other"), true),
                Ok(half_a_day.clone()),
            ),
            (
                "a pair that somebody brought",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                pair(300, None, false),
                Ok(half_a_day.clone()),
            ),
            (
                "a pair for this order",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                pair(300, Some(&digest), true),
                Ok(half_a_day.clone()),
            ),
            (
                "the same while the CA is away",
                web.clone(),
                Some(authority(json!({}), "Initializing")),
                None,
                pair(300, Some(&digest), true),
                Ok(half_a_day.clone()),
            ),
            (
                "a pair for another order",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                pair(300, Some("other"), true),
                Ok(Standing::Wanted(Why::Changed)),
            ),
            (
                "a pair for another order while the CA is away",
                web.clone(),
                Some(authority(json!({}), "Pending")),
                None,
                pair(300, Some("other"), true),
                Ok(Standing::NotReady),
            ),
            (
                "our own pair for another name",
                json!({"authorityRef": "ca", "certname": "db"}),
                Some(authority(json!({}), "Ready")),
                None,
                pair(300, None, true),
                Ok(Standing::Wanted(Why::Changed)),
            ),
            (
                "somebody's pair for another name",
                json!({"authorityRef": "ca", "certname": "db"}),
                Some(authority(json!({}), "Ready")),
                None,
                pair(300, None, false),
                refused("\"web\""),
            ),
            (
                "in its window",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                pair(30, Some(&digest), true),
                Ok(Standing::Held(Due::Renewal)),
            ),
            (
                "in its window while the CA is away",
                web.clone(),
                Some(authority(json!({}), "Initializing")),
                None,
                pair(30, Some(&digest), true),
                Ok(Standing::Held(Due::Later(LOOK_AT_CA))),
            ),
            (
                "over",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                pair(-1, Some(&digest), true),
                Ok(Standing::Wanted(Why::Ended)),
            ),
            (
                "over, and somebody brought it",
                web.clone(),
                Some(authority(json!({}), "Ready")),
                None,
                pair(-1, None, false),
                refused("delete it"),
            ),
            (
                "over, and the CA is external",
                web.clone(),
                Some(authority(external, "External")),
                None,
                pair(-1, Some(&digest), true),
                refused("expired"),
            ),
            (
                "something that is not to be touched",
                web,
                Some(authority(json!({}), "Ready")),
                None,
                Holding::Unfit("Secret a-tls has no key.pem".to_owned()),
                refused("no key.pem"),
            ),
        ] {
            let certificate = certificate(spec);
            let order = Order::read(&certificate.spec, &[]);
            let standing = standing(&Observed {
                certificate: &certificate,
                authority: ca.as_ref(),
                is_awaited: false,
                rival,
                order: &order,
                holding: &holding,
                now: NOW,
            });
            match expected {
                Ok(expected) => assert_eq!(standing, expected, "{case}"),
                Err(part) => {
                    let Standing::Refused { message, .. } = &standing else {
                        panic!("{case}: {standing:?}");
                    };
                    assert!(message.contains(part), "{case}: {message}");
                }
            }
        }
    }
}
