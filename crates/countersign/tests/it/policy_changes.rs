//! Policy files that change under a running server, and those with which it does not start.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use countersign_testkit::http;
use serde_json::{Value, json};

use crate::commands::wait_until;
use crate::exposition::Exposition;
use crate::governed::{AGENTS, Governed, PolicyFolder, policy};
use crate::installation::run;

/// A policy that approves names below a domain.
fn below(name: &str, domain: &str) -> String {
    let rules =
        format!("    - {{name: listed, approve: {{allowlist: {{names: [\"*.{domain}\"]}}}}}}\n");
    policy(name, AGENTS, &rules)
}

/// A file with a fault in its eighth line.
fn broken() -> String {
    let good = "    - {name: fine, approve: {always: {}}}\n";
    policy(
        "broken",
        AGENTS,
        &format!("{good}    - {{name: odd, aprove: {{always: {{}}}}}}\n"),
    )
}

const FAULT: &str =
    "b.yaml, line 8, column 19: spec.rules[1].aprove: unknown key; did you mean \"approve\"?";

/// What the metrics say of the policy: its generation, whether its files are refused, loads that were, loads that were not.
fn measured(world: &Governed) -> [f64; 4] {
    let port = world.site.server.addresses.metrics_port().unwrap();
    let answer = http::call(SocketAddr::from(([127, 0, 0, 1], port)), "GET", "/metrics").unwrap();
    let shown = Exposition::read(&answer.text());
    [
        "countersign_policy_generation",
        "countersign_policy_refused",
        "countersign_policy_loads_total{outcome=\"applied\"}",
        "countersign_policy_loads_total{outcome=\"refused\"}",
    ]
    .map(|series| shown.value(series))
}

fn decides(world: &Governed, name: &str) -> bool {
    assert_eq!(world.site.ask(name).status, 200, "{name}");
    world.is_signed(name)
}

fn rules(status: &Value) -> Vec<String> {
    let rules = status["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| {
            format!(
                "{}/{}",
                rule["policy"].as_str().unwrap_or_default(),
                rule["name"].as_str().unwrap()
            )
        })
        .collect()
}

#[track_caller]
fn wait_for_generation(world: &Governed, generation: u64) {
    let said = format!("another policy is in force generation={generation}\n");
    let is_said = |log: &str| log.contains(&said);
    assert!(
        world.site.server.wait_for_log(is_said),
        "{}",
        world.site.server
    );
}

#[test]
fn a_change_is_in_force_without_a_signal_and_a_bad_one_is_not_half_applied() {
    let world = Governed::start(&[("a.yaml", &below("a", "one.example.com"))], "");
    assert!(decides(&world, "web01.one.example.com"));
    let [generation, is_refused, _, refusals] = measured(&world);
    assert_eq!((generation, is_refused, refusals), (1.0, 0.0, 0.0));
    let status = world.get("/policy");
    let [own, other] = BUILT_IN;
    let expected = ["a/listed", own, other, "/autosign"];
    assert_eq!(rules(&status), expected, "{status}");
    assert_eq!(
        (&status["generation"], &status["refused"]),
        (&1.into(), &Value::Null)
    );

    // Another file in the folder.
    world
        .policies
        .write("z.yaml", &below("z", "two.example.com"));
    wait_for_generation(&world, 2);
    assert!(decides(&world, "web01.two.example.com"));
    assert_eq!(
        rules(&world.get("/policy")),
        ["a/listed", "z/listed", own, other, "/autosign"]
    );

    // A bad one, and then a good change beside it: neither counts.
    world.policies.write("b.yaml", &broken());
    let is_told = |log: &str| {
        log.contains("the policy was not changed") && log.contains(&FAULT.replace('"', "\\\""))
    };
    assert!(
        world.site.server.wait_for_log(is_told),
        "{}",
        world.site.server
    );
    let refusals = |world: &Governed| measured(world)[3];
    assert_eq!(refusals(&world), 1.0);
    world
        .policies
        .write("a.yaml", &below("a", "three.example.com"));
    wait_until("the change beside a bad file is refused", || {
        refusals(&world) > 1.0
    });
    assert!(decides(&world, "web02.one.example.com"));
    assert!(decides(&world, "web02.two.example.com"));
    assert!(!decides(&world, "web01.three.example.com"));
    assert!(
        !decides(&world, "web01.example.com"),
        "the good rule of the bad file"
    );
    assert_eq!(measured(&world)[..2], [2.0, 1.0]);
    let status = world.get("/policy");
    assert_eq!(status["generation"], 2);
    let faults = status["refused"]["faults"].as_array().unwrap();
    assert!(
        faults
            .iter()
            .any(|fault| fault.as_str().unwrap().ends_with(FAULT)),
        "{status}"
    );

    // The fault goes, and what was good all along counts.
    std::fs::remove_file(world.policies.path("b.yaml")).unwrap();
    wait_for_generation(&world, 3);
    assert_eq!(measured(&world)[..2], [3.0, 0.0]);
    assert_eq!(world.get("/policy")["refused"], Value::Null);
    assert!(decides(&world, "web02.three.example.com"));
    assert!(!decides(&world, "web03.one.example.com"));
    // What waited is judged again when its sender comes back.
    assert_eq!(world.site.ask("web01.three.example.com").status, 200);
    assert!(world.is_signed("web01.three.example.com"));
}

#[test]
fn sighup_reads_policies_too_and_refuses_all_of_a_reload_with_a_bad_one() {
    let mut world = Governed::start(&[("a.yaml", &below("a", "one.example.com"))], "");
    world
        .policies
        .write("a.yaml", &below("a", "two.example.com"));
    world.site.server.hang_up();
    let is_reloaded = |log: &str| log.contains("the configuration was reloaded");
    assert!(
        world.site.server.wait_for_log(is_reloaded),
        "{}",
        world.site.server
    );
    assert!(decides(&world, "web01.two.example.com"));
    assert_eq!(world.get("/policy")["generation"], 2);
    world.policies.write("b.yaml", &broken());
    world.site.server.hang_up();
    let is_refused = |log: &str| log.contains("the configuration was not reloaded");
    assert!(
        world.site.server.wait_for_log(is_refused),
        "{}",
        world.site.server
    );
    assert!(decides(&world, "web02.two.example.com"));
    assert!(!decides(&world, "web01.example.com"));
}

#[test]
fn a_file_that_everybody_may_write_is_refused() {
    let world = Governed::start(&[("a.yaml", &below("a", "one.example.com"))], "");
    let everybody = || std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(world.policies.path("a.yaml"), everybody()).unwrap();
    let is_told = |log: &str| {
        log.contains("a.yaml: is not trusted: others than root and the server's user may write")
    };
    assert!(
        world.site.server.wait_for_log(is_told),
        "{}",
        world.site.server
    );
    assert!(
        decides(&world, "web01.one.example.com"),
        "what was in force stays"
    );

    let placed = PolicyFolder::new(&[("a.yaml", &below("a", "one.example.com"))], "");
    std::fs::set_permissions(placed.path("a.yaml"), everybody()).unwrap();
    refuses_to_start(
        &placed.config(),
        "a.yaml: is not trusted: others than root and the server's user may write",
    );
}

#[test]
fn a_server_does_not_start_with_a_mistyped_signer_and_warns_of_one_that_nobody_serves() {
    let deny = "    - {name: nobody, deny: {cel: 'true', message: closed}}\n";
    let closed = policy("closed", AGENTS, deny);
    let folder = PolicyFolder::new(
        &[(
            "closed.yaml",
            &closed.replace("puppet-agent", "puppet-agents"),
        )],
        "",
    );
    refuses_to_start(
        &folder.config(),
        "there is no signer countersign.dev/puppet-agents",
    );

    let elsewhere = closed.replace(AGENTS, "example.com/vpn");
    let world = Governed::start(&[("closed.yaml", &elsewhere)], "");
    let told = "signer example.com/vpn is not declared in the configuration";
    let status = world.get("/policy");
    let warning = status["warnings"][0].as_str().unwrap();
    assert!(warning.contains(told), "{status}");
    let is_logged = |log: &str| {
        let mut lines = log.lines();
        lines.any(|line| line.contains("WARN") && line.contains(told))
    };
    assert!(
        world.site.server.wait_for_log(is_logged),
        "{}",
        world.site.server
    );
    let shown = world.well(&["policy", "check"]);
    assert!(shown.contains(told), "{shown}");
}

#[test]
fn a_rules_denial_is_logged_with_its_reason_and_source() {
    let deny = "    - {name: nobody, deny: {cel: 'true', message: closed for ever}}\n";
    let world = Governed::start(&[("closed.yaml", &policy("closed", AGENTS, deny))], "");
    assert_eq!(world.site.ask("web01.example.com").status, 403);
    let is_logged = |log: &str| {
        log.lines().any(|line| {
            line.contains("name=web01.example.com")
                && line.contains("state=denied")
                && line.contains("source=127.0.0.1")
                && line.contains("closed for ever")
        })
    };
    let server = &world.site.server;
    assert!(server.wait_for_log(is_logged), "{server}");
}

#[test]
fn a_start_with_a_bad_file_is_refused_with_its_line_and_column() {
    let placed = PolicyFolder::new(
        &[
            ("a.yaml", &below("a", "one.example.com")),
            ("b.yaml", &broken()),
        ],
        "",
    );
    refuses_to_start(&placed.config(), FAULT);
    // So is one whose rules need a file that is not there.
    let rules = "    - {name: listed, approve: {allowlist: {file: none.conf}}}\n";
    placed.write("b.yaml", &policy("b", AGENTS, rules));
    refuses_to_start(&placed.config(), "none.conf: cannot be read: ");
    std::fs::remove_file(placed.path("b.yaml")).unwrap();
    assert!(decides(&placed.serve(), "web01.one.example.com"));
}

#[track_caller]
fn refuses_to_start(config: &str, why: &str) {
    let data = std::path::Path::new(config).with_file_name("refused");
    let data = data.to_str().unwrap();
    let listeners = [
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        "127.0.0.1:0",
    ];
    let finished = run(&[
        &["serve", "--config", config, "--data", data],
        &listeners[..],
    ]
    .concat());
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.stderr.contains(why), "{why} in {finished}");
    assert!(!finished.stdout.contains("ready"), "{finished}");
}

#[test]
fn the_generation_grows_with_each_change_and_survives_restarts() {
    let world = Governed::start(&[("a.yaml", &below("a", "one.example.com"))], "");
    let generation_of =
        |world: &Governed, name: &str| world.explain(name)["explanation"]["generation"].clone();
    assert!(decides(&world, "web01.one.example.com"));
    world
        .policies
        .write("a.yaml", &below("a", "two.example.com"));
    wait_for_generation(&world, 2);
    assert!(decides(&world, "web01.two.example.com"));

    // The same text is the same policy.
    let world = world.restart(|policies| policies.write("a.yaml", &below("a", "two.example.com")));
    assert!(decides(&world, "web02.two.example.com"));
    // Another text is another one, also if the server did not see it change, and also if it was in force before.
    let world = world.restart(|policies| policies.write("a.yaml", &below("a", "one.example.com")));
    assert!(decides(&world, "web02.one.example.com"));
    assert_eq!(measured(&world)[0], 3.0);
    for (name, generation) in [
        ("web01.one.example.com", 1),
        ("web01.two.example.com", 2),
        ("web02.two.example.com", 2),
        ("web02.one.example.com", 3),
    ] {
        assert_eq!(generation_of(&world, name), json!(generation), "{name}");
    }
    let text = |generation: u64| world.get(&format!("/policy/{generation}"))["text"].to_string();
    assert!(text(2).contains("*.two.example.com"), "{}", text(2));
    assert!(!text(3).contains("*.two.example.com"), "{}", text(3));
}

/// Behind whatever the site has written.
const BUILT_IN: [&str; 2] = [
    "built-in.kubelet-clients/self-node-client",
    "built-in.kubelet-clients/node-client",
];
