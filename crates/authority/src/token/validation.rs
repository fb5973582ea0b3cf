//! Tokens that are looked at without a certificate in view: to see what would happen, or because somebody else signs.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Deciding, Effect, Explanation, Finding, RecordedEvidence, Requester, SignerName, Step,
    TokenFacts, Wishes, differs, token_name,
};

use super::{TokenId, masked_tokens};
use crate::engine::{Authority, Core, Rules};
use crate::faults::{Broken, SubmitFault};
use crate::judgement::{
    Asking, Case, Gathered, Times, is_stopped, issued_name, use_token, used, uses_token,
};
use crate::model::{Door, RequestId, RequestState};
use crate::signer::Signer;
use crate::signing::{MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Write};
use crate::storing::Stored;
use crate::submission::Submission;
use crate::telemetry::{DecisionOutcome, TokenEvent};

/// What would happen to a request by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Whether its token would authorise it, or already did.
    pub would_allow: bool,
    /// Why, in one word.
    pub reason: Cow<'static, str>,
    /// Why, in words.
    pub detail: String,
    /// The token's public part.
    pub token: Option<TokenId>,
}

/// What came of a request that somebody else signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Its token is good, and is used up now, or was by this very key.
    Approved,
    /// It is not.
    Refused {
        /// The record of the refusal.
        id: RequestId,
        /// Why, in one word.
        reason: Cow<'static, str>,
    },
}

impl Authority {
    /// What would happen to a request by its token. Nothing is used up or recorded.
    pub async fn check_token(
        &self,
        csr: &CheckedCsr,
        certname: &str,
        signer: &SignerName,
        source: Option<IpAddr>,
    ) -> Result<Check, Broken> {
        let requester = Requester::anonymous(source);
        let now = self.core.clock.now();
        let looked_at = LookedAt {
            id: self.core.new_request_id(now)?,
            key: certname,
            csr,
            signer,
            requester: &requester,
            now,
        };
        let rules = self.core.rules.load_full();
        let (found, gathered) = self.core.look_at(&rules, looked_at).await?;
        let token = gathered.presented.verified().cloned();
        Ok(match found {
            Judged::Good => Check {
                would_allow: true,
                reason: Cow::Borrowed("token"),
                detail: "its token is good for it".to_owned(),
                token,
            },
            Judged::UsedBySame { .. } => Check {
                would_allow: true,
                reason: Cow::Borrowed("token_retry"),
                detail: "its key has used the token, and may ask for the outcome again".to_owned(),
                token,
            },
            Judged::Bad { code, why } => Check {
                would_allow: false,
                reason: code,
                detail: why,
                token,
            },
        })
    }

    /// Uses the token of a request up for somebody else who signs it. The same key may ask again.
    pub async fn validate_token(
        &self,
        csr: CheckedCsr,
        signer: &SignerName,
        requester: Requester,
    ) -> Result<Validation, SubmitFault> {
        let core = Arc::clone(&self.core);
        let signer = signer.clone();
        self.carry_through(async move { core.validate_token(csr, signer, requester).await })
            .await
    }
}

/// A request that is looked at for its token alone.
#[derive(Clone, Copy)]
struct LookedAt<'a> {
    id: RequestId,
    key: &'a str,
    csr: &'a CheckedCsr,
    signer: &'a SignerName,
    requester: &'a Requester,
    now: UnixTime,
}

impl<'a> LookedAt<'a> {
    fn case(self, wishes: &'a Wishes, signer: Option<&Signer>) -> Case<'a> {
        Case {
            id: self.id,
            door: &FOREMAN,
            key: self.key,
            csr: self.csr,
            signer: self.signer,
            requester: self.requester,
            wishes,
            created: self.now,
            name: issued_name(signer, self.csr, self.key),
        }
    }
}

/// What a token comes to.
enum Judged {
    Good,
    /// This key has used it, and may ask for the outcome again: a certificate of another authority, or one of ours.
    UsedBySame {
        elsewhere: bool,
    },
    Bad {
        code: Cow<'static, str>,
        why: String,
    },
}

/// What came of using a token for somebody else.
enum Used {
    Now,
    ByAnother,
    /// The rules do not approve.
    Not {
        code: Cow<'static, str>,
        why: String,
    },
}

impl Core {
    async fn look_at(&self, rules: &Rules, at: LookedAt<'_>) -> Result<(Judged, Gathered), Broken> {
        let mut gathered = Gathered::default();
        let bad = |code: &'static str, why: String| Judged::Bad {
            code: Cow::Borrowed(code),
            why,
        };
        let signer = rules.signer(at.signer);
        let wishes = Wishes::default();
        // What could never be signed does not come to its token.
        if let Some(signer) = signer.as_deref()
            && let Err(fault) = signer.profile.examine(at.csr, at.key, &wishes)
        {
            let why = masked_tokens(&fault.to_string()).into_owned();
            return Ok((bad("unsignable", why), gathered));
        }
        let case = at.case(&wishes, signer.as_deref());
        if let Some(name) = rules.policy.reserved_of(&case.request()) {
            let why = format!("{name} is a name of the authority or of somebody with a role");
            return Ok((bad("reserved_name", why), gathered));
        }
        gathered.presented = self.present(rules, at.csr, at.requester).await;
        let (facts, looked_up) = self.token_facts(rules, case, &gathered.presented).await;
        gathered.looked_up = looked_up;
        let facts = match facts {
            Ok(facts) => facts,
            Err(why) => return Ok((bad("store_unavailable", why), gathered)),
        };
        let judged = match &facts {
            TokenFacts::Missing => bad("token_missing", "it has no enrolment token".to_owned()),
            TokenFacts::Malformed { why } => bad("token_malformed", why.clone()),
            TokenFacts::Ambiguous { why } => bad("token_ambiguous", why.clone()),
            TokenFacts::Unknown { id } => bad("token_unknown", format!("{id} is not known")),
            TokenFacts::Known(token) => {
                let used = token
                    .same
                    .as_ref()
                    .filter(|used| !token.revoked && !token.locked && at.now <= used.retry_until);
                match (differs(token, &case.request(), at.now), used) {
                    (None, _) => Judged::Good,
                    (Some(("token_exhausted", _)), Some(used)) => Judged::UsedBySame {
                        elsewhere: used.serial.is_none(),
                    },
                    (Some((code, why)), _) => bad(code, why),
                }
            }
        };
        Ok((judged, gathered))
    }

    async fn validate_token(
        &self,
        csr: CheckedCsr,
        signer: SignerName,
        requester: Requester,
    ) -> Result<Validation, SubmitFault> {
        let key = csr.subject().first_common_name().unwrap_or_default();
        let key = key.to_owned();
        for _ in 0..MAX_TRIES {
            let now = self.clock.now();
            let at = LookedAt {
                id: self.new_request_id(now)?,
                key: &key,
                csr: &csr,
                signer: &signer,
                requester: &requester,
                now,
            };
            let rules = self.rules.load_full();
            let (judged, mut gathered) = self.look_at(&rules, at).await?;
            let mut refusal = None;
            match judged {
                Judged::UsedBySame { elsewhere: true } => return Ok(Validation::Approved),
                Judged::Good => match self.use_elsewhere(at, &mut gathered, &rules).await? {
                    Used::Now => return Ok(Validation::Approved),
                    Used::ByAnother => {}
                    Used::Not { code, why } => {
                        refusal = Some((at.id, code, why));
                    }
                },
                Judged::UsedBySame { elsewhere: false } => {
                    // One certificate is what it was good for, and that one was signed here.
                    let why = "its certificate was signed by this authority".to_owned();
                    refusal = Some((at.id, Cow::Borrowed("token_exhausted"), why));
                }
                Judged::Bad { code, .. } if code == "store_unavailable" => {
                    return Err(Broken::Contended.into());
                }
                Judged::Bad { code, why } => {
                    if code == "token_source_not_allowed" {
                        // Where the machine itself is, nobody here knows: no fault of the token.
                        gathered.looked_up.record = None;
                    }
                    refusal = Some((at.id, code, why));
                }
            }
            let Some((id, code, why)) = refusal else {
                continue;
            };
            let submission = Submission {
                door: FOREMAN.clone(),
                key: key.clone(),
                csr: csr.clone(),
                signer: signer.clone(),
                requester: requester.clone(),
                wishes: Wishes::default(),
                retained: false,
                attachment: Vec::new(),
                decision: None,
            };
            let refused = self.refuse_elsewhere(submission, id, code.clone(), why, gathered);
            if refused.await? {
                return Ok(Validation::Refused { id, reason: code });
            }
        }
        Err(Broken::Contended.into())
    }

    /// Uses a token up for a certificate that is signed elsewhere, if the rules approve of that.
    async fn use_elsewhere(
        &self,
        at: LookedAt<'_>,
        gathered: &mut Gathered,
        rules: &Rules,
    ) -> Result<Used, SubmitFault> {
        let Some(id) = gathered.presented.verified().cloned() else {
            return Err(Broken::Defect.into());
        };
        let (wishes, signer) = (Wishes::default(), rules.signer(at.signer));
        let case = at.case(&wishes, signer.as_deref());
        let reached = self.reach(rules, case, None, Asking::InEarnest, gathered);
        let verdict = reached.await?.verdict;
        let explanation = verdict.explanation();
        if is_stopped(&verdict) {
            return Err(Broken::Contended.into());
        }
        if explanation.effect != Effect::Approve {
            let code = match explanation.code.as_ref() {
                "" => Cow::Borrowed("not_approved"),
                _ => explanation.code.clone(),
            };
            let why = explanation.to_string();
            return Ok(Used::Not { code, why });
        }
        let mut change = Change::default();
        let times = Times {
            decided: explanation.at,
            now: self.clock.now(),
        };
        used(verdict.uses(), case, gathered, times, None, &mut change);
        if !uses_token(verdict.uses()) {
            let request = case.request();
            let (name, window) = (token_name(&request), rules.tokens.retry_window);
            use_token(id, name, case, times.now, window, None, &mut change);
        }
        for write in &mut change.writes {
            if let Write::UseToken(used) = write {
                used.request = None;
            }
        }
        change.audit.append(&mut gathered.audit);
        match self.commit(change).await {
            Ok(_) => {
                self.telemetry.token(TokenEvent::Consumed, "");
                Ok(Used::Now)
            }
            Err(CommitFault::Conflict { .. }) => Ok(Used::ByAnother),
            Err(other) => Err(commit_broken(other).into()),
        }
    }

    /// Puts a refusal on record, where people look for those. `false`: its token was changed meanwhile.
    async fn refuse_elsewhere(
        &self,
        submission: Submission,
        id: RequestId,
        code: Cow<'static, str>,
        why: String,
        gathered: Gathered,
    ) -> Result<bool, SubmitFault> {
        let now = self.clock.now();
        let rules = self.rules.load_full();
        let step = Step {
            code: code.clone(),
            ..Step::new("token", "token", Finding::Mismatch, why)
        };
        let explanation = Explanation {
            by: Some(Deciding::rule("token")),
            code,
            steps: vec![step],
            ..Explanation::new(Effect::Deny, now, rules.policy.generation)
        };
        let mut stored = Stored {
            submission,
            id,
            state: RequestState::Denied,
            explanation,
            evidence: RecordedEvidence::default(),
            failure: None,
            uses: Vec::new(),
            gathered,
            certificate: None,
            now,
        };
        let inserted = self.insert(&mut stored, None, None, &rules).await?;
        if inserted.is_some() {
            stored.report(self, DecisionOutcome::Denied);
        }
        Ok(inserted.is_some())
    }
}

/// Where requests are refused for others.
static FOREMAN: Door = Door::named("foreman");
