//! Policies in force, end to end: real agents, a real kubectl and a real decider against the real program.

use std::time::Duration;

use countersign_pki::oid;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::commands::wait_until;
use crate::governed::Mood::{self, Allows, Dead, Denies, Slow};
use crate::governed::{AGENTS, CLIENTS, Cmdb, Governed, PolicyFolder, policy};
use crate::puppet_agent::{agent, bootstrap};
use crate::site::{JSON, install, kubernetes_request, put_request};

const PRODUCTION: &str = "    - name: vault-is-ours
      deny: {cel: 'request.commonName == \"vault.example.com\"', message: a reserved name}
    - name: production
      when: request.commonName.endsWith(\".prod.example.com\")
      approve: {machine: {window: 2h, once: true}}
";

fn production() -> Governed {
    let text = policy("agents", AGENTS, PRODUCTION);
    Governed::start(&[("agents.yaml", &text)], "")
}

#[test]
fn an_agent_enrols_by_its_record_waits_without_one_and_is_denied_by_a_rule() {
    let world = production();
    let added = [
        "machine",
        "add",
        "db01.prod.example.com",
        "--instance-id",
        "i-0abc",
    ];
    world.well(&added);

    let expected = agent(&world.site, "db01.prod.example.com");
    let attributes = "extension_requests:\n  pp_instance_id: i-0abc\n";
    expected.write_csr_attributes(attributes).unwrap();
    bootstrap(&expected, 0);
    let unexpected = agent(&world.site, "db02.prod.example.com");
    let said = bootstrap(&unexpected, 1);
    assert!(said.stdout.contains("has not been signed yet"), "{said}");
    let denied = agent(&world.site, "vault.example.com");
    let said = bootstrap(&denied, 1);
    let sentence = "Failed to submit the CSR, HTTP response was 403";
    assert!(said.stderr.contains(sentence), "{said}");

    let enrolled = world.explain("db01.prod.example.com");
    let explanation = &enrolled["explanation"];
    assert_eq!(enrolled["state"], "issued", "{enrolled}");
    assert_eq!(
        explanation["by"],
        json!({"kind": "rule", "name": "production", "policy": "agents"})
    );
    assert_eq!(explanation["generation"], 1);
    assert!(explanation["micros"].as_u64().unwrap() > 0, "{enrolled}");
    let steps = explanation["steps"].as_array().unwrap();
    let told: Vec<_> = steps
        .iter()
        .map(|step| {
            (
                &step["rule"],
                &step["finding"],
                &step["answer"],
                &step["code"],
            )
        })
        .map(|(rule, finding, answer, code)| json!([rule, finding, answer, code]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["vault-is-ours", "absent", null, "cel"]),
            json!(["production", "match", "approve", "machine"]),
        ]
    );
    assert_eq!(
        steps[0]["saw"],
        "request.commonName = \"db01.prod.example.com\""
    );
    assert_eq!(
        steps[1]["reason"],
        "the inventory expects db01.prod.example.com"
    );
    assert!(steps[1]["micros"].as_u64().unwrap() > 0, "{enrolled}");
    let shown = world.well(&["machine", "show", "db01.prod.example.com", "-o", "json"]);
    let record: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(record["request"], enrolled["id"], "{record}");

    let waits = world.explain("db02.prod.example.com");
    assert_eq!(
        (&waits["state"], &waits["explanation"]["steps"][1]["code"]),
        (&"pending".into(), &"machine_unknown".into())
    );

    // The record appears, and the agent asks again. Its id is another one; then it is the right one.
    world.well(&[
        "machine",
        "add",
        "db02.prod.example.com",
        "--instance-id",
        "i-0def",
    ]);
    bootstrap(&unexpected, 1);
    let waits = world.explain("db02.prod.example.com");
    assert_eq!(
        waits["explanation"]["steps"][1]["code"], "machine_id",
        "{waits}"
    );
    world.well(&["machine", "add", "db02.prod.example.com", "--replace"]);
    bootstrap(&unexpected, 0);
    assert_eq!(unexpected.verify().unwrap().code, Some(0));
}

#[test]
fn what_was_turned_away_is_found_by_its_reason_and_its_sender_learns_nothing() {
    let world = production();
    let answer = world.site.ask("vault.example.com");
    assert_eq!(answer.status, 403);
    let explained = world.explain("vault.example.com");
    let id = explained["id"].as_str().unwrap();
    assert_eq!(
        answer.text(),
        format!("The certificate request was denied. Ask the administrator about request {id}.")
    );
    assert_eq!(
        explained["explanation"]["steps"][0]["reason"],
        "a reserved name"
    );

    let rejected = world.get("/rejections?reason=cel");
    let item = &rejected["items"][0];
    assert_eq!(rejected["items"].as_array().unwrap().len(), 1, "{rejected}");
    for (key, value) in [
        ("request_id", id),
        ("certname", "vault.example.com"),
        ("state", "denied"),
        ("reason", "cel"),
        ("rule", "vault-is-ours"),
        ("policy", "agents"),
        ("source", "127.0.0.1"),
    ] {
        assert_eq!(item[key], value, "{item}");
    }
    let others = world.get("/rejections?reason=machine_id");
    assert_eq!(others["items"], json!([]));
    let listed = world.well(&["csr", "list", "--state", "denied", "--reason", "cel"]);
    assert!(listed.contains("vault.example.com"), "{listed}");
    let listed = world.well(&["csr", "list", "--state", "denied", "--reason", "machine_id"]);
    assert!(!listed.contains("vault.example.com"), "{listed}");
    // Nothing waits, and nothing occupies the name.
    let listed = world.well(&["csr", "list"]);
    assert!(!listed.contains("vault.example.com"), "{listed}");
    assert_eq!(world.site.ask("vault.example.com").status, 403);
    let again = world.get("/rejections?certname=vault.example.com");
    assert_eq!(again["items"].as_array().unwrap().len(), 2, "{again}");
}

#[track_caller]
fn come_back(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.text());
    let pause = answer.header("retry-after").unwrap_or_default();
    assert!(pause.parse::<u32>().is_ok_and(|pause| pause > 0), "{pause}");
    assert!(!answer.text().contains("cmdb"), "{}", answer.text());
}

#[test]
fn a_decider_allows_denies_and_keeps_waiting_and_nothing_is_signed_without_its_word() {
    let cmdb = Cmdb::start();
    let world = cmdb.govern(AGENTS);
    let ask = |mood: Mood, name: &str| {
        cmdb.is(mood);
        world.site.ask(name)
    };
    assert_eq!(ask(Allows, "web01.example.com").status, 200);
    assert!(world.is_signed("web01.example.com"));
    let asked = cmdb.decider.calls();
    assert_eq!(asked[0].json()["certname"], "web01.example.com");
    let denied = ask(Denies, "web02.example.com");
    assert_eq!(denied.status, 403);
    assert!(!denied.text().contains("June"), "{}", denied.text());
    for (mood, name) in [(Slow, "web03.example.com"), (Dead, "web04.example.com")] {
        come_back(&ask(mood, name));
        let explained = world.explain(name);
        assert_eq!(
            (&explained["state"], &explained["explanation"]["code"]),
            (&"undecided".into(), &"webhook_error".into()),
            "{explained}"
        );
    }
    let log = world.site.server.log();
    assert!(log.contains("/decide"), "{log}");
    for name in ["web02", "web03", "web04"] {
        assert!(!world.is_signed(&format!("{name}.example.com")));
    }
    let denied = world.explain("web02.example.com");
    assert_eq!(denied["explanation"]["code"], "webhook_denied");
    let reason = denied["explanation"]["steps"][0]["reason"]
        .as_str()
        .unwrap();
    assert!(reason.contains("stolen in June"), "{reason}");

    // What nobody could decide and what was denied is decided anew.
    for name in [
        "web02.example.com",
        "web03.example.com",
        "web04.example.com",
    ] {
        assert_eq!(ask(Allows, name).status, 200, "{name}");
        assert!(world.is_signed(name), "{name}");
    }
}

/// No agent waits where nobody could decide: it was told to come back. A Kubernetes request waits.
#[test]
fn csr_list_shows_who_is_stuck_undecided_at_either_door() {
    let cmdb = Cmdb::start();
    let world = cmdb.govern(&format!("{AGENTS}, {CLIENTS}"));
    cmdb.is(Denies);
    assert_eq!(world.site.ask("web02.example.com").status, 403);
    for (mood, name) in [(Slow, "web03.example.com"), (Dead, "web04.example.com")] {
        cmdb.is(mood);
        come_back(&world.site.ask(name));
    }
    create(&world, "jane");
    let listed = world.well(&["csr", "list"]);
    for (name, is_shown) in [
        ("web02.example.com", false),
        ("web03.example.com", true),
        ("web04.example.com", true),
        ("jane", true),
    ] {
        assert_eq!(listed.contains(name), is_shown, "{name}: {listed}");
    }
    let undecided = world.well(&["csr", "list", "--state", "undecided"]);
    for (name, is_shown) in [
        ("web02.example.com", false),
        ("web03.example.com", true),
        ("web04.example.com", true),
        ("jane", false),
    ] {
        assert_eq!(undecided.contains(name), is_shown, "{name}: {undecided}");
    }
    // Decided, they are in neither list.
    cmdb.is(Allows);
    assert_eq!(world.site.ask("web03.example.com").status, 200);
    let listed = world.well(&["csr", "list"]);
    assert!(!listed.contains("web03.example.com"), "{listed}");
}

#[test]
fn an_agent_enrols_by_itself_when_the_decider_is_back() {
    let cmdb = Cmdb::start();
    let world = cmdb.govern(AGENTS);
    cmdb.is(Dead);
    let agent = agent(&world.site, "web01.example.com");
    let finished = std::thread::scope(|scope| {
        // It sleeps as long as it was told; what this version of it then makes of the answer is an error of its own,
        // after which it waits once more and asks again.
        let arguments = ["--waitforcert", "1"];
        let enrolling = scope.spawn(move || agent.ssl("bootstrap", &arguments).unwrap());
        let is_undecided = || {
            world.get("/rejections")["items"]
                .as_array()
                .is_some_and(|items| !items.is_empty())
        };
        wait_until("the agent has been told to come back", is_undecided);
        assert!(!world.is_signed("web01.example.com"));
        cmdb.is(Allows);
        enrolling.join().unwrap()
    });
    assert_eq!(finished.code, Some(0), "{finished}\n{}", world.site.server);
    let explained = world.explain("web01.example.com");
    assert_eq!(
        explained["explanation"]["by"]["name"], "cmdb",
        "{explained}"
    );
}

#[test]
fn the_audit_log_has_the_policy_its_verdicts_and_what_deciders_said() {
    let cmdb = Cmdb::start();
    let world = cmdb.govern(AGENTS);
    world.well(&["machine", "add", "web01.example.com"]);
    for (mood, name, status) in [
        (Allows, "web01.example.com", 200),
        (Denies, "web02.example.com", 403),
        (Dead, "web03.example.com", 503),
    ] {
        cmdb.is(mood);
        assert_eq!(world.site.ask(name).status, status);
    }
    let exported = world.well(&["audit", "export"]);
    let entries: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |event: &str, key: &str, value: &str| {
        let mut found = entries.iter();
        let found = found.find(|entry| entry["event"] == event && entry[key] == value);
        found.unwrap_or_else(|| panic!("no {event} with {key} {value} in {exported}"))
    };
    assert_eq!(
        find("policy.loaded", "subject", "policy/1")["generation"],
        1
    );
    assert_eq!(
        find("machine.added", "certname", "web01.example.com")["actor"],
        "countersign-admin"
    );
    for (name, event, word, verdict, reason) in [
        (
            "web01.example.com",
            "webhook.decision",
            "allow",
            "approve",
            "webhook",
        ),
        (
            "web02.example.com",
            "webhook.decision",
            "deny",
            "deny",
            "webhook_denied",
        ),
        (
            "web03.example.com",
            "webhook.error",
            "error",
            "pending",
            "webhook_error",
        ),
    ] {
        let said = find(event, "certname", name);
        let detail = said["detail"].as_str().unwrap();
        assert!(detail.contains(&format!(": {word}: ")), "{said}");
        let request = find("request", "certname", name);
        assert_eq!(
            (
                &request["verdict"],
                &request["reason"],
                &request["generation"]
            ),
            (&verdict.into(), &reason.into(), &1.into()),
            "{request}"
        );
        assert_eq!(said["request_id"], request["request_id"]);
    }
    world.well(&["audit", "verify"]);
}

/// The conditions of a request as kubectl shows them.
fn conditions(world: &Governed, name: &str) -> Value {
    let shown = world
        .site
        .kubectl()
        .run(&["get", "csr", name, "-o", "json"])
        .unwrap();
    assert!(shown.success(), "{shown}");
    let object: Value = serde_json::from_str(&shown.stdout).unwrap();
    object["status"]["conditions"].clone()
}

fn create(world: &Governed, name: &str) {
    let object = kubernetes_request(name).to_string();
    let kubectl = world.site.kubectl();
    let created = kubectl
        .run_with_input(&["create", "-f", "-"], &object)
        .unwrap();
    assert!(created.success(), "{created}");
}

#[test]
fn kubectl_shows_which_rule_approved_one_request_and_denied_another() {
    let rules = "    - {name: not-mallory, deny: {cel: 'request.commonName == \"mallory\"', message: we know mallory}}
    - {name: developers, approve: {cel: '\"developers\" in request.organization && !requester.anonymous'}}
";
    let world = Governed::start(&[("clients.yaml", &policy("clients", CLIENTS, rules))], "");
    for (name, kind, reason, message) in [
        (
            "jane",
            "Approved",
            "CountersignApproved",
            "approved by rule developers (holds: \"developers\" in request.organization && !requester.anonymous); \
             asked: not-mallory: abstain, developers: approve",
        ),
        (
            "mallory",
            "Denied",
            "CountersignDenied",
            "denied by rule not-mallory (we know mallory); asked: not-mallory: deny",
        ),
    ] {
        create(&world, name);
        let conditions = conditions(&world, name);
        let condition = &conditions[0];
        assert_eq!(
            (
                &condition["type"],
                &condition["reason"],
                &condition["message"]
            ),
            (&kind.into(), &reason.into(), &message.into()),
            "{conditions}"
        );
    }
    let listed = world.site.kubectl().run(&["get", "csr"]).unwrap();
    let state = |name: &str| {
        let row = listed.stdout.lines().find(|row| row.starts_with(name));
        row.and_then(|row| row.split_whitespace().last())
            .unwrap_or_default()
    };
    assert_eq!(
        (state("jane"), state("mallory")),
        ("Approved,Issued", "Denied"),
        "{listed}"
    );
    let listed = world.well(&["csr", "list", "--state", "denied", "--reason", "cel"]);
    assert!(listed.contains("mallory"), "{listed}");
}

#[test]
fn a_kubernetes_request_that_waits_for_a_dead_decider_is_approved_when_it_is_back() {
    let cmdb = Cmdb::start();
    let world = cmdb.govern(CLIENTS);
    cmdb.is(Dead);
    create(&world, "jane");
    assert_eq!(conditions(&world, "jane"), Value::Null);
    let explained = world.explain("jane");
    assert_eq!(
        (&explained["state"], &explained["explanation"]["retry"]),
        (&"pending".into(), &true.into()),
        "{explained}"
    );
    cmdb.is(Allows);
    wait_until("it is approved", || {
        conditions(&world, "jane")[0]["type"] == "Approved"
    });
    let conditions = conditions(&world, "jane");
    let message = conditions[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("approved by rule cmdb (the webhook allows it: in the CMDB since May)"),
        "{message}"
    );
}

#[test]
fn an_executable_has_a_timeout_of_its_own() {
    let placed = PolicyFolder::new(&[], "puppet: {autosign_executable: {timeout: 2m}}\n");
    let (slow, quick) = (placed.path("slow.sh"), placed.path("quick.sh"));
    install(&slow, "#!/bin/sh\nexec sleep 120\n", 0o755);
    install(&quick, "#!/bin/sh\n[ \"$1\" = web01.example.com ]\n", 0o755);
    let rules = format!(
        "    - {{name: slow, approve: {{executable: {{path: {}, timeout: 1s}}}}}}\n    - {{name: quick, approve: {{executable: {{path: {}}}}}}}\n",
        slow.display(),
        quick.display()
    );
    placed.write("programs.yaml", &policy("programs", AGENTS, &rules));
    let world = placed.serve();
    for (name, finding) in [
        ("web01.example.com", "match"),
        ("web02.example.com", "absent"),
    ] {
        assert_eq!(world.site.ask(name).status, 200);
        let explained = world.explain(name);
        let steps = &explained["explanation"]["steps"];
        assert_eq!(steps[0]["code"], "executable_declined", "{explained}");
        let took = Duration::from_micros(steps[0]["micros"].as_u64().unwrap());
        assert!(
            took >= Duration::from_secs(1) && took < Duration::from_secs(60),
            "{explained}"
        );
        assert_eq!(steps[1]["finding"], finding, "{explained}");
        assert_eq!(world.is_signed(name), finding == "match");
    }
}

/// The recipe of the cookbook, with the roles that it wants.
#[test]
fn two_people_are_needed_where_one_prepares_and_another_approves() {
    let recipe = include_str!("../../../../docs/cookbook/two-people.yaml");
    let access = "access:
  - {certname: alice.example.com, role: mint, suffixes: [.prod.example.com]}
  - {certname: bob.example.com, role: sign, suffixes: [.prod.example.com]}
";
    let world = Governed::start(&[("two-people.yaml", recipe)], access);
    let site = &world.site;
    let person = |name: &str| {
        assert_eq!(site.ask(name).status, 200);
        assert_eq!(site.put_state(name, "signed").status, 204);
        let key = keys::p256_a().pkcs8_pem();
        site.holder(&site.certificate(name).body, key.as_bytes())
    };
    let (alice, bob) = (person("alice.example.com"), person("bob.example.com"));
    let name = "db01.prod.example.com";
    let prepare = |by: &HttpsClient| {
        let body = json!({"name": name, "instance_id": "i-0abc"}).to_string();
        let answer = by.call("POST", "/enrol/v1/machines", &[JSON], body.as_bytes());
        answer.unwrap().status
    };
    let approve = |by: &HttpsClient| {
        let path = format!("/enrol/v1/requests/puppet/{name}/approve");
        by.call("POST", &path, &[JSON], b"{}").unwrap().status
    };
    let instance_id = oid::registered_oid("pp_instance_id").unwrap();
    let csr = CsrBuilder::new(name).extension(&instance_id, "i-0abc");
    let ask = || put_request(&site.anonymous(), name, &csr.sign_pem(keys::p256_b())).status;

    // Nobody has prepared it, so there is nothing to approve.
    assert_eq!(ask(), 403);
    assert_ne!(approve(&bob), 200);
    assert!(!world.is_signed(name));
    assert_eq!((prepare(&bob), prepare(&alice)), (403, 201));
    assert_eq!(ask(), 200);
    assert_eq!(approve(&alice), 403);
    assert!(!world.is_signed(name));
    assert_eq!(approve(&bob), 200);
    assert!(world.is_signed(name));
}
