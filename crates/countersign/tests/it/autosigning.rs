//! What Puppet's documentation says of autosigning, sentence by sentence, at the real program.
//!
//! [`STATEMENTS`] has every sentence with the test that shows it, here or where the program would add nothing.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::{run_with_deadline, run_with_input};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use countersign_testkit::server_process::ServerProcess;

use crate::commands::wait_until;
use crate::puppet_agent::{agent, openssl_text};
use crate::site::{COUNTERSIGN, Site, TEXT, install, puppet_request, put_request};

/// What becomes of a request that was sent and taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Signed,
    Waiting,
}
use Outcome::{Signed, Waiting};

/// An authority with a folder for its autosign file.
struct Autosigning {
    folder: tempfile::TempDir,
    site: Site,
}

impl Autosigning {
    /// `autosign` is the folder's file `autosign`; `more` stands in the configuration file.
    fn with_file(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("autosign");
        let site = Site::configured(more, &["--autosign", path.to_str().unwrap()]);
        Self { folder, site }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("autosign")
    }

    fn list(&self, text: &str) {
        install(&self.file(), text, 0o644);
    }

    fn executable(&self, script: &str) {
        install(&self.file(), script, 0o755);
    }

    fn ask(&self, name: &str) -> Outcome {
        ask(&self.site, name, &CsrBuilder::new(name))
    }
}

fn ask(site: &Site, name: &str, csr: &CsrBuilder) -> Outcome {
    send(&site.anonymous(), name, &csr.sign_pem(keys::p256_a()))
}

fn send(client: &HttpsClient, name: &str, body: &str) -> Outcome {
    let mut connection = client.connect().unwrap();
    let path = format!("/puppet-ca/v1/certificate_request/{name}");
    let answer = connection
        .call("PUT", &path, &[TEXT], body.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    let path = format!("/puppet-ca/v1/certificate/{name}");
    match connection.call("GET", &path, &[], b"").unwrap().status {
        200 => Signed,
        404 => Waiting,
        other => panic!("{name}: {other}"),
    }
}

#[test]
fn the_default_is_a_list_that_does_not_exist_so_nothing_is_signed() {
    let site = Site::start(&[]);
    assert!(!site.data().join("autosign.conf").exists());
    let asked = |name| ask(&site, name, &CsrBuilder::new(name));
    assert_eq!(asked("web01.example.com"), Waiting);
    std::fs::write(site.data().join("autosign.conf"), "*.example.com\n").unwrap();
    assert_eq!(asked("web02.example.com"), Signed);
}

#[test]
fn true_signs_everything_and_says_at_start_what_that_means() {
    let site = Site::start(&["--autosign", "true"]);
    let log = site.server.log();
    assert!(
        log.contains("whoever reaches the Puppet listener gets a certificate for any free name"),
        "{log}"
    );
    assert_eq!(ask(&site, "any", &CsrBuilder::new("any")), Signed);
    // But not what the signer refuses: that is stored, and waits.
    let wide = CsrBuilder::new("wide")
        .dns("other")
        .sign_pem(keys::p256_a());
    let answer = put_request(&site.anonymous(), "wide", &wide);
    assert_eq!(answer.status, 400);
    let path = "/puppet-ca/v1/certificate_request/wide";
    assert_eq!(
        site.admin().call("GET", path, &[], b"").unwrap().status,
        200
    );
}

#[test]
fn names_and_domain_globs_of_the_list_are_signed_and_others_wait() {
    let autosigning = Autosigning::with_file("");
    autosigning.list(
        "# rebuilt often\nrebuilt.example.com\n*.scratch.example.com\n*.local\n\nweb*.example.com\n\
         trailing.example.com \n*.UPPER.example.com\n",
    );
    for (name, expected, statement) in [
        ("rebuilt.example.com", Signed, "an exact name"),
        ("a.scratch.example.com", Signed, "a name below a domain"),
        ("a.b.scratch.example.com", Signed, "two labels below it"),
        ("printer.local", Signed, "a domain of one label"),
        ("x.upper.example.com", Signed, "domains have no case"),
        ("scratch.example.com", Waiting, "not the domain itself"),
        ("ascratch.example.com", Waiting, "not a part of a label"),
        ("web1.example.com", Waiting, "not a normal glob"),
        (
            "trailing.example.com",
            Waiting,
            "a line with a blank means nothing",
        ),
        ("local", Waiting, "not the domain itself"),
        ("other", Waiting, "who is not on the list"),
    ] {
        assert_eq!(autosigning.ask(name), expected, "{name}: {statement}");
    }
    let log = autosigning.site.server.log();
    assert!(log.contains("invalid pattern"), "{log}");
}

#[test]
fn whoever_claims_a_free_name_of_the_list_gets_it_and_a_taken_one_is_safe() {
    let autosigning = Autosigning::with_file("");
    autosigning.list("*.example.com\n");
    assert_eq!(autosigning.ask("guessed.example.com"), Signed);
    let other = CsrBuilder::new("guessed.example.com").sign_pem(keys::p256_b());
    let anonymous = autosigning.site.anonymous();
    let answer = put_request(&anonymous, "guessed.example.com", &other);
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.text(),
        "guessed.example.com already has a signed certificate; ignoring certificate request"
    );
}

#[test]
fn the_executable_bit_tells_a_policy_from_a_list() {
    let autosigning = Autosigning::with_file("");
    // As a list it names a host; as a program it ends with status 0 for another.
    let both = "#!/bin/sh\n#\nlisted 2>/dev/null\n[ \"$1\" = approved ]\n";
    autosigning.executable(both);
    assert_eq!(autosigning.ask("approved"), Signed);
    assert_eq!(autosigning.ask("listed"), Waiting);
    autosigning.list("listed2\n");
    assert_eq!(autosigning.ask("listed2"), Signed);
    // A program that lost its bit is neither.
    autosigning.list(both);
    assert_eq!(autosigning.ask("approved2"), Waiting);
}

#[test]
fn a_policy_may_be_written_in_any_language() {
    let autosigning = Autosigning::with_file("");
    let shell = "#!/bin/sh\ngrep -q 'BEGIN CERTIFICATE REQUEST'\n";
    autosigning.executable(shell);
    assert_eq!(autosigning.ask("shell"), Signed);
    let perl = "#!/usr/bin/perl\nmy $csr = join '', <STDIN>;\nexit($ARGV[0] eq 'perl' && $csr =~ /^-----BEGIN/ ? 0 : 7);\n";
    autosigning.executable(perl);
    assert_eq!(autosigning.ask("perl"), Signed);
    // No script at all.
    std::fs::copy("/bin/true", autosigning.file().with_extension("next")).unwrap();
    std::fs::rename(
        autosigning.file().with_extension("next"),
        autosigning.file(),
    )
    .unwrap();
    assert_eq!(autosigning.ask("machine-code"), Signed);
}

#[test]
fn it_gets_the_certname_alone_and_the_whole_request_alone() {
    let autosigning = Autosigning::with_file("");
    let seen = autosigning.folder.path().join("seen");
    let seen = seen.display();
    autosigning.executable(&format!("#!/bin/sh\n{{ echo \"$# $1\"; cat; }} > {seen}\n"));
    let csr = CsrBuilder::new("web01").challenge_password("let-me-in");
    let sent = csr.sign_pem(keys::p256_a());
    assert_eq!(send(&autosigning.site.anonymous(), "web01", &sent), Signed);
    let text = std::fs::read_to_string(autosigning.folder.path().join("seen")).unwrap();
    let (arguments, input) = text.split_once('\n').unwrap();
    assert_eq!(arguments, "1 web01");
    assert_eq!(input, sent);
}

#[test]
fn every_status_but_zero_leaves_the_request_for_review() {
    let autosigning = Autosigning::with_file("puppet: {autosign_executable: {timeout: 1s}}\n");
    for (name, script, expected) in [
        ("status-0", "exit 0", Signed),
        ("status-1", "exit 1", Waiting),
        ("status-24", "exit 24", Waiting),
        ("status-255", "exit 255", Waiting),
        ("signal", "kill -9 $$", Waiting),
        ("timeout", "sleep 60", Waiting),
        ("unread", "exec 0<&-; exit 0", Signed),
    ] {
        autosigning.executable(&format!("#!/bin/sh\n{script}\n"));
        assert_eq!(autosigning.ask(name), expected, "{name}");
    }
}

#[test]
fn it_runs_once_for_each_request_as_the_servers_user() {
    let autosigning = Autosigning::with_file("");
    let log = autosigning.folder.path().join("log");
    let shown = log.display();
    autosigning.executable(&format!("#!/bin/sh\necho $1 $(id -u) >> {shown}\nexit 1\n"));
    for name in ["a", "b"] {
        assert_eq!(autosigning.ask(name), Waiting);
    }
    // An agent asks again with every run; that is no new request, and a policy that changed its mind is not asked.
    autosigning.executable(&format!("#!/bin/sh\necho $1 again >> {shown}\nexit 0\n"));
    assert_eq!(autosigning.site.ask("a").status, 400);
    let user = rustix::process::geteuid().as_raw();
    let expected = format!("a {user}\nb {user}\n");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), expected);
}

#[test]
fn with_duplicates_allowed_each_attempt_is_judged_anew() {
    let autosigning = Autosigning::with_file("puppet: {allow_duplicate_certs: true}\n");
    autosigning.executable("#!/bin/sh\nexit 1\n");
    assert_eq!(autosigning.ask("web01"), Waiting);
    assert_eq!(autosigning.ask("web01"), Waiting);
    autosigning.executable("#!/bin/sh\nexit 0\n");
    assert_eq!(autosigning.ask("web01"), Signed);
    // A signed name may ask again, and a request for another name is told that, not that the name is taken.
    let get = || autosigning.site.certificate("web01").body;
    let first = get();
    assert_eq!(autosigning.ask("web01"), Signed);
    assert_ne!(get(), first);
    let anonymous = autosigning.site.anonymous();
    let answer = put_request(&anonymous, "web02", &puppet_request("web01"));
    let expected = "Instance name \"web01\" does not match requested key \"web02\"";
    assert_eq!(answer.text(), expected);
}

#[test]
fn a_rebuilt_host_enrols_again_where_duplicates_are_allowed() {
    for (allowed, code) in [(false, 1), (true, 0)] {
        let text = format!("puppet: {{autosign: true, allow_duplicate_certs: {allowed}}}\n");
        let site = Site::configured(&text, &[]);
        let host = |folder: &str| {
            let (folder, port) = (site.folder(folder), site.puppet().port());
            PuppetAgent::new(&folder, "localhost", port, "web01.example.com").unwrap()
        };
        let (before, after) = (host("before"), host("after"));
        let finished = before.bootstrap().unwrap();
        assert_eq!(finished.code, Some(0), "{finished}");
        let finished = after.bootstrap().unwrap();
        assert_eq!(finished.code, Some(code), "{allowed}: {finished}");
        // Nothing was revoked.
        let verified = before.verify().unwrap();
        assert_eq!(verified.code, Some(0), "{verified}");
    }
}

#[test]
fn a_slow_policy_holds_up_its_own_request_alone() {
    let config = "puppet: {autosign_executable: {timeout: 6s, concurrency: 1}}\n";
    let autosigning = Autosigning::with_file(config);
    let marker = autosigning.folder.path().join("running");
    let shown = marker.display();
    autosigning.executable(&format!("#!/bin/sh\ntouch {shown}\nsleep 60\n"));
    let anonymous = autosigning.site.anonymous();
    std::thread::scope(|threads| {
        // The client itself gives up after 30 seconds; the policy would take a minute.
        let slow = threads.spawn(|| send(&anonymous, "slow", &puppet_request("slow")));
        wait_until("the policy runs", || marker.exists());
        for _ in 0..5 {
            let path = "/puppet-ca/v1/certificate/ca";
            let answer = anonymous.call("GET", path, &[], b"");
            assert_eq!(answer.unwrap().status, 200);
        }
        assert!(!slow.is_finished(), "others had to wait for it");
        assert_eq!(slow.join().unwrap(), Waiting);
    });
}

#[test]
fn what_it_says_goes_to_the_log_at_debug_and_is_bounded() {
    let level = "log: {level: 'info,countersign_authority=debug'}\n";
    let loud = Autosigning::with_file(level);
    let script = "#!/bin/sh\necho chatter\necho complaint >&2\nyes x | head -c 100000\n";
    loud.executable(script);
    assert_eq!(loud.ask("web01"), Signed);
    let quiet = Autosigning::with_file("");
    quiet.executable(script);
    assert_eq!(quiet.ask("web01"), Signed);
    // The log is written before the answer, but read by a thread of the test.
    wait_until("the log has it", || {
        loud.site.server.log().contains("complaint")
    });
    let said = loud.site.server.log();
    assert!(
        said.contains("chatter") && said.contains("complaint"),
        "{said}"
    );
    assert!(said.len() < 50_000, "{} bytes", said.len());
    let log = quiet.site.server.log();
    assert!(
        !log.contains("chatter") && !log.contains("complaint"),
        "{log}"
    );
}

/// Whether a process with this argument is alive.
fn is_alive(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(argument))
}

#[test]
fn nothing_that_it_leaves_behind_outlives_it() {
    let config = "puppet: {autosign_executable: {timeout: 2s}}\n";
    let autosigning = Autosigning::with_file(config);
    // A daemon in a session of its own, whose parent is gone, with an environment of its own and a child.
    let daemon = |seconds: &str| {
        format!(
            "(setsid env -i sh -c 'sleep {seconds} & exec sleep {seconds}' >&- 2>&- &)\nsleep 0.2\n"
        )
    };
    let id = std::process::id();
    for (name, end, outcome) in [("ends", "exit 0", Signed), ("hangs", "sleep 600", Waiting)] {
        let seconds = format!("{}.{id}", 7200 + name.len());
        let script = format!("#!/bin/sh\n{}{end}\n", daemon(&seconds));
        autosigning.executable(&script);
        assert_eq!(autosigning.ask(name), outcome, "{name}");
        wait_until("nothing is left", || !is_alive(&seconds));
    }
}

/// What an executable has started stays for as long as it runs, whoever else ends meanwhile.
#[test]
fn what_it_has_started_stays_while_it_runs() {
    let autosigning = Autosigning::with_file("");
    let folder = autosigning.folder.path().display();
    let script = format!(
        "#!/bin/sh\n[ $1 = quick ] && exit 0\n(setsid sh -c 'sleep 2; touch {folder}/done' &)\n\
         touch {folder}/started\nfor i in 1 2 3 4 5 6 7 8; do sleep 0.5; [ -e {folder}/done ] && exit 0; done\nexit 1\n"
    );
    autosigning.executable(&script);
    let anonymous = autosigning.site.anonymous();
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| send(&anonymous, "slow", &puppet_request("slow")));
        let started = autosigning.folder.path().join("started");
        wait_until("it runs", || started.exists());
        assert_eq!(autosigning.ask("quick"), Signed);
        assert_eq!(slow.join().unwrap(), Signed);
    });
}

#[test]
fn its_environment_is_ours_and_what_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy");
    let seen = folder.path().join("seen");
    // The limit is set right after its start.
    let script = format!(
        "#!/bin/sh\nsleep 0.5\n{{ env; pwd; ulimit -Sn; }} > {}\n",
        seen.display()
    );
    install(&policy, &script, 0o755);
    let config = folder.path().join("countersign.yaml");
    let text = "puppet: {autosign_executable: {environment: {CMDB: 'https://cmdb', LC_ALL: C}}}\n";
    std::fs::write(&config, text).unwrap();
    let data = folder.path().join("data");
    let mut command = Command::new("sh");
    // The server raises its limit of open files; its policies have the one that it was started with.
    command
        .args([
            "-c",
            "ulimit -Sn 300 && exec \"$@\"",
            "sh",
            COUNTERSIGN,
            "serve",
        ])
        .args(["--listen", "127.0.0.1:0", "--kubernetes-listen", "off"])
        .args(["--hostname", "localhost"])
        .arg("--data")
        .arg(&data)
        .arg("--config")
        .arg(&config)
        .arg("--autosign")
        .arg(&policy)
        .env("SECRET_OF_THE_SERVER", "hush");
    let server = ServerProcess::start_command(command).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let raised = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    assert!(!raised.unwrap().contains(" 300 "), "{limits}");
    let site = Site::around(data, server);
    assert_eq!(ask(&site, "web01", &CsrBuilder::new("web01")), Signed);

    let seen = std::fs::read_to_string(&seen).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[lines.len() - 2..], ["/", "300"], "{seen}");
    assert!(lines.contains(&"CMDB=https://cmdb"), "{seen}");
    assert!(lines.contains(&"LC_ALL=C"), "{seen}");
    assert!(!seen.contains("SECRET_OF_THE_SERVER"), "{seen}");
}

/// A request has a name and a key and no more, unless the host embeds more; an extension ends up in the certificate.
#[test]
fn a_policy_decides_by_what_an_agent_embeds_in_its_request() {
    let autosigning = Autosigning::with_file("");
    let openssl = Counterpart::Openssl.find().unwrap();
    let (openssl, folder) = (openssl.display(), autosigning.folder.path().display());
    autosigning.executable(&format!(
        "#!/bin/sh\n{openssl} req -noout -text > {folder}/$1.txt\ngrep -q 1.3.6.1.4.1.34380.1.1.2 {folder}/$1.txt\n"
    ));
    let known = agent(&autosigning.site, "known.example.com");
    let attributes = "extension_requests:\n  pp_instance_id: i-0123456789\n";
    known.write_csr_attributes(attributes).unwrap();
    let finished = known.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished}");
    let plain = agent(&autosigning.site, "plain.example.com");
    let waiting = plain.bootstrap().unwrap();
    assert_eq!(waiting.code, Some(1), "{waiting}");

    let read = |name: &str| std::fs::read_to_string(autosigning.folder.path().join(name)).unwrap();
    assert!(read("known.example.com.txt").contains("i-0123456789"));
    let text = read("plain.example.com.txt");
    assert!(text.contains("plain.example.com"), "{text}");
    for more in ["1.3.6.1.4.1.34380", "challengePassword", "DNS:"] {
        assert!(!text.contains(more), "{more}: {text}");
    }
    let shown = openssl_text(&known.certificate());
    assert!(shown.contains("i-0123456789"), "{shown}");
}

/// A secret in an attribute is not in the certificate, nor in what strangers may fetch.
#[test]
fn an_attribute_is_discarded_and_an_extension_is_public_for_good() {
    let site = Site::configured("puppet: {public_csr: true}\n", &[]);
    let preshared = countersign_pki::oid::PP_PRESHARED_KEY;
    let instance = countersign_pki::oid::Oid::parse("1.3.6.1.4.1.34380.1.1.2").unwrap();
    let renew = countersign_pki::oid::PP_AUTH_AUTO_RENEW;
    let own = countersign_pki::oid::Oid::parse("1.3.6.1.4.1.34380.1.2.1").unwrap();
    for (name, csr, shown) in [
        ("plain", CsrBuilder::new("plain"), 200),
        (
            "instance",
            CsrBuilder::new("instance").extension(&instance, "i-0123456789"),
            200,
        ),
        (
            "renewing",
            CsrBuilder::new("renewing").attribute(&renew, 0x0c, b"true"),
            200,
        ),
        (
            "password",
            CsrBuilder::new("password").challenge_password("attribute-secret"),
            404,
        ),
        (
            "preshared",
            CsrBuilder::new("preshared").extension(&preshared, "extension-secret"),
            404,
        ),
        (
            "custom",
            CsrBuilder::new("custom").attribute(&own, 0x0c, b"attribute-secret"),
            404,
        ),
    ] {
        assert_eq!(ask(&site, name, &csr), Waiting);
        let path = format!("/puppet-ca/v1/certificate_request/{name}");
        let answer = site.anonymous().call("GET", &path, &[], b"").unwrap();
        assert_eq!(answer.status, shown, "{name}: {}", answer.text());
        if shown == 404 {
            let absent = "/puppet-ca/v1/certificate_request/absent";
            let absent = site.anonymous().call("GET", absent, &[], b"").unwrap();
            assert_eq!(absent.text().replace("absent", name), answer.text());
        }
        let admin = site.admin().call("GET", &path, &[], b"").unwrap();
        assert_eq!(admin.status, 200, "{name}");
    }
    for (name, in_the_certificate) in [("password", false), ("preshared", true)] {
        let answer = site.put_state(name, "signed");
        assert_eq!(answer.status, 204, "{}", answer.text());
        let pem = site.certificate(name).body;
        let mut command = Command::new(Counterpart::Openssl.find().unwrap());
        command.args(["x509", "-noout", "-text"]);
        let shown = run_with_input(command, pem, Duration::from_secs(30)).unwrap();
        assert_eq!(
            shown.stdout.contains("secret"),
            in_the_certificate,
            "{shown}"
        );
    }
}

/// `puppet.conf` decides as it did at Puppet Server, and the configuration file wins over it.
#[test]
fn the_setting_of_an_existing_puppet_conf_counts() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let puppet_conf = write(
        "puppet.conf",
        "[main]\nserver = puppet\n[agent]\nautosign = true\n",
    );
    let ca_conf = write(
        "ca.conf",
        "certificate-authority: {\n  allow-subject-alt-names: true\n  ca-ttl: \"30d\"\n}\n",
    );
    write("autosign.conf", "*.example.com\n");
    let text = format!("puppet:\n  puppet_conf: {puppet_conf}\n  ca_conf: {ca_conf}\n");
    let config = write("countersign.yaml", &text);
    let site = Site::start(&["--config", &config]);
    // The list beside puppet.conf, names as ca.conf allows them.
    let csr = CsrBuilder::new("web01.example.com").dns("www.example.com");
    assert_eq!(ask(&site, "web01.example.com", &csr), Signed);
    assert_eq!(ask(&site, "web01", &CsrBuilder::new("web01")), Waiting);

    let printed = |config: &str| {
        let mut command = Command::new(COUNTERSIGN);
        command.args(["serve", "--print-config", "--config", config]);
        let finished = run_with_deadline(command, Duration::from_secs(30)).unwrap();
        (
            finished.code,
            format!("{}{}", finished.stdout, finished.stderr),
        )
    };
    let (_, effective) = printed(&config);
    for line in [
        "allow_subject_alt_names: true",
        "ca_ttl: 30d",
        "autosign.conf",
    ] {
        assert!(effective.contains(line), "{line}: {effective}");
    }
    let wins = write(
        "wins.yaml",
        &format!("{text}  autosign: false\n  ca_ttl: 1y\n"),
    );
    let (_, effective) = printed(&wins);
    for line in ["autosign: \"false\"", "ca_ttl: 1y"] {
        assert!(effective.contains(line), "{line}: {effective}");
    }
    write("puppet.conf", "[server]\nautosign = autosign.conf\n");
    let (code, fault) = printed(&config);
    assert_eq!(code, Some(1));
    assert!(
        fault.contains("puppet.conf, line 2") && fault.contains("absolute path"),
        "{fault}"
    );
}

#[test]
fn every_statement_has_a_test() {
    for (statement, source, test) in STATEMENTS {
        let defined = format!("fn {test}()");
        assert!(
            source.contains(&defined),
            "{statement}: there is no test {test}"
        );
    }
}

const HERE: &str = include_str!("autosigning.rs");
const AGENT: &str = include_str!("puppet_agent.rs");
const ENGINE: &str = include_str!("../../../authority/tests/it/autosign.rs");

/// What is said of autosigning, and where it is shown.
const STATEMENTS: [(&str, &str, &str); 24] = [
    (
        "an agent needs a signed certificate, asks for it and fetches it once it is there",
        AGENT,
        "an_agent_waits_and_enrols_after_manual_signing",
    ),
    (
        "by default an administrator signs",
        AGENT,
        "an_agent_waits_and_enrols_after_manual_signing",
    ),
    (
        "the authority can sign some requests by itself, and that changes security",
        HERE,
        "true_signs_everything_and_says_at_start_what_that_means",
    ),
    (
        "the default is a list that is not there",
        HERE,
        "the_default_is_a_list_that_does_not_exist_so_nothing_is_signed",
    ),
    (
        "false is off even if the file is written later",
        AGENT,
        "autosign_false_stays_off_even_if_the_file_appears",
    ),
    ("true signs all", AGENT, "an_agent_enrols_with_autosigning"),
    (
        "a name or glob that matches is signed, others wait for review",
        AGENT,
        "an_allowlist_signs_the_agents_on_it",
    ),
    (
        "a list must not be executable by the server, else it is a policy",
        HERE,
        "the_executable_bit_tells_a_policy_from_a_list",
    ),
    (
        "a list has one entry a line: names and domain globs",
        HERE,
        "names_and_domain_globs_of_the_list_are_signed_and_others_wait",
    ),
    (
        "globs stand for subdomains at the front, and for nothing else",
        HERE,
        "names_and_domain_globs_of_the_list_are_signed_and_others_wait",
    ),
    (
        "anybody can claim any free name of the list",
        HERE,
        "whoever_claims_a_free_name_of_the_list_gets_it_and_a_taken_one_is_safe",
    ),
    (
        "a policy is run for every request and approves it or leaves it for review",
        HERE,
        "it_runs_once_for_each_request_as_the_servers_user",
    ),
    (
        "a policy must be executable by the server, else it is a list",
        ENGINE,
        "the_executable_bit_makes_it_a_policy",
    ),
    (
        "a policy may be written in any language",
        HERE,
        "a_policy_may_be_written_in_any_language",
    ),
    (
        "a request holds a name and a key unless more is embedded",
        HERE,
        "a_policy_decides_by_what_an_agent_embeds_in_its_request",
    ),
    (
        "a policy may look at a secret in the request",
        AGENT,
        "a_policy_executable_decides_by_what_the_request_carries",
    ),
    (
        "it is as secure as the data it uses: attributes are discarded, extensions are public",
        HERE,
        "an_attribute_is_discarded_and_an_extension_is_public_for_good",
    ),
    (
        "it runs as the server's user, once for each request",
        HERE,
        "it_runs_once_for_each_request_as_the_servers_user",
    ),
    (
        "a slow policy delays nobody else, and ends",
        HERE,
        "a_slow_policy_holds_up_its_own_request_alone",
    ),
    (
        "several at once do not wait for each other",
        ENGINE,
        "a_slow_one_is_ended_by_its_deadline_and_delays_no_other_request",
    ),
    (
        "it gets exactly one argument, always",
        HERE,
        "it_gets_the_certname_alone_and_the_whole_request_alone",
    ),
    (
        "its input is the whole request in PEM and nothing else, always",
        HERE,
        "it_gets_the_certname_alone_and_the_whole_request_alone",
    ),
    (
        "all statuses but zero mean the same",
        HERE,
        "every_status_but_zero_leaves_the_request_for_review",
    ),
    (
        "what it prints goes to the log at debug and has no other effect",
        HERE,
        "what_it_says_goes_to_the_log_at_debug_and_is_bounded",
    ),
];
