//! Who asks too often is told so, and costs nothing.

use axum::Router;
use countersign_server::kubernetes::KubernetesDoor;
use countersign_server::puppet::PuppetDoor;
use countersign_server::{Peer, RequestLimits, RequestRates};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::exchange::{Answer, Call};
use crate::world::{KUBE_CLIENT, PUPPET_AGENT, START, World, signer_name};

/// Both doors of a world, behind the same limits.
struct Doors {
    world: World,
    puppet: Router,
    kubernetes: Router,
}

impl Doors {
    async fn within(per_source: u32, per_certname: u32) -> Self {
        let world = World::strict().await;
        let limits = RequestLimits::new(RequestRates {
            per_source,
            per_certname,
            token_failures: 0,
        });
        let puppet = PuppetDoor::new(
            world.authority.clone(),
            world.puppet_issuer(),
            signer_name(PUPPET_AGENT),
            START,
        );
        let kubernetes = KubernetesDoor::open(world.authority.clone(), world.kubernetes_issuer())
            .await
            .unwrap();
        Self {
            puppet: puppet.unwrap().router_within(limits.clone()),
            kubernetes: kubernetes.router_within(limits),
            world,
        }
    }

    async fn put(&self, peer: &Peer, path: &str, body: &str) -> Answer {
        let call = Call::new(peer, &format!("PUT {path}")).body(body);
        call.send(&self.puppet).await
    }

    async fn post(&self, peer: &Peer, body: &str) -> Answer {
        let call = Call::new(peer, &format!("POST {CSRS}"));
        let call = call.header("content-type", "application/json");
        call.body(body).send(&self.kubernetes).await
    }
}

fn request_path(name: &str) -> String {
    format!("/puppet-ca/v1/certificate_request/{name}")
}

fn refused(answer: &Answer, seconds: &str) -> bool {
    assert_eq!(answer.status == 429, answer.header("retry-after").is_some());
    answer.status == 429 && answer.header("retry-after") == Some(seconds)
}

#[tokio::test]
async fn a_name_over_its_limit_waits_and_others_do_not() {
    let doors = Doors::within(0, 2).await;
    let nobody = doors.world.anonymous();
    let csr = CsrBuilder::new("web01").sign_pem(keys::p256_a());
    let path = request_path("web01");
    assert_eq!(doors.put(&nobody, &path, &csr).await.status, 200);
    // What cannot be read counts as well: reading it is the cost.
    assert_eq!(doors.put(&nobody, &path, "garbage").await.status, 400);
    // Another spelling of the path is the same name, and nothing of the body is looked at any more.
    for path in [&path, "/puppet-ca//v1/certificate_request/web%30%31;a=b"] {
        let answer = doors.put(&nobody, path, "garbage").await;
        assert!(refused(&answer, "30"), "{}", answer.status);
        assert_eq!(
            answer.text(),
            "Too many certificate requests for this certname. Try again in 30 seconds."
        );
        assert_eq!(answer.content_type(), "text/plain; charset=utf-8");
        assert_eq!(answer.header("x-puppet-version"), Some("8.4.0"));
    }
    let other = doors.put(&nobody, &request_path("web02"), "garbage").await;
    assert_eq!(other.status, 400);
    // Other calls are not counted.
    let get = Call::new(&nobody, "GET /puppet-ca/v1/certificate/web01");
    assert_eq!(get.send(&doors.puppet).await.status, 404);

    doors.world.clock.advance(30);
    assert_eq!(doors.put(&nobody, &path, "garbage").await.status, 400);
    let early = doors.put(&nobody, &path, "garbage").await;
    assert!(refused(&early, "30"), "{}", early.status);
}

#[tokio::test]
async fn a_source_has_one_budget_at_both_doors_and_administrators_have_none() {
    let doors = Doors::within(2, 1).await;
    let world = &doors.world;
    let nobody = world.anonymous();
    let jane = CsrBuilder::new("jane").organization("dev");
    let jane = world.client(KUBE_CLIENT, "jane", &jane).await;
    let (puppet_admin, kubernetes_admin) =
        (world.puppet_admin().await, world.kubernetes_admin().await);
    let path = request_path("web01");
    // Administrators: refused for what they send, never for how often, and they use up nobody's budget.
    for _ in 0..5 {
        assert_eq!(doors.put(&puppet_admin, &path, "garbage").await.status, 400);
        assert_eq!(doors.post(&kubernetes_admin, "{}").await.status, 422);
    }
    assert_eq!(doors.put(&nobody, &path, "garbage").await.status, 400);
    assert_eq!(doors.post(&jane, "{}").await.status, 403);

    let answer = doors.post(&jane, "{}").await;
    assert!(refused(&answer, "30"), "{}", answer.status);
    let status = answer.json();
    let told = [
        &status["kind"],
        &status["reason"],
        &status["details"]["retryAfterSeconds"],
    ];
    assert_eq!(
        told.map(ToString::to_string),
        ["\"Status\"", "\"TooManyRequests\"", "30"]
    );
    let answer = doors.put(&nobody, &request_path("web02"), "garbage").await;
    assert!(refused(&answer, "30"), "{}", answer.status);
    assert!(answer.text().contains("from this address"));
    // Somebody else is not held up.
    let elsewhere = Peer::anonymous("198.51.100.1:4000".parse().unwrap());
    let answer = doors
        .put(&elsewhere, &request_path("web02"), "garbage")
        .await;
    assert_eq!(answer.status, 400);
}

/// A revoked or foreign certificate makes nobody an administrator.
#[tokio::test]
async fn a_certificate_that_does_not_count_is_counted() {
    let doors = Doors::within(1, 0).await;
    let admin = doors.world.puppet_admin().await;
    let pretender = doors.world.as_if_signed_by(PUPPET_AGENT, &admin);
    let path = request_path("web01");
    assert_eq!(doors.put(&pretender, &path, "garbage").await.status, 400);
    let answer = doors.put(&pretender, &path, "garbage").await;
    assert!(refused(&answer, "60"), "{}", answer.status);
}

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
