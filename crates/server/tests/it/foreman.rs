//! The Foreman door, called as Foreman and the smart proxy's policy script call it.
#![expect(
    clippy::indexing_slicing,
    reason = "a missing JSON field is a failed test"
)]

mod admission;
mod certificates;
mod tokens;

use axum::Router;
use countersign_authority::TokenSettings;
use countersign_server::foreman::{ForemanDoor, TrustedHosts, router};
use countersign_server::puppet::{self, PuppetDoor};
use countersign_server::{Peer, RequestLimits, RequestRates};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys::{self, Key};
use serde_json::Value;

use crate::exchange::{Answer, Call};
use crate::world::{PUPPET_AGENT, START, Setup, World, signer_name};

/// A site with Foreman, its smart proxy, and agents that enrol.
struct Site {
    world: World,
    /// What Foreman calls.
    proxy: Router,
    /// Where agents enrol.
    agents: Router,
    trusted: TrustedHosts,
    foreman: Peer,
    admin: Peer,
}

impl Site {
    /// Tokens are minted, and approve requests at the Puppet door.
    async fn start() -> Self {
        let site = Self::without_tokens().await;
        site.world
            .authority
            .set_rules(site.world.authority.rules().with_tokens(TokenSettings {
                enabled: true,
                ..TokenSettings::standard()
            }));
        site.world.set_policy(TOKEN_POLICY);
        site
    }

    async fn without_tokens() -> Self {
        let world = World::start(Setup::STRICT).await;
        let signer = signer_name(PUPPET_AGENT);
        let issuer = world.puppet_issuer();
        let door = PuppetDoor::new(world.authority.clone(), issuer, signer, START).unwrap();
        let foreman = world.puppet_agent(FOREMAN).await;
        let trusted = TrustedHosts::new(&["Foreman.example.com".to_owned()]);
        let limits = RequestLimits::new(RequestRates {
            per_source: 100,
            per_certname: 0,
            token_failures: 30,
        });
        let url = "https://ca.example.com:8140";
        let proxy = ForemanDoor::new(door.clone(), trusted.clone(), url).within(limits);
        Self {
            admin: world.puppet_admin().await,
            proxy: router(proxy),
            agents: puppet::router(door),
            trusted,
            foreman,
            world,
        }
    }

    /// A call of Foreman's, as its HTTP client makes it.
    async fn call(&self, line: &str) -> Answer {
        self.call_from(&self.foreman, line).await
    }

    async fn call_from(&self, peer: &Peer, line: &str) -> Answer {
        let call = Call::new(peer, line).header("accept", "application/json");
        call.send(&self.proxy).await
    }

    /// What Foreman makes of an answer.
    async fn foreman(&self, line: &str) -> Understood {
        understood(&self.call(line).await, line)
    }

    /// Has a token minted.
    async fn mint(&self, name: &str) -> String {
        let line = format!("POST /puppet/ca/autosign/{name}");
        match self.foreman(&line).await {
            Understood::Object(object) => {
                let token = object["generated_token"].as_str().unwrap_or_default();
                assert!(!token.is_empty(), "{object}");
                token.to_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The policy script of a Puppet server asks whether it shall sign.
    async fn validate(&self, request: &str) -> Answer {
        Call::new(&self.foreman, "POST /puppet/ca/validate")
            .header("accept", "application/json,version=2")
            .body(request)
            .send(&self.proxy)
            .await
    }

    /// An agent sends a request.
    async fn enrol(&self, name: &str, request: &str) -> Answer {
        let line = format!("PUT /puppet-ca/v1/certificate_request/{name}");
        let nobody = self.world.anonymous();
        let call = Call::new(&nobody, &line).header("content-type", "text/plain");
        call.body(request).send(&self.agents).await
    }

    /// An agent asks for its certificate.
    async fn certificate(&self, name: &str) -> Answer {
        let line = format!("GET /puppet-ca/v1/certificate/{name}");
        let nobody = self.world.anonymous();
        Call::new(&nobody, &line).send(&self.agents).await
    }
}

/// How Foreman reads an answer: by its status alone, unless there is a body.
#[derive(Debug, PartialEq)]
enum Understood {
    True,
    False,
    Object(Value),
}

fn understood(answer: &Answer, line: &str) -> Understood {
    let is_missing = answer.status == 404 && line.starts_with("DELETE");
    match answer.status {
        200..=299 if answer.body.is_empty() => Understood::True,
        200..=299 => match serde_json::from_slice(&answer.body) {
            Ok(value) => Understood::Object(value),
            Err(_) => Understood::False,
        },
        _ if is_missing => Understood::True,
        _ => Understood::False,
    }
}

fn request(name: &str, token: &str, key: &Key) -> String {
    CsrBuilder::new(name)
        .challenge_password(token)
        .sign_pem(key)
}

fn usual_request(name: &str, token: &str) -> String {
    request(name, token, keys::p256_a())
}

const FOREMAN: &str = "foreman.example.com";
const TOKEN_POLICY: &str = "
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: agents}
spec:
  signers: [countersign.dev/puppet-agent]
  rules:
    - name: token
      approve: {token: {}}
";
