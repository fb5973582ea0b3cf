//! The four kinds, as far as writing them differs.

use countersign_authority::Revision;
use countersign_kapi::rbac::book::RbacKind;
use countersign_kapi::rbac::escalation::{EscalationFault, RoleDraft};
use countersign_kapi::rbac::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject, cover,
    validate,
};
use countersign_kapi::{FieldError, Resource, UserInfo};

use super::super::KubernetesDoor;
use super::super::answer::{Refusal, first_bytes};
use super::super::authorizer::Authorizer;
use super::super::feed::Cached;
use super::super::objects::{Kept, Writer};

/// Who writes something, and where.
pub(super) struct Granter<'a> {
    pub(super) authorizer: &'a Authorizer,
    pub(super) user: &'a UserInfo,
    /// The name in the path; empty where there is none.
    pub(super) name: &'a str,
}

/// A kind that says who may do what.
pub(super) trait Granting: Cached {
    /// Which of the four.
    const GRANTS: RbacKind;

    /// What is wrong with it; `old` is what is stored of it.
    fn faults(&self, old: Option<&Self>) -> Vec<FieldError>;

    /// Whether somebody has what it grants.
    fn check(&self, old: Option<&Self>, granter: &Granter<'_>) -> Result<(), EscalationFault>;

    /// What it grants, for the audit log.
    fn detail(&self) -> String;
}

impl<T: Granting> Kept for T {
    const IS_NOTED: bool = true;

    fn faults(&self, old: Option<&Self>) -> Vec<FieldError> {
        Granting::faults(self, old)
    }

    /// Whether the writer holds what is granted. What only says who waits for the deletion grants nothing.
    fn admit(&self, old: Option<&Self>, writer: &Writer<'_>) -> Result<(), Refusal> {
        if old.is_some_and(|old| differ_in_deletion_alone(old, self)) {
            return Ok(());
        }
        let granter = Granter {
            authorizer: &writer.door.authorizer,
            user: writer.user.info(),
            name: writer.name,
        };
        let name = &self.metadata().name;
        self.check(old, &granter)
            .map_err(|fault| escalation_refusal(fault, T::RESOURCE, name))
    }

    fn detail(&self) -> Option<String> {
        Some(Granting::detail(self))
    }

    /// It counts for every later call before its writer hears of it.
    async fn settle(door: &KubernetesDoor, at: Revision) -> Result<(), Refusal> {
        Ok(door.authorizer.settle(&door.authority, at).await?)
    }
}

/// Why somebody may not write a role or a binding, as they are told.
fn escalation_refusal(fault: EscalationFault, of: Resource<'_>, name: &str) -> Refusal {
    match fault {
        EscalationFault::NoSuchRole { resource, name } => {
            let role = Resource { resource, ..of };
            role.not_found(&name).into()
        }
        fault => of.not_admitted(name, &fault.to_string()).into(),
    }
}

/// Whether nothing else was changed than who waits for the deletion of an object, and what it belongs to.
fn differ_in_deletion_alone<T: Granting>(old: &T, new: &T) -> bool {
    let mut same = new.clone();
    let meta = same.metadata_mut();
    meta.finalizers.clone_from(&old.metadata().finalizers);
    meta.owner_references
        .clone_from(&old.metadata().owner_references);
    // Who wrote which field is not a grant either.
    meta.managed_fields
        .clone_from(&old.metadata().managed_fields);
    same == *old
}

/// The beginning of what rules allow, and how many there are.
fn rules_in_words(rules: &[PolicyRule]) -> String {
    let words: Vec<String> = rules.iter().take(MAX_TOLD).map(cover::describe).collect();
    let text = format!("{} rules: {}", rules.len(), words.join(" "));
    first_bytes(&text, MAX_DETAIL).to_owned()
}

/// A role and the beginning of who has it.
fn binding_in_words(role: &RoleRef, subjects: &[Subject]) -> String {
    let of = |subject: &Subject| match subject.namespace.as_str() {
        "" => format!("{} {}", subject.kind, subject.name),
        namespace => format!("{} {namespace}/{}", subject.kind, subject.name),
    };
    let words: Vec<String> = subjects.iter().take(MAX_TOLD).map(of).collect();
    let (count, words) = (subjects.len(), words.join(", "));
    let text = format!("{} {} for {count}: {words}", role.kind, role.name);
    first_bytes(&text, MAX_DETAIL).to_owned()
}

const MAX_TOLD: usize = 20;
const MAX_DETAIL: usize = 1024; // it stands in a line of the audit log

impl Granting for Role {
    const GRANTS: RbacKind = RbacKind::Role;

    fn detail(&self) -> String {
        rules_in_words(&self.rules)
    }

    fn faults(&self, _old: Option<&Self>) -> Vec<FieldError> {
        validate::role(self)
    }

    fn check(&self, _old: Option<&Self>, granter: &Granter<'_>) -> Result<(), EscalationFault> {
        let draft = RoleDraft {
            kind: Self::GRANTS,
            namespace: &self.metadata.namespace,
            name: granter.name,
            rules: &self.rules,
            aggregated: false,
        };
        granter.authorizer.check_escalation(granter.user, &draft)
    }
}

impl Granting for ClusterRole {
    const GRANTS: RbacKind = RbacKind::ClusterRole;

    fn detail(&self) -> String {
        rules_in_words(&self.rules)
    }

    fn faults(&self, old: Option<&Self>) -> Vec<FieldError> {
        validate::cluster_role(self, old)
    }

    fn check(&self, old: Option<&Self>, granter: &Granter<'_>) -> Result<(), EscalationFault> {
        let aggregates = |role: &Self| role.aggregation_rule.is_some();
        let draft = RoleDraft {
            kind: Self::GRANTS,
            namespace: "",
            name: granter.name,
            rules: &self.rules,
            aggregated: aggregates(self) || old.is_some_and(aggregates),
        };
        granter.authorizer.check_escalation(granter.user, &draft)
    }
}

impl Granting for RoleBinding {
    const GRANTS: RbacKind = RbacKind::RoleBinding;

    fn detail(&self) -> String {
        binding_in_words(&self.role_ref, &self.subjects)
    }

    fn faults(&self, old: Option<&Self>) -> Vec<FieldError> {
        validate::role_binding(self, old)
    }

    fn check(&self, _old: Option<&Self>, granter: &Granter<'_>) -> Result<(), EscalationFault> {
        let namespace = &self.metadata.namespace;
        let Granter {
            authorizer, user, ..
        } = granter;
        authorizer.check_binding(user, &self.role_ref, namespace)
    }
}

impl Granting for ClusterRoleBinding {
    const GRANTS: RbacKind = RbacKind::ClusterRoleBinding;

    fn detail(&self) -> String {
        binding_in_words(&self.role_ref, &self.subjects)
    }

    fn faults(&self, old: Option<&Self>) -> Vec<FieldError> {
        validate::cluster_role_binding(self, old)
    }

    fn check(&self, _old: Option<&Self>, granter: &Granter<'_>) -> Result<(), EscalationFault> {
        let Granter {
            authorizer, user, ..
        } = granter;
        authorizer.check_binding(user, &self.role_ref, "")
    }
}
