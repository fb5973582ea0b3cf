//! One look at a CertificateAuthority: an internal one is the authority that the operator was told of, an external one is
//! somebody else's.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::ca::{CA_CERTIFICATES, Unusable};
use super::calls::Kind;
use super::certificate::{PENDING, REQUESTING};
use super::events::Event;
use super::holding;
use super::object::{
    AUTHORITY_LABEL, AuthorityObject, CertificateObject, GROUP, ObjectName, PAUSED_CONDITION,
    VERSION, controller_reference,
};
use super::renewing::with_causes;
use super::secret::{NewSecret, Secret};
use super::standing::is_operators;
use super::status::{NewStatus, is_true};
use super::{Next, Operator, Pass, ca};
use crate::api::CallFault;

impl Operator {
    pub(super) async fn authority(&self, name: &ObjectName) -> Pass {
        let Some(authority) = self.index().authority(name) else {
            self.list_gate().forget(name);
            self.full_list_gate().forget(name);
            self.export_began(name, false);
            self.metrics.operator.forget_authority(name);
            return Ok(Next::Done);
        };
        if authority.meta.deleting {
            return Ok(Next::Done);
        }
        if authority.meta.is_paused() {
            let wanted = NewStatus::default().condition(
                PAUSED_CONDITION,
                true,
                "Paused",
                "the annotation openvox.voxpupuli.org/paused is true; nothing is done until it is removed",
            );
            self.say_of_authority(&authority, &wanted).await?;
            return Ok(Next::Done);
        }
        match authority.external {
            Some(_) => self.external(&authority).await,
            None => self.internal(&authority).await,
        }
    }

    pub(super) async fn say_of_authority(
        &self,
        authority: &Arc<AuthorityObject>,
        wanted: &NewStatus,
    ) -> Pass<Arc<AuthorityObject>> {
        let meta = &authority.meta;
        let kind = Kind::CertificateAuthority;
        match self.say(kind, meta, &authority.status, wanted).await? {
            true => self
                .index()
                .authority(&meta.name)
                .ok_or(CallFault::NotFound),
            false => Ok(Arc::clone(authority)),
        }
    }

    async fn external(&self, authority: &Arc<AuthorityObject>) -> Pass {
        let name = ca::trust_secret(authority);
        let found = self
            .secret(&authority.meta.name.beside(name.clone()))
            .await?;
        let roots = found
            .as_ref()
            .and_then(|secret| secret.filled(CA_CERTIFICATES));
        let is_named = authority
            .external
            .as_ref()
            .is_some_and(|external| external.ca_secret.is_some());
        if is_named && roots.is_none() {
            let wanted = match authority.phase() {
                EXTERNAL => NewStatus::default(),
                _ => NewStatus::phase(PENDING),
            };
            let wanted = not_internal(wanted).condition(
                READY_CONDITION,
                false,
                "TrustMissing",
                format!("Secret {name} is missing or has no {CA_CERTIFICATES}"),
            );
            self.say_of_authority(authority, &wanted).await?;
            return Ok(Next::After(LOOK_AGAIN));
        }
        let was_external = authority.phase() == EXTERNAL;
        let wanted = not_internal(NewStatus::phase(EXTERNAL))
            .with("caSecretName", json!(name))
            .with("notAfter", end_of(roots))
            .condition(
                READY_CONDITION,
                true,
                "ExternalCA",
                "certificates are asked for at the CA of spec.external",
            );
        let authority = self.say_of_authority(authority, &wanted).await?;
        if !was_external {
            let url = authority
                .external
                .as_ref()
                .map(|it| it.url.clone())
                .unwrap_or_default();
            let event = Event::normal("CAExternal", format!("certificates are asked for at {url}"));
            self.tell(Kind::CertificateAuthority, &authority.meta, &event)
                .await;
        }
        self.refresh_list(&authority).await
    }

    async fn internal(&self, authority: &Arc<AuthorityObject>) -> Pass {
        let name = authority.own("ca");
        let found = self.secret(&name).await?;
        let found = match self.certificates_of_ca(authority, &name, found).await? {
            Ok(found) => found,
            Err(why) => return self.not_ready(authority, why).await,
        };
        let service = self.service(authority).await?;
        let was_ready = authority.phase() == "Ready";
        if !was_ready && let Some(awaited) = self.awaited(authority) {
            let message = format!(
                "the CA answers; Certificate {} is issued before it is ready",
                awaited.name
            );
            let wanted = not_external(authority, NewStatus::phase("Initializing"));
            let wanted = wanted.condition(READY_CONDITION, false, "ExportPending", message);
            self.say_of_authority(authority, &wanted).await?;
            return Ok(Next::After(LOOK_AT_EXPORT));
        }
        let wanted = NewStatus::phase("Ready")
            .with("caSecretName", json!(name.name))
            .with("serviceName", json!(service))
            .with("notAfter", end_of(found.filled(CA_CERTIFICATES)))
            .condition(
                READY_CONDITION,
                true,
                "CAInitialized",
                "the CA issues certificates",
            );
        let authority = self.say_of_authority(authority, &wanted).await?;
        self.export_began(&authority.meta.name, false);
        if !was_ready {
            let event = Event::normal("CAInitialized", "the CA issues certificates");
            self.tell(Kind::CertificateAuthority, &authority.meta, &event)
                .await;
        }
        self.forget_failures(&authority.meta.name);
        let authority = self.operator_identity(&authority).await?;
        self.refresh_list(&authority).await
    }

    /// Whether a Certificate is the one that is issued together with the CA that the operator was told of: that of the CA's
    /// own server. It does not wait for the CA to be ready.
    pub(super) fn is_exported(
        &self,
        authority: &AuthorityObject,
        certificate: &CertificateObject,
    ) -> bool {
        self.makes_administrators(authority)
            && self
                .index()
                .server_certificate(&authority.meta.name)
                .as_ref()
                == Some(&certificate.meta.name)
    }

    /// That Certificate, as long as a CA that becomes ready waits for its Secret. One that fails is not waited for, and
    /// nothing is waited for long.
    fn awaited(&self, authority: &AuthorityObject) -> Option<ObjectName> {
        let name = self.index().server_certificate(&authority.meta.name)?;
        let certificate = self.index().certificate(&name)?;
        let is_under_way = self.is_exported(authority, &certificate)
            && !certificate.meta.deleting
            && !certificate.meta.is_paused()
            && !self.index().has_secret(&certificate.secret())
            && matches!(certificate.phase(), "" | PENDING | REQUESTING);
        let began = self.export_began(&authority.meta.name, is_under_way)?;
        let waited = self.now().seconds_since(began);
        (0..EXPORT_PATIENCE).contains(&waited).then_some(name)
    }

    /// The Secret with the CA's certificates: fetched from the authority that the operator was told of, else whatever
    /// somebody has put there.
    async fn certificates_of_ca(
        &self,
        authority: &AuthorityObject,
        name: &ObjectName,
        found: Option<Secret>,
    ) -> Pass<Result<Secret, Why>> {
        let is_there = found
            .as_ref()
            .is_some_and(|it| it.filled(CA_CERTIFICATES).is_some());
        let Some(told) = &self.settings.authority else {
            return Ok(match found.filter(|_| is_there) {
                Some(found) => Ok(found),
                None => Err(Why::Nobody),
            });
        };
        // It was fetched, and a CA's certificate changes by hand.
        if let Some(found) = found.as_ref().filter(|_| is_there)
            && authority.is_ready()
        {
            let owned = found.meta.controller().is_some();
            if owned {
                return Ok(Ok(self
                    .calls
                    .secret(name)
                    .await?
                    .ok_or(CallFault::NotFound)?));
            }
        }
        let client = told.trust().and_then(|trust| {
            let url = told.url.trim_end_matches('/');
            Ok(self.cas.connect(url, &trust, None)?)
        });
        let text = match client {
            Ok(mut client) => client
                .authority_certificates()
                .await
                .map_err(Unusable::Client),
            Err(fault) => Err(fault),
        };
        let text = match text {
            Ok(text) => text,
            Err(fault) => return Ok(Err(Why::Unreachable(with_causes(&fault)))),
        };
        let data = [(CA_CERTIFICATES, text.as_bytes())];
        let wanted = ca_secret(authority, "ca", &data);
        self.keep(&wanted, found.as_ref()).await?;
        match self.calls.secret(name).await? {
            Some(secret) => Ok(Ok(secret)),
            None => Err(CallFault::NotFound),
        }
    }

    async fn not_ready(&self, authority: &Arc<AuthorityObject>, why: Why) -> Pass {
        let meta = &authority.meta;
        match why {
            Why::Nobody => {
                let was_told =
                    super::status::condition(&authority.status, READY_CONDITION).is_some();
                let message = format!(
                    "no authority is known for this CA: start the operator with --server, or create Secret {} with {CA_CERTIFICATES}",
                    authority.own("ca").name
                );
                let wanted = not_external(authority, NewStatus::phase(PENDING));
                let wanted =
                    wanted.condition(READY_CONDITION, false, "NoAuthority", message.clone());
                let authority = self.say_of_authority(authority, &wanted).await?;
                if !was_told {
                    let event = Event::normal("WaitingForConfig", message);
                    self.tell(Kind::CertificateAuthority, &authority.meta, &event)
                        .await;
                }
                Ok(Next::After(LOOK_AGAIN))
            }
            Why::Unreachable(why) => {
                let failures = self.count_failure(&meta.name);
                let phase = match failures >= MAX_FAILURES {
                    true => "Error",
                    false => "Initializing",
                };
                let phase = match authority.phase() {
                    "Error" => "Error",
                    _ => phase,
                };
                let wanted = not_external(authority, NewStatus::phase(phase));
                let wanted = wanted.condition(READY_CONDITION, false, "SetupFailed", why);
                self.say_of_authority(authority, &wanted).await?;
                Ok(Next::After(AFTER_FAILURE))
            }
        }
    }

    /// The operator's own Certificate at an internal CA, by which it signs and cleans there.
    async fn operator_identity(
        &self,
        authority: &Arc<AuthorityObject>,
    ) -> Pass<Arc<AuthorityObject>> {
        let name = authority.own("operator-signing");
        let mut found = self.index().certificate(&name);
        let may_bootstrap =
            self.settings.authority.is_some() || self.bootstrap_secret(authority).is_some();
        let certname = self.operator_certname(authority);
        if let Some(own) = &found
            && is_operators(own, authority)
            && authority.operator_certnames().contains(&own.spec.certname)
            && own.spec.certname != certname
        {
            // Another CA of this name had the usual one first.
            let patch = json!({
                "metadata": {"resourceVersion": own.meta.version, "uid": own.meta.uid},
                "spec": {"certname": certname},
            });
            let written = self.calls.patch(Kind::Certificate, &name, &patch).await?;
            self.index().written(Kind::Certificate, &written);
            found = self.index().certificate(&name);
        }
        if found.is_none() && may_bootstrap {
            let object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": Kind::Certificate.word(),
                "metadata": {
                    "name": name.name,
                    "namespace": name.namespace,
                    "ownerReferences": [controller_reference(
                        Kind::CertificateAuthority.word(), &authority.meta)],
                },
                "spec": {
                    "authorityRef": authority.meta.name.name,
                    "certname": certname,
                },
            });
            match self
                .calls
                .create(Kind::Certificate, &name.namespace, &object)
                .await
            {
                Ok(created) => {
                    self.index().written(Kind::Certificate, &created);
                    self.wake([super::index::Key::Certificate(name.clone())]);
                    let note = format!("Certificate {} is the operator's own", name.name);
                    let event = Event::normal("OperatorSigningCreated", note);
                    self.tell(Kind::CertificateAuthority, &authority.meta, &event)
                        .await;
                }
                Err(CallFault::Exists) => {}
                Err(fault) => return Err(fault),
            }
        }
        let is_signed = found
            .as_ref()
            .is_some_and(|it| it.is_signed() || it.phase() == "Renewing");
        let secret = format!("{}-tls", name.name);
        let has_secret = self.index().has_secret(&name.beside(secret.clone()));
        let was = is_true(&authority.status, SIGNING_CONDITION);
        let wanted = match is_signed && has_secret {
            true => NewStatus::default()
                .with("signingSecretName", json!(secret))
                .condition(
                    SIGNING_CONDITION,
                    true,
                    "OperatorSigningReady",
                    "the operator signs and cleans by its own certificate",
                ),
            false => NewStatus::default()
                .with("signingSecretName", json!(self.bootstrap_secret(authority)))
                .condition(
                    SIGNING_CONDITION,
                    false,
                    "OperatorSigningPending",
                    "the operator has no certificate of its own at this CA yet",
                ),
        };
        let said = self.say_of_authority(authority, &wanted).await?;
        if is_signed && has_secret && !was {
            let event = Event::normal(
                "OperatorSigningReady",
                "the operator signs by its own certificate",
            );
            self.tell(Kind::CertificateAuthority, &said.meta, &event)
                .await;
        }
        Ok(said)
    }

    /// The certname of the operator at an internal CA.
    pub(super) fn operator_certname(&self, authority: &AuthorityObject) -> String {
        match self.settings.authority {
            Some(_) => self.index().operator_certname(authority),
            None => {
                let [usual, _] = authority.operator_certnames();
                usual
            }
        }
    }

    /// The Secret with the certificate of the CA's own server, which may sign before the operator has its own.
    fn bootstrap_secret(&self, authority: &AuthorityObject) -> Option<String> {
        if self.settings.authority.is_some() {
            return None;
        }
        let index = self.index();
        let server = index.server_certificate(&authority.meta.name)?;
        let secret = server.beside(format!("{}-tls", server.name));
        index.has_secret(&secret).then_some(secret.name)
    }
}

/// Why an internal CA cannot be asked.
enum Why {
    /// The operator was told of no authority.
    Nobody,
    /// It does not answer as it should.
    Unreachable(String),
}

/// Without what only an internal CA has.
fn not_internal(status: NewStatus) -> NewStatus {
    let status = status
        .with("serviceName", Value::Null)
        .with("signingSecretName", Value::Null);
    status.without(SIGNING_CONDITION)
}

/// Without what is left of an external CA.
fn not_external(authority: &AuthorityObject, status: NewStatus) -> NewStatus {
    match authority.phase() {
        EXTERNAL => status
            .with("caSecretName", Value::Null)
            .with("notAfter", Value::Null),
        _ => status,
    }
}

/// A Secret of a CertificateAuthority.
pub(super) fn ca_secret<'a>(
    authority: &'a AuthorityObject,
    suffix: &str,
    data: &'a [(&'a str, &'a [u8])],
) -> NewSecret<'a> {
    NewSecret {
        name: authority.own(suffix),
        labels: vec![
            ("app.kubernetes.io/name", "openvox"),
            ("app.kubernetes.io/managed-by", "openvox-operator"),
            (AUTHORITY_LABEL, &authority.meta.name.name),
        ],
        annotations: Vec::new(),
        owner: controller_reference(Kind::CertificateAuthority.word(), &authority.meta),
        data,
    }
}

/// When the first certificate of a bundle ends.
fn end_of(roots: Option<&[u8]>) -> Value {
    let first = roots.and_then(holding::leaf);
    first.map_or(Value::Null, |ca| json!(ca.not_after().to_string()))
}

pub(super) const READY_CONDITION: &str = "CAReady";
const EXTERNAL: &str = "External";
const SIGNING_CONDITION: &str = "OperatorSigningReady";
const MAX_FAILURES: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const AFTER_FAILURE: Duration = Duration::from_secs(10);
const LOOK_AT_EXPORT: Duration = Duration::from_secs(1);
/// Seconds that a CA waits for the Certificate of its server.
const EXPORT_PATIENCE: i64 = 30;
