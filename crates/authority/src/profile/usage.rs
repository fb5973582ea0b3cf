//! Key usages by name, and what they become in a certificate.

use countersign_pki::{KeyUsage, Oid, oid};

/// A usage that a signer knows, by the name that requests and configuration use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage(&'static Entry);

impl Usage {
    /// The usage of that name.
    pub fn parse(name: &str) -> Option<Self> {
        USAGES.iter().find(|entry| entry.name == name).map(Self)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Every name, for messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        USAGES.iter().map(|entry| entry.name)
    }

    pub(super) fn key_usage(self) -> Option<KeyUsage> {
        match &self.0.meaning {
            Meaning::Key(bit) => Some(*bit),
            Meaning::Extended(_) => None,
        }
    }

    pub(super) fn extended(self) -> Option<&'static Oid> {
        match &self.0.meaning {
            Meaning::Key(_) => None,
            Meaning::Extended(oid) => Some(oid),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: &'static str,
    meaning: Meaning,
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Key(KeyUsage),
    Extended(Oid),
}

const fn key(name: &'static str, bit: KeyUsage) -> Entry {
    Entry {
        name,
        meaning: Meaning::Key(bit),
    }
}

const fn extended(name: &'static str, oid: Oid) -> Entry {
    Entry {
        name,
        meaning: Meaning::Extended(oid),
    }
}

/// In the order in which extended usages are written.
static USAGES: [Entry; 23] = [
    key("signing", KeyUsage::DIGITAL_SIGNATURE),
    key("digital signature", KeyUsage::DIGITAL_SIGNATURE),
    key("content commitment", KeyUsage::CONTENT_COMMITMENT),
    key("key encipherment", KeyUsage::KEY_ENCIPHERMENT),
    key("key agreement", KeyUsage::KEY_AGREEMENT),
    key("data encipherment", KeyUsage::DATA_ENCIPHERMENT),
    key("cert sign", KeyUsage::KEY_CERT_SIGN),
    key("crl sign", KeyUsage::CRL_SIGN),
    key("encipher only", KeyUsage::ENCIPHER_ONLY),
    key("decipher only", KeyUsage::DECIPHER_ONLY),
    extended("any", oid::EKU_ANY),
    extended("server auth", oid::EKU_SERVER_AUTH),
    extended("client auth", oid::EKU_CLIENT_AUTH),
    extended("code signing", oid::EKU_CODE_SIGNING),
    extended("email protection", oid::EKU_EMAIL_PROTECTION),
    extended("s/mime", oid::EKU_EMAIL_PROTECTION),
    extended("ipsec end system", oid::EKU_IPSEC_END_SYSTEM),
    extended("ipsec tunnel", oid::EKU_IPSEC_TUNNEL),
    extended("ipsec user", oid::EKU_IPSEC_USER),
    extended("timestamping", oid::EKU_TIME_STAMPING),
    extended("ocsp signing", oid::EKU_OCSP_SIGNING),
    extended("microsoft sgc", oid::EKU_MICROSOFT_SGC),
    extended("netscape sgc", oid::EKU_NETSCAPE_SGC),
];
