//! OpenSSL's opinion on what we accept and on what we make.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use countersign_pki::{RevocationReason, RevokedEntry, Serial, UnixTime};
use countersign_testkit::keys;
use countersign_testkit::zoo::{Fate, specimens};
use tempfile::TempDir;

use crate::authority::{Issuer, NOT_BEFORE};

/// A directory with files for one run of OpenSSL.
pub(crate) struct Desk {
    directory: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Desk {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

pub(crate) fn openssl(arguments: &[&str], files: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("openssl");
    command.args(arguments);
    for (flag, path) in files {
        if !flag.is_empty() {
            command.arg(flag);
        }
        command.arg(path);
    }
    command.output().expect("the openssl command is installed")
}

pub(crate) fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn openssl_agrees_that_accepted_requests_are_self_signed() {
    let desk = Desk::new();
    let mut checked = 0;
    for specimen in specimens().iter().filter(|s| s.fate == Fate::Accept) {
        let file = desk.put("request.der", specimen.to_der().unwrap());
        let output = openssl(
            &["req", "-verify", "-noout", "-inform", "DER"],
            &[("-in", &file)],
        );
        let said = text(&output);
        assert!(
            output.status.success() && said.contains("verify OK"),
            "{}: {said}",
            specimen.name
        );
        checked += 1;
    }
    assert!(checked >= 50, "only {checked} requests were compared");
}

#[test]
fn openssl_agrees_that_flawed_signatures_do_not_verify() {
    let desk = Desk::new();
    let refused = |s: &&countersign_testkit::zoo::Specimen| {
        s.fate == Fate::Refuse("signature does not verify")
    };
    for specimen in specimens().iter().filter(refused) {
        let file = desk.put("request.der", specimen.to_der().unwrap());
        let output = openssl(
            &["req", "-verify", "-noout", "-inform", "DER"],
            &[("-in", &file)],
        );
        assert!(!text(&output).contains("verify OK"), "{}", specimen.name);
    }
}

#[test]
fn certificates_and_lists_of_every_issuer_verify_strictly() {
    let desk = Desk::new();
    for issuer in Issuer::all() {
        let good = issuer.issue(serial(1000), "good.example.com", keys::p256_b().spki_der());
        let gone = issuer.issue(
            Serial::random_from([0xee; 16]),
            "gone.example.com",
            keys::rsa2048_b().spki_der(),
        );
        let crl = issuer.revoke(7, &[entry(gone.serial(), RevocationReason::KeyCompromise)]);
        let ca = desk.put("ca.pem", issuer.certificate.to_pem());
        let list = desk.put("crl.pem", crl.to_pem());
        let verify = |leaf: &Path| {
            openssl(
                &[
                    "verify",
                    "-x509_strict",
                    "-crl_check_all",
                    "-purpose",
                    "sslclient",
                ],
                &[("-CAfile", &ca), ("-CRLfile", &list), ("", leaf)],
            )
        };
        let said = verify(&desk.put("good.pem", good.to_pem()));
        assert!(
            said.status.success(),
            "{}: {}",
            issuer.key.name(),
            text(&said)
        );
        let said = verify(&desk.put("gone.pem", gone.to_pem()));
        assert!(!said.status.success(), "{}", issuer.key.name());
        assert!(
            text(&said).contains("certificate revoked"),
            "{}: {}",
            issuer.key.name(),
            text(&said)
        );
    }
}

#[test]
fn an_empty_list_verifies_too() {
    let desk = Desk::new();
    let issuer = Issuer::new(keys::p256_a());
    let leaf = issuer.issue(serial(2), "a.example.com", keys::p256_b().spki_der());
    let ca = desk.put("ca.pem", issuer.certificate.to_pem());
    let list = desk.put("crl.pem", issuer.revoke(0, &[]).to_pem());
    let leaf = desk.put("leaf.pem", leaf.to_pem());
    let said = openssl(
        &["verify", "-x509_strict", "-crl_check_all"],
        &[("-CAfile", &ca), ("-CRLfile", &list), ("", &leaf)],
    );
    assert!(said.status.success(), "{}", text(&said));
}

#[test]
fn openssl_reads_the_fields_that_we_wrote() {
    let desk = Desk::new();
    let issuer = Issuer::new(keys::rsa2048_a());
    let leaf = issuer.issue(
        serial(0xABCD),
        "web01.example.com",
        keys::p256_b().spki_der(),
    );
    let file = desk.put("leaf.pem", leaf.to_pem());
    let fields = [
        "x509",
        "-noout",
        "-serial",
        "-subject",
        "-issuer",
        "-dates",
        "-fingerprint",
        "-sha256",
    ];
    let said = text(&openssl(&fields, &[("-in", &file)]));
    for expected in [
        "serial=ABCD",
        "subject=CN = web01.example.com",
        "issuer=CN = Test CA rsa2048a",
        "notBefore=Jan  1 00:00:00 2026 GMT",
        "notAfter=Jan  5 00:00:00 2056 GMT",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    assert!(said.contains(&leaf.fingerprint().to_string()), "{said}");

    let said = text(&openssl(&["x509", "-noout", "-text"], &[("-in", &file)]));
    for expected in [
        "Version: 3 (0x2)",
        "DNS:web01.example.com, IP Address:2001:DB8:0:0:0:0:0:1",
        "X509v3 Basic Constraints: critical",
        "CA:FALSE",
        "X509v3 Extended Key Usage: critical",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "X509v3 Key Usage: critical",
        "Test certificate",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
}

#[test]
fn openssl_reads_a_list_with_reasons() {
    let desk = Desk::new();
    let issuer = Issuer::new(keys::ed25519());
    let entries = [
        entry(serial(1), RevocationReason::Unspecified),
        entry(serial(2), RevocationReason::Superseded),
    ];
    let file = desk.put("crl.pem", issuer.revoke(0x1234, &entries).to_pem());
    let said = text(&openssl(
        &["crl", "-noout", "-text", "-crlnumber"],
        &[("-in", &file)],
    ));
    for expected in [
        "Version 2 (0x1)",
        "crlNumber=0x1234",
        "Serial Number: 02",
        "Superseded",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    assert_eq!(said.matches("X509v3 CRL Reason Code").count(), 1);
}

fn serial(number: u64) -> Serial {
    Serial::try_from(number).unwrap()
}

fn entry(serial: Serial, reason: RevocationReason) -> RevokedEntry {
    RevokedEntry {
        serial,
        at: UnixTime(NOT_BEFORE.0 + 60),
        reason,
    }
}
