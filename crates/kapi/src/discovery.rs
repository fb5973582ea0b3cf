//! Discovery documents: which groups, versions and resources a server has, in the older form and all at once.

#![expect(
    clippy::indexing_slicing,
    reason = "fields are set on objects made here, never on input"
)]

use serde_json::{Value, json};

use crate::{GROUP, KIND, RESOURCE, VERSION};

/// A group with its one served version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiGroup {
    /// Name, such as `certificates.k8s.io`.
    pub name: &'static str,
    /// Version, such as `v1`.
    pub version: &'static str,
    /// What it serves.
    pub resources: &'static [ApiResource],
}

/// A resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiResource {
    /// Plural name, as in paths.
    pub name: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Singular name.
    pub singular: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// What can be done with it, sorted.
    pub verbs: &'static [&'static str],
    /// Abbreviations for kubectl.
    pub short_names: &'static [&'static str],
    /// Its subresources.
    pub subresources: &'static [ApiSubresource],
}

/// A part of a resource with a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiSubresource {
    /// The last segment of its path.
    pub name: &'static str,
    /// What can be done with it, sorted.
    pub verbs: &'static [&'static str],
}

/// Requests for certificates. Only what is served stands here: clients choose what they try by it.
pub const CERTIFICATES: ApiGroup = ApiGroup {
    name: GROUP,
    version: VERSION,
    resources: &[ApiResource {
        name: RESOURCE,
        namespaced: false,
        singular: "certificatesigningrequest",
        kind: KIND,
        verbs: &ALL_VERBS,
        short_names: &["csr"],
        subresources: &[
            ApiSubresource {
                name: "approval",
                verbs: &["get", "patch", "update"],
            },
            ApiSubresource {
                name: "status",
                verbs: &["get", "patch", "update"],
            },
        ],
    }],
};

/// `kubectl auth whoami`.
pub const AUTHENTICATION: ApiGroup = ApiGroup {
    name: "authentication.k8s.io",
    version: "v1",
    resources: &[review(
        "selfsubjectreviews",
        "selfsubjectreview",
        "SelfSubjectReview",
    )],
};

/// `kubectl auth can-i`, and access reviews of controllers.
pub const AUTHORIZATION: ApiGroup = ApiGroup {
    name: "authorization.k8s.io",
    version: "v1",
    resources: &[
        ApiResource {
            namespaced: true,
            ..review(
                "localsubjectaccessreviews",
                "localsubjectaccessreview",
                "LocalSubjectAccessReview",
            )
        },
        review(
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
            "SelfSubjectAccessReview",
        ),
        review(
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
            "SelfSubjectRulesReview",
        ),
        review(
            "subjectaccessreviews",
            "subjectaccessreview",
            "SubjectAccessReview",
        ),
    ],
};

/// Roles and who has them.
pub const RBAC: ApiGroup = ApiGroup {
    name: "rbac.authorization.k8s.io",
    version: "v1",
    resources: &[
        rbac(
            "clusterrolebindings",
            "clusterrolebinding",
            "ClusterRoleBinding",
            false,
        ),
        rbac("clusterroles", "clusterrole", "ClusterRole", false),
        rbac("rolebindings", "rolebinding", "RoleBinding", true),
        rbac("roles", "role", "Role", true),
    ],
};

/// Which controller is at work.
pub const COORDINATION: ApiGroup = ApiGroup {
    name: crate::coordination::GROUP,
    version: "v1",
    resources: &[namespaced("leases", "lease", "Lease", &[])],
};

/// What controllers tell people.
pub const EVENTS: ApiGroup = ApiGroup {
    name: crate::event::GROUP,
    version: "v1",
    resources: &[namespaced("events", "event", "Event", &["ev"])],
};

/// The same, where it was before there were groups.
pub const CORE: ApiGroup = ApiGroup {
    name: "",
    version: "v1",
    resources: EVENTS.resources,
};

impl ApiGroup {
    /// Where its resources are: `/apis/{group}/{version}`; of the core group `/api/{version}`.
    #[must_use]
    pub fn path(&self) -> String {
        match self.name {
            "" => format!("/api/{}", self.version),
            name => format!("/apis/{name}/{}", self.version),
        }
    }

    /// `/apis/{group}`.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut document = self.entry();
        document["kind"] = json!("APIGroup");
        document["apiVersion"] = json!("v1");
        document
    }

    /// `/apis/{group}/{version}`.
    #[must_use]
    pub fn resource_list(&self) -> Value {
        let mut resources = Vec::new();
        for resource in self.resources {
            let mut entry = json!({"name": resource.name, "singularName": resource.singular, "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": resource.verbs});
            if !resource.short_names.is_empty() {
                entry["shortNames"] = json!(resource.short_names);
            }
            resources.push(entry);
            for subresource in resource.subresources {
                let name = format!("{}/{}", resource.name, subresource.name);
                resources.push(json!({"name": name, "singularName": "", "namespaced": resource.namespaced, "kind": resource.kind,
                    "verbs": subresource.verbs}));
            }
        }
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": self.group_version(), "resources": resources})
    }

    fn entry(&self) -> Value {
        let version = json!({"groupVersion": self.group_version(), "version": self.version});
        json!({"name": self.name, "versions": [version], "preferredVersion": version})
    }

    fn group_version(&self) -> String {
        match self.name {
            "" => self.version.to_owned(),
            name => format!("{name}/{}", self.version),
        }
    }

    fn aggregated(&self) -> Value {
        let metadata = match self.name {
            "" => json!({}),
            name => json!({"name": name}),
        };
        let kind = |kind: &str| json!({"group": self.name, "version": self.version, "kind": kind});
        let resource = |resource: &ApiResource| {
            let subresource = |part: &ApiSubresource| json!({"subresource": part.name, "responseKind": kind(resource.kind), "verbs": part.verbs});
            let scope = if resource.namespaced {
                "Namespaced"
            } else {
                "Cluster"
            };
            let mut entry = json!({"resource": resource.name, "responseKind": kind(resource.kind), "scope": scope,
                "singularResource": resource.singular, "verbs": resource.verbs});
            if !resource.short_names.is_empty() {
                entry["shortNames"] = json!(resource.short_names);
            }
            if !resource.subresources.is_empty() {
                entry["subresources"] = resource.subresources.iter().map(subresource).collect();
            }
            entry
        };
        let resources: Vec<Value> = self.resources.iter().map(resource).collect();
        json!({"metadata": metadata,
            "versions": [{"version": self.version, "resources": resources, "freshness": "Current"}]})
    }
}

/// `/api` in the older form.
#[must_use]
pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "apiVersion": "v1", "versions": [CORE.version], "serverAddressByClientCIDRs": []})
}

/// `/apis` in the older form.
#[must_use]
pub fn group_list(groups: &[ApiGroup]) -> Value {
    let entries: Vec<Value> = groups.iter().map(ApiGroup::entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": entries})
}

/// `/apis` all at once; with the core group `/api`, which must take the same form for clients to use it.
#[must_use]
pub fn aggregated(groups: &[ApiGroup]) -> Value {
    let items: Vec<Value> = groups.iter().map(ApiGroup::aggregated).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

const fn review(name: &'static str, singular: &'static str, kind: &'static str) -> ApiResource {
    ApiResource {
        name,
        namespaced: false,
        singular,
        kind,
        verbs: &["create"],
        short_names: &[],
        subresources: &[],
    }
}

const fn namespaced(
    name: &'static str,
    singular: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
) -> ApiResource {
    ApiResource {
        short_names,
        ..rbac(name, singular, kind, true)
    }
}

/// A kind of role or of binding.
const fn rbac(
    name: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> ApiResource {
    ApiResource {
        name,
        namespaced,
        singular,
        kind,
        verbs: &ALL_VERBS,
        short_names: &[],
        subresources: &[],
    }
}

const ALL_VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// `Content-Type` of the aggregated form; clients look for all three parameters.
pub const AGGREGATED_CONTENT_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_form_lists_the_resource_and_its_two_subresources() {
        let list = CERTIFICATES.resource_list();
        assert_eq!(list["groupVersion"], "certificates.k8s.io/v1");
        assert_eq!(
            list["resources"],
            json!([
                {"name": "certificatesigningrequests", "singularName": "certificatesigningrequest", "namespaced": false,
                 "kind": "CertificateSigningRequest", "shortNames": ["csr"],
                 "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
                {"name": "certificatesigningrequests/approval", "singularName": "", "namespaced": false,
                 "kind": "CertificateSigningRequest", "verbs": ["get", "patch", "update"]},
                {"name": "certificatesigningrequests/status", "singularName": "", "namespaced": false,
                 "kind": "CertificateSigningRequest", "verbs": ["get", "patch", "update"]}
            ])
        );
        assert_eq!(
            CERTIFICATES.document()["preferredVersion"]["groupVersion"],
            "certificates.k8s.io/v1"
        );
        assert_eq!(
            group_list(&[CERTIFICATES, AUTHORIZATION])["groups"][1]["name"],
            "authorization.k8s.io"
        );
        assert_eq!(core_versions()["versions"], json!(["v1"]));
        assert_eq!(CORE.resource_list()["groupVersion"], "v1");
        assert_eq!(CORE.path(), "/api/v1");
    }

    #[test]
    fn aggregated_form_says_everything_at_once() {
        let document = aggregated(&[CERTIFICATES]);
        assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
        let version = &document["items"][0]["versions"][0];
        assert_eq!(
            (&version["version"], &version["freshness"]),
            (&json!("v1"), &json!("Current"))
        );
        let resource = &version["resources"][0];
        assert_eq!(resource["scope"], "Cluster");
        assert_eq!(resource["shortNames"], json!(["csr"]));
        assert_eq!(resource["subresources"][0]["subresource"], "approval");
        assert_eq!(
            resource["subresources"][1]["verbs"],
            json!(["get", "patch", "update"])
        );
        let roles = aggregated(&[RBAC]);
        let roles = &roles["items"][0]["versions"][0]["resources"];
        assert_eq!(roles[1]["scope"], "Cluster");
        assert_eq!(roles[3]["scope"], "Namespaced");
        assert_eq!(aggregated(&[])["items"], json!([]));
    }
}
