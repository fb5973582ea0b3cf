//! A CA that is imported from its files: whom it has certified before is still who they were.

use std::fs;

use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::{
    Certificate, CertificateTemplate, Serial, SignatureAlgorithm, SubjectBuilder, UnixTime, ext,
    oid, seal,
};
use countersign_testkit::chain::{Ca, CrlFacts};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;

use crate::installation::Installation;
use crate::site::{Site, TEXT, read_certificate};

const V1: &str = "/puppet-ca/v1";

/// A CA of one level with what it certified, and the files of it.
struct Before {
    ca: Ca,
    now: UnixTime,
    folder: tempfile::TempDir,
}

impl Before {
    /// Serial 9 is revoked.
    fn new() -> Self {
        let now = SystemClock.now();
        let ca = Ca::root("Puppet CA: old.example.com", keys::rsa2048_c(), now);
        let folder = tempfile::tempdir().unwrap();
        let revoked = [Serial::try_from(9).unwrap()];
        let crl = ca.crl(&CrlFacts {
            revoked: &revoked,
            ..CrlFacts::good(3, now)
        });
        for (file, text) in [
            ("ca_key.pem", ca.key.pkcs8_pem()),
            ("ca_crt.pem", &ca.certificate.to_pem()),
            ("ca_crl.pem", &crl),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        Self { ca, now, folder }
    }

    /// As old authorities made them: the name stands in the subject alone.
    fn agent(&self, name: &str, serial: u64) -> Certificate {
        let algorithm = SignatureAlgorithm::RsaPkcs1Sha256;
        let usages = [oid::EKU_SERVER_AUTH, oid::EKU_CLIENT_AUTH];
        let template = CertificateTemplate {
            serial: Serial::try_from(serial).unwrap(),
            algorithm,
            issuer_name_der: self.ca.certificate.subject().der(),
            not_before: self.now.minus_seconds(86_400),
            not_after: self.now.plus_seconds(86_400 * 365),
            subject_der: &SubjectBuilder::utf8_common_name(name),
            spki_der: keys::p256_b().spki_der(),
            extensions: &[ext::extended_key_usage(&usages)],
        };
        let text = template.to_be_signed().unwrap();
        let der = seal(&text, algorithm, &self.ca.key.sign(&text)).unwrap();
        Certificate::parse(&der).unwrap()
    }

    /// The server after the import, and what it stands on.
    fn imported(&self, flags: &[&str]) -> (Site, Installation) {
        let installation = Installation::new();
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let files = [file("ca_key.pem"), file("ca_crt.pem"), file("ca_crl.pem")];
        let [key, bundle, crls] = &files;
        let mut arguments = vec!["ca", "import", "--certname", "localhost"];
        arguments.extend(["--private-key", key, "--cert-bundle", bundle]);
        arguments.extend(["--crl-chain", crls]);
        arguments.extend(flags);
        let imported = installation.run(&arguments);
        assert!(imported.success(), "{imported}");
        let config = installation.path("../countersign.yaml");
        fs::write(&config, "puppet: {auto_renewal: true}\n").unwrap();
        let server = installation.serve(&["--config", config.to_str().unwrap()]);
        let data = installation.path("");
        (Site::around(data, server), installation)
    }
}

fn holder(site: &Site, certificate: &Certificate) -> HttpsClient {
    let key = keys::p256_b().pkcs8_pem().as_bytes();
    site.holder(certificate.to_pem().as_bytes(), key)
}

#[test]
fn agents_of_an_imported_ca_are_known_and_can_be_renewed_and_revoked() {
    let before = Before::new();
    let (site, _installation) = before.imported(&[]);
    let web01 = before.agent("web01.example.com", 7);
    let client = holder(&site, &web01);
    let expirations = format!("{V1}/expirations");
    let status = format!("{V1}/certificate_status/web01.example.com");
    let unseen = site.admin().call("GET", &status, &[], b"").unwrap();
    assert_eq!(unseen.status, 404, "{}", unseen.text());
    let answer = client.call("GET", &expirations, &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = site.admin().call("GET", &status, &[], b"").unwrap();
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert!(
        seen.text().contains("\"serial_number\":7"),
        "{}",
        seen.text()
    );

    let renewal = format!("{V1}/certificate_renewal");
    let renewed = client.call("POST", &renewal, &[TEXT], b"").unwrap();
    assert_eq!(renewed.status, 200, "{}", renewed.text());
    let renewed = read_certificate(renewed.text());
    assert_eq!(renewed.spki_der(), web01.spki_der());
    let answer = holder(&site, &renewed).call("GET", &expirations, &[], b"");
    assert_eq!(answer.unwrap().status, 200);

    // What was revoked before the import has no handshake, and what is revoked now has none either.
    let revoked = before.agent("web02.example.com", 9);
    assert!(
        holder(&site, &revoked)
            .call("GET", &expirations, &[], b"")
            .is_err()
    );
    site.revoke("web01.example.com");
    for out in [&web01, &renewed] {
        assert!(
            holder(&site, out)
                .call("GET", &expirations, &[], b"")
                .is_err()
        );
    }
}

#[test]
fn what_was_taken_over_is_explained_and_its_machine_has_enrolled() {
    let before = Before::new();
    let (site, installation) = before.imported(&[]);
    let well = |arguments: &[&str]| {
        let finished = installation.run(arguments);
        assert!(finished.success(), "{arguments:?}: {finished}");
        finished.stdout
    };
    let unknown = installation.run(&["csr", "explain", "web01.example.com"]);
    assert_eq!(unknown.code, Some(1), "{unknown}");
    let told = "there is no request \"web01.example.com\"";
    assert!(unknown.stderr.contains(told), "{unknown}");

    // One is in the inventory before it is seen, the other afterwards; the third has no certificate.
    for name in ["web01.example.com", "new.example.com"] {
        well(&["machine", "add", name]);
    }
    for (name, serial) in [("web01.example.com", 7), ("web02.example.com", 8)] {
        let client = holder(&site, &before.agent(name, serial));
        let seen = client.call("GET", &format!("{V1}/expirations"), &[], b"");
        assert_eq!(seen.unwrap().status, 200);
    }
    well(&["machine", "add", "web02.example.com"]);
    let missing = well(&["machine", "list", "--not-enrolled"]);
    assert!(missing.contains("new.example.com"), "{missing}");
    assert!(!missing.contains("web0"), "{missing}");

    let explained = well(&["csr", "explain", "web01.example.com"]);
    for said in [
        "none here: the certificate was taken over",
        "signed before the CA was imported",
        "of issuer puppet, valid from",
    ] {
        assert!(explained.contains(said), "{said}: {explained}");
    }
    let verified = installation.run(&["audit", "verify"]);
    assert!(verified.success(), "{verified}");
}

#[test]
fn an_administrator_may_have_an_imported_ca_forget_whom_it_certified() {
    let before = Before::new();
    let (site, _installation) = before.imported(&["--no-adopt"]);
    let web01 = before.agent("web01.example.com", 7);
    let answer = holder(&site, &web01).call("GET", &format!("{V1}/expirations"), &[], b"");
    assert_eq!(answer.unwrap().status, 403);
}
