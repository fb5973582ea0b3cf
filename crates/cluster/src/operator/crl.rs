//! The revocation list of a CA, in a Secret that servers mount.

use std::sync::Arc;
use std::time::Duration;

use countersign_pki::{Crl, pem};

use super::authority::ca_secret;
use super::ca::CaClient;
use super::calls::Kind;
use super::duration;
use super::events::Event;
use super::object::AuthorityObject;
use super::renewing::with_causes;
use super::secret::Secret;
use super::status::NewStatus;
use super::{Next, Operator, Pass};

impl Operator {
    /// Fetches the list where it is time, and says when it is next.
    pub(super) async fn refresh_list(&self, authority: &Arc<AuthorityObject>) -> Pass {
        let meta = &authority.meta;
        if let Some(left) = self
            .list_gate()
            .wait(&meta.name, meta.generation, self.now())
        {
            return Ok(Next::After(left));
        }
        let (interval, bad) = interval(authority);
        let existing = self.secret(&authority.own("ca-crl")).await?;
        let fetched = match self.reach(authority, None).await? {
            Ok(client) => self.fetch_list(authority, client, existing.as_ref()).await,
            Err(fault) => Err(with_causes(&fault)),
        };
        let mut trouble = bad.map(|why| ("InvalidInterval", why));
        let pause = match fetched {
            Ok(list) => match self.keep_list(authority, existing.as_ref(), &list).await? {
                None => {
                    self.metrics.operator.asked("crl", "done");
                    self.metrics.operator.refreshed(&meta.name, self.now());
                    interval
                }
                Some(why) => {
                    self.list_failed(authority, &why).await;
                    trouble = Some(("OlderList", why));
                    interval
                }
            },
            Err(why) => {
                self.list_failed(authority, &why).await;
                AFTER_FAILURE
            }
        };
        self.list_gate()
            .asked(&meta.name, meta.generation, self.now(), pause);
        let wanted = match trouble {
            Some((reason, why)) => {
                NewStatus::default().condition(LIST_CONDITION, false, reason, why)
            }
            None => NewStatus::default().without(LIST_CONDITION),
        };
        self.say_of_authority(authority, &wanted).await?;
        Ok(Next::After(pause))
    }

    async fn list_failed(&self, authority: &AuthorityObject, why: &str) {
        self.metrics.operator.asked("crl", "failed");
        let event = Event::warning("CRLRefreshFailed", why);
        self.tell(Kind::CertificateAuthority, &authority.meta, &event)
            .await;
    }

    /// What agents are given may be a short list, of the infrastructure's nodes: the full one comes first. A CA that has none
    /// writes each such call into its log, so it is asked for one rarely.
    /// Where the Secret has a full one, a CA that suddenly has none is not believed.
    async fn fetch_list(
        &self,
        authority: &AuthorityObject,
        mut client: Box<dyn CaClient>,
        existing: Option<&Secret>,
    ) -> Result<List, String> {
        let meta = &authority.meta;
        let had_full = existing.is_some_and(|it| it.meta.annotation(FULL) == Some("true"));
        let wait = self
            .full_list_gate()
            .wait(&meta.name, meta.generation, self.now());
        if had_full || wait.is_none() {
            let full = client.full_revocation_list().await;
            if let Some(text) = full.map_err(|fault| with_causes(&fault))? {
                return Ok(List {
                    text,
                    is_full: true,
                });
            }
            if had_full {
                return Err(format!(
                    "the CA no longer gives out the list of everything that is revoked; Secret {} keeps the one it has; to take the list that agents are served, delete the Secret",
                    authority.own("ca-crl").name
                ));
            }
            self.full_list_gate()
                .asked(&meta.name, meta.generation, self.now(), LONGEST);
        }
        let text = client.revocation_list().await;
        Ok(List {
            text: text.map_err(|fault| with_causes(&fault))?,
            is_full: false,
        })
    }

    /// Has the Secret hold the list. Says why not, if that would be a step back.
    async fn keep_list(
        &self,
        authority: &AuthorityObject,
        existing: Option<&Secret>,
        list: &List,
    ) -> Pass<Option<String>> {
        let name = authority.own("ca-crl");
        let kept = existing.and_then(|it| it.get(LIST));
        if let Some((kept, served)) = kept.and_then(|kept| list.step_back(kept)) {
            return Ok(Some(format!(
                "the CA serves a revocation list with the number {served}, and Secret {} has number {kept} in {LIST}, which stays; with enable-infra-crl a Puppet Server serves the short list of infrastructure nodes; to take what is served, delete the Secret",
                name.name
            )));
        }
        let text = list.text.as_bytes();
        let is_new = kept != Some(text);
        let data = [(LIST, text)];
        let mut wanted = ca_secret(authority, "ca-crl", &data);
        wanted.annotations = vec![(FULL, if list.is_full { "true" } else { "false" })];
        self.keep(&wanted, existing).await?;
        if is_new {
            let note = format!("Secret {} has the CA's present revocation list", name.name);
            let event = Event::normal("CRLRefreshed", note);
            self.tell(Kind::CertificateAuthority, &authority.meta, &event)
                .await;
        }
        Ok(None)
    }
}

/// What a CA serves, as PEM.
struct List {
    text: String,
    /// Whether it is known to have everything that is revoked.
    is_full: bool,
}

impl List {
    /// The numbers of the list that is kept and of this one, if the same CA made this one before. So it may be a short one
    /// that lacks what the other one has.
    fn step_back(&self, kept: &[u8]) -> Option<(String, String)> {
        if self.is_full {
            return None;
        }
        let (kept, served) = (first(kept)?, first(self.text.as_bytes())?);
        let is_same_ca = kept.issuer().der() == served.issuer().der()
            && kept.authority_key_id() == served.authority_key_id();
        let number = |list: &Crl| list.number_bytes().map(|it| (it.len(), it.to_vec()));
        let is_before = number(&served)? < number(&kept)?;
        let shown = |list: &Crl| {
            let number = list.number();
            number.map_or_else(|| "of more than 64 bits".to_owned(), |it| it.to_string())
        };
        (is_same_ca && is_before).then(|| (shown(&kept), shown(&served)))
    }
}

/// The CA's own list, which comes first.
fn first(text: &[u8]) -> Option<Crl> {
    let block = pem::decode_first(text, &pem::PemLimits::BUNDLE).ok()??;
    Crl::parse(&block.der).ok()
}

/// How often the list is fetched, and what is wrong with what the spec says of it.
fn interval(authority: &AuthorityObject) -> (Duration, Option<String>) {
    let text = authority
        .spec
        .get("crlRefreshInterval")
        .and_then(|it| it.as_str());
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return (DEFAULT, None);
    };
    match duration::seconds(text) {
        Ok(seconds) if seconds > 0 => {
            let seconds = Duration::from_secs(seconds.unsigned_abs());
            (seconds.clamp(SHORTEST, LONGEST), None)
        }
        Ok(_) => {
            let why = format!(
                "spec.crlRefreshInterval {text:?} is not longer than nothing; every 5m counts instead"
            );
            (DEFAULT, Some(why))
        }
        Err(fault) => (
            DEFAULT,
            Some(format!(
                "spec.crlRefreshInterval: {fault}; every 5m counts instead"
            )),
        ),
    }
}

/// The CA's list, the full one where the CA has a path for it.
const LIST: &str = "ca_crl.pem";
/// On the Secret: whether the list is known to have everything that is revoked.
const FULL: &str = "countersign.dev/full-list";
const LIST_CONDITION: &str = "CRLRefresh";
const DEFAULT: Duration = Duration::from_secs(300);
const SHORTEST: Duration = Duration::from_secs(10);
/// A list that is older is of little use to anybody.
const LONGEST: Duration = Duration::from_secs(86_400);
const AFTER_FAILURE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_interval_is_bounded_and_a_bad_one_is_told() {
        for (given, seconds, is_bad) in [
            (json!({}), 300, false),
            (json!({"crlRefreshInterval": ""}), 300, false),
            (json!({"crlRefreshInterval": "1m"}), 60, false),
            (json!({"crlRefreshInterval": "1s"}), 10, false),
            (json!({"crlRefreshInterval": "5y"}), 86_400, false),
            (json!({"crlRefreshInterval": "0"}), 300, true),
            (json!({"crlRefreshInterval": "-5m"}), 300, true),
            (json!({"crlRefreshInterval": "1h30m"}), 300, true),
        ] {
            let object = json!({"metadata": {"name": "ca"}, "spec": given});
            let (interval, bad) = interval(&AuthorityObject::read(&object).unwrap());
            assert_eq!(
                (interval.as_secs(), bad.is_some()),
                (seconds, is_bad),
                "{given}"
            );
        }
    }
}
