//! Nobody grants what they do not have: who writes roles and bindings must hold every right in them, or have been given
//! the verb `escalate` on the role or `bind` on the role that a binding refers to.
//!
//! Rights that an authorizer gives without roles (to nodes, to everybody who is known) do not count as held, as on real
//! servers; they are nothing to hand on.

use std::collections::BTreeSet;

use super::book::RbacKind;
use super::cover::{self, TooManyGrants};
use super::evaluate::{Attributes, ResourceAction};
use super::model::{PolicyRule, RoleRef};
use super::{GROUP, MASTERS, RoleBook};
use crate::field::go_quote;
use crate::model::UserInfo;

/// Why somebody may not write a role or a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EscalationFault {
    /// They do not hold what it grants; a server answers 403.
    #[error("{text}")]
    NotHeld {
        /// Who, and which rights, in the words of real servers.
        text: String,
    },
    /// An aggregated role gathers anything; a server answers 403.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    Aggregation,
    /// The rules cannot be compared; a server answers 403.
    #[error(transparent)]
    TooManyGrants(#[from] TooManyGrants),
    /// The role that a binding refers to does not exist, so what it grants is not known; a server answers 404.
    #[error("{resource}.{GROUP} {} not found", go_quote(name))]
    NoSuchRole {
        /// Plural name of its kind.
        resource: &'static str,
        /// Its name.
        name: String,
    },
    /// A binding refers to something that is no role; a server answers 500 or, if it validates first, 422.
    #[error("unsupported role reference kind: {}", go_quote(kind))]
    RoleKind {
        /// The kind it names.
        kind: String,
    },
}

/// Somebody who writes roles or bindings.
#[derive(Clone, Copy)]
pub struct Granter<'a> {
    /// Who.
    pub user: &'a UserInfo,
    /// The roles and bindings that say what they hold.
    pub book: &'a RoleBook,
    /// Whether they may do something, by whatever rule of the server.
    pub may: &'a dyn Fn(&Attributes<'_>) -> bool,
}

/// A role as it is to be written.
#[derive(Debug, Clone, Copy)]
pub struct RoleDraft<'a> {
    /// [`RbacKind::Role`] or [`RbacKind::ClusterRole`].
    pub kind: RbacKind,
    /// Namespace of a role.
    pub namespace: &'a str,
    /// The name in the path of the request; empty on create.
    pub name: &'a str,
    /// What it allows.
    pub rules: &'a [PolicyRule],
    /// Whether it has an aggregation rule, or had one.
    pub aggregated: bool,
}

impl Granter<'_> {
    /// Whether a role may be written.
    ///
    /// # Errors
    /// Says what is not held.
    pub fn check_role(&self, draft: &RoleDraft<'_>) -> Result<(), EscalationFault> {
        let escalate = Attributes::Resource(ResourceAction {
            verb: "escalate",
            group: GROUP,
            resource: draft.kind.resource(),
            subresource: "",
            name: draft.name,
            namespace: draft.namespace,
        });
        if self.is_master() || (self.may)(&escalate) {
            return Ok(());
        }
        self.holds(draft.rules, draft.namespace)?;
        if draft.aggregated {
            let everything = [
                PolicyRule {
                    verbs: vec!["*".to_owned()],
                    api_groups: vec!["*".to_owned()],
                    resources: vec!["*".to_owned()],
                    ..PolicyRule::default()
                },
                PolicyRule {
                    verbs: vec!["*".to_owned()],
                    non_resource_urls: vec!["*".to_owned()],
                    ..PolicyRule::default()
                },
            ];
            self.holds(&everything, draft.namespace)
                .map_err(|_| EscalationFault::Aggregation)?;
        }
        Ok(())
    }

    /// Whether a binding in a namespace (empty: the cluster) to a role may be written.
    ///
    /// # Errors
    /// Says what is not held.
    pub fn check_binding(&self, role: &RoleRef, namespace: &str) -> Result<(), EscalationFault> {
        if self.is_master() {
            return Ok(());
        }
        let kind = match role.kind.as_str() {
            "Role" => RbacKind::Role,
            "ClusterRole" => RbacKind::ClusterRole,
            other => {
                return Err(EscalationFault::RoleKind {
                    kind: other.to_owned(),
                });
            }
        };
        let bind = Attributes::Resource(ResourceAction {
            verb: "bind",
            group: &role.api_group,
            resource: kind.resource(),
            subresource: "",
            name: &role.name,
            namespace,
        });
        if (self.may)(&bind) {
            return Ok(());
        }
        let rules = self.book.rules(role, namespace);
        let rules = rules.ok_or_else(|| EscalationFault::NoSuchRole {
            resource: kind.resource(),
            name: role.name.clone(),
        })?;
        self.holds(rules, namespace)
    }

    fn is_master(&self) -> bool {
        self.user.groups.iter().any(|group| group == MASTERS)
    }

    fn holds(&self, rules: &[PolicyRule], namespace: &str) -> Result<(), EscalationFault> {
        let held = self.book.rules_of(self.user, namespace);
        let missing = cover::missing(held.rules.iter().copied(), rules)?;
        if missing.is_empty() {
            return Ok(());
        }
        let lines: BTreeSet<String> = cover::compact(missing)
            .iter()
            .map(cover::describe)
            .collect();
        let mut text = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n",
            go_quote(&self.user.username),
            cover::quoted(&self.user.groups),
        );
        let shown: Vec<&str> = lines.iter().take(MAX_LINES).map(String::as_str).collect();
        text.push_str(&shown.join("\n"));
        if lines.len() > MAX_LINES {
            text.push_str(&format!("\n... and {} more", lines.len() - MAX_LINES));
        }
        if !held.faults.is_empty() {
            text.push_str(&format!(
                "; resolution errors: [{}]",
                held.faults.join(", ")
            ));
        }
        Err(EscalationFault::NotHeld { text })
    }
}

/// Missing rights that are told, one in a line.
const MAX_LINES: usize = 100;
