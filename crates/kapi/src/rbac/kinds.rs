//! The four kinds as objects that a server serves.

use super::model::{
    ClusterRole, ClusterRoleBinding, GROUP_KIND, Role, RoleBinding, RoleRef, SERVICE_ACCOUNT,
    Subject, USER, set_binding_defaults,
};
use super::{API_VERSION, GROUP, protobuf, schema};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::protobuf::ProtobufFault;
use crate::schema::Schema;
use crate::status::Resource;
use crate::table::{Column, column};
use crate::time::{Time, age};

impl Kind for Role {
    const RESOURCE: Resource<'static> = resource("roles", "Role");
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = "RoleList";
    const NAMESPACED: bool = true;
    const COLUMNS: &'static [Column] = ROLE_COLUMNS;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn cells(&self, _now: Time) -> Vec<String> {
        role_cells(&self.metadata)
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_role(raw)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::role_message(self)
    }

    fn schema() -> &'static Schema {
        &schema::ROLE
    }
}

impl Kind for ClusterRole {
    const RESOURCE: Resource<'static> = resource("clusterroles", "ClusterRole");
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = "ClusterRoleList";
    const NAMESPACED: bool = false;
    const COLUMNS: &'static [Column] = ROLE_COLUMNS;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn cells(&self, _now: Time) -> Vec<String> {
        role_cells(&self.metadata)
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_cluster_role(raw)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::cluster_role_message(self)
    }

    fn schema() -> &'static Schema {
        &schema::CLUSTER_ROLE
    }
}

impl Kind for RoleBinding {
    const RESOURCE: Resource<'static> = resource("rolebindings", "RoleBinding");
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = "RoleBindingList";
    const NAMESPACED: bool = true;
    const COLUMNS: &'static [Column] = BINDING_COLUMNS;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn set_defaults(&mut self) {
        set_binding_defaults(&mut self.role_ref, &mut self.subjects);
    }

    fn cells(&self, now: Time) -> Vec<String> {
        binding_cells(&self.metadata, &self.subjects, &self.role_ref, now)
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_role_binding(raw)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::binding_message(&self.metadata, &self.subjects, &self.role_ref)
    }

    fn schema() -> &'static Schema {
        &schema::ROLE_BINDING
    }
}

impl Kind for ClusterRoleBinding {
    const RESOURCE: Resource<'static> = resource("clusterrolebindings", "ClusterRoleBinding");
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = "ClusterRoleBindingList";
    const NAMESPACED: bool = false;
    const COLUMNS: &'static [Column] = BINDING_COLUMNS;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn set_defaults(&mut self) {
        set_binding_defaults(&mut self.role_ref, &mut self.subjects);
    }

    fn cells(&self, now: Time) -> Vec<String> {
        binding_cells(&self.metadata, &self.subjects, &self.role_ref, now)
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_cluster_role_binding(raw)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::binding_message(&self.metadata, &self.subjects, &self.role_ref)
    }

    fn schema() -> &'static Schema {
        &schema::CLUSTER_ROLE_BINDING
    }
}

const fn resource(resource: &'static str, kind: &'static str) -> Resource<'static> {
    Resource {
        group: GROUP,
        resource,
        kind,
    }
}

/// Real servers have no table of their own for roles, so the creation is shown as it is stored.
fn role_cells(meta: &ObjectMeta) -> Vec<String> {
    let created = meta.creation_timestamp.map(|time| time.to_string());
    let zero = || "0001-01-01T00:00:00Z".to_owned();
    vec![meta.name.clone(), created.unwrap_or_else(zero)]
}

fn binding_cells(
    meta: &ObjectMeta,
    subjects: &[Subject],
    role: &RoleRef,
    now: Time,
) -> Vec<String> {
    let of_kind = |kind: &str| {
        let names: Vec<String> = subjects
            .iter()
            .filter(|subject| subject.kind == kind)
            .map(|subject| match kind {
                SERVICE_ACCOUNT => format!("{}/{}", subject.namespace, subject.name),
                _ => subject.name.clone(),
            })
            .collect();
        names.join(", ")
    };
    vec![
        meta.name.clone(),
        format!("{}/{}", role.kind, role.name),
        age(meta.creation_timestamp, now),
        of_kind(USER),
        of_kind(GROUP_KIND),
        of_kind(SERVICE_ACCOUNT),
    ]
}

const ROLE_COLUMNS: &[Column] = &[
    column("Name", "name", "Name of the role."),
    column("Created At", "", "When the role was created.").date(),
];

const BINDING_COLUMNS: &[Column] = &[
    column("Name", "name", "Name of the binding."),
    column("Role", "", "The role that is given."),
    column("Age", "", "Time since the binding was created."),
    column("Users", "", "Users who get the role.").wide(),
    column("Groups", "", "Groups that get the role.").wide(),
    column("ServiceAccounts", "", "Service accounts that get the role.").wide(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use crate::negotiate::BodyFormat;
    use crate::options::FieldValidation;
    use crate::patch::{self, PatchKind};
    use crate::protobuf::write;
    use serde_json::json;

    fn binding() -> ClusterRoleBinding {
        let body = json!({"apiVersion": API_VERSION, "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "subjects": [{"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}],
            "roleRef": {"kind": "ClusterRole", "name": "view"}});
        let body = body.to_string();
        let decoded = decode::object(body.as_bytes(), BodyFormat::Json, FieldValidation::Strict);
        decoded.unwrap().object
    }

    #[test]
    fn bodies_are_read_with_their_defaults() {
        let object = binding();
        assert_eq!(object.role_ref.api_group, GROUP);
        let mut bare = object.clone();
        bare.role_ref.api_group = String::new();
        let body = write(&bare);
        let read: ClusterRoleBinding =
            decode::object(&body, BodyFormat::Protobuf, FieldValidation::Strict)
                .unwrap()
                .object;
        assert_eq!(read, object);
    }

    #[test]
    fn unknown_fields_are_named() {
        let body = json!({"rules": [{"verbs": ["get"], "resource": ["pods"]}]}).to_string();
        let read: Result<decode::Decoded<Role>, _> =
            decode::object(body.as_bytes(), BodyFormat::Json, FieldValidation::Strict);
        let fault = read.unwrap_err().to_string();
        assert!(
            fault.ends_with("unknown field \"rules[0].resource\""),
            "{fault}"
        );
    }

    #[test]
    fn patches_replace_lists() {
        let patch = json!({"subjects": [{"kind": "Group", "name": "devs"}]}).to_string();
        for kind in [PatchKind::Merge, PatchKind::Strategic] {
            let patched = patch::apply(kind, &binding(), patch.as_bytes(), FieldValidation::Strict);
            let subjects = patched.unwrap().object.subjects;
            assert_eq!(subjects.len(), 1);
            assert_eq!(subjects[0].api_group, GROUP);
        }
    }

    #[test]
    fn rows_show_whom_and_what() {
        let now = Time::from_unix(100).unwrap();
        let mut object = binding();
        object.metadata.creation_timestamp = Time::from_unix(40);
        assert_eq!(
            object.cells(now),
            ["b", "ClusterRole/view", "60s", "jane", "", "ns/bot"]
        );
        assert_eq!(object.cells(now).len(), ClusterRoleBinding::COLUMNS.len());
        let mut role = Role::default();
        role.metadata.name = "r".into();
        role.metadata.creation_timestamp = Time::from_unix(0);
        assert_eq!(role.cells(now), ["r", "1970-01-01T00:00:00Z"]);
    }
}
