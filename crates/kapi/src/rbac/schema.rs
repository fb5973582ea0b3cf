//! The fields of the four kinds, for strict decoding, strategic merge patches and the OpenAPI document.

use crate::schema::{
    API_VERSION_ABOUT, Field, KIND_ABOUT, Merge, OBJECT_META, Schema, Shape, optional, required,
};

pub(crate) static ROLE: Schema = Schema {
    name: "io.k8s.api.rbac.v1.Role",
    about: "What may be done in one namespace.",
    fields: &[API_VERSION, KIND, METADATA, RULES],
};

pub(crate) static CLUSTER_ROLE: Schema = Schema {
    name: "io.k8s.api.rbac.v1.ClusterRole",
    about: "What may be done everywhere, or in the namespace of a RoleBinding that refers to it.",
    fields: &[
        optional(
            "aggregationRule",
            Shape::Object(&AGGREGATION_RULE),
            "Which other roles make up this one. Its rules are then filled in by the server.",
        ),
        API_VERSION,
        KIND,
        METADATA,
        RULES,
    ],
};

pub(crate) static ROLE_BINDING: Schema = Schema {
    name: "io.k8s.api.rbac.v1.RoleBinding",
    about: "Gives a role to subjects in one namespace.",
    fields: &[API_VERSION, KIND, METADATA, ROLE_REF, SUBJECTS],
};

pub(crate) static CLUSTER_ROLE_BINDING: Schema = Schema {
    name: "io.k8s.api.rbac.v1.ClusterRoleBinding",
    about: "Gives a ClusterRole to subjects everywhere.",
    fields: &[API_VERSION, KIND, METADATA, ROLE_REF, SUBJECTS],
};

const API_VERSION: Field = optional("apiVersion", Shape::Text, API_VERSION_ABOUT);
const KIND: Field = optional("kind", Shape::Text, KIND_ABOUT);
const METADATA: Field = optional(
    "metadata",
    Shape::Object(&OBJECT_META),
    "Name, identity, labels and annotations.",
);
const RULES: Field = optional(
    "rules",
    Shape::List(&A_RULE, Merge::Atomic),
    "What is allowed.",
);
const SUBJECTS: Field = optional(
    "subjects",
    Shape::List(&A_SUBJECT, Merge::Atomic),
    "Who gets the role.",
);
const ROLE_REF: Field = required(
    "roleRef",
    Shape::Atomic(&ROLE_REF_SCHEMA),
    "The role that is given. Fixed once the object is created: delete the binding and make another to change it.",
);
static A_RULE: Shape = Shape::Object(&POLICY_RULE);
static A_SUBJECT: Shape = Shape::Object(&SUBJECT);
const TEXTS: Shape = Shape::List(&Shape::Text, Merge::Atomic);

static POLICY_RULE: Schema = Schema {
    name: "io.k8s.api.rbac.v1.PolicyRule",
    about: "One thing that is allowed: verbs on resources, or on paths that are no resources.",
    fields: &[
        optional(
            "apiGroups",
            TEXTS,
            "API groups of the resources; \"\" is the core group, * all.",
        ),
        optional(
            "nonResourceURLs",
            TEXTS,
            "Paths; a trailing * stands for any rest. Only in ClusterRoles that a ClusterRoleBinding gives.",
        ),
        optional(
            "resourceNames",
            TEXTS,
            "Names of objects, compared letter by letter; none means all.",
        ),
        optional(
            "resources",
            TEXTS,
            "Resources, resource/subresource, */subresource, or * for all.",
        ),
        required("verbs", TEXTS, "What may be done; * is everything."),
    ],
};

static SUBJECT: Schema = Schema {
    name: "io.k8s.api.rbac.v1.Subject",
    about: "A user, a group or a service account.",
    fields: &[
        optional(
            "apiGroup",
            Shape::Text,
            "rbac.authorization.k8s.io for users and groups, empty for service accounts.",
        ),
        required("kind", Shape::Text, "User, Group or ServiceAccount."),
        required("name", Shape::Text, "Name of the subject."),
        optional("namespace", Shape::Text, "Namespace of a service account."),
    ],
};

static ROLE_REF_SCHEMA: Schema = Schema {
    name: "io.k8s.api.rbac.v1.RoleRef",
    about: "Names a role.",
    fields: &[
        // Defaulted, so that patches and bodies without it are read.
        optional("apiGroup", Shape::Text, "Always rbac.authorization.k8s.io."),
        required("kind", Shape::Text, "Role or ClusterRole."),
        required("name", Shape::Text, "Name of the role."),
    ],
};

static AGGREGATION_RULE: Schema = Schema {
    name: "io.k8s.api.rbac.v1.AggregationRule",
    about: "Says which roles make up an aggregated one.",
    fields: &[optional(
        "clusterRoleSelectors",
        Shape::List(&Shape::Object(&LABEL_SELECTOR), Merge::Atomic),
        "Roles that any of these select are part of this one.",
    )],
};

static LABEL_SELECTOR: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    about: "Selects objects by their labels; all requirements must hold, none selects all.",
    fields: &[
        optional(
            "matchExpressions",
            Shape::List(&Shape::Object(&SELECTOR_REQUIREMENT), Merge::Atomic),
            "Further requirements.",
        ),
        optional(
            "matchLabels",
            Shape::Map(&Shape::Text),
            "Labels with exactly these values.",
        ),
    ],
};

static SELECTOR_REQUIREMENT: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
    about: "One requirement on a label.",
    fields: &[
        required("key", Shape::Text, "The label."),
        required(
            "operator",
            Shape::Text,
            "In, NotIn, Exists or DoesNotExist.",
        ),
        optional("values", TEXTS, "Values for In and NotIn."),
    ],
};
