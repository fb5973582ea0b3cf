//! `countersign policy replay`: what another policy would have made of the requests on record.
//!
//! Each request is decided anew with the evidence that was recorded when it was decided, by the function that decides in
//! earnest. What was not recorded is not made up: such a request is undetermined. Nothing is asked and nothing written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use countersign_api::Decision;
use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    AutosignFile, Deciding, Effect, Evidence, Explanation, ListFile, Outcome, Policy, Query,
    RecordedEvidence, RecordedFile, Request, SignerName, TokenFacts, decide,
};
use serde::Serialize;
use serde_json::Value;

use super::complain;
use super::explain::may_have_token;
use crate::built_in;
use crate::cli::{Form, ReplayArgs, ServeArgs};
use crate::commands::csr::{accepted, client, each_page, read, said};
use crate::output::{self, Table};
use crate::policy_files;
use crate::settings::Settings;
use crate::signers;

/// Decides everything anew; the exit code says whether that could be done, not what came out.
pub(super) async fn run(args: &ReplayArgs) -> Result<u8> {
    let settings = settings(args)?;
    let built_in = built_in::policies(&settings.config);
    let set = match policy_files::read_beside(&args.policy, built_in) {
        Ok(set) => set,
        Err(faults) => {
            complain(&faults);
            return Ok(1);
        }
    };
    let lists = policy_files::lists(&set);
    let mut client = client(&args.reach.server, &args.reach.config)?;
    let mut policy = signers::policy(&settings.config, &settings.names)?;
    policy.rules.splice(0..0, set.into_rules());
    let in_force: countersign_api::Policy =
        accepted(client.get("/enrol/v1/policy").await?)?.json()?;
    policy.reserved.names.extend(in_force.reserved_names);
    let replay = Replay { policy, lists };
    let mut report = Report::default();
    let parameters = [
        ("door", args.door.as_deref()),
        ("since", args.since.as_deref()),
    ];
    let mut take = |page: Vec<Value>| {
        for value in page {
            let item: Decision = read(&value)?;
            report.add(replay.again(&item)?, &item, args.all);
        }
        Ok(())
    };
    each_page(&mut client, "decisions", &parameters, &mut take).await?;
    match args.output.form {
        Form::Table => report.print()?,
        form => output::object(&report, form)?,
    }
    Ok(0)
}

/// What adds to policy files. The settings are those of the server, as far as they can be seen from here.
fn settings(args: &ReplayArgs) -> Result<Settings> {
    Settings::new(&ServeArgs {
        config: args.reach.config.file(),
        data: args.reach.server.data.clone(),
        ..ServeArgs::default()
    })
}

/// The changed policy.
struct Replay {
    policy: Policy,
    lists: BTreeMap<PathBuf, ListFile>,
}

/// What came of deciding anew.
enum Again {
    /// No rule decides such a request.
    NotByRules,
    Decided(Box<Explanation>),
    /// Evidence that is needed now was not needed then.
    Undetermined(String),
}

impl Replay {
    fn again(&self, item: &Decision) -> Result<Again> {
        if !by_rules(item) {
            return Ok(Again::NotByRules);
        }
        if item.csr.is_empty() {
            return Ok(Again::Undetermined("its message cannot be read".to_owned()));
        }
        let unreadable = || format!("the request {} cannot be read", item.id);
        let block = pem::decode_first(item.csr.as_bytes(), &PemLimits::BUNDLE);
        let der = block.with_context(unreadable)?.map(|block| block.der);
        let csr = CheckedCsr::trusted_from_store(&der.unwrap_or_default());
        let csr = csr.with_context(unreadable)?;
        let signer = SignerName::parse(&item.signer).with_context(unreadable)?;
        let request = Request {
            csr: &csr,
            key: &item.name,
            name: match item.door.as_str() {
                PUPPET => &item.name,
                _ => csr.subject().common_names().last().unwrap_or_default(),
            },
            door: &item.door,
            signer: &signer,
            requester: &item.requester,
            wishes: &item.wishes,
            at: item.created,
            renewal: false,
            pod: None,
        };
        // When a person decided, the rules had been asked at the arrival.
        let now = match item.explanation.by {
            Some(Deciding::Person { .. }) => item.created,
            Some(Deciding::Rule { .. } | Deciding::Profile) | None => item.explanation.at,
        };
        let mut evidence = Evidence::none().with_person(None);
        if item.evidence.token.is_none() && !may_have_token(&item.requester, &csr) {
            evidence = evidence.with_token(Ok(TokenFacts::Missing), 0);
        }
        for _ in 0..MAX_ROUNDS {
            match decide(&self.policy, &request, &evidence, now) {
                Outcome::Done(verdict) => {
                    return Ok(Again::Decided(Box::new(verdict.explanation().clone())));
                }
                Outcome::Need(queries) => {
                    for query in queries {
                        evidence = match self.answer(query, &item.evidence, evidence) {
                            Ok(evidence) => evidence,
                            Err(missing) => return Ok(Again::Undetermined(missing)),
                        };
                    }
                }
            }
        }
        Ok(Again::Undetermined(
            "the decision does not come to an end".to_owned(),
        ))
    }

    /// The answer on record; an error says what is not. Lists are part of the policy: they are read as they are now.
    fn answer(
        &self,
        query: Query,
        recorded: &RecordedEvidence,
        evidence: Evidence,
    ) -> Result<Evidence, String> {
        match query {
            Query::Person => Ok(evidence.with_person(None)),
            Query::AutosignFile(path) => {
                let file = match (policy_files::autosign(&path), recorded.files.get(&path)) {
                    (
                        AutosignFile::Missing,
                        Some(RecordedFile::List | RecordedFile::Executable),
                    ) => {
                        return Err(format!("{} is not on this machine", path.display()));
                    }
                    (file, _) => file,
                };
                Ok(evidence.with_file(path, file, 0))
            }
            Query::Allowlist(path) => {
                let list = self.lists.get(&path).cloned();
                let list = list.ok_or_else(|| format!("{} was not read", path.display()))?;
                Ok(evidence.with_list(path, list, 0))
            }
            Query::Execution(executable) => {
                let said = recorded.executions.get(&executable.path).cloned();
                let path = executable.path;
                let said = said.ok_or_else(|| format!("{} was not run", path.display()))?;
                Ok(evidence.with_execution(path, said, 0))
            }
            Query::Webhook(webhook) => {
                let said = recorded.webhooks.get(&webhook.url).cloned();
                let said = said.ok_or_else(|| format!("{} was not asked", webhook.address()))?;
                Ok(evidence.with_webhook(Arc::clone(&webhook), said, 0))
            }
            Query::Machine => {
                let machine = recorded.machine.clone();
                let machine = machine.ok_or("the inventory was not asked")?;
                Ok(evidence.with_machine(Ok(machine), 0))
            }
            Query::Window => {
                let window = recorded.window.clone();
                let window = window.ok_or("build windows were not asked for")?;
                Ok(evidence.with_window(Ok(window), 0))
            }
            Query::Ledger => {
                let ledger = recorded.ledger.clone();
                let ledger = ledger.ok_or("the ledger was not asked")?;
                Ok(evidence.with_ledger(Ok(ledger), 0))
            }
            Query::Token => {
                let token = recorded.token.clone();
                let token = token.ok_or("nobody looked for an enrolment token")?;
                Ok(evidence.with_token(Ok(token), 0))
            }
            Query::SubjectAccess(question) => {
                let said = recorded.access(&question).cloned();
                let said = said.ok_or_else(|| format!("nobody asked who may {question}"))?;
                Ok(evidence.with_access(question, said, 0))
            }
            Query::Cluster(query) => Err(format!("{query} was not recorded")),
        }
    }
}

/// What the authority makes for itself, renews, or could never sign is no matter of rules.
fn by_rules(item: &Decision) -> bool {
    let by_other = match &item.explanation.by {
        Some(Deciding::Rule { name, policy }) => name == RENEWAL && policy.is_empty(),
        Some(Deciding::Profile) => true,
        Some(Deciding::Person { .. }) | None => false,
    };
    !by_other && item.door != LOCAL
}

/// Everything that was decided anew.
#[derive(Debug, Default, Serialize)]
struct Report {
    summary: Summary,
    items: Vec<Row>,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    /// Requests that rules decide.
    requests: usize,
    changed: usize,
    unchanged: usize,
    undetermined: usize,
    /// Requests on record that no rule decides.
    not_by_rules: usize,
}

/// One request.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    door: String,
    name: String,
    created: UnixTime,
    outcome: RowOutcome,
    before: Side,
    after: Option<Side>,
    /// What was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    undetermined: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RowOutcome {
    Changed,
    Unchanged,
    Undetermined,
}

/// What rules said.
#[derive(Debug, Serialize)]
struct Side {
    effect: Effect,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    code: String,
    /// Who decided what the rules had left to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    person: Option<String>,
    why: String,
}

impl Side {
    fn of(explanation: &Explanation) -> Self {
        let why = explanation.steps.last().map(|step| step.reason.clone());
        let why = why.unwrap_or_default();
        let side = |effect, code: &str| Self {
            effect,
            policy: None,
            rule: None,
            code: code.to_owned(),
            person: None,
            why: why.clone(),
        };
        match &explanation.by {
            Some(Deciding::Rule { name, policy }) => Self {
                policy: Some(policy.clone()).filter(|policy| !policy.is_empty()),
                rule: Some(name.clone()),
                ..side(explanation.effect, explanation.code.as_str())
            },
            Some(Deciding::Person { actor, .. }) => Self {
                person: Some(format!("{} by {actor}", done(explanation.effect))),
                ..side(Effect::Pending, "")
            },
            Some(Deciding::Profile) | None => side(Effect::Pending, explanation.code.as_str()),
        }
    }

    fn text(&self) -> String {
        let effect = match self.effect {
            Effect::Approve => "approve",
            Effect::Deny => "deny",
            Effect::Pending => "pending",
        };
        match (&self.rule, &self.person) {
            (Some(rule), _) => format!("{effect} ({rule})"),
            (None, Some(person)) => format!("{effect} ({person})"),
            (None, None) => effect.to_owned(),
        }
    }
}

fn done(effect: Effect) -> &'static str {
    match effect {
        Effect::Approve => "approved",
        Effect::Deny => "denied",
        Effect::Pending => "left",
    }
}

impl Report {
    fn add(&mut self, again: Again, item: &Decision, all: bool) {
        let before = Side::of(&item.explanation);
        let (after, undetermined) = match again {
            Again::NotByRules => {
                self.summary.not_by_rules = self.summary.not_by_rules.saturating_add(1);
                return;
            }
            Again::Decided(explanation) => (Some(Side::of(&explanation)), None),
            Again::Undetermined(missing) => (None, Some(missing)),
        };
        self.summary.requests = self.summary.requests.saturating_add(1);
        let outcome = match &after {
            None => RowOutcome::Undetermined,
            Some(after) if after.effect == before.effect => RowOutcome::Unchanged,
            Some(_) => RowOutcome::Changed,
        };
        let count = match outcome {
            RowOutcome::Changed => &mut self.summary.changed,
            RowOutcome::Unchanged => &mut self.summary.unchanged,
            RowOutcome::Undetermined => &mut self.summary.undetermined,
        };
        *count = count.saturating_add(1);
        if all || outcome != RowOutcome::Unchanged {
            self.items.push(Row {
                id: item.id.clone(),
                door: item.door.clone(),
                name: item.name.clone(),
                created: item.created,
                outcome,
                before,
                after,
                undetermined,
            });
        }
    }

    fn print(&self) -> Result<()> {
        if !self.items.is_empty() {
            let mut table = Table::new(&["DOOR", "NAME", "CREATED", "BEFORE", "AFTER", "WHY"]);
            for row in &self.items {
                let (after, why) = match (&row.after, &row.undetermined) {
                    (Some(after), _) => (after.text(), after.why.clone()),
                    (None, missing) => (
                        "undetermined".to_owned(),
                        missing.clone().unwrap_or_default(),
                    ),
                };
                table.row([
                    &*row.door,
                    &row.name,
                    &row.created.to_string(),
                    &row.before.text(),
                    &after,
                    &why,
                ]);
            }
            output::line(&table.text())?;
        }
        let Summary {
            requests,
            changed,
            unchanged,
            undetermined,
            not_by_rules,
        } = self.summary;
        said(&format!(
            "{requests} requests decided anew: {changed} would change, {unchanged} would not, {undetermined} undetermined; \
             {not_by_rules} others are no matter of rules"
        ))
    }
}

const MAX_ROUNDS: usize = 4096;
/// The rule by which every renewal is approved.
const RENEWAL: &str = "renewal";
/// Where the name at the door is the certificate's.
const PUPPET: &str = "puppet";
/// What the authority makes for itself.
const LOCAL: &str = "local";

#[cfg(test)]
mod tests {
    use countersign_policy::{Rule, RuleKind};
    use countersign_testkit::csr::{CsrBuilder, TOKEN};
    use countersign_testkit::keys;
    use serde_json::json;

    use super::*;

    /// What a policy of one token rule makes of a request that waited, with this on record of its token.
    fn again(csr: &CsrBuilder, identity: Value, evidence: Value) -> String {
        let item = json!({
            "id": "1", "door": "puppet", "name": "web01", "state": "pending", "signer": SIGNER, "wishes": {},
            "requester": {"identity": identity},
            "created": "2026-01-02T03:04:05Z",
            "explanation": {"effect": "pending", "at": "2026-01-02T03:04:05Z", "generation": 1},
            "evidence": evidence,
            "csr": csr.sign_pem(keys::p256_a()),
        });
        let item: Decision = serde_json::from_value(item).unwrap();
        let signer = SignerName::parse(SIGNER).unwrap();
        let policy = Policy {
            rules: vec![Rule::approving("token", vec![signer], RuleKind::Token)],
            ..Policy::default()
        };
        let lists = BTreeMap::new();
        match (Replay { policy, lists }).again(&item).unwrap() {
            Again::NotByRules => "not by rules".to_owned(),
            Again::Undetermined(missing) => missing,
            Again::Decided(said) => format!("{:?} {}", said.effect, said.code),
        }
    }

    #[test]
    fn a_token_is_what_it_was_when_the_request_came() {
        let plain = || CsrBuilder::new("web01");
        let with_token = || plain().challenge_password(TOKEN);
        let anonymous = || json!({"kind": "anonymous"});
        let user = || json!({"kind": "user", "username": "system:bootstrap:a", "groups": []});
        let token = |uses: u32| {
            json!({"token": {
                "found": "known", "id": "aaaqeayeaudaocaj", "maxUses": 1, "uses": uses,
                "binding": {"kind": "exact", "value": "web01"},
                "notBefore": "2026-01-02T00:00:00Z", "expiresAt": "2026-01-02T04:00:00Z",
            }})
        };
        let unknown = json!({"token": {"found": "unknown", "id": "aaaqeayeaudaocaj"}});
        let nobody_looked = "nobody looked for an enrolment token";
        for (case, csr, identity, evidence, came) in [
            (
                "good then",
                with_token(),
                anonymous(),
                token(0),
                "Approve token",
            ),
            (
                "used up then",
                with_token(),
                anonymous(),
                token(1),
                "Deny token_exhausted",
            ),
            (
                "unknown then",
                with_token(),
                anonymous(),
                unknown,
                "Deny token_unknown",
            ),
            (
                "nobody looked",
                with_token(),
                anonymous(),
                json!({}),
                nobody_looked,
            ),
            (
                "a user may have shown one",
                plain(),
                user(),
                json!({}),
                nobody_looked,
            ),
            (
                "there was none",
                plain(),
                anonymous(),
                json!({}),
                "Pending token_missing",
            ),
        ] {
            assert_eq!(again(&csr, identity, evidence), came, "{case}");
        }
    }

    const SIGNER: &str = "countersign.dev/puppet-agent";
}
