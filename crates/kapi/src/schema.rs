//! The fields of the resource, once: strict decoding, strategic merge patches and the OpenAPI document all read this.

/// Shape of a value.
#[derive(Debug)]
pub(crate) enum Shape {
    Text,
    Int32,
    Int64,
    Boolean,
    /// Base64 text in JSON.
    Bytes,
    Time,
    /// A time with six digits behind the point.
    MicroTime,
    /// Any JSON; not looked into.
    Opaque,
    Object(&'static Schema),
    /// An object that is replaced as a whole by who applies another.
    Atomic(&'static Schema),
    List(&'static Shape, Merge),
    Map(&'static Shape),
}

/// How lists of two writers come together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The newer list replaces the older.
    Atomic,
    /// Union of values.
    Set,
    /// Elements with an equal key merge, in patches too.
    Keyed(&'static str),
    /// Elements with an equal key merge in server-side apply; patches replace the list.
    KeyedOnApply(&'static str),
}

/// A named object type.
#[derive(Debug)]
pub struct Schema {
    /// Name in the OpenAPI document.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) fields: &'static [Field],
}

/// One field of an object type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    pub(crate) about: &'static str,
}

impl Schema {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

pub(crate) const fn optional(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        name,
        shape,
        required: false,
        about,
    }
}

pub(crate) const fn required(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        name,
        shape,
        required: true,
        about,
    }
}

pub(crate) const API_VERSION_ABOUT: &str = "Version of the schema in which this object is written.";
pub(crate) const KIND_ABOUT: &str = "Type of this object.";

pub(crate) static REQUEST: Schema = Schema {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequest",
    about: "A request for an X.509 certificate: who asks for what, how it was decided, and the certificate that came \
        of it. A signer acts on it once it is approved.",
    fields: &[
        optional("apiVersion", Shape::Text, API_VERSION_ABOUT),
        optional("kind", Shape::Text, KIND_ABOUT),
        optional(
            "metadata",
            Shape::Object(&OBJECT_META),
            "Name, identity, labels and annotations.",
        ),
        required(
            "spec",
            Shape::Object(&SPEC),
            "What is asked for. Fixed once the object is created.",
        ),
        optional(
            "status",
            Shape::Object(&STATUS),
            "Decision and result. Approval and denial are written through the approval subresource, the certificate \
             through the status subresource.",
        ),
    ],
};

static SPEC: Schema = Schema {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequestSpec",
    about: "What is asked for, and the identity of the sender as the server saw it.",
    fields: &[
        optional(
            "expirationSeconds",
            Shape::Int32,
            "Wished lifetime of the certificate in seconds, at least 600. The signer may issue for a different time; \
             look at the certificate.",
        ),
        optional(
            "extra",
            Shape::Map(&Shape::List(&Shape::Text, Merge::Atomic)),
            "Further facts about the sender, filled in by the server.",
        ),
        optional(
            "groups",
            Shape::List(&Shape::Text, Merge::Atomic),
            "Groups of the sender, filled in by the server.",
        ),
        required(
            "request",
            Shape::Bytes,
            "PKCS#10 message as PEM text with the label CERTIFICATE REQUEST.",
        ),
        required(
            "signerName",
            Shape::Text,
            "Signer that should act on the request, as domain/path. Well-known: kubernetes.io/kube-apiserver-client, \
             kubernetes.io/kube-apiserver-client-kubelet, kubernetes.io/kubelet-serving.",
        ),
        optional(
            "uid",
            Shape::Text,
            "Id of the sender, filled in by the server.",
        ),
        optional(
            "usages",
            Shape::List(&Shape::Text, Merge::Atomic),
            "Key usages the certificate should carry, for instance: digital signature, key encipherment, client auth, \
             server auth.",
        ),
        optional(
            "username",
            Shape::Text,
            "Name of the sender, filled in by the server.",
        ),
    ],
};

static STATUS: Schema = Schema {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequestStatus",
    about: "Decision about a request and what came of it.",
    fields: &[
        optional(
            "certificate",
            Shape::Bytes,
            "Issued certificate, then its intermediates, as PEM text. Written once by the signer; empty until then, \
             and for ever if the request is denied or failed.",
        ),
        optional(
            "conditions",
            Shape::List(&Shape::Object(&CONDITION), Merge::KeyedOnApply("type")),
            "Statements about the request; Approved, Denied and Failed are never removed.",
        ),
    ],
};

static CONDITION: Schema = Schema {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequestCondition",
    about: "One statement about a request.",
    fields: &[
        optional(
            "lastTransitionTime",
            Shape::Time,
            "When the status of this condition last changed.",
        ),
        optional(
            "lastUpdateTime",
            Shape::Time,
            "When this condition was last written.",
        ),
        optional("message", Shape::Text, "A sentence for people."),
        optional("reason", Shape::Text, "One word for programs."),
        required(
            "status",
            Shape::Text,
            "True, False or Unknown. Approved, Denied and Failed are always True.",
        ),
        required(
            "type",
            Shape::Text,
            "Approved, Denied, Failed, or a type of one's own.",
        ),
    ],
};

pub(crate) static OBJECT_META: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    about: "Metadata that every stored object has.",
    fields: &[
        optional(
            "annotations",
            Shape::Map(&Shape::Text),
            "Text for tools to keep with the object; selectors do not see it.",
        ),
        optional(
            "creationTimestamp",
            Shape::Time,
            "When the object was created, set by the server.",
        ),
        optional(
            "deletionGracePeriodSeconds",
            Shape::Int64,
            "Seconds left until removal, set by the server.",
        ),
        optional(
            "deletionTimestamp",
            Shape::Time,
            "When deletion was asked for, set by the server.",
        ),
        optional(
            "finalizers",
            Shape::List(&Shape::Text, Merge::Set),
            "Names that must be removed before the object is; each belongs to a component with work to finish.",
        ),
        optional(
            "generateName",
            Shape::Text,
            "Prefix for a name made by the server when name is empty.",
        ),
        optional(
            "generation",
            Shape::Int64,
            "Counts states of the specification.",
        ),
        optional(
            "labels",
            Shape::Map(&Shape::Text),
            "Keys and values that selectors match.",
        ),
        optional(
            "managedFields",
            Shape::List(&Shape::Object(&MANAGED_FIELDS), Merge::Atomic),
            "Which writer set which fields.",
        ),
        optional(
            "name",
            Shape::Text,
            "Name of the object. Cannot be changed.",
        ),
        optional(
            "namespace",
            Shape::Text,
            "Empty for resources without namespaces, such as this one.",
        ),
        optional(
            "ownerReferences",
            Shape::List(&Shape::Object(&OWNER_REFERENCE), Merge::Keyed("uid")),
            "Objects on which this one depends.",
        ),
        optional(
            "resourceVersion",
            Shape::Text,
            "Opaque version of this state, for watches and safe updates.",
        ),
        optional("selfLink", Shape::Text, "No longer used."),
        optional(
            "uid",
            Shape::Text,
            "Identity of the object in time and space, set by the server.",
        ),
    ],
};

static OWNER_REFERENCE: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    about: "Names an owning object.",
    fields: &[
        required("apiVersion", Shape::Text, "API version of the owner."),
        optional(
            "blockOwnerDeletion",
            Shape::Boolean,
            "Whether the owner, deleted in the foreground, waits for this object.",
        ),
        optional(
            "controller",
            Shape::Boolean,
            "Whether the owner is the managing controller.",
        ),
        required("kind", Shape::Text, "Kind of the owner."),
        required("name", Shape::Text, "Name of the owner."),
        required("uid", Shape::Text, "uid of the owner."),
    ],
};

static MANAGED_FIELDS: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
    about: "The fields one writer set.",
    fields: &[
        optional(
            "apiVersion",
            Shape::Text,
            "Version to which the set of fields refers.",
        ),
        optional("fieldsType", Shape::Text, "Format of the set: FieldsV1."),
        optional(
            "fieldsV1",
            Shape::Opaque,
            "The set of fields as a tree of their names.",
        ),
        optional("manager", Shape::Text, "Name of the writer."),
        optional("operation", Shape::Text, "Apply or Update."),
        optional(
            "subresource",
            Shape::Text,
            "Subresource through which the writer came.",
        ),
        optional("time", Shape::Time, "When the set last changed."),
    ],
};

pub(crate) static LIST_META: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    about: "Metadata of a list.",
    fields: &[
        optional("continue", Shape::Text, "Opaque token for the next page."),
        optional(
            "remainingItemCount",
            Shape::Int64,
            "How many objects follow on later pages.",
        ),
        optional(
            "resourceVersion",
            Shape::Text,
            "Version of the collection, to start a watch from.",
        ),
        optional("selfLink", Shape::Text, "No longer used."),
    ],
};

pub(crate) static DELETE_OPTIONS: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    about: "How to delete an object.",
    fields: &[
        optional("apiVersion", Shape::Text, API_VERSION_ABOUT),
        optional(
            "dryRun",
            Shape::List(&Shape::Text, Merge::Atomic),
            "All: do everything but store the result.",
        ),
        optional(
            "gracePeriodSeconds",
            Shape::Int64,
            "Without effect on this resource.",
        ),
        optional(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            Shape::Boolean,
            "Without effect on this server.",
        ),
        optional("kind", Shape::Text, KIND_ABOUT),
        optional(
            "orphanDependents",
            Shape::Boolean,
            "Replaced by propagationPolicy.",
        ),
        optional(
            "preconditions",
            Shape::Object(&PRECONDITIONS),
            "What must hold; otherwise the answer is 409 Conflict.",
        ),
        optional(
            "propagationPolicy",
            Shape::Text,
            "Orphan, Background or Foreground.",
        ),
    ],
};

static PRECONDITIONS: Schema = Schema {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions",
    about: "State an object must be in.",
    fields: &[
        optional("resourceVersion", Shape::Text, "The version it must have."),
        optional("uid", Shape::Text, "The uid it must have."),
    ],
};
