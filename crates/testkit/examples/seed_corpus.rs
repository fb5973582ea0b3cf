//! Writes the seeds of the fuzz targets: `cargo run -p countersign-testkit --example seed_corpus`.
//!
//! Only specimens whose bytes are the same in every run are written, so that running it again changes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_pki::{
    CertificateTemplate, CrlTemplate, RevocationReason, RevokedEntry, Serial, SignatureAlgorithm,
    SubjectBuilder, UnixTime, ext, oid, seal,
};
use countersign_testkit::keys;
use countersign_testkit::zoo::{Fate, specimens};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    // Two builds of the zoo differ exactly where a signature is random.
    let (once, again) = (specimens(), specimens());
    for (specimen, twin) in once.iter().zip(&again) {
        let steady = specimen.input == twin.input;
        let pem = specimen.to_pem();
        if !steady || pem.len() > MAX_SEED {
            continue;
        }
        if let Some(der) = specimen.to_der() {
            write(&corpus, "csr", specimen.name, &der)?;
        }
        let is_text = matches!(specimen.input, countersign_testkit::zoo::Input::Pem(_));
        if is_text || specimen.fate == Fate::Accept {
            write(&corpus, "pem", specimen.name, &pem)?;
        }
    }
    write(&corpus, "certificate", "authority", &certificate(true)?)?;
    write(&corpus, "certificate", "leaf", &certificate(false)?)?;
    write(
        &corpus,
        "certificate",
        "revocation list",
        &revocation_list()?,
    )
}

fn certificate(is_authority: bool) -> io::Result<Vec<u8>> {
    let key = keys::ed25519();
    let issuer = SubjectBuilder::utf8_common_name("Test CA");
    let subject = SubjectBuilder::utf8_common_name("web01.example.com");
    let key_id = ext::key_id(key.spki_der()).map_err(io::Error::other)?;
    let basic = if is_authority {
        ext::basic_constraints_ca()
    } else {
        ext::basic_constraints_leaf()
    };
    let names = [countersign_pki::AltName::Dns(
        "web01.example.com".to_owned(),
    )];
    let template = CertificateTemplate {
        serial: Serial::random_from([7; 16]),
        algorithm: SignatureAlgorithm::Ed25519,
        issuer_name_der: &issuer,
        not_before: UnixTime(1_767_225_600),
        not_after: UnixTime(2_714_256_000),
        subject_der: if is_authority { &issuer } else { &subject },
        spki_der: key.spki_der(),
        extensions: &[
            basic,
            ext::authority_key_id(&key_id),
            ext::subject_key_id(key.spki_der()).map_err(io::Error::other)?,
            ext::key_usage(countersign_pki::KeyUsage::DIGITAL_SIGNATURE),
            ext::extended_key_usage(&[oid::EKU_CLIENT_AUTH]),
            ext::subject_alt_name(&names, false),
        ],
    };
    sealed(&template.to_be_signed().map_err(io::Error::other)?)
}

fn revocation_list() -> io::Result<Vec<u8>> {
    let issuer = SubjectBuilder::utf8_common_name("Test CA");
    let entry = RevokedEntry {
        serial: Serial::random_from([7; 16]),
        at: UnixTime(1_767_225_600),
        reason: RevocationReason::KeyCompromise,
    };
    let template = CrlTemplate {
        algorithm: SignatureAlgorithm::Ed25519,
        issuer_name_der: &issuer,
        this_update: UnixTime(1_767_225_600),
        next_update: UnixTime(1_924_992_000),
        number: 3,
        authority_key_id: &[7; 20],
        entries: &[entry],
    };
    sealed(&template.to_be_signed().map_err(io::Error::other)?)
}

fn sealed(tbs: &[u8]) -> io::Result<Vec<u8>> {
    seal(tbs, SignatureAlgorithm::Ed25519, &keys::ed25519().sign(tbs)).map_err(io::Error::other)
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let directory: PathBuf = corpus.join(target);
    fs::create_dir_all(&directory)?;
    let file: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    fs::write(directory.join(file), bytes)
}

const MAX_SEED: usize = 4096; // small seeds make a fast fuzzer
