//! Machines and build windows.

use serde_json::{Value, json};

use super::{Office, column};
use crate::exchange::{Answer, Call};

const NOW: &str = "2026-01-02T03:04:05Z";

impl Office {
    /// The actions of the audit log that concern machines and windows, each with its subject.
    async fn told(&self) -> Vec<String> {
        let audit = self
            .world
            .authority
            .audit
            .after(Default::default(), 1000)
            .await;
        let entries = audit.unwrap().into_iter().map(|(_, entry)| entry);
        let ours = entries.filter(|entry| entry.action.contains('.'));
        ours.map(|entry| format!("{} {} by {}", entry.action, entry.subject, entry.actor))
            .collect()
    }
}

fn code(answer: &Answer) -> (u16, String, String) {
    let body = answer.json();
    let text = |pointer| {
        body.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap()
            .to_owned()
    };
    (answer.status, text("/error/code"), text("/error/message"))
}

#[tokio::test]
async fn a_machine_is_added_shown_replaced_and_removed() {
    let office = Office::open().await;
    let record = json!({
        "name": "Web01.example.com",
        "addresses": [
            {"type": "InternalIP", "address": "2001:DB8::1"},
            {"type": "Hostname", "address": "web01"},
        ],
        "serial": "S1", "uuid": "U1", "instance_id": "i-1", "provider": "rack", "role": "web",
        "not_before": "2026-01-01T00:00:00+01:00", "not_after": "2027-01-01T00:00:00Z", "single_use": true,
    });
    let added = office.post("machines", &record.to_string()).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let expected = json!({
        "name": "web01.example.com",
        "addresses": [
            {"type": "InternalIP", "address": "2001:db8::1"},
            {"type": "Hostname", "address": "web01"},
        ],
        "serial": "S1", "uuid": "U1", "instance_id": "i-1", "provider": "rack", "role": "web",
        "not_before": "2025-12-31T23:00:00Z", "not_after": "2027-01-01T00:00:00Z", "single_use": true,
        "created": NOW, "enrolled": null, "request": null,
    });
    assert_eq!(added.json(), expected);
    assert_eq!(office.get("machines/WEB01.example.com").await, expected);
    assert_eq!(
        office.get("machines").await,
        json!({"items": [expected.clone()]})
    );
    let again = office.post("machines", &record.to_string()).await;
    assert_eq!(
        code(&again),
        (
            409,
            "conflict".to_owned(),
            "web01.example.com is in the inventory already".to_owned()
        )
    );
    let replaced = office
        .put("machines/web01.example.com", &json!({"role": null}))
        .await;
    assert_eq!(replaced.status, 200);
    let plain = json!({
        "name": "web01.example.com", "addresses": [], "serial": null, "uuid": null, "instance_id": null,
        "provider": null, "role": null, "not_before": null, "not_after": null, "single_use": false,
        "created": NOW, "enrolled": null, "request": null,
    });
    assert_eq!(replaced.json(), plain);
    let new = office
        .put("machines/web02", &json!({"name": "WEB02"}))
        .await;
    assert_eq!(new.status, 201);
    let removed = office.call("DELETE /enrol/v1/machines/web02").await;
    assert_eq!((removed.status, removed.body.len()), (204, 0));
    for line in ["GET", "DELETE"] {
        let gone = office
            .call(&format!("{line} /enrol/v1/machines/web02"))
            .await;
        let what = "web02 is not in the inventory".to_owned();
        assert_eq!(code(&gone), (404, "not_found".to_owned(), what));
    }
    let told = office.told().await;
    let actions: Vec<&str> = told
        .iter()
        .filter_map(|line| line.split_once(" by ").map(|(act, _)| act))
        .collect();
    assert_eq!(
        actions,
        [
            "machine.added machine/web01.example.com",
            "machine.replaced machine/web01.example.com",
            "machine.added machine/web02",
            "machine.removed machine/web02",
        ]
    );
    assert!(
        told.iter()
            .all(|line| line.contains(" by countersign-admin")),
        "{told:?}"
    );
}

#[tokio::test]
async fn records_that_cannot_be_are_refused_with_a_reason() {
    let office = Office::open().await;
    for (body, why) in [
        ("", "the body: EOF"),
        ("[]", "the body: it must be an object"),
        ("{}", "a record without a name: the name cannot be used"),
        (r#"{"name":"a","colour":"red"}"#, "unknown field `colour`"),
        (
            r#"{"name":"a","created":"2026-01-01T00:00:00Z"}"#,
            "unknown field `created`",
        ),
        (
            r#"{"name":"a","enrolled":null}"#,
            "unknown field `enrolled`",
        ),
        (
            r#"{"name":"a","addresses":[{"type":"Street","address":"x"}]}"#,
            "unknown variant `Street`",
        ),
        (
            r#"{"name":"a","addresses":[{"type":"InternalIP","address":"x","port":1}]}"#,
            "unknown field `port`",
        ),
        (
            r#"{"name":"a","addresses":[{"type":"InternalIP","address":"x"}]}"#,
            "a: address x is not an IP address",
        ),
        (r#"{"name":"a","not_before":"soon"}"#, "RFC 3339"),
        (
            r#"{"name":"a","not_before":"2027-01-01T00:00:00Z","not_after":"2026-01-01T00:00:00Z"}"#,
            "must be earlier than not_after",
        ),
        (
            r#"{"name":"a\u001b[2J"}"#,
            r"a\u{1b}[2J: the name cannot be used",
        ),
    ] {
        let (status, word, message) = code(&office.post("machines", body).await);
        assert_eq!((status, word.as_str()), (400, "invalid"), "{body}");
        assert!(message.contains(why), "{body}: {message}");
    }
    for (body, why) in [
        ("", "the body: EOF"),
        (r#"[{"name":"a"}]"#, "the body: it must be an object"),
        ("{}", "missing field `machines`"),
        (r#"{"name":"a"}"#, "unknown field `name`"),
        (
            r#"{"machines":[{"name":"a"},{"name":"A."}]}"#,
            "a: it is named twice",
        ),
        (
            r#"{"machines":[{"name":"a"},{"role":"web"}]}"#,
            "a record without a name",
        ),
        (
            r#"{"machines":[{"name":"a"}],"force":true}"#,
            "unknown field `force`",
        ),
    ] {
        let (status, word, message) = code(&office.post("machine-imports", body).await);
        assert_eq!((status, word.as_str()), (400, "invalid"), "{body}");
        assert!(message.contains(why), "{body}: {message}");
    }
    let other = office.put("machines/a", &json!({"name": "b"})).await;
    assert_eq!(code(&other).2, "name is not that of the path");
    for query in ["colour=red", "enrolled=perhaps", "limit=0", "cursor=x"] {
        let answer = office
            .call(&format!("GET /enrol/v1/machines?{query}"))
            .await;
        assert_eq!(answer.status, 400, "{query}");
    }
    assert_eq!(office.get("machines").await, json!({"items": []}));
    assert!(office.told().await.is_empty());
}

#[tokio::test]
async fn machines_are_listed_by_what_they_are() {
    let office = Office::open().await;
    for (name, role, provider) in [
        ("c", "web", "here"),
        ("a", "web", "there"),
        ("b", "db", "here"),
    ] {
        let record = json!({"name": name, "role": role, "provider": provider});
        assert_eq!(
            office.post("machines", &record.to_string()).await.status,
            201
        );
    }
    for (query, expected) in [
        ("", &["a", "b", "c"] as &[&str]),
        ("role=web", &["a", "c"]),
        ("role=web&provider=here", &["c"]),
        ("provider=here", &["b", "c"]),
        ("enrolled=true", &[]),
        ("enrolled=false&role=db", &["b"]),
    ] {
        let page = office.get(&format!("machines?{query}")).await;
        assert_eq!(column(&page, "name"), expected, "{query}");
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = office.get(&format!("machines?limit=2{cursor}")).await;
        seen.extend(column(&page, "name").into_iter().map(str::to_owned));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_batch_is_added_whole_or_not_at_all() {
    let office = Office::open().await;
    let batch = |from: usize, to: usize, more: Value| {
        let machines: Vec<Value> = (from..to)
            .map(|number| json!({"name": format!("host-{number:03}.example.com"), "role": "r".repeat(200)}))
            .collect();
        let mut body = json!({"machines": machines});
        for (member, value) in more.as_object().unwrap() {
            body.as_object_mut()
                .unwrap()
                .insert(member.clone(), value.clone());
        }
        body.to_string()
    };
    // Far more than other calls take.
    let large = batch(0, 500, json!({}));
    assert!(large.len() > 100_000, "{}", large.len());
    let added = office.post("machine-imports", &large).await;
    assert_eq!(added.status, 200, "{}", added.text());
    let result = added.json();
    assert_eq!(
        result,
        json!({"dry_run": false, "added": 500, "replaced": 0, "existing": []})
    );

    let seen = office
        .post(
            "machine-imports",
            &batch(499, 502, json!({"dry_run": true})),
        )
        .await;
    let expected =
        json!({"dry_run": true, "added": 2, "replaced": 0, "existing": ["host-499.example.com"]});
    assert_eq!(seen.json(), expected);
    let refused = office
        .post("machine-imports", &batch(499, 502, json!({})))
        .await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        office
            .call("GET /enrol/v1/machines/host-500.example.com")
            .await
            .status,
        404
    );
    let replaced = office
        .post(
            "machine-imports",
            &batch(499, 502, json!({"replace": true})),
        )
        .await;
    assert_eq!(replaced.json()["added"], 2);
    assert_eq!(replaced.json()["replaced"], 1);

    let many = office
        .post("machine-imports", &batch(0, 501, json!({})))
        .await;
    let what = "machines has more than 500 records".to_owned();
    assert_eq!(code(&many), (400, "invalid".to_owned(), what));
    let padded = format!("{large}{}", " ".repeat(256 * 1024));
    assert_eq!(office.post("machine-imports", &padded).await.status, 413);
    // The other calls keep to their bound.
    let long = json!({"role": "x", "serial": "y".repeat(17_000)});
    assert_eq!(office.put("machines/a", &long).await.status, 413);

    let told = office.told().await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter()
            .all(|line| line.starts_with("machine.imported machines by countersign-admin"))
    );
}

#[tokio::test]
async fn a_window_is_opened_shown_and_closed() {
    let office = Office::open().await;
    let usual = json!({
        "certname": "web01.example.com", "opens_at": NOW, "closes_at": "2026-01-02T05:04:05Z",
        "max_issuances": 1, "issuances": 0, "require_token": true, "state": "open",
        "honoured_by": [],
    });
    let opened = Call::new(&office.admin, "PUT /enrol/v1/windows/Web01.example.com")
        .send(&office.interface)
        .await;
    assert_eq!((opened.status, opened.json()), (201, usual.clone()));
    assert_eq!(office.get("windows/web01.example.com").await, usual);
    let own = office
        .put(
            "windows/web01.example.com",
            &json!({"opens_at": "2026-01-03T00:00:00Z", "seconds": 60, "max_issuances": 3, "require_token": false}),
        )
        .await;
    let expected = json!({
        "certname": "web01.example.com", "opens_at": "2026-01-03T00:00:00Z", "closes_at": "2026-01-03T00:01:00Z",
        "max_issuances": 3, "issuances": 0, "require_token": false, "state": "waiting",
        "honoured_by": [],
    });
    assert_eq!((own.status, own.json()), (200, expected.clone()));
    let until = office
        .put("windows/a", &json!({"closes_at": "2026-01-02T03:04:06Z"}))
        .await;
    assert_eq!(until.json()["closes_at"], "2026-01-02T03:04:06Z");
    let page = office.get("windows?limit=1").await;
    assert_eq!(column(&page, "certname"), ["a"]);
    let rest = office
        .get(&format!(
            "windows?cursor={}",
            page["cursor"].as_str().unwrap()
        ))
        .await;
    assert_eq!(rest, json!({"items": [expected.clone()]}));
    let closed = office
        .call("DELETE /enrol/v1/windows/web01.example.com")
        .await;
    assert_eq!(closed.status, 204);
    for line in ["GET", "DELETE"] {
        let gone = office
            .call(&format!("{line} /enrol/v1/windows/web01.example.com"))
            .await;
        let what = "web01.example.com has no build window".to_owned();
        assert_eq!(code(&gone), (404, "not_found".to_owned(), what));
    }
    let told = office.told().await;
    let actions: Vec<&str> = told
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        actions,
        [
            "window.opened",
            "window.opened",
            "window.opened",
            "window.closed"
        ]
    );
}

#[tokio::test]
async fn windows_that_cannot_be_are_refused_with_a_reason() {
    let office = Office::open().await;
    for (body, why) in [
        (
            json!({"seconds": 60, "closes_at": "2026-01-03T00:00:00Z"}),
            "leave one of them out",
        ),
        (json!({"seconds": 0}), "must be later than opens_at"),
        (json!({"seconds": 2_592_001}), "at most 30 days"),
        (
            json!({"seconds": 9_007_199_254_740_991_u64}),
            "at most 30 days",
        ),
        (json!({"seconds": u64::MAX}), "a whole number"),
        (json!({"seconds": -1}), "invalid value"),
        (
            json!({"closes_at": "2026-01-02T03:04:05Z"}),
            "must be later than opens_at",
        ),
        (
            json!({"opens_at": "2025-01-01T00:00:00Z", "closes_at": "2025-01-02T00:00:00Z"}),
            "is in the past",
        ),
        (json!({"max_issuances": 0}), "from 1 to 1000"),
        (json!({"max_issuances": 1001}), "from 1 to 1000"),
        (json!({"require_token": "no"}), "invalid type"),
        (
            json!({"require_tokens": false}),
            "unknown field `require_tokens`",
        ),
    ] {
        let (status, word, message) = code(&office.put("windows/a", &body).await);
        assert_eq!((status, word.as_str()), (400, "invalid"), "{body}");
        assert!(message.contains(why), "{body}: {message}");
    }
    assert_eq!(office.put("windows/a%20b", &json!({})).await.status, 400);
    assert_eq!(office.get("windows").await, json!({"items": []}));
}
