//! What was cut short, or whose reader went away: nothing is taken for whole that is not.

use std::process::{Command, Stdio};
use std::time::Duration;

use countersign_testkit::deadline::{Finished, run_with_deadline};
use serde_json::Value;

use crate::site::{COUNTERSIGN, Site, TEXT, puppet_request};

fn countersign(arguments: &[&str]) -> Finished {
    let mut command = Command::new(COUNTERSIGN);
    command.args(arguments).env_remove("COUNTERSIGN_DATA");
    run_with_deadline(command, Duration::from_secs(60)).unwrap()
}

#[test]
fn a_command_whose_reader_went_away_does_all_of_its_work() {
    let site = Site::start(&["--autosign", "true"]);
    let names = ["web01", "web02", "web03"];
    for name in names {
        let path = format!("/puppet-ca/v1/certificate_request/{name}");
        let request = puppet_request(name);
        let asked = site
            .anonymous()
            .call("PUT", &path, &[TEXT], request.as_bytes());
        assert_eq!(asked.unwrap().status, 200);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(COUNTERSIGN)
        .args(["ca", "revoke", "--certname", &names.join(",")])
        .arg("--data")
        .arg(site.data())
        .stdout(writer)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    for name in names {
        let path = format!("/puppet-ca/v1/certificate_status/{name}");
        let told = site.admin().call("GET", &path, &[], b"").unwrap();
        let told: Value = serde_json::from_slice(&told.body).unwrap();
        assert_eq!(told["state"], "revoked", "{name}");
    }
}

#[test]
fn an_import_that_was_cut_short_is_not_backed_up() {
    let folder = Site::start(&[]).into_folder();
    let data = folder.path().join("data");
    std::fs::write(data.join("import-unfinished"), "").unwrap();
    let file = folder.path().join("backup");
    let refused = countersign(&[
        "backup",
        file.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("cut short"), "{refused}");
    assert!(!file.exists());
}

/// Whoever has taken a CA's CRLs over has not made another CA.
#[test]
fn no_other_issuer_is_made_where_one_has_left_traces() {
    let folder = Site::start(&[]).into_folder();
    let data = folder.path().join("data");
    std::fs::remove_dir_all(data.join("issuers/puppet")).unwrap();
    let refused = countersign(&[
        "serve",
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        "off",
    ]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("ca_crt.pem is missing"),
        "{refused}"
    );
    assert!(!data.join("issuers/puppet/ca_key.pem").exists());
}

/// Half of a CA is no CA: no server starts on it, and the command that made it begins anew.
#[test]
fn a_setup_that_was_cut_short_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("issuers/puppet")).unwrap();
    std::fs::write(data.join("issuers/puppet/ca_key.pem"), "half").unwrap();
    std::fs::write(data.join("import-unfinished"), "").unwrap();
    let place = data.to_str().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--kubernetes-listen", "off"];
    let refused = countersign(&[&["serve", "--data", place][..], &listen].concat());
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("cut short"), "{refused}");
    let made = countersign(&["ca", "setup", "--certname", "localhost", "--data", place]);
    assert_eq!(made.code, Some(0), "{made}");
    assert!(!data.join("import-unfinished").exists());
    let chain = std::fs::read_to_string(data.join("issuers/puppet/ca_crt.pem")).unwrap();
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
}
