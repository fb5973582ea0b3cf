//! A certificate is obtained: a key that is stored first, a request to the CA, polls until it is signed, and a Secret with
//! both, whole or not at all.
//!
//! Every step can be the last one: the next pass finds the stored key, asks with it again and takes whatever the CA has for
//! that key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use countersign_enroll::ca::{Answer, CaFault, Fetched, Identity, Key, Submitted};
use countersign_pki::{AltName, Certificate};
use serde_json::{Map, json};
use tracing::warn;

use super::ca::{CaClient, Unusable};
use super::calls::Kind;
use super::certificate::{
    Desk, ERROR, REQUESTING, SIGNED_CONDITION, SIGNED_REASON, WAITING, WARNED, is_ours, obtained,
    pair_data, signed_status, tls_secret,
};
use super::events::Event;
use super::holding::{GIVEN_UP, ORDER, PRIVATE_KEY, Pair, common_name, has_rights};
use super::object::{
    AuthorityObject, CERTIFICATE_LABEL, CertificateObject, OBTAINED, controller_reference,
};
use super::order::{CLI_AUTH, Order};
use super::renewal::{POLLS_UNTIL_TOLD, poll_pause};
use super::renewing::with_causes;
use super::secret::{NewSecret, Secret};
use super::standing::{FAILED, LAST_RENEWAL};
use super::status::NewStatus;
use super::{Next, Operator, Pass, address, ca};

/// A key that is stored, and what is known of the requests that were made with it.
struct Pending {
    secret: Secret,
    key: Key,
    /// The order for which the key was made or a CA has last taken a request with it, as its digest.
    order: Option<String>,
    /// The order for which the CA is known to have a request with this key.
    taken: Option<String>,
    /// Polls that brought nothing.
    attempts: u32,
    /// How long it is until the next one.
    wait: Option<Duration>,
}

/// How an attempt ended without a certificate.
enum Outcome {
    /// There is one.
    Issued(String, Box<Certificate>),
    /// The CA has the request, and nobody has signed it yet; why the operator could not, where it has tried.
    Unsigned(Option<String>),
    /// The CA did not answer after it had taken the request.
    Unheard,
    /// The CA still has the certificate that was given up, and it is what is ordered again.
    Kept,
    /// Something is wrong; when to try again.
    Failed(String, Duration),
}

impl Operator {
    /// Brings a Certificate to its pair. `held` is the one that is there, which stays until then.
    pub(super) async fn obtain(
        &self,
        desk: &Desk,
        held: Option<&Pair>,
        mut secret: Option<Secret>,
    ) -> Pass {
        let certificate = &desk.certificate;
        let meta = &certificate.meta;
        if let Some(left) = self.gate().wait(&meta.name, meta.generation, self.now()) {
            return Ok(Next::After(left));
        }
        let certificate = &self.say_requesting(certificate).await?;
        let client = match self.reach(&desk.authority, None).await? {
            Ok(client) => client,
            Err(fault) => {
                return self
                    .failed(certificate, &with_causes(&fault), UNUSABLE)
                    .await;
            }
        };
        let pending = match self.pending(desk).await? {
            Ok(pending) => pending,
            Err(why) => return self.failed(certificate, &why, RETRY).await,
        };
        if let Some(left) = pending.wait {
            return Ok(Next::After(left));
        }
        self.gate()
            .asked(&meta.name, meta.generation, self.now(), RETRY);
        let (outcome, is_taken) = self.ask(desk, client, &pending, held, &mut secret).await?;
        let pause = match outcome {
            Outcome::Issued(text, leaf) => {
                self.metrics.operator.asked("issue", "done");
                return self
                    .install(desk, &pending, &text, &leaf, secret.as_ref())
                    .await;
            }
            Outcome::Kept => {
                let digest = desk.order.digest();
                let kept = tls_secret(certificate, Some(&digest), &[]);
                self.keep(&kept, secret.as_ref()).await?;
                return Ok(Next::After(Duration::from_secs(1)));
            }
            Outcome::Unsigned(why) => {
                self.metrics.operator.asked("issue", "unsigned");
                let taken = is_taken.then(|| desk.order.digest());
                self.count_poll(certificate, taken.as_deref(), why.as_deref(), &pending)
                    .await?
            }
            Outcome::Unheard => {
                self.metrics.operator.asked("issue", "failed");
                UNHEARD
            }
            Outcome::Failed(why, pause) => {
                self.metrics.operator.asked("issue", "failed");
                self.gate()
                    .asked(&meta.name, meta.generation, self.now(), pause);
                return self.failed(certificate, &why, pause).await;
            }
        };
        self.gate()
            .asked(&meta.name, meta.generation, self.now(), pause);
        Ok(Next::After(pause))
    }

    /// A connection to the CA of a CertificateAuthority, or why there can be none.
    pub(super) async fn reach(
        &self,
        authority: &AuthorityObject,
        identity: Option<&Identity>,
    ) -> Pass<Result<Box<dyn CaClient>, Unusable>> {
        let told = self.settings.authority.as_ref();
        let neighbours = self.index().neighbours(&authority.meta.name.namespace);
        let has_service = authority.status_text("serviceName").is_some();
        let url = address::url(
            authority,
            told.map(|it| it.url.as_str()),
            has_service,
            &neighbours,
        );
        let external = authority.external.as_ref();
        let told_trust = told.filter(|_| external.is_none());
        let found = match told_trust {
            Some(_) => None,
            None => {
                let named = authority.meta.name.beside(ca::trust_secret(authority));
                self.secret(&named).await?
            }
        };
        let tls = external.and_then(|external| external.tls_secret.clone());
        let tls = match &tls {
            Some(name) => Some((name, self.secret(&authority.meta.name.beside(name)).await?)),
            None => None,
        };
        Ok((|| {
            let url = url.ok_or(Unusable::NoAddress)?;
            let trust = match told_trust {
                Some(told) => told.trust()?,
                None => ca::trust(authority, found.as_ref())?,
            };
            let own = match &tls {
                Some((name, secret)) if identity.is_none() => {
                    Some(ca::identity(secret.as_ref(), name, "tls.crt", "tls.key")?)
                }
                Some(_) | None => None,
            };
            Ok(self.cas.connect(&url, &trust, identity.or(own.as_ref()))?)
        })())
    }

    /// Who may sign and clean at an internal CA: the operator by its certificate there, else the administrator that it was
    /// told of. `None`: nobody here may.
    pub(super) async fn signing_identity(
        &self,
        authority: &AuthorityObject,
        who: Who,
    ) -> Pass<Option<Identity>> {
        if authority.external.is_some() {
            return Ok(None);
        }
        let administrator = || {
            let told = self.settings.authority.as_ref()?;
            told.identity()
                .inspect_err(|fault| warn!(fault = %with_causes(fault), "the administrator's credentials cannot be used"))
                .ok()
        };
        if who == Who::Administrator
            && let Some(identity) = administrator()
        {
            return Ok(Some(identity));
        }
        if let Some(name) = authority.status_text("signingSecretName") {
            let secret = self.secret(&authority.meta.name.beside(&name)).await?;
            let found = ca::identity(
                secret.as_ref(),
                &name,
                super::holding::CERTIFICATE_KEY,
                PRIVATE_KEY,
            );
            if let Ok(identity) = found {
                return Ok(Some(identity));
            }
        }
        Ok(administrator())
    }

    /// That a certificate is asked for is said where nothing has gone wrong before.
    async fn say_requesting(
        &self,
        certificate: &Arc<CertificateObject>,
    ) -> Pass<Arc<CertificateObject>> {
        match certificate.phase() {
            REQUESTING | WAITING | ERROR => Ok(Arc::clone(certificate)),
            _ => {
                self.say_of(certificate, &NewStatus::phase(REQUESTING))
                    .await
            }
        }
    }

    async fn failed(
        &self,
        certificate: &Arc<CertificateObject>,
        why: &str,
        pause: Duration,
    ) -> Pass {
        let wanted = NewStatus::phase(ERROR).condition(SIGNED_CONDITION, false, FAILED, why);
        self.say_of(certificate, &wanted).await?;
        Ok(Next::After(pause))
    }

    /// The stored key; one is made and stored if there is none, and read back.
    async fn pending(&self, desk: &Desk) -> Pass<Result<Pending, String>> {
        let certificate = &desk.certificate;
        let name = certificate.pending_secret();
        let mut found = self.secret(&name).await?;
        if let Some(secret) = &found
            && !is_ours(secret, certificate)
        {
            return Ok(Err(format!(
                "Secret {} exists and is not controlled by this Certificate; delete it",
                name.name
            )));
        }
        let stored = |secret: &Secret| {
            secret
                .filled(PRIVATE_KEY)
                .and_then(|key| Key::read(key).ok())
        };
        let digest = desk.order.digest();
        // One key is for one name: whatever came of a request for another one is not left behind.
        if let Some(secret) = &found
            && let Some(asked) = secret.meta.annotation(CERTNAME)
            && asked != desk.order.certname
        {
            self.abandon(certificate, secret, asked).await?;
            found = None;
        }
        if found.as_ref().and_then(stored).is_none() {
            // What is noted of a key that is of no use is of no use either.
            if let Some(useless) = &found {
                self.delete_secret(useless).await?;
            }
            let text = match self.make_key().await {
                Ok(text) => text,
                Err(why) => return Ok(Err(why)),
            };
            let data = [(PRIVATE_KEY, text.as_bytes())];
            let wanted = NewSecret {
                name: name.clone(),
                labels: vec![(CERTIFICATE_LABEL, &certificate.meta.name.name)],
                annotations: vec![(ORDER, &digest), (CERTNAME, &desk.order.certname)],
                owner: controller_reference(Kind::Certificate.word(), &certificate.meta),
                data: &data,
            };
            self.keep(&wanted, None).await?;
            found = self.calls.secret(&name).await?;
        }
        let Some(secret) = found else {
            return Ok(Err(format!("Secret {} has gone again", name.name)));
        };
        let Some(key) = stored(&secret) else {
            return Ok(Err(format!("Secret {} has no usable key.pem", name.name)));
        };
        let annotation = |key: &str| secret.meta.annotation(key);
        let attempts = annotation(ATTEMPTS)
            .and_then(|it| it.parse().ok())
            .unwrap_or(0);
        let order = annotation(ORDER).map(str::to_owned);
        let wait = match order.as_ref().is_none_or(|order| *order == digest) {
            true => self.until_next_poll(annotation(POLLED), attempts),
            false => None,
        };
        Ok(Ok(Pending {
            key,
            order,
            taken: annotation(TAKEN).map(str::to_owned),
            attempts,
            wait,
            secret,
        }))
    }

    /// Also another replica, or this one before it was restarted, may have asked a moment ago.
    fn until_next_poll(&self, polled: Option<&str>, attempts: u32) -> Option<Duration> {
        let polled = countersign_pki::UnixTime::parse_rfc3339(polled?).ok()?;
        let passed = u64::try_from(self.now().seconds_since(polled)).ok()?;
        let left = poll_pause(attempts).checked_sub(Duration::from_secs(passed))?;
        Some(left).filter(|left| !left.is_zero())
    }

    async fn make_key(&self) -> Result<zeroize::Zeroizing<String>, String> {
        let Ok(_place) = self.key_making.acquire().await else {
            return Err("the operator ends".to_owned());
        };
        let make_key = Arc::clone(&self.make_key);
        let made = tokio::task::spawn_blocking(move || make_key()).await;
        match made {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(fault)) => Err(with_causes(&fault)),
            Err(fault) => Err(with_causes(&fault)),
        }
    }

    /// Asks the CA: submits the request, looks for the certificate, and signs it where the operator may. Also says whether the
    /// CA has this very request.
    async fn ask(
        &self,
        desk: &Desk,
        mut client: Box<dyn CaClient>,
        pending: &Pending,
        held: Option<&Pair>,
        secret: &mut Option<Secret>,
    ) -> Pass<(Outcome, bool)> {
        let order = &desk.order;
        let is_administrators = self.makes_administrators(&desk.authority) && wants_rights(order);
        let extensions: Vec<(String, String)> = match is_administrators {
            // The authority adds what makes an administrator.
            true => order
                .extensions
                .iter()
                .filter(|(name, _)| name != CLI_AUTH)
                .cloned()
                .collect(),
            false => order.extensions.clone(),
        };
        let request = match pending
            .key
            .request(&order.certname, &order.names, &extensions)
        {
            Ok(request) => request,
            Err(fault) => return Ok((Outcome::Failed(with_causes(&fault), RETRY), false)),
        };
        let digest = order.digest();
        let mut asking = Asking {
            operator: self,
            desk,
            held,
            secret,
            key: &pending.key,
            request: &request,
            is_taken: pending.taken.as_ref() == Some(&digest),
            is_only_order: pending.order.as_ref().is_none_or(|order| *order == digest),
        };
        let outcome = match is_administrators {
            true => asking.ask_for_administrator(&mut *client).await?,
            false => asking.ask(&mut *client).await?,
        };
        Ok((outcome, asking.is_taken))
    }

    /// Whether the CA has a call by which an administrator makes further ones.
    pub(super) fn makes_administrators(&self, authority: &AuthorityObject) -> bool {
        authority.external.is_none() && self.settings.authority.is_some()
    }

    /// Writes down that a poll brought nothing, and says when the next one is. `taken` is the order for which the CA has a
    /// request with this key; for another one polls are counted anew.
    async fn count_poll(
        &self,
        certificate: &Arc<CertificateObject>,
        taken: Option<&str>,
        refusal: Option<&str>,
        pending: &Pending,
    ) -> Pass<Duration> {
        let is_other =
            taken.is_some_and(|taken| pending.order.as_ref().is_some_and(|it| it != taken));
        let before = if is_other { 0 } else { pending.attempts };
        let attempts = before.saturating_add(1);
        let (count, now) = (attempts.to_string(), self.now().to_string());
        let mut annotations = vec![(ATTEMPTS, count.as_str()), (POLLED, now.as_str())];
        annotations.extend(
            taken
                .into_iter()
                .flat_map(|taken| [(ORDER, taken), (TAKEN, taken)]),
        );
        let wanted = NewSecret {
            name: certificate.pending_secret(),
            labels: Vec::new(),
            annotations,
            owner: controller_reference(Kind::Certificate.word(), &certificate.meta),
            data: &[],
        };
        self.keep(&wanted, Some(&pending.secret)).await?;
        if attempts < POLLS_UNTIL_TOLD {
            let wanted = match certificate.phase() {
                // An error that is over.
                ERROR => NewStatus::phase(REQUESTING).without(SIGNED_CONDITION),
                _ => NewStatus::phase(REQUESTING),
            };
            self.say_of(certificate, &wanted).await?;
        } else {
            let certname = &certificate.spec.certname;
            let message = match refusal {
                Some(refusal) => format!(
                    "the request of {certname} was not signed after {attempts} polls: {refusal}"
                ),
                None => format!(
                    "the request of {certname} was not signed after {attempts} polls; sign it at the CA: puppetserver ca sign --certname {certname}"
                ),
            };
            let wanted = NewStatus::phase(WAITING).condition(
                SIGNED_CONDITION,
                false,
                "WaitingForManualSigning",
                message.clone(),
            );
            self.say_of(certificate, &wanted).await?;
            let event = Event::warning("CSRWaitingForSigning", message);
            self.tell(Kind::Certificate, &certificate.meta, &event)
                .await;
        }
        Ok(poll_pause(attempts))
    }

    /// Stores the pair, then says so.
    async fn install(
        &self,
        desk: &Desk,
        pending: &Pending,
        text: &str,
        leaf: &Certificate,
        secret: Option<&Secret>,
    ) -> Pass {
        let certificate = &desk.certificate;
        let pair = Pair::of(leaf);
        let digest = desk.order.digest();
        let key = pending.secret.get(PRIVATE_KEY).unwrap_or_default();
        let data = pair_data(text.as_bytes(), key);
        let kept = tls_secret(certificate, Some(&digest), &data);
        self.keep(&kept, secret).await?;
        self.delete_secret(&pending.secret).await?;
        let certificate = self.index().certificate(&certificate.meta.name);
        let Some(certificate) = certificate else {
            return Ok(Next::Done);
        };
        self.give_back_former_name(&certificate, &pair.certname)
            .await?;
        let annotations = Map::from_iter([
            (
                OBTAINED.to_owned(),
                json!(obtained(&pair.certname, pair.key)),
            ),
            (LAST_RENEWAL.to_owned(), serde_json::Value::Null),
            (WARNED.to_owned(), serde_json::Value::Null),
        ]);
        let certificate = self.annotate(&certificate, annotations).await?;
        let wanted = signed_status(&certificate, &pair).condition(
            SIGNED_CONDITION,
            true,
            SIGNED_REASON,
            "the certificate is signed and in its Secret",
        );
        let certificate = self.say_of(&certificate, &wanted).await?;
        self.gate().forget(&certificate.meta.name);
        let note = format!(
            "{} has a certificate in Secret {}",
            certificate.spec.certname,
            certificate.secret().name
        );
        self.tell(
            Kind::Certificate,
            &certificate.meta,
            &Event::normal(SIGNED_REASON, note),
        )
        .await;
        self.metrics
            .operator
            .expires(&certificate.meta.name, pair.life.not_after);
        // When it is renewed is seen when its Secret comes by.
        Ok(Next::After(Duration::from_secs(1)))
    }
}

/// Who acts at an internal CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The operator.
    Operator,
    /// Somebody who may grant the rights of an administrator.
    Administrator,
}

/// One attempt.
struct Asking<'a> {
    operator: &'a Operator,
    desk: &'a Desk,
    /// The pair that there is.
    held: Option<&'a Pair>,
    /// The Secret that it is in.
    secret: &'a mut Option<Secret>,
    key: &'a Key,
    request: &'a str,
    /// Whether the CA is known to have this very request.
    is_taken: bool,
    /// Whether no request for another order was made with this key.
    is_only_order: bool,
}

impl Asking<'_> {
    async fn ask(&mut self, client: &mut dyn CaClient) -> Pass<Outcome> {
        let certname = self.desk.order.certname.as_str();
        let submitted = match client.submit(certname, self.request).await {
            Ok(submitted) => submitted,
            Err(fault) => return Ok(failed_call(&fault, RETRY)),
        };
        let (is_old, is_revoked) = match submitted {
            Submitted::Taken => {
                self.taken();
                (false, false)
            }
            Submitted::WaitsAlready => (false, false),
            Submitted::HasCertificate { body } => (true, body.contains("revoked certificate")),
            Submitted::Refused { status, body } => {
                let why = format!("the CA answers {status} to the request of {certname}: {body}");
                return Ok(Outcome::Failed(why, REFUSED));
            }
        };
        let (why, has_rights) = match client.fetch(certname).await {
            Ok(Fetched::Certificate { pem, leaf }) if self.is_ours(&leaf) => {
                match self.unfit(&leaf, is_revoked) {
                    None => return Ok(Outcome::Issued(pem, Box::new(leaf))),
                    Some(why) if self.is_taken && !is_revoked => {
                        return Ok(Outcome::Failed(why, REFUSED));
                    }
                    Some(why) => (Some(why), has_rights(&leaf)),
                }
            }
            Ok(Fetched::Certificate { leaf, .. }) if !is_revoked && self.is_kept(&leaf) => {
                return Ok(Outcome::Kept);
            }
            Ok(Fetched::Certificate { leaf, .. }) if self.has_obtained(&leaf) => {
                (Some(still_there(certname)), has_rights(&leaf))
            }
            Ok(Fetched::Certificate { .. }) => {
                let why = format!(
                    "the CA has a certificate of {certname} for another key, which was not issued for this Certificate; have it cleaned there, or choose another certname"
                );
                return Ok(Outcome::Failed(why, REFUSED));
            }
            Ok(Fetched::Absent { status }) if is_old => {
                let why = format!(
                    "the CA has a revoked certificate of {certname} and shows none (it answers {status}); have the name cleaned there"
                );
                let has_rights = self.held.is_some_and(|held| held.has_rights);
                match self.has_obtained_name() {
                    true => (Some(why), has_rights),
                    false => return Ok(Outcome::Failed(why, REFUSED)),
                }
            }
            Ok(Fetched::Absent { .. }) => (None, false),
            Err(_) => return Ok(Outcome::Unheard),
        };
        if let Some(why) = why {
            // What the name has at the CA makes way.
            if !self.clean(has_rights).await? {
                return Ok(Outcome::Failed(why, REFUSED));
            }
            self.submit_again(client).await;
        } else if !self.is_taken {
            self.replace_waiting(client).await?;
        }
        self.sign(client).await
    }

    /// The CA has taken this request: it had none of the name before, nor a certificate.
    fn taken(&mut self) {
        self.is_taken = true;
        self.is_only_order = true;
    }

    /// An administrator's certificate is never signed by a rule: the operator asks as an administrator.
    async fn ask_for_administrator(&mut self, client: &mut dyn CaClient) -> Pass<Outcome> {
        let certname = self.desk.order.certname.as_str();
        match client.fetch(certname).await {
            Ok(Fetched::Certificate { pem, leaf })
                if self.is_ours(&leaf) && self.unfit(&leaf, false).is_none() =>
            {
                return Ok(Outcome::Issued(pem, Box::new(leaf)));
            }
            Ok(Fetched::Certificate { leaf, .. })
                if !self.is_ours(&leaf) && self.is_kept(&leaf) =>
            {
                return Ok(Outcome::Kept);
            }
            Ok(Fetched::Certificate { leaf, .. })
                if self.is_ours(&leaf) || self.has_obtained(&leaf) =>
            {
                if !self.clean(has_rights(&leaf)).await? {
                    return Ok(Outcome::Failed(still_there(certname), REFUSED));
                }
            }
            // The CA refuses a name that somebody else has.
            Ok(Fetched::Certificate { .. } | Fetched::Absent { .. }) => {}
            Err(fault) => return Ok(failed_call(&fault, RETRY)),
        }
        let Some(mut signing) = self.signing_client().await? else {
            let why = "the administrator's credentials cannot be used".to_owned();
            return Ok(Outcome::Failed(why, RETRY));
        };
        match signing.create_administrator(certname, self.request).await {
            Ok(Answer::Done) => self.taken(),
            Ok(Answer::Refused { status, body }) => {
                let why = format!("the CA answers {status} to the request of {certname}: {body}");
                return Ok(Outcome::Failed(why, REFUSED));
            }
            Err(fault) => return Ok(failed_call(&fault, RETRY)),
        }
        self.look_once_more(client, None).await
    }

    fn is_ours(&self, leaf: &Certificate) -> bool {
        self.key.matches(leaf) && common_name(leaf) == self.desk.order.certname
    }

    /// Why a certificate for our key is not what was ordered.
    fn unfit(&self, leaf: &Certificate, is_revoked: bool) -> Option<String> {
        let certname = &self.desk.order.certname;
        if is_revoked {
            return Some(format!(
                "the CA has revoked the certificate of {certname}; have the name cleaned there"
            ));
        }
        let names = self.desk.order.names.iter();
        let missing: Vec<&str> = names
            .filter(|name| !has_name(leaf, name))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            return Some(format!(
                "the CA has signed {certname} without the names {}; have it cleaned there",
                missing.join(", ")
            ));
        }
        (!self.is_only_order).then(|| {
            format!("the CA has signed {certname} as it was ordered before; have it cleaned there")
        })
    }

    /// Whether this Certificate has obtained a certificate before, or one for the operator itself, whose name nobody else has.
    fn has_obtained(&self, leaf: &Certificate) -> bool {
        let key = leaf.key_fingerprint();
        let known = self.desk.certificate.meta.annotation(OBTAINED);
        self.has_operators_name()
            || self.held.is_some_and(|held| held.key == key)
            || known == Some(obtained(&common_name(leaf), key).as_str())
    }

    /// The same of any certificate of the name.
    fn has_obtained_name(&self) -> bool {
        let certname = &self.desk.order.certname;
        self.has_operators_name()
            || self.held.is_some_and(|held| held.certname == *certname)
            || self.desk.certificate.obtained_name() == Some(certname)
    }

    /// Whether the name is the operator's own and nobody else's. An authority that the operator was told of may be behind
    /// several CAs, and each of them may have such a name.
    fn has_operators_name(&self) -> bool {
        self.is_operators() && self.operator.settings.authority.is_none()
    }

    fn is_operators(&self) -> bool {
        super::standing::is_operators(&self.desk.certificate, &self.desk.authority)
    }

    /// Has the name cleaned. `false`: nobody here may, or the CA does not do it.
    async fn clean(&mut self, has_rights: bool) -> Pass<bool> {
        let authority = &self.desk.authority;
        if authority.external.is_some() {
            return Ok(false);
        }
        self.give_up().await?;
        let certname = self.desk.order.certname.as_str();
        let who = self.who();
        let answer = self.operator.clean(authority, certname, has_rights, who);
        match answer.await? {
            Some(Ok(Answer::Done)) => return Ok(true),
            Some(Ok(Answer::Refused { status, body })) => {
                warn!(certname, status, body, "the CA does not clean the name");
            }
            Some(Err(fault)) => {
                warn!(certname, fault = %with_causes(&fault), "the CA does not clean the name");
            }
            None => {}
        }
        Ok(false)
    }

    /// Before its certificate is cleaned, the pair that there is says that it is of no use any more. Otherwise a spec that is
    /// changed back would find a pair that fits, whose certificate is revoked.
    async fn give_up(&mut self) -> Pass<()> {
        let certificate = &self.desk.certificate;
        let (Some(held), Some(secret)) = (self.held, self.secret.as_ref()) else {
            return Ok(());
        };
        if held.is_given_up || held.certname != self.desk.order.certname {
            return Ok(());
        }
        let digest = held.order.as_deref().unwrap_or_default();
        let given_up = format!("{GIVEN_UP}{digest}");
        let wanted = tls_secret(certificate, Some(&given_up), &[]);
        if let Some(written) = self.operator.keep(&wanted, Some(secret)).await? {
            *self.secret = Some(written);
        }
        Ok(())
    }

    /// Whether the CA has the certificate of the pair that was given up, and the present order is the one that it was issued
    /// for.
    fn is_kept(&self, leaf: &Certificate) -> bool {
        self.held.is_some_and(|held| {
            let digest = self.desk.order.digest();
            held.is_given_up
                && held.order.as_ref() == Some(&digest)
                && held.key == leaf.key_fingerprint()
                && held.life == Pair::of(leaf).life
        })
    }

    /// The request that waits may be for another key or another order: it is removed, and ours sent.
    async fn replace_waiting(&mut self, client: &mut dyn CaClient) -> Pass<()> {
        let Some(mut signing) = self.signing_client().await? else {
            return Ok(());
        };
        let certname = self.desk.order.certname.as_str();
        match signing.remove(certname).await {
            Ok(Answer::Done) => self.submit_again(client).await,
            Ok(Answer::Refused { status, body }) => {
                warn!(
                    certname,
                    status, body, "the request that waits stays at the CA"
                );
            }
            Err(fault) => {
                warn!(certname, fault = %with_causes(&fault), "the request that waits stays at the CA");
            }
        }
        Ok(())
    }

    async fn submit_again(&mut self, client: &mut dyn CaClient) {
        let certname = self.desk.order.certname.as_str();
        match client.submit(certname, self.request).await {
            Ok(Submitted::Taken) => self.taken(),
            Ok(
                Submitted::WaitsAlready
                | Submitted::HasCertificate { .. }
                | Submitted::Refused { .. },
            ) => {}
            Err(fault) => {
                warn!(certname, fault = %with_causes(&fault), "the CA was not asked again")
            }
        }
    }

    /// Signs where the operator may, and looks once more. A request that may be somebody else's is not signed.
    async fn sign(&mut self, client: &mut dyn CaClient) -> Pass<Outcome> {
        if !self.is_taken {
            return Ok(Outcome::Unsigned(None));
        }
        let Some(mut signing) = self.signing_client().await? else {
            return Ok(Outcome::Unsigned(None));
        };
        let certname = self.desk.order.certname.as_str();
        let refusal = match signing.sign(certname).await {
            Ok(Answer::Done) => None,
            Ok(Answer::Refused { status, body }) => Some(format!(
                "the CA answers {status} to the operator, who asked it to sign: {body}"
            )),
            Err(fault) => Some(with_causes(&fault)),
        };
        if let Some(refusal) = &refusal {
            warn!(
                certname,
                refusal, "the CA does not sign at the operator's word"
            );
        }
        self.look_once_more(client, refusal).await
    }

    async fn look_once_more(
        &self,
        client: &mut dyn CaClient,
        refusal: Option<String>,
    ) -> Pass<Outcome> {
        let certname = self.desk.order.certname.as_str();
        Ok(match client.fetch(certname).await {
            Ok(Fetched::Certificate { pem, leaf }) if self.is_ours(&leaf) => {
                match self.unfit(&leaf, false) {
                    None => Outcome::Issued(pem, Box::new(leaf)),
                    Some(why) => Outcome::Failed(why, REFUSED),
                }
            }
            Ok(Fetched::Certificate { .. } | Fetched::Absent { .. }) => Outcome::Unsigned(refusal),
            Err(_) => Outcome::Unheard,
        })
    }

    /// Who acts at the CA for this order.
    fn who(&self) -> Who {
        match wants_rights(&self.desk.order) || self.is_operators() {
            true => Who::Administrator,
            false => Who::Operator,
        }
    }

    async fn signing_client(&self) -> Pass<Option<Box<dyn CaClient>>> {
        let authority = &self.desk.authority;
        let who = self.who();
        let Some(identity) = self.operator.signing_identity(authority, who).await? else {
            return Ok(None);
        };
        Ok(
            match self.operator.reach(authority, Some(&identity)).await? {
                Ok(client) => Some(client),
                Err(fault) => {
                    warn!(fault = %with_causes(&fault), "the CA cannot be asked by the operator");
                    None
                }
            },
        )
    }
}

/// Whether an order is for an administrator's certificate.
pub(super) fn wants_rights(order: &Order) -> bool {
    order.extensions.iter().any(|(name, _)| name == CLI_AUTH)
}

/// Whether a certificate is for a host name or an address besides its common name.
fn has_name(leaf: &Certificate, name: &str) -> bool {
    let address = name.parse::<IpAddr>().ok();
    leaf.alt_names().iter().any(|it| match it {
        AltName::Dns(dns) => dns.eq_ignore_ascii_case(name),
        AltName::Ip(ip) => Some(*ip) == address,
        AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => false,
    })
}

fn still_there(certname: &str) -> String {
    format!("the CA still has the former certificate of {certname}; have it cleaned there")
}

fn failed_call(fault: &CaFault, pause: Duration) -> Outcome {
    Outcome::Failed(with_causes(fault), pause)
}

/// On the Secret with the key: how many polls have brought nothing, in decimal.
const ATTEMPTS: &str = "openvox.voxpupuli.org/csr-poll-attempts";
/// On the same: the name that is asked for with the key.
pub(super) const CERTNAME: &str = "countersign.dev/certname";
/// On the same: the order for which the CA is known to have a request with this key, as its digest.
pub(super) const TAKEN: &str = "countersign.dev/taken";
/// On the same: when the last poll was (RFC 3339).
const POLLED: &str = "countersign.dev/last-poll";
/// The CA cannot even be asked.
const UNUSABLE: Duration = Duration::from_secs(5);
/// It did not say whether there is a certificate.
const UNHEARD: Duration = Duration::from_secs(10);
/// It did not answer, or something failed here.
const RETRY: Duration = Duration::from_secs(15);
/// It said no.
const REFUSED: Duration = Duration::from_secs(30);
