//! The SigningPolicies of a CertificateAuthority: they are given to the authority behind it, all together, and each says
//! whether it is in force.
//!
//! One that cannot be used holds up all of them: those that were given before stay in force until it is mended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_enroll::ca::Answer;
use countersign_pki::{UnixTime, fingerprint_sha256};
use countersign_policy::SigningPolicy;
use countersign_policy::json::{items, named, part, text};
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use tracing::warn;

use super::authority::ca_secret;
use super::ca::{AuthorityAccess, CaClient};
use super::calls::Kind;
use super::index::Key;
use super::object::{AuthorityObject, ObjectName, PolicyObject};
use super::renewing::with_causes;
use super::status::{NewStatus, is_true};
use super::{Next, Operator, Pass};
use crate::api::segment;

/// What was given to an authority last.
#[derive(Debug)]
pub(super) struct Given {
    digest: String,
    at: UnixTime,
}

/// The values of Secrets, by name and key.
type Values = BTreeMap<(String, String), String>;

impl Operator {
    pub(super) async fn policies(&self, name: &ObjectName) -> Pass {
        let policies = self.index().policies_of(name);
        let authority = self.index().authority(name);
        let authority = authority.filter(|authority| !authority.meta.deleting);
        let Some(authority) = authority else {
            for policy in &policies {
                let message = format!("CertificateAuthority {} does not exist", name.name);
                self.judge(policy, Err(("CertificateAuthorityNotFound", message)))
                    .await?;
            }
            return self.withdraw(name).await;
        };
        if authority.meta.is_paused() {
            return Ok(Next::Done);
        }
        if authority.external.is_some() {
            for policy in &policies {
                let message = "an external CA decides by itself what it signs".to_owned();
                self.judge(policy, Err(("ExternalCA", message))).await?;
            }
            return self.withdraw(name).await;
        }
        if self.is_rendered_elsewhere(&authority).await? {
            return Ok(Next::Done);
        }
        let values = self.values(&policies).await?;
        let mut usable = Vec::new();
        let mut is_whole = true;
        for policy in policies.iter().filter(|policy| !policy.meta.deleting) {
            let value =
                |secret: &str, key: &str| values.get(&(secret.to_owned(), key.to_owned())).cloned();
            // Another salt for each: equal values are not seen to be equal.
            let salt = policy.meta.uid.as_bytes();
            match SigningPolicy::sealed(&policy.meta.name.name, &policy.spec, salt, value) {
                Ok(sealed) => usable.push((policy, sealed)),
                Err(fault) => {
                    is_whole = false;
                    self.judge(policy, Err(("Error", with_causes(&fault))))
                        .await?;
                }
            }
        }
        if !is_whole {
            for (policy, _) in usable.iter().filter(|(policy, _)| !is_in_force(policy)) {
                let message = "another SigningPolicy of this CA cannot be used; those that were in force before still are";
                self.judge(policy, Err(("NotRendered", message.to_owned())))
                    .await?;
            }
            return Ok(Next::After(LOOK_AGAIN));
        }
        let given = match &self.settings.authority {
            Some(told) => self.give(told, &authority, &usable).await,
            None => {
                let policies: Vec<&PolicyObject> =
                    usable.iter().map(|(policy, _)| &***policy).collect();
                self.render(&authority, &policies, &values).await?;
                Ok(())
            }
        };
        for (policy, _) in &usable {
            let verdict = match &given {
                Ok(()) => Ok(()),
                // What was given before is still in force.
                Err(_) if is_in_force(policy) => continue,
                Err(why) => Err(("NotRendered", why.clone())),
            };
            self.judge(policy, verdict).await?;
        }
        Ok(Next::After(match given {
            Ok(()) => GIVE_AGAIN,
            Err(_) => LOOK_AGAIN,
        }))
    }

    /// A policy says whether it is in force.
    async fn judge(
        &self,
        policy: &Arc<PolicyObject>,
        verdict: Result<(), (&'static str, String)>,
    ) -> Pass<()> {
        let generation = json!(policy.meta.generation);
        let status = match verdict {
            Ok(()) => NewStatus::phase("Active").condition(
                READY,
                true,
                "PolicyRendered",
                "the authority decides by this policy",
            ),
            Err((reason, message)) => {
                NewStatus::phase("Error").condition(READY, false, reason, message)
            }
        };
        let status = status.with("observedGeneration", generation);
        self.say(Kind::SigningPolicy, &policy.meta, &policy.status, &status)
            .await?;
        Ok(())
    }

    /// The values that policies take from Secrets.
    async fn values(&self, policies: &[Arc<PolicyObject>]) -> Pass<Values> {
        let mut values = Values::new();
        for policy in policies {
            for entry in items(policy.spec.get("csrAttributes")) {
                let reference = part(part(entry, "valueFrom"), "secretKeyRef");
                let Some(name) = named(reference, "name") else {
                    continue;
                };
                let key = text(reference, "key");
                let secret = self.secret(&policy.meta.name.beside(name.clone())).await?;
                if let Some(value) = secret.as_ref().and_then(|secret| secret.text(&key)) {
                    values.insert((name, key), value.to_owned());
                }
            }
        }
        Ok(values)
    }

    /// Gives all policies of a CA to the authority that the operator was told of; says why that failed.
    async fn give(
        &self,
        told: &AuthorityAccess,
        authority: &AuthorityObject,
        usable: &[(&Arc<PolicyObject>, Value)],
    ) -> Result<(), String> {
        let policies = usable
            .iter()
            .map(|(policy, spec)| json!({"name": policy.meta.name.name, "spec": spec}));
        // Who has the name gets a role: nobody else may have been quicker.
        let operator = self.index().obtained_by_operator(authority);
        let document = json!({
            "operator": operator,
            "policies": policies.collect::<Vec<_>>(),
        });
        let digest = fingerprint_sha256(document.to_string().as_bytes()).to_hex();
        let name = &authority.meta.name;
        if self.was_given(name, &digest) {
            return Ok(());
        }
        self.put(told, name, &document).await?;
        self.metrics.operator.asked("policies", "done");
        let given = Given {
            digest,
            at: self.now(),
        };
        self.given().insert(name.clone(), given);
        Ok(())
    }

    /// Policies of a CA that was deleted while nobody looked must not decide any longer: whoever the authority has policies of
    /// is looked at, again and again.
    pub(super) async fn look_for_forgotten_policies(&self) {
        loop {
            let pause = match self.published().await {
                Ok(names) => {
                    let scopes = self.index().scopes().to_vec();
                    let is_ours = |name: &ObjectName| {
                        let mut scopes = scopes.iter();
                        scopes.any(|scope| scope.as_ref().is_none_or(|it| *it == name.namespace))
                    };
                    self.wake(names.into_iter().filter(is_ours).map(Key::Policies));
                    GIVE_AGAIN
                }
                Err(why) => {
                    warn!(
                        why,
                        "the authority does not say which signing policies it has"
                    );
                    LOOK_AGAIN
                }
            };
            sleep(pause).await;
        }
    }

    async fn published(&self) -> Result<Vec<ObjectName>, String> {
        let Some(told) = &self.settings.authority else {
            return Ok(Vec::new());
        };
        let mut client = self.administrator(told)?;
        let names = client
            .published()
            .await
            .map_err(|fault| with_causes(&fault))?;
        let names = names.iter().filter_map(|name| name.split_once('/'));
        Ok(names
            .map(|(namespace, name)| ObjectName::new(namespace, name))
            .collect())
    }

    /// Nothing is decided by policies of a CA that is gone, or that somebody else runs.
    async fn withdraw(&self, name: &ObjectName) -> Pass {
        let Some(told) = &self.settings.authority else {
            return Ok(Next::Done);
        };
        if self.was_given(name, WITHDRAWN) {
            return Ok(Next::Done);
        }
        match self.put(told, name, &json!({"policies": []})).await {
            Ok(()) => {
                let given = Given {
                    digest: WITHDRAWN.to_owned(),
                    at: self.now(),
                };
                self.given().insert(name.clone(), given);
                Ok(Next::Done)
            }
            Err(_) => Ok(Next::After(LOOK_AGAIN)),
        }
    }

    async fn put(
        &self,
        told: &AuthorityAccess,
        name: &ObjectName,
        document: &Value,
    ) -> Result<(), String> {
        let failed = |why: String| {
            self.metrics.operator.asked("policies", "failed");
            why
        };
        let mut client = self.administrator(told).map_err(failed)?;
        let path = format!(
            "/enrol/v1/signing-policies/{}/{}",
            segment(&name.namespace),
            segment(&name.name)
        );
        match client.publish(&path, document).await {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Refused { status, body }) => {
                Err(failed(format!("the authority answers {status}: {body}")))
            }
            Err(fault) => Err(failed(with_causes(&fault))),
        }
    }

    /// The authority, with the administrator's credentials.
    fn administrator(&self, told: &AuthorityAccess) -> Result<Box<dyn CaClient>, String> {
        let client = told.trust().and_then(|trust| {
            let identity = told.identity()?;
            let url = told.url.trim_end_matches('/');
            Ok(self.cas.connect(url, &trust, Some(&identity))?)
        });
        client.map_err(|fault| with_causes(&fault))
    }

    fn was_given(&self, name: &ObjectName, digest: &str) -> bool {
        let given = self.given();
        given.get(name).is_some_and(|given| {
            let age = self.now().seconds_since(given.at);
            given.digest == digest && u64::try_from(age).is_ok_and(|age| age < GIVE_AGAIN.as_secs())
        })
    }

    /// Where the operator was told of no authority, the CA that runs in the cluster takes its policies from a Secret.
    async fn render(
        &self,
        authority: &AuthorityObject,
        policies: &[&PolicyObject],
        values: &Values,
    ) -> Pass<()> {
        let all: Vec<Value> = policies
            .iter()
            .map(|policy| rendered(policy, values))
            .collect();
        // JSON is YAML, and nothing in it can be taken for anything else.
        let text = format!("{:#}\n", json!({"policies": all}));
        let existing = self.secret(&authority.own(RENDERED)).await?;
        let data = [("autosign-policy.yaml", text.as_bytes())];
        self.keep(&ca_secret(authority, RENDERED, &data), existing.as_ref())
            .await?;
        Ok(())
    }

    /// Whether another operator renders the policies of a CA in the cluster. It also says of each whether it is in force.
    async fn is_rendered_elsewhere(&self, authority: &AuthorityObject) -> Pass<bool> {
        if self.settings.authority.is_some() {
            return Ok(false);
        }
        let existing = self.secret(&authority.own(RENDERED)).await?;
        let owner = existing
            .as_ref()
            .and_then(|secret| secret.meta.controller());
        Ok(owner.is_some_and(|owner| owner.uid != authority.meta.uid))
    }
}

fn is_in_force(policy: &PolicyObject) -> bool {
    let observed = policy
        .status
        .get("observedGeneration")
        .and_then(Value::as_i64);
    is_true(&policy.status, READY) && observed == Some(policy.meta.generation)
}

/// A policy as the program reads it that decides for a CA in the cluster.
fn rendered(policy: &PolicyObject, values: &Values) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(policy.meta.name.name));
    if policy.spec.get("any") == Some(&Value::Bool(true)) {
        entry.insert("any".to_owned(), json!(true));
        return Value::Object(entry);
    }
    for (key, given) in [
        ("pattern", "pattern"),
        ("pattern", "certnames"),
        ("dnsAltNames", "dnsAltNames"),
    ] {
        if let Some(allow) = policy.spec.get(given).and_then(|it| it.get("allow")) {
            entry.insert(key.to_owned(), json!({"allow": allow}));
        }
    }
    let attributes = items(policy.spec.get("csrAttributes")).map(|attribute| {
        let reference = part(part(attribute, "valueFrom"), "secretKeyRef");
        let of = (text(reference, "name"), text(reference, "key"));
        let value = match values.get(&of) {
            Some(value) => value.clone(),
            None => text(attribute, "value"),
        };
        json!({"name": text(attribute, "name"), "value": value})
    });
    let attributes: Vec<Value> = attributes.collect();
    if !attributes.is_empty() {
        entry.insert("csrAttributes".to_owned(), Value::Array(attributes));
    }
    Value::Object(entry)
}

const READY: &str = "Ready";
/// The end of the name of the Secret from which a CA in the cluster takes its policies.
const RENDERED: &str = "autosign-policy";
/// The digest of nothing that is given.
const WITHDRAWN: &str = "withdrawn";
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// An authority may have been restored from a backup.
const GIVE_AGAIN: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ca_in_the_cluster_reads_has_the_values_of_secrets() {
        let object = json!({
            "metadata": {"namespace": "ns", "name": "yes"},
            "spec": {
                "certificateAuthorityRef": "ca",
                "certnames": {"allow": ["*.example.com", "no"]},
                "csrAttributes": [
                    {"name": "pp_preshared_key", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "pp_environment", "value": "true"},
                ],
            },
        });
        let policy = PolicyObject::read(&object).unwrap();
        let values = Values::from([(
            ("s".to_owned(), "k".to_owned()),
            "secret: \"x\"\n".to_owned(),
        )]);
        assert_eq!(
            rendered(&policy, &values),
            json!({
                "name": "yes",
                "pattern": {"allow": ["*.example.com", "no"]},
                "csrAttributes": [
                    {"name": "pp_preshared_key", "value": "secret: \"x\"\n"},
                    {"name": "pp_environment", "value": "true"},
                ],
            })
        );
        let any = json!({
            "metadata": {"name": "all"},
            "spec": {"certificateAuthorityRef": "ca", "any": true, "pattern": {"allow": ["x"]}},
        });
        let any = PolicyObject::read(&any).unwrap();
        assert_eq!(rendered(&any, &values), json!({"name": "all", "any": true}));
    }
}
