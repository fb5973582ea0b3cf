//! Signatures as the engine asks for them.

use std::num::NonZeroUsize;

use countersign_authority::{KeyStore as _, SignFault};
use countersign_keys::FileKeys;
use countersign_pki::verify;
use futures_util::future::join_all;
use rstest::rstest;

use crate::key_folder::{KeyFolder, issuer, loaded};

#[rstest]
#[case::p256("p256a.pem")]
#[case::p384("p384.pem")]
#[case::ed25519("ed25519.pem")]
#[case::rsa2048("rsa2048a.pem")]
#[case::rsa3072("rsa3072.pem")]
#[case::rsa4096("rsa4096a.pem")]
#[tokio::test]
async fn every_kind_signs_what_pki_verifies(#[case] name: &str) {
    let folder = KeyFolder::new();
    let keys = loaded(&folder.fixed(name));
    let (algorithm, spki) = (
        keys.algorithm(&issuer("puppet")).unwrap(),
        keys.public_key(&issuer("puppet")).unwrap(),
    );
    for message in [&b""[..], b"message", &[7; 100_000]] {
        let signature = keys
            .sign(&issuer("puppet"), &spki, message.to_vec())
            .await
            .unwrap();
        verify(algorithm, &spki, message, &signature.0).unwrap();
        assert!(verify(algorithm, &spki, b"another", &signature.0).is_err());
    }
}

#[tokio::test]
async fn unknown_issuers_do_not_sign() {
    let folder = KeyFolder::new();
    let keys = loaded(&folder.fixed("p256a.pem"));
    let fault = keys
        .sign(&issuer("kubernetes"), b"", Vec::new())
        .await
        .unwrap_err();
    assert!(
        matches!(fault, SignFault::UnknownIssuer { issuer: named } if named == issuer("kubernetes"))
    );
}

#[tokio::test]
async fn every_issuer_signs_with_its_own_key() {
    let folder = KeyFolder::new();
    let mut keys = loaded(&folder.fixed("rsa2048a.pem"));
    keys.load(issuer("kubernetes"), &folder.fixed("rsa2048b.pem"))
        .unwrap();
    let names = ["puppet", "kubernetes"];
    for (name, other) in names.iter().zip(names.iter().rev()) {
        let own = keys.public_key(&issuer(name)).unwrap();
        let signing = keys.sign(&issuer(name), &own, b"m".to_vec());
        let signature = signing.await.unwrap();
        let algorithm = keys.algorithm(&issuer(name)).unwrap();
        verify(
            algorithm,
            &keys.public_key(&issuer(name)).unwrap(),
            b"m",
            &signature.0,
        )
        .unwrap();
        assert!(
            verify(
                algorithm,
                &keys.public_key(&issuer(other)).unwrap(),
                b"m",
                &signature.0
            )
            .is_err()
        );
    }
}

/// A signature of RSA-4096 takes a thousand times longer than asking for it, so that a queue of four overflows; what
/// was taken is signed all the same, and what was not is reported as overload.
#[tokio::test]
async fn crowd_is_served_or_told_so() {
    let folder = KeyFolder::new();
    let mut keys = FileKeys::with_queue(NonZeroUsize::MIN, 4);
    keys.load(issuer("puppet"), &folder.fixed("rsa4096a.pem"))
        .unwrap();
    let spki = keys.public_key(&issuer("puppet")).unwrap();
    let algorithm = keys.algorithm(&issuer("puppet")).unwrap();
    let crowd = (0..100_u8).map(|n| keys.sign(&issuer("puppet"), &spki, vec![n]));
    let mut signed = 0;
    for (n, outcome) in (0..100_u8).zip(join_all(crowd).await) {
        match outcome {
            Ok(signature) => {
                verify(algorithm, &spki, &[n], &signature.0).unwrap();
                signed += 1;
            }
            Err(fault) => assert!(matches!(fault, SignFault::Overloaded { .. }), "{fault:?}"),
        }
    }
    assert!((4..100).contains(&signed), "{signed} signed");
    keys.sign(&issuer("puppet"), &spki, b"later".to_vec())
        .await
        .unwrap();
}
