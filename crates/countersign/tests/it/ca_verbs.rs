//! The verbs of `ca` that make, take over and tidy up a CA, beside the real `puppetserver ca` of Debian 12: the same
//! sentences, the same exit codes. Where that version lacks a verb or a flag, the sentences are those of version 2.7.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_authority::{IssuerId, KeyStore as _};
use countersign_keys::FileKeys;
use countersign_pki::{
    Certificate, Crl, CrlTemplate, RevocationReason, RevokedEntry, Serial, UnixTime, ext, pem, seal,
};
use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::deadline::{Finished, run_with_deadline};
use countersign_testkit::keys;

use crate::installation::{Installation, binary, run};
use crate::site::read_crl;

/// The original, with folders of its own.
struct Original {
    folder: tempfile::TempDir,
}

impl Original {
    fn new() -> Self {
        Self::at("localhost", 1, "")
    }

    /// One that talks to a server as its administrator.
    fn at(host: &str, port: u16, credentials: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display();
        let text = format!(
            "[main]\nssldir = {dir}/ssl\ncadir = {dir}/ca\ncertname = ca.example.com\nkeylength = 2048\n\
             ca_server = {host}\nca_port = {port}\n{credentials}"
        );
        fs::write(folder.path().join("puppet.conf"), text).unwrap();
        Self { folder }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn run(&self, verb: &str, arguments: &[&str]) -> Finished {
        let program = Counterpart::PuppetserverCa.find().unwrap();
        // As root it gives its files to a user called puppet, whom test machines do not have. So it must not know
        // that it is root.
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("unshare");
            command.args(["--map-user=1000", "--map-group=1000"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .arg(verb)
            .arg("--config")
            .arg(self.path("puppet.conf"));
        command.args(arguments);
        command
            .env("HOME", self.folder.path())
            .env("LC_ALL", "C.UTF-8");
        run_with_deadline(command, Duration::from_secs(60)).unwrap()
    }
}

/// A root and an intermediate, in files as a site has them.
struct Authorities {
    folder: tempfile::TempDir,
    installation: Installation,
    keys: FileKeys,
}

impl Authorities {
    fn new() -> Self {
        let installation = Installation::new();
        let made = installation.run(&["ca", "setup", "--certname", "ca.example.com"]);
        assert!(made.success(), "{made}");
        let mut keys = FileKeys::new(FileKeys::usual_threads());
        for (id, file) in [("root", "root_key.pem"), ("ca", "ca_key.pem")] {
            let path = installation.path("issuers/puppet").join(file);
            keys.load(IssuerId::parse(id).unwrap(), &path).unwrap();
        }
        let authorities = Self {
            folder: tempfile::tempdir().unwrap(),
            installation,
            keys,
        };
        let [ca, root] = authorities.certificates();
        for (name, text) in [
            ("ca.crt", ca.to_pem()),
            ("root.crt", root.to_pem()),
            ("both.crt", ca.to_pem() + &root.to_pem()),
            ("root-first.crt", root.to_pem() + &ca.to_pem()),
            ("broken.crt", ca.to_pem().replacen("MII", "AII", 1)),
            ("nothing", "nothing\n".to_owned()),
        ] {
            authorities.write(name, &text);
        }
        for (name, source) in [("ca.key", "ca_key.pem"), ("root.key", "root_key.pem")] {
            let text = authorities
                .installation
                .read(&format!("issuers/puppet/{source}"));
            authorities.write(name, &text);
        }
        authorities
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn certificates(&self) -> [Certificate; 2] {
        let text = self.installation.read("issuers/puppet/ca_crt.pem");
        let blocks = pem::decode_all(text.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
        let all: Vec<_> = blocks
            .iter()
            .map(|block| Certificate::parse(&block.der).unwrap())
            .collect();
        all.try_into().unwrap()
    }

    /// A CRL in the name of one CA, signed by the key of another if the case wants it.
    async fn crl(&self, of: &Certificate, key: &str, list: List<'_>) -> String {
        let id = IssuerId::parse(key).unwrap();
        let algorithm = self.keys.algorithm(&id).unwrap();
        let now = countersign_authority::Clock::now(&countersign_authority::SystemClock);
        let entries: Vec<RevokedEntry> = list
            .revoked
            .iter()
            .map(|serial| RevokedEntry {
                serial: *serial,
                at: now.minus_seconds(3600),
                reason: RevocationReason::Superseded,
            })
            .collect();
        let template = CrlTemplate {
            algorithm,
            issuer_name_der: of.subject().der(),
            this_update: UnixTime(now.0 + list.from),
            next_update: UnixTime(now.0 + list.until),
            number: list.number,
            authority_key_id: &ext::key_id(of.spki_der()).unwrap(),
            entries: &entries,
        };
        let tbs = template.to_be_signed().unwrap();
        let [ca, root] = self.certificates();
        let signer = if key == "ca" { ca } else { root };
        let signing = self.keys.sign(&id, signer.spki_der(), tbs.clone());
        let signature = signing.await.unwrap();
        pem::encode("X509 CRL", &seal(&tbs, algorithm, &signature.0).unwrap())
    }
}

/// What a CRL says; times are seconds from now.
#[derive(Clone, Copy)]
struct List<'a> {
    from: i64,
    until: i64,
    number: u64,
    revoked: &'a [Serial],
}

const FRESH: List<'static> = List {
    from: -60,
    until: 86_400,
    number: 0,
    revoked: &[],
};

#[tokio::test(flavor = "multi_thread")]
async fn import_complains_and_succeeds_as_the_original() {
    let authorities = Authorities::new();
    let [ca, root] = authorities.certificates();
    let own = authorities.crl(&ca, "ca", FRESH).await;
    let old = List {
        from: -900,
        until: -60,
        ..FRESH
    };
    let future = List { from: 900, ..FRESH };
    let ca_revoked = List {
        revoked: &[ca.serial()],
        ..FRESH
    };
    for (name, of, key, list) in [
        ("good.crl", &root, "root", FRESH),
        ("forged.crl", &root, "ca", FRESH),
        ("old.crl", &root, "root", old),
        ("future.crl", &root, "root", future),
        ("revoked.crl", &root, "root", ca_revoked),
    ] {
        let text = own.clone() + &authorities.crl(of, key, list).await;
        authorities.write(name, &text);
    }
    authorities.write("own.crl", &own);
    let alone = authorities.crl(&root, "root", FRESH).await;
    authorities.write("root.crl", &alone);

    for (key, bundle, crls, code) in [
        ("ca.key", "both.crt", "good.crl", 0),
        ("ca.key", "root-first.crt", "good.crl", 0),
        ("ca.key", "both.crt", "root.crl", 0),
        ("root.key", "both.crt", "root.crl", 0),
        ("ca.key", "ca.crt", "good.crl", 1),
        ("ca.key", "root.crt", "good.crl", 1),
        ("ca.key", "both.crt", "own.crl", 1),
        ("ca.key", "both.crt", "forged.crl", 1),
        ("ca.key", "both.crt", "old.crl", 1),
        ("ca.key", "both.crt", "future.crl", 1),
        ("ca.key", "both.crt", "revoked.crl", 1),
        ("ca.key", "broken.crt", "good.crl", 1),
        ("nothing", "nothing", "nothing", 1),
        ("gone.key", "gone.crt", "good.crl", 1),
    ] {
        let case = format!("{key} {bundle} {crls}");
        let files = [key, bundle, crls].map(|name| authorities.file(name));
        let arguments = [
            "--private-key",
            &files[0],
            "--cert-bundle",
            &files[1],
            "--crl-chain",
            &files[2],
        ];
        let (original, ours) = (Original::new(), Installation::new());
        let theirs = original.run("import", &arguments);
        let own = ours.run(
            &[
                &["ca", "import", "--certname", "ca.example.com"],
                &arguments[..],
            ]
            .concat(),
        );
        assert_eq!(theirs.code, Some(code), "{case}: {theirs}");
        assert_eq!(own.code, Some(code), "{case}: {own}");
        assert_eq!(own.stderr, theirs.stderr, "{case}");
        let theirs = theirs
            .stdout
            .replace(original.path("ca").to_str().unwrap(), "DIR");
        assert_eq!(own.stdout.replace(&ours.data(), "DIR"), theirs, "{case}");
        assert_eq!(
            ours.path("").exists(),
            code == 0,
            "{case}: nothing is written before it is verified"
        );
    }
}

#[test]
fn import_without_its_files_is_a_usage_error() {
    let (original, ours) = (Original::new(), Installation::new());
    let theirs = original.run("import", &["--private-key", "x"]);
    let own = ours.run(&["ca", "import", "--private-key", "x"]);
    assert_eq!((theirs.code, own.code), (Some(1), Some(1)), "{own}");
    let first = |finished: &Finished| {
        finished
            .stderr
            .lines()
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(first(&own), first(&theirs));
    assert!(own.stderr.contains("or --cadir alone"), "{own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_ca_keeps_its_number_and_what_it_revoked() {
    let authorities = Authorities::new();
    let [ca, root] = authorities.certificates();
    let revoked = [
        Serial::try_from(5).unwrap(),
        Serial::try_from(0xabc).unwrap(),
    ];
    let own = List {
        number: 41,
        revoked: &revoked,
        ..FRESH
    };
    let crls = authorities.crl(&ca, "ca", own).await + &authorities.crl(&root, "root", FRESH).await;
    authorities.write("crls", &crls);
    let ours = Installation::new();
    let imported = ours.run(&[
        "ca",
        "import",
        "--certname",
        "ca.example.com",
        "--private-key",
        &authorities.file("ca.key"),
        "--cert-bundle",
        &authorities.file("root-first.crt"),
        "--crl-chain",
        &authorities.file("crls"),
    ]);
    assert!(imported.success(), "{imported}");
    assert_eq!(
        ours.read("issuers/puppet/ca_crt.pem"),
        ca.to_pem() + &root.to_pem()
    );
    let published = own_crl(&ours);
    assert_eq!(published.number(), Some(41));
    assert_eq!(published.serials().collect::<Vec<_>>(), revoked);

    let again = ours.run(&[
        "ca",
        "import",
        "--private-key",
        &authorities.file("ca.key"),
        "--cert-bundle",
        &authorities.file("both.crt"),
        "--crl-chain",
        &authorities.file("crls"),
    ]);
    assert_eq!(again.code, Some(1), "{again}");
    assert!(
        again
            .stderr
            .contains("please delete the existing files first"),
        "{again}"
    );

    // Nobody sees the serials as certificates; prune knows them.
    assert_eq!(
        ours.run(&["ca", "delete", "--all"]).stdout,
        "0 certificates deleted.\n"
    );
    let pruned = ours.run(&[
        "ca",
        "prune",
        "--remove-entries",
        "--serial",
        "0x5,ffff,nonsense",
    ]);
    assert_eq!(
        pruned.stdout,
        "Total number of certificates found in Puppet's CRL is: 2.\nRemoved 1 certs from Puppet's CRL.\n",
        "{pruned}"
    );
    let published = own_crl(&ours);
    assert_eq!(published.number(), Some(42));
    assert_eq!(published.serials().collect::<Vec<_>>(), revoked[1..]);
    assert!(
        published
            .entries()
            .iter()
            .all(|entry| entry.reason == RevocationReason::Superseded)
    );
}

#[test]
fn setup_makes_a_root_and_an_intermediate_and_never_replaces_them() {
    let (original, ours) = (Original::new(), Installation::new());
    let theirs = original.run(
        "setup",
        &["--subject-alt-names", "IP:192.0.2.1,a.example.com"],
    );
    let setup = [
        "ca",
        "setup",
        "--certname",
        "ca.example.com",
        "--subject-alt-names",
        "IP:192.0.2.1,a.example.com",
    ];
    let own = ours.run(&setup);
    assert_eq!(
        (theirs.code, own.code),
        (Some(0), Some(0)),
        "{theirs}\n{own}"
    );
    assert_eq!(
        own.stdout.replace(&ours.data(), "DIR"),
        theirs
            .stdout
            .replace(original.path("ca").to_str().unwrap(), "DIR")
    );
    let subjects = |path: &Path| -> Vec<(String, String)> {
        let blocks = pem::decode_all(&fs::read(path).unwrap(), &pem::PemLimits::BUNDLE).unwrap();
        let all = blocks
            .iter()
            .map(|block| Certificate::parse(&block.der).unwrap());
        let name = |name: &str| name.split(": ").next().unwrap().to_owned();
        all.map(|one| {
            (
                one.subject().first_common_name().map(name).unwrap(),
                one.issuer().first_common_name().map(name).unwrap(),
            )
        })
        .collect()
    };
    assert_eq!(
        own.stderr,
        format!(
            "Nothing here uses the root's key again: take {}/issuers/puppet/root_key.pem away, to a place that is not connected.\n",
            ours.data()
        )
    );
    let chain = subjects(&ours.path("issuers/puppet/ca_crt.pem"));
    assert_eq!(chain, subjects(&original.path("ca/ca_crt.pem")));
    assert_eq!(
        chain[0],
        ("Puppet CA".to_owned(), "Puppet Root CA".to_owned())
    );
    verifies(&ours, "tls/puppet.pem");
    verifies(&ours, "admin/admin.pem");

    // A second one is refused by both, with a line for each file and the same advice.
    let files = |finished: &Finished| -> (Vec<String>, Vec<String>) {
        finished
            .stderr
            .lines()
            .map(str::to_owned)
            .partition(|line| line.starts_with("Existing file at '"))
    };
    let (theirs, own) = (original.run("setup", &[]), ours.run(&["ca", "setup"]));
    assert_eq!((theirs.code, own.code), (Some(1), Some(1)), "{own}");
    let (listed, told) = files(&own);
    let (advice, rest) = told.split_last().unwrap();
    assert_eq!(rest, files(&theirs).1);
    assert_eq!(
        advice,
        "To keep it, choose another directory with --data, or move this one away."
    );
    assert_eq!(listed.len(), 8, "{own}");
    assert!(listed.iter().any(|line| line.contains("countersign.db")));

    // The names stay those of setup, although the server is started without any.
    let before = ours.read("tls/puppet.pem");
    let mut server = ours.serve(&[]);
    server.stop().unwrap();
    assert_eq!(ours.read("tls/puppet.pem"), before);
    // What it has signed is remembered, even if its files are gone.
    fs::remove_dir_all(ours.path("issuers")).unwrap();
    fs::remove_dir_all(ours.path("tls")).unwrap();
    fs::remove_dir_all(ours.path("admin")).unwrap();
    let third = ours.run(&setup);
    assert_eq!(third.code, Some(1), "{third}");
    assert!(
        third
            .stderr
            .contains("Existing certificates of issuer puppet"),
        "{third}"
    );
    assert!(third.stderr.contains("another directory with --data"));
}

#[test]
fn names_that_a_server_cannot_have_are_refused_with_their_flag() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("puppet.conf");
    for (text, flags, sentence) in [
        (
            "",
            &["--certname", "Bad Name"][..],
            "--certname: \"Bad Name\" is neither",
        ),
        (
            "",
            &["--subject-alt-names", "puppet,IP:300.1.1.1"],
            "IP:300.1.1.1 is not an IP address",
        ),
        (
            "",
            &["--subject-alt-names", "DNS:Upper"],
            "--subject-alt-names: \"Upper\" is neither",
        ),
        (
            "certname = Upper",
            &[],
            "certname of puppet.conf: \"Upper\" is neither",
        ),
        (
            "dns_alt_names = a,*.b",
            &[],
            "dns_alt_names of puppet.conf: \"*.b\" is neither",
        ),
        (
            "ca_ttl = 0",
            &[],
            "ca_ttl of puppet.conf: 0s is no lifetime",
        ),
    ] {
        fs::write(&conf, format!("[main]\n{text}\n")).unwrap();
        let ours = Installation::new();
        let setup = ["ca", "setup", "--config", conf.to_str().unwrap()];
        let refused = ours.run(&[&setup[..], flags].concat());
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.contains(sentence), "{refused}");
        assert!(!ours.path("").exists(), "{sentence}");
    }
}

#[test]
fn setup_takes_names_and_key_from_flags_and_puppet_conf() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("puppet.conf");
    fs::write(&conf, "[main]\ncertname = conf.example.com\ndns_alt_names = x.example.com,y.example.com\nca_ttl = 30d\n").unwrap();
    let ours = Installation::new();
    let made = ours.run(&[
        "ca",
        "setup",
        "--config",
        conf.to_str().unwrap(),
        "--ca-name",
        "Mine",
        "--root-ca-name",
        "Top",
        "--key-type",
        "p384",
    ]);
    assert!(made.success(), "{made}");
    let text = ours.read("issuers/puppet/ca_crt.pem");
    let blocks = pem::decode_all(text.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
    let names: Vec<String> = blocks
        .iter()
        .map(|block| {
            let one = Certificate::parse(&block.der).unwrap();
            assert_eq!(one.not_after().seconds_since(one.not_before()), 31 * 86_400);
            assert_eq!(one.public_key().unwrap().bits(), 384);
            one.subject().first_common_name().unwrap().to_owned()
        })
        .collect();
    assert_eq!(names, ["Mine", "Top"]);
    let server = ours.read("tls/puppet.pem");
    let block = pem::decode_first(server.as_bytes(), &pem::PemLimits::BUNDLE)
        .unwrap()
        .unwrap();
    let server = Certificate::parse(&block.der).unwrap();
    assert_eq!(
        server.subject().first_common_name(),
        Some("conf.example.com")
    );
    let alt: Vec<String> = server.alt_names().iter().map(ToString::to_string).collect();
    assert!(
        alt.iter().any(|name| name.contains("y.example.com")),
        "{alt:?}"
    );

    let missing = Installation::new().run(&["ca", "setup", "--config", "/nowhere/puppet.conf"]);
    assert_eq!(missing.code, Some(1), "{missing}");
    assert_eq!(
        missing.stderr,
        "Error:\nCould not read file '/nowhere/puppet.conf'\n"
    );
}

#[test]
fn administrators_certificates_are_made_offline_and_online() {
    let (original, ours) = (Original::new(), Installation::new());
    assert!(original.run("setup", &[]).success());
    assert!(
        ours.run(&["ca", "setup", "--certname", "localhost"])
            .success()
    );
    let compare = |arguments: &[&str], code: i32| {
        let theirs = original.run("generate", arguments);
        let own = ours.run(&[&["ca", "generate"], arguments].concat());
        assert_eq!(
            (theirs.code, own.code),
            (Some(code), Some(code)),
            "{arguments:?}\n{theirs}\n{own}"
        );
        // The original has another copy in its cadir; ours is in the ledger.
        let told = |text: &str, folder: &str, stop: usize| -> Vec<String> {
            let lines = text
                .lines()
                .take(stop)
                .filter(|line| !line.contains("/signed/") && !line.contains("at the CA"));
            lines.map(|line| line.replace(folder, "DIR")).collect()
        };
        let (ssl, data) = (original.path("").display().to_string(), ours.data() + "/");
        assert_eq!(told(&own.stdout, &data, 99), told(&theirs.stdout, &ssl, 99));
        // After usage errors the original goes on with its help.
        let stop = theirs.stderr.lines().position(str::is_empty).unwrap_or(99);
        assert_eq!(
            told(&own.stderr, &data, stop),
            told(&theirs.stderr, &ssl, stop)
        );
    };
    compare(&["--ca-client", "--certname", "adm1"], 0);
    compare(&["--ca-client", "--certname", "adm1"], 1);
    compare(&["--ca-client", "--certname", "adm2,adm1"], 1);
    compare(&["--ca-client", "--certname", "Adm"], 1);
    compare(&["--ca-client"], 1);
    let refused = ours.run(&[
        "ca",
        "generate",
        "--ca-client",
        "--certname",
        "adm3",
        "--subject-alt-names",
        "*.example.com",
    ]);
    assert_eq!(refused.code, Some(1), "{refused}");
    let good = [
        "ca",
        "generate",
        "--ca-client",
        "--certname",
        "adm3",
        "--subject-alt-names",
        "IP:192.0.2.7",
        "--force",
    ];
    let made = ours.run(&good);
    assert!(
        made.success(),
        "what was refused does not occupy the name: {made}"
    );

    // On a running server an administrator makes another, through the server.
    let server = ours.serve(&[]);
    let made = ours.run(&[
        "ca",
        "generate",
        "--ca-client",
        "--certname",
        "adm4",
        "--key-type",
        "p384",
        "--ttl",
        "1h",
    ]);
    assert!(made.success(), "{made}");
    let again = ours.run(&[
        "ca",
        "generate",
        "--ca-client",
        "--certname",
        "adm4",
        "--ssldir",
        &(ours.data() + "/other"),
    ]);
    assert_eq!(again.code, Some(1), "{again}");
    assert!(again.stderr.contains("clean it first"), "{again}");
    for name in ["adm1", "adm3", "adm4"] {
        let path = |kind: &str| format!("{}/ssl/{kind}/{name}.pem", ours.data());
        let listed = run(&[
            "ca",
            "list",
            "--all",
            "--server",
            &server.addresses.puppet,
            "--cert",
            &path("certs"),
            "--key",
            &path("private_keys"),
            "--cacert",
            &(ours.data() + "/admin/ca.pem"),
        ]);
        assert!(
            listed.success() && listed.stdout.contains("adm4"),
            "{name}: {listed}"
        );
    }
}

#[test]
fn a_running_server_makes_certificates_as_the_original_asks_it_to() {
    let ours = Installation::new();
    let _server = ours.serve(&["--hostname", "localhost"]);
    let port = ours.read("server.json");
    let port: serde_json::Value = serde_json::from_str(&port).unwrap();
    let port = port["puppet"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let data = ours.data();
    let credentials = format!(
        "hostcert = {data}/admin/admin.pem\nhostprivkey = {data}/admin/admin-key.pem\n\
         localcacert = {data}/issuers/puppet/ca_crt.pem\nhostcrl = {data}/issuers/puppet/ca_crl.pem\n"
    );
    let original = Original::at("localhost", port, &credentials);
    for (their_names, our_names, more, code) in [
        ("t1", "o1", &[][..], 0),
        ("t1", "o1", &[], 1),
        ("t2,t3", "o2,o3", &["--ttl", "1d"], 0),
        ("t4", "o4", &["--subject-alt-names", "other.example.com"], 1),
    ] {
        let theirs = original.run("generate", &[&["--certname", their_names], more].concat());
        let own = ours.run(&[&["ca", "generate", "--certname", our_names], more].concat());
        assert_eq!(
            (theirs.code, own.code),
            (Some(code), Some(code)),
            "{theirs}\n{own}"
        );
        let dir = original.path("").display().to_string();
        for (own, theirs) in [(&own.stdout, &theirs.stdout), (&own.stderr, &theirs.stderr)] {
            let own = rename(&own.replace(&format!("{data}/"), "DIR"), 'o');
            let mut theirs = theirs.replace(&dir, "DIR");
            // The original looks for the certificate before it signs, and calls it an error that there is none yet.
            for name in their_names.split(',') {
                theirs = theirs.replacen(&not_found(name), "", 1);
            }
            let theirs = rename(&theirs, 't');
            // What ours says more is how names are allowed here.
            let own = own.split("If the further names are why").next().unwrap();
            assert_eq!(own, theirs, "{our_names}");
        }
    }
    // The same verbs find their server through the puppet.conf of the original.
    let conf = original.path("puppet.conf");
    let listed = run(&[
        "ca",
        "list",
        "--certname",
        "o1,t1",
        "--config",
        conf.to_str().unwrap(),
    ]);
    assert!(listed.success(), "{listed}");
}

fn not_found(name: &str) -> String {
    format!("Error:\n    Signed certificate {name} could not be found on the CA\n")
}

#[test]
fn generate_tells_no_error_on_the_way_to_success() {
    let ours = Installation::new();
    let _server = ours.serve(&[]);
    let made = ours.run(&["ca", "generate", "--certname", "web01,web02"]);
    assert!(made.success(), "{made}");
    assert_eq!(made.stderr, "");
    let saved = "Successfully saved certificate for web02";
    assert!(made.stdout.contains(saved), "{made}");
}

/// Names with another letter for each program become the same.
fn rename(text: &str, letter: char) -> String {
    let mut text = text.to_owned();
    for digit in '1'..='4' {
        text = text.replace(&format!("{letter}{digit}"), &format!("n{digit}"));
    }
    text
}

#[test]
fn generate_with_further_names_works_as_it_says() {
    let ours = Installation::new();
    let mut server = ours.serve(&[]);
    let generate = [
        "ca",
        "generate",
        "--certname",
        "web01",
        "--subject-alt-names",
        "other",
    ];
    let refused = ours.run(&generate);
    assert_eq!(refused.code, Some(1), "{refused}");
    let (private, public) = (
        ours.path("ssl/private_keys/web01.pem"),
        ours.path("ssl/public_keys/web01.pem"),
    );
    for part in [
        "allow_subject_alt_names: true",
        "`countersign csr delete web01 --door puppet`",
        private.to_str().unwrap(),
        public.to_str().unwrap(),
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    let unsigned = ours.run(&["ca", "sign", "--certname", "web01"]);
    assert_eq!(unsigned.code, Some(1), "{unsigned}");
    assert!(
        unsigned
            .stderr
            .ends_with("`countersign csr explain web01 --door puppet` says why\n"),
        "{unsigned}"
    );
    let explained = ours.run(&["csr", "explain", "web01", "--door", "puppet"]);
    let setting = "to permit that, change `puppet.allow_subject_alt_names` in the configuration";
    assert!(explained.stdout.contains(setting), "{explained}");
    server.stop().unwrap();
    let file = ours.path("").parent().unwrap().join("c.yaml");
    fs::write(&file, "puppet: {allow_subject_alt_names: true}\n").unwrap();
    let _server = ours.serve(&["--config", file.to_str().unwrap()]);
    assert!(
        ours.run(&["csr", "delete", "web01", "--door", "puppet"])
            .success()
    );
    fs::remove_file(private).unwrap();
    fs::remove_file(public).unwrap();
    let made = ours.run(&generate);
    assert!(made.success(), "{made}");
}

#[test]
fn verbose_verbs_tell_each_call() {
    let ours = Installation::new();
    let _server = ours.serve(&[]);
    let listed = ours.run(&["ca", "--verbose", "list"]);
    assert!(listed.success(), "{listed}");
    for part in [
        "method=GET",
        "certificate_statuses/any_key?state=requested",
        "status=200",
    ] {
        assert!(listed.stderr.contains(part), "{listed}");
    }
    assert_eq!(ours.run(&["ca", "list"]).stderr, "");
}

#[test]
fn generate_says_when_the_server_signed_by_itself() {
    let ours = Installation::new();
    let _server = ours.serve(&["--autosign", "true"]);
    let made = ours.run(&["ca", "generate", "--certname", "web01", "--ttl", "90d"]);
    assert!(made.success(), "{made}");
    assert!(
        made.stdout
            .ends_with("Certificate for web01 was autosigned.\n"),
        "{made}"
    );
    assert_eq!(
        made.stderr,
        "ttl was specified, but the CA autosigned the CSR. Unable to specify 90d for web01\n"
    );
    let mode = fs::metadata(ours.path("ssl/private_keys/web01.pem")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o600);
}

#[test]
fn names_are_deleted_and_entries_pruned_offline() {
    let ours = Installation::new();
    let mut server = ours.serve(&["--autosign", "true"]);
    for (name, key) in [
        ("a", keys::p256_a()),
        ("b", keys::p256_b()),
        ("c", keys::p384()),
    ] {
        assert_eq!(ours.submit(&server, name, key), 200);
    }
    assert!(ours.run(&["ca", "revoke", "--certname", "a,b"]).success());
    const RUNNING: &str =
        "Puppetserver service is running. Please stop it before attempting to run this command.\n";
    for verb in [&["ca", "delete", "--all"][..], &["ca", "prune"]] {
        let refused = ours.run(verb);
        assert_eq!(
            (refused.code, refused.stderr.as_str()),
            (Some(1), RUNNING),
            "{verb:?}"
        );
    }
    server.stop().unwrap();
    let number = own_crl(&ours).number().unwrap();
    assert_eq!(own_crl(&ours).entries().len(), 2);

    for (verb, code, stdout, stderr) in [
        (
            &["ca", "delete"][..],
            1,
            "",
            "Error:\n  Must pass one of the valid flags to determine which certs to delete\n\nSee `countersign ca delete --help`.\n",
        ),
        (
            &["ca", "delete", "--all", "--revoked"],
            1,
            "",
            "Error:\n  The --all flag must not be used with --expired, --revoked, or --certname\n\nSee `countersign ca delete --help`.\n",
        ),
        (
            &["ca", "delete", "--expired"],
            0,
            "0 certificates deleted.\n",
            "",
        ),
        (
            &["ca", "delete", "--revoked"],
            0,
            "Deleting certificate of a\nDeleting certificate of b\n2 certificates deleted.\n",
            "",
        ),
        (
            &["ca", "delete", "--certname", "a,c"],
            24,
            "Deleting certificate of c\n1 certificate deleted.\n",
            "Could not find certificate of a\n",
        ),
        (
            &["ca", "delete", "--all"],
            0,
            "0 certificates deleted.\n",
            "",
        ),
        (
            &["ca", "prune"],
            0,
            "Total number of certificates found in Puppet's CRL is: 2.\nNo matching revocations found in the CRL for pruning\n",
            "",
        ),
        (
            &["ca", "prune", "--remove-expired"],
            0,
            "Total number of certificates found in Puppet's CRL is: 2.\nNo matching revocations found in the CRL for pruning\n",
            "",
        ),
        (
            &["ca", "prune", "--remove-entries"],
            1,
            "",
            "Error:\n--remove-entries option require --serial or --certname values\n",
        ),
        (
            &["ca", "prune", "--serial", "1F"],
            0,
            "Total number of certificates found in Puppet's CRL is: 2.\nNo matching revocations found in the CRL for pruning\n",
            "--serial and --certname have no effect without --remove-entries\n",
        ),
        (
            &["ca", "prune", "--remove-entries", "--serial", "XYZ,0x1f"],
            0,
            "Total number of certificates found in Puppet's CRL is: 2.\nNo matching revocations found in the CRL for pruning\n",
            "XYZ is no serial in hexadecimal: passed over\n",
        ),
        (
            &["ca", "prune", "--remove-entries", "--certname", "a,nobody"],
            0,
            "Total number of certificates found in Puppet's CRL is: 2.\nRemoved 1 certs from Puppet's CRL.\n",
            "",
        ),
    ] {
        let finished = ours.run(verb);
        assert_eq!(
            (
                finished.code,
                finished.stdout.as_str(),
                finished.stderr.as_str()
            ),
            (Some(code), stdout, stderr),
            "{verb:?}"
        );
    }
    let crl = own_crl(&ours);
    assert_eq!((crl.number(), crl.entries().len()), (Some(number + 1), 1));

    // A deleted name may enrol again; the authority's own certificates were left alone.
    let server = ours.serve(&["--autosign", "true"]);
    assert_eq!(ours.submit(&server, "a", keys::p256_a()), 200);
    let listed = ours.run(&["ca", "list", "--all"]);
    assert!(listed.stdout.contains("countersign-admin"), "{listed}");
}

#[test]
fn wrong_command_lines_are_told_in_the_words_of_the_original() {
    let (original, ours) = (Original::new(), Installation::new());
    for arguments in [
        &["prune", "--bogus"][..],
        &["prune", "word"],
        &["import", "--certname"],
        &["sign"],
        &["sign", "--all", "--certname", "a"],
        &["revoke"],
        &["clean"],
        &["generate", "--certname", "a,B"],
    ] {
        let (verb, rest) = arguments.split_first().unwrap();
        let theirs = original.run(verb, rest);
        let own = run(&[&["ca"], arguments].concat());
        assert_eq!((theirs.code, own.code), (Some(1), Some(1)), "{own}");
        let first = |finished: &Finished| -> String {
            finished.stderr.split("\n\n").next().unwrap().to_owned()
        };
        // What `import` still lacks is another line of the original's.
        assert!(first(&theirs).starts_with(&first(&own)), "{own}\n{theirs}");
    }
    let unknown = ours.run(&["ca", "nothing"]);
    assert!(
        unknown.stderr.starts_with("Unknown action: nothing\n"),
        "{unknown}"
    );
}

#[test]
fn where_there_is_no_ca_nothing_is_made() {
    let ours = Installation::new();
    for verb in [
        &["ca", "prune"][..],
        &["ca", "delete", "--all"],
        &["ca", "generate", "--ca-client", "--certname", "a"],
    ] {
        let refused = ours.run(verb);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.contains("CA not initialized."), "{refused}");
        assert!(!ours.path("").exists(), "{verb:?}");
    }
}

/// `script` of util-linux gives the command a terminal.
#[test]
fn a_person_at_a_terminal_sees_progress_and_nobody_else() {
    let ours = Installation::new();
    let server = ours.serve(&["--autosign", "true"]);
    let submit = || {
        for (name, key) in [
            ("a", keys::p256_a()),
            ("b", keys::p256_b()),
            ("c", keys::p384()),
        ] {
            assert_eq!(ours.submit(&server, name, key), 200);
        }
    };
    submit();
    let clean = ["ca", "clean", "--certname", "a,b,c"];
    let piped = ours.run(&clean);
    assert!(piped.success() && piped.stderr.is_empty(), "{piped}");
    submit();
    let line = format!(
        "{} {} --data {}",
        binary().display(),
        clean.join(" "),
        ours.data()
    );
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm");
    let seen = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    assert!(seen.success(), "{seen}");
    assert!(
        seen.stdout.contains("Cleaning") && seen.stdout.contains("/3"),
        "{seen}"
    );
    for said in piped.stdout.lines() {
        assert!(seen.stdout.contains(said), "{said} in {seen}");
    }
}

fn own_crl(installation: &Installation) -> Crl {
    read_crl(installation.read("issuers/puppet/ca_crl.pem"))
}

/// By OpenSSL, up to the root.
fn verifies(installation: &Installation, file: &str) {
    let mut command = Command::new(Counterpart::Openssl.find().unwrap());
    command.args(["verify", "-x509_strict", "-CAfile"]);
    command
        .arg(installation.path("issuers/puppet/ca_crt.pem"))
        .arg(installation.path(file));
    let finished = run_with_deadline(command, Duration::from_secs(30)).unwrap();
    assert!(finished.success(), "{finished}");
}
