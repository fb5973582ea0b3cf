//! The audit log from outside: what happened is in it, it is sealed, and whoever changes it behind the server's back is
//! found out.

use std::fs;
use std::path::{Path, PathBuf};

use countersign_store_suite::tamper;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::Finished;
use countersign_testkit::keys;
use serde_json::Value;

use crate::cadir_takeover;
use crate::commands::wait_until;
use crate::installation::run;
use crate::site::{Site, get_certificate, get_crl, puppet_request, put_request, serve};

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
        Self::of(site, &checkpoint)
    }

    fn of(site: Site, checkpoint: &Value) -> Self {
        Self::within(site.into_folder(), checkpoint)
    }

    /// Whose data directory is in this one.
    fn within(folder: tempfile::TempDir, checkpoint: &Value) -> Self {
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

    /// Replaces the database by the untouched copy.
    fn put_back(&self) {
        for left in ["countersign.db-wal", "countersign.db-shm"] {
            let _none_is_left = fs::remove_file(self.data().join(left));
        }
        fs::copy(self.untouched(), self.database()).unwrap();
    }

    /// What `verify` says after the database was changed by these statements.
    fn after(&self, sql: &str, arguments: &[&str]) -> Finished {
        self.put_back();
        assert!(tamper(&self.database(), sql) > 0, "{sql}");
        self.verify(arguments)
    }
}

/// Where the entries of web02's request and of its certificate stand.
const REQUEST: &str =
    "(SELECT revision, seq FROM audit WHERE entry LIKE '%\"request\"%puppet/web02%')";
const ISSUE: &str =
    "(SELECT revision, seq FROM audit WHERE entry LIKE '%\"issue\"%' AND entry LIKE '%web02%')";

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
            format!("UPDATE audit SET entry = replace(entry, 'web02', 'web20') WHERE (revision, seq) = {REQUEST}"),
            "was changed after it was sealed",
        ),
        (
            "an entry made unreadable",
            format!("UPDATE audit SET entry = 'x' WHERE (revision, seq) = {REQUEST}"),
            "was changed after it was sealed",
        ),
        (
            "an entry dropped",
            format!("DELETE FROM audit WHERE (revision, seq) = {REQUEST}"),
            "is missing: between entries ",
        ),
        (
            "an entry inserted",
            format!("INSERT INTO audit SELECT revision, seq + 7, entry FROM audit WHERE (revision, seq) = {REQUEST}"),
            "was added after its neighbours were sealed",
        ),
        (
            "entries exchanged",
            format!(
                "CREATE TEMP TABLE pair AS SELECT a.*, b.revision AS other, b.seq AS place FROM {REQUEST} a, {ISSUE} b;
                 UPDATE audit SET seq = 900 WHERE (revision, seq) = (SELECT revision, seq FROM pair);
                 UPDATE audit SET (revision, seq) = (SELECT revision, seq FROM pair)
                     WHERE (revision, seq) = (SELECT other, place FROM pair);
                 UPDATE audit SET (revision, seq) = (SELECT other, place FROM pair) WHERE seq = 900"
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
                "DELETE FROM audit_seals WHERE last_revision >= (SELECT revision FROM {REQUEST});
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
        "DELETE FROM audit_seals WHERE last_revision >= (SELECT revision FROM {REQUEST});
         DELETE FROM audit WHERE revision >= (SELECT revision FROM {REQUEST})"
    );
    let remembered = log.after(&cut, &[]);
    assert_eq!(remembered.code, Some(1), "{remembered}");
    assert!(remembered.stderr.contains(CUT_OFF), "{remembered}");
    // Whoever could write the database could delete the file beside it.
    fs::remove_file(log.data().join("witness.json")).unwrap();
    let unsealed = log.verify(&[]);
    assert!(unsealed.stdout.contains("is intact"), "{unsealed}");
    let told = "is in the ledger, but the audit log does not tell that it was issued";
    assert!(unsealed.stderr.contains(told), "{unsealed}");
    let noticed = log.verify(&["--checkpoint", log.checkpoint.to_str().unwrap()]);
    assert_eq!(noticed.code, Some(1), "{noticed}");
    assert!(noticed.stderr.contains(CUT_OFF), "{noticed}");
    let text = fs::read_to_string(&log.checkpoint).unwrap();
    fs::write(&log.checkpoint, text.replace("\"count\":", "\"count\":1")).unwrap();
    let forged = log.verify(&["--checkpoint", log.checkpoint.to_str().unwrap()]);
    assert_eq!(forged.code, Some(1), "{forged}");
    assert!(
        forged.stderr.contains("the checkpoint was changed"),
        "{forged}"
    );
}

const CUT_OFF: &str = "the log ends before the checkpoint";

/// A stopped server that has issued certificates, revoked one and seen a token used.
fn busy() -> Stopped {
    let site = Site::configured("tokens: {enabled: true}\n", &["--autosign", "true"]);
    for name in ["web01", "web02"] {
        enrol(&site, name);
    }
    site.revoke("web02");
    let token = on(&site.data(), &["token", "create", "web03"]);
    let request = CsrBuilder::new("web03").challenge_password(token.stdout.trim_end());
    let request = request.sign_pem(keys::p256_a());
    assert_eq!(
        put_request(&site.anonymous(), "web03", &request).status,
        200
    );
    assert_eq!(site.certificate("web03").status, 200);
    let checkpoint = sealed(&site.data());
    Stopped::of(site, &checkpoint)
}

#[test]
fn whoever_changes_ledger_or_tokens_of_a_stopped_server_is_found_out() {
    let log = busy();
    let agree = log.verify(&[]);
    assert!(agree.success(), "{agree}");
    let told = "of them revoked 1, uses of tokens 1.\n";
    assert!(agree.stdout.ends_with(told), "{agree}");
    for (what, sql, told) in [
        (
            "a certificate deleted",
            "DELETE FROM certificates WHERE name = 'web01'",
            "was issued, but is missing in the ledger",
        ),
        (
            "a certificate added",
            "INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before, not_after, explanation, der)
             SELECT issuer, x'7001', state, request, signer, 'thief', key_fingerprint, not_before, not_after, explanation, der
             FROM certificates WHERE name = 'web01'",
            "of \"thief\" is in the ledger, but the audit log does not tell that it was issued",
        ),
        (
            "a revocation undone",
            "UPDATE certificates SET revoked_at = NULL, revoked_reason = NULL, revoked_revision = NULL WHERE name = 'web02'",
            "was revoked, but the ledger does not say so",
        ),
        (
            "a revocation added",
            "UPDATE certificates SET revoked_at = not_before, revoked_reason = 0 WHERE name = 'web01'",
            "of \"web01\" is revoked, but the audit log does not tell of that",
        ),
        (
            "a revocation kept from the CRL",
            "UPDATE certificates SET unlisted = 1 WHERE name = 'web02'",
            "of \"web02\" is revoked and not on the CRL",
        ),
        (
            "the use of a token deleted",
            "DELETE FROM token_uses",
            "but that use is missing",
        ),
        (
            "a token deleted with its use",
            "DELETE FROM token_uses; DELETE FROM tokens",
            "was minted, but is missing",
        ),

        (
            "a token added",
            "INSERT INTO tokens (id, mac, mac_key_id, kind, value, not_before, expires_at, max_uses, uses, standing, terms,
                                 created_by, external_ref, note, created_at, failed_uses, epoch, version, phase)
             SELECT 'aaaqeayeaudaocaj', mac, mac_key_id, kind, value, not_before, expires_at, max_uses, 0, standing, terms,
                    created_by, external_ref, note, created_at, failed_uses, epoch, version, 'open' FROM tokens",
            "token aaaqeayeaudaocaj is on record, but the audit log does not tell that it was minted",
        ),
        (
            "the use of a token added",
            "INSERT INTO token_uses (token, certname, key_fingerprint, state, at, retry_until)
             SELECT token, certname, zeroblob(32), state, at, retry_until FROM token_uses",
            "but the audit log does not tell of that",
        ),
    ] {
        let found = log.after(sql, &[]);
        assert_eq!(found.code, Some(1), "{what}: {found}");
        assert!(found.stderr.contains(told), "{what}: {found}");
        assert!(found.stderr.contains("in 1 points"), "{what}: {found}");
        let json = log.verify(&["-o", "json"]);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["intact"], false, "{what}: {json}");
        assert_eq!(json["reconciliation"]["found"], 1, "{what}: {json}");
    }
}

/// They have no entries of their own.
#[test]
fn whoever_changes_imported_certificates_of_a_stopped_server_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let cadir = cadir_takeover::site(&folder.path().join("ca"));
    let data = folder.path().join("data");
    cadir_takeover::expect("import", &cadir.folder, &data);
    drop(serve(&data, &[]));
    let log = Stopped::within(folder, &Value::Null);
    let agree = log.verify(&[]);
    assert!(agree.success(), "{agree}");
    for (what, sql) in [
        ("deleted", "DELETE FROM certificates WHERE name = 'web01'"),
        (
            "not revoked any more",
            "UPDATE certificates SET revoked_at = NULL, revoked_reason = NULL, revoked_revision = NULL WHERE name = 'web02'",
        ),
        (
            "revoked",
            "UPDATE certificates SET revoked_at = not_before, revoked_reason = 0 WHERE name = 'web01'",
        ),
        (
            "added",
            "INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before, not_after, explanation, der)
             SELECT issuer, x'7001', state, request, signer, 'thief', key_fingerprint, not_before, not_after, explanation, der
             FROM certificates WHERE name = 'web01'",
        ),
    ] {
        let found = log.after(sql, &[]);
        assert_eq!(found.code, Some(1), "{what}: {found}");
        let told = "certificates that were imported into puppet at";
        assert!(found.stderr.contains(told), "{what}: {found}");
        assert!(found.stderr.contains("in 1 points"), "{what}: {found}");
    }
}

#[test]
fn a_running_server_is_reconciled_too() {
    let site = Site::start(&["--autosign", "true"]);
    enrol(&site, "web01");
    let data = site.data();
    sealed(&data);
    tamper(
        &data.join("countersign.db"),
        "DELETE FROM certificates WHERE name = 'web01'",
    );
    let found = on(&data, &["audit", "verify"]);
    assert_eq!(found.code, Some(1), "{found}");
    let told = "was issued, but is missing in the ledger";
    assert!(found.stderr.contains(told), "{found}");
}

/// What a server says that does not start.
fn refused_start(data: &Path) -> String {
    let addresses = ["--listen", "127.0.0.1:0", "--kubernetes-listen", "off"];
    let ended = on(data, &[&["serve"], &addresses[..]].concat());
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_eq!(ended.stdout, "", "{ended}");
    ended.stderr
}

/// The number of the CRL that is served.
fn crl_number(site: &Site) -> u64 {
    get_crl(&site.anonymous()).number().unwrap()
}

#[test]
fn an_older_database_is_refused_until_somebody_decides_to_go_on_from_it() {
    let site = Site::start(&["--autosign", "true"]);
    enrol(&site, "web01");
    let checkpoint = sealed(&site.data());
    let log = Stopped::of(site, &checkpoint);

    let server = serve(&log.data(), &["--autosign", "true"]);
    let site = Site::around(log.data(), server);
    site.revoke("web01");
    let number = crl_number(&site);
    sealed(&log.data());
    site.into_folder();
    tamper(&log.database(), "SELECT count(*) FROM audit");
    let newer = fs::read(log.database()).unwrap();

    log.put_back();
    let refused = refused_start(&log.data());
    for said in [
        "countersign.db is not the database that this authority used last",
        "its audit log ends with seal ",
        "countersign restore --in-place",
    ] {
        assert!(refused.contains(said), "{said}: {refused}");
    }
    // Nor do commands work on it without a server: they would publish its CRL.
    let published = fs::read(log.data().join("issuers/puppet/ca_crl.pem")).unwrap();
    for command in [&["ca", "prune"][..], &["ca", "delete", "--expired"]] {
        let refused = on(&log.data(), command);
        assert_eq!(refused.code, Some(1), "{refused}");
        let said = "is not the database that this authority used last";
        assert!(refused.stderr.contains(said), "{refused}");
    }
    let after = fs::read(log.data().join("issuers/puppet/ca_crl.pem")).unwrap();
    assert_eq!(after, published);
    // The newer one is not touched by that, and goes on.
    log.put_back();
    fs::write(log.database(), &newer).unwrap();
    let server = serve(&log.data(), &[]);
    Site::around(log.data(), server).into_folder();

    log.put_back();
    let decided = on(&log.data(), &["restore", "--in-place"]);
    assert!(decided.success(), "{decided}");
    assert!(decided.stdout.contains("epoch 1"), "{decided}");
    let server = serve(&log.data(), &["--autosign", "true"]);
    let site = Site::around(log.data(), server);
    assert!(crl_number(&site) > number, "{number}");
    enrol(&site, "web02");
    sealed(&log.data());
    let verified = on(&log.data(), &["audit", "verify"]);
    assert!(verified.success(), "{verified}");
}

#[test]
fn a_database_that_was_deleted_is_not_made_anew() {
    let log = Stopped::new();
    fs::remove_file(log.database()).unwrap();
    let refused = refused_start(&log.data());
    assert!(
        refused.contains("countersign.db is missing, and this authority had one"),
        "{refused}"
    );
    let refused = on(&log.data(), &["ca", "prune"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("countersign.db is missing"),
        "{refused}"
    );
    assert!(!log.database().exists());
}

#[test]
fn a_forged_history_is_not_sealed_anew() {
    let log = Stopped::new();
    let forged = format!(
        "DELETE FROM audit_seals WHERE number > 1;
         UPDATE audit SET entry = replace(entry, 'web02', 'web20') WHERE (revision, seq) = {REQUEST}"
    );
    log.after(&forged, &[]);
    let refused = refused_start(&log.data());
    assert!(
        refused.contains("its audit log ends with seal 1"),
        "{refused}"
    );
    // Nor with another memory: it is signed.
    let file = log.data().join("witness.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"epoch\": 0", "\"epoch\": 1")).unwrap();
    let refused = refused_start(&log.data());
    assert!(
        refused.contains("witness.json was changed, or not made with the audit key"),
        "{refused}"
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
