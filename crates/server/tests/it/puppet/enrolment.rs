//! Agents ask for certificates.

use countersign_authority::Actor;
use countersign_authority::{Act, OnUnsignable};
use countersign_pki::oid;
use countersign_server::puppet::PuppetDoor;
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys;

use super::{Fleet, V1, agent, known};
use crate::world::{PUPPET_AGENT, Setup, signer_name};

#[tokio::test]
async fn an_agent_waits_until_an_administrator_signs() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let missing = fleet
        .call(&fleet.nobody, &format!("GET {V1}/certificate/web01"))
        .await;
    assert_eq!(
        (missing.status, missing.text()),
        (404, "Could not find certificate web01")
    );
    assert_eq!(missing.content_type(), "text/plain");

    let first = fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(
        (first.status, first.text(), first.content_type()),
        (200, "", "text/plain")
    );
    let again = fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(
        (again.status, again.text()),
        (
            400,
            "web01 already has a requested certificate; ignoring certificate request"
        )
    );
    assert_eq!(again.content_type(), "text/plain; charset=utf-8");
    assert_eq!(
        fleet
            .call(&fleet.nobody, &format!("GET {V1}/certificate/web01"))
            .await
            .status,
        404
    );

    let signed = fleet.sign("web01").await;
    assert_eq!((signed.status, signed.text()), (204, ""));
    let certificate = fleet.certificate("web01").await;
    assert_eq!(certificate.subject().to_string(), "CN=web01");
    assert_eq!(certificate.spki_der(), keys::p256_a().spki_der());
    let issuer = fleet
        .authority()
        .issuers
        .get(&fleet.world.puppet_issuer())
        .unwrap();
    certificate
        .verify_signed_by(issuer.certificate().spki_der())
        .unwrap();
    let late = fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(
        (late.status, late.text()),
        (
            400,
            "web01 already has a signed certificate; ignoring certificate request"
        )
    );
}

#[tokio::test]
async fn autosigning_signs_within_the_call() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    assert_eq!(
        fleet
            .enrol(&agent("web01.example.com"), "web01.example.com")
            .await
            .status,
        200
    );
    let certificate = fleet.certificate("web01.example.com").await;
    assert_eq!(certificate.alt_names().len(), 1);
    assert_eq!(fleet.names("?state=requested").await, []);
    // A name of the authority itself is approved by nobody but a person.
    assert_eq!(
        fleet
            .enrol(&agent("ca.example.com"), "ca.example.com")
            .await
            .status,
        200
    );
    assert_eq!(
        fleet.names("?state=requested").await,
        [known("ca.example.com", "requested")]
    );
}

#[tokio::test]
async fn names_that_may_enrol_and_names_that_may_not() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let long = "a".repeat(253);
    let seventy = format!("{}.example.com", "n".repeat(58));
    for name in [
        "web02",
        "a.b",
        "_.example.com",
        "_x-puppet._tcp.example.com",
        "rootca.",
        "foo.-bar",
        &long,
        &seventy,
    ] {
        let answer = fleet.enrol(&agent(name), name).await;
        assert_eq!((answer.status, answer.text()), (200, ""), "{name}");
    }
    let invalid = "Subject hostname format is invalid";
    let too_long = "a".repeat(254);
    let token = format!(
        "ott1.{}.{}.{}",
        "a".repeat(16),
        "b".repeat(52),
        "c".repeat(7)
    );
    for (name, sentence) in [
        ("Web01", "Certificate names must be lower case."),
        ("-a.b", invalid),
        ("a-.b", invalid),
        ("a-", invalid),
        ("a..b", invalid),
        (".a", invalid),
        ("...", invalid),
        ("ca", "The certificate name \"ca\" is reserved."),
        (&too_long, "Certificate names have at most 253 characters."),
        (
            &token,
            "Certificate names must not look like enrolment tokens.",
        ),
    ] {
        let answer = fleet.enrol(&agent(name), name).await;
        assert_eq!((answer.status, answer.text()), (400, sentence), "{name}");
        assert_eq!(answer.content_type(), "text/plain; charset=utf-8");
    }
    assert_eq!(fleet.names("?state=requested").await.len(), 8);
}

#[tokio::test]
async fn the_common_name_is_compared_after_duplicates() {
    let fleet = Fleet::of(Setup::STRICT).await;
    for name in ["waiting", "signed", "revoked"] {
        assert_eq!(fleet.enrol(&agent(name), name).await.status, 200);
    }
    for name in ["signed", "revoked"] {
        assert_eq!(fleet.sign(name).await.status, 204);
    }
    assert_eq!(fleet.revoke("revoked").await.status, 204);
    for (common_name, sentence) in [
        (
            "waiting",
            "waiting already has a requested certificate; ignoring certificate request",
        ),
        (
            "signed",
            "signed already has a signed certificate; ignoring certificate request",
        ),
        (
            "revoked",
            "revoked already has a revoked certificate; ignoring certificate request",
        ),
        (
            "other",
            "Instance name \"other\" does not match requested key \"web09\"",
        ),
        (
            "WEB09",
            "Instance name \"WEB09\" does not match requested key \"web09\"",
        ),
        (
            "foo*bar",
            "Instance name \"foo*bar\" does not match requested key \"web09\"",
        ),
        (
            "web09 ",
            "Instance name \"web09 \" does not match requested key \"web09\"",
        ),
        (
            "\u{202e}x",
            "Instance name \"\\u{202e}x\" does not match requested key \"web09\"",
        ),
    ] {
        let answer = fleet.enrol(&agent(common_name), "web09").await;
        assert_eq!((answer.status, answer.text()), (400, sentence));
    }
    // The first common name counts, whatever stands around it.
    let two =
        CsrBuilder::without_subject()
            .organization("o")
            .name(&oid::COMMON_NAME, 0x0c, b"web09");
    let two = two.name(&oid::COMMON_NAME, 0x0c, b"web10");
    let answer = fleet.enrol(&two, "web10").await;
    assert_eq!(
        answer.text(),
        "Instance name \"web09\" does not match requested key \"web10\""
    );
    assert_eq!(fleet.enrol(&two, "web09").await.status, 200);
    let empty = fleet.enrol(&CsrBuilder::without_subject(), "web11").await;
    assert_eq!(
        (empty.status, empty.text()),
        (
            400,
            "Instance name \"\" does not match requested key \"web11\""
        )
    );
}

#[tokio::test]
async fn unreadable_requests_are_refused_and_not_stored() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    let good = agent("web01").sign_pem(keys::p256_a());
    let weak = agent("web01")
        .public_key(keys::rsa1024().spki_der().to_vec())
        .sign_pem(keys::p256_a());
    // sha1WithRSAEncryption with NULL parameters (RFC 3279 2.2.1).
    let sha1 = vec![
        0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
    ];
    let sha1 = agent("web01").algorithm(sha1).sign_pem(keys::rsa2048_a());
    let forged = agent("web01")
        .flaw(SignatureFlaw::FlippedBit)
        .sign_pem(keys::p256_a());
    let control = agent("web01\n").sign_pem(keys::p256_a());
    for (body, part) in [
        (String::new(), "no certificate request block"),
        ("nonsense".to_owned(), "no certificate request block"),
        (format!("{good}{good}"), "more than one block"),
        (
            keys::p256_a().pkcs8_pem().to_owned(),
            "not a certificate request",
        ),
        (good.replace("END", "FIN"), "PEM"),
        (weak, "weak key: RSA with 1024 bits"),
        (sha1, "SHA-1"),
        (control, "control character"),
        (
            forged,
            "CSR contains a public key that does not correspond to the signing key",
        ),
    ] {
        let answer = fleet.put("web01", body).await;
        assert_eq!(
            (answer.status, answer.content_type()),
            (400, "text/plain; charset=utf-8")
        );
        assert!(answer.text().contains(part), "{part}: {}", answer.text());
    }
    let large = fleet.put("web01", vec![b'x'; 64 * 1024 + 1]).await;
    assert_eq!(
        (large.status, large.text()),
        (413, "The request body is longer than 65536 bytes.")
    );
    assert_eq!(fleet.names("?state=requested").await, []);
    let old_label = good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
    assert_eq!(
        fleet
            .put("web01", format!("text around\n{old_label}"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_persons_denial_holds_for_name_and_key() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.enrol(&agent("web01"), "web01").await;
    let act = Act {
        door: PuppetDoor::DOOR,
        key: "web01".to_owned(),
        actor: Actor::authority(),
        reason: "unknown host".to_owned(),
        expected: None,
        attachment: None,
        lifetime: None,
        on_unsignable: OnUnsignable::Refuse,
    };
    let record = fleet.authority().requests.deny(act).await.unwrap();
    let denied = fleet.enrol(&agent("web01"), "web01").await;
    let sentence = format!(
        "The certificate request was denied. Ask the administrator about request {}.",
        record.id
    );
    assert_eq!((denied.status, denied.text()), (403, sentence.as_str()));
    assert_eq!(fleet.names("?state=requested").await, []);
    assert_eq!(fleet.sign("web01").await.status, 404);
    // Another key may ask again.
    assert_eq!(
        fleet
            .put("web01", agent("web01").sign_pem(keys::p256_b()))
            .await
            .status,
        200
    );
    assert_eq!(fleet.sign("web01").await.status, 204);
}

#[tokio::test]
async fn one_of_many_submissions_for_a_name_is_taken() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    let csr = agent("web01").sign_pem(keys::p256_a());
    let calls = (0..16).map(|_| fleet.put("web01", csr.clone()));
    let answers = futures_util::future::join_all(calls).await;
    let taken = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(taken, 1);
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 400))
    );
}

#[tokio::test]
async fn who_asked_and_who_signed_is_on_record() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.enrol(&agent("web01"), "web01").await;
    fleet.sign("web01").await;
    let issuer = fleet.world.puppet_issuer();
    let entry = fleet
        .authority()
        .ledger
        .newest(&issuer, "web01")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        entry.explanation.to_string(),
        "approved by countersign-admin from 192.0.2.7"
    );
    let record = fleet
        .authority()
        .requests
        .get(entry.request)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.requester.to_string(), "anonymous from 192.0.2.7");
    assert_eq!(record.door, PuppetDoor::DOOR);
    assert_eq!(entry.signer, signer_name(PUPPET_AGENT));
}
