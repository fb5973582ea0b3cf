//! Who may do what: one answer from the administrators' group, roles and bindings, and what nodes and everybody have
//! without any.
//!
//! Roles and bindings are read from the engine once and kept in memory. Whoever writes one waits until it is known here
//! before it is acknowledged ([`Authorizer::settle`]), so a grant or its withdrawal counts for every later call.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use countersign_authority::store::StoreFault;
use countersign_authority::{
    AccessAnswer, AccessReviews, Authority, EngineError, ObjectFault, ObjectKey, ObjectOrder,
    ObjectRecord, Objects, Revision, State, StateChangeKind,
};
use countersign_kapi::rbac::book::RbacKind;
use countersign_kapi::rbac::defaults::{self, ReconciledBinding};
use countersign_kapi::rbac::escalation::{EscalationFault, Granter, RoleDraft};
use countersign_kapi::rbac::{
    Attributes, ClusterRole, ClusterRoleBinding, Decision, MASTERS, PolicyRule, RbacObject,
    ResourceAction, RoleBook, RoleRef,
};
use countersign_kapi::{GROUP, Kind, RESOURCE, UserInfo};
use countersign_policy::{AccessQuestion, Identity, Requester};
use tokio::sync::Mutex;
use tracing::{error, warn};

use super::feed::Cached as _;
use super::identity::{AUTHENTICATED, Reach, UNAUTHENTICATED, User};

/// Decides who may do what at this door.
pub struct Authorizer {
    known: ArcSwap<Known>,
    /// Held by whoever brings what is known up to date.
    turn: Mutex<()>,
    everybody: Vec<PolicyRule>,
    strangers: Vec<PolicyRule>,
    nodes: Vec<PolicyRule>,
}

/// Roles and bindings, as they were at a revision.
struct Known {
    revision: Revision,
    book: RoleBook,
}

impl Authorizer {
    /// Reads roles and bindings, after those of the start were brought up to date, and answers the engine's reviews from
    /// then on.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) async fn open(authority: &Authority) -> Result<Arc<Self>, StoreFault> {
        if let Err(fault) = reconcile(&authority.objects).await {
            // What is there is served; a store that cannot be written to says so in many places.
            let fault = &fault as &dyn std::error::Error;
            error!(fault, "the roles of the start are not up to date");
        }
        let authorizer = Arc::new(Self {
            known: ArcSwap::from_pointee(Known::read(&authority.objects).await?),
            turn: Mutex::new(()),
            everybody: defaults::rules_of_everybody(),
            strangers: defaults::rules_of_strangers(),
            nodes: defaults::rules_of_nodes(),
        });
        authority.set_access_reviews(authorizer.clone());
        Ok(authorizer)
    }

    /// Whether somebody may do something, and why in words where there are any.
    pub(super) fn decide(&self, user: &UserInfo, attributes: &Attributes<'_>) -> Decision {
        if has_group(user, MASTERS) {
            return allowed();
        }
        let by_role = self.known.load().book.authorize(user, attributes);
        let mut standing = self.standing(user).into_iter().flatten();
        match !by_role.allowed && standing.any(|rule| rule.allows(attributes)) {
            true => allowed(),
            false => by_role,
        }
    }

    /// What somebody may do something with, and why not more.
    pub(super) fn reach(&self, user: &User, attributes: &Attributes<'_>) -> (Reach, String) {
        let Decision { allowed, reason } = self.decide(user.info(), attributes);
        let reach = match allowed {
            true => Reach::Everything,
            false if user.enrolment_token().is_some() && is_open_to_bearers(attributes) => {
                Reach::Own
            }
            false => Reach::Nothing,
        };
        (reach, reason)
    }

    /// Everything that somebody may do, in a namespace and everywhere, and which bindings lead nowhere.
    pub(super) fn rules_of(
        &self,
        user: &UserInfo,
        namespace: &str,
    ) -> (Vec<PolicyRule>, Vec<String>) {
        let known = self.known.load();
        let given = known.book.rules_of(user, namespace);
        let mut rules: Vec<PolicyRule> = given.rules.into_iter().cloned().collect();
        rules.extend(self.standing(user).into_iter().flatten().cloned());
        (rules, given.faults)
    }

    /// Whether somebody may write a role: nobody grants what they do not have.
    ///
    /// # Errors
    /// Says what is not held.
    pub fn check_escalation(
        &self,
        user: &UserInfo,
        draft: &RoleDraft<'_>,
    ) -> Result<(), EscalationFault> {
        self.as_granter(user, |granter| granter.check_role(draft))
    }

    /// Whether somebody may bind a role, in a namespace or (empty) in the cluster.
    ///
    /// # Errors
    /// Says what is not held.
    pub fn check_binding(
        &self,
        user: &UserInfo,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<(), EscalationFault> {
        self.as_granter(user, |granter| granter.check_binding(role, namespace))
    }

    /// Makes a change that is on record count here, before its writer hears of it. What aggregated roles are made of by
    /// then is written into them.
    ///
    /// # Errors
    /// If the store fails. The change counts later then, at the next one.
    pub async fn settle(
        &self,
        authority: &Authority,
        revision: Revision,
    ) -> Result<(), EngineError> {
        self.catch_up(authority, revision).await?;
        let known = self.known.load_full();
        for (name, rules) in known.book.outdated_aggregates() {
            let key = key_of(RbacKind::ClusterRole, "", name);
            let Some(record) = authority.objects.get(&key).await? else {
                continue;
            };
            let Ok(mut role) = serde_json::from_slice::<ClusterRole>(&record.body) else {
                continue;
            };
            role.rules = rules.to_vec();
            let detail = "rules of the roles that it aggregates";
            let order = order_of(key, Some(record.version), role.stored_body(), detail);
            match authority.objects.update(order).await {
                Ok(written) => self.catch_up(authority, written.version).await?,
                Err(ObjectFault::Engine(broken)) => return Err(broken),
                // Whoever was faster settles it.
                Err(ObjectFault::Changed { .. } | ObjectFault::NotFound { .. }) => {}
                Err(ObjectFault::Exists { .. }) => {}
            }
        }
        Ok(())
    }

    /// Reads on until a revision is known.
    async fn catch_up(&self, authority: &Authority, to: Revision) -> Result<(), StoreFault> {
        let _turn = self.turn.lock().await;
        let before = self.known.load_full();
        if before.revision >= to {
            return Ok(());
        }
        let read = match to.0.saturating_sub(before.revision.0) <= MAX_GAP {
            true => before.read_on(&authority.objects, to).await?,
            false => None,
        };
        let now = match read {
            Some(now) => now,
            None => Known::read(&authority.objects).await?,
        };
        self.known.store(Arc::new(now));
        authority.access_changed();
        Ok(())
    }

    /// What somebody has without any role.
    fn standing(&self, user: &UserInfo) -> [&[PolicyRule]; 2] {
        let by_kind: &[PolicyRule] = match () {
            () if has_group(user, AUTHENTICATED) => &self.everybody,
            () if has_group(user, UNAUTHENTICATED) => &self.strangers,
            () => &[],
        };
        let as_node: &[PolicyRule] = match node_name(user) {
            Some(_) => &self.nodes,
            None => &[],
        };
        [by_kind, as_node]
    }

    fn as_granter<T>(&self, user: &UserInfo, ask: impl FnOnce(Granter<'_>) -> T) -> T {
        let known = self.known.load();
        let may = |attributes: &Attributes<'_>| self.decide(user, attributes).allowed;
        ask(Granter {
            user,
            book: &known.book,
            may: &may,
        })
    }
}

impl AccessReviews for Authorizer {
    fn review(&self, requester: &Requester, question: &AccessQuestion) -> AccessAnswer {
        let Identity::User {
            username,
            groups,
            uid,
            extra,
        } = requester.identity.clone()
        else {
            let reason = "only users have roles".to_owned();
            return AccessAnswer::NotAllowed { reason };
        };
        let user = UserInfo {
            username,
            uid,
            groups,
            extra,
        };
        let asked = Attributes::Resource(ResourceAction {
            verb: &question.verb,
            group: &question.group,
            resource: &question.resource,
            subresource: &question.subresource,
            name: &question.name,
            namespace: &question.namespace,
        });
        match self.decide(&user, &asked) {
            Decision {
                allowed: true,
                reason,
            } => AccessAnswer::Allowed { reason },
            Decision { reason, .. } => AccessAnswer::NotAllowed { reason },
        }
    }
}

impl Known {
    /// Everything, as it is now.
    async fn read(objects: &Objects) -> Result<Self, StoreFault> {
        let (revision, records) = objects.all().await?;
        let book = RoleBook::of(records.iter().filter_map(read_object));
        Ok(Self { revision, book })
    }

    /// What came of this by some later revision. `None`: the history does not reach back to it.
    async fn read_on(&self, objects: &Objects, to: Revision) -> Result<Option<Self>, StoreFault> {
        let (mut revision, mut book) = (self.revision, self.book.clone());
        while revision < to {
            let page = objects.states(revision, PAGE).await?;
            let horizon = objects.horizon(usize::MAX).await?;
            let Some(last) = page.last().map(|change| change.revision) else {
                return Ok(None);
            };
            if horizon > revision {
                return Ok(None);
            }
            for change in page {
                let State::Object(record) = &change.state else {
                    continue;
                };
                let Some(kind) = RbacKind::stored_as(&record.key.kind) else {
                    continue;
                };
                let object = match change.kind {
                    StateChangeKind::Added | StateChangeKind::Modified => read_object(record),
                    StateChangeKind::Deleted => None,
                };
                match object {
                    Some(object) => book.put(object),
                    None => book.remove(kind, &record.key.namespace, &record.key.name),
                }
            }
            revision = last;
        }
        Ok(Some(Self { revision, book }))
    }
}

/// The name of the node that somebody is (`system:node:NAME`, in the group of nodes).
pub(super) fn node_name(user: &UserInfo) -> Option<&str> {
    let name = user.username.strip_prefix(NODE_USER)?;
    has_group(user, NODES).then_some(name)
}

/// An object's name in the engine.
fn key_of(kind: RbacKind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: format!("{}.{}", kind.resource(), countersign_kapi::rbac::GROUP),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Brings the roles and bindings of the start up to date: what is missing comes back, what was added stays.
async fn reconcile(objects: &Objects) -> Result<(), EngineError> {
    let (_, records) = objects.all().await?;
    let stored: BTreeMap<&ObjectKey, &ObjectRecord> =
        records.iter().map(|record| (&record.key, record)).collect();
    for expected in defaults::cluster_roles() {
        let key = key_of(RbacKind::ClusterRole, "", &expected.metadata.name);
        let Some(record) = stored.get(&key) else {
            create(objects, order_of(key, None, expected.stored_body(), START)).await?;
            continue;
        };
        let found = read_body::<ClusterRole>(record);
        let better = found.and_then(|found| defaults::reconciled_role(&found, &expected));
        if let Some(better) = better {
            let order = order_of(key, Some(record.version), better.stored_body(), START);
            settled(objects.update(order).await)?;
        }
    }
    for expected in defaults::cluster_role_bindings() {
        let key = key_of(RbacKind::ClusterRoleBinding, "", &expected.metadata.name);
        let Some(record) = stored.get(&key) else {
            create(objects, order_of(key, None, expected.stored_body(), START)).await?;
            continue;
        };
        let Some(found) = read_body::<ClusterRoleBinding>(record) else {
            continue;
        };
        let at = Some(record.version);
        match defaults::reconciled_binding(&found, &expected) {
            ReconciledBinding::Kept => {}
            ReconciledBinding::Updated(better) => {
                let order = order_of(key, at, better.stored_body(), START);
                settled(objects.update(order).await)?;
            }
            ReconciledBinding::Replaced(better) => {
                let order = order_of(key, at, better.stored_body(), START);
                settled(objects.delete(order.clone()).await)?;
                create(
                    objects,
                    ObjectOrder {
                        expected: None,
                        ..order
                    },
                )
                .await?;
            }
        }
    }
    Ok(())
}

async fn create(objects: &Objects, order: ObjectOrder) -> Result<(), EngineError> {
    settled(objects.create(order).await)
}

/// What another replica did at the same time is as good.
fn settled(outcome: Result<ObjectRecord, ObjectFault>) -> Result<(), EngineError> {
    match outcome {
        Err(ObjectFault::Engine(broken)) => Err(broken),
        Ok(_)
        | Err(
            ObjectFault::Exists { .. } | ObjectFault::Changed { .. } | ObjectFault::NotFound { .. },
        ) => Ok(()),
    }
}

fn order_of(
    key: ObjectKey,
    expected: Option<Revision>,
    body: Vec<u8>,
    detail: &str,
) -> ObjectOrder {
    ObjectOrder {
        key,
        actor: Requester::authority(),
        expected,
        body,
        detail: Some(detail.to_owned()),
    }
}

/// A role or binding. One that cannot be read gives nobody anything.
fn read_object(record: &ObjectRecord) -> Option<RbacObject> {
    let kind = RbacKind::stored_as(&record.key.kind)?;
    match kind.read(&record.body) {
        Ok(mut object) => {
            let meta = object.metadata_mut();
            meta.name.clone_from(&record.key.name);
            meta.namespace.clone_from(&record.key.namespace);
            Some(object)
        }
        Err(fault) => {
            error!(object = %record.key, %fault, "a stored object cannot be read; it grants nothing");
            None
        }
    }
}

fn read_body<T: Kind>(record: &ObjectRecord) -> Option<T> {
    let read = serde_json::from_slice(&record.body);
    read.inspect_err(|fault| warn!(object = %record.key, %fault, "left as it is"))
        .ok()
}

/// What bearers of enrolment tokens do with their own requests.
fn is_open_to_bearers(attributes: &Attributes<'_>) -> bool {
    let Attributes::Resource(action) = attributes else {
        return false;
    };
    (action.group, action.resource) == (GROUP, RESOURCE)
        && matches!(
            (action.verb, action.subresource),
            ("create" | "list" | "watch", "") | ("get", "" | "status")
        )
}

fn has_group(user: &UserInfo, group: &str) -> bool {
    user.groups.iter().any(|of| of == group)
}

fn allowed() -> Decision {
    Decision {
        allowed: true,
        reason: String::new(),
    }
}

const NODES: &str = "system:nodes";
const NODE_USER: &str = "system:node:";
/// What the audit log says of roles that a start writes.
const START: &str = "brought up to date at the start";
/// Further behind than so many commits, everything is read anew: most of them are not about roles.
const MAX_GAP: u64 = 1000;
const PAGE: usize = 256;
