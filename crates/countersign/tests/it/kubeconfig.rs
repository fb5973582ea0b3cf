//! `countersign kubeconfig`: users of the Kubernetes door by an administrator's word.

use std::os::unix::fs::PermissionsExt as _;

use countersign_testkit::kubectl::Kubectl;

use crate::installation::Installation;

#[test]
fn a_user_is_who_the_administrator_says() {
    let site = Installation::new();
    let _server = site.serve(&[]);
    let file = site.path("jane.kubeconfig");
    let path = file.to_str().unwrap();
    let made = site.run(&[
        "kubeconfig",
        "--user",
        "jane: \"q\"",
        "--group",
        "developers",
        "--group",
        "on-call",
        "--ttl",
        "2h",
        "--out",
        path,
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let kubectl = Kubectl::new(&file, &site.path("home")).unwrap();
    let who = kubectl.run(&["auth", "whoami", "-o", "json"]).unwrap();
    let who: serde_json::Value = serde_json::from_str(&who.stdout).unwrap();
    let info = &who["status"]["userInfo"];
    assert_eq!(info["username"], "jane: \"q\"");
    // Certificates have groups in no order of their own.
    let groups = info["groups"].as_array().unwrap();
    for group in ["developers", "on-call", "system:authenticated"] {
        assert!(groups.iter().any(|found| found == group), "{groups:?}");
    }
    assert_eq!(groups.len(), 3);
    let list = kubectl.run(&["get", "csr"]).unwrap();
    assert!(
        list.stderr.contains("(Forbidden)"),
        "nothing is bound to jane: {list:?}"
    );

    let again = site.run(&["kubeconfig", "--user", "jane", "--out", path]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("exists: remove it"), "{again:?}");
}

/// A kubelet must not get the administrator's credentials with its own.
#[test]
fn a_file_for_kubelets_has_a_token_of_its_own_and_no_key() {
    let site = Installation::new();
    let _server = site.serve(&[]);
    let file = site.path("bootstrap.kubeconfig");
    let path = file.to_str().unwrap();
    let group = "system:bootstrappers:rack7";
    let made = site.run(&["kubeconfig", "--bootstrap", "--group", group, "--out", path]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("client-"), "{made}");

    let kubectl = Kubectl::new(&file, &site.path("home")).unwrap();
    let who = kubectl.run(&["auth", "whoami", "-o", "json"]).unwrap();
    let who: serde_json::Value = serde_json::from_str(&who.stdout).unwrap();
    let info = &who["status"]["userInfo"];
    let user = info["username"].as_str().unwrap();
    let id = user.strip_prefix("system:bootstrap:").unwrap();
    assert!(info["groups"].as_array().unwrap().contains(&group.into()));
    assert!(
        made.stderr.contains(&format!("token revoke {id}")),
        "{made}"
    );
    let revoked = site.run(&["token", "revoke", id]);
    assert!(revoked.success(), "{revoked}");
    let list = kubectl.run(&["get", "csr"]).unwrap();
    assert!(!list.success(), "{list}");

    let both = site.run(&["kubeconfig", "--bootstrap", "--user", "jane"]);
    assert_eq!(both.code, Some(2), "{both}");
}

#[test]
fn names_of_others_are_refused() {
    let site = Installation::new();
    let _server = site.serve(&[]);
    for (user, said) in [
        ("system:bootstrap:abcdef", "is nobody's name"),
        ("system:anonymous", "is nobody's name"),
        ("", "the name is empty"),
    ] {
        let made = site.run(&["kubeconfig", "--user", user]);
        assert_eq!(made.code, Some(1), "{user}: {made:?}");
        assert!(made.stderr.contains(said), "{user}: {made:?}");
        assert_eq!(made.stdout, "");
    }
}
