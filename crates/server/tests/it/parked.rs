//! A request whose sender is revoked between its head and the end of its body does nothing.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use countersign_authority::Actor;
use countersign_authority::store::Past;
use countersign_authority::{Authority, Door, IssuerId, RequestState, Submission};
use countersign_pki::{CheckedCsr, CsrLimits, RevocationReason, Serial};
use countersign_policy::{Requester, Wishes};
use countersign_server::enrol::{self, EnrolDoor};
use countersign_server::kubernetes::{self, KubernetesDoor};
use countersign_server::puppet::{self, PuppetDoor};
use countersign_server::{Peer, PeerIdentity};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use futures_util::stream;
use serde_json::json;

use crate::exchange::Call;
use crate::world::{KUBE_CLIENT, PUPPET_AGENT, START, World, door_named, signer_name};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
async fn revoked_stays_out_while_a_puppet_body_is_under_way() {
    let signed = r#"{"desired_state":"signed"}"#;
    for (line, body) in [
        ("PUT /puppet-ca/v1/certificate_status/web01", signed),
        ("POST /puppet-ca/v1/sign", r#"{"certnames":["web01"]}"#),
    ] {
        let world = World::strict().await;
        waits(&world, "puppet", "web01", PUPPET_AGENT).await;
        let signer = signer_name(PUPPET_AGENT);
        let issuer = world.puppet_issuer();
        let door = PuppetDoor::new(world.authority.clone(), issuer, signer, START).unwrap();
        let admin = world.puppet_admin().await;
        refused(&world, &puppet::router(door), &admin, line, body, 403).await;
        assert_eq!(
            state(&world, "puppet", "web01").await,
            RequestState::Pending
        );
    }
}

#[tokio::test]
async fn revoked_stays_out_while_a_native_body_is_under_way() {
    for line in [
        "POST /enrol/v1/requests/puppet/web01/approve",
        "POST /enrol/v1/requests/puppet/web01/deny",
    ] {
        let world = World::strict().await;
        waits(&world, "puppet", "web01", PUPPET_AGENT).await;
        let door = EnrolDoor::new(world.authority.clone(), world.puppet_issuer());
        let admin = world.puppet_admin().await;
        let body = r#"{"reason":"by a former administrator"}"#;
        refused(&world, &enrol::router(door), &admin, line, body, 403).await;
        assert_eq!(
            state(&world, "puppet", "web01").await,
            RequestState::Pending
        );
    }
}

#[tokio::test]
async fn revoked_stays_out_while_a_kubernetes_body_is_under_way() {
    let world = World::strict().await;
    waits(&world, "kubernetes", "jane", KUBE_CLIENT).await;
    let door = kubernetes::router(
        KubernetesDoor::open(world.authority.clone(), world.kubernetes_issuer())
            .await
            .unwrap(),
    );
    let condition = json!({"type": "Approved", "status": "True", "reason": "Late"});
    let patch = json!({"status": {"conditions": [condition]}}).to_string();
    let another = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "another"},
        "spec": {"request": "", "signerName": KUBE_CLIENT, "usages": ["client auth"]},
    });
    for (line, body) in [
        (format!("PATCH {CSRS}/jane/approval"), patch),
        (format!("POST {CSRS}"), another.to_string()),
        (format!("DELETE {CSRS}/jane"), "{}".to_owned()),
        (format!("DELETE {CSRS}"), "{}".to_owned()),
    ] {
        let admin = world.kubernetes_admin().await;
        refused(&world, &door, &admin, &line, &body, 401).await;
        let found = state(&world, "kubernetes", "jane").await;
        assert_eq!(found, RequestState::Pending, "{line}");
    }
}

/// The same call is carried out by somebody who is not revoked; without this the tests above would prove nothing.
#[tokio::test]
async fn a_body_in_two_parts_is_as_good_as_one() {
    let world = World::strict().await;
    waits(&world, "puppet", "web01", PUPPET_AGENT).await;
    let door = EnrolDoor::new(world.authority.clone(), world.puppet_issuer());
    let admin = world.puppet_admin().await;
    let parts = [&br#"{"reason""#[..], br#":"fine"}"#];
    let parts = stream::iter(parts.map(|part| Ok::<_, std::io::Error>(Bytes::from_static(part))));
    let answer = Call::new(&admin, "POST /enrol/v1/requests/puppet/web01/approve")
        .stream(Body::from_stream(parts))
        .send(&enrol::router(door))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Sends half a body, has the sender revoked, sends the rest.
async fn refused(world: &World, door: &Router, admin: &Peer, line: &str, body: &str, status: u16) {
    let (first, rest) = body.split_at(body.len() / 2);
    let revocation = Revocation::of(admin, &world.authority);
    let parts = [
        (first.to_owned(), None),
        (rest.to_owned(), Some(revocation)),
    ];
    // The second part is asked for when the door waits for it.
    let parts = stream::unfold(Vec::from(parts).into_iter(), |mut parts| async move {
        let (text, revocation) = parts.next()?;
        if let Some(revocation) = revocation {
            revocation.carry_out().await;
        }
        Some((Ok::<_, std::io::Error>(text), parts))
    });
    let content_type = match line.starts_with("PATCH") {
        true => "application/merge-patch+json",
        false => "application/json",
    };
    let answer = Call::new(admin, line)
        .header("content-type", content_type)
        .header("accept", "application/json")
        .stream(Body::from_stream(parts))
        .send(door)
        .await;
    assert_eq!(answer.status, status, "{line}: {}", answer.text());
}

struct Revocation {
    authority: Authority,
    issuer: IssuerId,
    serial: Serial,
}

impl Revocation {
    fn of(peer: &Peer, authority: &Authority) -> Self {
        let PeerIdentity::Client(client) = peer.identity(authority) else {
            panic!("it counts until it is revoked");
        };
        Self {
            authority: authority.clone(),
            issuer: client.issuer.clone(),
            serial: client.certificate.serial(),
        }
    }

    async fn carry_out(self) {
        let reason = RevocationReason::KeyCompromise;
        let actor = Actor::authority();
        let revoked =
            self.authority
                .ledger
                .revoke_serial(&self.issuer, &self.serial, reason, &actor);
        assert_eq!(revoked.await.unwrap(), 1);
    }
}

async fn waits(world: &World, door: &str, key: &str, signer: &str) {
    let csr = CsrBuilder::new(key).sign(keys::p256_a());
    let usages = match door {
        "kubernetes" => vec!["client auth".to_owned()],
        _ => Vec::new(),
    };
    let submission = Submission {
        door: door_named(door),
        key: key.to_owned(),
        csr: CheckedCsr::check(&csr, &CsrLimits::STANDARD).unwrap(),
        signer: signer_name(signer),
        requester: Requester::authority(),
        wishes: Wishes {
            usages,
            expiration_seconds: None,
        },
        attachment: Vec::new(),
        bearer: None,
        decision: None,
    };
    world.authority.requests.submit(submission).await.unwrap();
}

async fn state(world: &World, door: &str, key: &str) -> RequestState {
    let door = Door::from_text(door.to_owned());
    let found = world.authority.requests.at(&door, key, Past::Ignore).await;
    found.unwrap().expect("the request waits").state
}
