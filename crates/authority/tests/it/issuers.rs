//! Chain files as sites have them.

use std::sync::Arc;

use countersign_authority::{Chain, Issuer, IssuerFault, Store};
use countersign_keys::{FileKeys, ReadKey};
use countersign_pki::{AltName, Certificate, Crl, UnixTime, pem};
use countersign_testkit::chain::Ca;
use countersign_testkit::keys::{self, Key};

use crate::world::{self, START, World, issuer_id, submission};

const NOW: UnixTime = UnixTime(START);

struct Cas {
    root: Ca,
    middle: Ca,
    own: Ca,
    stranger: Ca,
}

impl Cas {
    fn new() -> Self {
        let root = Ca::root("Root CA", keys::p384(), NOW);
        let middle = root.below("Middle CA", keys::rsa2048_a(), 2, NOW);
        let own = middle.below("Own CA", own(), 3, NOW);
        let stranger = Ca::root("Somebody else's CA", keys::p256_d(), NOW);
        Self {
            root,
            middle,
            own,
            stranger,
        }
    }

    fn bundle(&self, names: &str) -> String {
        let one = |name: &str| match name {
            "root" => self.root.certificate.to_pem(),
            "middle" => self.middle.certificate.to_pem(),
            "own" => self.own.certificate.to_pem(),
            "stranger" => self.stranger.certificate.to_pem(),
            other => panic!("{other}"),
        };
        names.split_whitespace().map(one).collect()
    }
}

fn own() -> &'static Key {
    keys::p256_a()
}

fn load(bundle: String, key: &Key) -> Result<Issuer, IssuerFault> {
    let algorithm = key.issuer_algorithm().unwrap();
    Issuer::from_chain(issuer_id(), bundle.into_bytes(), algorithm, key.spki_der())
}

fn names(certificates: &[Certificate]) -> Vec<&str> {
    let names = certificates.iter().map(Certificate::subject);
    names.filter_map(|name| name.first_common_name()).collect()
}

#[test]
fn the_issuing_certificate_is_the_one_with_the_key_at_any_place() {
    let cas = Cas::new();
    for order in [
        "own middle root",
        "root middle own",
        "middle own root",
        "stranger root own middle stranger",
        "own own root middle",
    ] {
        let bundle = cas.bundle(order);
        let issuer = load(bundle.clone(), own()).unwrap();
        assert_eq!(
            issuer.certificate().der(),
            cas.own.certificate.der(),
            "{order}"
        );
        assert_eq!(
            names(issuer.ancestors()),
            ["Middle CA", "Root CA"],
            "{order}"
        );
        assert_eq!(issuer.chain_pem(), bundle.as_bytes(), "{order}");
    }
    let root = load(cas.bundle("root middle own"), keys::p384()).unwrap();
    assert!(root.ancestors().is_empty());
}

#[test]
fn what_a_chain_lacks_is_said() {
    let cas = Cas::new();
    for (names, expected) in [
        (
            "own root",
            "lacks the certificate of CN=Middle CA, who signed that of CN=Own CA",
        ),
        (
            "own middle stranger",
            "lacks the certificate of CN=Root CA, who signed that of CN=Middle CA",
        ),
        (
            "middle root",
            "no certificate of the chain has the issuer's key",
        ),
        ("", "the chain holds no certificate"),
    ] {
        let fault = load(cas.bundle(names), own()).unwrap_err().to_string();
        assert!(fault.contains(expected), "{names}: {fault}");
    }
    let long = load(cas.bundle("own").repeat(33), own()).unwrap_err();
    assert_eq!(
        long.to_string(),
        "the chain holds more than 32 certificates"
    );
    let broken = cas.bundle("own") + &pem::encode("CERTIFICATE", &[0x30, 0]);
    let fault = load(broken, own()).unwrap_err().to_string();
    assert_eq!(fault, "certificate 2 of the chain is malformed");
}

/// A certificate of the same name and another key does not stand in for the one that signed.
#[test]
fn signatures_count_and_not_names() {
    let cas = Cas::new();
    let impostor = Ca::root("Root CA", keys::p256_c(), NOW);
    let bundle = cas.bundle("own middle") + &impostor.certificate.to_pem();
    assert!(matches!(
        load(bundle, own()),
        Err(IssuerFault::Incomplete { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_are_no_cas_and_leave_no_issuer() {
    let cas = Cas::new();
    let world = World::with_chain(&cas.bundle("root own middle"), own()).await;
    let leaf = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let leaf = Certificate::parse(leaf.issued.unwrap().der()).unwrap();
    assert_eq!(leaf.issuer().der(), cas.own.certificate.subject().der());
    assert_eq!(leaf.alt_names(), [AltName::Dns("web01".into())]);
    leaf.verify_signed_by(own().spki_der()).unwrap();

    let bundle = leaf.to_pem() + &cas.bundle("own middle root");
    let algorithm = own().issuer_algorithm().unwrap();
    let refused = Issuer::from_chain(issuer_id(), bundle.into(), algorithm, leaf.spki_der());
    let fault = refused.unwrap_err().to_string();
    assert_eq!(
        fault,
        "the certificate of CN=web01 in the chain is not a CA certificate"
    );
}

/// What it signed of itself proves nothing: whoever has put it into the file trusts it.
#[test]
fn a_root_that_signed_itself_too_weakly_to_be_verified_is_believed() {
    let block = pem::decode_first(OLD_ROOT.as_bytes(), &pem::PemLimits::BUNDLE);
    let root = Certificate::parse(&block.unwrap().unwrap().der).unwrap();
    assert!(root.verify_signed_by(root.spki_der()).is_err());
    let (chain, beside) = Chain::read(OLD_ROOT.as_bytes(), root.spki_der()).unwrap();
    assert_eq!((chain.ancestors.len(), beside.len()), (0, 0));
}

/// RSA 2048, SHA-1.
const OLD_ROOT: &str = "-----BEGIN CERTIFICATE-----
MIIDGTCCAgGgAwIBAgIUW/Zteh6Gzh7Zwe2EfVdjPdeFnngwDQYJKoZIhvcNAQEF
BQAwEzERMA8GA1UEAwwIT2xkIFJvb3QwIBcNMjYxMTE1MjIzMTE5WhgPMjEyNjEw
MjIyMjMxMTlaMBMxETAPBgNVBAMMCE9sZCBSb290MIIBIjANBgkqhkiG9w0BAQEF
AAOCAQ8AMIIBCgKCAQEAqfc9lRxfLP2w+suy4Zou5MKpdAbwgMoVOEShz9u9updf
K+/16R8QGpUUKPSSMs0PMDCCdvrL5kaItBNmogtNMUWLIvuolgax7zJ1K7PnT5zO
MQc8NqkSTwxRspb+v4CBCXyjp1cHs0xQu3gjcPrtF+pFIdN4Mw3nfNp8OcYquf17
3deof9IGnpAn3bsqDW9MZwuFVkOzHpfMsf9eHQqTaSaLLWvz1Cm7BfTb07cT+7sa
SSec0/pjBniS2TfnQUN9bKnu0mYzjPdBv0Xv5PQtAuhHNukKNuOjnUB00QzdY4mX
Cu1Q6aAONBo0+h5iCmZwcYQmMWZMzKdTu43ldzuiZQIDAQABo2MwYTAdBgNVHQ4E
FgQUV2VimnytqdwM6mKjSjrcqzAxNGMwHwYDVR0jBBgwFoAUV2VimnytqdwM6mKj
SjrcqzAxNGMwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAQYwDQYJKoZI
hvcNAQEFBQADggEBADydYQPboWAUaawlhbjlrmKMIp02W7BaqIna1lWlYXIqitOW
aPlqTArlkiEA/Qdk8Yp4PpZc1ruYchZhxM/+vhVwOWWHef5hjmIBx3Gy04HsGbNd
x70aQxnr5RjCFTn4fP5A/4qfIIYFoCBulsfFPKphHsEZ37TTK3knx9x+KfOa+mok
Q9KvSn/ks9gPDMe6q0I7xp3wu/IRZOHNwYJcPYuX6xHH9UEsFqKGAqks+DYeufFq
iQTuYRD4dpTDNfwH4VyLr2vFgZaY3Ohj70Y6Gr98IPQra481OG+QiqZMMNSuwgOl
01dIDXsWGUcAlINNshLVor4KYHRpRpB2yVebVw0=
-----END CERTIFICATE-----
";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_drafted_before_an_issuer_was_replaced_is_signed_by_the_key_before() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = &folders;
    for folder in &folders {
        world::prepare(folder.path()).await;
    }
    let keys = Arc::new(world::keys(first.path()));
    let store: Arc<dyn Store> = Arc::new(world::store(first.path()));
    let clock = world::TestClock::new();
    let authority = world::authority(
        first.path(),
        store,
        Arc::<FileKeys>::clone(&keys),
        clock,
        true,
    )
    .await;
    let old = authority.issuers.get(&issuer_id()).unwrap();

    let new_key = ReadKey::from_file(&second.path().join("key.pem")).unwrap();
    let chain = std::fs::read(second.path().join("ca.pem")).unwrap();
    let (algorithm, public_key) = (new_key.algorithm(), new_key.public_key().to_vec());
    let new = Issuer::from_chain(issuer_id(), chain, algorithm, &public_key).unwrap();
    let new = new.with_previous(vec![old.certificate().clone()]);

    let submissions: Vec<_> = (0..200)
        .map(|n| {
            let authority = authority.clone();
            tokio::spawn(async move {
                authority
                    .requests
                    .submit(submission(&format!("host{n}")))
                    .await
            })
        })
        .collect();
    keys.replace(&issuer_id(), new_key).unwrap();
    authority.issuers.replace(new).await.unwrap();
    authority.issuers.announce(&issuer_id()).await.unwrap();

    for submitted in submissions {
        let issued = submitted.await.unwrap().unwrap().issued.unwrap();
        let leaf = Certificate::parse(issued.der()).unwrap();
        let signs = |spki: &[u8]| leaf.verify_signed_by(spki).is_ok();
        let by_new = leaf.authority_key_id() != Some(old.key_id());
        assert_eq!(signs(&public_key), by_new);
        assert_eq!(signs(old.certificate().spki_der()), !by_new);
    }
    let after = authority
        .requests
        .submit(submission("after"))
        .await
        .unwrap();
    let after = Certificate::parse(after.issued.unwrap().der()).unwrap();
    assert!(after.verify_signed_by(&public_key).is_ok());
    let current = authority.issuers.get(&issuer_id()).unwrap();
    assert!(current.has_signed(&after));
    let list = authority.issuers.crl(&issuer_id()).unwrap();
    let list = Crl::parse(&list.record.der).unwrap();
    assert!(list.verify_signed_by(&public_key).is_ok());
}
