//! Validating webhooks: the real API server asks the operator before it stores an object.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::{AltName, Certificate, Serial, oid};
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::deadline::{Finished, ask_again};
use countersign_testkit::http;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys::{self, Key};
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::{GROUP, PATIENCE, Stage};
use crate::installation::address;

const CERTIFICATE: &str = "/validate-openvox-voxpupuli-org-v1alpha1-certificate";

/// The listener's certificate and key, below a CA that the API server is told of.
struct Webhook {
    ca: Ca,
    cert: PathBuf,
    key: PathBuf,
}

impl Webhook {
    fn new(stage: &Stage) -> Self {
        let ca = Ca::root("Webhooks", keys::p256_a(), SystemClock.now());
        let webhook = Self {
            ca,
            cert: stage.folder.path().join("admission.pem"),
            key: stage.folder.path().join("admission-key.pem"),
        };
        webhook.put(1, keys::p256_b());
        webhook
    }

    /// Puts another pair into the files.
    fn put(&self, serial: u64, key: &'static Key) {
        let names = [
            AltName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            AltName::Dns("localhost".to_owned()),
        ];
        let leaf = self.ca.leaf(&Leaf {
            common_name: "admission",
            names: &names,
            usage: oid::EKU_SERVER_AUTH,
            key,
            serial,
            now: SystemClock.now(),
        });
        for (path, text) in [
            (&self.cert, leaf.to_pem()),
            (&self.key, key.pkcs8_pem().to_owned()),
        ] {
            let _replaced = fs::remove_file(path);
            crate::site::install(path, &text, 0o600);
        }
    }

    fn operator(&self, stage: &Stage, listen: &str) -> ServerProcess {
        let cert = format!("--admission-cert={}", self.cert.display());
        let key = format!("--admission-key={}", self.key.display());
        let listen = format!("--admission-listen={listen}");
        stage.operator(&[&listen, &cert, &key, "--metrics-listen=127.0.0.1:0"])
    }

    /// As it is installed, but for the address.
    fn register(&self, stage: &Stage, url: &str, failure_policy: &str) {
        let text = include_str!(
            "../../../../../deploy/kustomize/components/operator-admission/webhooks.yaml"
        );
        let mut configuration: Value = serde_saphyr::from_str(text).unwrap();
        for webhook in configuration["webhooks"].as_array_mut().unwrap() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
            webhook["clientConfig"] = json!({
                "url": format!("{url}{path}"),
                "caBundle": BASE64.encode(self.ca.certificate.to_pem()),
            });
            webhook["failurePolicy"] = json!(failure_policy);
        }
        stage.apply(&configuration.to_string());
    }

    fn client(&self, server: &ServerProcess) -> HttpsClient {
        let ca = self.ca.certificate.to_pem();
        HttpsClient::new(address(&server.addresses.admission), ca.as_bytes(), None).unwrap()
    }
}

fn applied(stage: &Stage, kind: &str, name: &str, spec: &Value) -> Finished {
    let object = json!({
        "apiVersion": "openvox.voxpupuli.org/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "puppet"}, "spec": spec,
    });
    let kubectl = stage.api.kubectl().unwrap();
    kubectl
        .run_with_input(&["apply", "-f", "-"], &object.to_string())
        .unwrap()
}

/// Applies again until the outcome is so: the API server takes a moment to learn of a webhook.
#[track_caller]
fn applied_until(
    stage: &Stage,
    kind: &str,
    name: &str,
    spec: &Value,
    is_so: impl Fn(&Finished) -> bool,
) {
    let mut last = None;
    let found = ask_again(PATIENCE, || {
        let finished = applied(stage, kind, name, spec);
        let is_so = is_so(&finished);
        last = Some(finished);
        is_so.then_some(())
    });
    assert!(found.is_some(), "{}", last.unwrap());
}

#[test]
fn references_to_a_ca_that_does_not_exist_are_refused_and_nothing_else() {
    let stage = Stage::start();
    let webhook = Webhook::new(&stage);
    // There is no authority behind it: nothing of this has to be signed.
    let mut operator = webhook.operator(&stage, "127.0.0.1:0");
    let url = operator.addresses.admission.clone();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    webhook.register(&stage, &url, "Fail");
    let of = |ca: &str| json!({"authorityRef": ca, "certname": "web.example.com"});

    let said = "denied the request: CertificateAuthority \"production\" does not exist in namespace \"puppet\": \
                create it first, or correct spec.authorityRef";
    applied_until(&stage, "Certificate", "early", &of("production"), |it| {
        it.stderr.contains(said)
    });
    let policy = json!({"certificateAuthorityRef": "production", "any": true});
    let said = "create it first, or correct spec.certificateAuthorityRef";
    applied_until(&stage, "SigningPolicy", "all", &policy, |it| {
        it.stderr.contains(said)
    });

    for (kind, name, spec) in [
        ("CertificateAuthority", "production", json!({})),
        ("Certificate", "web", of("production")),
        ("SigningPolicy", "all", policy),
    ] {
        let finished = applied(&stage, kind, name, &spec);
        assert!(finished.success(), "{finished}");
    }
    let finished = applied(&stage, "Certificate", "web", &of("lab"));
    assert!(
        finished.stderr.contains("\"lab\" does not exist"),
        "{finished}"
    );
    // The definition accepts it, and the operator would not.
    let upper = json!({"authorityRef": "production", "certname": "WEB"});
    let finished = applied(&stage, "Certificate", "upper", &upper);
    assert!(
        finished
            .stderr
            .contains("spec.certname \"WEB\" is not a host name"),
        "{finished}"
    );

    // The CA goes, and takes nobody hostage.
    stage.object("Certificate", "web", |it| {
        !it["metadata"]["finalizers"].is_null()
    });
    stage.delete("CertificateAuthority", "production");
    stage.is_gone("CertificateAuthority", "production");
    stage.patch(
        "Certificate",
        "web",
        json!({"metadata": {"labels": {"a": "b"}}}),
    );
    stage.delete("Certificate", "web");
    stage.is_gone("Certificate", "web");
    stage.delete("SigningPolicy", "all");
    stage.is_gone("SigningPolicy", "all");

    // What was answered is counted.
    let metrics = operator.addresses.metrics.strip_prefix("http://");
    let metrics = http::call(metrics.unwrap().parse().unwrap(), "GET", "/metrics").unwrap();
    for (kind, answer) in [
        ("Certificate", "allowed"),
        ("Certificate", "denied"),
        ("SigningPolicy", "denied"),
    ] {
        let labels = format!("kind=\"{kind}\",answer=\"{answer}\"");
        let series = format!("countersign_operator_admission_reviews_total{{{labels}}} ");
        assert!(
            metrics.text().contains(&series),
            "{series}\n{}",
            metrics.text()
        );
    }

    // Nobody answers: it is the policy of the webhook that says what follows. What is not asked about goes on.
    stage.create("CertificateAuthority", "production", json!({}));
    stage.create("Certificate", "left", of("production"));
    stage.object("Certificate", "left", |it| {
        !it["metadata"]["finalizers"].is_null()
    });
    operator.kill9();
    stage.patch(
        "Certificate",
        "left",
        json!({"metadata": {"labels": {"a": "b"}}}),
    );
    let path = format!("{GROUP}/certificates/left");
    let renewal = json!({"spec": {"renewBefore": "1d"}});
    let (_, refused) = stage.call("PATCH", &path, Some(&renewal));
    assert!(
        refused.to_string().contains("failed calling webhook"),
        "{refused:#}"
    );
    stage.delete("Certificate", "left");
    stage.patch(
        "Certificate",
        "left",
        json!({"metadata": {"finalizers": null}}),
    );
    stage.is_gone("Certificate", "left");
    let finished = applied(&stage, "Certificate", "late", &of("production"));
    assert!(
        finished.stderr.contains("failed calling webhook"),
        "{finished}"
    );
    webhook.register(&stage, &url, "Ignore");
    applied_until(
        &stage,
        "Certificate",
        "late",
        &of("production"),
        Finished::success,
    );
}

/// With a lease that somebody else holds, and a certificate that is renewed.
#[test]
fn a_replica_that_waits_for_the_lease_answers_with_the_newest_certificate() {
    let stage = Stage::start();
    let webhook = Webhook::new(&stage);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "operator", "namespace": "puppet"},
        "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 3600,
            "acquireTime": "2100-01-01T00:00:00.000000Z", "renewTime": "2100-01-01T00:00:00.000000Z",
        },
    });
    let path = "/apis/coordination.k8s.io/v1/namespaces/puppet/leases";
    assert_eq!(stage.call("POST", path, Some(&lease)).0, 201);
    let cert = format!("--admission-cert={}", webhook.cert.display());
    let key = format!("--admission-key={}", webhook.key.display());
    let mut operator = stage.operator_with(&[
        "--leader-elect=true",
        "--lease-namespace=puppet",
        "--lease-name=operator",
        "--admission-listen=127.0.0.1:0",
        &cert,
        &key,
    ]);
    let client = webhook.client(&operator);
    let ask = |ca: &str| {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "one", "operation": "CREATE", "namespace": "puppet",
                "kind": {"group": "openvox.voxpupuli.org", "version": "v1alpha1", "kind": "Certificate"},
                "object": {"metadata": {"name": "web"}, "spec": {"authorityRef": ca}},
            },
        });
        let kind = [("content-type", "application/json")];
        let answer = client.call("POST", CERTIFICATE, &kind, review.to_string().as_bytes());
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer: Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!(answer["response"]["uid"], "one");
        answer["response"]["allowed"].as_bool().unwrap()
    };
    assert!(!ask("production"));
    stage.create("CertificateAuthority", "production", json!({}));
    assert!(ask("production"));
    // It does not hold the lease: nobody works on the CA.
    let ca = stage
        .call(
            "GET",
            &format!("{GROUP}/certificateauthorities/production"),
            None,
        )
        .1;
    assert!(ca["status"].is_null(), "{ca:#}");

    let refused = client.call("POST", CERTIFICATE, &[], b"hello").unwrap();
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("not an AdmissionReview"),
        "{}",
        refused.text()
    );
    let refused = client.call("GET", CERTIFICATE, &[], b"").unwrap();
    assert_eq!(refused.status, 405);

    assert_eq!(serial(&client), number(1));
    webhook.put(2, keys::p256_c());
    operator.hang_up();
    let renewed = ask_again(PATIENCE, || (serial(&client) == number(2)).then_some(()));
    assert!(renewed.is_some(), "{}", operator.log());
    // Half of a pair changes nothing.
    fs::write(&webhook.key, keys::p256_a().pkcs8_pem()).unwrap();
    operator.hang_up();
    let told = ask_again(PATIENCE, || {
        operator
            .log()
            .contains("the admission listener keeps its certificate")
            .then_some(())
    });
    assert!(told.is_some(), "{}", operator.log());
    assert_eq!(serial(&client), number(2));
    assert!(ask("production"));
    assert!(!operator.log().contains("panicked"), "{}", operator.log());
}

fn number(serial: u64) -> Serial {
    Serial::try_from(serial).unwrap()
}

/// Of the certificate that is shown to a new connection.
fn serial(client: &HttpsClient) -> Serial {
    let mut connection = client.connect().unwrap();
    connection.call("GET", CERTIFICATE, &[], b"").unwrap();
    let shown = connection.peer_certificate().unwrap();
    Certificate::parse(&shown).unwrap().serial()
}
