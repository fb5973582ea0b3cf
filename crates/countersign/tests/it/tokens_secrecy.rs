//! No secret of a token is found in anything that the program says or writes (invariant 9, acceptance case A25).

mod needles;
mod reading;
mod stage;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_pki::{Oid, oid};
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::http;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::governed::CLIENTS;
use crate::site::{JSON, PUPPET, REQUESTS, TEXT, kubernetes_request_for};
pub(crate) use needles::octets;
use reading::{everything_is_looked_at, everything_is_read_from_the_disk, people_type_tokens};
use stage::{FOREMAN, PRIVATE, Stage};

#[test]
fn secrets_stay_secret_with_tokens_everywhere_and_a_log_in_json() {
    secrets_stay_secret("json", "\"level\":\"DEBUG\"");
}

#[test]
fn secrets_stay_secret_with_tokens_everywhere_and_a_log_as_text() {
    secrets_stay_secret("text", " DEBUG ");
}

/// `debug` is what the finest lines of the log have, at level trace.
fn secrets_stay_secret(format: &str, debug: &str) {
    let mut stage = Stage::set(format);
    agents_bring_tokens(&mut stage);
    tokens_stand_where_they_should_not(&mut stage);
    bearers_come_to_the_kubernetes_door(&mut stage);
    foreman_builds_hosts(&mut stage);
    urls_and_headers_hold_tokens(&mut stage);
    people_type_tokens(&mut stage);
    everything_is_looked_at(&mut stage);
    everything_is_read_from_the_disk(&mut stage);

    let log = stage.server().log();
    assert!(log.len() < 16 << 20, "the log was cut: {}", log.len());
    assert!(log.contains(debug));
    stage.keep("the log", log.as_bytes());
    let found = stage.found();
    assert!(
        found.is_empty(),
        "{} leaks:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Requests that are signed, refused, and wait; deciders of every kind.
fn agents_bring_tokens(stage: &mut Stage) {
    let request = |name: &str, token: &str| {
        CsrBuilder::new(name)
            .challenge_password(token)
            .sign_pem(keys::p256_a())
    };
    let first = stage.mint(&["n1.example.com"]);
    assert_eq!(
        stage.put("n1.example.com", &request("n1.example.com", &first)),
        200
    );
    assert_eq!(
        stage.put("n1.example.com", &request("n1.example.com", &first)),
        200
    );
    let thief = CsrBuilder::new("n1.example.com").challenge_password(&first);
    assert_eq!(
        stage.put("n1.example.com", &thief.sign_pem(keys::p256_b())),
        403
    );
    assert_eq!(
        stage.put("n2.example.com", &request("n2.example.com", &first)),
        403
    );

    let waiting = stage.order(&json!({"certname": "waiting.example.com", "note": "rack 7"}));
    let name = "waiting.example.com";
    assert_eq!(stage.put(name, &request(name, &waiting)), 200);
    let name = "waiting-too.example.com";
    assert_eq!(stage.put(name, &request(name, &waiting)), 200);
    let repeated = json!({"certname": "waiting.example.com", "note": "rack 7"}).to_string();
    let admin = stage.site.admin();
    let headers = [JSON, ("Idempotency-Key", "order-1")];
    let again = stage.call(
        &admin,
        "POST",
        "/enrol/v1/tokens",
        &headers,
        repeated.as_bytes(),
    );
    assert_eq!(again.unwrap().status, 409);

    for (name, status) in [
        ("asked.example.com", 200),
        ("asked-deny.example.com", 403),
        ("asked-pend.example.com", 200),
        ("shown.example.com", 200),
        ("shown-deny.example.com", 403),
        ("shown-pend.example.com", 200),
        ("scripted.example.com", 200),
        ("scripted-deny.example.com", 200),
    ] {
        let token = stage.mint(&[name, "--format", "json"]);
        stage.file(&format!("token-of-{name}"), &token);
        assert_eq!(stage.put(name, &request(name, &token)), status, "{name}");
    }
    let arguments = std::fs::read(stage.path("arguments")).unwrap();
    assert!(String::from_utf8_lossy(&arguments).contains("scripted-deny"));
    stage.keep("arguments and environment of the executable", &arguments);
    let calls = stage.decider.calls();
    assert_eq!(calls.len(), 6);
    for call in calls {
        // Whoever asks for the whole request is given it; that is the one exception.
        let is_shown = call.path == "/shown";
        assert_eq!(stage.tells(&call.body) && is_shown, is_shown);
        let headers = format!("{} {:?}", call.path, call.headers);
        stage.keep("headers of a webhook", headers.as_bytes());
        if !is_shown {
            stage.keep("body of a webhook", &call.body);
        }
    }

    // Every string type, and what is wrong in every way.
    let good = stage.mint(&["n3.example.com", "--format", "csr-attributes"]);
    let wide = |width: usize| -> Vec<u8> {
        let widen = |octet: u8| [vec![0; width - 1], vec![octet]].concat();
        good.bytes().flat_map(widen).collect()
    };
    let name = "n4.example.com";
    let password = &oid::CHALLENGE_PASSWORD;
    for (tag, value) in [
        (0x0c, good.clone().into_bytes()),
        (0x16, good.clone().into_bytes()),
        (0x14, good.clone().into_bytes()),
        (0x1e, wide(2)),
        (0x1c, wide(4)),
        (0x04, good.clone().into_bytes()),
        (0x0c, good.to_uppercase().into_bytes()),
        (0x0c, good.as_bytes()[..70].to_vec()),
        (0x0c, format!("password {good}").into_bytes()),
        (0x0c, format!("{good}{good}").into_bytes()),
    ] {
        let csr = CsrBuilder::new(name).attribute(password, tag, &value);
        let status = stage.put(name, &csr.sign_pem(keys::p256_a()));
        assert!([400, 403].contains(&status), "{tag} {status}");
    }
}

/// Attributes and extensions that nobody looks into, names, and requests that are none.
fn tokens_stand_where_they_should_not(stage: &mut Stage) {
    let token = stage.mint(&["*.n5.example.com", "--glob", "--max-uses", "9"]);
    let kind = |text: &str| Oid::parse(text).unwrap();
    let base = |number: &str| CsrBuilder::new(&format!("w{number}.example.com"));
    let unknown = kind("1.3.6.1.4.1.34380.1.2.99");
    for (number, csr) in [
        (
            "1",
            base("1").attribute(&kind(PRIVATE), 0x0c, token.as_bytes()),
        ),
        ("2", base("2").extension(&oid::PP_PRESHARED_KEY, &token)),
        (
            "3",
            base("3").challenge_password(&token).attribute(
                &oid::CHALLENGE_PASSWORD,
                0x0c,
                token.as_bytes(),
            ),
        ),
        ("4", base("4").attribute(&unknown, 0x0c, token.as_bytes())),
        (
            "5",
            base("5").extension(&kind("1.3.6.1.4.1.34380.1.1.13"), &token),
        ),
        ("6", base("6").dns(&token)),
        ("7", base("7").uri(&format!("https://example.com/{token}"))),
        (
            "8",
            base("8")
                .challenge_password(&token)
                .flaw(SignatureFlaw::FlippedBit),
        ),
        ("9", base("9").challenge_password(&token).tail(b"tail")),
        ("10", base("10").organization(&token)),
        ("11", base("11").email(&format!("{token}@example.com"))),
    ] {
        let name = format!("w{number}.example.com");
        stage.put(&name, &csr.sign_pem(keys::p256_a()));
    }
    stage.put(&token, &CsrBuilder::new(&token).sign_pem(keys::p256_a()));
    stage.put(
        "w12.example.com",
        &CsrBuilder::new(&token).sign_pem(keys::p256_a()),
    );
    stage.put("w13.example.com", &token);
    let long = token.repeat(4000);
    stage.put("w14.example.com", &long);
    stage.put(
        "w15.example.com",
        &format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{token}\n-----END CERTIFICATE REQUEST-----\n"
        ),
    );
}

fn bearers_come_to_the_kubernetes_door(stage: &mut Stage) {
    let client = HttpsClient::new(stage.site.kubernetes(), &stage.site.kubernetes_ca(), None);
    let client = client.unwrap();
    let token = stage.mint(&["jane"]);
    let bearer = format!("Bearer {token}");
    let headers = [JSON, ("Authorization", bearer.as_str())];
    for (object, key) in [("jane", keys::p256_b()), ("jane-2", keys::p256_a())] {
        let mut request = kubernetes_request_for("jane", CLIENTS, key);
        request["metadata"]["name"] = json!(object);
        // Some put it into the request as well.
        let pem = CsrBuilder::new("jane").challenge_password(&token);
        request["spec"]["request"] = json!(STANDARD.encode(pem.sign_pem(key)));
        let body = request.to_string();
        let answer = stage.call(&client, "POST", REQUESTS, &headers, body.as_bytes());
        assert_eq!(answer.unwrap().status, 201);
    }
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    stage.call(
        &client,
        "POST",
        reviews,
        &headers,
        review.to_string().as_bytes(),
    );
    let object = format!("{REQUESTS}/{token}");
    let selector = format!("{REQUESTS}?fieldSelector=metadata.name={token}&continue={token}");
    let (wrong, basic) = (format!("{bearer}x"), format!("Basic {token}"));
    for value in [&bearer, &wrong, &basic] {
        for (method, path) in [
            ("GET", REQUESTS),
            ("GET", &object),
            ("DELETE", &object),
            ("GET", &selector),
            ("PATCH", &object),
            ("GET", &format!("/apis/{token}/v1")),
        ] {
            let headers = [JSON, ("Authorization", value.as_str())];
            stage.call(&client, method, path, &headers, token.as_bytes());
        }
    }
    let admin = stage.site.kubernetes_admin();
    let named = kubernetes_request_for(&token, CLIENTS, keys::p256_c());
    let (mut subject, mut note) = (named.clone(), named.clone());
    subject["metadata"]["name"] = json!("subject");
    note["metadata"] = json!({"name": "note", "annotations": {"note": token}});
    for (body, status) in [
        (named.to_string(), 422),
        (subject.to_string(), 422),
        (note.to_string(), 422),
        (json!({"kind": token, "apiVersion": token}).to_string(), 400),
        (format!("{{\"{token}\": {token}"), 400),
    ] {
        let answer = stage.call(&admin, "POST", REQUESTS, &[JSON], body.as_bytes());
        assert_eq!(answer.unwrap().status, status);
    }
    // An object that is there is given none either.
    let labelled = json!({"metadata": {"annotations": {"note": token}}}).to_string();
    let patch = [("Content-Type", "application/merge-patch+json")];
    let object_of_jane = format!("{REQUESTS}/jane");
    let answer = stage.call(
        &admin,
        "PATCH",
        &object_of_jane,
        &patch,
        labelled.as_bytes(),
    );
    assert_eq!(answer.unwrap().status, 422);
    for path in [
        REQUESTS,
        &format!("{REQUESTS}/jane"),
        &object,
        &selector,
        "/openapi/v3",
    ] {
        for accept in [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        ] {
            stage.call(&admin, "GET", path, &[("Accept", accept)], b"");
        }
    }
}

fn foreman_builds_hosts(stage: &mut Stage) {
    assert_eq!(stage.site.ask(FOREMAN).status, 200);
    assert_eq!(stage.site.put_state(FOREMAN, "signed").status, 204);
    let certificate = stage.site.certificate(FOREMAN).body;
    let foreman = stage.foreman(&certificate);
    let path = "/puppet/ca/autosign/n6.example.com";
    let minted = foreman.call("POST", path, &[], b"").unwrap();
    let minted: Value = serde_json::from_slice(&minted.body).unwrap();
    let token = stage.learn(minted["generated_token"].as_str().unwrap());
    for name in ["n7.example.com", "n6.example.com", "n6.example.com"] {
        let csr = CsrBuilder::new(name).challenge_password(&token);
        let body = csr.sign_pem(keys::p256_c());
        stage.call(
            &foreman,
            "POST",
            "/puppet/ca/validate",
            &[],
            body.as_bytes(),
        );
    }
    for (method, path) in [
        ("GET", "/puppet/ca".to_owned()),
        ("GET", "/puppet/ca/autosign".to_owned()),
        ("POST", format!("/puppet/ca/autosign/{token}")),
        ("DELETE", format!("/puppet/ca/autosign/{token}")),
        ("POST", format!("/puppet/ca/{token}")),
        ("DELETE", format!("/puppet/ca/{token}")),
        ("GET", format!("/{token}?token={token}")),
        ("POST", "/puppet/ca/validate".to_owned()),
    ] {
        stage.call(&foreman, method, &path, &[], token.as_bytes());
    }
}

fn urls_and_headers_hold_tokens(stage: &mut Stage) {
    let token = stage.mint(&["n8.example.com"]);
    let quoted = token.replace('.', "%2E");
    let (admin, nobody) = (stage.site.admin(), stage.site.anonymous());
    let body = json!({"certname": token, "note": token, "reason": token, token.as_str(): 1, "certnames": [token]});
    let body = body.to_string();
    for name in [token.as_str(), &quoted, &format!("x{token}y")] {
        let mut paths = vec![
            format!("/{name}"),
            format!("/status/v1/{name}"),
            format!("/enrol/v1/{name}"),
            format!("{PUPPET}/certificate/n1.example.com?environment={name}"),
        ];
        for kind in [
            "certificate",
            "certificate_request",
            "certificate_status",
            "certificate_statuses",
            "certificate_revocation_list",
            "certificate_renewal",
            "sign",
            "clean",
        ] {
            paths.push(format!("{PUPPET}/{kind}/{name}"));
        }
        for kind in ["tokens", "machines", "windows", "requests", "policy"] {
            paths.push(format!("/enrol/v1/{kind}/{name}"));
        }
        paths.push(format!("/enrol/v1/tokens/{name}/release"));
        paths.push(format!("/enrol/v1/requests/puppet/{name}"));
        paths.push(format!("/enrol/v1/requests/puppet/{name}/deny"));
        paths.push(format!("/enrol/v1/certificates/puppet/{name}"));
        for kind in [
            "tokens",
            "machines",
            "requests",
            "rejections",
            "decisions",
            "audit",
            "certificates",
        ] {
            for parameter in ["certname", "name", "cursor", "reason", "actor", "since"] {
                paths.push(format!("/enrol/v1/{kind}?{parameter}={name}"));
            }
        }
        for path in paths {
            for method in ["GET", "PUT", "POST", "DELETE"] {
                stage.call(&admin, method, &path, &[JSON], body.as_bytes());
            }
            stage.call(&nobody, "PUT", &path, &[TEXT], token.as_bytes());
        }
    }
    for path in ["tokens", "machines", "machine-imports", "requests", "check"] {
        let path = format!("/enrol/v1/{path}");
        let key = [JSON, ("Idempotency-Key", token.as_str())];
        for body in [&body, &token, &json!({"certname": token}).to_string()] {
            stage.call(&admin, "POST", &path, &key, body.as_bytes());
        }
    }
    for member in ["note", "external_ref", "profile", "glob", "not_before"] {
        let order = json!({"certname": "n9.example.com", member: token}).to_string();
        stage.call(
            &admin,
            "POST",
            "/enrol/v1/tokens",
            &[JSON],
            order.as_bytes(),
        );
    }
    for path in ["sign", "clean", "sign/all", "certificate_status/n1"] {
        let path = format!("{PUPPET}/{path}");
        for body in [&body, &token] {
            stage.call(&admin, "PUT", &path, &[JSON], body.as_bytes());
            stage.call(&admin, "POST", &path, &[JSON], body.as_bytes());
        }
    }
    for header in [
        "Authorization",
        "Cookie",
        "User-Agent",
        "X-Auth-Token",
        "Content-Type",
        "Accept",
        "If-None-Match",
        "If-Modified-Since",
        "Idempotency-Key",
        &token,
    ] {
        let path = format!("{PUPPET}/certificate/n1.example.com");
        let header = [(header, token.as_str())];
        stage.call(&nobody, "GET", &path, &header, b"");
        stage.call(&nobody, "PUT", &path, &header, token.as_bytes());
        stage.call(&admin, "POST", "/enrol/v1/tokens", &header, b"{}");
    }
    stage.call(&nobody, &token, "/", &[], b"");
    stage.call(&nobody, "GET", &format!("/ {token}"), &[], b"");
    // Without TLS it is told in clear, and all the same by nobody else.
    let address = stage.site.puppet();
    drop(http::call(address, "GET", &format!("/{token}")));
}
