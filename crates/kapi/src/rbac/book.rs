//! All roles and bindings, indexed by whom they concern, so that a question costs what its user was given and not what
//! there is.
//!
//! A copy shares the objects: whoever changes a book that others still read copies the index alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::GROUP;
use super::aggregation::aggregated;
use super::model::{
    ClusterRole, ClusterRoleBinding, GROUP_KIND, PolicyRule, Role, RoleBinding, RoleRef,
    SERVICE_ACCOUNT, Subject, USER,
};
use crate::field::go_quote;
use crate::meta::ObjectMeta;
use crate::model::UserInfo;

/// An object of one of the four kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum RbacObject {
    /// A role in a namespace.
    Role(Role),
    /// A role of the cluster.
    ClusterRole(ClusterRole),
    /// A binding in a namespace.
    RoleBinding(RoleBinding),
    /// A binding in the cluster.
    ClusterRoleBinding(ClusterRoleBinding),
}

/// Which of the four kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RbacKind {
    /// A role in a namespace.
    Role,
    /// A role of the cluster.
    ClusterRole,
    /// A binding in a namespace.
    RoleBinding,
    /// A binding in the cluster.
    ClusterRoleBinding,
}

/// All roles and bindings there are.
#[derive(Debug, Clone, Default)]
pub struct RoleBook {
    /// By namespace, then name.
    roles: BTreeMap<String, BTreeMap<String, Arc<Role>>>,
    cluster_roles: BTreeMap<String, Arc<ClusterRole>>,
    /// What the aggregated cluster roles allow.
    aggregated: BTreeMap<String, Arc<[PolicyRule]>>,
    /// By namespace; empty for the cluster.
    bindings: BTreeMap<String, Bindings>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Clone, Default)]
struct Bindings {
    by_name: BTreeMap<String, Arc<Grant>>,
    /// Service accounts are users.
    by_user: BTreeMap<String, BTreeMap<String, Arc<Grant>>>,
    by_group: BTreeMap<String, BTreeMap<String, Arc<Grant>>>,
}

/// A binding, as far as decisions need it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) namespace: String,
    name: String,
    subjects: Vec<Subject>,
    pub(super) role_ref: RoleRef,
}

impl RbacKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Role,
        Self::ClusterRole,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
    ];

    /// Kind of one object.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// Plural name, as in paths and rules.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// The kind of a resource of the group, as stores name it: `roles.rbac.authorization.k8s.io`.
    #[must_use]
    pub fn stored_as(text: &str) -> Option<Self> {
        let (resource, group) = text.split_once('.')?;
        let is_it = |kind: &Self| kind.resource() == resource && group == GROUP;
        Self::ALL.into_iter().find(is_it)
    }

    /// Whether objects live in namespaces.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Role | Self::RoleBinding => true,
            Self::ClusterRole | Self::ClusterRoleBinding => false,
        }
    }

    /// Reads an object that was stored as JSON.
    ///
    /// # Errors
    /// Says why the body is no object of this kind.
    pub fn read(self, body: &[u8]) -> Result<RbacObject, serde_json::Error> {
        Ok(match self {
            Self::Role => RbacObject::Role(serde_json::from_slice(body)?),
            Self::ClusterRole => RbacObject::ClusterRole(serde_json::from_slice(body)?),
            Self::RoleBinding => RbacObject::RoleBinding(serde_json::from_slice(body)?),
            Self::ClusterRoleBinding => {
                RbacObject::ClusterRoleBinding(serde_json::from_slice(body)?)
            }
        })
    }
}

impl RbacObject {
    /// Name, namespace, labels.
    pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Role(object) => &mut object.metadata,
            Self::ClusterRole(object) => &mut object.metadata,
            Self::RoleBinding(object) => &mut object.metadata,
            Self::ClusterRoleBinding(object) => &mut object.metadata,
        }
    }
}

impl RoleBook {
    /// A book of these objects.
    #[must_use]
    pub fn of(objects: impl IntoIterator<Item = RbacObject>) -> Self {
        let mut book = Self::default();
        objects.into_iter().for_each(|object| book.insert(object));
        book.aggregated = aggregated(&book.cluster_roles);
        book
    }

    /// Writes an object down, in place of an older one of its name.
    pub fn put(&mut self, object: RbacObject) {
        let is_cluster_role = matches!(object, RbacObject::ClusterRole(_));
        self.insert(object);
        if is_cluster_role {
            self.aggregated = aggregated(&self.cluster_roles);
        }
    }

    /// Strikes an object out.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        match kind {
            RbacKind::Role => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            RbacKind::ClusterRole => {
                self.cluster_roles.remove(name);
                self.aggregated = aggregated(&self.cluster_roles);
            }
            RbacKind::RoleBinding => self.revoke(namespace, name),
            RbacKind::ClusterRoleBinding => self.revoke("", name),
        }
    }

    /// What a role allows that a binding in `namespace` refers to; `None`: there is no such role.
    #[must_use]
    pub fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&[PolicyRule]> {
        match role.kind.as_str() {
            "Role" => {
                let role = self.roles.get(namespace)?.get(&role.name)?;
                Some(&role.rules)
            }
            "ClusterRole" => match self.aggregated.get(&role.name) {
                Some(rules) => Some(rules),
                None => Some(&self.cluster_roles.get(&role.name)?.rules),
            },
            _ => None,
        }
    }

    /// The aggregated cluster roles whose own `rules` are not, or no longer, what they allow: name and rules as they
    /// should be written.
    pub fn outdated_aggregates(&self) -> impl Iterator<Item = (&str, &[PolicyRule])> {
        self.aggregated.iter().filter_map(|(name, rules)| {
            let stored = self.cluster_roles.get(name)?;
            (*stored.rules != **rules).then_some((name.as_str(), &**rules))
        })
    }

    /// The bindings that concern a user: those of the cluster by name, then those of the namespace.
    pub(super) fn grants(&self, user: &UserInfo, namespace: &str) -> Vec<&Grant> {
        let mut grants = Vec::new();
        let places = match namespace {
            "" => [Some(""), None],
            namespace => [Some(""), Some(namespace)],
        };
        for place in places.into_iter().flatten() {
            let Some(bindings) = self.bindings.get(place) else {
                continue;
            };
            let by_group = user
                .groups
                .iter()
                .filter_map(|group| bindings.by_group.get(group));
            let named = bindings.by_user.get(&user.username);
            let found: BTreeMap<&str, &Grant> = named
                .into_iter()
                .chain(by_group)
                .flatten()
                .map(|(name, grant)| (name.as_str(), &**grant))
                .collect();
            grants.extend(found.into_values());
        }
        grants
    }

    fn insert(&mut self, object: RbacObject) {
        match object {
            RbacObject::Role(mut role) => {
                each_once(&mut role.rules);
                let roles = self.roles.entry(role.metadata.namespace.clone());
                let name = role.metadata.name.clone();
                roles.or_default().insert(name, Arc::new(role));
            }
            RbacObject::ClusterRole(mut role) => {
                if role.aggregation_rule.is_none() {
                    each_once(&mut role.rules);
                }
                let name = role.metadata.name.clone();
                self.cluster_roles.insert(name, Arc::new(role));
            }
            RbacObject::RoleBinding(binding) => self.grant(Grant {
                namespace: binding.metadata.namespace,
                name: binding.metadata.name,
                subjects: binding.subjects,
                role_ref: binding.role_ref,
            }),
            RbacObject::ClusterRoleBinding(binding) => self.grant(Grant {
                namespace: String::new(),
                name: binding.metadata.name,
                subjects: binding.subjects,
                role_ref: binding.role_ref,
            }),
        }
    }

    fn grant(&mut self, grant: Grant) {
        self.revoke(&grant.namespace, &grant.name);
        let grant = Arc::new(grant);
        let bindings = self.bindings.entry(grant.namespace.clone()).or_default();
        for subject in &grant.subjects {
            let (index, key) = match Who::of(subject, &grant.namespace) {
                Some(Who::User(name)) => (&mut bindings.by_user, name),
                Some(Who::Group(name)) => (&mut bindings.by_group, name),
                None => continue,
            };
            let entry = index.entry(key).or_default();
            entry.insert(grant.name.clone(), Arc::clone(&grant));
        }
        bindings.by_name.insert(grant.name.clone(), grant);
    }

    fn revoke(&mut self, namespace: &str, name: &str) {
        let Some(bindings) = self.bindings.get_mut(namespace) else {
            return;
        };
        let Some(grant) = bindings.by_name.remove(name) else {
            return;
        };
        for subject in &grant.subjects {
            let (index, key) = match Who::of(subject, namespace) {
                Some(Who::User(name)) => (&mut bindings.by_user, name),
                Some(Who::Group(name)) => (&mut bindings.by_group, name),
                None => continue,
            };
            if let Some(entry) = index.get_mut(&key) {
                entry.remove(name);
                if entry.is_empty() {
                    index.remove(&key);
                }
            }
        }
        if bindings.by_name.is_empty() {
            self.bindings.remove(namespace);
        }
    }
}

impl Grant {
    /// The binding, its role and the first of its subjects that the user is, as real servers tell it.
    pub(super) fn describe(&self, user: &UserInfo) -> String {
        let (kind, name) = match self.namespace.as_str() {
            "" => ("ClusterRoleBinding", self.name.clone()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let is_user = |subject: &&Subject| match Who::of(subject, &self.namespace) {
            Some(Who::User(name)) => name == user.username,
            Some(Who::Group(name)) => user.groups.contains(&name),
            None => false,
        };
        let to = self.subjects.iter().find(is_user).map(|subject| {
            let name = match subject.kind.as_str() {
                SERVICE_ACCOUNT if subject.namespace.is_empty() => {
                    format!("{}/{}", subject.name, self.namespace)
                }
                SERVICE_ACCOUNT => format!("{}/{}", subject.name, subject.namespace),
                _ => subject.name.clone(),
            };
            format!(" to {} {}", subject.kind, go_quote(&name))
        });
        format!(
            "{kind} {} of {} {}{}",
            go_quote(&name),
            self.role_ref.kind,
            go_quote(&self.role_ref.name),
            to.unwrap_or_default()
        )
    }
}

/// A rule that is written twice allows nothing more, and would be looked at twice.
fn each_once(rules: &mut Vec<PolicyRule>) {
    let mut seen = HashSet::new();
    let is_new: Vec<bool> = rules.iter().map(|rule| seen.insert(rule)).collect();
    drop(seen);
    let mut is_new = is_new.into_iter();
    rules.retain(|_| is_new.next().unwrap_or(true));
}

/// Whom a subject means.
enum Who {
    User(String),
    Group(String),
}

impl Who {
    /// A service account without a namespace is one of the binding's own; in the cluster it is nobody.
    fn of(subject: &Subject, namespace: &str) -> Option<Self> {
        match subject.kind.as_str() {
            USER => Some(Self::User(subject.name.clone())),
            GROUP_KIND => Some(Self::Group(subject.name.clone())),
            SERVICE_ACCOUNT => {
                let namespace = match subject.namespace.as_str() {
                    "" => namespace,
                    own => own,
                };
                let name = format!("{SERVICE_ACCOUNT_USER}{namespace}:{}", subject.name);
                (!namespace.is_empty()).then_some(Self::User(name))
            }
            _ => None,
        }
    }
}

const SERVICE_ACCOUNT_USER: &str = "system:serviceaccount:";
