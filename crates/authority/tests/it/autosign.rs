//! Puppet's `autosign` setting with a path: what is there when a request comes in decides.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign_authority::store::Past;
use countersign_authority::{Duplicate, Limits, RequestRecord, RequestState, SubmitFault};
use countersign_policy::{Apex, Deciding, Finding, Policy, Rule, RuleKind};
use countersign_webhook::{Executables, ThisMachine};

use crate::profiles;
use crate::world::{self, DOOR, World, act, submission};

/// An authority whose rule looks at a path.
struct Autosign {
    world: World,
    path: PathBuf,
}

impl Autosign {
    async fn new(apex: Apex) -> Self {
        let world = World::new(false).await;
        let path = world.folder.path().join("autosign.conf");
        let mut policy = world::policy(false);
        policy.rules.push(Rule::approving(
            "autosign",
            vec![world::agent_signer()],
            RuleKind::AutosignFile {
                path: path.clone(),
                apex,
            },
        ));
        world
            .authority
            .set_rules(world.authority.rules().with_policy(policy));
        Self { world, path }
    }

    fn write(&self, text: &str, mode: u32) {
        // Anew each time, as an editor does; also a busy executable can be replaced so.
        let next = self.path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&next, &self.path).unwrap();
    }

    async fn submit(&self, name: &str) -> RequestState {
        self.world
            .authority
            .requests
            .submit(submission(name))
            .await
            .unwrap()
            .state
    }

    async fn record(&self, name: &str) -> RequestRecord {
        self.world
            .authority
            .requests
            .at(&DOOR, name, Past::Include)
            .await
            .unwrap()
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_rules_found_stays_beside_what_a_person_decides() {
    let site = Autosign::new(Apex::Excluded).await;
    site.write("other\n", 0o644);
    for name in ["approved", "denied"] {
        assert_eq!(site.submit(name).await, RequestState::Pending);
        let asked = site.record(name).await.explanation.steps;
        assert_eq!(asked.len(), 1, "{asked:?}");
        let decided = match name {
            "approved" => {
                site.world
                    .authority
                    .requests
                    .approve(act(name))
                    .await
                    .unwrap()
                    .into_recorded()
                    .request
            }
            _ => site.world.authority.requests.deny(act(name)).await.unwrap(),
        };
        assert!(
            matches!(decided.explanation.by, Some(Deciding::Person { .. })),
            "{decided:?}"
        );
        assert_eq!(decided.explanation.steps, asked, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_signs_nothing_and_a_list_signs_who_is_on_it_from_then_on() {
    let site = Autosign::new(Apex::Excluded).await;
    assert_eq!(site.submit("a.example.com").await, RequestState::Pending);
    site.write("# lab\n*.example.com\nexact\nbad line\n", 0o644);
    assert_eq!(site.submit("b.example.com").await, RequestState::Issued);
    assert_eq!(site.submit("exact").await, RequestState::Issued);
    assert_eq!(
        site.submit("example.com").await,
        RequestState::Pending,
        "the apex is not below itself"
    );
    assert_eq!(site.submit("other").await, RequestState::Pending);
    site.write("other2\n", 0o644);
    assert_eq!(
        site.submit("other2").await,
        RequestState::Issued,
        "a changed list counts at once"
    );
    assert_eq!(site.submit("c.example.com").await, RequestState::Pending);
    let record = site.record("b.example.com").await;
    assert!(
        record.explanation.to_string().contains("*.example.com"),
        "{}",
        record.explanation
    );
    // What waits is not looked at again: a person decides it.
    let again = site
        .world
        .authority
        .requests
        .submit(submission("other"))
        .await;
    let requested = matches!(
        again,
        Err(SubmitFault::Duplicate {
            duplicate: Duplicate::Requested,
            ..
        })
    );
    assert!(requested, "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_executable_bit_makes_it_a_policy() {
    let site = Autosign::new(Apex::Excluded).await;
    let script = "#!/bin/sh\ncase \"$1\" in good*) exit 0;; esac\nexit 3\n";
    site.write(script, 0o644);
    assert_eq!(
        site.submit("good1").await,
        RequestState::Pending,
        "a list of odd lines"
    );
    site.write(script, 0o755);
    assert_eq!(site.submit("good2").await, RequestState::Issued);
    assert_eq!(site.submit("evil").await, RequestState::Pending);
    let step = &site.record("evil").await.explanation.steps[0];
    assert_eq!(step.finding, Finding::Absent);
    assert!(step.reason.contains("status 3"), "{}", step.reason);
}

/// Exactly one argument, the PEM request and nothing else on standard input, no shell, a scrubbed environment.
#[tokio::test(flavor = "multi_thread")]
async fn the_executable_gets_the_name_and_the_request_and_nothing_of_ours() {
    let site = Autosign::new(Apex::Excluded).await;
    let seen = site.world.folder.path().join("seen");
    let seen = seen.display();
    site.write(
        &format!("#!/bin/sh\n{{ echo \"$#\"; echo \"$1\"; cat; env; }} > {seen}\n"),
        0o755,
    );
    assert_eq!(site.submit("web01").await, RequestState::Issued);
    let text = std::fs::read_to_string(site.world.folder.path().join("seen")).unwrap();
    let (head, rest) = text
        .split_once("-----BEGIN CERTIFICATE REQUEST-----")
        .unwrap();
    assert_eq!(head, "1\nweb01\n");
    let (_, environment) = rest
        .split_once("-----END CERTIFICATE REQUEST-----\n")
        .unwrap();
    let names: Vec<&str> = environment
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    for name in names {
        let ours = ["PATH", "LC_ALL", "RUBYLIB", "COUNTERSIGN_RUN"];
        // The shell adds these by itself.
        let of_the_shell = ["PWD", "SHLVL", "_", "OLDPWD"];
        assert!(
            ours.contains(&name) || of_the_shell.contains(&name),
            "{environment}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_but_status_0_declines_and_unread_input_does_not() {
    let site = Autosign::new(Apex::Excluded).await;
    for (n, (case, script, expected)) in [
        (
            "ignores its input",
            "#!/bin/sh\nexec true\n",
            RequestState::Issued,
        ),
        (
            "talks a lot",
            "#!/bin/sh\nyes | head -c 300000; yes | head -c 300000 >&2\n",
            RequestState::Issued,
        ),
        ("status 1", "#!/bin/sh\nexit 1\n", RequestState::Pending),
        ("status 255", "#!/bin/sh\nexit 255\n", RequestState::Pending),
        (
            "dies by a signal",
            "#!/bin/sh\nkill -9 $$\n",
            RequestState::Pending,
        ),
        (
            "cannot start",
            "#!/nonexistent/interpreter\n",
            RequestState::Pending,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        site.write(script, 0o755);
        assert_eq!(site.submit(&format!("host{n}")).await, expected, "{case}");
    }
}

/// While an executable thinks, the configuration is reloaded: what is in force when it has answered counts.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_were_withdrawn_meanwhile_sign_nothing() {
    let site = Autosign::new(Apex::Excluded).await;
    let [runs, go] = ["runs", "go"].map(|name| site.world.folder.path().join(name));
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\nuntil [ -e {} ]; do sleep 0.02; done\n",
        runs.display(),
        go.display()
    );
    site.write(&script, 0o755);
    let authority = &site.world.authority;
    let executable = Policy::clone(&authority.rules().policy);
    let mut reserved = executable.clone();
    reserved.reserved.names.insert("reserved".to_owned());
    let renewed = Policy {
        generation: 4,
        ..executable.clone()
    };
    for (name, next, state) in [
        ("withdrawn", world::policy(false), RequestState::Pending),
        ("reserved", reserved, RequestState::Pending),
        ("same", renewed, RequestState::Issued),
    ] {
        authority.set_rules(authority.rules().with_policy(executable.clone()));
        let submitted = {
            let authority = authority.clone();
            tokio::spawn(async move { authority.requests.submit(submission(name)).await })
        };
        let seen = || std::fs::read_to_string(&runs).is_ok_and(|seen| seen.contains(name));
        let begun = async {
            while !seen() {
                tokio::task::yield_now().await;
            }
        };
        let patience = Duration::from_secs(8);
        tokio::time::timeout(patience, begun).await.unwrap();
        let generation = next.generation;
        authority.set_rules(authority.rules().with_policy(next));
        std::fs::write(&go, "").unwrap();
        let submitted = submitted.await.unwrap().unwrap();
        assert_eq!(submitted.state, state, "{name}");
        let explanation = site.record(name).await.explanation;
        assert_eq!(explanation.generation, generation, "{name}");
        std::fs::remove_file(&go).unwrap();
    }
    let rules = authority.rules();
    authority.set_rules(
        rules
            .with_policy(world::policy(true))
            .with_signers(Vec::new()),
    );
    assert!(authority.rules().signer(&world::agent_signer()).is_none());
    assert_eq!(authority.rules().policy.rules.len(), 1);
    let runs = std::fs::read_to_string(&runs).unwrap();
    assert_eq!(runs, "withdrawn\nreserved\nsame\n", "each is asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_leaves_behind_delays_nobody_and_does_not_outlive_it() {
    let site = Autosign::new(Apex::Excluded).await;
    let pid = site.world.folder.path().join("pid");
    let shown = pid.display();
    site.write(
        &format!("#!/bin/sh\nsleep 600 &\necho $! > {shown}\nexit 0\n"),
        0o755,
    );
    let answered = tokio::time::timeout(Duration::from_secs(8), site.submit("web01")).await;
    assert_eq!(answered.unwrap(), RequestState::Issued);
    let pid: i32 = std::fs::read_to_string(&pid)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    wait_until_gone(pid).await;
}

/// A daemon that leaves the process group and keeps the pipes costs neither the approval nor descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_keeps_the_pipes_delays_nobody() {
    let site = Autosign::new(Apex::Excluded).await;
    let pid = site.world.folder.path().join("pid");
    let shown = pid.display();
    site.write(&format!("#!/bin/sh\nsetsid sh -c 'echo $$ > {shown}; exec sleep 600' &\nwhile [ ! -s {shown} ]; do sleep 0.01; done\nexit 0\n"), 0o755);
    let answered = tokio::time::timeout(Duration::from_secs(8), site.submit("web01")).await;
    assert_eq!(answered.unwrap(), RequestState::Issued);
    let pid: i32 = std::fs::read_to_string(&pid)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let mut command = std::process::Command::new("kill");
    assert!(
        command
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// Killed means gone or a zombie that nobody has collected yet.
async fn wait_until_gone(pid: i32) {
    for _ in 0..200 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("process {pid} outlived the policy that started it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_one_is_ended_by_its_deadline_and_delays_no_other_request() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let path = folder.path().join("policy");
    let script =
        "#!/bin/sh\ncase \"$1\" in slow*) touch \"${0%policy}running\"; sleep 600;; esac\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut policy = world::policy(false);
    policy.rules.push(Rule::approving(
        "autosign",
        vec![world::agent_signer()],
        RuleKind::AutosignFile {
            path,
            apex: Apex::Excluded,
        },
    ));
    let profile = profiles::agent(world::settings());
    let profiles = vec![(world::agent_signer(), profile, true)];
    let (store, keys) = (world::store(folder.path()), world::keys(folder.path()));
    let authority = world::authority_limited(
        folder.path(),
        Arc::new(store),
        Arc::new(keys),
        world::TestClock::new(),
        policy,
        profiles,
        Limits::STANDARD,
    )
    .await;
    let local = ThisMachine::new(Executables {
        seconds: 2,
        at_once: 2,
        ..Executables::STANDARD
    });
    authority.set_local_evidence(Arc::new(local));

    let marker = folder.path().join("running");
    let slow = tokio::spawn({
        let authority = authority.clone();
        async move {
            authority
                .requests
                .submit(submission("slow"))
                .await
                .unwrap()
                .state
        }
    });
    while !marker.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // While the slow one runs, its name is taken and every other is free.
    let again = authority.requests.submit(submission("slow")).await;
    assert!(
        matches!(
            again,
            Err(SubmitFault::Duplicate {
                duplicate: Duplicate::Requested,
                ..
            })
        ),
        "{again:?}"
    );
    let quick = authority
        .requests
        .submit(submission("quick"))
        .await
        .unwrap()
        .state;
    assert!(!slow.is_finished());
    assert_eq!(quick, RequestState::Issued);
    assert_eq!(slow.await.unwrap(), RequestState::Pending);
    let record = authority
        .requests
        .at(&DOOR, "slow", Past::Include)
        .await
        .unwrap()
        .unwrap();
    assert!(
        record.explanation.steps[0].reason.contains("within 2 s"),
        "{}",
        record.explanation
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_others_may_write_or_that_is_none_is_refused() {
    let site = Autosign::new(Apex::Excluded).await;
    for (n, (case, text, mode)) in [
        ("a list for all to write", "*\n", 0o666),
        ("a list for the group to write", "*\n", 0o664),
        (
            "an executable for all to write",
            "#!/bin/sh\nexit 0\n",
            0o777,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        site.write(text, mode);
        let name = format!("host{n}");
        assert_eq!(site.submit(&name).await, RequestState::Pending, "{case}");
        let step = &site.record(&name).await.explanation.steps[0];
        assert_eq!(step.finding, Finding::Unavailable, "{case}");
        assert!(
            step.reason.contains("chmod go-w"),
            "{case}: {}",
            step.reason
        );
    }
    std::fs::remove_file(&site.path).unwrap();
    std::fs::create_dir(&site.path).unwrap();
    assert_eq!(site.submit("directory").await, RequestState::Pending);

    // Nor is one that somebody could replace, whatever it leads to.
    std::fs::remove_dir(&site.path).unwrap();
    let open = site.world.folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::write(open.join("list"), "*\n").unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink(open.join("list"), &site.path).unwrap();
    assert_eq!(site.submit("replaceable").await, RequestState::Pending);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(site.submit("settled").await, RequestState::Issued);
}

/// Nobody is asked about what only a person could sign, and what is asked is asked once.
#[tokio::test(flavor = "multi_thread")]
async fn the_executable_is_not_run_for_the_unsignable_nor_twice() {
    let site = Autosign::new(Apex::Excluded).await;
    let log = site.world.folder.path().join("log");
    let shown = log.display();
    site.write(&format!("#!/bin/sh\necho $1 >> {shown}\nexit 1\n"), 0o755);
    let key = countersign_keys::LeafKey::generate().unwrap();
    let wide = world::csr(
        &key,
        "wide",
        &[countersign_pki::AltName::Dns("other".to_owned())],
    );
    let submitted = site
        .world
        .authority
        .requests
        .submit(world::with_csr("wide", wide))
        .await
        .unwrap();
    assert!(submitted.unsignable.is_some() && submitted.automatic);
    assert_eq!(site.submit("once").await, RequestState::Pending);
    for _ in 0..3 {
        site.world
            .authority
            .requests
            .submit(submission("once"))
            .await
            .unwrap_err();
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "once\n");
    site.world
        .authority
        .requests
        .approve(act("once"))
        .await
        .unwrap();
}
