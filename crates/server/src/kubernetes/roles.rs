//! Roles and bindings as a resource, where nobody grants what they do not have.

mod granting;

use axum::Router;
use countersign_kapi::rbac::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

use super::KubernetesDoor;
use super::objects::served;

/// The calls of all four kinds.
pub(super) fn router(door: &KubernetesDoor) -> Router<KubernetesDoor> {
    let router = Router::new();
    let router = served::<ClusterRole>(door, router);
    let router = served::<ClusterRoleBinding>(door, router);
    let router = served::<Role>(door, router);
    served::<RoleBinding>(door, router)
}
