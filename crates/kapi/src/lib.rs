//! The Kubernetes `CertificateSigningRequest` (`certificates.k8s.io/v1`) as pure data.
//!
//! Everything a server or a controller must know about the resource that is not input or output: its fields, JSON and
//! protobuf forms, defaults, validation, updates, patches, selectors, tables, error bodies, discovery and OpenAPI
//! documents. Time, random bytes and the judgement of PKCS#10 messages and certificates come in as arguments, so every
//! function gives equal results for equal arguments.
//!
//! The order of a create: [`decode::object`], [`update::prepare_create`], [`name::generated`] if asked for,
//! [`validate::create`]. The order of an update: decode or [`patch::apply`], preconditions ([`update::preconditions`]),
//! [`update::prepare`], [`validate::update`].

pub mod coordination;
pub mod decode;
pub mod delete;
pub mod discovery;
pub mod encode;
pub mod event;
pub mod field;
pub mod kind;
pub mod list;
pub mod meta;
pub mod model;
pub mod name;
pub mod negotiate;
pub mod openapi;
pub mod options;
pub mod ownership;
pub mod patch;
pub mod protobuf;
pub mod query;
pub mod rbac;
pub mod review;
mod schema;
pub mod selector;
pub mod status;
pub mod table;
pub mod time;
pub mod update;
pub mod validate;
mod wire;

pub use decode::{DecodeFault, Decoded};
pub use field::{FieldError, FieldErrorKind};
pub use kind::Kind;
pub use meta::{ObjectMeta, OwnerReference};
pub use model::{CertificateSigningRequest, Condition, RequestStatus, Spec, UserInfo};
pub use status::{Resource, Status};
pub use time::Time;
pub use update::Endpoint;

/// API group of the resource.
pub const GROUP: &str = "certificates.k8s.io";
/// The one version served for it.
pub const VERSION: &str = "v1";
/// Group and version as they stand in `apiVersion`.
pub const API_VERSION: &str = "certificates.k8s.io/v1";
/// Kind of one object.
pub const KIND: &str = "CertificateSigningRequest";
/// Kind of a list of objects.
pub const LIST_KIND: &str = "CertificateSigningRequestList";
/// Plural name, as in paths and in RBAC rules.
pub const RESOURCE: &str = "certificatesigningrequests";

/// Largest request body the API takes; above it real servers answer 413.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// Values (JSON nodes, protobuf list and map entries) one body may hold. A real object has a few hundred; the limit keeps
/// a body of empty elements from growing a hundredfold in memory.
pub const MAX_BODY_VALUES: usize = 100_000;
