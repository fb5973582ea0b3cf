//! Which files are taken, which are refused, and what the refusal says.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use countersign_authority::KeyStore as _;
use countersign_keys::private_file::FileFault;
use countersign_keys::{
    CopyFor, FileKeys, ForeignKey, GenerateFault, KeySpec, LoadFault, PrivateKeyFault,
};
use countersign_pki::SignatureAlgorithm;
use rstest::rstest;

use crate::key_folder::{KeyFolder, fixed_key, issuer, loaded};

fn refusal(folder: &KeyFolder, name: &str) -> LoadFault {
    let mut keys = FileKeys::new(FileKeys::usual_threads());
    let fault = keys.load(issuer("puppet"), &folder.path(name)).unwrap_err();
    assert!(keys.algorithm(&issuer("puppet")).is_err());
    fault
}

#[rstest]
#[case::p256("p256a.pem", SignatureAlgorithm::EcdsaP256Sha256)]
#[case::p384("p384.pem", SignatureAlgorithm::EcdsaP384Sha384)]
#[case::ed25519("ed25519.pem", SignatureAlgorithm::Ed25519)]
#[case::rsa2048("rsa2048a.pem", SignatureAlgorithm::RsaPkcs1Sha256)]
#[case::rsa3072("rsa3072.pem", SignatureAlgorithm::RsaPkcs1Sha256)]
#[case::rsa4096("rsa4096a.pem", SignatureAlgorithm::RsaPkcs1Sha256)]
fn pkcs8_of_every_kind(#[case] name: &str, #[case] algorithm: SignatureAlgorithm) {
    let folder = KeyFolder::new();
    let keys = loaded(&folder.fixed(name));
    assert_eq!(keys.algorithm(&issuer("puppet")).unwrap(), algorithm);
    assert_eq!(
        keys.verify_each(&issuer("puppet")),
        algorithm == SignatureAlgorithm::RsaPkcs1Sha256
    );
}

#[rstest]
#[case::rsa("rsa2048a.pem", "BEGIN RSA PRIVATE KEY")]
#[case::p256("p256a.pem", "BEGIN EC PRIVATE KEY")]
#[case::p384("p384.pem", "BEGIN EC PRIVATE KEY")]
fn traditional_forms_are_the_same_key(#[case] name: &str, #[case] label: &str) {
    let folder = KeyFolder::new();
    let modern = loaded(&folder.fixed(name));
    let text = folder.openssl(&["pkey", "-in", name, "-traditional"]);
    assert!(text.contains(label));
    let traditional = loaded(&folder.write("traditional.pem", &text));
    assert_eq!(
        traditional.public_key(&issuer("puppet")).unwrap(),
        modern.public_key(&issuer("puppet")).unwrap()
    );
}

#[test]
fn ec_parameters_before_the_key_are_skipped() {
    let folder = KeyFolder::new();
    let text = folder.openssl(&["ecparam", "-name", "prime256v1", "-genkey"]);
    assert!(text.contains("BEGIN EC PARAMETERS"));
    loaded(&folder.write("key.pem", &text));
}

#[rstest]
#[case(0o640)]
#[case(0o644)]
#[case(0o604)]
fn exposed_files_are_refused(#[case] mode: u32) {
    let folder = KeyFolder::new();
    let path = folder.fixed("p256a.pem");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let fault = refusal(&folder, "p256a.pem");
    assert!(
        matches!(&fault, LoadFault::File { source: FileFault::Exposed { mode: found, .. } } if *found == mode)
    );
    let sentence = fault.source().unwrap().to_string();
    assert!(
        sentence.contains(&format!("chmod 600 {}", path.display())),
        "{sentence}"
    );
}

#[rstest]
#[case::rsa1024("rsa1024.pem")]
#[case::rsa8192("rsa8192.pem")]
#[case::p521("p521.pem")]
#[case::secp256k1("secp256k1.pem")]
#[case::ed448("ed448.pem")]
#[case::dsa("dsa2048.pem")]
fn other_kinds_are_refused(#[case] name: &str) {
    let folder = KeyFolder::new();
    let path = folder.fixed(name);
    let fault = refusal(&folder, name);
    assert!(
        matches!(
            &fault,
            LoadFault::Key {
                source: PrivateKeyFault::Unsupported,
                ..
            }
        ),
        "{fault:?}"
    );
    assert!(fault.to_string().contains(path.to_str().unwrap()));
}

#[test]
fn encrypted_keys_are_refused_with_the_remedy() {
    let folder = KeyFolder::new();
    folder.fixed("p256a.pem");
    for arguments in [
        &[
            "pkey",
            "-in",
            "p256a.pem",
            "-aes256",
            "-passout",
            "pass:secret",
        ][..],
        &[
            "ec",
            "-in",
            "p256a.pem",
            "-aes256",
            "-passout",
            "pass:secret",
        ],
    ] {
        folder.write("locked.pem", &folder.openssl(arguments));
        let fault = refusal(&folder, "locked.pem");
        assert!(
            matches!(
                &fault,
                LoadFault::Key {
                    source: PrivateKeyFault::Encrypted,
                    ..
                }
            ),
            "{fault:?}"
        );
        assert!(fault.source().unwrap().to_string().contains("openssl pkey"));
    }
}

#[test]
fn secrets_stay_secret_in_faults() {
    let folder = KeyFolder::new();
    let key = fixed_key("p256a.pem");
    folder.write("damaged.pem", &key.replacen('M', "!", 1));
    let fault = refusal(&folder, "damaged.pem");
    let shown = format!(
        "{fault:?} {fault} {:?}",
        fault.source().map(ToString::to_string)
    );
    for line in key.lines().filter(|line| !line.starts_with("-----")) {
        assert!(!shown.contains(line));
    }
}

#[test]
fn one_issuer_has_one_key() {
    let folder = KeyFolder::new();
    let mut keys = loaded(&folder.fixed("p256a.pem"));
    let before = keys.public_key(&issuer("puppet")).unwrap();
    let again = keys.load(issuer("puppet"), &folder.fixed("p256b.pem"));
    assert!(matches!(again, Err(LoadFault::Twice { .. })));
    assert_eq!(keys.public_key(&issuer("puppet")).unwrap(), before);
    keys.load(issuer("kubernetes"), &folder.path("p256b.pem"))
        .unwrap();
    assert_ne!(keys.public_key(&issuer("kubernetes")).unwrap(), before);
}

#[rstest]
#[case::p256(KeySpec::P256)]
#[case::p384(KeySpec::P384)]
#[case::ed25519(KeySpec::Ed25519)]
#[case::rsa2048(KeySpec::Rsa2048)]
fn generated_files_load_and_openssl_reads_them(#[case] spec: KeySpec) {
    let folder = KeyFolder::new();
    let path = folder.path("ca_key.pem");
    FileKeys::generate_file(&path, spec).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert_eq!(folder.names(), ["ca_key.pem"]);
    loaded(&path);
    folder.openssl(&["pkey", "-in", "ca_key.pem", "-noout", "-check"]);
}

#[test]
fn generating_never_overwrites() {
    let folder = KeyFolder::new();
    let path = folder.path("ca_key.pem");
    FileKeys::generate_file(&path, KeySpec::P256).unwrap();
    let first = fs::read(&path).unwrap();
    let again = FileKeys::generate_file(&path, KeySpec::P256);
    assert!(matches!(
        again,
        Err(GenerateFault::File {
            source: FileFault::Exists { .. }
        })
    ));
    assert_eq!(fs::read(&path).unwrap(), first);
    assert_eq!(folder.names(), ["ca_key.pem"]);
}

/// Puppet Server keeps its key where its group can read it, in the form of PKCS#1.
#[test]
fn foreign_keys_are_read_whatever_their_mode_and_copied_whole() {
    let folder = KeyFolder::new();
    folder.fixed("rsa2048a.pem");
    let text = folder.openssl(&["pkey", "-in", "rsa2048a.pem", "-traditional"]);
    let path = folder.write("ca_key.pem", &text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let key = ForeignKey::read(&path).unwrap();
    assert_eq!(key.algorithm(), SignatureAlgorithm::RsaPkcs1Sha256);
    for (name, readers, mode) in [
        ("own.pem", CopyFor::Owner, 0o600),
        ("out.pem", CopyFor::OwnerAndGroup, 0o640),
    ] {
        let copy = folder.path(name);
        key.copy_to(&copy, readers).unwrap();
        assert_eq!(
            fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
            mode
        );
        assert_eq!(ForeignKey::read(&copy).unwrap().spki_der(), key.spki_der());
        assert!(key.copy_to(&copy, readers).is_err(), "never overwritten");
    }
}
