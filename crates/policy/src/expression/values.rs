//! The values behind the names, for the evaluation and for the eye.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};

use cel::common::types::{
    CelBool, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp,
};
use cel::common::value::Val;
use countersign_pki::{AltName, CsrLimits, Oid, UnixTime, oid, terminal_safe};

use super::names::{Fact, Name};
use super::{EvaluationFault, Facts};
use crate::facts::{LedgerCertificate, LedgerRevocation, Machine, PodFacts};
use crate::request::Identity;

/// What is behind a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// Nothing.
    Null,
    /// An object, which is only ever compared with null.
    Object,
    Bool(bool),
    Int(i64),
    Time(UnixTime),
    Text(Cow<'a, str>),
    Texts(Vec<Cow<'a, str>>),
    TextMap(Vec<(Cow<'a, str>, Cow<'a, str>)>),
    TextsMap(Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>),
}

/// The longest list or map that an expression looks at.
pub(super) const MAX_ITEMS: usize = CsrLimits::STANDARD.max_alt_names;
/// The most text that is behind one name: nothing that a request carries is longer.
pub(super) const MAX_TEXT: usize = CsrLimits::STANDARD.max_der;

impl<'a> Value<'a> {
    /// What is behind a name. `None`: the object that has this field is null.
    pub(super) fn of(name: &Name, facts: &Facts<'a>) -> Option<Self> {
        let Facts {
            request, machine, ..
        } = *facts;
        let csr = request.csr;
        let certificate = facts.ledger.certificate.as_ref();
        let revoked = facts.ledger.revoked.as_ref();
        let of_machine = |field: fn(&'a Machine) -> Self| machine.map(field);
        let of_certificate = |field: fn(&'a LedgerCertificate) -> Self| certificate.map(field);
        let of_revoked = |field: fn(&'a LedgerRevocation) -> Self| revoked.map(field);
        let of_pod = |field: fn(&'a PodFacts) -> Self| request.pod.map(field);
        let sender = Sender::of(&request.requester.identity);
        let object = |is_there| if is_there { Self::Object } else { Self::Null };
        Some(match name.fact {
            Fact::Request | Fact::Requester | Fact::Ledger => Self::Object,
            Fact::Door => Self::text(request.door),
            Fact::Signer => Self::text(request.signer.as_str()),
            Fact::CommonName => Self::text(request.name),
            Fact::Subject => Self::Text(csr.subject().to_string().into()),
            Fact::Organization => Self::texts(csr.subject().organizations()),
            Fact::OrganizationalUnit => Self::texts(csr.subject().organizational_units()),
            Fact::DnsNames | Fact::IpAddresses | Fact::Emails | Fact::Uris => {
                Self::alt_names(name.fact, csr.alt_names())
            }
            Fact::Usages => Self::texts(request.wishes.usages.iter().map(String::as_str)),
            Fact::ExpirationSeconds => {
                let seconds = request.wishes.expiration_seconds.unwrap_or_default();
                Self::Int(i64::try_from(seconds).unwrap_or(i64::MAX))
            }
            Fact::Extensions => Self::extensions(facts),
            Fact::KeyType => Self::text(csr.public_key().family()),
            Fact::KeySize => Self::Int(csr.public_key().bits().into()),
            Fact::SourceAddress => Self::Text(match request.requester.source {
                Some(address) => address.to_canonical().to_string().into(),
                None => "".into(),
            }),
            Fact::Created => Self::Time(request.at),
            Fact::Renewal => Self::Bool(request.renewal),
            Fact::Username => Self::text(sender.username),
            Fact::Groups => Self::texts(sender.groups.iter().map(String::as_str)),
            Fact::Uid => Self::text(sender.uid),
            Fact::Extra => Self::extra(sender.extra),
            Fact::Certname => Self::text(sender.certname),
            Fact::Anonymous => {
                Self::Bool(matches!(request.requester.identity, Identity::Anonymous))
            }
            Fact::Machine => object(machine.is_some()),
            Fact::MachineName => of_machine(|m| Self::text(&m.name))?,
            Fact::MachineAddresses => of_machine(|m| {
                let addresses = m.addresses.iter();
                Self::texts(addresses.map(|known| known.address.as_str()))
            })?,
            Fact::MachineSerial => of_machine(|m| Self::text(&m.serial))?,
            Fact::MachineUuid => of_machine(|m| Self::text(&m.uuid))?,
            Fact::MachineInstanceId => of_machine(|m| Self::text(&m.instance_id))?,
            Fact::MachineProvider => of_machine(|m| Self::text(&m.provider))?,
            Fact::MachineRole => of_machine(|m| Self::text(&m.role))?,
            Fact::MachineNotBefore => of_machine(|m| Self::maybe_time(m.not_before))?,
            Fact::MachineNotAfter => of_machine(|m| Self::maybe_time(m.not_after))?,
            Fact::MachineEnrolled => of_machine(|m| Self::Bool(m.enrolled.is_some()))?,
            Fact::Certificate => object(certificate.is_some()),
            Fact::CertificateSerial => of_certificate(|c| Self::text(&c.serial))?,
            Fact::CertificateNotAfter => of_certificate(|c| Self::Time(c.not_after))?,
            Fact::CertificateSameKey => of_certificate(|c| Self::Bool(c.same_key))?,
            Fact::Revoked => object(revoked.is_some()),
            Fact::RevokedSerial => of_revoked(|r| Self::text(&r.serial))?,
            Fact::RevokedTime => of_revoked(|r| Self::Time(r.time))?,
            Fact::RevokedReason => of_revoked(|r| Self::text(&r.reason))?,
            Fact::Pod => object(request.pod.is_some()),
            Fact::PodNamespace => of_pod(|pod| Self::text(&pod.namespace))?,
            Fact::PodName => of_pod(|pod| Self::text(&pod.name))?,
            Fact::PodUid => of_pod(|pod| Self::text(&pod.uid))?,
            Fact::PodServiceAccount => of_pod(|pod| Self::text(&pod.service_account))?,
            Fact::PodNode => of_pod(|pod| Self::text(&pod.node))?,
            Fact::PodLabels => of_pod(|pod| Self::text_map(&pod.labels))?,
            Fact::PodAnnotations => of_pod(|pod| Self::text_map(&pod.annotations))?,
            Fact::Now => Self::Time(facts.now),
        })
    }

    /// The text of one extension.
    pub(super) fn of_extension(extension: &Oid, facts: &Facts<'a>) -> Option<Self> {
        let found = facts.request.csr.extension(extension)?;
        Some(Self::Text(found.text_value()?.into()))
    }

    fn text_map(map: &'a BTreeMap<String, String>) -> Self {
        let pairs = map.iter();
        let pairs = pairs.map(|(key, text)| (key.as_str().into(), text.as_str().into()));
        Self::TextMap(pairs.collect())
    }

    fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    fn texts(texts: impl Iterator<Item = &'a str>) -> Self {
        Self::Texts(texts.map(Cow::Borrowed).collect())
    }

    fn maybe_time(time: Option<UnixTime>) -> Self {
        time.map_or(Self::Null, Self::Time)
    }

    fn alt_names(kind: Fact, names: &'a [AltName]) -> Self {
        let of_kind = names.iter().filter_map(|name| match name {
            AltName::Dns(name) => (kind == Fact::DnsNames).then_some(Cow::Borrowed(name.as_str())),
            AltName::Email(name) => (kind == Fact::Emails).then_some(Cow::Borrowed(name.as_str())),
            AltName::Uri(name) => (kind == Fact::Uris).then_some(Cow::Borrowed(name.as_str())),
            AltName::Ip(address) => {
                (kind == Fact::IpAddresses).then(|| Cow::Owned(address.to_string()))
            }
            AltName::Other { .. } => None,
        });
        Self::Texts(of_kind.collect())
    }

    /// Extensions that hold one text, except the one that holds a secret.
    fn extensions(facts: &Facts<'a>) -> Self {
        let extensions = facts.request.csr.extensions().iter();
        let readable = extensions.filter(|e| e.oid != oid::PP_PRESHARED_KEY);
        let with_text = readable.filter_map(|extension| {
            let text = extension.text_value()?;
            let key = match oid::registered_name(&extension.oid) {
                Some(short) => Cow::Borrowed(short),
                None => Cow::Owned(extension.oid.to_string()),
            };
            Some((key, Cow::Owned(text)))
        });
        Self::TextMap(with_text.collect())
    }

    fn extra(extra: Option<&'a BTreeMap<String, Vec<String>>>) -> Self {
        let entries = extra.into_iter().flatten().map(|(key, values)| {
            let values = values.iter().map(|value| Cow::Borrowed(value.as_str()));
            (Cow::Borrowed(key.as_str()), values.collect())
        });
        Self::TextsMap(entries.collect())
    }

    /// Refuses what is larger than the cost of an expression was reckoned for.
    pub(super) fn within_bounds(&self, path: &str) -> Result<(), EvaluationFault> {
        let sum = |texts: &[Cow<'_, str>]| texts.iter().map(|text| text.len()).sum::<usize>();
        let (items, bytes) = match self {
            Self::Null | Self::Object | Self::Bool(_) | Self::Int(_) | Self::Time(_) => (0, 0),
            Self::Text(text) => (0, text.len()),
            Self::Texts(texts) => (texts.len(), sum(texts)),
            Self::TextMap(map) => {
                let bytes = map.iter().map(|(key, text)| key.len() + text.len());
                (map.len(), bytes.sum())
            }
            Self::TextsMap(map) => {
                let longest = map.iter().map(|(_, texts)| texts.len()).max();
                let bytes = map.iter().map(|(key, texts)| key.len() + sum(texts));
                (map.len().max(longest.unwrap_or_default()), bytes.sum())
            }
        };
        if items > MAX_ITEMS {
            return Err(EvaluationFault {
                what: format!("{path} has {items} entries, expressions take at most {MAX_ITEMS}"),
            });
        }
        if bytes > MAX_TEXT {
            return Err(EvaluationFault {
                what: format!("{path} has {bytes} bytes, expressions take at most {MAX_TEXT}"),
            });
        }
        Ok(())
    }

    /// The value as the evaluation takes it.
    pub(super) fn into_val(self) -> Box<dyn Val + 'a> {
        let list = |texts: Vec<Cow<'a, str>>| {
            let boxed = |text| Box::new(CelString::from(text)) as Box<dyn Val + 'a>;
            Box::new(CelList::from(
                texts.into_iter().map(boxed).collect::<Vec<_>>(),
            ))
        };
        match self {
            Self::Null => Box::new(CelNull),
            Self::Object => Box::new(CelBool::from(true)),
            Self::Bool(value) => Box::new(CelBool::from(value)),
            Self::Int(value) => Box::new(CelInt::from(value)),
            Self::Time(time) => match chrono::DateTime::from_timestamp(time.0, 0) {
                Some(time) => Box::new(CelTimestamp::from(time.fixed_offset())),
                None => Box::new(CelNull),
            },
            Self::Text(text) => Box::new(CelString::from(text)),
            Self::Texts(texts) => list(texts),
            Self::TextMap(map) => Box::new(CelMap::from(
                map.into_iter()
                    .map(|(key, text)| {
                        let text = Box::new(CelString::from(text)) as Box<dyn Val + 'a>;
                        (CelMapKey::from(key.into_owned()), text)
                    })
                    .collect::<HashMap<_, _>>(),
            )),
            Self::TextsMap(map) => Box::new(CelMap::from(
                map.into_iter()
                    .map(|(key, texts)| {
                        let texts: Box<dyn Val + 'a> = list(texts);
                        (CelMapKey::from(key.into_owned()), texts)
                    })
                    .collect::<HashMap<_, _>>(),
            )),
        }
    }

    /// Writes it for the eye and stops where `out` is full.
    pub(super) fn show(&self, out: &mut Shown) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Object => out.write_str("known"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Int(value) => write!(out, "{value}"),
            Self::Time(time) => write!(out, "{time}"),
            Self::Text(text) => out.quoted(text),
            Self::Texts(texts) => out.list(texts),
            Self::TextMap(map) => out.between('{', '}', map, |out, (key, text)| {
                out.quoted(key)?;
                out.write_str(": ")?;
                out.quoted(text)
            }),
            Self::TextsMap(map) => out.between('{', '}', map, |out, (key, texts)| {
                out.quoted(key)?;
                out.write_str(": ")?;
                out.list(texts)
            }),
        }
    }
}

/// What an identity says of its bearer; empty where it says nothing.
#[derive(Default)]
struct Sender<'a> {
    username: &'a str,
    groups: &'a [String],
    uid: &'a str,
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
    certname: &'a str,
}

impl<'a> Sender<'a> {
    fn of(identity: &'a Identity) -> Self {
        match identity {
            Identity::Anonymous | Identity::Authority => Self::default(),
            Identity::Certname { certname } => Self {
                certname,
                ..Self::default()
            },
            Identity::User {
                username,
                groups,
                uid,
                extra,
            } => Self {
                username,
                groups,
                uid,
                extra: Some(extra),
                ..Self::default()
            },
        }
    }
}

/// A short text for explanations, safe to print.
pub(super) struct Shown {
    text: String,
}

impl Shown {
    pub(super) fn new() -> Self {
        Self {
            text: String::with_capacity(USUALLY_SHOWN),
        }
    }

    /// The text; one that was cut ends in an ellipsis.
    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn quoted(&mut self, text: &str) -> fmt::Result {
        self.write_str("\"")?;
        if text
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'"')
        {
            self.write_str(text)?;
            return self.write_str("\"");
        }
        // A text that does not fit is cut before it is made safe, so that a long one costs no more than a short one.
        let (fits, is_cut) = match text.char_indices().nth(MAX_SHOWN) {
            Some((end, _)) => (text.get(..end).unwrap_or_default(), true),
            None => (text, false),
        };
        self.write_str(&terminal_safe(fits).replace('"', "\\\""))?;
        self.write_str(if is_cut { "…\"" } else { "\"" })
    }

    fn list(&mut self, texts: &[Cow<'_, str>]) -> fmt::Result {
        self.between('[', ']', texts, |out, text| out.quoted(text))
    }

    fn between<T>(
        &mut self,
        open: char,
        close: char,
        items: &[T],
        mut show: impl FnMut(&mut Self, &T) -> fmt::Result,
    ) -> fmt::Result {
        self.write_char(open)?;
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.write_str(", ")?;
            }
            show(self, item)?;
        }
        self.write_char(close)
    }
}

impl fmt::Write for Shown {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MAX_SHOWN.saturating_sub(self.text.len());
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        let fits = more.floor_char_boundary(room);
        self.text.push_str(more.get(..fits).unwrap_or_default());
        self.text.push('…');
        Err(fmt::Error)
    }
}

/// What an explanation shows of the values; the request itself is stored beside it.
const MAX_SHOWN: usize = 512;
/// Two or three names with their values.
const USUALLY_SHOWN: usize = 128;
