//! Tokens that are looked at without a certificate in view: to see what would happen, or because somebody else signs.

use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Deciding, Effect, Explanation, Finding, ReasonCode, RecordedEvidence, Requester, SignerName,
    Step, TokenFacts, Use, Verdict, Wishes,
};

use super::{TokenId, masked_tokens};
use crate::detached::run_detached;
use crate::door::DoorSpec;
use crate::engine::Core;
use crate::evidence::evaluation::{Asking, Evaluated, Gathered, is_stopped};
use crate::faults::{EngineError, SubmitFault};
use crate::issuer::signer::Signer;
use crate::issuing::{
    Arriving, Case, Conflict, Decided, MAX_TRIES, Order, PlannedValidity, Standing, issued_name,
    uses_token,
};
use crate::model::{Door, RequestId, RequestState};
use crate::request::submission::Told;
use crate::rules::Rules;
use crate::telemetry::{DecisionOutcome, TokenEvent};
use crate::token::Tokens;

/// What would happen to a request by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Whether its token would authorise it, or already did.
    pub would_allow: bool,
    /// Why, in one word.
    pub reason: ReasonCode,
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
        reason: ReasonCode,
    },
}

impl Tokens {
    /// What would happen to a request by its token. Nothing is used up or recorded.
    pub async fn check(
        &self,
        csr: &CheckedCsr,
        certname: &str,
        signer: &SignerName,
        source: Option<IpAddr>,
    ) -> Result<Check, EngineError> {
        let requester = Requester::anonymous(source);
        let now = self.core.clock.now();
        let looked_at = LookedAt {
            id: self.core.new_request_id(now)?,
            door: &Door::LOCAL,
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
                reason: ReasonCode::Token,
                detail: "its token is good for it".to_owned(),
                token,
            },
            Judged::UsedBySame { .. } => Check {
                would_allow: true,
                reason: ReasonCode::TokenRetry,
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

    /// Uses the token of a request up for somebody else who signs it. The same key may ask again. A refusal is on record at
    /// `door`.
    pub async fn validate(
        &self,
        door: &'static DoorSpec,
        csr: CheckedCsr,
        signer: &SignerName,
        requester: Requester,
    ) -> Result<Validation, SubmitFault> {
        let core = Arc::clone(&self.core);
        let signer = signer.clone();
        run_detached(async move { core.validate_token(door, csr, signer, requester).await }).await
    }
}

/// A request that is looked at for its token alone.
#[derive(Clone, Copy)]
struct LookedAt<'a> {
    id: RequestId,
    door: &'a Door,
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
            door: self.door,
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
        code: ReasonCode,
        why: String,
    },
}

/// What came of using a token for somebody else.
enum Used {
    Now,
    ByAnother,
    /// The rules do not approve.
    Not {
        code: ReasonCode,
        why: String,
    },
}

impl Core {
    async fn look_at(
        &self,
        rules: &Rules,
        at: LookedAt<'_>,
    ) -> Result<(Judged, Gathered), EngineError> {
        let mut gathered = Gathered::default();
        let bad = |code, why: String| Judged::Bad { code, why };
        let signer = rules.signer(at.signer);
        let wishes = Wishes::default();
        let examined = signer.as_deref().map_or(Ok(()), |signer| {
            signer.profile.examine(at.csr, at.key, &wishes)
        });
        let case = at.case(&wishes, signer.as_deref());
        if let Some(name) = rules.policy.reserved_of(&case.request()) {
            let why = format!("{name} is a name of the authority or of somebody with a role");
            return Ok((bad(ReasonCode::ReservedName, why), gathered));
        }
        gathered.presented = self.present(rules, at.csr, None).await;
        let (facts, looked_up) = self.token_facts(rules, case, &gathered.presented).await;
        gathered.looked_up = looked_up;
        let facts = match facts {
            Ok(facts) => facts,
            Err(why) => return Ok((bad(ReasonCode::StoreUnavailable, why), gathered)),
        };
        let judged = match &facts {
            TokenFacts::Missing => bad(
                ReasonCode::TokenMissing,
                "it has no enrolment token".to_owned(),
            ),
            TokenFacts::Malformed { why } => bad(ReasonCode::TokenMalformed, why.clone()),
            TokenFacts::Ambiguous { why } => bad(ReasonCode::TokenAmbiguous, why.clone()),
            TokenFacts::Unknown { id } => {
                bad(ReasonCode::TokenUnknown, format!("{id} is not known"))
            }
            TokenFacts::Known(token) => {
                let used = token
                    .same
                    .as_ref()
                    .filter(|used| !token.revoked && !token.locked && at.now <= used.retry_until);
                match (rules.policy.differs(token, &case.request(), at.now), used) {
                    (None, _) => Judged::Good,
                    (Some((ReasonCode::TokenExhausted, _)), Some(used)) => Judged::UsedBySame {
                        elsewhere: used.serial.is_none(),
                    },
                    (Some((code, why)), _) => bad(code, why),
                }
            }
        };
        match (examined, &judged) {
            // A wrong token is told and counted whatever else is wrong.
            (Err(_), Judged::Bad { code, .. }) if code.is_token_failure() => {}
            // What could never be signed uses no token up.
            (Err(fault), _) => {
                let why = masked_tokens(&fault.to_string()).into_owned();
                return Ok((bad(ReasonCode::Unsignable, why), Gathered::default()));
            }
            (Ok(()), _) => {}
        }
        Ok((judged, gathered))
    }

    async fn validate_token(
        &self,
        door: &'static DoorSpec,
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
                door: &door.name,
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
                    refusal = Some((at.id, ReasonCode::TokenExhausted, why));
                }
                Judged::Bad {
                    code: ReasonCode::StoreUnavailable,
                    ..
                } => {
                    return Err(EngineError::Contended.into());
                }
                Judged::Bad { code, why } => {
                    if code == ReasonCode::TokenSourceNotAllowed {
                        // Where the machine itself is, nobody here knows: no fault of the token.
                        gathered.looked_up.record = None;
                    }
                    refusal = Some((at.id, code, why));
                }
            }
            let Some((id, code, why)) = refusal else {
                continue;
            };
            let refused = self.refuse_elsewhere(at, code.clone(), why, &rules, &gathered);
            if refused.await? {
                return Ok(Validation::Refused { id, reason: code });
            }
        }
        Err(EngineError::Contended.into())
    }

    /// Uses a token up for a certificate that is signed elsewhere, if the rules approve of that.
    async fn use_elsewhere(
        &self,
        at: LookedAt<'_>,
        gathered: &mut Gathered,
        rules: &Arc<Rules>,
    ) -> Result<Used, SubmitFault> {
        let Some(id) = gathered.presented.verified().cloned() else {
            return Err(EngineError::Defect.into());
        };
        let (wishes, signer) = (Wishes::default(), rules.signer(at.signer));
        let case = at.case(&wishes, signer.as_deref());
        let evaluated = self.evaluate(rules, case, None, Asking::InEarnest, gathered);
        let Evaluated { verdict, evidence } = evaluated.await?;
        let explanation = verdict.explanation();
        if is_stopped(&verdict) {
            return Err(EngineError::Contended.into());
        }
        if explanation.effect != Effect::Approve {
            let code = match explanation.code.is_none() {
                true => ReasonCode::NotApproved,
                false => explanation.code.clone(),
            };
            let why = explanation.to_string();
            return Ok(Used::Not { code, why });
        }
        let is_used = uses_token(verdict.uses());
        let mut decision = Decided::of(verdict, evidence, RequestState::Approved);
        if !is_used {
            gathered.looked_up.retry_window = rules.tokens.retry_window;
            decision.uses.push(Use::Token {
                id: id.to_string(),
                name: rules.policy.token_name(&case.request()).to_owned(),
                replaces: false,
            });
        }
        // It is signed by somebody else.
        decision.approval = None;
        let order = Order {
            case,
            decision,
            standing: Standing::Elsewhere,
            rules,
            gathered,
            at: at.now,
            validity: PlannedValidity::Asked(None),
        };
        match self.carry_out(order).await {
            Ok(_) => {
                self.telemetry.token(TokenEvent::Consumed, "");
                Ok(Used::Now)
            }
            Err(Conflict::Engine(fault)) => Err(fault.into()),
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Name
                | Conflict::Certificate
                | Conflict::Request
                | Conflict::Revoked
                | Conflict::Serial
                | Conflict::Overtaken,
            ) => Ok(Used::ByAnother),
        }
    }

    /// Puts a refusal on record, where people look for those. `false`: its token was changed meanwhile.
    async fn refuse_elsewhere(
        &self,
        at: LookedAt<'_>,
        code: ReasonCode,
        why: String,
        rules: &Arc<Rules>,
        gathered: &Gathered,
    ) -> Result<bool, SubmitFault> {
        let step = Step {
            code: code.clone(),
            ..Step::new("token", "token", Finding::Mismatch, why)
        };
        let explanation = Explanation {
            by: Some(Deciding::rule("token")),
            code,
            steps: vec![step],
            ..Explanation::new(Effect::Deny, at.now, rules.policy.generation)
        };
        let wishes = Wishes::default();
        let case = at.case(&wishes, None);
        let decision = Decided::of(
            Verdict::Deny(explanation),
            RecordedEvidence::default(),
            RequestState::Denied,
        );
        let told = Told::of(&decision);
        let order = Order {
            case,
            decision,
            standing: Standing::Arriving(Arriving {
                retained: false,
                attachment: &[],
                replaces: None,
                certificate: None,
                confirmation: None,
            }),
            rules,
            gathered,
            at: at.now,
            validity: PlannedValidity::Asked(None),
        };
        match self.carry_out(order).await {
            Ok(_) => {
                told.report(self, case, gathered, DecisionOutcome::Denied);
                Ok(true)
            }
            Err(Conflict::Engine(fault)) => Err(fault.into()),
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Name
                | Conflict::Certificate
                | Conflict::Request
                | Conflict::Revoked
                | Conflict::Serial
                | Conflict::Overtaken,
            ) => Ok(false),
        }
    }
}
