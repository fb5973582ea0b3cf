//! The Puppet door: what agents, `puppetserver ca` and Foreman see.

mod access;
mod administration;
mod enrolment;
mod fetching;
mod lifecycle;
mod listing;
mod profile;
mod revocation_lists;
mod tokens;

use axum::Router;
use countersign_authority::Authority;
use countersign_pki::{Certificate, pem};
use countersign_server::puppet::{PuppetDoor, Renewals, router};
use countersign_server::{Peer, RequestLimits};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::exchange::{Answer, Call};
use crate::world::{PUPPET_AGENT, START, Setup, World, signer_name};

/// The door of a world, and everybody who calls at it.
struct Fleet {
    world: World,
    door: Router,
    nobody: Peer,
    admin: Peer,
}

impl Fleet {
    async fn of(setup: Setup) -> Self {
        Self::with_renewals(setup, Renewals::Refused).await
    }

    async fn with_renewals(setup: Setup, renewals: Renewals) -> Self {
        Self::behind(setup, |door| door.with_renewals(renewals)).await
    }

    /// With a door of the test's choice.
    async fn behind(setup: Setup, furnish: impl FnOnce(PuppetDoor) -> PuppetDoor) -> Self {
        Self::served(setup, |door| router(furnish(door))).await
    }

    /// Within limits.
    async fn within(setup: Setup, limits: RequestLimits) -> Self {
        Self::served(setup, |door| door.router_within(limits)).await
    }

    async fn served(setup: Setup, serve: impl FnOnce(PuppetDoor) -> Router) -> Self {
        let world = World::start(setup).await;
        let signer = signer_name(PUPPET_AGENT);
        let door = PuppetDoor::new(
            world.authority.clone(),
            world.puppet_issuer(),
            signer,
            START,
        )
        .unwrap();
        let (nobody, admin) = (world.anonymous(), world.puppet_admin().await);
        Self {
            door: serve(door),
            nobody,
            admin,
            world,
        }
    }

    fn authority(&self) -> &Authority {
        &self.world.authority
    }

    async fn call(&self, peer: &Peer, line: &str) -> Answer {
        Call::new(peer, line).send(&self.door).await
    }

    async fn put(&self, name: &str, csr: impl Into<Vec<u8>>) -> Answer {
        let line = format!("PUT {V1}/certificate_request/{name}");
        Call::new(&self.nobody, &line)
            .header("content-type", "text/plain")
            .body(csr)
            .send(&self.door)
            .await
    }

    /// An agent asks under its own name.
    async fn enrol(&self, csr: &CsrBuilder, name: &str) -> Answer {
        self.put(name, csr.sign_pem(keys::p256_a())).await
    }

    async fn set_state(&self, name: &str, body: &str) -> Answer {
        let line = format!("PUT {V1}/certificate_status/{name}");
        Call::new(&self.admin, &line)
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(body)
            .send(&self.door)
            .await
    }

    async fn sign(&self, name: &str) -> Answer {
        self.set_state(name, r#"{"desired_state":"signed"}"#).await
    }

    async fn revoke(&self, name: &str) -> Answer {
        self.set_state(name, r#"{"desired_state":"revoked"}"#).await
    }

    async fn certificate(&self, name: &str) -> Certificate {
        let answer = self
            .call(&self.nobody, &format!("GET {V1}/certificate/{name}"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let block = pem::decode_first(&answer.body, &pem::PemLimits::REQUEST)
            .unwrap()
            .unwrap();
        assert_eq!(block.label, "CERTIFICATE");
        Certificate::parse(&block.der).unwrap()
    }

    async fn names(&self, query: &str) -> Vec<(String, String)> {
        let answer = self
            .call(
                &self.admin,
                &format!("GET {V1}/certificate_statuses/x{query}"),
            )
            .await;
        assert_eq!(answer.status, 200);
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        answer
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|object| (text(&object["name"]), text(&object["state"])))
            .collect()
    }
}

fn agent(name: &str) -> CsrBuilder {
    CsrBuilder::new(name)
}

fn known(name: &str, state: &str) -> (String, String) {
    (name.to_owned(), state.to_owned())
}

const V1: &str = "/puppet-ca/v1";
