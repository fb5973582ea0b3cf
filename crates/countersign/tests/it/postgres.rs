//! Servers whose state is in PostgreSQL.

use std::fs;
use std::path::Path;

use countersign_testkit::postgres::{Postgres, PostgresSettings};

use crate::installation::run;
use crate::site::{Site, read_certificate, serve};

#[test]
fn two_servers_enrol_over_one_database() {
    let database = Postgres::start(PostgresSettings::default()).unwrap();
    database.create_database("ca").unwrap();
    let url = database.socket_url("postgres", "ca");
    let arguments = ["--autosign", "true", "--store", &url];

    let one = Site::start(&arguments);
    let issued = one.ask("one.example.com");
    assert_eq!(issued.status, 200, "{}", issued.text());
    let certificate = one.certificate("one.example.com").text().to_owned();
    let root = read_certificate(String::from_utf8(one.puppet_ca()).unwrap());
    read_certificate(certificate.clone())
        .verify_signed_by(root.spki_der())
        .unwrap();
    assert!(!one.data().join("countersign.db").exists());

    // The second has the same keys and another place for its files.
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    copy(&one.data(), &data);
    let other = Site::around(data.clone(), serve(&data, &arguments));
    assert_eq!(other.certificate("one.example.com").text(), certificate);
    assert_eq!(other.ask("two.example.com").status, 200);
    assert_eq!(one.certificate("two.example.com").status, 200);
    // After a crash each goes on.
    let one = one.kill_and_restart(&arguments);
    assert_eq!(one.certificate("two.example.com").status, 200);
    assert_eq!(one.ask("three.example.com").status, 200);
    assert_eq!(other.certificate("three.example.com").status, 200);
}

#[test]
fn a_data_directory_belongs_to_one_store() {
    let database = Postgres::start(PostgresSettings::default()).unwrap();
    let url = database.socket_url("postgres", "postgres");
    let site = Site::start(&["--store", &url]);
    let data = site.data();
    let folder = site.into_folder();
    let data = data.to_str().unwrap();
    let refused = |arguments: &[&str], part: &str| {
        let finished = run(&[arguments, &["--data", data]].concat());
        assert!(!finished.success(), "{arguments:?} {finished}");
        assert!(finished.stderr.contains(part), "{arguments:?} {finished}");
    };
    let elsewhere = "the state of this authority is in postgres://postgres@";
    refused(&["serve"], elsewhere);
    refused(
        &["ca", "generate", "--certname", "a", "--ca-client"],
        elsewhere,
    );
    refused(
        &["backup", folder.path().join("backup.tar").to_str().unwrap()],
        elsewhere,
    );
    assert!(!Path::new(data).join("countersign.db").exists());

    let other = Site::start(&[]);
    let data = other.data();
    let _kept = other.into_folder();
    let finished = run(&["serve", "--store", &url, "--data", data.to_str().unwrap()]);
    assert!(
        finished.stderr.contains("holds this authority's state"),
        "{finished}"
    );
}

#[test]
fn a_database_that_is_not_there_is_named_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let url = "postgres://ca:s3cret@127.0.0.1:1/ca?sslmode=disable";
    let finished = run(&["serve", "--store", url, "--data", data.to_str().unwrap()]);
    assert!(!finished.success(), "{finished}");
    assert!(
        finished.stderr.contains("postgres://ca@127.0.0.1:1/ca"),
        "{finished}"
    );
    assert!(!finished.stderr.contains("s3cret"), "{finished}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
