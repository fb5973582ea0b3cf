//! The cluster's CA is replaced under a running signer: over its files, and as the kubelet exchanges those of a Secret.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{Certificate, UnixTime};
use countersign_testkit::chain::Ca;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::keys;
use countersign_testkit::server_process::ServerProcess;

use super::signer::{AS_CLIENT, USER, create_and_approve};
use super::{PATIENCE, Stage};
use crate::site::install;

const BEGIN: UnixTime = UnixTime(1_760_000_000);

/// Signs with `ca.crt` and `ca.key` of a folder.
fn signer(stage: &Stage, folder: &Path) -> ServerProcess {
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let flags = [
        "--controllers=signer".to_owned(),
        "--leader-elect=false".to_owned(),
        flag("data", &stage.folder.path().join("data")),
        flag("cluster-signing-cert-file", &folder.join("ca.crt")),
        flag("cluster-signing-key-file", &folder.join("ca.key")),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    stage.controllers(&flags)
}

/// The certificate of a new request.
#[track_caller]
fn signed(stage: &Stage, name: &str) -> Certificate {
    let admin = stage.api.admin().unwrap();
    let name: &'static str = name.to_owned().leak();
    create_and_approve(&admin, (name, "client", USER, AS_CLIENT, None));
    let request = stage.request(name, |it| it["status"]["certificate"].is_string());
    let text = request["status"]["certificate"].as_str().unwrap();
    let blocks = pem::decode_all(&BASE64.decode(text).unwrap(), &PemLimits::BUNDLE).unwrap();
    Certificate::parse(&blocks[0].der).unwrap()
}

fn is_by(ca: &Ca, certificate: &Certificate) -> bool {
    certificate.issuer().der() == ca.certificate.subject().der()
        && certificate
            .verify_signed_by(ca.certificate.spki_der())
            .is_ok()
}

/// Within a few seconds, what is signed chains to the new CA, and goes on doing so.
#[track_caller]
fn assert_follows(stage: &Stage, ca: &Ca, prefix: &str, controllers: &ServerProcess) {
    let mut number = 0;
    let follows = ask_again(PATIENCE, || {
        number += 1;
        let certificate = signed(stage, &format!("{prefix}-{number}"));
        is_by(ca, &certificate).then_some(())
    });
    assert!(follows.is_some(), "{prefix}\n{controllers}");
    let again = signed(stage, &format!("{prefix}-again"));
    assert!(is_by(ca, &again), "{prefix}\n{controllers}");
}

#[test]
fn a_new_ca_in_the_same_files_signs_from_then_on() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    let folder = stage.folder.path().join("pki");
    fs::create_dir(&folder).unwrap();
    let first = Ca::root("first", keys::p256_c(), BEGIN);
    let second = Ca::root("second", keys::p256_d(), BEGIN);
    let write = |name: &str, text: &str| install(&folder.join(name), text, 0o600);
    write("ca.crt", &first.certificate.to_pem());
    write("ca.key", first.key.pkcs8_pem());
    let controllers = signer(&stage, &folder);
    assert!(is_by(&first, &signed(&stage, "before")), "{controllers}");

    // A key without its certificate is not taken.
    write("ca.key", second.key.pkcs8_pem());
    let refused = "the ones before stay in use";
    assert!(
        controllers.wait_for_log(|log| log.contains(refused)),
        "{controllers}"
    );
    assert!(is_by(&first, &signed(&stage, "between")), "{controllers}");
    write("ca.crt", &second.certificate.to_pem());
    assert_follows(&stage, &second, "after", &controllers);
}

#[test]
fn a_new_ca_in_the_secret_signs_from_then_on() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    let volume = stage.folder.path().join("secret");
    fs::create_dir(&volume).unwrap();
    // Another key, then the same one under another name.
    let cas = [
        Ca::root("first", keys::p256_c(), BEGIN),
        Ca::root("second", keys::p256_d(), BEGIN),
        Ca::root("third", keys::p256_d(), BEGIN),
    ];
    let mount = |number: usize| {
        let ca = &cas[number];
        let name = format!("..{number}");
        fs::create_dir(volume.join(&name)).unwrap();
        let certificate = ca.certificate.to_pem();
        for (file, text) in [
            ("ca.crt", certificate.as_str()),
            ("ca.key", ca.key.pkcs8_pem()),
        ] {
            install(&volume.join(&name).join(file), text, 0o440);
        }
        symlink(&name, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        if let Some(before) = number.checked_sub(1) {
            fs::remove_dir_all(volume.join(format!("..{before}"))).unwrap();
        }
    };
    mount(0);
    for file in ["ca.crt", "ca.key"] {
        symlink(format!("..data/{file}"), volume.join(file)).unwrap();
    }
    let controllers = signer(&stage, &volume);
    assert!(is_by(&cas[0], &signed(&stage, "before")), "{controllers}");
    for (number, prefix) in [(1, "second"), (2, "third")] {
        mount(number);
        assert_follows(&stage, &cas[number], prefix, &controllers);
    }
}
