//! Objects that doors keep besides requests, and the history of what doors show: every state of a retained request and of an
//! object, in commit order.
//!
//! The engine gives an object no meaning. It keeps its door's bytes under a name, says who changed them, and refuses a change
//! that was made on an older state.

use std::fmt;
use std::sync::Arc;

use countersign_pki::UnixTime;
use countersign_policy::Requester;
use tracing::{debug, info};

use crate::audit::AuditEntry;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::model::{RequestId, RequestRecord, Revision};
use crate::store::{Change, CommitFault, Precondition, StoreFault, Write};

/// What doors keep beside requests, and the history of both.
#[derive(Clone)]
pub struct Objects {
    pub(crate) core: Arc<Core>,
}

/// What names an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// What it is, as `resource.group`: `clusterroles.rbac.authorization.k8s.io`.
    pub kind: String,
    /// Its namespace; empty: it has none.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        for part in [&self.namespace, &self.name] {
            if !part.is_empty() {
                write!(f, "/{part}")?;
            }
        }
        Ok(())
    }
}

/// An object as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its name.
    pub key: ObjectKey,
    /// Its identity: another one of the same name has another.
    pub id: RequestId,
    /// The revision of its last change.
    pub version: Revision,
    /// When it was made.
    pub created: UnixTime,
    /// The door's data, which the engine does not look into.
    pub body: Vec<u8>,
}

/// What a commit did to a thing that doors show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChangeKind {
    /// There was none of that name.
    Added,
    /// It was there.
    Modified,
    /// It is gone; this is how it was last.
    Deleted,
}

impl StateChangeKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Added, Self::Modified, Self::Deleted];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }
}

/// A thing that doors show, as one commit left it.
#[derive(Clone, Debug)]
pub enum State {
    /// A request that its door retains.
    Request(Box<RequestRecord>),
    /// An object.
    Object(Box<ObjectRecord>),
}

impl State {
    /// The version that it says of itself.
    pub fn version(&self) -> Revision {
        match self {
            Self::Request(request) => request.version,
            Self::Object(object) => object.version,
        }
    }
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub struct StateChange {
    /// The commit; the state's version, also where this is its end.
    pub revision: Revision,
    /// What it did.
    pub kind: StateChangeKind,
    /// What came of it.
    pub state: State,
}

/// What is to be done with an object.
#[derive(Clone, Debug)]
pub struct ObjectOrder {
    /// Which.
    pub key: ObjectKey,
    /// By whom.
    pub actor: Requester,
    /// Only if it is still at this version.
    pub expected: Option<Revision>,
    /// What it is from now on; a deletion does not look at it.
    pub body: Vec<u8>,
    /// What the audit log says of it; `None`: it is none of its business.
    pub detail: Option<String>,
}

/// Why an object was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFault {
    /// There is one of that name.
    #[error("{key} exists already")]
    Exists {
        /// The name.
        key: ObjectKey,
    },
    /// It is not as the caller saw it.
    #[error("{key} was changed meanwhile; look at it again")]
    Changed {
        /// The name.
        key: ObjectKey,
    },
    /// There is none of that name.
    #[error("there is no {key}")]
    NotFound {
        /// The name.
        key: ObjectKey,
    },
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreFault> for ObjectFault {
    fn from(fault: StoreFault) -> Self {
        Self::Engine(fault.into())
    }
}

impl Objects {
    /// Every object, by kind, namespace and name, and the revision at which that was so.
    pub async fn all(&self) -> Result<(Revision, Vec<ObjectRecord>), StoreFault> {
        self.core.store.objects().await
    }

    /// One object.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<ObjectRecord>, StoreFault> {
        self.core.store.object(key).await
    }

    /// The states that commits after `since` left, in commit order. A page never ends inside a commit; empty: nothing more.
    pub async fn states(
        &self,
        since: Revision,
        limit: usize,
    ) -> Result<Vec<StateChange>, StoreFault> {
        self.core.store.states(since, limit).await
    }

    /// How far the history goes back: every state after this revision is on record.
    pub async fn horizon(&self, newest: usize) -> Result<Revision, StoreFault> {
        self.core.store.states_horizon(newest).await
    }

    /// Forgets states of commits before `before`. What is current stays.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn trim(&self, before: Revision) -> Result<(), EngineError> {
        // A part per commit: between two of them others have their turn.
        let before = before.min(*self.core.store.revisions().borrow());
        while self.horizon(usize::MAX).await?.0.saturating_add(1) < before.0 {
            let change = Change {
                writes: vec![Write::TrimStates { before }],
                ..Change::default()
            };
            self.core.commit(change).await.map_err(commit_broken)?;
        }
        Ok(())
    }

    /// Keeps a new object.
    ///
    /// # Errors
    /// If there is one of its name.
    pub async fn create(&self, order: ObjectOrder) -> Result<ObjectRecord, ObjectFault> {
        let now = self.core.clock.now();
        let record = ObjectRecord {
            id: self.core.new_request_id(now)?,
            key: order.key.clone(),
            version: Revision::default(),
            created: now,
            body: order.body.clone(),
        };
        let written = Write::PutObject(record.clone());
        match self.change_object(&order, "create", None, written).await? {
            Some(version) => Ok(ObjectRecord { version, ..record }),
            None => Err(ObjectFault::Exists { key: order.key }),
        }
    }

    /// Gives an object another body. One that has it already stays as it is.
    ///
    /// # Errors
    /// If there is none, or it is not at the expected version.
    pub async fn update(&self, order: ObjectOrder) -> Result<ObjectRecord, ObjectFault> {
        for _ in 0..MAX_TRIES {
            let old = self.expected_object(&order).await?;
            if old.body == order.body {
                return Ok(old);
            }
            let record = ObjectRecord {
                body: order.body.clone(),
                ..old
            };
            let (at, written) = (Some(record.version), Write::PutObject(record.clone()));
            if let Some(version) = self.change_object(&order, "update", at, written).await? {
                return Ok(ObjectRecord { version, ..record });
            }
        }
        Err(EngineError::Contended.into())
    }

    /// Forgets an object; answers how it was last, under the revision of its deletion.
    ///
    /// # Errors
    /// If there is none, or it is not at the expected version.
    pub async fn delete(&self, order: ObjectOrder) -> Result<ObjectRecord, ObjectFault> {
        for _ in 0..MAX_TRIES {
            let old = self.expected_object(&order).await?;
            let (at, key) = (Some(old.version), order.key.clone());
            let written = Write::DeleteObject { key };
            if let Some(version) = self.change_object(&order, "delete", at, written).await? {
                return Ok(ObjectRecord { version, ..old });
            }
        }
        Err(EngineError::Contended.into())
    }

    /// The object of an order, if it is as the order expects it.
    async fn expected_object(&self, order: &ObjectOrder) -> Result<ObjectRecord, ObjectFault> {
        let key = || order.key.clone();
        let found = self.get(&order.key).await?;
        let record = found.ok_or_else(|| ObjectFault::NotFound { key: key() })?;
        match order.expected {
            Some(expected) if expected != record.version => {
                Err(ObjectFault::Changed { key: key() })
            }
            Some(_) | None => Ok(record),
        }
    }

    /// Commits a write to an object that is at this version. `None`: it was not.
    async fn change_object(
        &self,
        order: &ObjectOrder,
        verb: &str,
        version: Option<Revision>,
        write: Write,
    ) -> Result<Option<Revision>, ObjectFault> {
        let key = order.key.clone();
        let entry = order.detail.as_ref().map(|detail| {
            let action = format!("{verb} {}", singular(&key.kind));
            let (now, actor) = (self.core.clock.now(), order.actor.clone());
            AuditEntry::new(now, actor, action, key.to_string()).detail(detail.clone())
        });
        let change = Change {
            preconditions: vec![Precondition::ObjectAt { key, version }],
            writes: vec![write],
            audit: entry.into_iter().collect(),
        };
        match self.core.commit(change).await {
            Ok(committed) => {
                match order.detail {
                    Some(_) => {
                        info!(object = %order.key, actor = %order.actor, verb, "object changed");
                    }
                    None => {
                        debug!(object = %order.key, actor = %order.actor, verb, "object changed");
                    }
                }
                Ok(Some(committed.revision))
            }
            Err(CommitFault::Conflict { .. }) => Ok(None),
            Err(other) => Err(commit_broken(other).into()),
        }
    }
}

/// The word for one of a kind: a resource is named in the plural, with its group behind it.
fn singular(kind: &str) -> &str {
    let resource = kind.split('.').next().unwrap_or(kind);
    resource.strip_suffix('s').unwrap_or(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_kind_namespace_and_name() {
        let key = |namespace: &str| ObjectKey {
            kind: "roles.rbac.authorization.k8s.io".to_owned(),
            namespace: namespace.to_owned(),
            name: "reader".to_owned(),
        };
        assert_eq!(
            key("").to_string(),
            "roles.rbac.authorization.k8s.io/reader"
        );
        assert_eq!(
            key("lab").to_string(),
            "roles.rbac.authorization.k8s.io/lab/reader"
        );
        assert_eq!(singular(&key("").kind), "role");
        assert_eq!(singular("settings"), "setting");
    }
}
