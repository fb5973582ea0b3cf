//! `countersign csr`: requests of every door, over the native API.

use anyhow::{Result, anyhow, bail};
use countersign_policy::{Deciding, Effect, Explanation, Finding, Requester};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{ConfigArg, CsrCommand, Form, ServerArgs, Target};
use crate::client::{Client, Reply, path_segment};
use crate::config::Span;
use crate::output::{self, Facts, Table};

/// Carries a command out.
pub(crate) async fn run(command: CsrCommand) -> Result<()> {
    match command {
        CsrCommand::List {
            door,
            state,
            all,
            output,
            config,
            server,
        } => {
            let mut client = client(&server, &config)?;
            // Requests of some doors let go of their names when they are over; who asks for such states means them.
            let all = all || state.iter().any(|state| OVER.contains(&state.as_str()));
            let none = match all || !state.is_empty() {
                true => "No requests.",
                false => "No requests wait; --all also shows those that are over.",
            };
            let filter = Filter {
                door,
                state: (!state.is_empty()).then(|| state.join(",")),
                name: None,
                all,
            };
            list(&filter.fetch(&mut client).await?, output.form, none)
        }
        CsrCommand::Show { target, output } => {
            let (mut client, place) = find(&target, Scope::Past).await?;
            shown(
                &place.request(&mut client, Method::GET, "", None).await?,
                output.form,
            )
        }
        CsrCommand::Explain { target, output } => {
            let (mut client, place) = find(&target, Scope::Past).await?;
            explained(
                &place.request(&mut client, Method::GET, "", None).await?,
                output.form,
            )
        }
        CsrCommand::Approve {
            target,
            reason,
            lifetime,
            output,
        } => {
            let lifetime = lifetime.map(Span::as_seconds);
            let body = json!({"reason": reason, "lifetime_seconds": lifetime});
            decide(&target, "/approve", &body, output.form).await
        }
        CsrCommand::Deny {
            target,
            reason,
            output,
        } => decide(&target, "/deny", &json!({"reason": reason}), output.form).await,
        CsrCommand::Delete { target } => {
            let (mut client, place) = find(&target, Scope::Live).await?;
            place.request(&mut client, Method::DELETE, "", None).await?;
            said(&format!("{}/{} deleted", place.door, place.name))
        }
    }
}

/// A request, as far as it is shown to people.
#[derive(Debug, Deserialize)]
struct Item {
    id: String,
    door: String,
    name: String,
    state: String,
    signer: String,
    requester: Requester,
    created: String,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    dns_names: Vec<String>,
    #[serde(default)]
    ip_addresses: Vec<String>,
    #[serde(default)]
    emails: Vec<String>,
    #[serde(default)]
    uris: Vec<String>,
    #[serde(default)]
    usages: Vec<String>,
    #[serde(default)]
    expiration_seconds: Option<u64>,
    #[serde(default)]
    key_type: String,
    #[serde(default)]
    key_size: Option<u32>,
    #[serde(default)]
    csr_fingerprint: String,
    #[serde(default)]
    unsignable: Option<String>,
    explanation: Explanation,
    #[serde(default)]
    certificate: Option<Issued>,
}

#[derive(Debug, Deserialize)]
struct Issued {
    issuer: String,
    serial: String,
    not_before: String,
    not_after: String,
    #[serde(default)]
    revoked: Value,
}

impl Item {
    fn read(value: &Value) -> Result<Self> {
        Self::deserialize(value).map_err(|error| {
            anyhow!(error)
                .context("the server's answer cannot be understood; is it of another version?")
        })
    }
}

/// Which requests a listing shows.
struct Filter {
    door: Option<String>,
    state: Option<String>,
    name: Option<String>,
    all: bool,
}

#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Value>,
    #[serde(default)]
    cursor: Option<String>,
}

impl Filter {
    /// Every page of the listing.
    async fn fetch(&self, client: &mut Client) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut path = format!("/enrol/v1/requests?limit={PAGE}");
            let all = self.all.then(|| "true".to_owned());
            let parameters = [
                ("door", &self.door),
                ("state", &self.state),
                ("name", &self.name),
                ("past", &all),
                ("cursor", &cursor),
            ];
            for (name, value) in parameters {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", path_segment(value)));
                }
            }
            let page: Page = accepted(client.get(&path).await?)?.json()?;
            items.extend(page.items);
            match page
                .cursor
                .filter(|next| !next.is_empty() && cursor.as_ref() != Some(next))
            {
                Some(next) => cursor = Some(next),
                None => return Ok(items),
            }
        }
    }
}

/// Which requests a name may mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Those that hold their name, before those that are over.
    Live,
    /// Also those that are over.
    Past,
}

/// A request's place: its door and its name there.
struct Place {
    door: String,
    name: String,
}

impl Place {
    async fn request(
        &self,
        client: &mut Client,
        method: Method,
        act: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let path = format!(
            "/enrol/v1/requests/{}/{}{act}",
            path_segment(&self.door),
            path_segment(&self.name)
        );
        let reply = accepted(client.call(method, &path, body).await?)?;
        if reply.body.is_empty() {
            Ok(Value::Null)
        } else {
            reply.json()
        }
    }
}

pub(super) fn client(server: &ServerArgs, config: &ConfigArg) -> Result<Client> {
    let data = config.data(&server.data)?;
    Client::new(&ServerArgs {
        data,
        ..server.clone()
    })
}

/// The one request that a target means.
async fn find(target: &Target, scope: Scope) -> Result<(Client, Place)> {
    let mut client = client(&target.server, &target.config)?;
    let place = |door: String| Place {
        door,
        name: target.name.clone(),
    };
    if let Some(door) = &target.door {
        return Ok((client, place(door.clone())));
    }
    let mut filter = Filter {
        door: None,
        state: None,
        name: Some(target.name.clone()),
        all: scope == Scope::Past,
    };
    let mut found = filter.fetch(&mut client).await?;
    if found.is_empty() && !filter.all {
        // The server says best why a request that is over cannot be decided.
        filter.all = true;
        found = filter.fetch(&mut client).await?;
    }
    let mut doors = Vec::new();
    for item in found {
        doors.push(Item::read(&item)?.door);
    }
    doors.sort();
    doors.dedup();
    match doors.as_slice() {
        [] => bail!(
            "there is no request {:?}; `countersign csr list` shows those there are",
            target.name
        ),
        [door] => Ok((client, place(door.clone()))),
        several => bail!(
            "{:?} exists at several doors; add --door {}",
            target.name,
            several.join(" or --door ")
        ),
    }
}

async fn decide(target: &Target, act: &str, body: &Value, form: Form) -> Result<()> {
    let (mut client, place) = find(target, Scope::Live).await?;
    let value = place
        .request(&mut client, Method::POST, act, Some(body))
        .await?;
    if form != Form::Table {
        return Ok(output::object(&value, form)?);
    }
    let item = Item::read(&value)?;
    let outcome = match &item.certificate {
        Some(issued) => format!(
            "certificate {} of issuer {}, valid until {}",
            issued.serial, issued.issuer, issued.not_after
        ),
        None => item.explanation.to_string(),
    };
    said(&format!(
        "{}/{} {}: {outcome}",
        item.door, item.name, item.state
    ))
}

fn list(items: &[Value], form: Form, none: &str) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(&json!({"items": items}), form)?);
    }
    if items.is_empty() {
        return said(none);
    }
    let mut table = Table::new(&["DOOR", "NAME", "STATE", "SIGNER", "REQUESTER", "CREATED"]);
    for value in items {
        let item = Item::read(value)?;
        let requester = item.requester.to_string();
        table.row([
            &*item.door,
            &item.name,
            &item.state,
            &item.signer,
            &requester,
            &item.created,
        ]);
    }
    Ok(output::line(&table.text())?)
}

fn shown(value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(value, form)?);
    }
    let item = Item::read(value)?;
    let mut facts = Facts::default();
    facts.add("name", &item.name);
    facts.add("door", &item.door);
    facts.add("id", &item.id);
    facts.add("state", &item.state);
    facts.add("signer", &item.signer);
    facts.add("requester", &item.requester.to_string());
    facts.add("created", &item.created);
    facts.add("subject", &item.subject);
    facts.add("DNS names", &item.dns_names.join(", "));
    facts.add("addresses", &item.ip_addresses.join(", "));
    facts.add("emails", &item.emails.join(", "));
    facts.add("URIs", &item.uris.join(", "));
    facts.add("usages", &item.usages.join(", "));
    let asked = item
        .expiration_seconds
        .map(|seconds| Span::seconds(seconds).to_string());
    facts.add("lifetime", &asked.unwrap_or_default());
    let size = item
        .key_size
        .map(|size| format!(" {size}"))
        .unwrap_or_default();
    facts.add("key", &format!("{}{size}", item.key_type));
    facts.add("fingerprint", &item.csr_fingerprint);
    facts.add("unsignable", &item.unsignable.clone().unwrap_or_default());
    facts.add("decision", &item.explanation.to_string());
    certificate_facts(&item, &mut facts);
    Ok(output::line(&facts.text())?)
}

/// State, who decided, each rule that was asked with what it found, when, under which policy, and the certificate.
fn explained(value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        let part = |name: &str| value.get(name).cloned().unwrap_or(Value::Null);
        let names = [
            "door",
            "name",
            "id",
            "state",
            "unsignable",
            "explanation",
            "certificate",
        ];
        let object: serde_json::Map<String, Value> = names
            .map(|name| (name.to_owned(), part(name)))
            .into_iter()
            .collect();
        return Ok(output::object(&object, form)?);
    }
    Ok(output::line(&explanation_text(&Item::read(value)?))?)
}

fn explanation_text(item: &Item) -> String {
    let explanation = &item.explanation;
    let mut facts = Facts::default();
    facts.add(
        "request",
        &format!("{}/{} ({})", item.door, item.name, item.id),
    );
    facts.add("state", &item.state);
    let verdict = match explanation.effect {
        Effect::Approve => "approved",
        Effect::Deny => "denied",
        Effect::Pending => "undecided",
    };
    facts.add("verdict", verdict);
    match &explanation.by {
        Some(Deciding::Rule { name, .. }) => facts.add("decided by", &format!("rule {name}")),
        Some(Deciding::Person { actor, reason }) => {
            facts.add("decided by", &actor.to_string());
            facts.add("reason", reason);
        }
        Some(Deciding::Profile) => {
            facts.add("decided by", "nobody: the signer could never sign it")
        }
        None => facts.add(
            "decided by",
            "nobody yet; waiting for `countersign csr approve` or `deny`",
        ),
    }
    let at = match explanation.effect {
        Effect::Approve | Effect::Deny => "decided at",
        Effect::Pending => "judged at",
    };
    facts.add(at, &explanation.at.to_string());
    facts.add("policy", &format!("generation {}", explanation.generation));
    if explanation.steps.is_empty() {
        facts.add("rules asked", "none");
    }
    for (index, step) in explanation.steps.iter().enumerate() {
        let finding = match step.finding {
            Finding::Match => "match",
            Finding::Absent => "absent",
            Finding::Mismatch => "mismatch",
            Finding::Unavailable => "unavailable",
            Finding::Skipped => "not asked",
        };
        let reason = if step.reason.is_empty() {
            String::new()
        } else {
            format!(": {}", step.reason)
        };
        let label = if index == 0 { "rules asked" } else { "" };
        facts.add(
            label,
            &format!("{} ({}) {finding}{reason}", step.rule, step.kind),
        );
    }
    facts.add("unsignable", &item.unsignable.clone().unwrap_or_default());
    certificate_facts(item, &mut facts);
    facts.text()
}

fn certificate_facts(item: &Item, facts: &mut Facts) {
    let Some(issued) = &item.certificate else {
        return;
    };
    let Issued {
        issuer,
        serial,
        not_before,
        not_after,
        revoked,
    } = issued;
    facts.add(
        "certificate",
        &format!("{serial} of issuer {issuer}, valid from {not_before} until {not_after}"),
    );
    let revoked = match revoked {
        Value::Null => String::new(),
        revoked => {
            let part = |name| {
                revoked
                    .get(name)
                    .and_then(Value::as_str)
                    .unwrap_or("unknown")
            };
            format!("{} ({})", part("at"), part("reason"))
        }
    };
    facts.add("revoked", &revoked);
}

fn said(text: &str) -> Result<()> {
    Ok(output::line(&countersign_pki::terminal_safe(text))?)
}

/// The reply, or the sentence with which the server refused.
pub(super) fn accepted(reply: Reply) -> Result<Reply> {
    if reply.status.is_success() {
        return Ok(reply);
    }
    let told: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let message = told
        .as_ref()
        .and_then(|value| value.pointer("/error/message")?.as_str());
    let remedy = match reply.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; use an administrator's certificate",
        StatusCode::SERVICE_UNAVAILABLE => "; try again",
        _ => "",
    };
    match message {
        Some(message) => bail!("{message}{remedy}"),
        None => bail!("the server answered {}{remedy}", reply.status),
    }
}

const PAGE: usize = 1000;
/// States from which nothing follows.
const OVER: [&str; 3] = ["issued", "denied", "failed"];

#[cfg(test)]
mod tests {
    use super::*;

    fn item(explanation: Value) -> Value {
        json!({
            "id": "0190-1", "door": "puppet", "name": "web01", "state": "pending", "live": true,
            "signer": "countersign.dev/puppet-agent", "requester": {"identity": {"kind": "anonymous"}, "source": "192.0.2.9"},
            "created": "2026-01-02T03:04:05Z", "explanation": explanation,
        })
    }

    #[test]
    fn an_explanation_names_every_rule_and_who_waits() {
        let value = item(json!({
            "effect": "pending", "at": "2026-01-02T03:04:05Z", "generation": 7,
            "steps": [
                {"rule": "lab", "kind": "allowlist", "finding": "absent"},
                {"rule": "auto\u{1b}sign", "kind": "always", "finding": "mismatch", "reason": "reserved"},
            ],
        }));
        assert_eq!(
            explanation_text(&Item::read(&value).unwrap()),
            "request:      puppet/web01 (0190-1)\n\
             state:        pending\n\
             verdict:      undecided\n\
             decided by:   nobody yet; waiting for `countersign csr approve` or `deny`\n\
             judged at:    2026-01-02T03:04:05Z\n\
             policy:       generation 7\n\
             rules asked:  lab (allowlist) absent\n\
             \x20             auto\\u{1b}sign (always) mismatch: reserved"
        );
    }

    #[test]
    fn an_explanation_names_the_person_and_the_certificate() {
        let mut value = item(json!({
            "effect": "approve", "at": "2026-01-02T03:04:05Z", "generation": 1,
            "by": {"kind": "person", "actor": {"identity": {"kind": "certname", "certname": "boss"}}, "reason": "ticket 1"},
        }));
        value["certificate"] = json!({
            "issuer": "puppet", "serial": "0A", "not_before": "2026-01-01T03:04:05Z", "not_after": "2031-01-01T03:04:05Z",
            "revoked": {"at": "2026-02-01T00:00:00Z", "reason": "unspecified"},
        });
        let text = explanation_text(&Item::read(&value).unwrap());
        for line in [
            "decided by:   boss",
            "reason:       ticket 1",
            "rules asked:  none",
            "certificate:  0A of issuer puppet, valid from 2026-01-01T03:04:05Z until 2031-01-01T03:04:05Z",
            "revoked:      2026-02-01T00:00:00Z (unspecified)",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
