//! The revocation list of a CA, in a Secret that servers mount.

use std::sync::Arc;
use std::time::Duration;

use super::authority::ca_secret;
use super::calls::Kind;
use super::duration;
use super::events::Event;
use super::object::AuthorityObject;
use super::renewing::with_causes;
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
        let fetched = match self.reach(authority, None).await? {
            Ok(mut client) => client
                .revocation_list()
                .await
                .map_err(|fault| with_causes(&fault)),
            Err(fault) => Err(with_causes(&fault)),
        };
        let pause = match fetched {
            Ok(list) => {
                self.keep_list(authority, &list).await?;
                self.metrics.operator.asked("crl", "done");
                self.metrics.operator.refreshed(&meta.name, self.now());
                interval
            }
            Err(why) => {
                self.metrics.operator.asked("crl", "failed");
                let event = Event::warning("CRLRefreshFailed", why);
                self.tell(Kind::CertificateAuthority, meta, &event).await;
                AFTER_FAILURE
            }
        };
        self.list_gate()
            .asked(&meta.name, meta.generation, self.now(), pause);
        let wanted = match bad {
            Some(why) => {
                NewStatus::default().condition(LIST_CONDITION, false, "InvalidInterval", why)
            }
            None => NewStatus::default().without(LIST_CONDITION),
        };
        self.say_of_authority(authority, &wanted).await?;
        Ok(Next::After(pause))
    }

    async fn keep_list(&self, authority: &AuthorityObject, list: &str) -> Pass<()> {
        let name = authority.own("ca-crl");
        let existing = self.secret(&name).await?;
        let data = [(LIST, list.as_bytes())];
        let wanted = ca_secret(authority, "ca-crl", &data);
        let is_new = existing
            .as_ref()
            .is_none_or(|it| it.get(LIST) != Some(list.as_bytes()));
        self.keep(&wanted, existing.as_ref()).await?;
        if is_new {
            let note = format!("Secret {} has the CA's present revocation list", name.name);
            let event = Event::normal("CRLRefreshed", note);
            self.tell(Kind::CertificateAuthority, &authority.meta, &event)
                .await;
        }
        Ok(())
    }
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

/// Full, as the CA publishes it.
const LIST: &str = "ca_crl.pem";
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
