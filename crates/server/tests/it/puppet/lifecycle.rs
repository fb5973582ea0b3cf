//! Names are deleted and cleaned, certificates renewed, ends watched.

use countersign_authority::store::StoreFault;
use countersign_pki::{Certificate, Crl, Serial, oid, pem};
use countersign_server::puppet::Renewals;
use countersign_server::{KnownClient, Peer};
use countersign_testkit::keys;

use super::{Fleet, V1, agent, known};
use crate::exchange::{Answer, Call};
use crate::world::{PUPPET_AGENT, START, Setup, signer_name};

const DAY: u64 = 86_400;
const GRANTED: Renewals = Renewals::Granted { lifetime: 90 * DAY };

impl Fleet {
    async fn delete(&self, name: &str) -> Answer {
        let line = format!("DELETE {V1}/certificate_status/{name}");
        self.call(&self.admin, &line).await
    }

    async fn clean(&self, body: &str) -> Answer {
        let call = Call::new(&self.admin, &format!("PUT {V1}/clean")).body(body);
        call.send(&self.door).await
    }

    async fn renew(&self, peer: &Peer) -> Answer {
        let call = Call::new(peer, &format!("POST {V1}/certificate_renewal"));
        call.header("content-type", "text/plain")
            .send(&self.door)
            .await
    }

    /// Whoever connects with this agent's certificate.
    fn holder(&self, certificate: Certificate) -> Peer {
        let client = KnownClient {
            issuer: self.world.puppet_issuer(),
            signer: signer_name(PUPPET_AGENT),
            certificate,
        };
        Peer::with_client(self.nobody.address, client)
    }

    async fn crl(&self) -> (u64, Vec<Serial>) {
        let line = format!("GET {V1}/certificate_revocation_list/ca");
        let answer = self.call(&self.nobody, &line).await;
        let block = pem::decode_first(&answer.body, &pem::PemLimits::REQUEST);
        let crl = Crl::parse(&block.unwrap().unwrap().der).unwrap();
        (crl.number().unwrap(), crl.serials().collect())
    }
}

fn certificate(answer: &Answer) -> Certificate {
    assert_eq!(
        (answer.status, answer.content_type()),
        (200, "text/plain"),
        "{}",
        answer.text()
    );
    let block = pem::decode_first(&answer.body, &pem::PemLimits::REQUEST);
    Certificate::parse(&block.unwrap().unwrap().der).unwrap()
}

#[tokio::test]
async fn deleting_forgets_certificate_and_request_and_revokes_nothing() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    fleet.enrol(&agent("web01"), "web01").await;
    let first = fleet.certificate("web01").await;
    let deleted = fleet.delete("web01").await;
    assert_eq!((deleted.status, deleted.text()), (204, ""));
    for (line, status, text) in [
        ("certificate/web01", 404, "Could not find certificate web01"),
        ("certificate_status/web01", 404, "Resource not found."),
    ] {
        let answer = fleet.call(&fleet.admin, &format!("GET {V1}/{line}")).await;
        assert_eq!((answer.status, answer.text()), (status, text), "{line}");
    }
    assert_eq!(
        fleet.names("").await,
        [known("countersign-admin", "signed")]
    );
    assert_eq!(fleet.crl().await, (0, vec![]));
    // It is on record still, so deleting and revoking find it.
    assert_eq!(fleet.delete("web01").await.status, 204);
    let sign = fleet.sign("web01").await;
    assert_eq!(
        (sign.status, sign.text()),
        (
            409,
            "Cannot sign certificate for host web01 without a certificate request"
        )
    );
    assert_eq!(fleet.enrol(&agent("web01"), "web01").await.status, 200);
    let second = fleet.certificate("web01").await;
    assert_ne!(second.serial(), first.serial());
    assert_eq!(fleet.revoke("web01").await.status, 204);
    let (number, mut listed) = fleet.crl().await;
    listed.sort();
    let mut expected = vec![first.serial(), second.serial()];
    expected.sort();
    assert_eq!((number, listed), (1, expected));

    let unknown = fleet.delete("nobody").await;
    assert_eq!(
        (unknown.status, unknown.text(), unknown.content_type()),
        (404, "Resource not found.", "text/plain; charset=UTF-8")
    );
    let line = format!("DELETE {V1}/certificate_status/web01");
    let unacceptable = Call::new(&fleet.admin, &line).header("accept", "text/html");
    assert_eq!(unacceptable.send(&fleet.door).await.status, 406);
    for peer in [&fleet.nobody, &fleet.holder(second)] {
        assert_eq!(fleet.call(peer, &line).await.status, 403);
    }
}

#[tokio::test]
async fn deleting_a_waiting_request_lets_its_name_ask_again() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(fleet.revoke("web01").await.status, 409);
    assert_eq!(fleet.delete("web01").await.status, 204);
    assert_eq!(fleet.delete("web01").await.status, 404);
    assert_eq!(fleet.revoke("web01").await.status, 404);
    assert_eq!(fleet.enrol(&agent("web01"), "web01").await.status, 200);
}

#[tokio::test]
async fn a_revoked_name_enrols_again_after_it_was_cleaned() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    for name in ["web01", "web02", "kept"] {
        fleet.enrol(&agent(name), name).await;
    }
    let serials = [
        fleet.certificate("web01").await.serial(),
        fleet.certificate("web02").await.serial(),
    ];
    assert_eq!(fleet.revoke("web01").await.status, 204);
    let revoked = fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(
        (revoked.status, revoked.text()),
        (
            400,
            "web01 already has a revoked certificate; ignoring certificate request"
        )
    );
    let cleaned = fleet.clean(r#"{"certnames":["web01","web02"]}"#).await;
    assert_eq!(
        (cleaned.status, cleaned.text(), cleaned.content_type()),
        (200, "Successfully cleaned all certs.", "text/plain")
    );
    let (number, listed) = fleet.crl().await;
    assert_eq!((number, listed.len()), (2, 2));
    assert!(serials.iter().all(|serial| listed.contains(serial)));
    assert_eq!(
        fleet.names("").await,
        [
            known("countersign-admin", "signed"),
            known("kept", "signed")
        ]
    );
    for name in ["web01", "web02"] {
        assert_eq!(fleet.enrol(&agent(name), name).await.status, 200);
        let again = fleet.certificate(name).await.serial();
        assert!(!serials.contains(&again), "{name}");
    }
}

#[tokio::test]
async fn cleaning_says_what_it_could_not_do() {
    let fleet = Fleet::of(Setup::STRICT).await;
    for name in ["signed", "waiting"] {
        fleet.enrol(&agent(name), name).await;
    }
    fleet.sign("signed").await;
    let missing =
        "Missing required key: 'certnames'. Please supply the list of certs you want to clean.";
    let unknown = "The following certs do not exist and cannot be revoked:";
    for (body, status, text) in [
        ("", 400, "Request body is not JSON.".to_owned()),
        (
            r#"{"certnames":["signed"],"async":true}"#,
            400,
            "Async mode is not currently supported.".to_owned(),
        ),
        ("{}", 400, missing.to_owned()),
        (
            r#"{"certnames":["waiting","x","signed"],"async":false}"#,
            200,
            format!(r#"{unknown} ["waiting" "x"]"#),
        ),
        (
            r#"{"certnames":["signed"]}"#,
            200,
            "Successfully cleaned all certs.".to_owned(),
        ),
        (
            r#"{"certnames":[]}"#,
            200,
            "Successfully cleaned all certs.".to_owned(),
        ),
    ] {
        let answer = fleet.clean(body).await;
        assert_eq!(
            (answer.status, answer.text(), answer.content_type()),
            (status, text.as_str(), "text/plain"),
            "{body}"
        );
    }
    // Requests are not touched.
    assert_eq!(
        fleet.names("?state=requested").await,
        [known("waiting", "requested")]
    );
    let line = format!("PUT {V1}/clean");
    assert_eq!(fleet.call(&fleet.nobody, &line).await.status, 403);
    fleet.world.store.set(Some(|| StoreFault::Full));
    assert_eq!(fleet.clean(r#"{"certnames":["signed"]}"#).await.status, 503);
    fleet
        .world
        .store
        .set(Some(|| StoreFault::Corrupt { what: "request" }));
    let failed = fleet.clean(r#"{"certnames":["signed"]}"#).await;
    assert_eq!(
        (failed.status, failed.text()),
        (
            500,
            "Error while cleaning certs: the store holds a request that cannot be read"
        )
    );
}

#[tokio::test]
async fn a_renewed_certificate_repeats_the_one_of_the_connection() {
    let fleet = Fleet::with_renewals(Setup::AUTOSIGN, GRANTED).await;
    let role = oid::registered_oid("pp_role").unwrap();
    fleet
        .enrol(&agent("web01").extension(&role, "web"), "web01")
        .await;
    let first = fleet.certificate("web01").await;
    assert_eq!(first.not_after(), START.plus_seconds(5 * 365 * DAY));
    let holder = fleet.holder(first.clone());
    fleet.world.clock.advance(3600);

    let renewed = certificate(&fleet.renew(&holder).await);
    assert_ne!(renewed.serial(), first.serial());
    assert_eq!(renewed.subject().der(), first.subject().der());
    assert_eq!(renewed.spki_der(), first.spki_der());
    assert_eq!(renewed.extensions(), first.extensions());
    let now = START.plus_seconds(3600);
    assert_eq!(renewed.not_before(), now.minus_seconds(DAY));
    assert_eq!(renewed.not_after(), now.plus_seconds(90 * DAY));
    assert_eq!(fleet.certificate("web01").await.serial(), renewed.serial());
    // A name with two certificates still has one row, and the old one still opens the door.
    assert_eq!(
        fleet.names("").await,
        [
            known("countersign-admin", "signed"),
            known("web01", "signed")
        ]
    );
    // A few are granted at once; whoever goes on gets the last of these again, and another one only after a twentieth of its
    // life.
    let mut out = vec![first, renewed];
    for _ in 0..3 {
        let next = certificate(&fleet.renew(&holder).await);
        assert!(out.iter().all(|known| known.serial() != next.serial()));
        out.push(next);
    }
    let same = certificate(&fleet.renew(&holder).await);
    // All were made in one second: none of them is later than the others.
    let mut renewals = out.iter().skip(1);
    assert!(renewals.any(|known| known.serial() == same.serial()));
    fleet.world.clock.advance(5 * 86_400);
    let again = certificate(&fleet.renew(&holder).await);
    assert_ne!(again.serial(), same.serial());
    out.push(again);

    // A revocation hits all of them, and nobody renews any more.
    assert_eq!(fleet.revoke("web01").await.status, 204);
    let (number, listed) = fleet.crl().await;
    assert_eq!((number, listed.len()), (1, out.len()));
    for out in out {
        assert!(listed.contains(&out.serial()));
        assert_eq!(fleet.renew(&fleet.holder(out)).await.status, 403);
    }
}

#[tokio::test]
async fn who_may_renew() {
    let off = Fleet::of(Setup::AUTOSIGN).await;
    off.enrol(&agent("web01"), "web01").await;
    let holder = off.holder(off.certificate("web01").await);
    let answer = off.renew(&holder).await;
    assert_eq!(
        (answer.status, answer.text(), answer.content_type()),
        (404, "Not Found", "text/plain")
    );

    let fleet = Fleet::with_renewals(Setup::AUTOSIGN, GRANTED).await;
    for name in ["web01", "web02"] {
        fleet.enrol(&agent(name), name).await;
    }
    let holder = fleet.holder(fleet.certificate("web01").await);
    let other = fleet.certificate("web02").await;
    let kubernetes = fleet.world.kubernetes_admin().await;
    for (who, peer, status) in [
        ("an agent", &holder, 200),
        ("nobody", &fleet.nobody, 403),
        ("an administrator", &fleet.admin, 403),
        (
            "an administrator whom the ledger knows as agent",
            &fleet.world.as_if_signed_by(PUPPET_AGENT, &fleet.admin),
            403,
        ),
        ("another trust domain", &kubernetes, 403),
    ] {
        assert_eq!(fleet.renew(peer).await.status, status, "{who}");
    }

    // A header is no certificate: neither instead of the connection's nor without one.
    let header: String = other
        .to_pem()
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let line = format!("POST {V1}/certificate_renewal");
    let with_header = |peer| Call::new(peer, &line).header("x-client-cert", &header);
    let answer = with_header(&holder).send(&fleet.door).await;
    let own = certificate(&answer);
    assert_eq!(own.subject().first_common_name(), Some("web01"));
    assert_eq!(
        with_header(&fleet.nobody).send(&fleet.door).await.status,
        403
    );

    fleet.world.clock.advance(5 * 365 * 86_400 + 1);
    assert_eq!(fleet.renew(&holder).await.status, 403, "ended");
}

#[tokio::test]
async fn who_says_it_will_renew_gets_a_short_first_certificate() {
    let will_renew = |name: &str, text: &[u8]| {
        let csr = agent(name).attribute(&oid::PP_AUTH_AUTO_RENEW, 0x0c, text);
        csr.sign_pem(keys::p256_a())
    };
    for (renewals, said, days) in [
        (GRANTED, &b"true"[..], 90),
        (GRANTED, b"false", 5 * 365),
        (Renewals::Refused, b"true", 5 * 365),
    ] {
        let fleet = Fleet::with_renewals(Setup::AUTOSIGN, renewals).await;
        assert_eq!(fleet.put("a", will_renew("a", said)).await.status, 200);
        let end = fleet.certificate("a").await.not_after();
        assert_eq!(end, START.plus_seconds(days * DAY), "{renewals:?} {said:?}");
    }
    // What an administrator says goes before.
    let fleet = Fleet::with_renewals(Setup::STRICT, GRANTED).await;
    for (name, body, seconds) in [
        ("a", r#"{"desired_state":"signed"}"#, 90 * DAY),
        ("b", r#"{"desired_state":"signed","cert_ttl":600}"#, 600),
    ] {
        fleet.put(name, will_renew(name, b"true")).await;
        assert_eq!(fleet.set_state(name, body).await.status, 204);
        let certificate = fleet.certificate(name).await;
        assert_eq!(certificate.not_after(), START.plus_seconds(seconds));
    }
    // And a renewal is never for longer than that.
    let short = fleet.holder(fleet.certificate("b").await);
    let renewed = certificate(&fleet.renew(&short).await);
    assert_eq!(renewed.not_after(), START.plus_seconds(600));
}

#[tokio::test]
async fn ends_are_shown_to_whoever_holds_a_certificate() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    fleet.enrol(&agent("web01"), "web01").await;
    let holder = fleet.holder(fleet.certificate("web01").await);
    let line = format!("GET {V1}/expirations");
    let answer = fleet.call(&holder, &line).await;
    assert_eq!(
        (answer.status, answer.content_type(), answer.text()),
        (
            200,
            "application/json",
            r#"{"ca-certs":{"Puppet CA: ca.example.com":"2040-12-29T03:04:05UTC"},"crls":{"Puppet CA: ca.example.com":"2031-01-01T03:04:05UTC"}}"#
        )
    );
    assert_eq!(fleet.call(&fleet.admin, &line).await.status, 200);
    assert_eq!(fleet.call(&fleet.nobody, &line).await.status, 403);
    let post = format!("POST {V1}/expirations");
    assert_eq!(fleet.call(&fleet.admin, &post).await.status, 403);
}
