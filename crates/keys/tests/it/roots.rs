//! Self-signed issuers, read by `pki`, taken by the engine, and judged by OpenSSL.

use countersign_authority::{Entropy as _, Issuer, KeyStore as _, SignFault};
use countersign_keys::{FileKeys, RootCertificate, RootFault, SystemEntropy, create_issuer};
use countersign_pki::{Certificate, KeyUsage, Serial, UnixTime, pem};
use rstest::rstest;

use crate::key_folder::{KeyFolder, issuer, loaded};

fn root(common_name: &str) -> RootCertificate<'_> {
    let mut random = [0; 16];
    SystemEntropy.fill(&mut random).unwrap();
    RootCertificate {
        common_name,
        not_before: UnixTime(1_600_000_000), // 2020
        not_after: UnixTime(4_100_000_000),  // 2099, a GeneralizedTime
        serial: Serial::random_from(random),
    }
}

#[rstest]
#[case::p256("p256a.pem", "ecdsa-with-SHA256")]
#[case::p384("p384.pem", "ecdsa-with-SHA384")]
#[case::ed25519("ed25519.pem", "ED25519")]
#[case::rsa2048("rsa2048a.pem", "sha256WithRSAEncryption")]
#[case::rsa4096("rsa4096a.pem", "sha256WithRSAEncryption")]
#[tokio::test]
async fn openssl_accepts_the_root(#[case] key: &str, #[case] algorithm: &str) {
    let folder = KeyFolder::new();
    let keys = loaded(&folder.fixed(key));
    let text = create_issuer(&keys, &issuer("puppet"), &root("Puppet CA: ca.example.com"))
        .await
        .unwrap();
    folder.write("ca.pem", &text);

    folder.openssl(&[
        "verify",
        "-x509_strict",
        "-check_ss_sig",
        "-CAfile",
        "ca.pem",
        "ca.pem",
    ]);
    let shown = folder.openssl(&[
        "x509", "-in", "ca.pem", "-noout", "-text", "-nameopt", "RFC2253",
    ]);
    for part in [
        "Version: 3",
        algorithm,
        "Issuer: CN=Puppet CA: ca.example.com",
        "Subject: CN=Puppet CA: ca.example.com",
        "X509v3 Basic Constraints: critical\n                CA:TRUE\n",
        "X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign\n",
        "X509v3 Subject Key Identifier",
        "X509v3 Authority Key Identifier",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let public = folder.openssl(&["x509", "-in", "ca.pem", "-noout", "-pubkey"]);
    assert_eq!(public, folder.openssl(&["pkey", "-in", key, "-pubout"]));
}

#[tokio::test]
async fn engine_takes_the_root() {
    let folder = KeyFolder::new();
    let keys = loaded(&folder.fixed("p256a.pem"));
    let wanted = root("Kubernetes CA");
    let text = create_issuer(&keys, &issuer("puppet"), &wanted)
        .await
        .unwrap();
    let blocks = pem::decode_all(text.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
    let certificate = Certificate::parse(&blocks.first().unwrap().der).unwrap();
    assert_eq!(certificate.serial(), wanted.serial);
    assert_eq!(
        (certificate.not_before(), certificate.not_after()),
        (wanted.not_before, wanted.not_after)
    );
    assert_eq!(
        certificate.key_usage(),
        Some(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN)
    );
    assert_eq!(certificate.subject_key_id(), certificate.authority_key_id());
    assert!(certificate.extensions().len() == 4 && certificate.path_length().is_none());

    let algorithm = keys.algorithm(&issuer("puppet")).unwrap();
    let public_key = keys.public_key(&issuer("puppet")).unwrap();
    let taken =
        Issuer::from_chain(issuer("puppet"), text.into_bytes(), algorithm, &public_key).unwrap();
    assert_eq!(taken.not_after(), wanted.not_after);
}

#[tokio::test]
async fn impossible_roots_are_refused() {
    let folder = KeyFolder::new();
    let keys = loaded(&folder.fixed("p256a.pem"));
    for name in ["", "  ", "a\u{1b}[2J", "a\0b"] {
        assert!(matches!(
            create_issuer(&keys, &issuer("puppet"), &root(name)).await,
            Err(RootFault::CommonName)
        ));
    }
    let reversed = RootCertificate {
        not_after: UnixTime(0),
        ..root("a")
    };
    let refused = create_issuer(&keys, &issuer("puppet"), &reversed).await;
    assert!(matches!(refused, Err(RootFault::Encode { .. })));
    let none = FileKeys::new(FileKeys::usual_threads());
    let refused = create_issuer(&none, &issuer("puppet"), &root("a")).await;
    assert!(matches!(
        refused,
        Err(RootFault::Sign {
            source: SignFault::UnknownIssuer { .. }
        })
    ));
}
