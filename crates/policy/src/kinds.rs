//! What each kind of rule looks at, and what it finds there.

use std::borrow::Cow;
use std::path::Path;

use countersign_pki::{AltName, UnixTime};

use crate::allowlist::{Allowlist, Apex};
use crate::decide::holds;
use crate::evidence::{AutosignFile, Evidence, Query};
use crate::expression::Expression;
use crate::facts::{BuildWindow, Execution, ListFile, WebhookAnswer};
use crate::machine;
use crate::reason::ReasonCode;
use crate::request::Request;
use crate::rules::{
    Executable, ListSource, MachineRule, Policy, Rule, RuleEffect, RuleKind, Webhook,
};
use crate::token::{self, OnToken, TokenFacts};
use crate::verdict::{Finding, Use};

/// What one kind found.
pub(crate) struct Checked {
    pub(crate) finding: Finding,
    pub(crate) code: ReasonCode,
    pub(crate) reason: String,
    pub(crate) saw: String,
    pub(crate) micros: u64,
    /// Whether it is worth asking again.
    pub(crate) retry: bool,
    /// How it ends the decision, whatever the rule says of a finding.
    pub(crate) ending: Option<Ending>,
    pub(crate) lifetime: Option<u64>,
    pub(crate) uses: Vec<Use>,
    pub(crate) failed: Vec<String>,
    /// The kind's word where it is known only now.
    pub(crate) kind: Option<&'static str>,
}

/// How what a kind found ends a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The request is denied.
    Deny,
    /// It waits for a person: no later rule is asked.
    Wait,
}

impl Checked {
    pub(crate) fn new(finding: Finding, code: ReasonCode, reason: String) -> Self {
        Self {
            finding,
            code,
            reason,
            saw: String::new(),
            micros: 0,
            retry: false,
            ending: None,
            lifetime: None,
            uses: Vec::new(),
            failed: Vec::new(),
            kind: None,
        }
    }

    pub(crate) fn matching(code: ReasonCode, reason: String) -> Self {
        Self::new(Finding::Match, code, reason)
    }

    pub(crate) fn absent(code: ReasonCode, reason: String) -> Self {
        Self::new(Finding::Absent, code, reason)
    }

    pub(crate) fn mismatch(code: ReasonCode, reason: String) -> Self {
        Self::new(Finding::Mismatch, code, reason)
    }

    pub(crate) fn unavailable(code: ReasonCode, reason: String) -> Self {
        Self {
            retry: true,
            ..Self::new(Finding::Unavailable, code, reason)
        }
    }
}

/// One rule looking at one request.
pub(crate) struct Looking<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) request: &'a Request<'a>,
    pub(crate) evidence: &'a Evidence,
    pub(crate) now: UnixTime,
    pub(crate) policy: &'a Policy,
}

pub(crate) type Found = Result<Checked, Vec<Query>>;

impl Looking<'_> {
    /// What one kind finds. `Err`: it needs these first.
    pub(crate) fn at(&self, kind: &RuleKind) -> Found {
        match kind {
            RuleKind::Always => Ok(Checked::matching(ReasonCode::Always, String::new())),
            RuleKind::Cel(expression) => self.expression(expression),
            RuleKind::Allowlist(source) => self.allowlist(source),
            RuleKind::Window => self.window(),
            RuleKind::Token => self.token(),
            RuleKind::SubjectAccess(question) => self.subject_access(question),
            RuleKind::SigningPolicy => Ok(self.signing_policy()),
            RuleKind::Machine(rule) => self.machine(*rule),
            RuleKind::NodeClient(rule) => self.node_client(rule),
            RuleKind::NodeServing(rule) => self.node_serving(rule),
            RuleKind::Executable(executable) => self.executable(executable),
            RuleKind::Webhook(webhook) => self.webhook(webhook),
            RuleKind::AutosignFile { path, apex } => self.autosign(path, *apex),
        }
    }

    fn signing_policy(&self) -> Checked {
        let policies = &self.policy.signing_policies;
        match policies.permit(self.request.name, self.request.csr) {
            Ok(name) => Checked {
                saw: name.to_owned(),
                ..Checked::matching(
                    ReasonCode::SigningPolicy,
                    format!("SigningPolicy {name} permits it"),
                )
            },
            Err(why) => Checked::absent(ReasonCode::NoSigningPolicy, why),
        }
    }

    fn expression(&self, expression: &Expression) -> Found {
        let held = holds(expression, self.request, self.evidence, self.now)?;
        let source = short(expression.source());
        Ok(match held {
            Ok((true, saw)) => Checked {
                saw,
                ..Checked::matching(ReasonCode::Cel, format!("holds: {source}"))
            },
            Ok((false, saw)) => Checked {
                saw,
                ..Checked::absent(ReasonCode::Cel, format!("does not hold: {source}"))
            },
            Err(checked) => checked,
        })
    }

    fn allowlist(&self, source: &ListSource) -> Found {
        let (list, saw, micros) = match source {
            ListSource::Names(list) => (list, String::new(), 0),
            ListSource::File(path) => {
                let Some(file) = self.evidence.list(path) else {
                    return Err(vec![Query::Allowlist(path.clone())]);
                };
                match &file.value {
                    ListFile::List(list) => (list, path.display().to_string(), file.micros),
                    ListFile::Unusable(why) => {
                        return Ok(Checked {
                            micros: file.micros,
                            ..Checked::unavailable(ReasonCode::AllowlistUnreadable, why.clone())
                        });
                    }
                }
            }
        };
        let checked = match self.rule.effect {
            RuleEffect::Approve => self.on_list(list, Apex::Excluded),
            RuleEffect::Deny => self.on_deny_list(list),
        };
        Ok(Checked {
            micros,
            saw,
            ..checked
        })
    }

    /// A list that denies: no name of the request may be on it, however it is written, and a line that means nothing
    /// might have meant this one.
    fn on_deny_list(&self, list: &Allowlist) -> Checked {
        if !list.is_clean() {
            let reason = "the list has lines that mean nothing".to_owned();
            return Checked::unavailable(ReasonCode::AllowlistUnreadable, reason);
        }
        let csr = self.request.csr;
        let common_names = csr.subject().common_names();
        let mut names = [self.request.name, self.request.key]
            .into_iter()
            .chain(common_names)
            .chain(csr.alt_names().iter().filter_map(|name| match name {
                AltName::Dns(name) => Some(name.as_str()),
                AltName::Ip(_) | AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => {
                    None
                }
            }));
        match names.find_map(|name| list.covering(name)) {
            Some(pattern) => {
                Checked::matching(ReasonCode::Allowlist, format!("{pattern} is on the list"))
            }
            None => Checked::absent(ReasonCode::NotListed, "not on the list".to_owned()),
        }
    }

    fn on_list(&self, list: &Allowlist, apex: Apex) -> Checked {
        match list.matching(self.request.name, apex) {
            Some(pattern) => {
                Checked::matching(ReasonCode::Allowlist, format!("{pattern} is on the list"))
            }
            None => Checked::absent(ReasonCode::NotListed, "not on the list".to_owned()),
        }
    }

    fn window(&self) -> Found {
        let Some(window) = self.evidence.window() else {
            return Err(vec![Query::Window]);
        };
        let checked = match &window.value {
            Err(why) => Checked::unavailable(ReasonCode::StoreUnavailable, why.clone()),
            Ok(None) => Checked::absent(
                ReasonCode::WindowClosed,
                "no build window is open".to_owned(),
            ),
            Ok(Some(window)) => self.in_window(window)?,
        };
        Ok(Checked {
            micros: checked.micros.saturating_add(window.micros),
            ..checked
        })
    }

    fn in_window(&self, window: &BuildWindow) -> Found {
        let now = self.now;
        let BuildWindow {
            opens_at,
            closes_at,
            max_issuances,
            issuances,
            ..
        } = window;
        let saw =
            format!("window from {opens_at} to {closes_at}, {issuances} of {max_issuances} used");
        let closed = |reason| Checked::absent(ReasonCode::WindowClosed, reason);
        let checked = if now < *opens_at {
            closed(format!("the build window opens at {opens_at}"))
        } else if now >= *closes_at {
            closed(format!("the build window closed at {closes_at}"))
        } else if issuances >= max_issuances {
            closed("the build window is used up".to_owned())
        } else {
            let used = Use::Window {
                certname: window.certname.clone(),
                closes: issuances.saturating_add(1) >= *max_issuances,
                with_token: window.require_token,
            };
            match (window.require_token, self.rule.effect) {
                (true, RuleEffect::Approve) => self.in_window_with_token(used)?,
                (false, RuleEffect::Approve) => Checked {
                    uses: vec![used],
                    ..Checked::matching(
                        ReasonCode::Window,
                        "a build window without token is open".to_owned(),
                    )
                },
                // What is denied while a window is open is not let through by a token.
                (_, RuleEffect::Deny) => {
                    Checked::matching(ReasonCode::Window, "a build window is open".to_owned())
                }
            }
        };
        Ok(Checked { saw, ..checked })
    }

    /// A window that wants a token beside the name: what the token comes to, the window comes to.
    fn in_window_with_token(&self, used: Use) -> Found {
        if self.asks_for_token() {
            return Ok(Checked {
                uses: vec![used],
                ..Checked::matching(ReasonCode::Window, "a build window is open".to_owned())
            });
        }
        let mut token = self.token()?;
        match token.finding {
            Finding::Match => {
                token.uses.push(used);
                Ok(Checked {
                    code: ReasonCode::Window,
                    reason: format!("a build window is open; {}", token.reason),
                    ..token
                })
            }
            Finding::Absent | Finding::Skipped => {
                let reason = "the build window wants an enrolment token beside the name".to_owned();
                Ok(Checked::absent(ReasonCode::WindowNeedsToken, reason))
            }
            Finding::Mismatch | Finding::Unavailable => Ok(token),
        }
    }

    /// Whether the rule asks for a token itself: then no other kind of it does.
    pub(crate) fn asks_for_token(&self) -> bool {
        let mut kinds = self.rule.kinds.iter();
        kinds.any(|kind| matches!(kind, RuleKind::Token))
    }

    pub(crate) fn token(&self) -> Found {
        if let Some(stand_in) = self.stand_in(ReasonCode::Token, ReasonCode::TokenMissing) {
            return Ok(match stand_in.finding {
                Finding::Mismatch => self.rejected_token(ReasonCode::TokenUnknown, stand_in.reason),
                Finding::Match | Finding::Absent | Finding::Unavailable | Finding::Skipped => {
                    stand_in
                }
            });
        }
        let Some(found) = self.evidence.token() else {
            return Err(vec![Query::Token]);
        };
        let rejected = |code, reason| self.rejected_token(code, reason);
        let checked = match &found.value {
            Err(why) => Checked::unavailable(ReasonCode::StoreUnavailable, why.clone()),
            Ok(TokenFacts::Missing) => {
                let reason = "the request has no enrolment token".to_owned();
                Checked::absent(ReasonCode::TokenMissing, reason)
            }
            Ok(TokenFacts::Malformed { why }) => rejected(
                ReasonCode::TokenMalformed,
                format!("this is no enrolment token: {why}"),
            ),
            Ok(TokenFacts::Ambiguous { why }) => {
                let reason = format!("the request has no single enrolment token: {why}");
                rejected(ReasonCode::TokenAmbiguous, reason)
            }
            Ok(TokenFacts::Unknown { id }) => {
                let reason = format!("enrolment token {id} is not known");
                rejected(ReasonCode::TokenUnknown, reason)
            }
            Ok(TokenFacts::Known(known)) => {
                let id = &known.id;
                match token::compare(self.policy, known, self.request, self.now) {
                    Ok(()) => Checked {
                        uses: vec![Use::Token {
                            id: id.clone(),
                            name: self.policy.token_name(self.request).to_owned(),
                            replaces: known.replaced(self.now).is_some(),
                        }],
                        ..Checked::matching(
                            ReasonCode::Token,
                            format!("enrolment token {id} is for it"),
                        )
                    },
                    Err(difference) => {
                        let reason = format!("enrolment token {id}: {}", difference.reason);
                        rejected(difference.code, reason)
                    }
                }
            }
        };
        Ok(Checked {
            micros: found.micros,
            ..checked
        })
    }

    fn rejected_token(&self, code: ReasonCode, reason: String) -> Checked {
        Checked {
            ending: Some(match self.policy.tokens.on_reject {
                OnToken::Deny => Ending::Deny,
                OnToken::Pend => Ending::Wait,
            }),
            ..Checked::mismatch(code, reason)
        }
    }

    fn machine(&self, rule: MachineRule) -> Found {
        let Some(found) = self.evidence.machine() else {
            return Err(vec![Query::Machine]);
        };
        let checked = match &found.value {
            Err(why) => Checked::unavailable(ReasonCode::StoreUnavailable, why.clone()),
            Ok(None) => {
                let reason = format!("{} is not in the inventory", self.request.name);
                Checked::absent(ReasonCode::MachineUnknown, reason)
            }
            Ok(Some(known)) => match machine::compare(rule, known, self.request, self.now) {
                Ok(()) => Checked {
                    uses: vec![Use::Machine {
                        name: known.name.clone(),
                        once: rule.once || known.single_use,
                    }],
                    ..Checked::matching(
                        ReasonCode::Machine,
                        format!("the inventory expects {}", known.name),
                    )
                },
                Err(difference) => Checked::mismatch(difference.code, difference.reason),
            },
        };
        Ok(Checked {
            micros: found.micros,
            ..checked
        })
    }

    fn executable(&self, executable: &Executable) -> Found {
        if let Some(stand_in) =
            self.stand_in(ReasonCode::Executable, ReasonCode::ExecutableDeclined)
        {
            return Ok(stand_in);
        }
        let Some(said) = self.evidence.execution(&executable.path) else {
            return Err(vec![Query::Execution(executable.clone())]);
        };
        let shown = executable.path.display();
        let checked = match &said.value {
            Execution::Approved => Checked::matching(
                ReasonCode::Executable,
                format!("{shown} ended with status 0"),
            ),
            Execution::Declined(why) => {
                Checked::absent(ReasonCode::ExecutableDeclined, format!("{shown} {why}"))
            }
            // Who cannot say has not said yes; nor has it cleared anybody whom it might have denied.
            Execution::Failed(why) => match self.rule.effect {
                RuleEffect::Approve => {
                    Checked::absent(ReasonCode::ExecutableDeclined, format!("{shown} {why}"))
                }
                RuleEffect::Deny => {
                    Checked::unavailable(ReasonCode::ExecutableFailed, format!("{shown} {why}"))
                }
            },
            Execution::Unavailable(why) => {
                Checked::unavailable(ReasonCode::ExecutableBusy, format!("{shown} {why}"))
            }
        };
        Ok(Checked {
            micros: said.micros,
            ..checked
        })
    }

    fn webhook(&self, webhook: &std::sync::Arc<Webhook>) -> Found {
        if let Some(stand_in) = self.stand_in(ReasonCode::Webhook, ReasonCode::WebhookPending) {
            return Ok(stand_in);
        }
        let Some(said) = self.evidence.webhook(webhook) else {
            return Err(vec![Query::Webhook(webhook.clone())]);
        };
        let with = |does: &str, reason: &str| match reason {
            "" => format!("the webhook {does}"),
            reason => format!("the webhook {does}: {reason}"),
        };
        let checked = match &said.value {
            WebhookAnswer::Allow {
                reason,
                ttl_seconds,
            } => Checked {
                lifetime: *ttl_seconds,
                ..Checked::matching(ReasonCode::Webhook, with("allows it", reason))
            },
            WebhookAnswer::Deny { reason } => Checked {
                ending: Some(Ending::Deny),
                ..Checked::mismatch(ReasonCode::WebhookDenied, with("denies it", reason))
            },
            WebhookAnswer::Pend { reason } => Checked::absent(
                ReasonCode::WebhookPending,
                with("leaves it to others", reason),
            ),
            WebhookAnswer::Unavailable { reason } => Checked::unavailable(
                ReasonCode::WebhookError,
                with("gave no answer that counts", reason),
            ),
        };
        Ok(Checked {
            micros: said.micros,
            saw: webhook.address().to_owned(),
            ..checked
        })
    }

    fn autosign(&self, path: &Path, apex: Apex) -> Found {
        let Some(file) = self.evidence.file(path) else {
            return Err(vec![Query::AutosignFile(path.to_owned())]);
        };
        let shown = path.display();
        let checked = match &file.value {
            AutosignFile::Missing => {
                Checked::absent(ReasonCode::NotListed, format!("there is no {shown}"))
            }
            // Whoever has such a setting expects to find the request waiting.
            AutosignFile::Unusable(why) => Checked {
                retry: false,
                ..Checked::unavailable(ReasonCode::AllowlistUnreadable, why.clone())
            },
            AutosignFile::List(list) => {
                let checked = self.on_list(list, apex);
                let reason = match list.matching(self.request.name, apex) {
                    Some(pattern) => format!("{pattern} in {shown}"),
                    None => format!("not on the list {shown}"),
                };
                Checked {
                    reason,
                    kind: Some("allowlist"),
                    ..checked
                }
            }
            AutosignFile::Executable => {
                let executable = Executable {
                    path: path.to_owned(),
                    timeout: None,
                };
                Checked {
                    kind: Some("executable"),
                    ..self.executable(&executable)?
                }
            }
        };
        Ok(Checked {
            micros: checked.micros.saturating_add(file.micros),
            ..checked
        })
    }

    /// What somebody who tries the policy lets this rule's outside say.
    pub(crate) fn stand_in(&self, matched: ReasonCode, declined: ReasonCode) -> Option<Checked> {
        let finding = self.evidence.stand_in(&self.rule.name)?;
        let reason = "as the trial says".to_owned();
        Some(match finding {
            Finding::Match => Checked::matching(matched, reason),
            Finding::Absent | Finding::Skipped => Checked::absent(declined, reason),
            Finding::Mismatch => Checked::mismatch(declined, reason),
            Finding::Unavailable => Checked::unavailable(ReasonCode::Unavailable, reason),
        })
    }
}

/// The beginning of an expression: the policy of the decision's generation has the rest.
pub(crate) fn short(source: &str) -> Cow<'_, str> {
    match source.char_indices().nth(MAX_SOURCE) {
        Some((end, _)) => Cow::Owned(format!("{}…", source.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(source),
    }
}

const MAX_SOURCE: usize = 200;
