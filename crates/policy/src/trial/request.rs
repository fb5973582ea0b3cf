//! The request of a case, as it is written.

use std::collections::BTreeMap;
use std::net::IpAddr;

use countersign_pki::{
    AltName, Attribute, CheckedCsr, CsrLimits, Extension, Oid, RawValue, StringKind,
    SubjectBuilder, UnixTime, ext, oid,
};
use serde_json::Value;

use crate::facts::{LedgerCertificate, LedgerFacts, LedgerRevocation, PodFacts};
use crate::fields::{Field, Fields, Reading};
use crate::request::{Identity, Requester, SignerName, Wishes};
use crate::trial::{Usual, pod};
use crate::yaml::Content;

/// A request, and the state of the object that carries it.
#[derive(Clone, Debug)]
pub struct TrialRequest {
    /// Its name at the door; `None`: that in the message.
    pub name: Option<String>,
    /// Its door.
    pub door: String,
    /// Its signer.
    pub signer: SignerName,
    /// Its sender.
    pub requester: Requester,
    /// What is wished for beside the message.
    pub wishes: Wishes,
    /// When it came; `None`: now.
    pub created: Option<UnixTime>,
    /// Whether it asks to renew.
    pub renewal: bool,
    /// The pod that it is for.
    pub pod: Option<PodFacts>,
    /// What the ledger knows of its name.
    pub ledger: LedgerFacts,
    /// The PKCS#10 message.
    pub csr: WrittenCsr,
    /// The object's conditions so far.
    pub conditions: Value,
    /// The certificate that the object has so far.
    pub certificate: Option<String>,
    /// Whether the object is being deleted.
    pub deleting: bool,
}

/// A message as text, or what shall be in it.
#[derive(Clone, Debug)]
pub enum WrittenCsr {
    /// PEM, whatever is in it.
    Pem(String),
    /// Its parts.
    Fields(Box<CsrFields>),
}

/// The parts of a message that a throw-away key shall sign.
#[derive(Clone, Debug)]
pub struct CsrFields {
    /// The subject.
    pub subject_der: Vec<u8>,
    /// The extensions.
    pub extensions: Vec<Extension>,
    /// Further attributes.
    pub attributes: Vec<Attribute>,
}

impl CsrFields {
    fn nameless() -> Self {
        Self {
            subject_der: SubjectBuilder::new().build(),
            extensions: Vec::new(),
            attributes: Vec::new(),
        }
    }
}

/// Makes a message of parts, as DER, by signing them; says why if it cannot.
pub type Seal<'a> = &'a dyn Fn(&CsrFields) -> Result<Vec<u8>, String>;

impl WrittenCsr {
    /// The message, read as every door reads it, or as one that is only judged. The outer error is the test file's, the
    /// inner one the message's.
    pub(super) fn checked(
        &self,
        is_judged: bool,
        seal: Seal<'_>,
    ) -> Result<Result<CheckedCsr, countersign_pki::CsrFault>, String> {
        let limits = &CsrLimits::STANDARD;
        Ok(match (self, is_judged) {
            (Self::Pem(pem), true) => CheckedCsr::judged_pem(pem.as_bytes()),
            (Self::Pem(pem), false) => CheckedCsr::from_pem(pem.as_bytes(), limits),
            (Self::Fields(fields), true) => CheckedCsr::judged(&seal(fields)?),
            (Self::Fields(fields), false) => CheckedCsr::check(&seal(fields)?, limits),
        })
    }
}

impl TrialRequest {
    pub(super) fn read(
        field: &Field<'_>,
        usual: &Usual,
        reading: &mut Reading<'_>,
    ) -> Option<Self> {
        let fields = field.fields(&KEYS, reading)?;
        let text = |key: &str, reading: &mut Reading<'_>| fields.get(key)?.text(reading);
        let signer = match fields.get("signer") {
            Some(field) => field.parsed(SignerName::parse, reading),
            None => Some(usual.signer.clone()),
        };
        let pod_field = fields.get("pod");
        let pod = pod_field.and_then(|field| pod::pod(&field, reading));
        let requester = match &pod {
            Some(pod) => {
                pod::refuse_other_senders(&fields, reading);
                Some(pod.requester())
            }
            None => requester(&fields, reading),
        };
        let certname = text("certname", reading);
        let door = text("door", reading).unwrap_or_else(|| {
            let is_usual = signer.as_ref() == Some(&usual.signer);
            match (&pod, is_usual) {
                (Some(_), _) => usual.pod_door,
                (None, true) => usual.door,
                (None, false) => usual.other_door,
            }
            .to_owned()
        });
        let usages = fields.get("usages").and_then(|f| f.texts(reading));
        let expiration = fields.get("expirationSeconds");
        let renewal = fields.get("renewal").and_then(|f| f.truth(reading));
        let deleting = fields.get("deleting").and_then(|f| f.truth(reading));
        let ledger = match fields.get("ledger") {
            Some(field) => ledger(&field, reading),
            None => LedgerFacts::default(),
        };
        let csr = match (&pod, fields.get("csr")) {
            // The message of a pod has a key and nothing else.
            (Some(_), None) => Some(WrittenCsr::Fields(Box::new(CsrFields::nameless()))),
            (_, Some(field)) => csr_of(&field, reading),
            // What is wrong with the pod has been told.
            (None, None) if fields.get("pod").is_some() => None,
            (None, None) => {
                fields.required("csr", reading);
                None
            }
        };
        Some(Self {
            name: text("name", reading).or(certname),
            door,
            signer: signer?,
            requester: requester?,
            wishes: Wishes {
                usages: usages.unwrap_or_default(),
                expiration_seconds: expiration.and_then(|field| field.count(reading)),
            },
            created: fields.get("created").and_then(|f| f.time(reading)),
            renewal: renewal.unwrap_or(false),
            pod,
            ledger,
            csr: csr?,
            conditions: fields
                .get("conditions")
                .map_or(Value::Null, |field| field.node.to_json()),
            certificate: text("certificate", reading),
            deleting: deleting.unwrap_or(false),
        })
    }
}

fn requester(fields: &Fields<'_>, reading: &mut Reading<'_>) -> Option<Requester> {
    let source = fields.get("sourceAddress");
    let source = source.and_then(|field| field.parsed(str::parse::<IpAddr>, reading));
    let text = |key: &str, reading: &mut Reading<'_>| fields.get(key)?.text(reading);
    let identity = match (text("username", reading), text("certname", reading)) {
        (Some(_), Some(_)) => {
            let what = "a sender is either a user or the holder of a certificate: leave username or certname out";
            fields.complain("certname", reading, what);
            return None;
        }
        (Some(username), None) => Identity::User {
            username,
            groups: fields
                .get("groups")
                .and_then(|field| field.texts(reading))
                .unwrap_or_default(),
            uid: text("uid", reading).unwrap_or_default(),
            extra: extra(fields, reading),
        },
        (None, certname) => {
            let of_users = ["groups", "uid", "extra"];
            for key in of_users.into_iter().filter(|key| fields.get(key).is_some()) {
                fields.complain(key, reading, "belongs to a user: add username");
            }
            match certname {
                Some(certname) => Identity::Certname { certname },
                None => Identity::Anonymous,
            }
        }
    };
    Some(Requester { identity, source })
}

fn extra(fields: &Fields<'_>, reading: &mut Reading<'_>) -> BTreeMap<String, Vec<String>> {
    let fields = fields.get("extra").and_then(|f| f.any_fields(reading));
    let Some(fields) = fields else {
        return BTreeMap::new();
    };
    let pairs = fields.all().filter_map(|(key, field)| {
        let values = field.one_or_more(reading)?;
        let texts = values.iter().filter_map(|value| value.text(reading));
        Some((key.to_owned(), texts.collect()))
    });
    pairs.collect()
}

/// As expressions see it.
fn ledger(field: &Field<'_>, reading: &mut Reading<'_>) -> LedgerFacts {
    let Some(fields) = field.fields(&["certificate", "revoked"], reading) else {
        return LedgerFacts::default();
    };
    let certificate = fields.get("certificate").and_then(|field| {
        let fields = field.fields(&["serial", "notAfter", "sameKey"], reading)?;
        let same_key = fields.get("sameKey").map(|field| field.truth(reading));
        Some(LedgerCertificate {
            serial: fields.required("serial", reading)?.text(reading)?,
            not_after: fields.required("notAfter", reading)?.time(reading)?,
            same_key: same_key.unwrap_or(Some(false))?,
        })
    });
    let revoked = fields.get("revoked").and_then(|field| {
        let fields = field.fields(&["serial", "time", "reason"], reading)?;
        let reason = fields.get("reason").map(|field| field.text(reading));
        Some(LedgerRevocation {
            serial: fields.required("serial", reading)?.text(reading)?,
            time: fields.required("time", reading)?.time(reading)?,
            reason: reason.unwrap_or_else(|| Some("unspecified".to_owned()))?,
        })
    });
    LedgerFacts {
        certificate,
        revoked,
    }
}

fn csr_of(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<WrittenCsr> {
    if matches!(field.node.content, Content::Text(_)) {
        return field.text(reading).map(WrittenCsr::Pem);
    }
    let fields = field.fields(&CSR, reading)?;
    if let Some(pem) = fields.written("pem") {
        for (key, field) in fields.all().filter(|(key, _)| *key != "pem") {
            let what = "a message is either PEM or fields";
            if CSR.contains(&key) {
                field.complain(reading, what);
            }
        }
        return pem.text(reading).map(WrittenCsr::Pem);
    }
    csr_fields(&fields, reading).map(|fields| WrittenCsr::Fields(Box::new(fields)))
}

fn csr_fields(fields: &Fields<'_>, reading: &mut Reading<'_>) -> Option<CsrFields> {
    let mut subject = SubjectBuilder::new();
    for (key, kind) in [
        ("organization", oid::ORGANIZATION),
        ("organizationalUnit", oid::ORGANIZATIONAL_UNIT),
        ("commonName", oid::COMMON_NAME),
    ] {
        let values = fields.get(key).and_then(|f| f.one_or_more(reading));
        for value in values.unwrap_or_default() {
            subject = subject.push(kind, &value.text(reading)?, StringKind::Utf8);
        }
    }
    let mut alt_names = Vec::new();
    for (key, name) in [
        ("dnsNames", AltName::Dns as fn(String) -> AltName),
        ("emails", AltName::Email),
        ("uris", AltName::Uri),
    ] {
        let texts = fields.get(key).and_then(|field| field.texts(reading));
        alt_names.extend(texts.unwrap_or_default().into_iter().map(name));
    }
    let addresses = fields.get("ipAddresses").and_then(|f| f.items(reading));
    for address in addresses.unwrap_or_default() {
        alt_names.push(AltName::Ip(address.parsed(str::parse, reading)?));
    }
    let mut extensions = Vec::new();
    if !alt_names.is_empty() {
        extensions.push(ext::subject_alt_name(&alt_names, false));
    }
    let others = fields.get("extensions").and_then(|f| f.any_fields(reading));
    for (name, field) in others.iter().flat_map(Fields::all) {
        let Some(oid) = oid::registered_oid(name).or_else(|| Oid::parse(name).ok()) else {
            let what =
                "an extension is named by its OID or its registered name, for example pp_uuid";
            field.complain(reading, what);
            continue;
        };
        extensions.push(ext::utf8_extension(oid, &field.text(reading)?, false));
    }
    let password = fields
        .get("challengePassword")
        .and_then(|f| f.text(reading));
    let password = password.and_then(|text| {
        // The value of such an extension is the encoded string that an attribute has.
        let encoded = ext::utf8_extension(oid::CHALLENGE_PASSWORD, &text, false).value;
        RawValue::from_der(&encoded).ok()
    });
    Some(CsrFields {
        subject_der: subject.build(),
        extensions,
        attributes: password
            .map(|value| Attribute {
                oid: oid::CHALLENGE_PASSWORD,
                values: vec![value],
            })
            .into_iter()
            .collect(),
    })
}

const KEYS: [&str; 19] = [
    "pod",
    "name",
    "conditions",
    "certificate",
    "deleting",
    "door",
    "certname",
    "sourceAddress",
    "uid",
    "extra",
    "renewal",
    "ledger",
    "signer",
    "username",
    "groups",
    "usages",
    "expirationSeconds",
    "created",
    "csr",
];
const CSR: [&str; 10] = [
    "pem",
    "commonName",
    "organization",
    "organizationalUnit",
    "dnsNames",
    "ipAddresses",
    "emails",
    "uris",
    "extensions",
    "challengePassword",
];
