//! Backups are taken from a running server and restored elsewhere; what is damaged or foreign is refused, and a process that is
//! killed leaves nothing that could be taken for a backup or a data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_authority::store::LedgerReads as _;
use countersign_authority::store::{Change, Store as _, Write};
use countersign_authority::{AuditEntry, IssuerId};
use countersign_pki::{Certificate, Serial, UnixTime};
use countersign_policy::Effect;
use countersign_store::SqliteStore;
use countersign_store_suite::tamper;
use countersign_testkit::deadline::{Finished, RunFault, run_with_deadline};
use countersign_testkit::https::HttpsClient;
use serde_json::Value;
use tempfile::TempDir;

use crate::installation::{binary, run};
use crate::site::{
    Site, get_certificate, get_crl, puppet_request, put_request, read_certificate, serve,
};

/// Enrolments go on while the backup is taken. The restored authority has every certificate that was shown before it, trusts
/// what the old one signed, and repeats neither a serial nor the number of a CRL.
#[test]
fn a_backup_of_a_busy_server_starts_elsewhere() {
    let site = Site::start(&["--autosign", "true"]);
    let work = tempfile::tempdir().unwrap();
    let (file, restored) = (work.path().join("b.tar"), work.path().join("restored"));
    let (shown, stop) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
    let before = std::thread::scope(|scope| {
        for worker in 0..2 {
            let (shown, stop, agent) = (&shown, &stop, site.anonymous());
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    let name = format!("w{worker}-{number}");
                    let certificate = enrol_as(&agent, &name);
                    shown.lock().unwrap().insert(name, certificate);
                    number += 1;
                }
            });
        }
        while shown.lock().unwrap().len() < 20 {
            std::thread::yield_now();
        }
        site.revoke("w0-0");
        let before = shown.lock().unwrap().clone();
        let finished = backup(&site.data(), &file, &[]);
        assert!(finished.success(), "{finished}");
        let during = shown.lock().unwrap().len();
        while shown.lock().unwrap().len() < during + 10 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        before
    });
    // Signed and revoked after the backup: the restored ledger cannot know it.
    site.revoke("w1-0");
    let last_number = get_crl(&site.admin()).number().unwrap();
    let all = shown.into_inner().unwrap();
    assert!(all.len() > before.len());
    let ca = site.puppet_ca();
    site.into_folder();

    let finished = restore(&file, &restored);
    assert!(finished.success(), "{finished}");
    assert!(finished.stdout.contains("  epoch 1"), "{finished}");
    assert!(!work.path().join("restored.partial").exists());
    let server = serve(&restored, &["--autosign", "true"]);
    assert_eq!(server.greeting, "", "nothing was created");
    let site = Site::around(restored.clone(), server);
    assert_eq!(site.puppet_ca(), ca);
    let list = get_crl(&site.admin());
    assert!(list.number().unwrap() > last_number, "{:?}", list.number());
    assert!(
        list.serials()
            .any(|serial| serial == serial_of(&before["w0-0"]))
    );
    let ca = read_certificate(&ca);
    for (name, certificate_pem) in &before {
        assert_eq!(&fetch(&site, name), certificate_pem, "{name}");
        read_certificate(certificate_pem)
            .verify_signed_by(ca.spki_der())
            .unwrap();
    }
    list.verify_signed_by(ca.spki_der()).unwrap();
    let mut serials: BTreeSet<Serial> = all.values().map(|pem| serial_of(pem)).collect();
    assert_eq!(serials.len(), all.len());
    for number in 0..5 {
        let new = enrol(&site, &format!("after-{number}"));
        assert!(serials.insert(serial_of(&new)), "a serial was used twice");
    }
    // The administrator's credentials work, and so does a revocation.
    site.revoke("w0-1");
    assert!(
        get_crl(&site.admin())
            .serials()
            .any(|serial| serial == serial_of(&before["w0-1"]))
    );
    let data = site.data();
    site.into_folder();
    ledger_is_sound(&data);
}

/// Where serials are counted, the restored counter is past everything that the lost server may have used.
#[test]
fn counted_serials_leave_a_gap_after_a_restore() {
    let site = Site::start(&[]);
    let (data, folder) = (site.data(), site.into_folder());
    commit(&data, |_| Change {
        writes: vec![Write::CountSerials {
            issuer: IssuerId::parse("puppet").unwrap(),
            next: 0x100,
        }],
        ..Change::default()
    });
    let site = Site::around(data.clone(), serve(&data, &["--autosign", "true"]));
    let first = serial_of(&enrol(&site, "first")).to_u64().unwrap();
    assert!((0x100..0x110).contains(&first), "{first:x}");
    let (file, restored) = (folder.path().join("b.tar"), folder.path().join("restored"));
    assert!(backup(&data, &file, &[]).success());
    let lost = serial_of(&enrol(&site, "lost")).to_u64().unwrap();
    site.into_folder();

    let finished = restore(&file, &restored);
    let told = "serials of puppet go on at ";
    assert!(finished.stdout.contains(told), "{finished}");
    let site = Site::around(restored.clone(), serve(&restored, &["--autosign", "true"]));
    let after = serial_of(&enrol(&site, "lost")).to_u64().unwrap();
    assert!(after >= lost + 999_000, "{lost} {after}");
    assert!(
        finished.stdout.contains(&format!("{told}{after}")),
        "{finished}"
    );
}

/// A crafted archive would otherwise run code: with the first request, or with the first change of a table.
#[test]
fn a_database_with_more_than_its_schema_is_not_restored() {
    let folder = quiet_site();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    // Whoever closes a database last takes its write-ahead log into it.
    tamper(&data.join("countersign.db"), "SELECT count(*) FROM audit");
    let untouched = fs::read(data.join("countersign.db")).unwrap();
    for (sql, told) in [
        (
            "CREATE TRIGGER spy AFTER INSERT ON audit BEGIN DELETE FROM audit_seals; END",
            "trigger spy",
        ),
        (
            "CREATE VIEW everything AS SELECT * FROM audit",
            "view everything",
        ),
        ("CREATE TABLE more (x)", "table more"),
        (
            "DROP INDEX certificates_ending",
            "index certificates_ending",
        ),
    ] {
        fs::write(data.join("countersign.db"), &untouched).unwrap();
        tamper(&data.join("countersign.db"), sql);
        let saved = backup(&data, &file, &["--force"]);
        assert!(saved.success(), "{saved}");
        let target = folder.path().join("restored");
        let refused = restore(&file, &target);
        assert_eq!(refused.code, Some(1), "{sql}: {refused}");
        let said = format!("has another schema than its version ({told})");
        assert!(refused.stderr.contains(&said), "{sql}: {refused}");
        assert!(!target.exists(), "{sql}");
    }
}

/// Everything has the mode it had, but nothing is a program, and nobody else can read a backup or what is restored from it.
#[test]
fn backups_and_what_is_restored_are_private() {
    let folder = quiet_site();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    fs::write(data.join("autosign.conf"), b"#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(
        data.join("autosign.conf"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    fs::write(data.join("admin/.draft.new"), b"left by a crash").unwrap();
    generated(&data);
    let finished = backup(&data, &file, &[]);
    assert!(finished.success(), "{finished}");
    assert!(
        finished.stdout.contains("holds the issuers' private keys"),
        "{finished}"
    );
    assert_eq!(mode(&file), 0o600);
    let names = names(folder.path());
    assert_eq!(names, ["b.tar", "data"], "nothing else is left");

    let listed = manifest(&file);
    assert_eq!(listed["format"], 1);
    let paths: Vec<&str> = listed["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    for path in [
        "countersign.db",
        "autosign.conf",
        "issuers/puppet/ca_key.pem",
        "issuers/kubernetes/ca_crl.pem",
        "tls/puppet-key.pem",
        "admin/kubeconfig",
        "ssl/certs/web01.pem",
        "ssl/private_keys/web01.pem",
        "ssl/public_keys/web01.pem",
    ] {
        assert!(paths.contains(&path), "{paths:?}");
    }
    assert_eq!(paths[0], "countersign.db");
    assert!(
        !paths
            .iter()
            .any(|path| path.contains("draft") || path.contains("lock"))
    );

    let restored = folder.path().join("restored");
    fs::create_dir(&restored).unwrap();
    let finished = restore(&file, &restored);
    assert!(finished.success(), "{finished}");
    assert_eq!(mode(&restored), 0o700);
    for path in paths.iter().filter(|path| **path != "countersign.db") {
        let (old, new) = (data.join(path), restored.join(path));
        assert_eq!(fs::read(&old).unwrap(), fs::read(&new).unwrap(), "{path}");
        let mode_without_programs = mode(&old) & 0o666;
        assert_eq!(mode(&new), mode_without_programs, "{path}");
    }
    let told = "autosign.conf was a program and is not run now";
    assert!(finished.stdout.contains(told), "{finished}");
    assert_eq!(mode(&restored.join("countersign.db")), 0o600);
    assert!(!names_of(&restored).iter().any(|name| name.starts_with('.')));

    // A name that is taken stays as it is, unless it is to be replaced.
    let before = fs::read(&file).unwrap();
    let refused = backup(&data, &file, &[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("exists already"), "{refused}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(backup(&data, &file, &["--force"]).success());
    assert_eq!(mode(&file), 0o600);
    // And so does a directory that holds something.
    let refused = restore(&file, &data);
    assert!(refused.stderr.contains("is not empty"), "{refused}");
    let nowhere = backup(
        &folder.path().join("none"),
        &folder.path().join("c.tar"),
        &[],
    );
    assert!(nowhere.stderr.contains("--data"), "{nowhere}");
    assert!(!folder.path().join("c.tar").exists() && !folder.path().join("none").exists());
}

/// Without keys, the restore says what is missing, and the server starts once it is there.
#[test]
fn a_backup_without_keys_needs_them_from_elsewhere() {
    let folder = quiet_site();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    generated(&data);
    let finished = backup(&data, &file, &["--without-keys"]);
    assert!(finished.success(), "{finished}");
    assert!(
        finished.stdout.contains("\n  ssl/private_keys/web01.pem"),
        "{finished}"
    );
    let bytes = fs::read(&file).unwrap();
    let label = b"PRIVATE KEY";
    assert!(!bytes.windows(label.len()).any(|part| part == label));
    assert!(!String::from_utf8_lossy(&bytes).contains("client-key-data"));

    let restored = folder.path().join("restored");
    let finished = restore(&file, &restored);
    assert!(restored.join("ssl/certs/web01.pem").exists());
    assert!(
        finished.stdout.contains("nobody makes them anew:\n"),
        "{finished}"
    );
    let key = restored.join("issuers/puppet/ca_key.pem");
    assert!(
        finished.stdout.contains(key.to_str().unwrap()),
        "{finished}"
    );
    let installation = ["serve", "--data", restored.to_str().unwrap()];
    let listen = [
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        "127.0.0.1:0",
    ];
    let refused = run(&[&installation[..], &listen].concat());
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("ca_key.pem is missing"),
        "{refused}"
    );
    for issuer in ["puppet", "kubernetes"] {
        let path = format!("issuers/{issuer}/ca_key.pem");
        fs::copy(data.join(&path), restored.join(&path)).unwrap();
    }
    let site = Site::around(restored.clone(), serve(&restored, &["--autosign", "true"]));
    enrol(&site, "works");
    site.revoke("works");
}

/// Any damage, at any place, is found before anything is written.
#[test]
fn damaged_backups_are_refused_and_nothing_is_written() {
    let folder = quiet_site();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    assert!(backup(&data, &file, &[]).success());
    let sound = fs::read(&file).unwrap();
    let bad = folder.path().join("bad.tar");
    let target = folder.path().join("restored");
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&bad, bytes).unwrap();
        let finished = restore(&bad, &target);
        assert_eq!(finished.code, Some(1), "{what}: {finished}");
        assert!(finished.stderr.contains("bad.tar"), "{what}: {finished}");
        assert_eq!(names(folder.path()), ["b.tar", "bad.tar", "data"], "{what}");
        finished.stderr
    };
    let content_end = sound.len() - 1024;
    for part in 0..8 {
        // Into content: headers and padding are met too, over the parts.
        let at = content_end * part / 8 + 600;
        let mut flipped = sound.clone();
        flipped[at] ^= 0x40;
        if is_padding(&sound, at) {
            continue;
        }
        refused(&flipped, &format!("octet {at}"));
    }
    for length in [0, 1, 511, 512, 4000, sound.len() / 2, content_end - 1024] {
        refused(&sound[..length], &format!("{length} octets"));
    }
    let text = refused(b"this is a letter, not an archive", "a letter");
    assert!(text.contains("is not a backup of this program"), "{text}");

    let mut other = tar::Builder::new(Vec::new());
    append(&mut other, "readme", b"hello");
    let text = refused(&other.into_inner().unwrap(), "somebody's archive");
    assert!(text.contains("is not a backup of this program"), "{text}");
    let text = refused(
        &forged(|manifest| manifest["format"] = 2.into(), "x"),
        "format 2",
    );
    assert!(text.contains("format 2"), "{text}");
    for name in [
        "../escaped",
        "/tmp/escaped",
        "tls/../../escaped",
        "server.json",
    ] {
        let rename = |manifest: &mut Value| manifest["files"][1]["path"] = name.into();
        let text = refused(&forged(rename, name), name);
        assert!(text.contains("no file of a data directory"), "{text}");
    }
    // A sound archive around a database that is none.
    let text = refused(&forged(|_| {}, "autosign.conf"), "rubbish for a database");
    assert!(text.contains("countersign.db"), "{text}");
    let newer = refused(
        &forged(|manifest| manifest["schema"] = 4000.into(), "autosign.conf"),
        "schema",
    );
    assert!(newer.contains("schema 4000"), "{newer}");
}

/// However early or late a backup is killed, there is a whole one or none; the next one takes over what is left.
#[test]
fn a_killed_backup_leaves_no_backup() {
    let folder = large_site();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    let arguments = [
        "backup",
        file.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ];
    let mut killed = 0;
    for delay in DELAYS {
        let ended = killed_after(&arguments, delay);
        if file.exists() {
            let target = folder.path().join("restored");
            let finished = restore(&file, &target);
            assert!(finished.success(), "after {delay} ms: {finished}");
            fs::remove_dir_all(&target).unwrap();
            fs::remove_file(&file).unwrap();
        } else {
            assert!(!ended, "it ended by itself, without a backup");
            killed += 1;
        }
    }
    assert!(killed > 2, "only {killed} were killed in time");
    let finished = backup(&data, &file, &[]);
    assert!(finished.success(), "{finished}");
    assert_eq!(names(folder.path()), ["b.tar", "data"]);
}

/// However early or late a restore is killed, the directory is whole or not there; the next one clears what is left.
#[test]
fn a_killed_restore_leaves_no_directory() {
    let folder = large_site();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    assert!(backup(&data, &file, &[]).success());
    let target = folder.path().join("restored");
    let arguments = [
        "restore",
        file.to_str().unwrap(),
        "--data",
        target.to_str().unwrap(),
    ];
    let mut killed = 0;
    for delay in DELAYS {
        let ended = killed_after(&arguments, delay);
        if target.exists() {
            ledger_is_sound(&target);
            for path in [
                "issuers/puppet/ca_key.pem",
                "tls/puppet.pem",
                "admin/kubeconfig",
            ] {
                assert!(target.join(path).exists(), "{path} after {delay} ms");
            }
            fs::remove_dir_all(&target).unwrap();
        } else {
            assert!(!ended, "it ended by itself, without a directory");
            killed += 1;
        }
    }
    assert!(killed > 2, "only {killed} were killed in time");
    let finished = restore(&file, &target);
    assert!(finished.success(), "{finished}");
    assert_eq!(names(folder.path()), ["b.tar", "data", "restored"]);

    // What no restore has left is not removed.
    fs::remove_dir_all(&target).unwrap();
    let letters = folder.path().join("restored.partial");
    fs::create_dir(&letters).unwrap();
    fs::write(letters.join("letter"), b"dear").unwrap();
    let finished = restore(&file, &target);
    assert!(finished.stderr.contains("move it away"), "{finished}");
    assert!(letters.join("letter").exists() && !target.exists());
}

/// Milliseconds until the kill; the last is longer than the work takes.
const DELAYS: [u64; 10] = [0, 10, 20, 40, 60, 100, 150, 250, 400, 20_000];

fn backup(data: &Path, file: &Path, more: &[&str]) -> Finished {
    let own = [
        "backup",
        file.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ];
    run(&[&own, more].concat())
}

fn restore(file: &Path, data: &Path) -> Finished {
    run(&[
        "restore",
        file.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ])
}

/// Runs the program and kills it; whether it had ended before.
fn killed_after(arguments: &[&str], delay: u64) -> bool {
    let mut command = Command::new(binary());
    command.args(arguments).env_remove("COUNTERSIGN_DATA");
    match run_with_deadline(command, Duration::from_millis(delay)) {
        Ok(_) => true,
        Err(RunFault::Deadline { .. }) => false,
        Err(fault) => panic!("{fault}"),
    }
}

/// The data directory of a server that has stopped.
fn quiet_site() -> TempDir {
    Site::start(&[]).into_folder()
}

/// Adds what `ca generate` makes.
fn generated(data: &Path) {
    let mut server = serve(data, &[]);
    let data = data.to_str().unwrap();
    let made = run(&["ca", "generate", "--certname", "web01", "--data", data]);
    assert!(made.success(), "{made}");
    server.stop();
}

/// The same, with enough in it that a backup takes a while.
fn large_site() -> TempDir {
    let folder = quiet_site();
    for _ in 0..48 {
        commit(&folder.path().join("data"), |now| Change {
            audit: vec![AuditEntry::own(now, "crl", String::new()).detail("x".repeat(1024 * 1024))],
            ..Change::default()
        });
    }
    folder
}

fn commit(data: &Path, change: impl Fn(UnixTime) -> Change) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = SqliteStore::open(&data.join("countersign.db")).unwrap();
    runtime
        .block_on(store.commit(change(UnixTime(1_800_000_000))))
        .unwrap();
}

/// No certificate without a decision, nothing half done, and every certificate is what its entry says.
fn ledger_is_sound(data: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = SqliteStore::open(&data.join("countersign.db")).unwrap();
    runtime.block_on(async {
        assert!(store.open_intents().await.unwrap().is_empty());
        assert_eq!(store.epoch().await.unwrap(), 1);
        for issuer in ["puppet", "kubernetes"] {
            let issuer = IssuerId::parse(issuer).unwrap();
            let ledger = store.ledger(&issuer, None, 100_000).await.unwrap();
            assert!(!ledger.is_empty());
            for (_, entry) in ledger {
                assert_eq!(entry.explanation.effect, Effect::Approve);
                assert_eq!(
                    Certificate::parse(&entry.der).unwrap().serial(),
                    entry.serial
                );
            }
        }
    });
}

fn enrol(site: &Site, name: &str) -> Vec<u8> {
    enrol_as(&site.anonymous(), name)
}

fn enrol_as(agent: &HttpsClient, name: &str) -> Vec<u8> {
    let put = put_request(agent, name, &puppet_request(name));
    assert_eq!(put.status, 200, "{}", put.text());
    fetch_as(agent, name)
}

fn fetch(site: &Site, name: &str) -> Vec<u8> {
    fetch_as(&site.anonymous(), name)
}

fn fetch_as(agent: &HttpsClient, name: &str) -> Vec<u8> {
    let got = get_certificate(agent, name);
    assert_eq!(got.status, 200, "{name}: {}", got.text());
    got.body
}

fn serial_of(text: &[u8]) -> Serial {
    read_certificate(text).serial()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The names in a folder, without those that the tests' own servers use.
fn names(folder: &Path) -> Vec<String> {
    let mut names = names_of(folder);
    names.retain(|name| name != "kubectl-home");
    names
}

fn names_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn manifest(file: &Path) -> Value {
    let mut archive = tar::Archive::new(File::open(file).unwrap());
    let mut first = archive.entries().unwrap().next().unwrap().unwrap();
    assert_eq!(first.path().unwrap(), PathBuf::from("manifest.json"));
    let mut text = String::new();
    first.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Whether an octet lies between the end of an entry's content and the next header, where nothing is kept.
fn is_padding(archive: &[u8], at: usize) -> bool {
    let mut archive = tar::Archive::new(archive);
    archive.entries().unwrap().all(|entry| {
        let entry = entry.unwrap();
        let content = usize::try_from(entry.raw_file_position()).unwrap();
        let end = content + usize::try_from(entry.size()).unwrap();
        !(content - 512..end).contains(&at)
    })
}

/// An archive whose digests are right and whose manifest is not the program's own.
fn forged(change: impl Fn(&mut Value), second: &str) -> Vec<u8> {
    let digest = |content: &[u8]| countersign_pki::fingerprint_sha256(content).to_hex();
    let listed = |path: &str| {
        let content = b"forged";
        serde_json::json!({
            "path": path, "size": content.len(), "mode": "0600", "sha256": digest(content),
        })
    };
    let mut manifest = serde_json::json!({
        "format": 1, "program": "0.1.0", "made": "2026-01-02T03:04:05Z", "schema": 1, "revision": 1,
        "files": [listed("countersign.db"), listed(second)], "left_out": [],
    });
    change(&mut manifest);
    let text = manifest.to_string();
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "manifest.json", text.as_bytes());
    append(
        &mut archive,
        "manifest.sha256",
        digest(text.as_bytes()).as_bytes(),
    );
    append(&mut archive, "countersign.db", b"forged");
    append(&mut archive, second, b"forged");
    archive.into_inner().unwrap()
}

/// Adds an entry under a name that a careful builder would refuse.
fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(content.len() as u64);
    header.set_mode(0o600);
    header.set_cksum();
    archive.append(&header, content).unwrap();
}
