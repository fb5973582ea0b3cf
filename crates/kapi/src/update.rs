//! What the server does to an object before it is validated: fills in, restores and strips, by endpoint.

use std::collections::BTreeMap;

use crate::field::{FieldError, go_quote};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::model::{
    APPROVED, CertificateSigningRequest, Condition, DENIED, RequestStatus, UserInfo,
};
use crate::status::Status;
use crate::time::Time;

/// Where a write arrives; each may change a different part of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The object itself: labels and annotations.
    Object,
    /// `/status`: certificate, Failed and foreign conditions.
    Status,
    /// `/approval`: conditions.
    Approval,
}

/// Makes a client's object into a new one: identity and sender are the server's business, and nobody creates an object
/// that is already approved.
#[must_use]
pub fn prepare_create(
    object: CertificateSigningRequest,
    user: UserInfo,
    uid: String,
    now: Time,
) -> CertificateSigningRequest {
    let CertificateSigningRequest {
        metadata,
        mut spec,
        status: _,
    } = object;
    let metadata = ObjectMeta {
        namespace: String::new(),
        uid,
        resource_version: String::new(),
        generation: 0,
        creation_timestamp: Some(now),
        deletion_timestamp: None,
        deletion_grace_period_seconds: None,
        ..metadata
    };
    spec.username = user.username;
    spec.uid = user.uid;
    spec.groups = user.groups;
    spec.extra = user.extra;
    CertificateSigningRequest {
        metadata,
        spec,
        status: RequestStatus::default(),
    }
}

/// Checks what the body of an update says about the object it was made from: uid and resource version, where given.
/// Version zero is any.
///
/// # Errors
/// The 409 to answer, or the 500 that API servers have for a version that is no number.
pub fn preconditions<T: Kind>(old: &T, new: &T) -> Result<(), Box<Status>> {
    let (old, new) = (old.metadata(), new.metadata());
    if !new.uid.is_empty() && new.uid != old.uid {
        return Err(Box::new(
            T::RESOURCE.uid_conflict(&old.name, &new.uid, &old.uid),
        ));
    }
    if new.resource_version.is_empty() || new.resource_version == old.resource_version {
        return Ok(());
    }
    match new.resource_version.parse::<u64>() {
        Ok(0) => Ok(()),
        Ok(_) => Err(Box::new(T::RESOURCE.modified(&old.name))),
        Err(_) => {
            let version = go_quote(&new.resource_version);
            let text = format!("strconv.ParseUint: parsing {version}: invalid syntax");
            Err(Box::new(Status::unforeseen(text)))
        }
    }
}

/// Checks that an update leaves alone what only the server sets; what it leaves out stays as it is.
///
/// # Errors
/// The 422 to answer.
pub fn immutable<T: Kind>(old: &T, new: &T) -> Result<(), Box<Status>> {
    let (old, new) = (old.metadata(), new.metadata());
    let mut errors = Vec::new();
    if !new.uid.is_empty() && new.uid != old.uid {
        let uid = new.uid.as_str();
        errors.push(FieldError::invalid("metadata.uid", uid, IMMUTABLE));
    }
    if let Some(time) = new.deletion_timestamp
        && Some(time) != old.deletion_timestamp
    {
        let field = "metadata.deletionTimestamp";
        errors.push(FieldError::invalid(
            field,
            time.to_string().as_str(),
            IMMUTABLE,
        ));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Box::new(T::RESOURCE.invalid(&old.name, &errors))),
    }
}

/// Makes a client's update into what would be stored. What an endpoint may not change is silently restored from `old`.
///
/// The result keeps the old resource version: if it equals `old`, nothing is to be stored.
#[must_use]
pub fn prepare(
    endpoint: Endpoint,
    old: &CertificateSigningRequest,
    new: CertificateSigningRequest,
    now: Time,
) -> CertificateSigningRequest {
    let metadata = ObjectMeta {
        labels: new.metadata.labels,
        annotations: new.metadata.annotations,
        owner_references: new.metadata.owner_references,
        finalizers: new.metadata.finalizers,
        ..old.metadata.clone()
    };
    let status = match endpoint {
        Endpoint::Object => old.status.clone(),
        Endpoint::Status => {
            let mut conditions = new.status.conditions;
            restore(APPROVED, &old.status.conditions, &mut conditions);
            restore(DENIED, &old.status.conditions, &mut conditions);
            RequestStatus {
                conditions,
                certificate: new.status.certificate,
            }
        }
        Endpoint::Approval => RequestStatus {
            conditions: new.status.conditions,
            certificate: old.status.certificate.clone(),
        },
    };
    let mut prepared = CertificateSigningRequest {
        metadata,
        spec: old.spec.clone(),
        status,
    };
    if endpoint != Endpoint::Object {
        fill_times(&old.status.conditions, &mut prepared.status.conditions, now);
    }
    prepared
}

/// Puts stored conditions of a type back in place of sent ones. If their numbers differ nothing is restored, and
/// validation refuses the difference.
fn restore(kind: &str, old: &[Condition], new: &mut [Condition]) {
    let of_kind = |conditions: &[Condition]| conditions.iter().filter(|c| c.kind == kind).count();
    if of_kind(old) != of_kind(new) {
        return;
    }
    let stored = old.iter().filter(|condition| condition.kind == kind);
    for (sent, stored) in new
        .iter_mut()
        .filter(|condition| condition.kind == kind)
        .zip(stored)
    {
        sent.clone_from(stored);
    }
}

/// Gives conditions the times their writers left out; an unchanged status keeps its time of transition.
fn fill_times(old: &[Condition], new: &mut [Condition], now: Time) {
    let mut transitions = BTreeMap::new();
    for stored in old {
        if let Some(time) = stored.last_transition_time {
            transitions
                .entry((stored.kind.as_str(), stored.status.as_str()))
                .or_insert(time);
        }
    }
    for condition in new {
        condition.last_update_time.get_or_insert(now);
        if condition.last_transition_time.is_none() {
            let kept = transitions
                .get(&(condition.kind.as_str(), condition.status.as_str()))
                .copied();
            condition.last_transition_time = Some(kept.unwrap_or(now));
        }
    }
}

const IMMUTABLE: &str = "field is immutable";

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, version: &str) -> CertificateSigningRequest {
        let mut object = CertificateSigningRequest::default();
        object.metadata.name = "a".into();
        object.metadata.uid = uid.into();
        object.metadata.resource_version = version.into();
        object
    }

    #[test]
    fn versions_are_numbers_and_zero_is_any() {
        let stored = object("u", "7");
        for (version, code) in [
            ("", None),
            ("7", None),
            ("0", None),
            ("6", Some(409)),
            ("abc", Some(500)),
        ] {
            let outcome = preconditions(&stored, &object("", version));
            assert_eq!(outcome.err().map(|status| status.code), code, "{version}");
        }
        assert_eq!(
            preconditions(&stored, &object("w", "7")).unwrap_err().code,
            409
        );
    }

    #[test]
    fn what_the_server_sets_stays() {
        let stored = object("u", "7");
        immutable(&stored, &object("", "")).unwrap();
        let mut new = object("w", "");
        new.metadata.deletion_timestamp = Some(Time::from_unix(0).unwrap());
        let status = immutable(&stored, &new).unwrap_err();
        assert_eq!(status.code, 422);
        let fields: Vec<&str> = status
            .details
            .iter()
            .flat_map(|it| &it.causes)
            .map(|it| it.field.as_str())
            .collect();
        assert_eq!(fields, ["metadata.uid", "metadata.deletionTimestamp"]);
    }
}
