//! `countersign csr`: requests of every door, over the native API.

use anyhow::{Context as _, Result, bail};
use countersign_api::{Approval, Certificate, Denial, ErrorBody, Issued, Page, Request};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::{ConfigArg, CsrCommand, Form, ServerArgs, Target};
use crate::client::{Client, Reply, client_of, path_segment};
use crate::config::Span;
use crate::explanation;
use crate::output::{self, Facts, Table};

/// Carries a command out.
pub(crate) async fn run(command: CsrCommand) -> Result<()> {
    match command {
        CsrCommand::List {
            door,
            state,
            reason,
            since,
            all,
            output,
            config,
            server,
        } => {
            let mut client = client(&server, &config)?;
            // Requests of some doors let go of their names when they are over; who asks for such states means them.
            let all =
                all || reason.is_some() || state.iter().any(|state| OVER.contains(&state.as_str()));
            let waiting = !all && state.is_empty();
            let none = match waiting {
                false => "No requests.",
                true => "No requests wait; --all also shows those that are over.",
            };
            let filter = Filter {
                door,
                state: (!state.is_empty()).then(|| state.join(",")),
                name: None,
                reason,
                since,
                all,
                waiting,
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
            let (mut client, place) = look_for(&target, Scope::Past).await?;
            match place {
                Some(place) => explained(
                    &place.request(&mut client, Method::GET, "", None).await?,
                    output.form,
                ),
                None => explained_by_ledger(&mut client, &target.name, output.form).await,
            }
        }
        CsrCommand::Approve {
            target,
            reason,
            lifetime,
            output,
        } => {
            let body = Approval {
                reason,
                lifetime_seconds: lifetime.map(Span::as_seconds),
            };
            decide(&target, "/approve", &json!(body), output.form).await
        }
        CsrCommand::Deny {
            target,
            reason,
            output,
        } => decide(&target, "/deny", &json!(Denial { reason }), output.form).await,
        CsrCommand::Delete { target } => {
            let (mut client, place) = find(&target, Scope::Live).await?;
            place.request(&mut client, Method::DELETE, "", None).await?;
            said(&format!("{}/{} deleted", place.door, place.name))
        }
    }
}

/// Which requests a listing shows.
struct Filter {
    door: Option<String>,
    state: Option<String>,
    name: Option<String>,
    reason: Option<String>,
    since: Option<String>,
    all: bool,
    waiting: bool,
}

impl Filter {
    /// Every page of the listing.
    async fn fetch(&self, client: &mut Client) -> Result<Vec<Value>> {
        let all = self.all.then_some("true");
        let parameters = [
            ("door", self.door.as_deref()),
            ("state", self.state.as_deref()),
            ("name", self.name.as_deref()),
            ("reason", self.reason.as_deref()),
            ("since", self.since.as_deref()),
            ("past", all),
            ("waiting", self.waiting.then_some("true")),
        ];
        pages(client, "requests", &parameters).await
    }
}

/// Everything that a listing of the native API has.
pub(super) async fn pages(
    client: &mut Client,
    listing: &str,
    parameters: &[(&str, Option<&str>)],
) -> Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut take = |page| {
        items.extend(page);
        Ok(())
    };
    each_page(client, listing, parameters, &mut take).await?;
    Ok(items)
}

/// Every page of a listing, one after the other.
pub(super) async fn each_page(
    client: &mut Client,
    listing: &str,
    parameters: &[(&str, Option<&str>)],
    take: &mut dyn FnMut(Vec<Value>) -> Result<()>,
) -> Result<()> {
    let mut cursor: Option<String> = None;
    loop {
        let mut path = format!("/enrol/v1/{listing}?limit={PAGE}");
        for (name, value) in parameters.iter().chain(&[("cursor", cursor.as_deref())]) {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", path_segment(value)));
            }
        }
        let page: Page<Value> = accepted(client.get(&path).await?)?.json()?;
        take(page.items)?;
        match page
            .cursor
            .filter(|next| !next.is_empty() && cursor.as_ref() != Some(next))
        {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
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
struct Named {
    door: String,
    name: String,
}

impl Named {
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
            Ok(reply.json()?)
        }
    }
}

pub(super) fn client(server: &ServerArgs, config: &ConfigArg) -> Result<Client> {
    let data = config.data(&server.data)?;
    client_of(&ServerArgs {
        data,
        ..server.clone()
    })
}

/// The one request that a target means.
async fn find(target: &Target, scope: Scope) -> Result<(Client, Named)> {
    let (client, found) = look_for(target, scope).await?;
    Ok((client, found.with_context(|| no_request(&target.name))?))
}

fn no_request(name: &str) -> String {
    format!("there is no request {name:?}; `countersign csr list` shows those there are")
}

/// The same, if there is one.
async fn look_for(target: &Target, scope: Scope) -> Result<(Client, Option<Named>)> {
    let mut client = client(&target.server, &target.config)?;
    let place = |door: String| Named {
        door,
        name: target.name.clone(),
    };
    if let Some(door) = &target.door {
        return Ok((client, Some(place(door.clone()))));
    }
    let mut filter = Filter {
        door: None,
        state: None,
        name: Some(target.name.clone()),
        reason: None,
        since: None,
        all: scope == Scope::Past,
        waiting: false,
    };
    let mut found = filter.fetch(&mut client).await?;
    if found.is_empty() && !filter.all {
        // The server says best why a request that is over cannot be decided.
        filter.all = true;
        found = filter.fetch(&mut client).await?;
    }
    let mut doors = Vec::new();
    for item in found {
        doors.push(read::<Request>(&item)?.door);
    }
    doors.sort();
    doors.dedup();
    match doors.as_slice() {
        [] => Ok((client, None)),
        [door] => Ok((client, Some(place(door.clone())))),
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
    let item: Request = read(&value)?;
    let outcome = match &item.certificate {
        Some(issued) => format!(
            "certificate {} of issuer {}, valid until {}",
            issued.serial, issued.issuer, issued.not_after
        ),
        None => item.explanation.to_string(),
    };
    said(&format!(
        "{}/{} {}: {outcome}",
        item.door,
        item.name,
        item.state.word()
    ))
}

fn list(items: &[Value], form: Form, none: &str) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(&json!({"items": items}), form)?);
    }
    if items.is_empty() {
        return said(none);
    }
    let mut table = Table::new(&[
        "DOOR",
        "NAME",
        "STATE",
        "SIGNER",
        "REQUESTER",
        "CREATED",
        "REASON",
        "KEY FINGERPRINT",
    ]);
    for value in items {
        let item: Request = read(value)?;
        let requester = item.requester.to_string();
        table.row([
            &*item.door,
            &item.name,
            item.state.word(),
            &item.signer,
            &requester,
            &item.created.to_string(),
            match item.unreadable {
                Some(_) => "unreadable",
                None => item.explanation.code.as_str(),
            },
            &item.key_fingerprint,
        ]);
    }
    Ok(output::line(&table.text())?)
}

fn shown(value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(value, form)?);
    }
    let item: Request = read(value)?;
    let mut facts = Facts::default();
    facts.add("name", &item.name);
    facts.add("door", &item.door);
    facts.add("id", &item.id);
    facts.add("state", item.state.word());
    facts.add("signer", &item.signer);
    facts.add("requester", &item.requester.to_string());
    facts.add("created", &item.created.to_string());
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
    facts.add("key", &format!("{} {}", item.key_type, item.key_size));
    facts.add("key fingerprint", &item.key_fingerprint);
    facts.add("fingerprint", &item.csr_fingerprint);
    facts.add("unsignable", &item.unsignable.clone().unwrap_or_default());
    facts.add("unreadable", &item.unreadable.clone().unwrap_or_default());
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
    Ok(output::line(&explanation_text(&read(value)?))?)
}

/// What the ledger knows of a name for which nobody has asked here: its certificate was taken over from another authority.
async fn explained_by_ledger(client: &mut Client, name: &str, form: Form) -> Result<()> {
    let listed = pages(client, "certificates", &[("name", Some(name))]).await?;
    let first = listed.first().with_context(|| no_request(name))?;
    let Issued { issuer, serial, .. } = read::<Certificate>(first)?.issued;
    let path = format!("/enrol/v1/certificates/{}/{serial}", path_segment(&issuer));
    let value: Value = accepted(client.get(&path).await?)?.json()?;
    if form != Form::Table {
        return Ok(output::object(&value, form)?);
    }
    let item: Certificate = read(&value)?;
    let mut facts = Facts::default();
    facts.add("name", &item.name);
    facts.add("request", "none here: the certificate was taken over");
    facts.add("signer", &item.signer);
    if let Some(explanation) = &item.explanation {
        explanation::add(explanation, &mut facts);
    }
    issued_facts(&item.issued, &mut facts);
    Ok(output::line(&facts.text())?)
}

fn explanation_text(item: &Request) -> String {
    let mut facts = Facts::default();
    facts.add(
        "request",
        &format!("{}/{} ({})", item.door, item.name, item.id),
    );
    facts.add("state", item.state.word());
    explanation::add(&item.explanation, &mut facts);
    facts.add("unsignable", &item.unsignable.clone().unwrap_or_default());
    certificate_facts(item, &mut facts);
    facts.text()
}

fn certificate_facts(item: &Request, facts: &mut Facts) {
    if let Some(issued) = &item.certificate {
        issued_facts(issued, facts);
    }
}

fn issued_facts(issued: &Issued, facts: &mut Facts) {
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
    let revoked = revoked
        .as_ref()
        .map(|revoked| format!("{} ({})", revoked.at, revoked.reason))
        .unwrap_or_default();
    facts.add("revoked", &revoked);
}

pub(super) fn said(text: &str) -> Result<()> {
    Ok(output::line(&countersign_pki::terminal_safe(text))?)
}

/// An object of the native API, whose JSON may also be shown as it is.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value)
        .context("the server's answer cannot be understood; is it of another version?")
}

/// The reply, or the sentence with which the server refused.
pub(super) fn accepted(reply: Reply) -> Result<Reply> {
    if reply.status.is_success() {
        return Ok(reply);
    }
    let told: Option<ErrorBody> = serde_json::from_slice(&reply.body).ok();
    let remedy = match reply.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; use an administrator's certificate, or one that has a role"
        }
        StatusCode::SERVICE_UNAVAILABLE => "; try again",
        _ => "",
    };
    match told.map(|body| body.error.message) {
        Some(message) => bail!("{message}{remedy}"),
        None => bail!("the server answered {}{remedy}", reply.status),
    }
}

const PAGE: usize = 1000;
/// States from which nothing follows.
const OVER: [&str; 4] = ["issued", "denied", "failed", "undecided"];

#[cfg(test)]
mod tests {
    use super::*;

    fn item(explanation: Value) -> Value {
        json!({
            "id": "0190-1", "door": "puppet", "name": "web01", "state": "pending", "live": true,
            "signer": "countersign.dev/puppet-agent", "requester": {"identity": {"kind": "anonymous"}, "source": "192.0.2.9"},
            "created": "2026-01-02T03:04:05Z", "subject": "CN=web01", "dns_names": [], "ip_addresses": [], "emails": [], "uris": [],
            "usages": [], "key_type": "ec", "key_size": 256, "csr_fingerprint": "AA", "key_fingerprint": "BB",
            "explanation": explanation,
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
            explanation_text(&read(&value).unwrap()),
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
        let text = explanation_text(&read(&value).unwrap());
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
