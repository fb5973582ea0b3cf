//! The zoo: certification requests that real clients send and that attackers could send, each with what must happen to it.
//!
//! Every bug in reading adds an animal. Unexpected acceptance fails the test as much as unexpected refusal.

use countersign_pki::pem;

use crate::csr::CsrBuilder;
use crate::keys::{self, Key};

mod encodings;
mod extensions;
mod genuine;
mod names;
mod public_keys;
mod signatures;
mod structure;
mod texts;
mod tokens;

/// One request and its fate.
#[derive(Debug, Clone)]
pub struct Specimen {
    /// What it shows.
    pub name: &'static str,
    /// Its bytes.
    pub input: Input,
    /// What must happen.
    pub fate: Fate,
}

/// How the bytes come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// As DER.
    Der(Vec<u8>),
    /// As a text with armour.
    Pem(Vec<u8>),
}

/// What must happen to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is good.
    Accept,
    /// It is refused, and the fault's text contains this.
    Refuse(&'static str),
}

impl Specimen {
    /// The PEM form, armoured if need be.
    #[must_use]
    pub fn to_pem(&self) -> Vec<u8> {
        match &self.input {
            Input::Pem(text) => text.clone(),
            Input::Der(der) => pem::encode("CERTIFICATE REQUEST", der).into_bytes(),
        }
    }

    /// The DER, of the first block if there are several; nothing if there is none.
    #[must_use]
    pub fn to_der(&self) -> Option<Vec<u8>> {
        match &self.input {
            Input::Der(der) => Some(der.clone()),
            Input::Pem(text) => pem::decode_first(text, &pem::PemLimits::REQUEST)
                .ok()
                .flatten()
                .map(|block| block.der),
        }
    }
}

/// Every animal.
#[must_use]
pub fn specimens() -> Vec<Specimen> {
    [
        genuine::specimens(),
        encodings::specimens(),
        structure::specimens(),
        names::specimens(),
        extensions::specimens(),
        public_keys::specimens(),
        signatures::specimens(),
        texts::specimens(),
        tokens::specimens(),
    ]
    .concat()
}

fn good(name: &'static str, der: Vec<u8>) -> Specimen {
    Specimen {
        name,
        input: Input::Der(der),
        fate: Fate::Accept,
    }
}

fn bad(name: &'static str, fault: &'static str, der: Vec<u8>) -> Specimen {
    Specimen {
        name,
        input: Input::Der(der),
        fate: Fate::Refuse(fault),
    }
}

fn good_pem(name: &'static str, text: impl Into<Vec<u8>>) -> Specimen {
    Specimen {
        name,
        input: Input::Pem(text.into()),
        fate: Fate::Accept,
    }
}

fn bad_pem(name: &'static str, fault: &'static str, text: impl Into<Vec<u8>>) -> Specimen {
    Specimen {
        name,
        input: Input::Pem(text.into()),
        fate: Fate::Refuse(fault),
    }
}

/// The plainest request, to be spoiled.
fn new() -> CsrBuilder {
    CsrBuilder::new("web01.example.com")
}

/// A key whose signatures are the same in every run.
fn key() -> &'static Key {
    keys::ed25519()
}
