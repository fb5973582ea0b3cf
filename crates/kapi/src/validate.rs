//! Which objects may be stored. Every broken rule is collected; one answer lists them all.
//!
//! What the PKCS#10 message and the certificate say is judged by the caller's checks: this crate reads no DER.

use std::collections::BTreeSet;

use crate::Endpoint;
use crate::field::{BadValue, FieldError, FieldErrors};
use crate::meta::ObjectMeta;
use crate::model::{APPROVED, CertificateSigningRequest, Condition, DENIED, FAILED, USAGES};
use crate::name;
use crate::options;

/// Judgement of bytes this crate does not understand; the text of a refusal becomes the error's detail.
pub type Check<'a> = &'a dyn Fn(&[u8]) -> Result<(), String>;

/// The judgements an update needs.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// Whether the PEM text holds one well-signed PKCS#10 message.
    pub request: Check<'a>,
    /// Whether the PEM text is a chain of certificates: at least one block, no other label, no headers.
    pub certificate: Check<'a>,
}

/// Checks a new object after [`crate::update::prepare_create`] and name generation; empty = may be stored.
#[must_use]
pub fn create(object: &CertificateSigningRequest, check_request: Check<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    let unused = |_: &[u8]| Ok(());
    let checks = Checks {
        request: check_request,
        certificate: &unused,
    };
    whole(object, Tolerance::default(), &checks, &mut errors);
    if errors.is_empty() {
        // Only then do real servers look at the name as a path segment.
        let meta = &object.metadata;
        for (field, name) in [
            ("metadata.generateName", &meta.generate_name),
            ("metadata.name", &meta.name),
        ] {
            for fault in name::path_segment_faults(name) {
                errors.push(FieldError::invalid(field, name.as_str(), fault));
            }
        }
    }
    errors.into_vec()
}

/// Checks an update after [`crate::update::prepare`]; empty = may be stored. Rules that the stored object already breaks
/// are skipped where the API promises so, lest such an object could never be approved or labelled.
#[must_use]
pub fn update(
    endpoint: Endpoint,
    old: &CertificateSigningRequest,
    new: &CertificateSigningRequest,
    checks: &Checks<'_>,
) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    whole(new, Tolerance::of(old, new, checks), checks, &mut errors);
    condition_changes(
        endpoint,
        &old.status.conditions,
        &new.status.conditions,
        &mut errors,
    );
    if old.status.certificate != new.status.certificate {
        if endpoint != Endpoint::Status {
            errors.push(FieldError::forbidden(
                CERTIFICATE,
                "updates may not set certificate content",
            ));
        } else if !old.status.certificate.is_empty() {
            errors.push(FieldError::forbidden(
                CERTIFICATE,
                "updates may not modify existing certificate content",
            ));
        }
    }
    if let Some(error) = metadata_update(&old.metadata, &new.metadata) {
        errors.push(error);
    }
    errors.into_vec()
}

/// Checks what changes in the metadata of an object of any kind: who waits for its deletion is settled when that begins.
#[must_use]
pub fn metadata_update(old: &ObjectMeta, new: &ObjectMeta) -> Option<FieldError> {
    old.deletion_timestamp?;
    let known: BTreeSet<&str> = old.finalizers.iter().map(String::as_str).collect();
    let added: BTreeSet<&str> = new.finalizers.iter().map(String::as_str).collect();
    let extra: Vec<String> = added
        .difference(&known)
        .map(|name| crate::field::go_quote(name))
        .collect();
    if extra.is_empty() {
        return None;
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        extra.join(", ")
    );
    Some(FieldError::forbidden("metadata.finalizers", detail))
}

/// Rules that are not applied, because the stored object breaks them already.
#[derive(Debug, Clone, Copy, Default)]
struct Tolerance {
    legacy_signer: bool,
    unknown_usages: bool,
    duplicate_usages: bool,
    approved_and_denied: bool,
    duplicate_types: bool,
    empty_types: bool,
    certificate: bool,
}

impl Tolerance {
    fn of(
        old: &CertificateSigningRequest,
        new: &CertificateSigningRequest,
        checks: &Checks<'_>,
    ) -> Self {
        let (usages, conditions) = (&old.spec.usages, &old.status.conditions);
        let (stored, written) = (&old.status.certificate, &new.status.certificate);
        Self {
            legacy_signer: old.spec.signer_name == LEGACY_SIGNER,
            unknown_usages: usages.iter().any(|usage| !is_known(usage)),
            duplicate_usages: has_duplicates(usages.iter().map(String::as_str)),
            approved_and_denied: old.has_condition(APPROVED) && old.has_condition(DENIED),
            duplicate_types: has_duplicates(
                conditions.iter().map(|condition| condition.kind.as_str()),
            ),
            empty_types: conditions.iter().any(|condition| condition.kind.is_empty()),
            certificate: stored == written
                || !stored.is_empty() && (checks.certificate)(stored).is_err(),
        }
    }
}

fn whole(
    object: &CertificateSigningRequest,
    skip: Tolerance,
    checks: &Checks<'_>,
    errors: &mut FieldErrors,
) {
    metadata(&object.metadata, errors);
    let spec = &object.spec;
    if let Err(text) = (checks.request)(&spec.request) {
        errors.push(FieldError::invalid(
            "spec.request",
            spec.request.as_slice(),
            text,
        ));
    }
    usages(&spec.usages, skip, errors);
    if spec.signer_name == LEGACY_SIGNER {
        if !skip.legacy_signer {
            let detail = "the legacy signerName is not allowed via this API version";
            errors.push(FieldError::invalid(
                "spec.signerName",
                LEGACY_SIGNER,
                detail,
            ));
        }
    } else {
        for fault in name::signer_name_faults(&spec.signer_name) {
            errors.push(fault.at("spec.signerName"));
        }
    }
    if let Some(seconds) = spec
        .expiration_seconds
        .filter(|seconds| *seconds < MIN_EXPIRATION_SECONDS)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            i64::from(seconds),
            detail,
        ));
    }
    conditions(&object.status.conditions, skip, errors);
    if !skip.certificate
        && !object.status.certificate.is_empty()
        && let Err(text) = (checks.certificate)(&object.status.certificate)
    {
        errors.push(FieldError::invalid(CERTIFICATE, "<certificate data>", text));
    }
}

fn usages(usages: &[String], skip: Tolerance, errors: &mut FieldErrors) {
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    let field = |index: usize| format!("spec.usages[{index}]");
    if !skip.unknown_usages {
        for (index, usage) in usages
            .iter()
            .enumerate()
            .filter(|(_, usage)| !is_known(usage))
        {
            errors.push(FieldError::not_supported(
                field(index),
                usage.as_str(),
                &USAGES,
            ));
            if errors.is_full() {
                return;
            }
        }
    }
    if !skip.duplicate_usages {
        let mut seen = BTreeSet::new();
        for (index, usage) in usages.iter().enumerate() {
            if !seen.insert(usage) {
                errors.push(FieldError::duplicate(field(index), usage.as_str()));
            }
        }
    }
}

fn conditions(conditions: &[Condition], skip: Tolerance, errors: &mut FieldErrors) {
    let (mut approved, mut denied) = (false, false);
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        if errors.is_full() {
            return;
        }
        let kind = condition.kind.as_str();
        let field = |name: &str| format!("{CONDITIONS}[{index}].{name}");
        if kind.is_empty() && !skip.empty_types {
            errors.push(FieldError::required(field("type"), ""));
        }
        let supported: &[&str] = if [APPROVED, DENIED, FAILED].contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if condition.status.is_empty() {
            errors.push(FieldError::required(field("status"), ""));
        } else if !supported.contains(&condition.status.as_str()) {
            errors.push(FieldError::not_supported(
                field("status"),
                condition.status.as_str(),
                supported,
            ));
        }
        approved |= kind == APPROVED;
        denied |= kind == DENIED;
        if approved && denied && [APPROVED, DENIED].contains(&kind) && !skip.approved_and_denied {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(CONDITIONS, kind, detail));
        }
        if !seen.insert(kind) && !skip.duplicate_types {
            errors.push(FieldError::duplicate(field("type"), kind));
        }
    }
}

/// Decisions are never taken back, and only `/approval` makes them.
fn condition_changes(
    endpoint: Endpoint,
    old: &[Condition],
    new: &[Condition],
    errors: &mut FieldErrors,
) {
    fn of_kind<'a>(conditions: &'a [Condition], kind: &str) -> Vec<&'a Condition> {
        let is_of_kind = |condition: &&Condition| condition.kind == kind;
        conditions.iter().filter(is_of_kind).collect()
    }
    let mut refuse = |deed: &str, kind: &str| {
        let detail = format!("updates may not {deed} a condition of type \"{kind}\"");
        errors.push(FieldError::forbidden(CONDITIONS, detail));
    };
    for kind in [APPROVED, DENIED, FAILED] {
        if of_kind(new, kind).len() < of_kind(old, kind).len() {
            refuse("remove", kind);
        }
    }
    if endpoint == Endpoint::Approval {
        return;
    }
    for kind in [APPROVED, DENIED] {
        let (old, new) = (of_kind(old, kind), of_kind(new, kind));
        if new.len() > old.len() {
            refuse("add", kind);
        } else if new.len() == old.len() && new != old {
            refuse("modify", kind);
        }
    }
}

/// Rules for the metadata of an object in a namespace, whose name follows a rule of its own.
pub(crate) fn namespaced(
    meta: &ObjectMeta,
    name_faults: fn(&str) -> Vec<String>,
    errors: &mut FieldErrors,
) {
    // What the server puts behind it makes a name of a prefix that ends in a dash.
    let prefix = match meta.generate_name.strip_suffix('-') {
        Some(prefix) => format!("{prefix}a"),
        None => meta.generate_name.clone(),
    };
    for (field, name, checked) in [
        ("metadata.generateName", &meta.generate_name, &prefix),
        ("metadata.name", &meta.name, &meta.name),
    ] {
        if name.is_empty() {
            continue;
        }
        for fault in name_faults(checked) {
            errors.push(FieldError::invalid(field, name.as_str(), fault));
        }
    }
    let (field, namespace) = ("metadata.namespace", meta.namespace.as_str());
    if namespace.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        for fault in name::dns_label_faults(namespace) {
            errors.push(FieldError::invalid(field, namespace, fault));
        }
    }
    metadata(meta, errors);
}

/// Rules for the metadata of any object.
pub(crate) fn metadata(meta: &ObjectMeta, errors: &mut FieldErrors) {
    if meta.name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
    if meta.generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            "metadata.generation",
            meta.generation,
            detail,
        ));
    }
    for (key, value) in &meta.labels {
        for fault in name::qualified_name_faults(key) {
            errors.push(FieldError::invalid("metadata.labels", key.as_str(), fault));
        }
        for fault in name::label_value_faults(value) {
            errors.push(FieldError::invalid(
                "metadata.labels",
                value.as_str(),
                fault,
            ));
        }
    }
    for key in meta.annotations.keys() {
        for fault in name::qualified_name_faults(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                key.as_str(),
                fault,
            ));
        }
    }
    let size: usize = meta
        .annotations
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if size > MAX_ANNOTATION_BYTES {
        errors.push(FieldError::too_long(
            "metadata.annotations",
            MAX_ANNOTATION_BYTES,
        ));
    }
    owners(meta, errors);
    finalizers(meta, errors);
    managed_fields(meta, errors);
}

fn owners(meta: &ObjectMeta, errors: &mut FieldErrors) {
    let field = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in &meta.owner_references {
        let version = owner.api_version.rsplit('/').next().unwrap_or_default();
        if version.is_empty() || owner.api_version.matches('/').count() > 1 {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(
                format!("{field}.apiVersion"),
                owner.api_version.as_str(),
                detail,
            ));
        }
        for (name, value) in [
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ] {
            if value.is_empty() {
                errors.push(FieldError::invalid(
                    format!("{field}.{name}"),
                    "",
                    "must not be empty",
                ));
            }
        }
        let shown = || BadValue::Json(serde_json::to_value(owner).unwrap_or_default());
        if owner.api_version == "v1" && owner.kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(field, shown(), detail));
        }
        if owner.controller == Some(true) {
            let current = format!("{}/{}", owner.kind, owner.name);
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                );
                errors.push(FieldError::invalid(field, shown(), detail));
            } else {
                controller = Some(current);
            }
        }
    }
}

fn finalizers(meta: &ObjectMeta, errors: &mut FieldErrors) {
    let field = "metadata.finalizers";
    for finalizer in &meta.finalizers {
        for fault in name::qualified_name_faults(finalizer) {
            errors.push(FieldError::invalid(field, finalizer.as_str(), fault));
        }
    }
    let has = |name: &str| meta.finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(
            field,
            serde_json::json!(meta.finalizers),
            detail,
        ));
    }
    for (index, finalizer) in meta.finalizers.iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            let field = format!("{field}[{index}]");
            errors.push(FieldError::invalid(field, finalizer.as_str(), detail));
        }
    }
}

fn managed_fields(meta: &ObjectMeta, errors: &mut FieldErrors) {
    for (index, entry) in meta.managed_fields.iter().enumerate() {
        let field = |name: &str| format!("metadata.managedFields[{index}].{name}");
        if entry.operation != "Apply" && entry.operation != "Update" {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(
                field("operation"),
                entry.operation.as_str(),
                detail,
            ));
        }
        if !entry.fields_type.is_empty() && entry.fields_type != "FieldsV1" {
            let detail = "must be `FieldsV1`";
            errors.push(FieldError::invalid(
                field("fieldsType"),
                entry.fields_type.as_str(),
                detail,
            ));
        }
        options::check_field_manager(&entry.manager, &field("manager"), errors);
        if entry.subresource.len() > MAX_SUBRESOURCE_BYTES {
            errors.push(FieldError::too_long(
                field("subresource"),
                MAX_SUBRESOURCE_BYTES,
            ));
        }
    }
}

fn is_known(usage: &str) -> bool {
    USAGES.binary_search(&usage).is_ok()
}

fn has_duplicates<'a>(items: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().any(|item| !seen.insert(item))
}

/// A signer of old that no new object may name.
pub const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// Those that Kubernetes itself knows by names without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
const MIN_EXPIRATION_SECONDS: i32 = 600;
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;
const MAX_SUBRESOURCE_BYTES: usize = 256;
const CONDITIONS: &str = "status.conditions";
const CERTIFICATE: &str = "status.certificate";
