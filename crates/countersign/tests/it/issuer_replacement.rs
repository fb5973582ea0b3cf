//! An issuer's certificate and key are replaced under a running server.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_authority::{Clock as _, SystemClock};
use countersign_keys::private_file;
use countersign_pki::{Certificate, pem};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::installation::run;
use crate::site::{
    REQUESTS, Site, install, kubernetes_request, kubernetes_request_for, read_certificate, read_crl,
};
use crate::trust_domains::certificate_by;

const CERTIFICATE: &str = "issuers/kubernetes/ca_crt.pem";
const KEY: &str = "issuers/kubernetes/ca_key.pem";

/// Puts another CA in the place of the Kubernetes issuer, and waits until it is used.
fn replace(site: &Site, chain: &str, ca: &Ca) {
    let before = site.server.log().len();
    install(&site.data().join(CERTIFICATE), chain, 0o644);
    install(&site.data().join(KEY), ca.key.pkcs8_pem(), 0o600);
    let is_in_use = |log: &str| {
        let news = log.get(before..).unwrap_or_default();
        news.contains("the new CA certificate is in use")
    };
    assert!(site.server.wait_for_log(is_in_use), "{}", site.server);
}

/// The CA certificates of the administrator's kubeconfig.
fn trusted(site: &Site) -> Vec<u8> {
    let text = fs::read_to_string(site.kubeconfig()).unwrap();
    let field = text.split("certificate-authority-data: ").nth(1).unwrap();
    let line = field.lines().next().unwrap();
    BASE64_STANDARD.decode(line).unwrap()
}

fn certificates(text: &[u8]) -> Vec<Certificate> {
    let blocks = pem::decode_all(text, &pem::PemLimits::BUNDLE).unwrap();
    let parsed = blocks.iter().map(|block| Certificate::parse(&block.der));
    parsed.collect::<Result<_, _>>().unwrap()
}

fn admin(site: &Site) -> HttpsClient {
    let (certificate, key) = site.kubernetes_admin_pair();
    let pair = Some((&*certificate, &*key));
    HttpsClient::new(site.kubernetes(), &trusted(site), pair).unwrap()
}

/// What somebody with this certificate of the key `p256_b` is answered: 403 is known and may not, 401 is unknown.
fn answered(site: &Site, certificate: &[u8]) -> u16 {
    let key = keys::p256_b().pkcs8_pem().as_bytes();
    let pair = Some((certificate, key));
    let client = HttpsClient::new(site.kubernetes(), &trusted(site), pair).unwrap();
    client.call("GET", REQUESTS, &[], b"").unwrap().status
}

#[test]
fn an_issuer_goes_on_with_another_key_when_its_files_are_replaced() {
    let vpn = "signers: [{name: example.com/vpn}]\n";
    let site = Site::configured(vpn, &[]);
    let old_ca = site.kubernetes_ca();
    let old = read_certificate(&old_ca);
    let jane = certificate_by(&admin(&site), kubernetes_request("jane"));

    // One of the two files is there, the other is on its way: nothing changes, and after a while that is said.
    let new = Ca::root("New Kubernetes CA", keys::p256_c(), SystemClock.now());
    let chain = new.certificate.to_pem();
    install(&site.data().join(CERTIFICATE), &chain, 0o644);
    let refusal = "the issuer's new files are not taken";
    let is_said = |log: &str| log.contains(refusal);
    assert!(site.server.wait_for_log(is_said), "{}", site.server);
    let bob = certificate_by(&admin(&site), kubernetes_request("bob"));
    assert!(
        read_certificate(&bob)
            .verify_signed_by(old.spki_der())
            .is_ok()
    );
    // A key that others can read is none.
    install(&site.data().join(KEY), keys::p256_c().pkcs8_pem(), 0o644);
    let is_said_again = |log: &str| log.matches(refusal).count() == 2;
    assert!(site.server.wait_for_log(is_said_again), "{}", site.server);

    replace(&site, &chain, &new);
    let carol = certificate_by(&admin(&site), kubernetes_request("carol"));
    let leaf = read_certificate(&carol);
    assert!(leaf.verify_signed_by(new.certificate.spki_der()).is_ok());
    assert_eq!(leaf.issuer().der(), new.certificate.subject().der());
    assert_eq!(leaf.authority_key_id(), new.certificate.subject_key_id());
    assert_eq!(certificates(&carol).len(), 1);

    // Who has a certificate of either CA is known; the server has its certificate of before, and the kubeconfig both CAs.
    for (name, certificate) in [("jane", &jane), ("bob", &bob), ("carol", &carol)] {
        assert_eq!(answered(&site, certificate), 403, "{name}");
    }
    let both = [new.certificate.der(), old.der()];
    let in_kubeconfig = certificates(&trusted(&site));
    assert!(in_kubeconfig.iter().map(Certificate::der).eq(both));
    let with_old_alone = HttpsClient::new(site.kubernetes(), &old_ca, None).unwrap();
    let version = with_old_alone.call("GET", "/version", &[], b"").unwrap();
    assert_eq!(version.status, 200);
    let list = read_crl(site.read("issuers/kubernetes/ca_crl.pem"));
    assert!(list.verify_signed_by(new.certificate.spki_der()).is_ok());

    // Other issuers have nothing to do with it.
    let laptop = kubernetes_request_for("laptop", "example.com/vpn", keys::p256_b());
    let laptop = read_certificate(certificate_by(&admin(&site), laptop));
    let vpn_ca = read_certificate(site.read("issuers/example.com.vpn/ca_crt.pem"));
    assert!(laptop.verify_signed_by(vpn_ca.spki_der()).is_ok());

    // The next process knows as much.
    let site = site.kill_and_restart(&[]);
    for certificate in [&jane, &carol] {
        assert_eq!(answered(&site, certificate), 403);
    }
    let dave = certificate_by(&admin(&site), kubernetes_request("dave"));
    let dave = read_certificate(dave);
    assert!(dave.verify_signed_by(new.certificate.spki_der()).is_ok());
}

/// The files of one issuer in the place of another's: what either signs would be the other's.
#[test]
fn an_issuer_does_not_take_the_key_of_another() {
    let vpn = "signers: [{name: example.com/vpn}]\n";
    let site = Site::configured(vpn, &[]);
    let puppet =
        ["ca_crt.pem", "ca_key.pem"].map(|file| site.read(&format!("issuers/puppet/{file}")));
    let own = [CERTIFICATE, KEY].map(|file| site.read(file));
    let put = |site: &Site, [certificate, key]: &[Vec<u8>; 2]| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        install(&site.data().join(CERTIFICATE), &text(certificate), 0o644);
        install(&site.data().join(KEY), &text(key), 0o600);
    };
    put(&site, &puppet);
    let refusal = "the files of issuer kubernetes hold the key that issuer puppet has";
    assert!(
        site.server.wait_for_log(|log| log.contains(refusal)),
        "{}",
        site.server
    );
    let jane = read_certificate(certificate_by(&admin(&site), kubernetes_request("jane")));
    let ca = read_certificate(&own[0]);
    assert!(jane.verify_signed_by(ca.spki_der()).is_ok());

    // Nor does the next start, which leaves no trace of it.
    let (data, _folder) = (site.data(), site.into_folder());
    let config = data.with_file_name("countersign.yaml");
    let ended = run(&[
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        "127.0.0.1:0",
    ]);
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.stderr.contains(refusal), "{ended}");
    let bundle = fs::read(data.join("issuers/kubernetes/ca_bundle.pem")).unwrap();
    let known = certificates(&bundle);
    assert!(known.iter().map(Certificate::der).eq([ca.der()]));
}

fn place(data: &Path, chain: &str, ca: &Ca) {
    let folder = data.join("issuers/kubernetes");
    fs::create_dir_all(&folder).unwrap();
    let key = ca.key.pkcs8_pem().as_bytes();
    private_file::write_new(&folder.join("ca_key.pem"), key).unwrap();
    fs::write(folder.join("ca_crt.pem"), chain).unwrap();
}

/// What the object of this name shows as its certificate.
fn shown(site: &Site, name: &str) -> Vec<u8> {
    let path = format!("{REQUESTS}/{name}");
    let answer = admin(site).call("GET", &path, &[], b"").unwrap();
    let object: Value = serde_json::from_slice(&answer.body).unwrap();
    let text = object["status"]["certificate"].as_str().unwrap();
    BASE64_STANDARD.decode(text).unwrap()
}

#[test]
fn certificates_of_an_intermediate_ca_are_followed_by_it_and_stay_so() {
    let now = SystemClock.now();
    let root = Ca::root("Example Root CA", keys::rsa2048_a(), now);
    let own = root.below("Example Kubernetes CA", keys::p256_c(), 2, now);
    let chain = [&own, &root].map(|ca| ca.certificate.to_pem()).concat();
    let site = Site::prepared(|data| place(data, &chain, &own), &[]);
    let jane = certificate_by(&admin(&site), kubernetes_request("jane"));
    let ders = |text: &[u8]| {
        certificates(text)
            .into_iter()
            .map(|c| c.der().to_vec())
            .collect::<Vec<_>>()
    };
    let of_jane = ders(&jane);
    assert_eq!(of_jane.len(), 2, "the leaf, and the CA below the root");
    assert_eq!(of_jane.last().unwrap(), own.certificate.der());

    // Whoever trusts the root alone reaches the server, before and after.
    let root_alone = root.certificate.to_pem().into_bytes();
    let reach = |site: &Site| {
        let client = HttpsClient::new(site.kubernetes(), &root_alone, None).unwrap();
        client.call("GET", "/version", &[], b"").unwrap().status
    };
    assert_eq!(reach(&site), 200);
    // Another CA of the same name, below nobody.
    let next = Ca::root("Example Kubernetes CA", keys::p256_d(), now);
    replace(&site, &next.certificate.to_pem(), &next);
    assert_eq!(shown(&site, "jane"), jane);
    let carol = certificate_by(&admin(&site), kubernetes_request("carol"));
    assert_eq!(ders(&carol).len(), 1);
    assert_eq!(reach(&site), 200);
    let site = site.kill_and_restart(&[]);
    assert_eq!(shown(&site, "jane"), jane);
    assert_eq!(shown(&site, "carol"), carol);
    assert_eq!(reach(&site), 200);
}

/// A request for one of the kubelets' signers.
fn node_request(signer: &str, csr: &CsrBuilder, usages: &[&str], seconds: u32) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-"},
        "spec": {
            "request": BASE64_STANDARD.encode(csr.sign_pem(keys::p256_b())),
            "signerName": signer,
            "usages": usages,
            "expirationSeconds": seconds,
        },
    })
}

#[test]
fn kubelets_get_client_and_server_certificates_no_longer_than_the_signing_duration() {
    let site = Site::configured("kubernetes: {signing_duration: 2h}\n", &[]);
    let node = || CsrBuilder::new("system:node:a").organization("system:nodes");
    let rows = [
        (
            "kubernetes.io/kube-apiserver-client-kubelet",
            node(),
            ["digital signature", "client auth"],
            (3600, 3600),
        ),
        (
            "kubernetes.io/kubelet-serving",
            node().dns("a.example.com"),
            ["digital signature", "server auth"],
            (86_400, 7200),
        ),
    ];
    for (signer, csr, usages, (asked, granted)) in rows {
        let object = node_request(signer, &csr, &usages, asked);
        let certificate = read_certificate(certificate_by(&admin(&site), object));
        let life = certificate.not_after().0 - certificate.not_before().0;
        // Below eight hours, the five minutes for clocks that lag come on top.
        assert_eq!(life, i64::from(granted) + 300, "{signer}");
    }
}
