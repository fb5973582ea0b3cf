//! Bootstrap tokens from the command line.

use countersign_authority::BootstrapText;
use countersign_testkit::https::HttpsClient;
use serde_json::{Value, json};

use super::World;

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl World {
    fn bootstrap(&self, arguments: &[&str]) -> (BootstrapText, String) {
        let minted = self.well(&[&["create", "--bootstrap"], arguments].concat());
        let token = BootstrapText::parse(minted.stdout.trim_end()).unwrap();
        (token, minted.stderr)
    }

    /// Who shows this at the Kubernetes door; the status is 401 if that is nobody.
    fn whoami(&self, token: &str) -> (u16, Value) {
        let url = &self.server().addresses.kubernetes;
        let address = url.strip_prefix("https://").unwrap().parse().unwrap();
        let ca = std::fs::read(self.installation.path("issuers/kubernetes/ca_crt.pem")).unwrap();
        let client = HttpsClient::new(address, &ca, None).unwrap();
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", &*bearer),
            ("content-type", "application/json"),
        ];
        let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
        let answer = client.call("POST", WHOAMI, &headers, review.to_string().as_bytes());
        let answer = answer.unwrap();
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        (answer.status, body)
    }
}

#[test]
fn a_bootstrap_token_is_minted_shown_and_revoked() {
    // It does not matter whether enrolment tokens are in use.
    let world = World::start("");
    let nothing = world.well(&["list", "--bootstrap"]);
    assert_eq!(
        nothing.stdout,
        "No bootstrap tokens; `countersign token create --bootstrap` mints them.\n"
    );
    let (token, said) = world.bootstrap(&[
        "--ttl",
        "2h",
        "--group",
        "system:bootstrappers:b",
        "--group",
        "system:bootstrappers:a",
        "--description",
        "rack 7",
    ]);
    let id = token.id().as_str();
    let (_, secret) = token.expose().split_once('.').unwrap();
    assert!(
        said.starts_with(&format!("bootstrap token {id} is good until ")),
        "{said}"
    );
    let (status, review) = world.whoami(token.expose());
    assert_eq!(
        (status, &review["status"]["userInfo"]),
        (
            201,
            &json!({
                "username": format!("system:bootstrap:{id}"),
                "groups": ["system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b", "system:authenticated"],
            })
        )
    );
    let listed = world.items(&["--bootstrap"]);
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["id"], &listed[0]["status"]),
        (&json!(id), &json!("active"))
    );
    for arguments in [
        ["list", "--bootstrap"].as_slice(),
        &["show", id],
        &["show", id, "-o", "yaml"],
    ] {
        let shown = world.well(arguments).stdout;
        assert!(shown.contains(id) && shown.contains("rack 7"), "{shown}");
        assert!(!shown.contains(secret), "{arguments:?}");
    }
    let revoked = world.well(&["revoke", id]);
    assert_eq!(revoked.stdout, format!("token {id} revoked\n"));
    assert_eq!(world.json(&["show", id])["status"], "revoked");
    assert_eq!(world.whoami(token.expose()).0, 401);
    let log = world.server().log();
    assert!(!log.contains(secret), "{log}");
}

#[test]
fn without_an_end_there_is_a_warning_and_json_is_an_object() {
    let world = World::start("");
    let (token, said) = world.bootstrap(&["--ttl", "0"]);
    let remedy = format!("countersign token revoke {}", token.id());
    assert!(
        said.contains("has no end") && said.contains(&remedy),
        "{said}"
    );
    let minted = world.well(&["create", "--bootstrap", "--format", "json"]);
    let minted: Value = serde_json::from_str(&minted.stdout).unwrap();
    let token = BootstrapText::parse(minted["token"].as_str().unwrap()).unwrap();
    assert_eq!(minted["id"], json!(token.id()));
    assert!(minted["expires_at"].is_string());
}

#[test]
fn what_cannot_be_is_told_before_anything_is_minted() {
    let world = World::start("");
    let whole = "abcdef.0123456789abcdef";
    for (code, arguments, told) in [
        (
            2,
            ["create", "web01", "--bootstrap"].as_slice(),
            "--bootstrap",
        ),
        (
            2,
            &["create", "--bootstrap", "--max-uses", "2"],
            "--max-uses",
        ),
        (
            2,
            &["create", "web01", "--group", "system:bootstrappers:a"],
            "--bootstrap",
        ),
        (
            2,
            &["create", "--bootstrap", "--format", "csv"],
            "bare or json",
        ),
        (
            1,
            &["create", "--bootstrap", "--group", "system:masters"],
            "groups: must be system:bootstrappers:",
        ),
        (2, &["list", "--bootstrap", "--unused"], "--unused"),
        (2, &["show", whole], "countersign token revoke abcdef"),
        (2, &["release", "abcdef"], "never used up"),
        (
            2,
            &["revoke", "abcdef", "--revoke-certificates"],
            "bootstrap token",
        ),
        (1, &["show", "abcdef"], "there is no token abcdef"),
    ] {
        let said = world.refused(code, arguments);
        assert!(said.contains(told), "{arguments:?}: {said}");
        assert!(!said.contains("0123456789abcdef"), "{said}");
    }
    assert_eq!(world.items(&["--bootstrap"]), Vec::<Value>::new());
}
