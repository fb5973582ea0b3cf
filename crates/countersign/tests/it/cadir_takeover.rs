//! `ca import --cadir` and `ca export --cadir` on directories of the tests' making.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use countersign_pki::Serial;
use countersign_testkit::deadline::{Finished, run_with_deadline};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use serde_json::Value;

use crate::cadir::{CA_NAME, Cadir, PAST, YEARS};
use crate::site::{COUNTERSIGN, Site, get_crl, puppet_request, serve};

const OWN: &str = "/puppet-ca/v1/certificate_request/web03";

fn command(verb: &str, cadir: &Path, data: &Path) -> Command {
    let mut command = Command::new(COUNTERSIGN);
    command.args(["ca", verb, "--cadir"]).arg(cadir);
    command.arg("--data").arg(data);
    command
}

fn run(verb: &str, cadir: &Path, data: &Path) -> Finished {
    run_with_deadline(command(verb, cadir, data), Duration::from_secs(120)).unwrap()
}

#[track_caller]
pub(crate) fn expect(verb: &str, cadir: &Path, data: &Path) -> Finished {
    let finished = run(verb, cadir, data);
    assert!(finished.success(), "{finished}");
    finished
}

#[track_caller]
fn refused(verb: &str, cadir: &Path, data: &Path, sentence: &str) {
    let finished = run(verb, cadir, data);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished.stderr.contains(sentence),
        "no {sentence:?} in {finished}"
    );
}

/// Every file of a directory by its path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for below in ["", "signed", "requests"] {
        for entry in fs::read_dir(folder.join(below)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    all
}

/// What a site has after some years: a server, hosts that are signed, revoked, renewed, cleaned, ended and waiting.
pub(crate) fn site(folder: &Path) -> Cadir {
    let mut cadir = Cadir::new(folder);
    cadir.issue_admin("localhost");
    cadir.issue("web01");
    let web02 = cadir.issue("web02");
    cadir.issue("web03");
    let renewed = folder.join("web03-before.pem");
    fs::copy(folder.join("signed/web03.pem"), renewed).unwrap();
    let unknown = cadir.skip();
    cadir.issue("web03");
    let cleaned = cadir.line("web04", YEARS);
    cadir.line("web05", PAST);
    cadir.request("web06");
    cadir.finish(&[web02, cleaned, unknown], 7);
    cadir.write("infra_inventory.txt", "web03\n");
    cadir.write("infra_serials", "5\n7\n");
    cadir.write("infra_crl.pem", &cadir.read("ca_crl.pem"));
    cadir
}

#[test]
fn what_a_directory_holds_is_taken_over_and_written_back() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let cadir = site(&place("ca"));
    let said = expect("import", &cadir.folder, &place("data")).stdout;
    for (fact, value) in [
        ("issuer", "CN=Puppet CA: ca.example.com"),
        ("certificates", "4"),
        ("past certificates", "4"),
        ("revoked", "3"),
        ("requests", "1"),
        ("next serial", "000A"),
        ("CRL number", "7"),
        ("administrators", "localhost"),
        ("problems", "none"),
    ] {
        let line = said
            .lines()
            .find(|line| line.starts_with(&format!("{fact}:")));
        assert!(
            line.is_some_and(|line| line.ends_with(value)),
            "{fact} in {said}"
        );
    }

    expect("export", &place("once"), &place("data"));
    let (before, once) = (files(&cadir.folder), files(&place("once")));
    // The line of the authority itself is not one of a certificate.
    let lines = cadir.read("inventory.txt");
    let lines: Vec<&str> = lines
        .lines()
        .filter(|line| !line.contains(CA_NAME))
        .collect();
    let written = String::from_utf8(once["inventory.txt"].clone()).unwrap();
    assert_eq!(written.lines().collect::<Vec<_>>(), lines);
    for (name, content) in &before {
        match name.as_str() {
            "inventory.txt" | "web03-before.pem" => {}
            _ => assert_eq!(&once[name], content, "{name}"),
        }
    }
    for (name, mode) in [
        ("ca_key.pem", 0o640),
        ("ca_crt.pem", 0o644),
        ("signed/web01.pem", 0o644),
    ] {
        let facts = fs::metadata(place("once").join(name)).unwrap();
        assert_eq!(facts.permissions().mode() & 0o777, mode, "{name}");
    }

    expect("import", &place("once"), &place("data2"));
    expect("export", &place("twice"), &place("data2"));
    assert_eq!(once, files(&place("twice")));
    refused("export", &place("twice"), &place("data2"), "is not empty");
    refused(
        "import",
        &cadir.folder,
        &place("data2"),
        "holds an authority already",
    );
}

#[test]
fn a_server_goes_on_where_the_other_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let cadir = site(&folder.path().join("ca"));
    let data = folder.path().join("data");
    expect("import", &cadir.folder, &data);
    let server = serve(&data, &[]);
    let greeting = &server.greeting;
    assert!(greeting.starts_with("Took over the"), "{greeting}");
    let site = Site::around(data.clone(), server);
    assert_eq!(site.puppet_ca(), cadir.read("ca_crt.pem").into_bytes());

    let admin = site.admin();
    let statuses = |client: &HttpsClient| {
        let path = "/puppet-ca/v1/certificate_statuses/all";
        let answer = client.call("GET", path, &[], &[]).unwrap();
        let all: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
        let facts = |one: &Value| {
            (
                one["name"].as_str().unwrap().to_owned(),
                one["state"].as_str().unwrap().to_owned(),
            )
        };
        all.iter().map(facts).collect::<BTreeMap<_, _>>()
    };
    let state = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let expected = BTreeMap::from([
        state("countersign-admin", "signed"),
        state("localhost", "signed"),
        state("web01", "signed"),
        state("web02", "revoked"),
        state("web03", "signed"),
        state("web06", "requested"),
    ]);
    assert_eq!(statuses(&admin), expected);

    // The administrator of old is one here; a revoked host is nobody.
    let key = keys::p256_a().pkcs8_pem().as_bytes();
    let as_host = |file: &str| {
        let certificate = cadir.read(file);
        site.holder(certificate.as_bytes(), key)
    };
    assert_eq!(statuses(&as_host("signed/localhost.pem")), expected);
    assert!(
        as_host("signed/web02.pem")
            .call("GET", OWN, &[], &[])
            .is_err()
    );
    // Nobody but its own name is told that a name has no request; also by a certificate of which only a line is left.
    for file in ["signed/web03.pem", "web03-before.pem"] {
        assert_eq!(
            as_host(file).call("GET", OWN, &[], &[]).unwrap().status,
            404,
            "{file}"
        );
    }
    assert_eq!(
        site.anonymous().call("GET", OWN, &[], &[]).unwrap().status,
        403
    );

    // Serials and CRL numbers go on; the server and its administrator have had the first ones.
    assert_eq!(site.put_state("web06", "signed").status, 204);
    let path = "/puppet-ca/v1/certificate_status/web06";
    let status: Value =
        serde_json::from_slice(&admin.call("GET", path, &[], &[]).unwrap().body).unwrap();
    assert_eq!(status["serial_number"], 12);
    let number = || get_crl(&site.anonymous()).number().unwrap();
    assert!(number() >= 7, "never lower");
    for (name, revoked) in [("web03", 2), ("web04", 0)] {
        let before = number();
        site.revoke(name);
        assert_eq!(number() - before, u64::from(revoked > 0), "{name}");
    }
    // A cleaned name may come again, a revoked one not.
    let ask = |name: &str| site.ask(name).status;
    assert_eq!((ask("web04"), ask("web02")), (200, 400));
    refused(
        "export",
        &folder.path().join("out"),
        &data,
        "stop the server",
    );
}

#[test]
fn damaged_directories_are_refused_before_anything_is_written() {
    let remove = |cadir: &Cadir, name: &str| fs::remove_file(cadir.folder.join(name)).unwrap();
    type Damage<'a> = &'a dyn Fn(&Cadir);
    let cases: [(Damage<'_>, &str); 9] = [
        (
            &|cadir| fs::remove_dir_all(&cadir.folder).unwrap(),
            "is no directory",
        ),
        (
            &|cadir| remove(cadir, "inventory.txt"),
            "inventory.txt is missing",
        ),
        (
            &|cadir| cadir.write("ca_key.pem", keys::rsa3072().pkcs8_pem()),
            "holds no certificate of the key",
        ),
        (
            &|cadir| cadir.write("ca_key.pem", "secret"),
            "the CA's key cannot be taken over",
        ),
        (
            &|cadir| cadir.write("ca_crt.pem", ""),
            "holds no certificate of the key",
        ),
        (
            &|cadir| cadir.write("ca_crl.pem", ""),
            "without it nobody knows what is revoked",
        ),
        (
            &|cadir| cadir.write("ca_crl.pem", &cadir.read("ca_crl.pem")[..200]),
            "ca_crl.pem cannot be read",
        ),
        (
            &|cadir| cadir.write("serial", "next"),
            "serial holds no serial in hexadecimal",
        ),
        (
            &|cadir| {
                let mut other = Cadir::with_key(&cadir.folder.join("other"), keys::rsa3072());
                other.issue("web01");
                fs::remove_dir_all(cadir.folder.join("signed")).unwrap();
                fs::rename(other.folder.join("signed"), cadir.folder.join("signed")).unwrap();
            },
            "mixed up of two authorities",
        ),
    ];
    for (damage, sentence) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (ca, data) = (folder.path().join("ca"), folder.path().join("data"));
        damage(&site(&ca));
        refused("import", &ca, &data, sentence);
        assert!(!data.exists(), "{sentence}");
    }
}

#[test]
fn what_is_odd_is_told_of_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let mut cadir = Cadir::new(&place("ca"));
    let mut other = Cadir::with_key(&place("other"), keys::rsa3072());
    other.issue("elsewhere");
    cadir.issue("web01");
    cadir.raw_line("half a li");
    cadir.raw_line("0x0002 2026-01-01T10:00:00UTC 2031-01-01T10:00:00UTC /CN=web09");
    cadir.issue("web02");
    cadir.finish(&[], 0);
    cadir.write("serial", "02\n");
    cadir.write("signed/elsewhere.pem", &other.read("signed/elsewhere.pem"));
    cadir.write("signed/empty.pem", "");
    cadir.write("signed/copy.pem", &cadir.read("signed/web01.pem"));
    cadir.write("signed/web01.pem.tmp", "litter");
    cadir.request("web01");
    cadir.write("requests/torn.pem", "-----BEGIN CERTIFICATE REQUEST-----\n");
    cadir.write("requests/other.pem", &puppet_request("web07"));
    cadir.request("web08");
    let finished = expect("import", &cadir.folder, &place("data"));
    for sentence in [
        "inventory.txt, line 3: serial is not a hexadecimal number",
        "inventory.txt, line 4: serial 02 was given to \"web01\" before",
        "signed/elsewhere.pem: left out: not signed by this CA",
        "signed/empty.pem: left out: it holds no certificate",
        "left out: its serial is that of",
        "serial: serials up to 0003 were given out already",
        "requests/web01.pem: left out: its name has a signed certificate",
        "requests/torn.pem: left out",
        "requests/other.pem: left out: the request is for another name",
    ] {
        assert!(
            finished.stderr.contains(sentence),
            "no {sentence:?} in {finished}"
        );
    }
    for line in [
        "certificates:       2",
        "requests:           1",
        "next serial:        0004",
    ] {
        assert!(finished.stdout.contains(line), "no {line:?} in {finished}");
    }
}

/// A host is who its certificate says, whatever the file is called: revoking it must hit every one.
#[test]
fn a_copy_under_another_name_stays_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let mut cadir = Cadir::new(&folder.path().join("ca"));
    let old = cadir.issue("web01");
    let copy = cadir.folder.join("signed/web01.old.pem");
    fs::copy(cadir.folder.join("signed/web01.pem"), copy).unwrap();
    let new = cadir.issue("web01");
    cadir.finish(&[], 1);
    let data = folder.path().join("data");
    let imported = run("import", &cadir.folder, &data);
    assert!(imported.stderr.contains("is for \"web01\""), "{imported}");
    let site = Site::around(data.clone(), serve(&data, &[]));
    site.revoke("web01");
    let mut listed: Vec<Serial> = get_crl(&site.anonymous()).serials().collect();
    listed.sort();
    let expected = [old, new].map(|serial| Serial::try_from(serial).unwrap());
    assert_eq!(listed, expected);
}

#[test]
fn an_import_that_is_cut_short_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let mut cadir = site(&place("ca"));
    for number in 0..2000 {
        cadir.line(&format!("old{number}"), PAST);
    }
    cadir.finish(&[], 9);
    expect("import", &cadir.folder, &place("whole"));
    expect("export", &place("expected"), &place("whole"));

    let data = place("data");
    let mut import = command("import", &cadir.folder, &data);
    let mut import = import
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let marker = data.join("import-unfinished");
    while !marker.exists() && import.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    import.kill().unwrap();
    import.wait().unwrap();
    assert!(marker.exists(), "killed too late");
    refused("export", &place("out"), &data, "cut short");
    let mut server = Command::new(COUNTERSIGN);
    server
        .args([
            "serve",
            "--hostname",
            "localhost",
            "--listen",
            "127.0.0.1:0",
        ])
        .args(["--kubernetes-listen", "off", "--data"])
        .arg(&data);
    let server = run_with_deadline(server, Duration::from_secs(60)).unwrap();
    assert_eq!(server.code, Some(1), "{server}");
    assert!(server.stderr.contains("cut short"), "{server}");
    expect("import", &cadir.folder, &data);
    assert!(!marker.exists());
    expect("export", &place("out"), &data);
    assert_eq!(files(&place("out")), files(&place("expected")));
}

#[test]
fn only_what_puppet_server_can_read_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    refused(
        "export",
        &place("out"),
        &place("nothing"),
        "holds no authority",
    );
    let cases = [
        ("p256", "", "Puppet Server signs with RSA keys only"),
        (
            "rsa2048",
            "",
            "Puppet Server cannot read serials beyond 7FFFFFFF",
        ),
        ("rsa2048", ", serials: sequential", ""),
    ];
    for (index, (key, serials, sentence)) in cases.into_iter().enumerate() {
        let data = place(&format!("data{index}"));
        let config = place("countersign.yaml");
        fs::write(
            &config,
            format!("issuers: {{puppet: {{key: {key}{serials}}}}}\n"),
        )
        .unwrap();
        serve(&data, &["--config", config.to_str().unwrap()])
            .stop()
            .unwrap();
        if sentence.is_empty() {
            expect("export", &place("out"), &data);
            assert_eq!(fs::read_to_string(place("out/serial")).unwrap(), "0003");
        } else {
            refused("export", &place("out"), &data, sentence);
            assert!(!place("out").exists());
        }
    }
}

/// After an import serials are counted, unless the configuration says otherwise; and an elliptic key is taken over too.
#[test]
fn serials_are_random_if_the_configuration_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let mut cadir = Cadir::with_key(&place("ca"), keys::p256_b());
    cadir.issue("web01");
    cadir.finish(&[], 3);
    expect("import", &cadir.folder, &place("data"));
    let config = place("countersign.yaml");
    fs::write(&config, "issuers: {puppet: {serials: random}}\n").unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let site = Site::around(place("data"), serve(&place("data"), &arguments));
    let path = "/puppet-ca/v1/certificate_status/countersign-admin";
    let body = site.admin().call("GET", path, &[], &[]).unwrap().text();
    let status: Value = serde_json::from_str(&body).unwrap();
    assert!(status["serial_number"].as_f64().unwrap() > 1e30, "{body}");
}

/// Thousands of lines and certificates are a matter of seconds, also in a build that is not optimized.
#[test]
fn a_large_directory_is_taken_over_quickly() {
    let folder = tempfile::tempdir().unwrap();
    let mut cadir = Cadir::with_key(&folder.path().join("ca"), keys::p256_b());
    for number in 0..1000 {
        cadir.issue(&format!("host{number}.example.com"));
    }
    for number in 0..4000 {
        cadir.line(&format!("old{number}.example.com"), PAST);
    }
    cadir.finish(&[], 1);
    let data = folder.path().join("data");
    let run = run_with_deadline(
        command("import", &cadir.folder, &data),
        Duration::from_secs(30),
    );
    let finished = run.unwrap();
    assert!(
        finished.stdout.contains("past certificates:  4000"),
        "{finished}"
    );
    assert!(
        finished.stdout.contains("next serial:        138A"),
        "{finished}"
    );
}
