//! One look at a Certificate: where it stands, and what is done about it.

use std::sync::Arc;
use std::time::Duration;

use countersign_pki::Fingerprint;
use serde_json::{Map, Value, json};

use super::calls::Kind;
use super::events::Event;
use super::holding::{CERTIFICATE_KEY, Holding, ORDER, PRIVATE_KEY, Pair};
use super::issuing::{CERTNAME, wants_rights};
use super::object::{
    AUTHORITY_LABEL, AuthorityObject, CERTIFICATE_LABEL, CLEANUP_FINALIZER, CertificateObject,
    OBTAINED, ObjectName, PAUSED_CONDITION, controller_reference,
};
use super::order::{Order, OrderFault};
use super::renewal::{self, Due};
use super::secret::{NewSecret, Secret};
use super::standing::{Observed, Standing, standing};
use super::status::{NewStatus, is_true};
use super::{Next, Operator, Pass, address, ca};
use crate::api::CallFault;

/// A Certificate and what belongs to it, for one pass. Every write brings the object as it is then.
pub(super) struct Desk {
    pub(super) certificate: Arc<CertificateObject>,
    pub(super) authority: Arc<AuthorityObject>,
    pub(super) order: Order,
}

impl Operator {
    pub(super) async fn certificate(&self, name: &ObjectName) -> Pass {
        let Some(certificate) = self.index().certificate(name) else {
            self.gate().forget(name);
            self.metrics.operator.forget_certificate(name);
            return Ok(Next::Done);
        };
        if certificate.meta.deleting {
            return self.delete(&certificate).await;
        }
        if certificate.meta.is_paused() {
            let wanted = NewStatus::default().condition(
                PAUSED_CONDITION,
                true,
                "Paused",
                "the annotation openvox.voxpupuli.org/paused is true; nothing is done until it is removed",
            );
            self.say_of(&certificate, &wanted).await?;
            return Ok(Next::Done);
        }
        let certificate = self.with_finalizer(certificate).await?;
        let authority = self.index().authority(&certificate.authority());
        let secret = self.secret(&certificate.secret()).await?;
        let trust = authority
            .as_ref()
            .map(|authority| authority.meta.name.beside(ca::trust_secret(authority)));
        // By what the CA is recognised counts only where there is a certificate.
        let roots = match (&secret, &trust) {
            (Some(_), Some(name)) => self.secret(name).await?,
            _ => None,
        };
        let roots = roots.as_ref().and_then(|it| it.filled(ca::CA_CERTIFICATES));
        let holding = Holding::read(secret.as_ref(), &certificate, roots);
        let further = self.further_names(&certificate, authority.as_deref());
        let order = Order::read(&certificate.spec, &further);
        let rival = self.index().rival(&certificate);
        let is_awaited = trust.is_some_and(|name| self.index().has_secret(&name))
            && authority
                .as_ref()
                .filter(|authority| !authority.is_ready())
                .is_some_and(|authority| self.is_exported(authority, &certificate));
        let standing = standing(&Observed {
            certificate: &certificate,
            authority: authority.as_deref(),
            is_awaited,
            rival: rival.as_ref(),
            order: &order,
            holding: &holding,
            now: self.now(),
        });
        let desk = |order: Result<Order, OrderFault>| {
            let authority = authority.clone()?;
            let order = order.ok()?;
            Some(Desk {
                certificate: Arc::clone(&certificate),
                authority,
                order,
            })
        };
        match (standing, holding) {
            (Standing::NoAuthority, _) => {
                self.say_of(&certificate, &NewStatus::phase(PENDING))
                    .await?;
                Ok(Next::Done)
            }
            (Standing::NotReady, _) => {
                self.say_of(&certificate, &NewStatus::phase(PENDING))
                    .await?;
                Ok(Next::After(LOOK_AT_CA))
            }
            (Standing::Refused { reason, message }, _) => {
                let wanted =
                    NewStatus::phase(ERROR).condition(SIGNED_CONDITION, false, reason, message);
                self.say_of(&certificate, &wanted).await?;
                Ok(Next::Done)
            }
            (Standing::Held(due), Holding::Pair(pair)) => {
                let Some(secret) = secret else {
                    return Ok(Next::Done);
                };
                let order_read = order.as_ref().ok();
                let (certificate, secret) =
                    self.hold(&certificate, order_read, secret, &pair).await?;
                match (due, authority, order) {
                    (Due::Renewal, Some(authority), Ok(order)) => {
                        let desk = Desk {
                            certificate,
                            authority,
                            order,
                        };
                        match wants_rights(&desk.order)
                            && self.makes_administrators(&desk.authority)
                        {
                            // Countersign renews no administrator's certificate: another one is made.
                            true => self.obtain(&desk, Some(&pair), Some(secret)).await,
                            false => self.renew(&desk, &secret, &pair).await,
                        }
                    }
                    (due, ..) => self.wait(&certificate, &pair, due).await,
                }
            }
            (Standing::Wanted(_), holding) => match desk(order) {
                Some(mut desk) => {
                    let held = held(&holding);
                    if let Some(pair) = held.filter(|pair| pair.is_owned) {
                        desk.certificate = self.note_obtained(&certificate, pair).await?;
                    }
                    self.obtain(&desk, held, secret).await
                }
                None => Ok(Next::Done),
            },
            (Standing::Held(_), Holding::Absent | Holding::Unfit(_)) => Ok(Next::Done),
        }
    }

    /// The names that a certificate has besides those of its spec: a server that is named as the CA's own answers at the
    /// Service of the CA.
    fn further_names(
        &self,
        certificate: &CertificateObject,
        authority: Option<&AuthorityObject>,
    ) -> Vec<String> {
        let Some(authority) = authority.filter(|authority| authority.external.is_none()) else {
            return Vec::new();
        };
        let name = &certificate.meta.name;
        let neighbours = self.index().neighbours(&name.namespace);
        let server = neighbours.server_certificate(&authority.meta.name.name);
        match server == Some(name.name.as_str()) {
            true => vec![address::internal_host(authority)],
            false => Vec::new(),
        }
    }

    async fn with_finalizer(
        &self,
        certificate: Arc<CertificateObject>,
    ) -> Pass<Arc<CertificateObject>> {
        let meta = &certificate.meta;
        if meta.finalizers.iter().any(|it| it == CLEANUP_FINALIZER) {
            return Ok(certificate);
        }
        let mut finalizers = meta.finalizers.clone();
        finalizers.push(CLEANUP_FINALIZER.to_owned());
        let patch = json!({"finalizers": finalizers});
        self.patch_metadata(&certificate, patch).await
    }

    /// A merge patch of the metadata, for exactly the state that was seen.
    pub(super) async fn patch_metadata(
        &self,
        certificate: &CertificateObject,
        mut metadata: Value,
    ) -> Pass<Arc<CertificateObject>> {
        let meta = &certificate.meta;
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), json!(meta.version));
            metadata.insert("uid".to_owned(), json!(meta.uid));
        }
        let patch = json!({"metadata": metadata});
        let written = self
            .calls
            .patch(Kind::Certificate, &meta.name, &patch)
            .await?;
        self.index().written(Kind::Certificate, &written);
        self.latest(&meta.name)
    }

    /// Annotations; null removes one.
    pub(super) async fn annotate(
        &self,
        certificate: &Arc<CertificateObject>,
        annotations: Map<String, Value>,
    ) -> Pass<Arc<CertificateObject>> {
        let mut differing = annotations;
        differing.retain(|key, value| {
            let now = certificate.meta.annotation(key);
            value.as_str() != now
        });
        match differing.is_empty() {
            true => Ok(Arc::clone(certificate)),
            false => {
                self.patch_metadata(certificate, json!({"annotations": differing}))
                    .await
            }
        }
    }

    /// Has it say this in its status, and takes it as it is then.
    pub(super) async fn say_of(
        &self,
        certificate: &Arc<CertificateObject>,
        wanted: &NewStatus,
    ) -> Pass<Arc<CertificateObject>> {
        let meta = &certificate.meta;
        match self
            .say(Kind::Certificate, meta, &certificate.status, wanted)
            .await?
        {
            true => self.latest(&meta.name),
            false => Ok(Arc::clone(certificate)),
        }
    }

    fn latest(&self, name: &ObjectName) -> Pass<Arc<CertificateObject>> {
        self.index().certificate(name).ok_or(CallFault::NotFound)
    }

    /// There is a certificate: it is taken over if somebody else brought it, and the status says so.
    async fn hold(
        &self,
        certificate: &Arc<CertificateObject>,
        order: Option<&Order>,
        secret: Secret,
        pair: &Pair,
    ) -> Pass<(Arc<CertificateObject>, Secret)> {
        let digest = pair.order.clone().or_else(|| order.map(Order::digest));
        let kept = self
            .keep(
                &tls_secret(certificate, digest.as_deref(), &[]),
                Some(&secret),
            )
            .await?;
        let secret = kept.unwrap_or(secret);
        let certificate = self.note_obtained(certificate, pair).await?;
        if let Some(pending) = self.secret(&certificate.pending_secret()).await?
            && is_ours(&pending, &certificate)
        {
            match pending.meta.annotation(CERTNAME) {
                Some(asked) if asked != pair.certname => {
                    self.abandon(&certificate, &pending, asked).await?;
                }
                Some(_) | None => self.delete_secret(&pending).await?,
            }
        }
        let was_signed = is_true(&certificate.status, SIGNED_CONDITION);
        let reason = match renewed_reason(&certificate) {
            Some(reason) if was_signed => reason,
            Some(_) | None => SIGNED_REASON,
        };
        let mut wanted = signed_status(&certificate, pair);
        wanted = wanted.condition(
            SIGNED_CONDITION,
            true,
            reason,
            "the certificate is signed and in its Secret",
        );
        // A renewal that failed is told of until one succeeds.
        if certificate.phase() == RENEWING {
            wanted.fields.remove("phase");
        }
        let said = self.say_of(&certificate, &wanted).await?;
        if !was_signed {
            let note = format!(
                "{} has a certificate in Secret {}",
                certificate.spec.certname, secret.meta.name.name
            );
            self.tell(
                Kind::Certificate,
                &certificate.meta,
                &Event::normal(SIGNED_REASON, note),
            )
            .await;
        }
        self.metrics
            .operator
            .expires(&certificate.meta.name, pair.life.not_after);
        Ok((said, secret))
    }

    /// What it has obtained is written down: that is what is cleaned one day. The name that it had before is given back.
    async fn note_obtained(
        &self,
        certificate: &Arc<CertificateObject>,
        pair: &Pair,
    ) -> Pass<Arc<CertificateObject>> {
        self.give_back_former_name(certificate, &pair.certname)
            .await?;
        let obtained = Map::from_iter([(
            OBTAINED.to_owned(),
            json!(obtained(&pair.certname, pair.key)),
        )]);
        self.annotate(certificate, obtained).await
    }

    /// Nothing is due but perhaps a warning.
    async fn wait(&self, certificate: &Arc<CertificateObject>, pair: &Pair, due: Due) -> Pass {
        let certificate = self.warn_of_end(certificate, pair).await?;
        let pause = match due {
            Due::Later(pause) => pause,
            Due::Cooling(pause) => {
                let note = format!(
                    "the certificate of {} ends at {}; it was renewed less than an hour ago",
                    certificate.spec.certname, pair.life.not_after
                );
                self.tell(
                    Kind::Certificate,
                    &certificate.meta,
                    &Event::warning(EXPIRING, note),
                )
                .await;
                pause
            }
            Due::Renewal | Due::Ended => LOOK_AT_CA,
        };
        let phase = NewStatus::phase(SIGNED);
        let phase = phase.without(RENEWAL_CONDITION);
        self.say_of(&certificate, &phase).await?;
        Ok(Next::After(pause))
    }

    /// Warns 30, 7 and 1 days before the end, once each.
    pub(super) async fn warn_of_end(
        &self,
        certificate: &Arc<CertificateObject>,
        pair: &Pair,
    ) -> Pass<Arc<CertificateObject>> {
        let given = certificate.meta.annotation(WARNED);
        let Some((new, all)) = renewal::warnings(pair.life, given, self.now()) else {
            return Ok(Arc::clone(certificate));
        };
        for threshold in new {
            let note = format!(
                "the certificate of {} ends at {}, in less than {threshold}",
                certificate.spec.certname, pair.life.not_after
            );
            self.tell(
                Kind::Certificate,
                &certificate.meta,
                &Event::warning(EXPIRING, note),
            )
            .await;
        }
        let all = if all.is_empty() {
            Value::Null
        } else {
            json!(all)
        };
        let warned = Map::from_iter([(WARNED.to_owned(), all)]);
        self.annotate(certificate, warned).await
    }
}

/// The pair that is there, if it is one.
fn held(holding: &Holding) -> Option<&Pair> {
    match holding {
        Holding::Pair(pair) => Some(pair),
        Holding::Absent | Holding::Unfit(_) => None,
    }
}

/// The status of a Certificate whose Secret has this pair.
pub(super) fn signed_status(certificate: &CertificateObject, pair: &Pair) -> NewStatus {
    NewStatus::phase(SIGNED)
        .with("secretName", json!(certificate.secret().name))
        .with("notAfter", json!(pair.life.not_after.to_string()))
        .with("observedGeneration", json!(certificate.meta.generation))
}

fn renewed_reason(certificate: &CertificateObject) -> Option<&'static str> {
    let condition = super::status::condition(&certificate.status, SIGNED_CONDITION)?;
    let reason = condition.get("reason").and_then(Value::as_str)?;
    (reason == RENEWED_REASON).then_some(RENEWED_REASON)
}

/// The Secret of a Certificate, with these values.
pub(super) fn tls_secret<'a>(
    certificate: &'a CertificateObject,
    order: Option<&'a str>,
    data: &'a [(&'a str, &'a [u8])],
) -> NewSecret<'a> {
    let order = order.map(|digest| (ORDER, digest));
    NewSecret {
        name: certificate.secret(),
        labels: vec![
            ("app.kubernetes.io/name", "openvox"),
            ("app.kubernetes.io/managed-by", "openvox-operator"),
            (AUTHORITY_LABEL, &certificate.spec.authority),
            (CERTIFICATE_LABEL, &certificate.meta.name.name),
        ],
        annotations: order.into_iter().collect(),
        owner: controller_reference(Kind::Certificate.word(), &certificate.meta),
        data,
    }
}

/// A pair as PEM, as it stands in a Secret.
pub(super) fn pair_data<'a>(certificate: &'a [u8], key: &'a [u8]) -> [(&'static str, &'a [u8]); 2] {
    [(CERTIFICATE_KEY, certificate), (PRIVATE_KEY, key)]
}

/// Whether the Certificate controls a Secret.
pub(super) fn is_ours(secret: &Secret, certificate: &CertificateObject) -> bool {
    let owner = secret.meta.controller();
    owner.is_some_and(|owner| owner.uid == certificate.meta.uid)
}

/// What is kept of a certificate that was obtained: its name and its key.
pub(super) fn obtained(certname: &str, key: Fingerprint) -> String {
    format!("{certname}/{}", key.to_hex().to_ascii_lowercase())
}

pub(super) const PENDING: &str = "Pending";
pub(super) const REQUESTING: &str = "Requesting";
pub(super) const WAITING: &str = "WaitingForSigning";
pub(super) const SIGNED: &str = "Signed";
pub(super) const RENEWING: &str = "Renewing";
pub(super) const ERROR: &str = "Error";
pub(super) const SIGNED_CONDITION: &str = "CertSigned";
/// Says that a renewal failed while the certificate is still valid.
pub(super) const RENEWAL_CONDITION: &str = "Renewal";
pub(super) const SIGNED_REASON: &str = "CertificateSigned";
pub(super) const RENEWED_REASON: &str = "CertificateRenewed";
pub(super) const EXPIRING: &str = "CertificateExpiringSoon";
/// On a Certificate: which warnings of its end were given.
pub(super) const WARNED: &str = "openvox.voxpupuli.org/expiry-warned";
const LOOK_AT_CA: Duration = Duration::from_secs(10);
