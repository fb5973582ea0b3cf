//! Policy files: the text of YAML documents on one side, rules on the other. Files are read by the caller.

mod kind;
mod needed;
mod rule;
mod shown;
mod web_address;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use kind::check_bundle;
pub use needed::{FileUse, NeededFile};

use crate::fields::{Field, Fields, PolicyFault, Reading, instead};
use crate::request::{SignerName, is_dns_label};
use crate::rules::Rule;
use crate::yaml::{self, Node, SourcePosition};

/// A file of policies, as its caller read it.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    /// The file, as people shall be told of it.
    pub path: PathBuf,
    /// Where relative paths in it begin; rules have absolute paths if this is one.
    pub folder: PathBuf,
    /// What it says.
    pub text: String,
}

impl PolicyFile {
    /// A file whose relative paths begin in its own folder.
    pub fn new(path: PathBuf, text: String) -> Self {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self { path, folder, text }
    }
}

/// All documents of some files, in the order in which their rules are asked.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    documents: Vec<PolicyDocument>,
}

/// One `ApprovalPolicy`.
#[derive(Clone, Debug)]
pub struct PolicyDocument {
    /// Its name.
    pub name: Arc<str>,
    /// The file it stands in.
    pub file: PathBuf,
    /// Its place among the others: lower is asked earlier.
    pub order: i64,
    /// The signers that its rules are for.
    pub signers: Arc<[SignerName]>,
    /// Where each of them stands in the file.
    pub signer_places: Vec<SourcePosition>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Where each of them stands in the file.
    pub places: Vec<SourcePosition>,
}

impl PolicySet {
    /// Every signer that a document names, with its place in the file.
    pub fn signers(&self) -> impl Iterator<Item = (&PolicyDocument, &SignerName, SourcePosition)> {
        self.documents.iter().flat_map(|document| {
            let places = document.signer_places.iter().copied();
            let signers = document.signers.iter().zip(places);
            signers.map(move |(signer, place)| (document, signer, place))
        })
    }

    /// Reads files.
    ///
    /// # Errors
    /// With all that is wrong, in the order of the files. A set is used as a whole or not at all.
    pub fn read(files: &[PolicyFile]) -> Result<Self, Vec<PolicyFault>> {
        let (mut documents, mut faults) = (Vec::new(), Vec::new());
        for file in files {
            let mut reading = Reading::new(&file.path, &file.folder, &file.text);
            match yaml::read_all(&file.text) {
                Ok(nodes) => {
                    if nodes.is_empty() {
                        let what =
                            "there is no policy in this file; `kind: ApprovalPolicy` begins one";
                        faults.push(PolicyFault::of_file(&file.path, what.to_owned()));
                    }
                    let read = nodes.iter().map(|node| document(node, &mut reading));
                    documents.extend(read.collect::<Vec<_>>());
                }
                Err(fault) => reading.complain(fault.place, "", fault.what),
            }
            reading.faults.sort_by_key(|fault| fault.place);
            faults.append(&mut reading.faults);
        }
        let read: Vec<Read> = documents.into_iter().flatten().collect();
        let set = Self::ordered(read, &mut faults);
        match faults.is_empty() {
            true => Ok(set),
            false => Err(faults),
        }
    }

    /// A set of the one document that stands inside another file.
    pub(crate) fn inline(node: &Node, reading: &mut Reading<'_>) -> Option<Self> {
        let before = reading.faults.len();
        let read = document(node, reading);
        let set = Self::ordered(read.into_iter().collect(), &mut reading.faults);
        (reading.faults.len() == before).then_some(set)
    }

    fn ordered(read: Vec<Read>, faults: &mut Vec<PolicyFault>) -> Self {
        for (index, one) in read.iter().enumerate() {
            if one.document.name.is_empty() {
                // That its name is missing or wrong has been said.
                continue;
            }
            let earlier = read.iter().take(index);
            let twin = earlier
                .into_iter()
                .find(|e| e.document.name == one.document.name);
            let Some(twin) = twin else { continue };
            let (name, place) = (&one.document.name, twin.place);
            faults.push(PolicyFault {
                file: one.document.file.clone(),
                place: one.place,
                key: "metadata.name".to_owned(),
                what: format!(
                    "{name} is also the name of the policy in {}, line {}: give one of them another",
                    twin.document.file.display(),
                    place.line
                ),
            });
        }
        let mut documents: Vec<PolicyDocument> = read.into_iter().map(|r| r.document).collect();
        documents.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        let rules: usize = documents.iter().map(|document| document.rules.len()).sum();
        if let Some(last) = documents.last().filter(|_| rules > MAX_RULES) {
            let what =
                format!("there are {rules} rules in all; {MAX_RULES} are enough for anybody");
            faults.push(PolicyFault::of_file(&last.file, what));
        }
        Self { documents }
    }

    /// The documents, in the order in which their rules are asked.
    pub fn documents(&self) -> &[PolicyDocument] {
        &self.documents
    }

    /// All rules, first to last.
    pub fn into_rules(self) -> Vec<Rule> {
        let documents = self.documents.into_iter();
        documents.flat_map(|document| document.rules).collect()
    }

    /// All rules with the document and the place where each stands, first to last.
    pub fn rules(&self) -> impl Iterator<Item = (&PolicyDocument, &Rule, SourcePosition)> {
        self.documents.iter().flat_map(|document| {
            let rules = document.rules.iter().zip(&document.places);
            rules.map(move |(rule, place)| (document, rule, *place))
        })
    }
}

/// A document and where its name stands.
struct Read {
    document: PolicyDocument,
    place: SourcePosition,
}

/// Reads one document; `None` only where not even its frame is there.
fn document(node: &Node, reading: &mut Reading<'_>) -> Option<Read> {
    let root = Field::root(node);
    let fields = root.any_fields(reading)?;
    if !frame(&fields, reading) {
        return None;
    }
    // Only now: the keys of another kind are not this one's mistakes.
    let fields = root.fields(&["apiVersion", "kind", "metadata", "spec"], reading)?;
    let named = fields
        .required("metadata", reading)
        .and_then(|metadata| metadata.fields(&["name", "labels", "annotations"], reading))
        .and_then(|metadata| metadata.required("name", reading));
    let place = named.as_ref().map_or(node.place, |field| field.node.place);
    let name = named.and_then(|field| document_name(&field, reading));
    let spec = fields.required("spec", reading)?;
    let spec = spec.fields(&["signers", "order", "rules"], reading)?;
    let order = spec.get("order").map(|field| field.whole(reading));
    let (signers, signer_places): (Vec<SignerName>, Vec<SourcePosition>) = spec
        .required("signers", reading)
        .map(|field| signers(&field, reading))
        .unwrap_or_default()
        .into_iter()
        .unzip();
    let signers: Arc<[SignerName]> = signers.into();
    let name: Arc<str> = name.unwrap_or_default().into();
    let (rules, places) = spec
        .required("rules", reading)
        .map(|field| rule::read_all(&field, &name, &signers, reading))
        .unwrap_or_default()
        .into_iter()
        .unzip();
    Some(Read {
        document: PolicyDocument {
            name,
            file: reading.file.to_owned(),
            order: order.flatten().unwrap_or(0),
            signers,
            signer_places,
            rules,
            places,
        },
        place,
    })
}

/// Whether it is a document of ours at all.
fn frame(fields: &Fields<'_>, reading: &mut Reading<'_>) -> bool {
    let mut is_ours = true;
    for (key, ours) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let said = fields.required(key, reading);
        let said = said.and_then(|field| Some((field.text(reading)?, field)));
        match said {
            Some((text, _)) if text == ours => {}
            Some((text, field)) => {
                let what = format!("{text:?} is not known here{}", instead(&text, &[ours]));
                field.complain(reading, what);
                is_ours = false;
            }
            None => is_ours = false,
        }
    }
    is_ours
}

fn document_name(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<String> {
    let text = field.text(reading)?;
    if text.len() > 253 || !text.split('.').all(is_dns_label) {
        let what = format!(
            "{text:?} is no name for a policy: use lower-case letters, digits, '-' and '.', for example web-servers"
        );
        field.complain(reading, what);
        return None;
    }
    Some(text)
}

fn signers(field: &Field<'_>, reading: &mut Reading<'_>) -> Vec<(SignerName, SourcePosition)> {
    let Some(items) = field.items(reading) else {
        return Vec::new();
    };
    if items.is_empty() {
        let what = "name at least one signer, for example example.com/web-server";
        field.complain(reading, what);
    }
    let mut signers: Vec<(SignerName, SourcePosition)> = Vec::new();
    for item in items {
        let Some(signer) = item.parsed(SignerName::parse, reading) else {
            continue;
        };
        if signers.iter().any(|(known, _)| *known == signer) {
            item.complain(reading, format!("{signer} stands here twice"));
        } else {
            signers.push((signer, item.node.place));
        }
    }
    signers
}

pub(crate) const API_VERSION: &str = "countersign.dev/v1alpha1";
const KIND: &str = "ApprovalPolicy";
/// Every request may have to be shown to each of them.
const MAX_RULES: usize = 1000;
