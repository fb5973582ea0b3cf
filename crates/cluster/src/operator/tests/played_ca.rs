//! A CA as far as the operator can tell, which does what a test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use countersign_enroll::ca::{Answer, CaFault, CaTrust, Fetched, Identity, Renewed, Submitted};
use countersign_enroll::client::{CallError, ClientError};
use countersign_pki::{
    AltName, Certificate, CertificateTemplate, CheckedCsr, CsrLimits, Extension, KeyUsage, Serial,
    SubjectBuilder, UnixTime, ext, oid, pem, seal,
};
use countersign_testkit::chain::{Ca, CrlFacts};
use countersign_testkit::keys;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::super::ca::{CaClient, CaConnector};
use super::world::{Fuse, START};

/// Cheap to clone; all clones are one CA.
#[derive(Clone)]
pub(super) struct PlayedCa {
    pub(super) root: Arc<Ca>,
    state: Arc<Mutex<State>>,
    fuse: Fuse,
}

/// What the CA has and how it answers.
pub(super) struct State {
    pub(super) requests: BTreeMap<String, String>,
    pub(super) certificates: BTreeMap<String, String>,
    pub(super) revoked: BTreeSet<String>,
    /// Whether it signs whatever comes.
    pub(super) signs_at_once: bool,
    /// Days that a certificate lives.
    pub(super) life: i64,
    /// What it answers to a call of that word instead of doing anything: a status, or 0 for nothing at all.
    pub(super) answers: BTreeMap<&'static str, u16>,
    /// What it says to that.
    pub(super) body: String,
    /// Every call: when, what, of whom, and whether with an identity.
    pub(super) calls: Vec<(UnixTime, String)>,
    /// Every request that was submitted, taken or not.
    pub(super) submitted: Vec<String>,
    /// The last connection: the address, and how the CA is recognised.
    pub(super) connected: Option<(String, CaTrust)>,
    pub(super) published: BTreeMap<String, Value>,
    /// The number of its revocation list.
    pub(super) list: u64,
    /// The number of the one with everything that is revoked, where it has a path for that.
    pub(super) full_list: Option<u64>,
    lists: BTreeMap<u64, String>,
    pub(super) now: UnixTime,
    serial: u64,
}

impl PlayedCa {
    pub(super) fn new(fuse: Fuse) -> Self {
        let state = State {
            requests: BTreeMap::new(),
            certificates: BTreeMap::new(),
            revoked: BTreeSet::new(),
            signs_at_once: true,
            life: 365,
            answers: BTreeMap::new(),
            body: "no reason".to_owned(),
            calls: Vec::new(),
            submitted: Vec::new(),
            connected: None,
            published: BTreeMap::new(),
            list: 1,
            full_list: None,
            lists: BTreeMap::new(),
            now: START,
            serial: 100,
        };
        Self {
            root: Arc::new(Ca::root("played CA", keys::p256_a(), START)),
            state: Arc::new(Mutex::new(state)),
            fuse,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The calls since the last time that somebody asked.
    pub(super) fn calls(&self) -> Vec<String> {
        let calls = std::mem::take(&mut self.state().calls);
        calls.into_iter().map(|(_, call)| call).collect()
    }

    /// When there were calls of that word, in seconds from the start; all others are forgotten.
    pub(super) fn times(&self, word: &str) -> Vec<i64> {
        let calls = std::mem::take(&mut self.state().calls);
        let calls = calls
            .into_iter()
            .filter(|(_, call)| call.split(' ').next() == Some(word));
        calls.map(|(at, _)| at.seconds_since(START)).collect()
    }

    /// What it answers from now on to calls of that word: a status, or 0 for nothing at all.
    pub(super) fn answers(&self, word: &'static str, status: u16) {
        self.state().answers.insert(word, status);
    }

    /// It does again whatever it is asked.
    pub(super) fn obeys(&self) {
        self.state().answers.clear();
    }

    /// Somebody at the CA signs what waits.
    pub(super) fn sign(&self, certname: &str) {
        let request = self.state().requests.remove(certname).unwrap();
        let text = self.certify(certname, &request);
        self.state().certificates.insert(certname.to_owned(), text);
    }

    /// A certificate for the key and the names of a request.
    pub(super) fn certify(&self, certname: &str, request: &str) -> String {
        let csr = CheckedCsr::from_pem(request.as_bytes(), &CsrLimits::STANDARD).unwrap();
        self.certify_key(certname, csr.spki_der(), csr.alt_names())
    }

    pub(super) fn certify_key(&self, certname: &str, spki: &[u8], names: &[AltName]) -> String {
        self.certify_with(certname, spki, names, None)
    }

    fn certify_with(
        &self,
        certname: &str,
        spki: &[u8],
        names: &[AltName],
        more: Option<Extension>,
    ) -> String {
        let (now, life, serial) = {
            let mut state = self.state();
            state.serial += 1;
            (state.now, state.life, state.serial)
        };
        let mut extensions = vec![
            ext::basic_constraints_leaf(),
            ext::key_usage(KeyUsage::DIGITAL_SIGNATURE),
        ];
        extensions.extend(more);
        if !names.is_empty() {
            extensions.push(ext::subject_alt_name(names, false));
        }
        let algorithm = self.root.key.issuer_algorithm().unwrap();
        let subject = SubjectBuilder::utf8_common_name(certname);
        let template = CertificateTemplate {
            serial: Serial::try_from(serial).unwrap(),
            algorithm,
            issuer_name_der: self.root.certificate.subject().der(),
            not_before: now,
            not_after: UnixTime(now.0 + life * 86_400),
            subject_der: &subject,
            spki_der: spki,
            extensions: &extensions,
        };
        let tbs = template.to_be_signed().unwrap();
        let der = seal(&tbs, algorithm, &self.root.key.sign(&tbs)).unwrap();
        pem::encode("CERTIFICATE", &der)
    }

    /// Notes a call, and what a test wants it to be answered with.
    fn note(&self, call: &str, certname: &str, identity: bool) -> Result<Option<u16>, CaFault> {
        let with = if identity { " with an identity" } else { "" };
        let mut state = self.state();
        let now = state.now;
        state.calls.push((now, format!("{call} {certname}{with}")));
        let answer = state.answers.get(call).copied();
        drop(state);
        if self.fuse.is_burnt() || answer == Some(0) {
            return Err(no_answer());
        }
        Ok(answer)
    }

    /// The CA has changed something: the program may end before it hears of it.
    fn changed<T>(&self, answer: T) -> Result<T, CaFault> {
        match self.fuse.passed() {
            true => Err(no_answer()),
            false => Ok(answer),
        }
    }
}

fn no_answer() -> CaFault {
    let source = CallError::Unreachable {
        hint: "nobody listens",
        source: io::ErrorKind::ConnectionRefused.into(),
    };
    CaFault::Unreachable(ClientError::Call {
        request: "a call".to_owned(),
        source,
    })
}

fn leaf(text: &str) -> Certificate {
    let block = pem::decode_first(text.as_bytes(), &pem::PemLimits::BUNDLE)
        .unwrap()
        .unwrap();
    Certificate::parse(&block.der).unwrap()
}

impl CaConnector for PlayedCa {
    fn connect(
        &self,
        url: &str,
        trust: &CaTrust,
        identity: Option<&Identity>,
    ) -> Result<Box<dyn CaClient>, CaFault> {
        self.state().connected = Some((url.to_owned(), trust.clone()));
        Ok(Box::new(Connection {
            ca: self.clone(),
            identity: identity.is_some(),
        }))
    }
}

struct Connection {
    ca: PlayedCa,
    identity: bool,
}

impl Connection {
    fn submit_now(&self, certname: &str, request: &str) -> Result<Submitted, CaFault> {
        self.ca.state().submitted.push(request.to_owned());
        if let Some(status) = self.ca.note("submit", certname, self.identity)? {
            return Ok(match status {
                400 => Submitted::WaitsAlready,
                status => Submitted::Refused {
                    status,
                    body: self.ca.state().body.clone(),
                },
            });
        }
        let (word, waits) = {
            let state = self.ca.state();
            let word = match state.revoked.contains(certname) {
                true => Some("revoked"),
                false => state
                    .certificates
                    .contains_key(certname)
                    .then_some("signed"),
            };
            (word, state.requests.contains_key(certname))
        };
        if let Some(word) = word {
            let body = format!(
                "{certname} already has a {word} certificate; ignoring certificate request"
            );
            return Ok(Submitted::HasCertificate { body });
        }
        if waits {
            return Ok(Submitted::WaitsAlready);
        }
        self.ca
            .state()
            .requests
            .insert(certname.to_owned(), request.to_owned());
        if self.ca.state().signs_at_once {
            self.ca.sign(certname);
        }
        self.ca.changed(Submitted::Taken)
    }

    fn fetch_now(&self, certname: &str) -> Result<Fetched, CaFault> {
        if let Some(status) = self.ca.note("fetch", certname, self.identity)? {
            return Ok(Fetched::Absent { status });
        }
        let found = self.ca.state().certificates.get(certname).cloned();
        Ok(match found {
            Some(pem) => Fetched::Certificate {
                leaf: leaf(&pem),
                pem,
            },
            None => Fetched::Absent { status: 404 },
        })
    }

    fn act(&self, word: &'static str, certname: &str) -> Result<Answer, CaFault> {
        let body = self.ca.state().body.clone();
        let refused = |status| Answer::Refused {
            status,
            body: body.clone(),
        };
        if let Some(status) = self.ca.note(word, certname, self.identity)? {
            return Ok(refused(status));
        }
        if !self.identity {
            return Ok(refused(403));
        }
        match word {
            "sign" => {
                if !self.ca.state().requests.contains_key(certname) {
                    return Ok(refused(409));
                }
                self.ca.sign(certname);
            }
            "remove" => {
                let mut state = self.ca.state();
                state.requests.remove(certname);
                state.certificates.remove(certname);
            }
            // As at Countersign, an administrator's name is not cleaned by accident.
            "clean" if self.is_administrators(certname) => return Ok(refused(403)),
            // To clean, by force or not.
            _ => {
                let mut state = self.ca.state();
                state.certificates.remove(certname);
                state.revoked.remove(certname);
            }
        }
        self.ca.changed(Answer::Done)
    }

    fn create_now(&self, certname: &str, request: &str) -> Result<Answer, CaFault> {
        let body = self.ca.state().body.clone();
        let refused = |status| Answer::Refused {
            status,
            body: body.clone(),
        };
        if let Some(status) = self.ca.note("create", certname, self.identity)? {
            return Ok(refused(status));
        }
        if !self.identity {
            return Ok(refused(403));
        }
        if self.ca.state().certificates.contains_key(certname) {
            return Ok(refused(409));
        }
        let csr = CheckedCsr::from_pem(request.as_bytes(), &CsrLimits::STANDARD).unwrap();
        let rights = ext::utf8_extension(oid::PP_CLI_AUTH, "true", false);
        let text = self
            .ca
            .certify_with(certname, csr.spki_der(), csr.alt_names(), Some(rights));
        self.ca
            .state()
            .certificates
            .insert(certname.to_owned(), text);
        self.ca.changed(Answer::Done)
    }

    fn is_administrators(&self, certname: &str) -> bool {
        let state = self.ca.state();
        let found = state.certificates.get(certname);
        found.is_some_and(|text| leaf(text).extension(&oid::PP_CLI_AUTH).is_some())
    }

    fn renew_now(&self, request: &str) -> Result<Renewed, CaFault> {
        if let Some(status) = self.ca.note("renew", "", self.identity)? {
            return Ok(Renewed::Refused {
                status,
                body: self.ca.state().body.clone(),
            });
        }
        let csr = CheckedCsr::from_pem(request.as_bytes(), &CsrLimits::STANDARD).unwrap();
        let certname = csr
            .subject()
            .common_names()
            .next()
            .unwrap_or_default()
            .to_owned();
        let pem = self.ca.certify(&certname, request);
        self.ca.state().certificates.insert(certname, pem.clone());
        self.ca.changed(Renewed::Certificate {
            leaf: leaf(&pem),
            pem,
        })
    }

    fn list_of(&self, number: u64) -> String {
        let mut state = self.ca.state();
        let list = state.lists.entry(number);
        // Signed again it would be another text.
        let list = list.or_insert_with(|| self.ca.root.crl(&CrlFacts::good(number, START)));
        list.clone()
    }

    fn full_list_now(&self) -> Result<Option<String>, CaFault> {
        match self.ca.note("full-crl", "", self.identity)? {
            Some(status) => Err(CaFault::Refused {
                resource: "certificate_revocation_list/full",
                status,
                body: self.ca.state().body.clone(),
            }),
            None => {
                let number = self.ca.state().full_list;
                Ok(number.map(|number| self.list_of(number)))
            }
        }
    }

    fn list_now(&self) -> Result<String, CaFault> {
        let resource = "certificate_revocation_list/ca";
        match self.ca.note("crl", "", self.identity)? {
            // A page of a proxy, say.
            Some(200) => Err(CaFault::Malformed {
                resource,
                wanted: "a revocation list",
            }),
            Some(status) => {
                let body = self.ca.state().body.clone();
                Err(CaFault::Refused {
                    resource,
                    status,
                    body,
                })
            }
            None => {
                let number = self.ca.state().list;
                Ok(self.list_of(number))
            }
        }
    }
}

impl CaClient for Connection {
    fn submit<'a>(
        &'a mut self,
        certname: &'a str,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Submitted, CaFault>> {
        std::future::ready(self.submit_now(certname, request)).boxed()
    }

    fn fetch<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Fetched, CaFault>> {
        std::future::ready(self.fetch_now(certname)).boxed()
    }

    fn sign<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>> {
        std::future::ready(self.act("sign", certname)).boxed()
    }

    fn remove<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>> {
        std::future::ready(self.act("remove", certname)).boxed()
    }

    fn clean<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>> {
        std::future::ready(self.act("clean", certname)).boxed()
    }

    fn clean_by_force<'a>(
        &'a mut self,
        certname: &'a str,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        std::future::ready(self.act("force", certname)).boxed()
    }

    fn create_administrator<'a>(
        &'a mut self,
        certname: &'a str,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        std::future::ready(self.create_now(certname, request)).boxed()
    }

    fn renew<'a>(&'a mut self, request: &'a str) -> BoxFuture<'a, Result<Renewed, CaFault>> {
        std::future::ready(self.renew_now(request)).boxed()
    }

    fn revocation_list(&mut self) -> BoxFuture<'_, Result<String, CaFault>> {
        std::future::ready(self.list_now()).boxed()
    }

    fn full_revocation_list(&mut self) -> BoxFuture<'_, Result<Option<String>, CaFault>> {
        std::future::ready(self.full_list_now()).boxed()
    }

    fn authority_certificates(&mut self) -> BoxFuture<'_, Result<String, CaFault>> {
        let answer = self.ca.note("certificates", "", self.identity);
        let text = self.ca.root.certificate.to_pem();
        let answer = answer.and_then(|answer| match answer {
            None => Ok(text),
            Some(status) => Err(CaFault::Refused {
                resource: "certificate/ca",
                status,
                body: self.ca.state().body.clone(),
            }),
        });
        std::future::ready(answer).boxed()
    }

    fn publish<'a>(
        &'a mut self,
        path: &'a str,
        document: &'a Value,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        let answer = self
            .ca
            .note("publish", path, self.identity)
            .and_then(|answer| {
                if let Some(status) = answer {
                    return Ok(Answer::Refused {
                        status,
                        body: self.ca.state().body.clone(),
                    });
                }
                self.ca
                    .state()
                    .published
                    .insert(path.to_owned(), document.clone());
                self.ca.changed(Answer::Done)
            });
        std::future::ready(answer).boxed()
    }
}
