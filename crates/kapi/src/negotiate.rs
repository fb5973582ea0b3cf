//! Which format a body has and which form an answer should take, from `Content-Type` and `Accept`.

use crate::patch::PatchKind;

/// Format of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/json`, also assumed when the header is missing.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// What a patch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFormat {
    /// What should differ.
    Patch(PatchKind),
    /// What somebody wants of the object (server-side apply).
    Apply,
}

/// Format of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnswerFormat {
    /// For everybody who takes it.
    #[default]
    Json,
    /// For those who take nothing else.
    Protobuf,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// The object or list itself.
    Object,
    /// Rows for people (`meta.k8s.io/v1` `Table`).
    Table,
    /// Metadata only (`PartialObjectMetadata` or its list).
    Metadata,
}

/// Which forms an endpoint can answer with, besides the object itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Object, table and metadata: the collection, its objects, and `/status`.
    All,
    /// Object only: `/approval`, reviews, error bodies.
    ObjectOnly,
}

/// Form of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// Groups first, resources by further requests.
    Legacy,
    /// Everything at once (`apidiscovery.k8s.io/v2`).
    Aggregated,
}

/// A media type that cannot be read or written here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaFault {
    /// The body's type is unknown: 415.
    #[error(
        "the body of the request was in an unknown format - accepted media types include: {ACCEPTED_BODIES}"
    )]
    Body,
    /// The patch's type is unknown: 415.
    #[error("415: Unsupported Media Type")]
    Patch,
    /// No acceptable form is on offer: 406.
    #[error("only the following media types are accepted: {JSON}, {YAML}, {PROTOBUF}")]
    Answer,
}

/// Format of a body, from its `Content-Type`.
///
/// # Errors
/// The type is neither JSON, YAML nor Kubernetes protobuf.
pub fn body_format(content_type: Option<&str>) -> Result<BodyFormat, MediaFault> {
    match essence(content_type.unwrap_or_default()).as_str() {
        "" | JSON => Ok(BodyFormat::Json),
        YAML => Ok(BodyFormat::Yaml),
        PROTOBUF => Ok(BodyFormat::Protobuf),
        _ => Err(MediaFault::Body),
    }
}

/// What a patch is, from its `Content-Type`.
///
/// # Errors
/// The type names no patch that is offered.
pub fn patch_format(content_type: Option<&str>) -> Result<PatchFormat, MediaFault> {
    let patch = |kind| Ok(PatchFormat::Patch(kind));
    match essence(content_type.unwrap_or_default()).as_str() {
        "application/json-patch+json" => patch(PatchKind::Json),
        "application/merge-patch+json" => patch(PatchKind::Merge),
        "application/strategic-merge-patch+json" => patch(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchFormat::Apply),
        _ => Err(MediaFault::Patch),
    }
}

/// Form and format of an answer, from `Accept`: highest quality first, then order; clauses that cannot be served are
/// skipped. Protobuf is for those who insist: every usual client that prefers it takes JSON too. Tables have no other form
/// than JSON.
///
/// # Errors
/// Nothing acceptable is on offer.
pub fn answer_form(
    accept: Option<&str>,
    offer: Offer,
) -> Result<(AnswerForm, AnswerFormat), MediaFault> {
    let accept = accept.unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok((AnswerForm::Object, AnswerFormat::Json));
    }
    let form = |clause: &Clause| match (clause.kind.as_deref(), offer) {
        (None, _) => Some(AnswerForm::Object),
        (Some(_), Offer::ObjectOnly) => None,
        (Some(_), _) if clause.group != "meta.k8s.io" || clause.version != "v1" => None,
        (Some("Table"), Offer::All) => Some(AnswerForm::Table),
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Offer::All) => {
            Some(AnswerForm::Metadata)
        }
        (Some(_), Offer::All) => None,
    };
    let clauses = clauses(accept);
    let json = clauses.iter().filter(|clause| clause.is_json());
    let json = json.clone().find_map(form);
    let protobuf = || {
        let insisting = clauses.iter().filter(|clause| clause.media == PROTOBUF);
        insisting
            .filter_map(form)
            .find(|form| *form != AnswerForm::Table)
    };
    match json {
        Some(form) => Ok((form, AnswerFormat::Json)),
        None => protobuf()
            .map(|form| (form, AnswerFormat::Protobuf))
            .ok_or(MediaFault::Answer),
    }
}

/// Whether an answer that is JSON should say that it is YAML, which it is: who asks for that first, and for no Table.
#[must_use]
pub fn wants_yaml(accept: Option<&str>) -> bool {
    let clauses = clauses(accept.unwrap_or_default());
    let text = clauses.iter().find(|clause| clause.is_json());
    text.is_some_and(|clause| clause.media == YAML && clause.kind.is_none())
}

/// Form of a discovery document, from `Accept`. Never refuses: plain JSON is what every client falls back to.
#[must_use]
pub fn discovery_form(accept: Option<&str>) -> DiscoveryForm {
    let aggregated = |clause: &Clause| {
        clause.kind.as_deref() == Some("APIGroupDiscoveryList")
            && clause.group == "apidiscovery.k8s.io"
            && clause.version == "v2"
    };
    let clauses = clauses(accept.unwrap_or_default());
    let served = clauses
        .iter()
        .find(|clause| clause.is_json() && (clause.kind.is_none() || aggregated(clause)));
    if served.is_some_and(aggregated) {
        DiscoveryForm::Aggregated
    } else {
        DiscoveryForm::Legacy
    }
}

/// One alternative of an `Accept` header.
#[derive(Debug)]
struct Clause {
    media: String,
    /// The `as` parameter.
    kind: Option<String>,
    group: String,
    version: String,
    /// Thousandths.
    quality: u16,
}

impl Clause {
    fn is_json(&self) -> bool {
        matches!(self.media.as_str(), JSON | YAML | "application/*" | "*/*")
    }
}

fn clauses(accept: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = accept
        .split(',')
        .filter(|text| !text.trim().is_empty())
        .take(MAX_CLAUSES)
        .map(|text| {
            let mut clause = Clause {
                media: essence(text),
                kind: None,
                group: String::new(),
                version: String::new(),
                quality: 1000,
            };
            for parameter in text.split(';').skip(1) {
                let Some((name, value)) = parameter.split_once('=') else {
                    continue;
                };
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    "as" => clause.kind = Some(value.to_owned()),
                    "g" => value.clone_into(&mut clause.group),
                    "v" => value.clone_into(&mut clause.version),
                    "q" => clause.quality = quality(value),
                    _ => {}
                }
            }
            clause
        })
        .collect();
    clauses.retain(|clause| clause.quality > 0);
    clauses.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    clauses
}

/// A quality value (RFC 9110 section 12.4.2) in thousandths; nonsense counts as full quality.
fn quality(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse::<u16>()) {
        ("0", Ok(thousandths)) => thousandths,
        _ => 1000,
    }
}

/// A media type without its parameters, in lower case.
fn essence(text: &str) -> String {
    text.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Media type of JSON.
pub const JSON: &str = "application/json";
/// Media type of YAML.
pub const YAML: &str = "application/yaml";
/// Media type of protobuf bodies.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const ACCEPTED_BODIES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const MAX_CLAUSES: usize = 32; // kubectl sends three

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const OBJECT: Result<(AnswerForm, AnswerFormat), MediaFault> =
        Ok((AnswerForm::Object, AnswerFormat::Json));
    const TABLE: Result<(AnswerForm, AnswerFormat), MediaFault> =
        Ok((AnswerForm::Table, AnswerFormat::Json));
    const KUBECTL_GET: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
        application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    #[rstest]
    #[case::absent(None, Offer::All, OBJECT)]
    #[case::empty(Some(""), Offer::All, OBJECT)]
    #[case::kubectl_get(Some(KUBECTL_GET), Offer::All, TABLE)]
    #[case::no_table_here(Some(KUBECTL_GET), Offer::ObjectOnly, OBJECT)]
    #[case::typed_client(
        Some("application/vnd.kubernetes.protobuf,application/json"),
        Offer::All,
        OBJECT
    )]
    #[case::older_typed_client(Some("application/json, */*"), Offer::All, OBJECT)]
    #[case::old_table_only(
        Some("application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
        Offer::All,
        Err(MediaFault::Answer)
    )]
    #[case::metadata(
        Some(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        ),
        Offer::All,
        Ok((AnswerForm::Metadata, AnswerFormat::Json))
    )]
    #[case::protobuf_only(
        Some("application/vnd.kubernetes.protobuf"),
        Offer::All,
        Ok((AnswerForm::Object, AnswerFormat::Protobuf))
    )]
    #[case::protobuf_metadata_only(
        Some("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        Offer::All,
        Ok((AnswerForm::Metadata, AnswerFormat::Protobuf))
    )]
    #[case::protobuf_table_only(
        Some("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"),
        Offer::All,
        Err(MediaFault::Answer)
    )]
    #[case::protobuf_stream_only(
        Some("application/vnd.kubernetes.protobuf;stream=watch"),
        Offer::All,
        Ok((AnswerForm::Object, AnswerFormat::Protobuf))
    )]
    #[case::html(Some("text/html"), Offer::All, Err(MediaFault::Answer))]
    #[case::wildcard(Some("text/html, */*;q=0.1"), Offer::All, OBJECT)]
    #[case::quality_decides(
        Some("application/json;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9"),
        Offer::All,
        TABLE
    )]
    #[case::refused_by_quality(Some("application/json;q=0"), Offer::All, Err(MediaFault::Answer))]
    fn answers(
        #[case] accept: Option<&str>,
        #[case] offer: Offer,
        #[case] form: Result<(AnswerForm, AnswerFormat), MediaFault>,
    ) {
        assert_eq!(answer_form(accept, offer), form);
    }

    #[rstest]
    #[case::absent(None, Ok(BodyFormat::Json))]
    #[case::charset(Some("application/json; charset=utf-8"), Ok(BodyFormat::Json))]
    #[case::upper(Some("Application/JSON"), Ok(BodyFormat::Json))]
    #[case::protobuf(Some("application/vnd.kubernetes.protobuf"), Ok(BodyFormat::Protobuf))]
    #[case::cbor(Some("application/cbor"), Err(MediaFault::Body))]
    fn bodies(#[case] content_type: Option<&str>, #[case] format: Result<BodyFormat, MediaFault>) {
        assert_eq!(body_format(content_type), format);
    }

    #[rstest]
    #[case("application/json-patch+json", Ok(PatchFormat::Patch(PatchKind::Json)))]
    #[case(
        "application/merge-patch+json",
        Ok(PatchFormat::Patch(PatchKind::Merge))
    )]
    #[case(
        "application/strategic-merge-patch+json",
        Ok(PatchFormat::Patch(PatchKind::Strategic))
    )]
    #[case("application/apply-patch+yaml", Ok(PatchFormat::Apply))]
    #[case("application/json", Err(MediaFault::Patch))]
    fn patches(#[case] content_type: &str, #[case] format: Result<PatchFormat, MediaFault>) {
        assert_eq!(patch_format(Some(content_type)), format);
    }

    #[rstest]
    #[case::kubectl_1_27(
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
        DiscoveryForm::Legacy
    )]
    #[case::kubectl_1_32(
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
        DiscoveryForm::Aggregated
    )]
    #[case::plain("application/json", DiscoveryForm::Legacy)]
    #[case::any("*/*", DiscoveryForm::Legacy)]
    #[case::nonsense("text/html", DiscoveryForm::Legacy)]
    fn discovery(#[case] accept: &str, #[case] form: DiscoveryForm) {
        assert_eq!(discovery_form(Some(accept)), form);
    }
}
