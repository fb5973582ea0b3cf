//! Enrolment tokens from the command line, and the settings for them.

mod bootstrap;
mod bulk;
mod keys;
mod lost_answer;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use countersign_authority::TokenText;
use countersign_pki::oid;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::Finished;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys as fixed;
use countersign_testkit::server_process::ServerProcess;
use serde_json::Value;

use crate::governed::{AGENTS, policy};
use crate::installation::{Installation, run};
use crate::site::{get_certificate, put_request, read_certificate};

/// A server with a configuration file.
struct World {
    installation: Installation,
    server: Option<ServerProcess>,
}

impl World {
    fn start(config: &str) -> Self {
        let mut world = Self {
            installation: Installation::new(),
            server: None,
        };
        world.restart(config);
        world
    }

    /// Ends the server, if there is one, and starts it with another configuration.
    fn restart(&mut self, config: &str) {
        self.stop();
        let file = self.file("countersign.yaml", config);
        self.server = Some(self.installation.serve(&["--config", &file]));
    }

    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop().unwrap();
        }
    }

    /// What a server says that does not start with this configuration.
    fn refused_start(&mut self, config: &str) -> String {
        self.stop();
        let file = self.file("countersign.yaml", config);
        let arguments = self.installation.serve_arguments(&["--config", &file]);
        let ended = run(&[&["serve"], &arguments[..]].concat());
        assert_eq!(ended.code, Some(1), "{ended}");
        ended.stderr
    }

    /// A file beside the data directory.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.place(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn place(&self, name: &str) -> PathBuf {
        let data = PathBuf::from(self.installation.data());
        data.with_file_name(name)
    }

    fn server(&self) -> &ServerProcess {
        self.server.as_ref().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        self.installation.run(&[&["token"], arguments].concat())
    }

    fn well(&self, arguments: &[&str]) -> Finished {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished}");
        finished
    }

    #[track_caller]
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(code), "{arguments:?}: {finished}");
        assert_eq!(finished.stdout, "", "{arguments:?}");
        finished.stderr
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let finished = self.well(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&finished.stdout).unwrap()
    }

    /// The tokens of a listing.
    fn items(&self, arguments: &[&str]) -> Vec<Value> {
        let listed = self.json(&[&["list"], arguments].concat());
        listed["items"].as_array().unwrap().clone()
    }

    /// A new token.
    fn mint(&self, arguments: &[&str]) -> TokenText {
        let minted = self.well(&[&["create"], arguments].concat());
        TokenText::parse(minted.stdout.trim_end()).unwrap()
    }

    fn agent(&self) -> HttpsClient {
        let url = &self.server().addresses.puppet;
        let address: SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
        let ca = fs::read(self.installation.path("admin/ca.pem")).unwrap();
        HttpsClient::new(address, &ca, None).unwrap()
    }

    fn enrol(&self, name: &str, token: &str) -> Answer {
        let request = CsrBuilder::new(name).challenge_password(token);
        put_request(&self.agent(), name, &request.sign_pem(fixed::p256_a()))
    }

    fn is_signed(&self, name: &str) -> bool {
        get_certificate(&self.agent(), name).status == 200
    }
}

const ENABLED: &str = "tokens: {enabled: true}\n";

#[test]
fn a_token_is_minted_in_each_format_and_enrols_its_host() {
    let world = World::start(ENABLED);
    let bare = world.well(&[
        "create",
        "Web01.example.com",
        "--ttl",
        "2h",
        "--note",
        "rack 7",
    ]);
    let token = TokenText::parse(bare.stdout.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(bare.stdout.len(), 83, "nothing but the token");
    let said = format!("token {} for web01.example.com is good until ", token.id());
    assert!(bare.stderr.starts_with(&said), "{}", bare.stderr);
    assert!(!bare.stderr.contains(token.expose()));
    assert_eq!(world.enrol("web01.example.com", token.expose()).status, 200);
    assert!(world.is_signed("web01.example.com"));

    let object = world.well(&["create", "web02.example.com", "--format", "json"]);
    let object: Value = serde_json::from_str(&object.stdout).unwrap();
    let token = TokenText::parse(object["token"].as_str().unwrap()).unwrap();
    assert_eq!(object["id"], token.id().as_str());
    assert_eq!(object["certname"], "web02.example.com");
    assert!(object["expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(object.as_object().unwrap().len(), 4);

    let arguments = ["create", "web03.example.com", "--format", "csr-attributes"];
    let limits = [
        "--extension",
        "pp_role=yes",
        "--extension",
        "pp_zone=a",
        "--extension",
        "pp_zone=b",
    ];
    let attributes = world.well(&[&arguments[..], &limits].concat());
    let read: Value = serde_saphyr::from_str(&attributes.stdout).unwrap();
    let token = read["custom_attributes"]["1.2.840.113549.1.9.7"].as_str();
    let token = TokenText::parse(token.unwrap()).unwrap();
    assert!(
        attributes
            .stdout
            .contains(&format!(": \"{}\"\n", token.expose()))
    );
    assert_eq!(
        read["extension_requests"],
        serde_json::json!({"pp_role": "yes"}),
        "quoted, and where there is no choice"
    );
    let elsewhere = world.well(&[&arguments[..], &["--carrier", "pp_preshared_key"]].concat());
    let read: Value = serde_saphyr::from_str(&elsewhere.stdout).unwrap();
    assert!(read["extension_requests"]["pp_preshared_key"].is_string());
    assert!(read.get("custom_attributes").is_none());
}

#[test]
fn tokens_are_listed_shown_revoked_and_reported() {
    let world = World::start(ENABLED);
    assert_eq!(
        world.well(&["list"]).stdout,
        "No tokens; `countersign token create` mints them.\n"
    );
    let used = world.mint(&["a.example.com"]);
    assert_eq!(world.enrol("a.example.com", used.expose()).status, 200);
    let first = world.mint(&["b.example.com", "--note", "rack 7"]);
    let second = world.mint(&["b.example.com", "--external-ref", "foreman:42"]);
    let pattern = world.mint(&["*.dmz.example.com", "--glob", "--max-uses", "3"]);

    let all = world.well(&["list"]).stdout;
    assert!(
        all.starts_with("ID                NAME               STATUS"),
        "{all}"
    );
    assert_eq!(all.lines().count(), 5, "{all}");
    for (token, status) in [
        (&used, "issued"),
        (&first, "revoked"),
        (&second, "active"),
        (&pattern, "active"),
    ] {
        let id = token.id().as_str();
        let shown = world.json(&["show", id]);
        assert_eq!(shown["status"], status, "{shown}");
        assert!(
            all.lines()
                .any(|line| line.starts_with(id) && line.contains(status))
        );
    }
    assert_eq!(world.items(&["--status", "active"]).len(), 2);
    assert_eq!(world.items(&["--certname", "b.example.com"]).len(), 2);
    assert_eq!(world.items(&["--certname", "*.dmz.example.com"]).len(), 1);
    assert_eq!(
        world.well(&["list", "--status", "locked"]).stdout,
        "No such tokens.\n"
    );
    let unused = world.well(&["list", "--unused"]).stdout;
    assert!(unused.lines().next().unwrap().contains("AGE"), "{unused}");
    assert!(
        unused.ends_with("\n\n3 tokens were never used; 2 of them are still good.\n"),
        "{unused}"
    );
    assert!(!unused.contains(used.id().as_str()), "{unused}");
    assert!(unused.contains("rack 7"), "{unused}");
    let odd = world.refused(1, &["create", "b.example.com", "--note", "rack\u{1b}[31m"]);
    assert!(odd.contains("note: must be one line"), "{odd}");

    let shown = world.well(&["show", first.id().as_str()]).stdout;
    let line = format!(", superseded by {}", second.id());
    assert!(shown.lines().any(|one| one.ends_with(&line)), "{shown}");
    let shown = world
        .well(&["show", used.id().as_str(), "-o", "yaml"])
        .stdout;
    assert!(shown.contains("certname: a.example.com"), "{shown}");
    let shown = world.well(&["show", used.id().as_str()]).stdout;
    assert!(
        shown.contains("uses:        a.example.com issued at "),
        "{shown}"
    );

    let id = second.id().as_str();
    assert_eq!(
        world.well(&["revoke", id]).stdout,
        format!("token {id} revoked\n")
    );
    assert_eq!(world.enrol("b.example.com", second.expose()).status, 403);
    assert_eq!(world.well(&["revoke", id]).code, Some(0), "again");
    let again = world
        .well(&["revoke", "--certname", "b.example.com"])
        .stdout;
    assert_eq!(again, "No token of b.example.com is left to be revoked.\n");
    let object = world.json(&["revoke", "--certname", "*.dmz.example.com"]);
    assert_eq!(object["items"][0]["status"], "revoked");

    world.well(&[
        "revoke",
        "--certname",
        "a.example.com",
        "--revoke-certificates",
    ]);
    let explained = world
        .installation
        .json(&["csr", "show", "a.example.com", "-o", "json"]);
    assert!(
        explained["certificate"]["revoked"].is_object(),
        "{explained}"
    );

    let unknown = world.refused(1, &["show", "aaaqeayeaudaocaj"]);
    assert_eq!(unknown, "countersign: there is no token aaaqeayeaudaocaj\n");
    let partly = world.run(&["revoke", "aaaqeayeaudaocaj", id]);
    assert_eq!(partly.code, Some(1), "{partly}");
    assert_eq!(partly.stdout, format!("token {id} revoked\n"));
    assert!(
        partly.stderr.ends_with("1 of 2 were not revoked\n"),
        "{partly}"
    );
    let released = world.refused(1, &["release", used.id().as_str()]);
    assert!(released.contains("has no use to release"), "{released}");
}

#[test]
fn a_request_is_checked_and_its_token_stays_good() {
    let world = World::start(ENABLED);
    let token = world.mint(&["a.example.com"]);
    let request = |name: &str, token: &str| {
        let request = CsrBuilder::new(name).challenge_password(token);
        world.file(&format!("{name}.pem"), &request.sign_pem(fixed::p256_a()))
    };
    let good = request("a.example.com", token.expose());
    let told = world.well(&["check", &good]).stdout;
    assert!(told.starts_with("token:   would do\n"), "{told}");
    assert!(
        told.contains(token.id().as_str()) && !told.contains(token.expose()),
        "{told}"
    );
    let other = request("b.example.com", token.expose());
    let told = world.run(&["check", &other, "-o", "json"]);
    assert_eq!(told.code, Some(1), "{told}");
    let object: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(object["would_allow"], false);
    assert_eq!(object["reason"], "token_certname_mismatch");
    let told = world.run(&["check", &other]);
    assert!(
        told.stdout.contains("reason:  token_certname_mismatch\n"),
        "{told}"
    );
    assert_eq!(world.items(&["--status", "active"]).len(), 1);

    let nothing = world.file("nothing", "hello");
    let fault = world.refused(1, &["check", &nothing]);
    assert!(
        fault.contains("holds no certificate request in PEM"),
        "{fault}"
    );
    let fault = world.refused(1, &["check", "/nonexistent"]);
    assert!(fault.contains("cannot read /nonexistent"), "{fault}");
}

#[test]
fn a_wrong_command_line_is_told_before_the_server_is_asked_and_repeats_no_token() {
    const TOKEN: &str =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";
    for (arguments, part) in [
        (&["create"][..], "NAME"),
        (&["create", "*.example.com"], "say so with --glob"),
        (&["create", "*.a.example.com", "--glob"], "add --max-uses"),
        (&["create", "a", "--max-uses", "0"], "1..=1000"),
        (&["create", "a", "--ttl", "soon"], "is not a duration"),
        (
            &["create", "a", "--format", "csv"],
            "csv is for many tokens",
        ),
        (&["create", "a", "--output-dir", "x"], "--from"),
        (&["create", "a", "--from", "x"], "cannot be used with"),
        (
            &["create", "--from", "x", "--format", "bare"],
            "name an --output-dir",
        ),
        (&["create", TOKEN], "looks like an enrolment token"),
        (&["create", "a", TOKEN], "unexpected argument"),
        (
            &["create", "a", "--note", TOKEN],
            "looks like an enrolment token",
        ),
        (
            &["list", "--certname", TOKEN],
            "looks like an enrolment token",
        ),
        (&["list", "--status", "good"], "possible values"),
        (
            &["show", TOKEN],
            "countersign token revoke aaaqeayeaudaocaj",
        ),
        (&["show", "nobody1"], "\"nobody1\" is no token's id"),
        (&["revoke"], "ID"),
        (
            &["revoke", "--certname", TOKEN],
            "looks like an enrolment token",
        ),
        (&["release", &TOKEN[..80]], "looks like an enrolment token"),
    ] {
        let ended = run(&[&["token"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended}");
        assert!(ended.stderr.contains(part), "{arguments:?}: {ended}");
        assert!(!ended.stderr.contains("eaqseize"), "{arguments:?}: {ended}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

#[test]
fn tokens_are_on_if_the_settings_or_a_rule_say_so() {
    let mut world = World::start("{}\n");
    let off = world.refused(1, &["create", "a.example.com"]);
    assert_eq!(
        off,
        "countersign: enrolment tokens are not enabled; set tokens.enabled: true in the configuration\n"
    );
    let rule = policy("site", AGENTS, "    - {name: door, approve: {token: {}}}\n");
    let rules = world.file("site.yaml", &rule);
    let with = |tokens: &str| format!("policies: [{rules}]\ntokens: {tokens}\n");
    world.restart(&with("{}"));
    let token = world.mint(&["a.example.com"]);
    assert_eq!(world.enrol("a.example.com", token.expose()).status, 200);
    let decision = |name: &str| {
        let shown = world
            .installation
            .json(&["csr", "show", name, "-o", "json"]);
        shown["explanation"]["by"].clone()
    };
    assert_eq!(decision("a.example.com")["name"], "door");
    let refused = world.refused_start(&with("{enabled: false}"));
    assert!(
        refused.contains(
            "tokens.enabled is false, but rule door of policy site looks at enrolment tokens"
        ),
        "{refused}"
    );
    // The rule that the setting stands for comes before what autosign stands for.
    world.restart("tokens: {enabled: true}\npuppet: {autosign: true}\n");
    let token = world.mint(&["b.example.com"]);
    assert_eq!(world.enrol("b.example.com", token.expose()).status, 200);
    let shown = world
        .installation
        .json(&["csr", "show", "b.example.com", "-o", "json"]);
    assert_eq!(shown["explanation"]["by"]["name"], "token", "{shown}");
    assert_eq!(world.enrol("c.example.com", token.expose()).status, 403);
}

#[test]
fn what_becomes_of_wrong_and_missing_tokens_is_configured() {
    let mut world = World::start(ENABLED);
    let wrong = world.mint(&["else.example.com"]);
    let ask = |world: &World, name: &str, token: Option<&str>| match token {
        Some(token) => world.enrol(name, token).status,
        None => {
            let request = CsrBuilder::new(name).sign_pem(fixed::p256_b());
            put_request(&world.agent(), name, &request).status
        }
    };
    assert_eq!(ask(&world, "a.example.com", Some(wrong.expose())), 403);
    assert_eq!(ask(&world, "b.example.com", None), 200);
    world.restart("tokens: {enabled: true, on_token_reject: pend, on_token_missing: deny}\n");
    assert_eq!(ask(&world, "c.example.com", Some(wrong.expose())), 200);
    assert!(!world.is_signed("c.example.com"));
    assert_eq!(ask(&world, "d.example.com", None), 403);
}

#[test]
fn how_often_a_token_may_be_wrong_is_configured() {
    let mut world =
        World::start("tokens: {enabled: true}\nlimits: {token_failures_per_10_minutes: 2}\n");
    let token = world.mint(&["a.example.com"]);
    let wrong = |world: &World| world.enrol("b.example.com", token.expose()).status;
    assert_eq!(
        [wrong(&world), wrong(&world), wrong(&world)],
        [403, 403, 429]
    );
    world.restart("tokens: {enabled: true}\nlimits: {token_failures_per_10_minutes: 0}\n");
    let other = world.mint(&["c.example.com"]);
    for _ in 0..12 {
        assert_eq!(world.enrol("d.example.com", other.expose()).status, 403);
    }
}

#[test]
fn a_preshared_key_that_carries_tokens_is_in_no_certificate() {
    let mut world = World::start("puppet: {autosign: true}\n");
    let issued = |world: &World, name: &str, secret: &str| {
        let request = CsrBuilder::new(name)
            .extension(&oid::PP_PRESHARED_KEY, secret)
            .sign_pem(fixed::p256_a());
        let answer = put_request(&world.agent(), name, &request);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let certificate = get_certificate(&world.agent(), name);
        let certificate = read_certificate(certificate.body);
        let mut extensions = certificate.extensions().iter();
        extensions.any(|e| e.oid == oid::PP_PRESHARED_KEY)
    };
    let token =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";
    assert!(issued(&world, "a.example.com", "an old habit"));
    assert!(
        !issued(&world, "b.example.com", token),
        "whatever the sources"
    );
    world.restart("tokens: {enabled: true, sources: [pp_preshared_key]}\n");
    let token = world.mint(&["c.example.com"]);
    assert!(!issued(&world, "c.example.com", token.expose()));
    assert_eq!(world.items(&["--status", "issued"]).len(), 1);
}

#[test]
fn roles_mint_for_their_names_alone() {
    let world = World::start(
        "tokens: {enabled: true}\n\
         access:\n\
         - {certname: minter.example.com, role: mint, suffixes: [.lab.example.com]}\n\
         - {certname: reader.example.com, role: read}\n\
         - {certname: signer.example.com, role: sign}\n",
    );
    let ssldir = world.place("ssl").to_str().unwrap().to_owned();
    let names = "minter.example.com,reader.example.com,signer.example.com";
    let made =
        world
            .installation
            .run(&["ca", "generate", "--certname", names, "--ssldir", &ssldir]);
    assert!(made.success(), "{made}");
    let url = world.server().addresses.puppet.clone();
    let ca = world
        .installation
        .path("admin/ca.pem")
        .to_str()
        .unwrap()
        .to_owned();
    let by = |who: &str, arguments: &[&str]| {
        let file = |kind: &str| format!("{ssldir}/{kind}/{who}.example.com.pem");
        let (cert, key) = (file("certs"), file("private_keys"));
        let credentials = [
            "--server", &url, "--cert", &cert, "--key", &key, "--cacert", &ca,
        ];
        run(&[&["token"], arguments, &credentials].concat())
    };
    let mine = by("minter", &["create", "a.lab.example.com"]);
    assert!(mine.success(), "{mine}");
    let mine = TokenText::parse(mine.stdout.trim_end()).unwrap();
    let other = world.mint(&["a.example.com"]);
    for (who, arguments, code) in [
        (
            "minter",
            &["create", "*.lab.example.com", "--glob", "--max-uses=2"][..],
            0,
        ),
        ("minter", &["create", "a.example.com"], 1),
        (
            "minter",
            &["create", "*.example.com", "--glob", "--max-uses=2"],
            1,
        ),
        ("minter", &["show", mine.id().as_str()], 0),
        ("minter", &["show", other.id().as_str()], 1),
        ("minter", &["revoke", other.id().as_str()], 1),
        ("reader", &["show", other.id().as_str()], 0),
        ("reader", &["create", "a.lab.example.com"], 1),
        ("reader", &["revoke", mine.id().as_str()], 1),
        ("signer", &["create", "a.lab.example.com"], 1),
        ("signer", &["revoke", mine.id().as_str()], 1),
        ("minter", &["revoke", mine.id().as_str()], 0),
    ] {
        let ended = by(who, arguments);
        assert_eq!(ended.code, Some(code), "{who} {arguments:?}: {ended}");
    }
    let listed = by("minter", &["list", "-o", "json"]).stdout;
    assert!(!listed.contains(other.id().as_str()), "{listed}");
}
