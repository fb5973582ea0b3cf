//! The audit log from outside: what happened is in it, it is sealed, and whoever changes it behind the server's back is
//! found out.

use std::fs;
use std::path::{Path, PathBuf};

use countersign_store::suite::tamper;
use countersign_testkit::deadline::Finished;
use serde_json::Value;

use crate::commands::wait_until;
use crate::installation::run;
use crate::site::{Site, get_certificate, puppet_request, put_request, serve};

fn on(data: &Path, arguments: &[&str]) -> Finished {
    run(&[arguments, &["--data", data.to_str().unwrap()]].concat())
}

fn enrol(site: &Site, name: &str) {
    let agent = site.anonymous();
    let taken = put_request(&agent, name, &puppet_request(name));
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(get_certificate(&agent, name).status, 200);
}

/// The newest checkpoint, once everything is sealed.
fn sealed(data: &Path) -> Value {
    wait_until("everything is sealed", || {
        let verified = on(data, &["audit", "verify", "-o", "json"]);
        assert!(verified.success(), "{verified}");
        let found: Value = serde_json::from_str(&verified.stdout).unwrap();
        found["unsealed"] == 0 && found["checkpoint"]["number"].as_u64() > Some(0)
    });
    let shown = on(data, &["audit", "show", "--checkpoint", "-o", "json"]);
    serde_json::from_str(&shown.stdout).unwrap()
}

fn exported(data: &Path, filters: &[&str]) -> Vec<Value> {
    let exported = on(data, &[&["audit", "export"], filters].concat());
    assert!(exported.success(), "{exported}");
    let lines = exported.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn entries_are_shown_and_exported() {
    let site = Site::start(&[]);
    let data = site.data();
    assert_eq!(site.ask("web01.example.com").status, 200);
    assert_eq!(site.ask("web02.example.com").status, 200);
    let name = "web01.example.com";
    let approved = on(&data, &["csr", "approve", name, "--reason", "ticket 7"]);
    assert!(approved.success(), "{approved}");
    let denied = on(&data, &["csr", "deny", "web02.example.com"]);
    assert!(denied.success(), "{denied}");
    site.revoke(name);

    let all = exported(&data, &[]);
    assert!(all.len() > 6);
    let of_name = exported(&data, &["--certname", name]);
    let events: Vec<&str> = of_name
        .iter()
        .map(|entry| entry["event"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["request", "approve", "issue", "revoke"]);
    let one = |event: &str| {
        of_name
            .iter()
            .find(|entry| entry["event"] == event)
            .unwrap()
    };
    assert_eq!(one("issue")["serial"], one("revoke")["serial"]);
    assert_eq!(one("request")["spki_sha256"], one("issue")["spki_sha256"]);
    assert_eq!(one("request")["csr_sha256"], one("approve")["csr_sha256"]);
    assert_eq!(one("request")["request_id"], one("issue")["request_id"]);
    assert_eq!(one("request")["source"], "127.0.0.1");
    assert_eq!(one("request")["actor"], "anonymous");
    assert_eq!(one("approve")["detail"], "ticket 7");
    let since = exported(&data, &["--event", "deny", "--since", "1h"]);
    assert_eq!(since.len(), 1);
    assert_eq!(exported(&data, &["--until", "1h"]).len(), 0);

    // The order of members is the same for every entry, and none is left out.
    let lines = on(&data, &["audit", "export"]);
    for line in lines.stdout.lines() {
        let mut rest = line;
        for member in [
            "time",
            "request_id",
            "event",
            "certname",
            "token_id",
            "reason",
            "spki_sha256",
            "csr_sha256",
            "source",
            "actor",
            "serial",
            "replica",
        ] {
            let (_, behind) = rest.split_once(&format!("\"{member}\":")).unwrap();
            rest = behind;
        }
    }
    let shown = on(&data, &["audit", "show", "--last", "2", "--certname", name]);
    assert!(shown.success(), "{shown}");
    let words: Vec<&str> = shown
        .stdout
        .lines()
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    assert_eq!(words, ["EVENT", "issue", "revoke"]);
    let none = on(&data, &["audit", "show", "--event", "nonsense"]);
    assert_eq!(none.stdout, "No entries.\n");
    let wrong = on(&data, &["audit", "show", "--since", "yesterday"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
}

/// The data directory of a stopped server whose log has several seals, and an untouched copy of its database.
struct Stopped {
    folder: tempfile::TempDir,
    checkpoint: PathBuf,
}

impl Stopped {
    fn new() -> Self {
        let site = Site::start(&["--autosign", "true"]);
        let mut checkpoint = Value::Null;
        for name in ["web01", "web02", "web03"] {
            enrol(&site, name);
            checkpoint = sealed(&site.data());
        }
        assert!(checkpoint["number"].as_u64() >= Some(3), "{checkpoint}");
        let folder = site.into_folder();
        let file = folder.path().join("checkpoint.json");
        fs::write(&file, checkpoint.to_string()).unwrap();
        let stopped = Self {
            folder,
            checkpoint: file,
        };
        // Whoever closes a database last takes its write-ahead log into it.
        tamper(&stopped.database(), "SELECT count(*) FROM audit");
        fs::copy(stopped.database(), stopped.untouched()).unwrap();
        stopped
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn database(&self) -> PathBuf {
        self.data().join("countersign.db")
    }

    fn untouched(&self) -> PathBuf {
        self.folder.path().join("untouched.db")
    }

    fn verify(&self, arguments: &[&str]) -> Finished {
        on(
            &self.data(),
            &[&["audit", "verify", "--offline"], arguments].concat(),
        )
    }

    /// What `verify` says after the database was changed by these statements.
    fn after(&self, sql: &str, arguments: &[&str]) -> Finished {
        for left in ["countersign.db-wal", "countersign.db-shm"] {
            let _none_is_left = fs::remove_file(self.data().join(left));
        }
        fs::copy(self.untouched(), self.database()).unwrap();
        assert!(tamper(&self.database(), sql) > 0, "{sql}");
        self.verify(arguments)
    }
}

/// The request of web02, and what stands before and behind it.
const REQUEST: &str = "(SELECT revision FROM audit WHERE entry LIKE '%\"request\"%puppet/web02%')";
const ISSUE: &str =
    "(SELECT revision FROM audit WHERE entry LIKE '%\"issue\"%' AND entry LIKE '%web02%')";

#[test]
fn whoever_changes_the_log_of_a_stopped_server_is_found_out() {
    let log = Stopped::new();
    let intact = log.verify(&["--checkpoint", log.checkpoint.to_str().unwrap()]);
    assert!(intact.success(), "{intact}");
    assert!(
        intact.stdout.starts_with("The audit log is intact: "),
        "{intact}"
    );
    for (what, sql, told) in [
        (
            "an entry edited",
            format!("UPDATE audit SET entry = replace(entry, 'web02', 'web20') WHERE revision = {REQUEST}"),
            "was changed after it was sealed",
        ),
        (
            "an entry made unreadable",
            format!("UPDATE audit SET entry = 'x' WHERE revision = {REQUEST}"),
            "was changed after it was sealed",
        ),
        (
            "an entry dropped",
            format!("DELETE FROM audit WHERE revision = {REQUEST}"),
            "is missing: between entries ",
        ),
        (
            "an entry inserted",
            format!("INSERT INTO audit SELECT revision, seq + 7, entry FROM audit WHERE revision = {REQUEST}"),
            "was added after its neighbours were sealed",
        ),
        (
            "entries exchanged",
            format!(
                "CREATE TEMP TABLE pair AS SELECT {REQUEST} AS a, {ISSUE} AS b;
                 UPDATE audit SET revision = 900000000 WHERE revision = (SELECT a FROM pair);
                 UPDATE audit SET revision = (SELECT a FROM pair) WHERE revision = (SELECT b FROM pair);
                 UPDATE audit SET revision = (SELECT b FROM pair) WHERE revision = 900000000"
            ),
            "changed places after they were sealed",
        ),
        (
            "a seal edited",
            "UPDATE audit_seals SET at = at + 1 WHERE number = 2".to_owned(),
            "seal 2 was changed",
        ),
        (
            "a seal dropped",
            "DELETE FROM audit_seals WHERE number = 2".to_owned(),
            "seal 2 is missing",
        ),
        (
            "seals exchanged",
            "UPDATE audit_seals SET number = -1 WHERE number = 1;
             UPDATE audit_seals SET number = 1 WHERE number = 2;
             UPDATE audit_seals SET number = 2 WHERE number = -1"
                .to_owned(),
            "seal 1 was changed",
        ),
        (
            "the hashes of a seal edited",
            "UPDATE audit_seals SET hashes = zeroblob(length(hashes)) WHERE number = 2".to_owned(),
            "the hashes in seal 2 were changed",
        ),
        (
            "a seal under another key",
            "UPDATE audit_seals SET key_id = zeroblob(32) WHERE number = 2".to_owned(),
            "seal 2 was made with a key that is not known here",
        ),
        (
            "an entry and its seals dropped",
            format!(
                "DELETE FROM audit_seals WHERE last_revision >= {REQUEST};
                 DELETE FROM audit WHERE revision = 1"
            ),
            "missing",
        ),
    ] {
        let found = log.after(&sql, &[]);
        assert_eq!(found.code, Some(1), "{what}: {found}");
        assert!(found.stderr.contains(told), "{what}: {found}");
    }
}

#[test]
fn a_checkpoint_shows_that_the_end_was_cut_off() {
    let log = Stopped::new();
    let cut = format!(
        "DELETE FROM audit_seals WHERE last_revision >= {REQUEST};
         DELETE FROM audit WHERE revision >= {REQUEST}"
    );
    let unnoticed = log.after(&cut, &[]);
    assert!(unnoticed.success(), "{unnoticed}");
    let noticed = log.verify(&["--checkpoint", log.checkpoint.to_str().unwrap()]);
    assert_eq!(noticed.code, Some(1), "{noticed}");
    assert!(
        noticed
            .stderr
            .contains("the log ends before the checkpoint"),
        "{noticed}"
    );
    let text = fs::read_to_string(&log.checkpoint).unwrap();
    fs::write(&log.checkpoint, text.replace("\"count\":", "\"count\":1")).unwrap();
    let forged = log.verify(&["--checkpoint", log.checkpoint.to_str().unwrap()]);
    assert_eq!(forged.code, Some(1), "{forged}");
    assert!(
        forged.stderr.contains("the checkpoint was changed"),
        "{forged}"
    );
}

#[test]
fn what_a_killed_server_did_not_seal_is_sealed_by_the_next_start() {
    let site = Site::start(&["--autosign", "true"]);
    let mut numbered = 0;
    let mut site = site;
    for round in 0..3 {
        for number in 0..5 {
            enrol(&site, &format!("web{round}-{number}"));
        }
        site.server.kill9();
        let data = site.data();
        let found = on(&data, &["audit", "verify", "--offline", "-o", "json"]);
        assert!(found.success(), "{found}");
        let found: Value = serde_json::from_str(&found.stdout).unwrap();
        let entries = found["entries"].as_u64().unwrap() + found["unsealed"].as_u64().unwrap();
        assert!(entries >= numbered + 10, "{found}");
        site = site.kill_and_restart(&["--autosign", "true"]);
        sealed(&data);
        numbered = entries;
    }
}

#[test]
fn a_restored_log_goes_on() {
    let site = Site::start(&["--autosign", "true"]);
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    enrol(&site, "web01");
    let before = sealed(&site.data());
    fs::write(path("before.json"), before.to_string()).unwrap();
    let archive = path("b.tar");
    let taken = on(&site.data(), &["backup", archive.to_str().unwrap()]);
    assert!(taken.success(), "{taken}");
    enrol(&site, "web02");
    let lost = sealed(&site.data());
    fs::write(path("lost.json"), lost.to_string()).unwrap();
    site.into_folder();

    let restored = path("restored");
    let made = on(&restored, &["restore", archive.to_str().unwrap()]);
    assert!(made.success(), "{made}");
    let server = serve(&restored, &["--autosign", "true"]);
    let site = Site::around(restored.clone(), server);
    enrol(&site, "web03");
    sealed(&restored);
    let restores = exported(&restored, &["--event", "restore"]);
    assert_eq!(restores.len(), 1);
    for (checkpoint, code) in [("before.json", 0), ("lost.json", 1)] {
        let file = path(checkpoint);
        let verified = on(
            &restored,
            &["audit", "verify", "--checkpoint", file.to_str().unwrap()],
        );
        assert_eq!(verified.code, Some(code), "{checkpoint}: {verified}");
    }
}
