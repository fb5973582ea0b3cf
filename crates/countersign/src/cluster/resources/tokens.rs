//! EnrollmentTokens of the cluster: minted in the ledger, each secret written once, into a Secret.
//!
//! The ledger remembers each order by the object's identity, before the Secret is written. A start that finds a token
//! whose Secret is not there takes it back and mints another, so that no token is usable that nobody has, and never two.
//! Whether there is a Secret is asked by a dry run of writing it: none is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use countersign_authority::{
    Actor, Authority, ListedToken, Revision, TokenFault, TokenFilter, TokenId, TokenOrder,
    TokenRecord, TokenStatus, masked_tokens,
};
use countersign_cluster::{
    Attention, Found, FoundState, NewSecret, Readiness, ResourceObject, ResourceStatus,
    SecretAnswer, Secrets, Steward,
};
use countersign_pki::UnixTime;
use countersign_policy::{Span, TokenBinding};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tracing::{info, warn};

/// Mints what EnrollmentTokens order, and takes it back when they are gone.
pub(in crate::cluster) struct TokenSteward {
    authority: Authority,
    /// By namespace.
    seen: Mutex<BTreeMap<String, Seen>>,
}

/// What the last look at a namespace was about.
#[derive(Default)]
struct Seen {
    objects: Vec<Arc<ResourceObject>>,
    /// Orders whose tokens may have to be taken back.
    uids: BTreeSet<String>,
    revision: Option<Revision>,
    at: Option<UnixTime>,
    /// When something was left to be done.
    is_unfinished: bool,
}

/// What is done about one order.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Its token has been delivered: its state is told.
    Tell(TokenId),
    /// The one of an earlier try reached nobody, and is taken back; then one is minted, for this try.
    Mint {
        orphan: Option<TokenId>,
        attempt: usize,
    },
    /// It cannot be delivered.
    Refuse(Readiness),
    /// Nothing is known yet.
    Later(String),
}

/// What follows from what is known: the token that the object says it has, those that were minted for it in order, and
/// whether its Secret is there.
fn step(delivered: Option<&TokenId>, minted: &[TokenId], secret: &SecretAnswer) -> Step {
    match (delivered, minted.last(), secret) {
        (Some(id), _, _) => Step::Tell(id.clone()),
        // It was not there before the last one was minted.
        (None, Some(last), SecretAnswer::Exists) => Step::Tell(last.clone()),
        (None, None, SecretAnswer::Exists) => Step::Refuse(Readiness::not_ready(
            "SecretExists",
            "there is a Secret of that name, and it is not overwritten: delete it, or order another",
        )),
        (None, last, SecretAnswer::Free) => Step::Mint {
            orphan: last.cloned(),
            attempt: minted.len().saturating_add(1),
        },
        (None, _, SecretAnswer::Refused(why)) => Step::Later(why.clone()),
    }
}

impl TokenSteward {
    pub(in crate::cluster) fn new(authority: Authority) -> Self {
        Self {
            authority,
            seen: Mutex::default(),
        }
    }

    async fn take(&self, found: &Found, secrets: &Secrets) -> Attention {
        let objects: &[Arc<ResourceObject>] = match &found.state {
            FoundState::NotServed => &[],
            // Which of them are gone is not known.
            FoundState::Unreadable(_) => return Attention::default(),
            FoundState::Objects(objects) => objects,
        };
        let mut all = self.seen.lock().await;
        let is_first = !all.contains_key(&found.namespace);
        let seen = all.entry(found.namespace.clone()).or_default();
        let (revision, now) = (self.authority.revision(), self.authority.now());
        let is_idle = !is_first
            && !seen.is_unfinished
            && seen.objects == objects
            && seen.revision == Some(revision)
            && seen
                .at
                .is_some_and(|at| now.seconds_since(at) < LOOK_AT_LEAST);
        if is_idle {
            return attention(Vec::new(), objects);
        }
        seen.is_unfinished = false;
        let wanted: BTreeSet<String> = objects
            .iter()
            .filter(|object| !object.deleting)
            .map(|object| object.uid.clone())
            .collect();
        let place = Place {
            authority: &self.authority,
            namespace: &found.namespace,
        };
        if is_first {
            match place.orders_in_ledger().await {
                Ok(uids) => seen.uids.extend(uids),
                Err(error) => {
                    warn!(error = %format!("{error:#}"), "the tokens of the ledger cannot be listed");
                    all.remove(&found.namespace);
                    return Attention {
                        again: Some(AFTER_A_FAULT),
                        ..Attention::default()
                    };
                }
            }
        }
        seen.uids.extend(wanted.iter().cloned());
        let mut kept = BTreeSet::new();
        for uid in &seen.uids {
            if wanted.contains(uid) {
                kept.insert(uid.clone());
            } else if let Err(error) = place.take_back(uid).await {
                warn!(error = %format!("{error:#}"), "a token whose EnrollmentToken is gone is not revoked yet");
                seen.is_unfinished = true;
                kept.insert(uid.clone());
            }
        }
        seen.uids = kept;
        let mut statuses = Vec::new();
        for object in objects.iter().filter(|object| !object.deleting) {
            match place.attend(object, secrets).await {
                Ok(Some(status)) => statuses.push((object.uid.clone(), status)),
                Ok(None) => {}
                Err(error) => {
                    let why = masked_tokens(&format!("{error:#}")).into_owned();
                    warn!(
                        name = object.name,
                        reason = why,
                        "the token is not delivered yet"
                    );
                    seen.is_unfinished = true;
                }
            }
        }
        // As of before: what was committed meanwhile is looked at again.
        seen.revision = Some(revision);
        seen.at = Some(now);
        seen.objects = objects.to_vec();
        let mut attention = attention(statuses, objects);
        if seen.is_unfinished {
            attention.again = Some(AFTER_A_FAULT);
        }
        attention
    }
}

impl Steward for TokenSteward {
    fn look<'a>(&'a self, found: &'a Found, secrets: &'a Secrets) -> BoxFuture<'a, Attention> {
        Box::pin(self.take(found, secrets))
    }
}

fn attention(
    statuses: Vec<(String, ResourceStatus)>,
    objects: &[Arc<ResourceObject>],
) -> Attention {
    Attention {
        statuses,
        again: (!objects.is_empty()).then_some(LOOK_AT_LEDGER),
    }
}

/// The ledger, as far as it is about one namespace.
struct Place<'a> {
    authority: &'a Authority,
    namespace: &'a str,
}

impl Place<'_> {
    /// What an order is called in the ledger.
    fn key(&self, uid: &str, attempt: usize) -> String {
        format!("{}{attempt}", self.prefix(uid))
    }

    fn prefix(&self, uid: &str) -> String {
        format!("{ORDERS}{}/{uid}/", self.namespace)
    }

    /// Whether a token was minted for an order.
    fn is_of(&self, record: &TokenRecord, uid: &str) -> bool {
        let key = record.idempotency_key.as_deref();
        record.created_by == AUTHORITY && key.is_some_and(|key| key.starts_with(&self.prefix(uid)))
    }

    /// The orders whose tokens can be used.
    async fn orders_in_ledger(&self) -> Result<BTreeSet<String>> {
        let of_place = format!("{ORDERS}{}/", self.namespace);
        let mut uids = BTreeSet::new();
        let mut after = None;
        loop {
            let filter = TokenFilter {
                status: Some(TokenStatus::Active),
                after: after.take(),
                ..TokenFilter::newest(self.authority.now(), PAGE)
            };
            let page = self.authority.tokens.list(filter).await?;
            let ours = page.iter().map(|token| &token.record);
            let ours = ours.filter(|record| record.created_by == AUTHORITY);
            let keys = ours.filter_map(|record| record.idempotency_key.as_deref());
            let orders = keys.filter_map(|key| key.strip_prefix(&of_place)?.rsplit_once('/'));
            uids.extend(orders.map(|(uid, _)| uid.to_owned()));
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.record.id.clone()),
                Some(_) | None => return Ok(uids),
            }
        }
    }

    /// The tokens that were minted for an order, first to last.
    async fn minted(&self, uid: &str) -> Result<Vec<TokenId>> {
        let mut minted = Vec::new();
        while minted.len() < MOST_ATTEMPTS {
            let key = self.key(uid, minted.len().saturating_add(1));
            match self.authority.tokens.ordered(&key).await? {
                Some(id) => minted.push(id),
                None => break,
            }
        }
        Ok(minted)
    }

    async fn take_back(&self, uid: &str) -> Result<()> {
        for id in self.minted(uid).await? {
            self.revoke(&id).await?;
        }
        Ok(())
    }

    /// Revokes a token that can still be used.
    async fn revoke(&self, id: &TokenId) -> Result<()> {
        match self
            .authority
            .tokens
            .revoke(id, false, &Actor::authority())
            .await
        {
            Ok(_) | Err(TokenFault::NotFound { .. }) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Does what is to be done about an order. `None`: its status stays as it is.
    async fn attend(
        &self,
        object: &ResourceObject,
        secrets: &Secrets,
    ) -> Result<Option<ResourceStatus>> {
        let order = match order(&object.spec) {
            Ok(order) => order,
            Err(why) => return Ok(Some(refused(Readiness::not_ready("Invalid", why)))),
        };
        let said = object.status.get("id").and_then(Value::as_str);
        let said = said.and_then(TokenId::parse);
        let delivered = match said {
            Some(id) => match self.authority.tokens.get(&id).await? {
                // It is over for so long that the ledger has forgotten it.
                None => return Ok(None),
                Some(found) if self.is_of(&found.listed.record, &object.uid) => Some(id),
                // Whoever has written that is not believed.
                Some(_) => None,
            },
            None => None,
        };
        let name = object.spec.get("secretName").and_then(Value::as_str);
        let secret = NewSecret {
            order: object,
            name: name.unwrap_or_default(),
        };
        let (minted, answer) = match delivered {
            Some(_) => (Vec::new(), SecretAnswer::Exists),
            None => (
                self.minted(&object.uid).await?,
                secrets.is_free(secret).await,
            ),
        };
        match step(delivered.as_ref(), &minted, &answer) {
            Step::Tell(id) => self.told(&id).await,
            Step::Refuse(why) => Ok(Some(refused(why))),
            Step::Later(why) => anyhow::bail!("its Secret cannot be written: {why}"),
            Step::Mint { orphan, attempt } => {
                if let Some(orphan) = orphan {
                    self.revoke(&orphan).await?;
                }
                self.mint(object, order, attempt, secret, secrets).await
            }
        }
    }

    async fn mint(
        &self,
        object: &ResourceObject,
        order: TokenOrder,
        attempt: usize,
        secret: NewSecret<'_>,
        secrets: &Secrets,
    ) -> Result<Option<ResourceStatus>> {
        let (key, actor) = (self.key(&object.uid, attempt), Actor::authority());
        let minting = self.authority.tokens.mint(order, &actor, Some(&key));
        let minted = match minting.await {
            Ok(minted) => minted,
            Err(fault) => return unminted(fault).map(Some),
        };
        let id = minted.record.id.clone();
        match secrets.write(secret, minted.token.expose()).await {
            SecretAnswer::Free => {
                info!(name = object.name, namespace = object.namespace, token = %id, "token delivered");
                self.told(&id).await
            }
            SecretAnswer::Exists => {
                self.revoke(&id).await?;
                let why = "a Secret of that name was made meanwhile";
                Ok(Some(refused(Readiness::not_ready("SecretExists", why))))
            }
            // It may be there all the same: the next look finds out.
            SecretAnswer::Refused(why) => anyhow::bail!("its Secret was not written: {why}"),
        }
    }

    async fn told(&self, id: &TokenId) -> Result<Option<ResourceStatus>> {
        let found = self.authority.tokens.get(id).await?;
        Ok(found.map(|found| status(&found.listed)))
    }
}

/// Why no token was minted: for good, or for now.
fn unminted(fault: TokenFault) -> Result<ResourceStatus> {
    let reason = match &fault {
        TokenFault::Disabled => "TokensOff",
        TokenFault::Forbidden(_) => "Forbidden",
        TokenFault::Name { .. } | TokenFault::Field { .. } => "Invalid",
        TokenFault::TooMany { .. } => "TooMany",
        _ => return Err(fault.into()),
    };
    let why = masked_tokens(&fault.to_string()).into_owned();
    Ok(refused(Readiness::not_ready(reason, why)))
}

/// The status of an order that has no token.
fn refused(ready: Readiness) -> ResourceStatus {
    let fields = ["id", "state", "uses", "expiresAt"];
    ResourceStatus {
        ready,
        fields: fields
            .map(|key| (key.to_owned(), Value::Null))
            .into_iter()
            .collect(),
    }
}

/// The status of an order that has one.
fn status(token: &ListedToken) -> ResourceStatus {
    let ListedToken { record, status } = token;
    let over = Readiness::not_ready;
    let ready = match status {
        TokenStatus::Active => Readiness::ready("the token is in the Secret, and can be used"),
        TokenStatus::Reserved => Readiness::ready("a certificate is being signed by it"),
        TokenStatus::Issued | TokenStatus::Exhausted => over("Used", "it is used up"),
        TokenStatus::Expired => over("Expired", "its time is over"),
        TokenStatus::Revoked => over("Revoked", "it was revoked, or a newer token took its place"),
        TokenStatus::Locked => over("Locked", "it was misused too often"),
    };
    let fields = [
        ("id", json!(record.id.as_str())),
        ("state", json!(status.word())),
        ("uses", json!(record.uses)),
        ("expiresAt", json!(record.expires_at.to_string())),
    ];
    ResourceStatus {
        ready,
        fields: Map::from_iter(fields.map(|(key, value)| (key.to_owned(), value))),
    }
}

/// The spec of an EnrollmentToken.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OrderSpec {
    certname: Option<String>,
    glob: Option<String>,
    signer_name: Option<String>,
    #[serde(rename = "secretName")]
    _secret_name: String,
    ttl: Option<Span>,
    max_uses: Option<u32>,
    not_before: Option<String>,
    #[serde(default)]
    allowed_sans: Vec<String>,
    allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    spki_sha256: Option<String>,
    #[serde(default)]
    source_cidrs: Vec<String>,
    #[serde(default)]
    allow_replace: bool,
    #[serde(default)]
    keep_existing: bool,
    #[serde(default)]
    external_ref: String,
    #[serde(default)]
    note: String,
}

fn order(spec: &Value) -> Result<TokenOrder, String> {
    let spec: OrderSpec = OrderSpec::deserialize(spec).map_err(|fault| fault.to_string())?;
    let binding = match (spec.certname, spec.glob) {
        (Some(name), None) => TokenBinding::Exact(name),
        (None, Some(pattern)) => TokenBinding::Glob(pattern),
        (Some(_), Some(_)) | (None, None) => {
            return Err("a token is for exactly one of certname and glob".to_owned());
        }
    };
    let not_before = spec.not_before.as_deref().map(UnixTime::parse_rfc3339);
    let not_before = not_before.transpose();
    Ok(TokenOrder {
        ttl_seconds: spec.ttl.map(Span::as_seconds),
        max_uses: spec.max_uses,
        not_before: not_before.map_err(|fault| format!("notBefore: {fault}"))?,
        allowed_sans: spec.allowed_sans,
        allowed_extensions: spec.allowed_extensions,
        spki_sha256: spec.spki_sha256,
        source_cidrs: spec.source_cidrs,
        allow_replace: spec.allow_replace,
        keep_existing: spec.keep_existing,
        profile: spec.signer_name,
        external_ref: spec.external_ref,
        note: spec.note,
        ..TokenOrder::bound(binding)
    })
}

/// What orders of EnrollmentTokens begin with in the ledger.
const ORDERS: &str = "enrollmenttoken/";
/// Who has minted them.
const AUTHORITY: &str = "authority";
const PAGE: usize = 1000;
/// Each was a crash at one moment.
const MOST_ATTEMPTS: usize = 1000;
const LOOK_AT_LEDGER: Duration = Duration::from_secs(2);
/// In seconds: a token expires without a commit.
const LOOK_AT_LEAST: i64 = 20;
const AFTER_A_FAULT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: char) -> TokenId {
        TokenId::parse(&letter.to_string().repeat(16)).unwrap()
    }

    #[test]
    fn a_token_is_minted_once_whenever_a_start_is_cut_short() {
        let refused = |why: &str| SecretAnswer::Refused(why.to_owned());
        let (a, b) = (id('a'), id('b'));
        for (case, delivered, minted, secret, expected) in [
            (
                "new",
                None,
                vec![],
                SecretAnswer::Free,
                Step::Mint {
                    orphan: None,
                    attempt: 1,
                },
            ),
            (
                "cut short before the Secret was written",
                None,
                vec![a.clone()],
                SecretAnswer::Free,
                Step::Mint {
                    orphan: Some(a.clone()),
                    attempt: 2,
                },
            ),
            (
                "twice",
                None,
                vec![a.clone(), b.clone()],
                SecretAnswer::Free,
                Step::Mint {
                    orphan: Some(b.clone()),
                    attempt: 3,
                },
            ),
            (
                "cut short before the status was written",
                None,
                vec![a.clone(), b.clone()],
                SecretAnswer::Exists,
                Step::Tell(b.clone()),
            ),
            (
                "delivered, and its Secret deleted since",
                Some(a.clone()),
                vec![],
                SecretAnswer::Free,
                Step::Tell(a.clone()),
            ),
            (
                "nobody knows",
                None,
                vec![],
                refused("away"),
                Step::Later("away".to_owned()),
            ),
            (
                "nor then",
                None,
                vec![a],
                refused("away"),
                Step::Later("away".to_owned()),
            ),
        ] {
            assert_eq!(
                step(delivered.as_ref(), &minted, &secret),
                expected,
                "{case}"
            );
        }
        let taken = step(None, &[], &SecretAnswer::Exists);
        assert!(matches!(taken, Step::Refuse(why) if why.reason == "SecretExists"));
    }

    #[test]
    fn a_spec_is_an_order() {
        let full = order(&json!({
            "glob": "*.dmz.example.com", "signerName": "example.com/vpn", "secretName": "s", "ttl": "2h",
            "maxUses": 3, "notBefore": "2026-12-01T12:00:00Z", "allowedSans": ["DNS:a.example.com"],
            "allowedExtensions": {"pp_role": ["web"]}, "spkiSha256": "00", "sourceCidrs": ["10.0.0.0/8"],
            "allowReplace": true, "keepExisting": true, "externalRef": "r", "note": "n",
        }))
        .unwrap();
        assert_eq!(
            full.binding,
            TokenBinding::Glob("*.dmz.example.com".to_owned())
        );
        assert_eq!(full.profile.as_deref(), Some("example.com/vpn"));
        assert_eq!((full.ttl_seconds, full.max_uses), (Some(7200), Some(3)));
        assert_eq!(full.not_before.unwrap().to_string(), "2026-12-01T12:00:00Z");
        assert!(full.allow_replace && full.keep_existing);
        assert_eq!((full.allowed_sans.len(), full.source_cidrs.len()), (1, 1));
        assert_eq!(full.allowed_extensions.unwrap()["pp_role"], ["web"]);
        assert_eq!((full.external_ref.as_str(), full.note.as_str()), ("r", "n"));
        let least = order(&json!({"certname": "web01", "secretName": "s"})).unwrap();
        assert_eq!(least.binding, TokenBinding::Exact("web01".to_owned()));
        for (spec, part) in [
            (json!(null), "invalid type"),
            (
                json!({"secretName": "s"}),
                "exactly one of certname and glob",
            ),
            (
                json!({"certname": "a", "glob": "*.b.c", "secretName": "s"}),
                "exactly one",
            ),
            (
                json!({"certname": "a", "secretName": "s", "uses": 2}),
                "unknown field",
            ),
            (
                json!({"certname": "a", "secretName": "s", "notBefore": "soon"}),
                "notBefore",
            ),
        ] {
            let fault = order(&spec).unwrap_err();
            assert!(fault.contains(part), "{fault}");
        }
    }
}
