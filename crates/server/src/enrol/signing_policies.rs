//! `/signing-policies`: who may enrol, as the certificate authorities of a cluster say it.
//!
//! All of them are one object of the store, which the rule `signingPolicy` follows. Values that requests must have are kept as
//! hashes.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_api::{KeptSigningPolicies, SigningPolicies, SigningPolicySet};
use countersign_authority::certname::Certname;
use countersign_authority::{ObjectFault, ObjectKey, ObjectOrder, Revision};
use countersign_pki::terminal_safe;
use countersign_policy::{Requester, SigningPolicy, looks_like_a_token};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::Path;
use super::{Administrator, EnrolDoor, Granted, json, required_body};

/// Where all of them are kept.
#[must_use]
pub fn signing_policies_key() -> ObjectKey {
    ObjectKey {
        kind: "signingpolicies.countersign.dev".to_owned(),
        namespace: String::new(),
        name: "all".to_owned(),
    }
}

/// A certificate authority in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfAuthority {
    /// The namespace that it is in.
    #[schemars(example = &"puppet")]
    namespace: String,
    /// Its name there.
    #[schemars(example = &"production")]
    authority: String,
}

impl OfAuthority {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.authority)
    }

    fn check(&self) -> Result<(), Refusal> {
        let is_name = |text: &str| {
            let is_part =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            (1..=253).contains(&text.len()) && text.chars().all(is_part)
        };
        match is_name(&self.namespace) && is_name(&self.authority) {
            true => Ok(()),
            false => Err(Refusal::Invalid {
                what: format!(
                    "{} does not name an authority of a cluster",
                    terminal_safe(&self.key())
                ),
            }),
        }
    }
}

pub(super) const LIST: Operation = Operation::new(
    "listSigningPolicies",
    Tag::Policy,
    "The signing policies of all authorities",
)
.about("Values that requests must have are shown to administrators as hashes, and to nobody else.")
.answers::<SigningPolicies>(200, "The policies.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Granted(grant): Granted,
) -> Result<Response, Refusal> {
    let (mut policies, _) = stored(&door).await?;
    if !grant.is_admin() {
        let sets = policies.authorities.values_mut();
        for policy in sets.flat_map(|set| &mut set.policies) {
            policy.spec = SigningPolicy::without_hashes(&policy.spec);
        }
    }
    Ok(json(StatusCode::OK, &policies))
}

pub(super) const PUT: Operation = Operation::new(
    "putSigningPolicies",
    Tag::Policy,
    "Replace the signing policies of an authority",
)
.about("They count within seconds. All of them take the place of those before, or none does.")
.path::<OfAuthority>()
.body::<SigningPolicySet>()
.answers_nothing(204, "They are kept.")
.refuses(&[Refused::Unprocessable, Refused::Conflict]);

pub(super) async fn put(
    State(door): State<EnrolDoor>,
    Path(of): Path<OfAuthority>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    of.check()?;
    let given: SigningPolicySet = required_body(&body)?;
    let set = sealed(&of, given)?;
    let detail = format!("{}: {} policies", of.key(), set.policies.len());
    change(&door, &actor.requester, &detail, |all| {
        all.authorities.insert(of.key(), set.clone());
    })
    .await
}

pub(super) const DELETE: Operation = Operation::new(
    "removeSigningPolicies",
    Tag::Policy,
    "Remove the signing policies of an authority",
)
.path::<OfAuthority>()
.answers_nothing(204, "There are none.")
.refuses(&[Refused::Conflict]);

pub(super) async fn delete(
    State(door): State<EnrolDoor>,
    Path(of): Path<OfAuthority>,
    Administrator(actor): Administrator,
) -> Result<Response, Refusal> {
    let detail = format!("{}: removed", of.key());
    change(&door, &actor.requester, &detail, |all| {
        all.authorities.remove(&of.key());
    })
    .await
}

/// The same set with every value as a hash, if all of it can be meant.
fn sealed(of: &OfAuthority, given: SigningPolicySet) -> Result<KeptSigningPolicies, Refusal> {
    let invalid = |what: String| Refusal::Unprocessable { what };
    if let Some(operator) = &given.operator
        && (Certname::parse(operator).is_err() || looks_like_a_token(operator))
    {
        return Err(invalid("operator is not a certname".to_owned()));
    }
    let mut set = KeptSigningPolicies {
        operator: given.operator,
        policies: given.policies,
    };
    for policy in &mut set.policies {
        let name = terminal_safe(&policy.name).into_owned();
        let of_whom = policy
            .spec
            .get("certificateAuthorityRef")
            .and_then(|it| it.as_str());
        if of_whom != Some(of.authority.as_str()) {
            let what = format!(
                "policy {name}: spec.certificateAuthorityRef is not {}",
                of.authority
            );
            return Err(invalid(what));
        }
        // The same for the same policy: what is put again unchanged changes nothing.
        let salt = format!("{}/{}", of.key(), policy.name);
        let sealed =
            SigningPolicy::sealed(&policy.name, &policy.spec, salt.as_bytes(), |_, _| None);
        policy.spec = sealed.map_err(|fault| invalid(format!("policy {name}: {fault}")))?;
    }
    Ok(set)
}

async fn stored(door: &EnrolDoor) -> Result<(SigningPolicies, Option<Revision>), Refusal> {
    let found = door
        .authority()
        .objects
        .get(&signing_policies_key())
        .await?;
    let Some(record) = found else {
        return Ok((SigningPolicies::default(), None));
    };
    let policies = serde_json::from_slice(&record.body).map_err(|fault| Refusal::Internal {
        what: format!("the stored signing policies cannot be read: {fault}"),
    })?;
    Ok((policies, Some(record.version)))
}

async fn change(
    door: &EnrolDoor,
    actor: &Requester,
    detail: &str,
    edit: impl Fn(&mut SigningPolicies),
) -> Result<Response, Refusal> {
    for _ in 0..MAX_TRIES {
        let (before, expected) = stored(door).await?;
        let mut after = before.clone();
        edit(&mut after);
        if after == before {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let body = serde_json::to_vec(&after).map_err(|fault| Refusal::Internal {
            what: fault.to_string(),
        })?;
        if body.len() > MAX_ALL {
            let what = format!("all signing policies together have more than {MAX_ALL} bytes");
            return Err(Refusal::Unprocessable { what });
        }
        let order = ObjectOrder {
            key: signing_policies_key(),
            actor: actor.clone(),
            expected,
            body,
            detail: Some(detail.to_owned()),
        };
        let objects = &door.authority().objects;
        let changed = match expected {
            Some(_) => objects.update(order).await,
            None => objects.create(order).await,
        };
        match changed {
            Ok(_) => return Ok(StatusCode::NO_CONTENT.into_response()),
            Err(ObjectFault::Engine(fault)) => return Err(fault.into()),
            Err(
                ObjectFault::Changed { .. }
                | ObjectFault::Exists { .. }
                | ObjectFault::NotFound { .. },
            ) => {}
        }
    }
    Err(Refusal::Conflict {
        what: "others changed the signing policies at the same time; try again".to_owned(),
    })
}

const MAX_TRIES: usize = 10;
/// Of all authorities.
const MAX_ALL: usize = 16 * 1024 * 1024;
