//! The authority's own requests, judged by OpenSSL.

use countersign_keys::LeafKey;
use countersign_pki::{AltName, pem};

use crate::key_folder::{KeyFolder, fixed_key};

#[test]
fn openssl_verifies_a_request() {
    let folder = KeyFolder::new();
    let key = LeafKey::generate().unwrap();
    folder.write("key.pem", &key.to_pkcs8_pem().unwrap());
    let names = [
        AltName::Dns("ca.example.com".into()),
        AltName::Ip("192.0.2.1".parse().unwrap()),
        AltName::Ip("2001:db8::1".parse().unwrap()),
    ];
    let der = key
        .request("ca.example.com", &["system:masters"], &names)
        .unwrap();
    folder.write("request.pem", &pem::encode("CERTIFICATE REQUEST", &der));

    let shown = folder.openssl(&[
        "req",
        "-in",
        "request.pem",
        "-verify",
        "-noout",
        "-text",
        "-nameopt",
        "RFC2253",
    ]);
    assert!(
        shown.contains("Subject: CN=ca.example.com,O=system:masters"),
        "{shown}"
    );
    assert!(
        shown.contains("DNS:ca.example.com, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1"),
        "{shown}"
    );
    let public = folder.openssl(&["req", "-in", "request.pem", "-noout", "-pubkey"]);
    assert_eq!(
        public,
        folder.openssl(&["pkey", "-in", "key.pem", "-pubout"])
    );
}

#[test]
fn replaced_keys_of_other_kinds_make_requests_too() {
    let folder = KeyFolder::new();
    for name in ["rsa2048a.pem", "p384.pem", "ed25519.pem"] {
        let key = LeafKey::from_pkcs8_pem(&fixed_key(name)).unwrap();
        let der = key.request("ca.example.com", &[], &[]).unwrap();
        folder.write("request.pem", &pem::encode("CERTIFICATE REQUEST", &der));
        folder.openssl(&["req", "-in", "request.pem", "-verify", "-noout"]);
    }
}
