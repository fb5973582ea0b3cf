//! Countersign itself is the authority behind an internal CertificateAuthority.

use countersign_pki::{Crl, oid, pem};
use countersign_testkit::deadline::ask_again;
use serde_json::json;

use super::{Behind, Site, Stage, condition};

#[test]
fn an_internal_authority_gets_ready_and_the_page_s_examples_reach_signed() {
    let site = Site::start();
    let stage = &site.stage;
    let ca = stage.object("CertificateAuthority", "production", |it| {
        condition(it, "OperatorSigningReady").starts_with("True")
    });
    assert_eq!(condition(&ca, "CAReady"), "True CAInitialized");
    assert_eq!(ca["status"]["caSecretName"], "production-ca");
    assert_eq!(ca["status"]["serviceName"], "production-internal");
    assert_eq!(
        ca["status"]["signingSecretName"],
        "production-operator-signing-tls"
    );
    let own = stage.in_phase("Certificate", "production-operator-signing", "Signed");
    assert_eq!(own["spec"]["certname"], "production-operator");
    let (secret, value) = stage.secret("production-ca").unwrap();
    assert_eq!(
        value("ca_crt.pem"),
        site.behind.installation.read("issuers/puppet/ca_crt.pem")
    );
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["name"],
        "production"
    );
    let (_, value) = stage.secret("production-ca-crl").unwrap();
    assert!(value("ca_crl.pem").starts_with("-----BEGIN X509 CRL-----"));
    let (status, service) = stage.call(
        "GET",
        "/api/v1/namespaces/puppet/services/production-internal",
        None,
    );
    assert_eq!(
        (status, &service["spec"]["ports"][0]["port"]),
        (200, &json!(8140))
    );

    // Those of the documentation page.
    stage.apply(
        r#"
apiVersion: openvox.voxpupuli.org/v1alpha1
kind: Certificate
metadata: {name: production-cert, namespace: puppet}
spec:
  authorityRef: production
  certname: puppet
  dnsAltNames: [puppet, production-ca, production-ca.openvox.svc]
---
apiVersion: openvox.voxpupuli.org/v1alpha1
kind: Certificate
metadata: {name: compiler, namespace: puppet}
spec:
  authorityRef: production
  certname: compiler.example.com
  csrExtensions:
    ppRole: compiler
    ppEnvironment: production
    customExtensions: {pp_cost_center: IT, pp_department: Engineering}
---
apiVersion: openvox.voxpupuli.org/v1alpha1
kind: Certificate
metadata: {name: operator-signing, namespace: puppet}
spec:
  authorityRef: production
  certname: operator-signing
  csrExtensions: {ppCliAuth: true}
"#,
    );
    for name in ["production-cert", "compiler", "operator-signing"] {
        let certificate = stage.in_phase("Certificate", name, "Signed");
        assert_eq!(
            condition(&certificate, "CertSigned"),
            "True CertificateSigned",
            "{name}"
        );
        assert_eq!(certificate["status"]["secretName"], format!("{name}-tls"));
        let leaf = stage.pair(name);
        assert_eq!(
            certificate["status"]["notAfter"],
            leaf.not_after().to_string(),
            "{name}"
        );
        assert!(
            stage.secret(&format!("{name}-tls-pending")).is_none(),
            "{name}"
        );
        let (secret, _) = stage.secret(&format!("{name}-tls")).unwrap();
        assert_eq!(
            secret["metadata"]["labels"],
            json!({
                "app.kubernetes.io/name": "openvox",
                "app.kubernetes.io/managed-by": "openvox-operator",
                "openvox.voxpupuli.org/certificateauthority": "production",
                "openvox.voxpupuli.org/certificate": name,
            })
        );
    }
    let names: Vec<String> = stage
        .pair("production-cert")
        .alt_names()
        .iter()
        .map(|it| it.to_puppet_text())
        .collect();
    assert!(
        names.contains(&"DNS:production-ca.openvox.svc".to_owned()),
        "{names:?}"
    );
    let extension = |name: &str, short: &str| {
        let oid = oid::registered_oid(short).unwrap();
        let leaf = stage.pair(name);
        let found = leaf.extensions().iter().find(|it| it.oid == oid).cloned();
        found.and_then(|it| it.text_value())
    };
    assert_eq!(
        extension("compiler", "pp_department").as_deref(),
        Some("Engineering")
    );
    assert_eq!(
        extension("operator-signing", "pp_cli_auth").as_deref(),
        Some("true")
    );
    // An administrator's certificate is not renewed: another one is made.
    let first = stage.pair("operator-signing");
    stage.patch(
        "Certificate",
        "operator-signing",
        json!({"spec": {"renewBefore": "99999d"}}),
    );
    stage.object("Certificate", "operator-signing", |_| {
        stage.pair("operator-signing").serial() != first.serial()
    });
    stage.patch(
        "Certificate",
        "operator-signing",
        json!({"spec": {"renewBefore": "60d"}}),
    );
    stage.in_phase("Certificate", "operator-signing", "Signed");
    // Its rights are taken away: the authority lets nobody clean an administrator's name by accident, and here it is meant.
    let second = stage.pair("operator-signing");
    let without = json!({"spec": {"csrExtensions": {"ppCliAuth": false}}});
    stage.patch("Certificate", "operator-signing", without);
    stage.object("Certificate", "operator-signing", |_| {
        let leaf = stage.pair("operator-signing");
        leaf.extension(&oid::PP_CLI_AUTH).is_none()
    });
    stage.in_phase("Certificate", "operator-signing", "Signed");
    let list = site.behind.installation.read("issuers/puppet/ca_crl.pem");
    let block = pem::decode_first(list.as_bytes(), &pem::PemLimits::BUNDLE);
    let list = Crl::parse(&block.unwrap().unwrap().der).unwrap();
    for former in [first, second] {
        assert!(list.serials().any(|it| it == former.serial()));
    }
    stage.delete("Certificate", "operator-signing");
    stage.is_gone("Certificate", "operator-signing");
    assert!(
        stage
            .events("operator-signing")
            .contains(&"CertificateCleaned".to_owned())
    );
    assert!(
        stage
            .events("production")
            .contains(&"CAInitialized".to_owned())
    );
}

#[test]
fn certificates_follow_their_spec_their_secret_and_their_end() {
    let site = Site::start();
    let stage = &site.stage;
    stage.create(
        "Certificate",
        "web",
        json!({"authorityRef": "production", "certname": "web.example.com"}),
    );
    stage.in_phase("Certificate", "web", "Signed");
    let first = stage.pair("web");

    // Another name: another certificate, and the Secret is never without one.
    stage.patch(
        "Certificate",
        "web",
        json!({"spec": {"dnsAltNames": ["web.example.com", "www.example.com"]}}),
    );
    stage.object("Certificate", "web", |_| {
        stage.pair("web").serial() != first.serial()
    });
    let second = stage.pair("web");
    assert_eq!(second.alt_names().len(), 2);
    stage.in_phase("Certificate", "web", "Signed");

    // A Secret that is lost comes again.
    let path = "/api/v1/namespaces/puppet/secrets/web-tls";
    assert_eq!(stage.call("DELETE", path, None).0, 200);
    let again = ask_again(super::PATIENCE, || stage.secret("web-tls").map(drop));
    assert!(again.is_some());
    let third = stage.pair("web");
    assert_ne!(third.serial(), second.serial());
    stage.in_phase("Certificate", "web", "Signed");

    // A window that has begun: it is renewed with the same key.
    stage.patch(
        "Certificate",
        "web",
        json!({"spec": {"renewBefore": "99999d"}}),
    );
    stage.object("Certificate", "web", |it| {
        condition(it, "CertSigned") == "True CertificateRenewed"
    });
    let renewed = stage.pair("web");
    assert_ne!(renewed.serial(), third.serial());
    assert_eq!(renewed.key_fingerprint(), third.key_fingerprint());
    let certificate = stage.in_phase("Certificate", "web", "Signed");
    assert_eq!(
        certificate["status"]["notAfter"],
        renewed.not_after().to_string()
    );

    // Agents are served the list of infrastructure nodes; the Secret has everything that was revoked.
    let refresh = json!({"spec": {"crlRefreshInterval": "10s"}});
    stage.patch("CertificateAuthority", "production", refresh);
    let revoked = || -> Vec<_> {
        let (_, value) = stage.secret("production-ca-crl").unwrap();
        let text = value("ca_crl.pem");
        let block = pem::decode_first(text.as_bytes(), &pem::PemLimits::BUNDLE);
        let list = Crl::parse(&block.unwrap().unwrap().der).unwrap();
        list.serials().collect()
    };
    let is_full = ask_again(super::PATIENCE, || {
        let revoked = revoked();
        let expected = [first.serial(), second.serial()];
        expected.iter().all(|it| revoked.contains(it)).then_some(())
    });
    assert!(
        is_full.is_some(),
        "{:?}: {}",
        revoked(),
        site.operator.log()
    );

    // Another certname: the former one is cleaned at the authority.
    stage.patch(
        "Certificate",
        "web",
        json!({"spec": {"renewBefore": "60d", "certname": "new.example.com"}}),
    );
    stage.object("Certificate", "web", |_| {
        stage.pair("web").subject().first_common_name() == Some("new.example.com")
    });
    stage.in_phase("Certificate", "web", "Signed");
    let listed = || site.behind.installation.run(&["ca", "list", "--all"]);
    let former = ask_again(super::PATIENCE, || {
        let finished = listed();
        let has = |name: &str| {
            finished
                .stdout
                .lines()
                .any(|line| line.trim_start().starts_with(name))
        };
        (has("new.example.com") && !has("web.example.com")).then_some(())
    });
    assert!(former.is_some(), "{}", listed());

    // Deleted: cleaned at the authority, and the name is free.
    stage.delete("Certificate", "web");
    stage.is_gone("Certificate", "web");
    assert!(!listed().stdout.contains("new.example.com"), "{}", listed());
    assert!(
        stage
            .events("web")
            .contains(&"CertificateCleaned".to_owned()),
        "{:?}",
        stage.events("web")
    );
    assert!(
        !site.operator.log().contains("panicked"),
        "{}",
        site.operator.log()
    );
}

/// As the setup of a CA exports it: who sees that the CA is ready finds the Secret of its server.
#[test]
fn the_certificate_of_the_authoritys_server_is_there_when_it_is_ready() {
    let stage = Stage::start();
    let behind = Behind::start(&stage, "");
    let server = json!({"authorityRef": "production", "certname": "puppet.example.com"});
    stage.create("Certificate", "server", server);
    let other = json!({"authorityRef": "production", "certname": "web.example.com"});
    stage.create("Certificate", "web", other);
    stage.create("CertificateAuthority", "production", json!({}));
    let access = behind.access();
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    let _operator = stage.operator(&access);
    stage.in_phase("CertificateAuthority", "production", "Ready");
    assert!(stage.secret("server-tls").is_some());
    for name in ["server", "web", "production-operator-signing"] {
        stage.in_phase("Certificate", name, "Signed");
        let leaf = stage.pair(name);
        assert!(leaf.extension(&oid::PP_CLI_AUTH).is_none(), "{name}");
    }
}

/// One authority is behind both, and a name is unique there.
#[test]
fn cas_of_one_name_in_two_namespaces_have_an_operator_each() {
    let site = Site::start();
    let stage = &site.stage;
    stage.in_phase("Certificate", "production-operator-signing", "Signed");
    stage.apply(
        r#"
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
---
{apiVersion: openvox.voxpupuli.org/v1alpha1, kind: CertificateAuthority, metadata: {name: production, namespace: other}, spec: {}}
---
{apiVersion: openvox.voxpupuli.org/v1alpha1, kind: Certificate, metadata: {name: web, namespace: other}, spec: {authorityRef: production, certname: web.example.com}}
"#,
    );
    let path =
        "/apis/openvox.voxpupuli.org/v1alpha1/namespaces/other/certificateauthorities/production";
    let mut last = serde_json::Value::Null;
    let ready = ask_again(super::PATIENCE, || {
        last = stage.call("GET", path, None).1;
        condition(&last, "OperatorSigningReady")
            .starts_with("True")
            .then_some(())
    });
    assert!(ready.is_some(), "{last:#}\n{}", site.operator.log());
    let path = "/apis/openvox.voxpupuli.org/v1alpha1/namespaces/other/certificates";
    let certificates = stage.call("GET", path, None).1;
    let names: Vec<String> = certificates["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{} {}", it["spec"]["certname"], it["status"]["phase"]))
        .collect();
    let expected = [
        r#""production-operator.other" "Signed""#,
        r#""web.example.com" "Signed""#,
    ];
    assert_eq!(names, expected);
}

#[test]
fn an_operator_that_is_killed_leaves_nothing_half_done() {
    let mut site = Site::start();
    let names: Vec<String> = (0..6).map(|index| format!("node{index}")).collect();
    for name in &names {
        let spec = json!({"authorityRef": "production", "certname": format!("{name}.example.com")});
        site.stage.create("Certificate", name, spec);
    }
    let access = site.behind.access();
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    for name in names.iter().take(4) {
        let signed = |it: &serde_json::Value| it["status"]["phase"] == "Signed";
        site.stage.object("Certificate", name, |it| {
            signed(it) || it["status"]["phase"] == "Requesting"
        });
        site.operator.kill9();
        site.operator = site.stage.operator(&access);
    }
    for name in &names {
        site.stage.in_phase("Certificate", name, "Signed");
        site.stage.pair(name);
        assert!(site.stage.secret(&format!("{name}-tls-pending")).is_none());
    }
}
