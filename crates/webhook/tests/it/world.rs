//! What the tests share: an authority for deciders, a request, and webhooks.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::LazyLock;

use countersign_authority::{Clock as _, Deciders as _, Question, SystemClock};
use countersign_pki::{CheckedCsr, CsrLimits, Oid, UnixTime, oid};
use countersign_policy::{
    CaBundle, Identity, Requester, Webhook, WebhookAnswer, WebhookMode, Wishes,
};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::decider::{Decider, Guard};
use countersign_testkit::keys;
use countersign_webhook::{Settings, Webhooks};

pub(crate) const REQUEST_ID: &str = "01890a5d-0001";
pub(crate) const SIGNER: &str = "countersign.dev/puppet-agent";
pub(crate) const CHALLENGE: &str = "ott1.challenge-s3cret";
pub(crate) const PRESHARED: &str = "preshared-s3cret";

pub(crate) static CSR: LazyLock<CheckedCsr> = LazyLock::new(|| {
    let der = CsrBuilder::new("web01.example.com")
        .dns("web01.example.com")
        .ip(Ipv4Addr::new(192, 0, 2, 7).into())
        .challenge_password(CHALLENGE)
        .extension(&oid::PP_PRESHARED_KEY, PRESHARED)
        .extension(&Oid::parse("1.3.6.1.4.1.34380.1.1.2").unwrap(), "i-0abc")
        .sign(keys::ed25519());
    CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap()
});

static REQUESTER: LazyLock<Requester> = LazyLock::new(|| Requester {
    identity: Identity::Anonymous,
    source: Some(Ipv4Addr::new(192, 0, 2, 7).into()),
});

static WISHES: LazyLock<Wishes> = LazyLock::new(|| Wishes {
    usages: Vec::new(),
    expiration_seconds: None,
});

pub(crate) fn now() -> UnixTime {
    SystemClock.now()
}

/// The CA above well-behaved deciders.
pub(crate) fn ca() -> Ca {
    Ca::root("deciders", keys::p256_a(), now())
}

pub(crate) fn guard() -> Guard {
    Guard::localhost(&ca(), now())
}

pub(crate) fn webhook_at(address: SocketAddr) -> Webhook {
    Webhook {
        url: format!("https://{address}/decide?key=s3cret"),
        ca_bundle: Some(CaBundle::Pem(ca().certificate.to_pem())),
        timeout_ms: 20_000,
        mode: WebhookMode::Json,
        include_csr: false,
        secret_file: None,
        client_cert_file: None,
        client_key_file: None,
    }
}

pub(crate) fn webhook(decider: &Decider) -> Webhook {
    webhook_at(decider.address())
}

pub(crate) fn question() -> Question<'static> {
    Question {
        request_id: REQUEST_ID,
        signer: SIGNER,
        certname: "web01.example.com",
        requester: &REQUESTER,
        wishes: &WISHES,
        csr: &CSR,
        certificate: None,
        pending: false,
        token: None,
    }
}

pub(crate) fn load(webhook: &Webhook) -> Webhooks {
    Webhooks::load([webhook].into_iter(), &Settings::default()).unwrap()
}

pub(crate) async fn ask(webhook: &Webhook) -> WebhookAnswer {
    load(webhook).ask(webhook, question()).await
}

pub(crate) fn allow() -> WebhookAnswer {
    WebhookAnswer::Allow {
        reason: String::new(),
        ttl_seconds: None,
    }
}

pub(crate) fn deny() -> WebhookAnswer {
    WebhookAnswer::Deny {
        reason: String::new(),
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
