//! One of the two servers, with its users and with what it has answered so far.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::server_process::ServerProcess;
use serde_json::Value;

use super::shape;
use super::table::{self, Step};
use crate::installation::Installation;

/// A server as its users see it.
pub(crate) struct Side<'a> {
    requests: &'a BTreeMap<&'static str, String>,
    objects: BTreeMap<String, Value>,
    users: BTreeMap<&'static str, HttpsClient>,
    kept: BTreeMap<String, Value>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(
        requests: &'a BTreeMap<&'static str, String>,
        anonymous: HttpsClient,
    ) -> Self {
        Self {
            requests,
            objects: table::objects(),
            users: BTreeMap::from([("anonymous", anonymous)]),
            kept: BTreeMap::new(),
        }
    }

    pub(crate) fn add_user(&mut self, alias: &'static str, client: HttpsClient) {
        self.users.insert(alias, client);
    }

    /// Sends all calls; the answers without what must differ.
    pub(crate) fn answers(mut self, steps: &[Step]) -> Vec<Value> {
        steps.iter().map(|step| self.answer(step)).collect()
    }

    fn answer(&mut self, step: &Step) -> Value {
        let answer = match &step.until {
            None => self.send(step),
            Some(path) => {
                let mut last = None;
                let found = ask_again(PATIENCE, || {
                    let answer = self.send(step);
                    let has = |answer: &Answer| {
                        serde_json::from_slice(&answer.body)
                            .is_ok_and(|body: Value| !at(&body, path).is_null())
                    };
                    match answer {
                        Ok(answer) if has(&answer) => Some(answer),
                        other => {
                            last = Some(other);
                            None
                        }
                    }
                });
                match found {
                    Some(answer) => Ok(answer),
                    None => last.unwrap(),
                }
            }
        };
        match answer {
            Ok(answer) => {
                if let Some(name) = &step.keep {
                    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
                    self.kept.insert(name.clone(), body);
                }
                shape::of(&answer, step.owners)
            }
            Err(error) => Value::from(format!("no answer: {error}")),
        }
    }

    /// The reference answers a body that is too long before all of it was sent, and its answer is sometimes lost with
    /// the connection: such a call is made again. That Countersign's answer arrives is tested by itself
    /// (`a_refusal_reaches_a_client_that_is_still_sending`).
    fn send(&self, step: &Step) -> std::io::Result<Answer> {
        let is_cut = |answer: &std::io::Result<Answer>| {
            let cut = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            answer
                .as_ref()
                .is_err_and(|error| cut.contains(&error.kind()))
        };
        let mut answer = self.send_once(step);
        for _ in 0..9 {
            if !is_cut(&answer) {
                break;
            }
            answer = self.send_once(step);
        }
        answer
    }

    fn send_once(&self, step: &Step) -> std::io::Result<Answer> {
        let body = self.filled(&step.body(&self.objects));
        let mut headers: Vec<(String, String)> = Vec::new();
        let json = Some("application/json".to_owned()).filter(|_| !body.is_empty());
        if let Some(kind) = step
            .content_type
            .clone()
            .or(json)
            .filter(|kind| kind != "none")
        {
            headers.push(("Content-Type".to_owned(), kind));
        }
        let accept = step.accept.clone();
        headers.push((
            "Accept".to_owned(),
            accept.unwrap_or_else(|| "application/json".to_owned()),
        ));
        for (name, value) in &step.headers {
            headers.push((name.clone(), self.filled(value)));
        }
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let client = &self.users[step.who.as_str()];
        let path = self.filled(&step.path());
        client.call(step.method(), &path, &headers, body.as_bytes())
    }

    /// Without placeholders: `${request:NAME}` is a PKCS#10 message, `${name.path}` a part of a kept answer.
    fn filled(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (place, after) = behind.split_once('}').unwrap();
            out.push_str(before);
            out.push_str(&self.value(place));
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn value(&self, place: &str) -> String {
        if let Some(name) = place.strip_prefix("request:") {
            let pem = self.requests.get(name);
            return STANDARD.encode(pem.unwrap_or_else(|| panic!("no request {name}")));
        }
        let (name, path) = place.split_once('.').unwrap();
        // A call before has failed on this side: the comparison shows it.
        let found = self.kept.get(name).map(|kept| at(kept, path));
        match found {
            Some(Value::String(text)) => text.clone(),
            Some(other) if !other.is_null() => other.to_string(),
            _ => format!("<no {place}>"),
        }
    }
}

/// `countersign kubeconfig --user U --group G`, and who calls with it.
pub(crate) fn user_of(
    site: &Installation,
    server: &ServerProcess,
    user: &str,
    groups: &[&str],
) -> HttpsClient {
    let mut arguments = vec!["kubeconfig", "--user", user];
    for group in groups {
        arguments.extend(["--group", group]);
    }
    let made = site.run(&arguments);
    assert!(made.success(), "{user}: {made}");
    let config: Value = serde_saphyr::from_str(&made.stdout).unwrap();
    let credentials = &config["users"][0]["user"];
    let field = |name: &str| {
        STANDARD
            .decode(credentials[name].as_str().unwrap())
            .unwrap()
    };
    let pair = (field("client-certificate-data"), field("client-key-data"));
    let ca = fs::read(site.path("issuers/kubernetes/ca_crt.pem")).unwrap();
    HttpsClient::new(address_of(server), &ca, Some((&pair.0, &pair.1))).unwrap()
}

pub(crate) fn anonymous_of(site: &Installation, server: &ServerProcess) -> HttpsClient {
    let ca = fs::read(site.path("issuers/kubernetes/ca_crt.pem")).unwrap();
    HttpsClient::new(address_of(server), &ca, None).unwrap()
}

fn address_of(server: &ServerProcess) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.addresses.kubernetes_port().unwrap()))
}

/// A part of a JSON document, as in `items.0.metadata.name`.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, part| match value {
        Value::Array(items) => {
            let item = part.parse().ok().and_then(|index: usize| items.get(index));
            item.unwrap_or(&Value::Null)
        }
        other => other.get(part).unwrap_or(&Value::Null),
    })
}

/// Alias, name and groups.
pub(crate) const USERS: [(&str, &str, &[&str]); 8] = [
    ("admin", "admin", &["system:masters"]),
    ("jane", "jane", &["developers"]),
    ("asker", "asker", &["askers"]),
    ("approver", "approver", &["approvers"]),
    ("domain-approver", "domain-approver", &[]),
    ("signer", "signer", &["signers"]),
    ("rolemaker", "rolemaker", &[]),
    ("node", "system:node:n1", &["system:nodes"]),
];

const PATIENCE: Duration = Duration::from_secs(60);
