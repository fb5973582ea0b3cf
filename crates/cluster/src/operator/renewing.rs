//! A certificate that ends soon is renewed: the CA makes another one for the same key.

use std::sync::Arc;
use std::time::Duration;

use countersign_enroll::ca::{Key, Renewed};
use countersign_pki::Certificate;
use serde_json::{Map, Value, json};

use super::calls::Kind;
use super::certificate::{
    Desk, RENEWAL_CONDITION, RENEWED_REASON, RENEWING, SIGNED_CONDITION, WARNED, pair_data,
    signed_status, tls_secret,
};
use super::events::Event;
use super::holding::{CERTIFICATE_KEY, PRIVATE_KEY, Pair, common_name};
use super::object::CertificateObject;
use super::renewal::is_longer_than_its_life;
use super::secret::Secret;
use super::standing::LAST_RENEWAL;
use super::status::NewStatus;
use super::{Next, Operator, Pass, ca};

impl Operator {
    /// Asks the CA for a renewal, with the certificate that is renewed.
    pub(super) async fn renew(&self, desk: &Desk, secret: &Secret, pair: &Pair) -> Pass {
        let certificate = &desk.certificate;
        let meta = &certificate.meta;
        let certificate = &self.warn_of_end(certificate, pair).await?;
        if let Some(left) = self.gate().wait(&meta.name, meta.generation, self.now()) {
            return Ok(Next::After(left));
        }
        if certificate.phase() != RENEWING {
            let note = format!(
                "the certificate of {} ends at {} and is renewed",
                certificate.spec.certname, pair.life.not_after
            );
            self.tell(
                Kind::Certificate,
                meta,
                &Event::normal("CertificateRenewalTriggered", note),
            )
            .await;
        }
        let certificate = &self
            .say_of(certificate, &NewStatus::phase(RENEWING))
            .await?;
        self.gate()
            .asked(&meta.name, meta.generation, self.now(), RETRY);
        let renewed = self.ask_for_renewal(desk, secret, pair).await?;
        let (text, leaf) = match renewed {
            Ok(renewed) => renewed,
            Err(why) => {
                self.metrics.operator.asked("renew", "failed");
                let wanted = NewStatus::phase(RENEWING).condition(
                    RENEWAL_CONDITION,
                    false,
                    "RenewalFailed",
                    format!(
                        "{why}; the certificate is valid until {}",
                        pair.life.not_after
                    ),
                );
                self.say_of(certificate, &wanted).await?;
                return Ok(Next::After(RETRY));
            }
        };
        self.metrics.operator.asked("renew", "done");
        self.take_renewed(certificate, secret, pair, &text, &leaf)
            .await
    }

    async fn take_renewed(
        &self,
        certificate: &Arc<CertificateObject>,
        secret: &Secret,
        pair: &Pair,
        text: &str,
        leaf: &Certificate,
    ) -> Pass {
        let key = secret.get(PRIVATE_KEY).unwrap_or_default();
        let data = pair_data(text.as_bytes(), key);
        let kept = tls_secret(certificate, pair.order.as_deref(), &data);
        self.keep(&kept, Some(secret)).await?;
        let now = self.now();
        let annotations = Map::from_iter([
            (LAST_RENEWAL.to_owned(), json!(now.to_string())),
            (WARNED.to_owned(), Value::Null),
        ]);
        let certificate = self.annotate(certificate, annotations).await?;
        let renewed = Pair::of(leaf);
        let wanted = signed_status(&certificate, &renewed)
            .condition(
                SIGNED_CONDITION,
                true,
                RENEWED_REASON,
                "the certificate was renewed",
            )
            .without(RENEWAL_CONDITION);
        let certificate = self.say_of(&certificate, &wanted).await?;
        let note = format!(
            "the certificate of {} was renewed and is valid until {}",
            certificate.spec.certname, renewed.life.not_after
        );
        self.tell(
            Kind::Certificate,
            &certificate.meta,
            &Event::normal(RENEWED_REASON, note),
        )
        .await;
        if is_longer_than_its_life(renewed.life, certificate.spec.renew_before.as_deref()) {
            let note = format!(
                "spec.renewBefore {} is longer than the certificate lives; it is renewed when a third of its life is left",
                certificate.spec.renew_before.as_deref().unwrap_or_default()
            );
            self.tell(
                Kind::Certificate,
                &certificate.meta,
                &Event::warning("RenewBeforeTooLong", note),
            )
            .await;
        }
        self.metrics
            .operator
            .expires(&certificate.meta.name, renewed.life.not_after);
        // What is due next is seen when the Secret comes by.
        Ok(Next::After(Duration::from_secs(1)))
    }

    /// The renewed certificate, or why there is none.
    async fn ask_for_renewal(
        &self,
        desk: &Desk,
        secret: &Secret,
        pair: &Pair,
    ) -> Pass<Result<(String, Certificate), String>> {
        let name = secret.meta.name.name.as_str();
        let identity = match ca::identity(Some(secret), name, CERTIFICATE_KEY, PRIVATE_KEY) {
            Ok(identity) => identity,
            Err(fault) => return Ok(Err(with_causes(&fault))),
        };
        let order = &desk.order;
        let request = Key::read(secret.get(PRIVATE_KEY).unwrap_or_default())
            .map_err(|fault| with_causes(&fault))
            .and_then(|key| {
                key.request(&order.certname, &order.names, &order.extensions)
                    .map_err(|fault| with_causes(&fault))
            });
        let request = match request {
            Ok(request) => request,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut client = match self.reach(&desk.authority, Some(&identity)).await? {
            Ok(client) => client,
            Err(fault) => return Ok(Err(with_causes(&fault))),
        };
        Ok(match client.renew(&request).await {
            Ok(Renewed::Certificate { pem, leaf }) => checked(leaf, pair).map(|leaf| (pem, leaf)),
            Ok(Renewed::Refused { status, body }) => {
                Err(format!("the CA answers {status}: {body}"))
            }
            Err(fault) => Err(with_causes(&fault)),
        })
    }
}

/// A renewal has the same name and the same key.
fn checked(leaf: Certificate, pair: &Pair) -> Result<Certificate, String> {
    if leaf.key_fingerprint() != pair.key {
        return Err("the CA answers with a certificate for another key".to_owned());
    }
    if common_name(&leaf) != pair.certname {
        return Err(format!(
            "the CA answers with a certificate for {:?}",
            common_name(&leaf)
        ));
    }
    Ok(leaf)
}

/// A fault and its causes.
pub(super) fn with_causes(fault: &dyn std::error::Error) -> String {
    crate::api::chain(fault)
}

const RETRY: Duration = Duration::from_secs(15);
