//! Everything that the operator works with, played.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use countersign_authority::Clock;
use countersign_enroll::ca::Key;
use countersign_pki::{Certificate, UnixTime};
use countersign_testkit::chain::Ca;
use countersign_testkit::keys;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::calls::{Calls, Kind};
use super::super::duration::DAY;
use super::super::holding::leaf;
use super::super::index::Key as ObjectKey;
use super::super::{AuthorityAccess, KeyMaker, Next, Operator, OperatorSettings, WATCHED};
use super::played_api::{PlayedApi, named};
use super::played_ca::PlayedCa;
use crate::api::CallFault;
use crate::index::Change;
use crate::metrics::ClusterMetrics;

pub(super) const START: UnixTime = UnixTime(1_800_000_000);

/// Burns after so many writes: from then on nothing that the program does has any effect, as if it were killed.
#[derive(Clone)]
pub(super) struct Fuse(Arc<AtomicI64>);

impl Fuse {
    pub(super) fn never() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }

    /// A write has been made; whether the program ends before it hears of it.
    pub(super) fn passed(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) <= 1
    }

    pub(super) fn is_burnt(&self) -> bool {
        self.0.load(Ordering::SeqCst) <= 0
    }

    /// It burns after so many writes from now on.
    pub(super) fn light(&self, writes: i64) {
        self.0.store(writes, Ordering::SeqCst);
    }

    /// How many writes there were since then.
    pub(super) fn writes_since(&self, lit: i64) -> i64 {
        lit - self.0.load(Ordering::SeqCst)
    }

    /// The program is started again.
    pub(super) fn mend(&self) {
        self.0.store(i64::MAX, Ordering::SeqCst);
    }
}

struct PlayedClock(Arc<AtomicI64>);

impl Clock for PlayedClock {
    fn now(&self) -> UnixTime {
        UnixTime(self.0.load(Ordering::SeqCst))
    }
}

pub(super) struct World {
    pub(super) api: PlayedApi,
    pub(super) ca: PlayedCa,
    pub(super) fuse: Fuse,
    time: Arc<AtomicI64>,
    keys: KeyMaker,
    settings: OperatorSettings,
    /// How often the program was started again.
    pub(super) restarts: usize,
    /// The files of an administrator, where the operator was told of an authority.
    _files: Option<TempDir>,
    operator: Operator,
}

impl World {
    /// The operator is told of no authority.
    pub(super) fn new() -> Self {
        Self::with(None, None)
    }

    /// It is told of one, and has an administrator's credentials for it.
    pub(super) fn told() -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = |name: &str| files.path().join(name);
        let root = Ca::root("administrators", keys::rsa2048_c(), START);
        fs::write(path("admin.pem"), root.certificate.to_pem()).unwrap();
        fs::write(path("admin.key"), keys::rsa2048_c().pkcs8_pem()).unwrap();
        fs::write(path("ca.pem"), root.certificate.to_pem()).unwrap();
        let access = AuthorityAccess {
            url: "https://authority.test:9140/".to_owned(),
            certificate: path("admin.pem"),
            key: path("admin.key"),
            ca: path("ca.pem"),
        };
        Self::with(Some(access), Some(files))
    }

    fn with(authority: Option<AuthorityAccess>, files: Option<TempDir>) -> Self {
        let fuse = Fuse::never();
        let settings = OperatorSettings {
            namespaces: Vec::new(),
            authority,
            workers: 1,
        };
        let api = PlayedApi::new(fuse.clone());
        let ca = PlayedCa::new(fuse.clone());
        let time = Arc::new(AtomicI64::new(START.0));
        api.set_time(START);
        let keys = key_maker();
        let operator = operator(&settings, &api, &ca, &time, Arc::clone(&keys));
        Self {
            api,
            ca,
            fuse,
            time,
            keys,
            settings,
            restarts: 0,
            _files: files,
            operator,
        }
    }

    /// The program is started anew: it has forgotten everything.
    pub(super) fn restart(&mut self) {
        self.operator = operator(
            &self.settings,
            &self.api,
            &self.ca,
            &self.time,
            Arc::clone(&self.keys),
        );
        self.fuse.mend();
        self.restarts += 1;
    }

    pub(super) fn now(&self) -> UnixTime {
        UnixTime(self.time.load(Ordering::SeqCst))
    }

    pub(super) fn wind(&self, seconds: i64) {
        let now = UnixTime(self.time.fetch_add(seconds, Ordering::SeqCst) + seconds);
        self.api.set_time(now);
        self.ca.state().now = now;
    }

    /// An internal CA that is ready, with its certificate and the operator's own in Secrets.
    pub(super) fn with_internal_ca(self) -> Self {
        self.ready_ca(json!({}), "Ready");
        let text = self
            .ca
            .certify_key("ca-operator", keys::rsa2048_c().spki_der(), &[]);
        self.api.put(
            Kind::Secret,
            secret(
                "signing",
                &[("cert.pem", &text), ("key.pem", &pkcs1(keys::rsa2048_c()))],
            ),
        );
        let status = json!({"status": {"signingSecretName": "signing"}});
        self.api.edit(Kind::CertificateAuthority, "ca", &status);
        self
    }

    /// An external one.
    pub(super) fn with_external_ca(self) -> Self {
        let spec = json!({"external": {"url": "https://far:8140", "caSecretRef": "ca-ca"}});
        self.ready_ca(spec, "External");
        self
    }

    pub(super) fn ready_ca(&self, spec: Value, phase: &str) {
        let ca = json!({"metadata": {"name": "ca"}, "spec": spec});
        self.api.put(Kind::CertificateAuthority, ca);
        let status = json!({"status": {"phase": phase, "serviceName": "ca-internal"}});
        self.api.edit(Kind::CertificateAuthority, "ca", &status);
        let root = self.ca.root.certificate.to_pem();
        self.api
            .put(Kind::Secret, secret("ca-ca", &[("ca_crt.pem", &root)]));
    }

    pub(super) fn certificate(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["authorityRef"] = json!("ca");
        self.api.put(
            Kind::Certificate,
            json!({"metadata": {"name": name}, "spec": spec}),
        );
    }

    /// A Certificate `web` that is for the name `web` unless the spec says otherwise.
    pub(super) fn web(&self, spec: Value) {
        let mut whole = json!({"certname": "web"});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        self.certificate("web", whole);
    }

    /// A certificate of 365 days that ends in so many.
    pub(super) fn issued(&self, certname: &str, key: &keys::Key, days: i64) -> String {
        let now = self.now();
        self.ca.state().now = UnixTime(now.0 - (365 - days) * DAY);
        let text = self.ca.certify_key(certname, key.spki_der(), &[]);
        self.ca.state().now = now;
        text
    }

    /// The Certificate `web` and its Secret as another operator left them: the certificate ends in so many days.
    pub(super) fn web_signed(&self, spec: Value, days: i64) {
        self.web(spec);
        let text = self.issued("web", keys::rsa2048_c(), days);
        let mut found = secret(
            "web-tls",
            &[("cert.pem", &text), ("key.pem", &pkcs1(keys::rsa2048_c()))],
        );
        found["metadata"]["ownerReferences"] = json!([self.claim("web")]);
        self.api.put(Kind::Secret, found);
        self.ca.state().certificates.insert("web".to_owned(), text);
    }

    /// The reference by which a Certificate controls something.
    pub(super) fn claim(&self, name: &str) -> Value {
        let uid = &self.object(name)["metadata"]["uid"];
        json!({
            "apiVersion": "openvox.voxpupuli.org/v1alpha1", "kind": "Certificate",
            "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// What the watches would bring by now.
    fn sync(&self) {
        for kind in WATCHED {
            let objects = self.api.list(kind);
            self.operator
                .index()
                .apply(kind, None, Change::All(objects));
        }
    }

    /// One look at something.
    pub(super) async fn look_at(&self, key: &ObjectKey) -> Result<Next, CallFault> {
        self.sync();
        self.operator.look(key).await
    }

    /// One look at a Certificate.
    pub(super) async fn look(&self, name: &str) -> Result<Next, CallFault> {
        self.look_at(&ObjectKey::Certificate(named(name))).await
    }

    pub(super) async fn look_at_ca(&self) -> Result<Next, CallFault> {
        self.look_at(&ObjectKey::Authority(named("ca"))).await
    }

    pub(super) async fn look_at_policies(&self) -> Result<Next, CallFault> {
        self.look_at(&ObjectKey::Policies(named("ca"))).await
    }

    /// Looks until nothing changes any more, and says when to look again.
    pub(super) async fn settle(&self, name: &str) -> Next {
        let mut before = self.api.get(Kind::Certificate, name);
        for _ in 0..20 {
            let next = self.look(name).await.unwrap();
            let after = self.api.get(Kind::Certificate, name);
            if before == after {
                return next;
            }
            before = after;
        }
        panic!("{before:#?} does not come to rest");
    }

    /// A Certificate as it is.
    pub(super) fn object(&self, name: &str) -> Value {
        self.api.get(Kind::Certificate, name).unwrap()
    }

    pub(super) fn phase(&self, name: &str) -> String {
        let object = self.object(name);
        object["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Its condition CertSigned, as `True CertificateSigned`.
    pub(super) fn signed(&self, name: &str) -> String {
        condition(&self.object(name), "CertSigned")
    }

    pub(super) fn annotation(&self, name: &str, key: &str) -> Option<String> {
        let value = &self.object(name)["metadata"]["annotations"][key];
        value.as_str().map(str::to_owned)
    }

    /// The certificate in the Secret of a Certificate.
    pub(super) fn leaf(&self, name: &str) -> Certificate {
        let text = self
            .secret_value(&format!("{name}-tls"), "cert.pem")
            .unwrap();
        leaf(text.as_bytes()).unwrap()
    }

    /// Looks every second for so long, as if something woke it all the time, until the object is gone.
    pub(super) async fn look_for_seconds(&self, name: &str, seconds: i64) {
        for _ in 0..seconds {
            if self.api.get(Kind::Certificate, name).is_none() {
                return;
            }
            self.look(name).await.unwrap();
            self.wind(1);
        }
    }

    pub(super) fn secret_value(&self, name: &str, key: &str) -> Option<String> {
        let secret = self.api.get(Kind::Secret, name)?;
        let text = secret["data"][key].as_str()?.to_owned();
        use base64::Engine as _;
        let octets = base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap();
        Some(String::from_utf8(octets).unwrap())
    }
}

/// Whether certificate and key of a Secret belong together.
pub(super) fn is_pair(secret: &Value) -> bool {
    let value = |key: &str| {
        use base64::Engine as _;
        let text = secret["data"][key].as_str()?;
        base64::engine::general_purpose::STANDARD.decode(text).ok()
    };
    let certificate = value("cert.pem").and_then(|text| leaf(&text));
    let key = value("key.pem").and_then(|text| Key::read(&text).ok());
    certificate
        .zip(key)
        .is_some_and(|(certificate, key)| key.matches(&certificate))
}

pub(super) fn pkcs1(key: &keys::Key) -> String {
    let key = Key::read(key.pkcs8_pem().as_bytes()).unwrap();
    key.to_pkcs1_pem().unwrap().to_string()
}

/// A condition in three words, or nothing.
pub(super) fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == kind);
    found.map_or_else(String::new, |it| {
        format!(
            "{} {}",
            it["status"].as_str().unwrap(),
            it["reason"].as_str().unwrap()
        )
    })
}

pub(super) fn message(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == kind);
    found.map_or_else(String::new, |it| it["message"].as_str().unwrap().to_owned())
}

pub(super) fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(encode(value))));
    json!({
        "metadata": {"name": name},
        "data": Value::Object(data.collect()),
    })
}

pub(super) fn seconds(next: Next) -> u64 {
    match next {
        Next::After(pause) => pause.as_secs(),
        Next::Done => u64::MAX,
    }
}

pub(super) fn after(seconds: u64) -> Next {
    Next::After(Duration::from_secs(seconds))
}

fn operator(
    settings: &OperatorSettings,
    api: &PlayedApi,
    ca: &PlayedCa,
    time: &Arc<AtomicI64>,
    keys: KeyMaker,
) -> Operator {
    let settings = settings.clone();
    let metrics = ClusterMetrics::new(&mut Registry::default());
    let clock = Arc::new(PlayedClock(Arc::clone(time)));
    let calls = Calls::new(api.api());
    let mut operator = Operator::with(
        settings,
        calls,
        Box::new(ca.clone()),
        clock,
        metrics,
        "test".to_owned(),
    );
    operator.make_key = keys;
    operator
}

/// Two keys in turn, which were made long ago.
fn key_maker() -> KeyMaker {
    let made = AtomicUsize::default();
    Arc::new(move || {
        let key = match made.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => keys::rsa2048_a(),
            _ => keys::rsa2048_b(),
        };
        Key::read(key.pkcs8_pem().as_bytes())?.to_pkcs1_pem()
    })
}
