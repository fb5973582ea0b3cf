//! SigningPolicies decide at the authority behind the CertificateAuthority.

use std::time::Duration;

use countersign_pki::oid;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{Site, condition};
use crate::installation::address;
use crate::site::put_request;

impl Site {
    /// Whether a request is signed at once, as agents ask.
    fn signs(&self, name: &str, message: &CsrBuilder) -> bool {
        let puppet = address(&self.behind.server.addresses.puppet);
        let trust = self.behind.installation.bytes("admin/ca.pem");
        let agent = HttpsClient::new(puppet, &trust, None).unwrap();
        let answer = put_request(&agent, name, &message.sign_pem(keys::p256_b()));
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let path = format!("/puppet-ca/v1/certificate/{name}");
        agent.call("GET", &path, &[], b"").unwrap().status == 200
    }

    /// The text of the policy in force, as those see it who may read.
    fn newest_text(&self) -> String {
        let puppet = address(&self.behind.server.addresses.puppet);
        let read = |name: &str| self.behind.installation.bytes(name);
        let pair = (read("admin/admin.pem"), read("admin/admin-key.pem"));
        let identity = Some((pair.0.as_slice(), pair.1.as_slice()));
        let admin = HttpsClient::new(puppet, &read("admin/ca.pem"), identity).unwrap();
        let get = |path: &str| {
            let answer = admin.call("GET", &format!("/enrol/v1/{path}"), &[], b"");
            let answer = answer.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            let document: Value = serde_json::from_str(&answer.text()).unwrap();
            document
        };
        let generation = get("policy")["generation"].to_string();
        get(&format!("policy/{generation}"))["text"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until requests like this are signed, or are not any more. Each is another one.
    #[track_caller]
    fn until_signed(&self, expected: bool, request: impl Fn(usize) -> (String, CsrBuilder)) {
        let mut count = 0;
        let changed = ask_again(MINUTE, || {
            count += 1;
            let (name, message) = request(count);
            (self.signs(&name, &message) == expected).then_some(())
        });
        assert!(changed.is_some(), "not within a minute");
    }
}

fn plain(name: &str) -> CsrBuilder {
    CsrBuilder::new(name)
}

fn with_key(name: &str, key: &str) -> CsrBuilder {
    CsrBuilder::new(name).extension(&oid::PP_PRESHARED_KEY, key)
}

fn of_production(more: Value) -> Value {
    let mut spec = json!({"certificateAuthorityRef": "production"});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

#[test]
fn signing_policies_count_within_a_minute_and_a_broken_one_keeps_those_before() {
    let site = Site::start();
    let stage = &site.stage;
    assert!(!site.signs("a.example.com", &plain("a.example.com")));
    stage.create(
        "SigningPolicy",
        "p1",
        of_production(json!({"pattern": {"allow": ["*.example.com"]}})),
    );
    let policy = stage.in_phase("SigningPolicy", "p1", "Active");
    assert_eq!(condition(&policy, "Ready"), "True PolicyRendered");
    site.until_signed(true, |count| {
        let name = format!("b{count}.example.com");
        (name.clone(), plain(&name))
    });

    // The value of a Secret that is not there yet: the policies before stay in force.
    let from_secret = json!({"csrAttributes": [
        {"name": "pp_preshared_key", "valueFrom": {"secretKeyRef": {"name": "enrolment", "key": "psk"}}},
    ]});
    stage.create("SigningPolicy", "p2", of_production(from_secret));
    let policy = stage.in_phase("SigningPolicy", "p2", "Error");
    assert_eq!(condition(&policy, "Ready"), "False Error");
    assert!(site.signs("c.example.com", &plain("c.example.com")));
    let explained = site
        .behind
        .installation
        .run(&["csr", "explain", "c.example.com"]);
    assert!(
        explained.stdout.contains("SigningPolicy p1 permits it"),
        "{explained}"
    );
    assert!(!site.signs("early", &with_key("early", "for nobody else")));
    stage.put_secret("enrolment", &[("psk", "for nobody else")]);
    stage.in_phase("SigningPolicy", "p2", "Active");
    site.until_signed(true, |count| {
        let name = format!("late{count}");
        (name.clone(), with_key(&name, "for nobody else"))
    });
    assert!(!site.signs("wrong", &with_key("wrong", "for everybody else")));
    assert!(!site.signs("without", &plain("without")));

    // What was in force is on record without the value and what it could be found from; another value is another version.
    let first = site.newest_text();
    assert!(first.contains("withheld"), "{first}");
    for hidden in ["sha256", "for nobody else"] {
        assert!(!first.contains(hidden), "{hidden}: {first}");
    }
    let data = json!({"stringData": {"psk": "for nobody else either"}});
    let path = "/api/v1/namespaces/puppet/secrets/enrolment";
    assert_eq!(stage.call("PATCH", path, Some(&data)).0, 200);
    let other = ask_again(MINUTE, || (site.newest_text() != first).then_some(()));
    assert!(other.is_some(), "{first}");

    // The operator's own name and an administrator's mark, whatever a policy allows.
    stage.create("SigningPolicy", "p3", of_production(json!({"any": true})));
    stage.in_phase("SigningPolicy", "p3", "Active");
    site.until_signed(true, |count| {
        let name = format!("whatever{count}");
        (name.clone(), plain(&name))
    });
    let role =
        CsrBuilder::new("role").extension(&oid::registered_oid("pp_authorization").unwrap(), "x");
    assert!(!site.signs("role", &role));

    for name in ["p1", "p2", "p3"] {
        stage.delete("SigningPolicy", name);
        stage.is_gone("SigningPolicy", name);
    }
    site.until_signed(false, |count| {
        let name = format!("d{count}.example.com");
        (name.clone(), plain(&name))
    });
    // No value of a Secret is with the authority.
    let exported = site.behind.installation.run(&["audit", "export"]);
    assert!(
        exported.success() && !exported.stdout.contains("for nobody else"),
        "{exported}"
    );
}

#[test]
fn policies_of_an_authority_that_is_deleted_decide_nothing_any_more() {
    let site = Site::start();
    site.stage
        .create("SigningPolicy", "all", of_production(json!({"any": true})));
    site.until_signed(true, |count| {
        let name = format!("a{count}");
        (name.clone(), plain(&name))
    });
    site.stage.delete("CertificateAuthority", "production");
    site.until_signed(false, |count| {
        let name = format!("b{count}");
        (name.clone(), plain(&name))
    });
    let policy = site.stage.in_phase("SigningPolicy", "all", "Error");
    assert_eq!(
        condition(&policy, "Ready"),
        "False CertificateAuthorityNotFound"
    );
}

#[test]
fn policies_of_an_authority_that_is_deleted_while_nobody_looks_are_withdrawn_later() {
    let mut site = Site::start();
    site.stage
        .create("SigningPolicy", "all", of_production(json!({"any": true})));
    site.until_signed(true, |count| {
        let name = format!("a{count}");
        (name.clone(), plain(&name))
    });
    site.operator.kill9();
    for (kind, name) in [
        ("SigningPolicy", "all"),
        ("CertificateAuthority", "production"),
    ] {
        site.stage.delete(kind, name);
        site.stage.is_gone(kind, name);
    }
    assert!(
        site.signs("meanwhile", &plain("meanwhile")),
        "nobody has withdrawn it"
    );
    let access = site.behind.access();
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    site.operator = site.stage.operator(&access);
    site.until_signed(false, |count| {
        let name = format!("b{count}");
        (name.clone(), plain(&name))
    });
}

const MINUTE: Duration = Duration::from_secs(60);
