//! The server is killed with SIGKILL at random moments, under load on both doors, many times.
//!
//! Whatever was acknowledged before a kill must be there after it. `COUNTERSIGN_TEST_KILLS` (or
//! `cargo xtask test --kills N`) sets how often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use countersign_authority::store::RequestFilter;
use countersign_authority::store::{IssuerReads as _, LedgerReads as _, RequestReads as _};
use countersign_authority::{CrlScope, IssuerId, RequestState};
use countersign_pki::{Certificate, Crl, Serial};
use countersign_policy::Effect;
use countersign_testkit::counterparts::kills;
use countersign_testkit::https::{Connection, HttpsClient};

use crate::site::{
    JSON, REQUESTS, Site, TEXT, approved, kubernetes_request, puppet_request, read_certificate,
    read_crl,
};

/// What the server said it had done.
#[derive(Default)]
struct Acknowledged {
    /// Names of Puppet requests that were taken.
    requested: BTreeSet<String>,
    /// Certificates that were shown, by name.
    certificates: BTreeMap<String, Vec<u8>>,
    /// Names that were signed by the administrator.
    signed: BTreeSet<String>,
    /// Names that were revoked.
    revoked: BTreeSet<String>,
    /// Kubernetes objects that were created.
    created: BTreeSet<String>,
    /// Kubernetes objects that were approved.
    approved: BTreeSet<String>,
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let kills = usize::try_from(kills(100)).unwrap();
    let acknowledged = Mutex::new(Acknowledged::default());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut site = Site::start(&["--autosign", "true"]);
    for round in 0..kills {
        // Every other life signs by hand, so that both ways to a certificate are cut short.
        let automatic = round % 2 == 0;
        load_until_killed(&site, round, automatic, &acknowledged, random.up_to(200));
        let autosign = if automatic { "false" } else { "true" };
        site = site.kill_and_restart(&["--autosign", autosign]);
        check(&site, &acknowledged.lock().unwrap(), Some(round));
    }
    let acknowledged = acknowledged.lock().unwrap();
    check(&site, &acknowledged, None);
    for (what, count) in [
        ("requested", acknowledged.requested.len()),
        ("issued", acknowledged.certificates.len()),
        ("signed by hand", acknowledged.signed.len()),
        ("revoked", acknowledged.revoked.len()),
        ("created", acknowledged.created.len()),
        ("approved", acknowledged.approved.len()),
    ] {
        println!("{count} {what}");
        assert!(
            kills < 20 || count > kills / 4,
            "only {count} {what} in {kills} lives: the load is too weak"
        );
    }
    let folder = site.into_folder();
    check_ledger(&folder.path().join("data"), &acknowledged);
}

fn load_until_killed(
    site: &Site,
    round: usize,
    automatic: bool,
    log: &Mutex<Acknowledged>,
    after: u64,
) {
    let (stop, busy) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let (anonymous, admin, kubernetes) =
        (&site.anonymous(), &site.admin(), &site.kubernetes_admin());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                let prefix = format!("p{round}-{worker}");
                let load = PuppetLoad {
                    anonymous,
                    admin,
                    log,
                    stop,
                    busy,
                    automatic,
                };
                let _ends_with_the_server = load.run(&prefix);
            });
            scope.spawn(move || {
                let prefix = format!("k{round}-{worker}");
                let _ends_with_the_server = kubernetes_load(kubernetes, log, stop, busy, &prefix);
            });
        }
        // All four are at work before the clock runs.
        while busy.load(Ordering::SeqCst) < 4 {
            std::thread::yield_now();
        }
        std::thread::park_timeout(Duration::from_millis(after));
        site.server.kill_now();
        stop.store(true, Ordering::SeqCst);
    });
}

struct PuppetLoad<'a> {
    anonymous: &'a HttpsClient,
    admin: &'a HttpsClient,
    log: &'a Mutex<Acknowledged>,
    stop: &'a AtomicBool,
    busy: &'a AtomicUsize,
    automatic: bool,
}

impl PuppetLoad<'_> {
    fn run(&self, prefix: &str) -> std::io::Result<()> {
        let connected = self
            .anonymous
            .connect()
            .and_then(|a| Ok((a, self.admin.connect()?)));
        self.busy.fetch_add(1, Ordering::SeqCst);
        let (mut anonymous, mut admin) = connected?;
        for n in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let name = format!("{prefix}-{n}");
            let put = anonymous.call(
                "PUT",
                &format!("/puppet-ca/v1/certificate_request/{name}"),
                &[TEXT],
                puppet_request(&name).as_bytes(),
            )?;
            assert_eq!(put.status, 200, "{}", put.text());
            self.log.lock().unwrap().requested.insert(name.clone());
            if !self.automatic {
                set_status(&mut admin, &name, "signed")?;
                self.log.lock().unwrap().signed.insert(name.clone());
            }
            let path = format!("/puppet-ca/v1/certificate/{name}");
            let got = anonymous.call("GET", &path, &[], b"")?;
            assert_eq!(got.status, 200, "{}", got.text());
            self.log
                .lock()
                .unwrap()
                .certificates
                .insert(name.clone(), got.body);
            if n % 3 == 0 {
                set_status(&mut admin, &name, "revoked")?;
                self.log.lock().unwrap().revoked.insert(name);
            }
        }
        Ok(())
    }
}

fn set_status(admin: &mut Connection, name: &str, state: &str) -> std::io::Result<()> {
    let body = format!("{{\"desired_state\":\"{state}\"}}");
    let path = format!("/puppet-ca/v1/certificate_status/{name}");
    let done = admin.call("PUT", &path, &[JSON], body.as_bytes())?;
    assert_eq!(done.status, 204, "{name} {state}: {}", done.text());
    Ok(())
}

fn kubernetes_load(
    client: &HttpsClient,
    log: &Mutex<Acknowledged>,
    stop: &AtomicBool,
    busy: &AtomicUsize,
    prefix: &str,
) -> std::io::Result<()> {
    let connected = client.connect();
    busy.fetch_add(1, Ordering::SeqCst);
    let mut connection = connected?;
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("{prefix}-{n}");
        let object = kubernetes_request(&name).to_string();
        let created = connection.call("POST", REQUESTS, &[JSON], object.as_bytes())?;
        assert_eq!(created.status, 201, "{}", created.text());
        log.lock().unwrap().created.insert(name.clone());
        let object = approved(serde_json::from_slice(&created.body).unwrap()).to_string();
        let path = format!("{REQUESTS}/{name}/approval");
        let done = connection.call("PUT", &path, &[JSON], object.as_bytes())?;
        assert_eq!(done.status, 200, "{}", done.text());
        log.lock().unwrap().approved.insert(name);
    }
    Ok(())
}

/// Everything acknowledged in a round (or ever) is there.
fn check(site: &Site, acknowledged: &Acknowledged, round: Option<usize>) {
    let of_round = |kind: char, name: &str| {
        round.is_none_or(|round| name.starts_with(&format!("{kind}{round}-")))
    };
    let mut admin = site.admin().connect().unwrap();
    let crl = admin
        .call(
            "GET",
            "/puppet-ca/v1/certificate_revocation_list/ca",
            &[],
            b"",
        )
        .unwrap();
    let listed: BTreeSet<Serial> = read_crl(&crl.body).serials().collect();
    for name in acknowledged
        .requested
        .iter()
        .filter(|name| of_round('p', name))
    {
        let path = format!("/puppet-ca/v1/certificate_status/{name}");
        let status = admin.call("GET", &path, &[], b"").unwrap();
        assert_eq!(status.status, 200, "the request of {name} is lost");
        let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
        let state = status["state"].as_str().unwrap();
        if acknowledged.signed.contains(name) {
            assert_ne!(state, "requested", "the signature of {name} is lost");
        }
        if acknowledged.revoked.contains(name) {
            assert_eq!(state, "revoked", "the revocation of {name} is lost");
        }
    }
    for (name, shown) in acknowledged
        .certificates
        .iter()
        .filter(|(name, _)| of_round('p', name))
    {
        let path = format!("/puppet-ca/v1/certificate/{name}");
        let got = admin.call("GET", &path, &[], b"").unwrap();
        assert_eq!(got.status, 200, "the certificate of {name} is lost");
        assert_eq!(&got.body, shown, "{name} has another certificate now");
        if acknowledged.revoked.contains(name) {
            assert!(
                listed.contains(&serial_of(shown)),
                "{name} is not on the CRL"
            );
        }
    }
    let mut kubernetes = site.kubernetes_admin().connect().unwrap();
    for name in acknowledged
        .created
        .iter()
        .filter(|name| of_round('k', name))
    {
        let got = kubernetes
            .call("GET", &format!("{REQUESTS}/{name}"), &[], b"")
            .unwrap();
        assert_eq!(got.status, 200, "{name} is lost");
        if acknowledged.approved.contains(name) {
            let object: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
            assert_eq!(
                object["status"]["conditions"][0]["type"], "Approved",
                "{name}"
            );
            assert!(
                object["status"]["certificate"].is_string(),
                "{name} has no certificate"
            );
        }
    }
}

/// The store itself, with the server gone: no certificate without a decision, no serial twice, nothing half
/// done, nothing revoked that the CRL lacks.
fn check_ledger(data: &std::path::Path, acknowledged: &Acknowledged) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = countersign_store::SqliteStore::open(&data.join("countersign.db")).unwrap();
        assert!(
            store.open_intents().await.unwrap().is_empty(),
            "an intent was left open"
        );
        let mut serials = BTreeSet::new();
        for issuer in ["puppet", "kubernetes"] {
            let issuer = IssuerId::parse(issuer).unwrap();
            let all = store
                .newest_certificates(&issuer, None, usize::MAX >> 1)
                .await
                .unwrap();
            assert!(!all.is_empty());
            for entry in all {
                assert_eq!(entry.explanation.effect, Effect::Approve, "{}", entry.name);
                assert!(entry.explanation.by.is_some(), "{}", entry.name);
                assert!(
                    serials.insert((issuer.clone(), entry.serial)),
                    "serial {} twice",
                    entry.serial
                );
                let parsed = Certificate::parse(&entry.der).unwrap();
                assert_eq!(parsed.serial(), entry.serial);
            }
            let crl = store.crl(&issuer, CrlScope::Full).await.unwrap().unwrap();
            let listed: BTreeSet<Serial> = Crl::parse(&crl.der).unwrap().serials().collect();
            let (_, revoked) = store.revocations(&issuer, crl.this_update).await.unwrap();
            let revoked: BTreeSet<Serial> = revoked.into_iter().map(|one| one.serial).collect();
            assert_eq!(
                listed, revoked,
                "the CRL of {issuer} is complete and lists nothing else"
            );
        }
        for record in store.requests(RequestFilter::default()).await.unwrap() {
            match record.state {
                RequestState::Issued => assert!(record.certificate.is_some(), "{}", record.key),
                RequestState::Pending => assert!(record.certificate.is_none(), "{}", record.key),
                other => panic!("{} was left {other:?}", record.key),
            }
        }
    });
    let shown: BTreeSet<Serial> = acknowledged
        .certificates
        .values()
        .map(|pem| serial_of(pem))
        .collect();
    assert_eq!(
        shown.len(),
        acknowledged.certificates.len(),
        "a serial was shown twice"
    );
}

fn serial_of(text: &[u8]) -> Serial {
    read_certificate(text).serial()
}

/// Moments that differ from kill to kill and not from run to run.
struct Random(u64);

impl Random {
    fn up_to(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
