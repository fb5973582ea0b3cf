//! Which client certificates count, at listeners over real sockets, in both versions of TLS.

use countersign_authority::Actor;
use countersign_authority::IssuerId;
use countersign_pki::{Oid, RevocationReason, oid};
use countersign_server::{Peer, PeerIdentity, Timeouts};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, SupportedProtocolVersion};

use crate::wire::Site;
use crate::world::{Forged, KUBERNETES_ADMIN, PUPPET_ADMIN, PUPPET_AGENT, START, World};

const VERSIONS: [&[&SupportedProtocolVersion]; 2] = [&[&TLS12], &[&TLS13]];
const STATUSES: &str = "/puppet-ca/v1/certificate_statuses/all";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
async fn puppet_listener_fails_the_handshake_for_what_does_not_count() {
    let world = World::strict().await;
    let (own, foreign) = (world.puppet_issuer(), world.kubernetes_issuer());
    let bad = bad_certificates(&world, &own, &foreign).await;
    let revoked = revoked_admin(&world, &own, PUPPET_ADMIN).await;
    let good = certificate_of(&world, &world.puppet_admin().await);
    let unknown = world
        .forge(&own, keys::p256_d(), &Forged::client("countersign-admin"))
        .await;
    let site = Site::puppet(world, Timeouts::STANDARD).await;
    for version in VERSIONS {
        let client = || site.client().version(version);
        for (what, certificate, alert) in &bad {
            let told = client().with(certificate, keys::p256_d()).alert().await;
            assert_eq!(told, *alert, "{what}, {version:?}");
        }
        let told = client().with(&revoked, keys::p256_d()).alert().await;
        assert_eq!(told, AlertDescription::CertificateRevoked, "{version:?}");

        let unknown = client().with(&unknown, keys::p256_d());
        assert_eq!(unknown.get(STATUSES).await, 403, "not in the ledger");
        assert_eq!(client().get(STATUSES).await, 403, "no certificate");
        let good = client().with(&good, keys::p256_d());
        assert_eq!(good.get(STATUSES).await, 200, "{version:?}");
    }
}

/// In TLS 1.3; the library reads certificates itself in 1.2.
#[tokio::test]
async fn a_critical_puppet_extension_does_not_lock_an_agent_out() {
    let world = World::strict().await;
    let role = Oid::parse("1.3.6.1.4.1.34380.1.1.13").unwrap();
    let request = CsrBuilder::new("web01").raw_extension(&role, Some(true), b"\x0c\x03web");
    let peer = world.client(PUPPET_AGENT, "web01", &request).await;
    let certificate = certificate_of(&world, &peer);
    let site = Site::puppet(world, Timeouts::STANDARD).await;
    let agent = site.client().version(VERSIONS[1]);
    let agent = agent.with(&certificate, keys::p256_d());
    assert_eq!(agent.get("/puppet-ca/v1/expirations").await, 200);
    let thief = site.client().version(VERSIONS[1]);
    let thief = thief.with(&certificate, keys::p256_a());
    assert_eq!(thief.alert().await, AlertDescription::DecryptError);
}

#[tokio::test]
async fn kubernetes_listener_answers_401_for_what_does_not_count() {
    let world = World::strict().await;
    let (own, foreign) = (world.kubernetes_issuer(), world.puppet_issuer());
    let mut bad: Vec<(&str, Vec<u8>)> = bad_certificates(&world, &own, &foreign)
        .await
        .into_iter()
        .map(|(what, certificate, _)| (what, certificate))
        .collect();
    bad.push((
        "revoked",
        revoked_admin(&world, &own, KUBERNETES_ADMIN).await,
    ));
    let masters = Forged {
        organization: Some("system:masters"),
        ..Forged::client("kubernetes-admin")
    };
    bad.push((
        "not in the ledger",
        world.forge(&own, keys::p256_d(), &masters).await,
    ));
    bad.push((
        "the Puppet administrator",
        certificate_of(&world, &world.puppet_admin().await),
    ));
    let good = certificate_of(&world, &world.kubernetes_admin().await);
    let site = Site::kubernetes(world, Timeouts::STANDARD).await;
    for version in VERSIONS {
        let client = || site.client().version(version);
        for (what, certificate) in &bad {
            let client = client().with(certificate, keys::p256_d());
            assert_eq!(client.get(CSRS).await, 401, "{what}, {version:?}");
            assert_eq!(client.get("/readyz").await, 200, "{what}, {version:?}");
            assert_eq!(client.get("/version").await, 200, "{what}, {version:?}");
        }
        assert_eq!(client().get(CSRS).await, 403, "no certificate");
        let good_client = client().with(&good, keys::p256_d());
        assert_eq!(good_client.get(CSRS).await, 200, "{version:?}");

        // Whoever shows a certificate must hold its key, whatever the certificate is worth.
        let thief = client().with(&good, keys::p256_a());
        assert_eq!(thief.alert().await, AlertDescription::DecryptError);
    }
}

/// Certificates of the issuer that are worth nothing, and one of another issuer, each with its alert.
async fn bad_certificates(
    world: &World,
    own: &IssuerId,
    foreign: &IssuerId,
) -> Vec<(&'static str, Vec<u8>, AlertDescription)> {
    let client = Forged::client("countersign-admin");
    let rows = [
        (
            "expired",
            own,
            Forged {
                not_after: START.minus_seconds(1),
                ..client
            },
            AlertDescription::CertificateExpired,
        ),
        (
            "not yet valid",
            own,
            Forged {
                not_before: START.plus_seconds(1),
                ..client
            },
            AlertDescription::CertificateExpired,
        ),
        (
            "for servers only",
            own,
            Forged {
                usages: &[oid::EKU_SERVER_AUTH],
                ..client
            },
            AlertDescription::UnsupportedCertificate,
        ),
        (
            "of an authority",
            own,
            Forged {
                is_ca: true,
                ..client
            },
            AlertDescription::UnsupportedCertificate,
        ),
        (
            "of another issuer",
            foreign,
            client,
            AlertDescription::UnknownCA,
        ),
    ];
    let mut forged = Vec::new();
    for (what, issuer, certificate, alert) in rows {
        let der = world.forge(issuer, keys::p256_d(), &certificate).await;
        forged.push((what, der, alert));
    }
    forged
}

async fn revoked_admin(world: &World, issuer: &IssuerId, signer: &str) -> Vec<u8> {
    let request = CsrBuilder::new("former-admin").organization("system:masters");
    let peer = world.client(signer, "former-admin", &request).await;
    let PeerIdentity::Client(client) = peer.identity(&world.authority) else {
        panic!("it counts until it is revoked");
    };
    let (serial, reason) = (client.certificate.serial(), RevocationReason::Unspecified);
    let actor = Actor::authority();
    let revoked = world
        .authority
        .ledger
        .revoke_serial(issuer, &serial, reason, &actor);
    assert_eq!(revoked.await.unwrap(), 1);
    client.certificate.der().to_vec()
}

pub(crate) fn certificate_of(world: &World, peer: &Peer) -> Vec<u8> {
    match peer.identity(&world.authority) {
        PeerIdentity::Client(client) => client.certificate.der().to_vec(),
        PeerIdentity::Anonymous | PeerIdentity::Refused => panic!("no certificate that counts"),
    }
}
