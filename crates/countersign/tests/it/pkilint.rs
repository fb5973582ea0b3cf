//! Certificates and CRLs as pkilint judges them (RFC 5280): no error that is not one of the listed exceptions.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use countersign_pki::{Oid, pem};
use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::keys;
use serde_json::Value;

use crate::site::{JSON, REQUESTS, Site, approved, kubernetes_request, put_request};

/// What pkilint objects to and a site has asked for: a name without a dot, which no public authority would put into a
/// certificate, and which Puppet's and Kubernetes' own names are.
const EXCEPTIONS: [&str; 1] = ["pkix.invalid_domain_name_syntax"];

#[test]
fn certificates_and_crls_have_no_errors() {
    for key in ["p256", "rsa2048"] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "issuers: {{puppet: {{key: {key}}}, kubernetes: {{key: {key}}}}}\n\
             puppet: {{autosign: \"true\", auto_renewal: true, allow_subject_alt_names: true}}\n"
        );
        let site = Site::configured(&text, &[]);

        let role = Oid::parse("1.3.6.1.4.1.34380.1.1.13").unwrap();
        for (name, request) in [
            ("plain.example.com", CsrBuilder::new("plain.example.com")),
            (
                "rich.example.com",
                CsrBuilder::new("rich.example.com")
                    .dns("alias.example.com")
                    .ip("192.0.2.7".parse().unwrap())
                    .extension(&role, "web"),
            ),
        ] {
            for key in [keys::p256_a(), keys::rsa2048_a()] {
                let answer = put_request(&site.anonymous(), name, &request.sign_pem(key));
                assert_eq!(answer.status, 200, "{}", answer.text());
                let certificate = site.certificate(name);
                lint(folder.path(), CERTIFICATE, &certificate.body);
                clean(&site, name);
            }
        }
        for path in [
            "issuers/puppet/ca_crt.pem",
            "issuers/kubernetes/ca_crt.pem",
            "tls/puppet.pem",
            "tls/kubernetes.pem",
            "admin/admin.pem",
        ] {
            lint(folder.path(), CERTIFICATE, &site.read(path));
        }
        lint(folder.path(), CERTIFICATE, &kubernetes_certificate(&site));
        // One with entries, one without.
        for path in ["puppet", "kubernetes"] {
            let list = site.read(&format!("issuers/{path}/ca_crl.pem"));
            lint(folder.path(), CRL, &list);
        }
    }
}

fn clean(site: &Site, name: &str) {
    let body = serde_json::json!({"certnames": [name]}).to_string();
    let cleaned = site
        .admin()
        .call("PUT", "/puppet-ca/v1/clean", &[JSON], body.as_bytes())
        .unwrap();
    assert_eq!(cleaned.status, 200);
}

fn kubernetes_certificate(site: &Site) -> Vec<u8> {
    use base64::Engine as _;
    let admin = site.kubernetes_admin();
    let body = kubernetes_request("jane").to_string();
    let created = admin
        .call("POST", REQUESTS, &[JSON], body.as_bytes())
        .unwrap();
    let object = approved(serde_json::from_slice(&created.body).unwrap());
    let path = format!("{REQUESTS}/jane/approval");
    let put = admin
        .call("PUT", &path, &[JSON], object.to_string().as_bytes())
        .unwrap();
    assert_eq!(put.status, 200, "{}", put.text());
    let read = admin
        .call("GET", &format!("{REQUESTS}/jane"), &[], b"")
        .unwrap();
    let object: Value = serde_json::from_slice(&read.body).unwrap();
    let text = object["status"]["certificate"].as_str().unwrap();
    base64::prelude::BASE64_STANDARD.decode(text).unwrap()
}

const CERTIFICATE: &[&str] = &["lint_pkix_cert", "lint"];
const CRL: &[&str] = &["lint_crl", "lint", "-t", "CRL", "-p", "PKIX"];

/// Lints the first PEM block.
#[track_caller]
fn lint(folder: &Path, linter: &[&str], text: &[u8]) {
    let block = pem::decode_first(text, &pem::PemLimits::BUNDLE)
        .unwrap()
        .unwrap();
    let file = folder.join("document.der");
    std::fs::write(&file, &block.der).unwrap();
    let mut command = Command::new(Counterpart::Pkilint.find().unwrap());
    command
        .args(linter)
        .args(["-s", "ERROR", "-f", "JSON", "--document-format", "DER"])
        .arg(&file);
    let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    let told: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {finished}"));
    let findings: Vec<String> = told["results"]
        .as_array()
        .unwrap_or_else(|| panic!("{finished}"))
        .iter()
        .flat_map(|result| result["finding_descriptions"].as_array().unwrap())
        .map(|finding| format!("{} {}", finding["code"], finding["message"]))
        .filter(|finding| !EXCEPTIONS.iter().any(|code| finding.contains(code)))
        .collect();
    assert!(
        findings.is_empty(),
        "{findings:#?}\n{}",
        pem::encode(&block.label, &block.der)
    );
}
