//! `clean`: many names are revoked and taken off the books at once.

use std::collections::HashSet;

use axum::response::Response;
use countersign_authority::RevokeFault;
use countersign_pki::terminal_safe;
use http::StatusCode;
use serde_json::Value;
use tracing::{error, info};

use super::certificate_status::REASON;
use super::{Call, PuppetDoor, answer, faults};

impl PuppetDoor {
    /// Revokes every certificate of the names in the body and retires them. Requests stay.
    pub(super) async fn clean(&self, call: &Call<'_>, body: &[u8]) -> Response {
        let names = match names(body) {
            Ok(names) => names,
            Err(sentence) => {
                return answer::refused(StatusCode::BAD_REQUEST, answer::PLAIN, sentence);
            }
        };
        let (actor, count) = (call.actor(), names.len());
        match self
            .authority()
            .ledger
            .clean(self.issuer(), names, REASON, &actor)
            .await
        {
            Ok(unknown) => {
                info!(count, unknown = unknown.len(), %actor, "cleaned");
                answer::ok(outcome(&unknown))
            }
            Err(RevokeFault::Forbidden(needed)) => call.forbidden(&needed),
            Err(RevokeFault::Engine(fault)) => match faults::broken(&fault) {
                failed if failed.status() == StatusCode::INTERNAL_SERVER_ERROR => failure(&fault),
                later => later,
            },
            Err(
                fault @ (RevokeFault::UnknownIssuer { .. } | RevokeFault::NoCertificate { .. }),
            ) => {
                error!(%fault, "the door's issuer is unknown");
                failure(&fault)
            }
        }
    }
}

/// The names of a body, each once.
fn names(body: &[u8]) -> Result<Vec<String>, &'static str> {
    let body = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Null) | Err(_) => return Err("Request body is not JSON."),
        Ok(body) => body,
    };
    if body.get("async") == Some(&Value::Bool(true)) {
        return Err("Async mode is not currently supported.");
    }
    match body.get("certnames") {
        None | Some(Value::Null) => Err(
            "Missing required key: 'certnames'. Please supply the list of certs you want to clean.",
        ),
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            let mut seen = HashSet::new();
            let names = names.iter().filter_map(Value::as_str);
            Ok(names
                .filter(|name| seen.insert(*name))
                .map(str::to_owned)
                .collect())
        }
        Some(_) => Err("The value of 'certnames' must be a list of strings."),
    }
}

/// The reference writes the list as Clojure prints one.
fn outcome(unknown: &[String]) -> String {
    if unknown.is_empty() {
        return "Successfully cleaned all certs.".to_owned();
    }
    let quoted: Vec<String> = unknown
        .iter()
        .map(|name| format!("\"{}\"", terminal_safe(name).replace('"', "\\\"")))
        .collect();
    answer::masked(format!(
        "The following certs do not exist and cannot be revoked: [{}]",
        quoted.join(" ")
    ))
}

fn failure(fault: &dyn std::error::Error) -> Response {
    let sentence = format!("Error while cleaning certs: {fault}");
    answer::with(StatusCode::INTERNAL_SERVER_ERROR, answer::PLAIN, sentence)
}

pub(super) const MAX_BODY: usize = 1024 * 1024; // some thousands of names, which are one commit

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_the_names_in_them() {
        let missing =
            "Missing required key: 'certnames'. Please supply the list of certs you want to clean.";
        let asynchronous = "Async mode is not currently supported.";
        for (body, expected) in [
            (r#"{"certnames":["a","b","a"]}"#, Ok(&["a", "b"][..])),
            (r#"{"certnames":[],"async":false}"#, Ok(&[])),
            ("", Err("Request body is not JSON.")),
            ("null", Err("Request body is not JSON.")),
            ("certnames", Err("Request body is not JSON.")),
            (r#"{"async":true}"#, Err(asynchronous)),
            (r#"{"certnames":["a"],"async":true}"#, Err(asynchronous)),
            ("{}", Err(missing)),
            (r#"{"certnames":null}"#, Err(missing)),
            (
                r#"{"certnames":"a"}"#,
                Err("The value of 'certnames' must be a list of strings."),
            ),
            (
                r#"{"certnames":["a",7]}"#,
                Err("The value of 'certnames' must be a list of strings."),
            ),
        ] {
            let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
            assert_eq!(names(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn unknown_names_cannot_end_their_quotes() {
        let unknown = ["x".to_owned(), "a\"b\\\u{1b}".to_owned()];
        assert_eq!(
            outcome(&unknown),
            r#"The following certs do not exist and cannot be revoked: ["x" "a\"b\\\u{1b}"]"#
        );
    }
}
