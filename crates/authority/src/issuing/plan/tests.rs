//! What follows from which decision, a row each. A plan is shown in words: what must hold (`if`), what
//! is written (`do`) and audited (`tell`) with the first commit, and what with the certificate
//! (`then`). `it` is the request that is decided; `fenced`: only while the rules are in force.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what no plan has needs no word"
)]

use countersign_pki::{CheckedCsr, CsrLimits, Fingerprint, RevocationReason};
use countersign_policy::{
    Answer, Deciding, Effect, Finding, ReasonCode, SignerName, Step, TokenBinding, TokenTerms,
    TokenUsed, Wishes,
};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use super::*;
use crate::issuer::IssuerId;
use crate::issuer::signer::OnWaiting;
use crate::model::{Door, RequestId, Revoked};
use crate::profile::{Lifetime, Profile};
use crate::token::{Presented, TokenRecord, TokenStanding};

#[test]
fn what_arrives_is_held_by_its_intent_or_stored_at_once() {
    check([
        row(
            "approved, where names are not unique",
            Input::of(At::Arriving, Approved),
            &[
                "if not denied, name free",
                "do intend 2A holding it approved (asked, request)",
                "then if 2A open by us",
                "fenced",
            ],
        ),
        row(
            "approved, where a name has one certificate",
            Input::of(At::Arriving, Approved).unique(),
            &[
                "if not denied, name free, newest none",
                "do intend 2A holding it approved (asked, request)",
                "then if 2A open by us",
                "fenced",
            ],
        ),
        row(
            "approved at a door that retains it: every state is stored",
            Input::of(At::ArrivingRetained, Approved),
            &[
                "if not denied, name free",
                "do store it approved retained, intend 2A",
                "tell asked, request",
                "then if 2A open by us, it is approved",
                "then do set it issued live with 2A",
                "fenced",
            ],
        ),
        row(
            "approved for a signer that is not ours",
            Input::of(At::Arriving, Approved).foreign(),
            &[
                "if not denied, name free",
                "do store it approved",
                "tell asked, request",
                "fenced",
            ],
        ),
        row(
            "pending",
            Input::of(At::Arriving, Pending).unique(),
            &[
                "if not denied, name free, newest none",
                "do store it pending",
                "tell asked, request",
            ],
        ),
        row(
            "with a certificate that it had before",
            Input::of(At::ArrivingWithCertificate, Issued).foreign(),
            &[
                "if not denied, name free",
                "do store it issued retained with 0B",
                "tell asked, request",
            ],
        ),
    ]);
}

#[test]
fn what_is_turned_away_on_arrival_takes_no_name() {
    check([
        row(
            "denied by a rule: it must have found the name free",
            Input::of(At::Arriving, Denied).unique(),
            &[
                "if not denied, name free, newest none",
                "do store it denied past, trim rejections",
                "tell asked, request",
            ],
        ),
        row(
            "undecided",
            Input::of(At::Arriving, Undecided),
            &[
                "if not denied, name free",
                "do store it undecided past, trim rejections",
                "tell asked, request",
            ],
        ),
        row(
            "denied for its token: whoever has the name",
            Input::of(At::Arriving, DeniedForToken).unique(),
            &[
                "if not denied",
                "do store it denied past, trim rejections",
                "tell asked, request",
            ],
        ),
        row(
            "denied for its token, where requests keep their names",
            Input::of(At::ArrivingRetained, DeniedForToken).unique(),
            &[
                "if not denied, name free, newest none",
                "do store it denied retained",
                "tell asked, request",
            ],
        ),
        row(
            "denied for a token that it showed: a misuse, which is counted",
            Input::of(At::Arriving, DeniedForToken).presenting(0),
            &[
                "if not denied, token at 9",
                "do store it denied past, trim rejections, count misuse",
                "tell token.rejected, asked, request",
            ],
        ),
        row(
            "one misuse too many locks the token",
            Input::of(At::Arriving, DeniedForToken).presenting(4),
            &[
                "if not denied, token at 9",
                "do store it denied past, trim rejections, count misuse, lock token",
                "tell token.rejected, token.locked, asked, request",
            ],
        ),
        row(
            "pending with a token that is wrong",
            Input::of(At::Arriving, PendingForToken).presenting(0),
            &[
                "if not denied, name free, token at 9",
                "do store it pending, count misuse",
                "tell token.rejected, asked, request",
            ],
        ),
    ]);
}

#[test]
fn what_takes_the_place_of_another_request_ends_that() {
    check([
        row(
            "of a pending one, which is forgotten",
            Input::of(At::Replacing(RequestState::Pending), Pending).unique(),
            &[
                "if not denied, old at 5, newest none",
                "do forget old, store it pending",
                "tell asked, replace, request",
            ],
        ),
        row(
            "of a pending one, approved",
            Input::of(At::Replacing(RequestState::Pending), Approved),
            &[
                "if not denied, old at 5",
                "do forget old, intend 2A holding it approved ()",
                "tell asked, replace, request",
                "then if 2A open by us",
                "fenced",
            ],
        ),
        row(
            "of a denied one, which stays on record",
            Input::of(At::Replacing(RequestState::Denied), Pending),
            &[
                "if not denied, old at 5",
                "do set old denied past, store it pending",
                "tell asked, request",
            ],
        ),
        row(
            "of a denied one, approved by a token",
            Input::of(At::Replacing(RequestState::Denied), Approved).using(token()),
            &[
                "if token usable, not denied, old at 5",
                "do set old denied past, use token reserved for it, \
                 intend 2A holding it approved ()",
                "tell token.consumed, asked, request",
                "then if 2A open by us",
                "then do token issued 2A",
                "fenced",
            ],
        ),
    ]);
}

#[test]
fn an_approval_uses_up_what_it_rests_on() {
    check([
        row(
            "a machine",
            Input::of(At::Arriving, Approved).using(machine(false)),
            &[
                "if not denied, name free, machine at 4",
                "do enrol machine, intend 2A holding it approved ()",
                "tell asked, request",
                "then if 2A open by us",
                "fenced",
            ],
        ),
        row(
            "a machine that enrols once",
            Input::of(At::Arriving, Approved).using(machine(true)),
            &[
                "if not denied, name free, machine unused, machine at 4",
                "do enrol machine, intend 2A holding it approved ()",
                "tell asked, request",
                "then if 2A open by us",
                "fenced",
            ],
        ),
        row(
            "a window that wants no token",
            Input::of(At::Arriving, Approved).using(window(false, false)),
            &[
                "if not denied, name free, window open",
                "do use window, intend 2A holding it approved ()",
                "tell window.used, asked, request",
                "then if 2A open by us",
                "fenced",
            ],
        ),
        row(
            "the last certificate of a window, with its token",
            Input::of(At::Arriving, Approved)
                .using(window(true, true))
                .using(token()),
            &[
                "if token usable, not denied, name free, window open with token",
                "do use window, use token reserved for it, \
                 intend 2A holding it approved ()",
                "tell window.used, window.closed, token.consumed, asked, request",
                "then if 2A open by us",
                "then do token issued 2A",
                "fenced",
            ],
        ),
        row(
            "a token",
            Input::of(At::Arriving, Approved).unique().using(token()),
            &[
                "if token usable, not denied, name free, newest none",
                "do use token reserved for it, \
                 intend 2A holding it approved ()",
                "tell token.consumed, asked, request",
                "then if 2A open by us",
                "then do token issued 2A",
                "fenced",
            ],
        ),
        row(
            "a token where nobody here signs: there is nothing to wait for",
            Input::of(At::Arriving, Approved).foreign().using(token()),
            &[
                "if token usable, not denied, name free",
                "do store it approved, use token issued for it",
                "tell token.consumed, asked, request",
                "fenced",
            ],
        ),
        row(
            "a token whose name gives up its certificate",
            Input::of(At::Arriving, Approved)
                .unique()
                .using(token())
                .replacing(),
            &[
                "if token usable, not denied, name free, newest 0B",
                "do revoke 0B, retire name, use token reserved for it, \
                 intend 2A holding it approved ()",
                "tell token.consumed, asked, request, revoke, clean",
                "then if 2A open by us",
                "then do token issued 2A",
                "fenced",
            ],
        ),
        row(
            "a token whose name has several certificates: the old one is not retired",
            Input::of(At::Arriving, Approved).using(token()).replacing(),
            &[
                "if token usable, not denied, name free",
                "do revoke 0B, use token reserved for it, \
                 intend 2A holding it approved ()",
                "tell token.consumed, asked, request, revoke",
                "then if 2A open by us",
                "then do token issued 2A",
                "fenced",
            ],
        ),
        row(
            "a token, for a request that was waiting",
            Input::of(At::Waiting, Approved).unique().using(token()),
            &[
                "if token usable, it at 7, newest none",
                "do set it approved live decided, use token reserved for it, intend 2A",
                "tell approve, token.consumed, asked",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A, token issued 2A",
                "fenced",
            ],
        ),
    ]);
}

#[test]
fn what_waits_and_is_judged_again_is_updated() {
    check([
        row(
            "approved",
            Input::of(At::Waiting, Approved),
            &[
                "if it at 7",
                "do set it approved live decided, intend 2A",
                "tell approve, asked",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A",
                "fenced",
            ],
        ),
        row(
            "approved, where a name has one certificate",
            Input::of(At::Waiting, Approved).unique(),
            &[
                "if it at 7, newest none",
                "do set it approved live decided, intend 2A",
                "tell approve, asked",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A",
                "fenced",
            ],
        ),
        row(
            "approved, and it keeps its name",
            Input::of(At::WaitingRetained, Approved),
            &[
                "if it at 7",
                "do set it approved live decided, intend 2A",
                "tell approve, asked",
                "then if 2A open by us, it is approved",
                "then do set it issued live with 2A",
                "fenced",
            ],
        ),
        row(
            "approved for a signer that is not ours",
            Input::of(At::Waiting, Approved).foreign(),
            &[
                "if it at 7",
                "do set it approved live decided",
                "tell approve, asked",
                "fenced",
            ],
        ),
        row(
            "denied: its name is free",
            Input::of(At::Waiting, Denied).unique(),
            &[
                "if it at 7",
                "do set it denied past decided, trim rejections",
                "tell deny, asked",
            ],
        ),
        row(
            "denied, and it keeps its name",
            Input::of(At::WaitingRetained, Denied),
            &[
                "if it at 7",
                "do set it denied live decided",
                "tell deny, asked",
            ],
        ),
        row(
            "denied for the token that it showed",
            Input::of(At::Waiting, DeniedForToken).presenting(0),
            &[
                "if it at 7, token at 9",
                "do set it denied past decided, count misuse, trim rejections",
                "tell deny, token.rejected, asked",
            ],
        ),
        row(
            "still pending, whatever token it showed",
            Input::of(At::Waiting, PendingForToken).presenting(0),
            &[
                "if it at 7",
                "do set it pending live decided",
                "tell reconsider, asked",
            ],
        ),
    ]);
}

#[test]
fn what_a_person_decides_counts_whatever_the_rules_say() {
    check([
        row(
            "approved: the person says what becomes of another certificate",
            Input::of(At::Person, Approved).unique(),
            &[
                "if it at 7",
                "do set it approved live decided attached, intend 2A",
                "tell approve",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A",
            ],
        ),
        row(
            "approved, though its signer cannot sign it",
            Input::of(At::Person, Failed),
            &[
                "if it at 7",
                "do set it failed live decided because attached",
                "tell approve, fail",
            ],
        ),
        row(
            "denied: that holds for name and key",
            Input::of(At::Person, Denied),
            &[
                "if it at 7",
                "do set it denied live decided attached",
                "tell deny",
            ],
        ),
    ]);
}

#[test]
fn a_renewal_depends_on_the_certificate_that_it_repeats() {
    check([row(
        "at both commits; cut short, it is a failure",
        Input::of(At::Renewing, Renewed).unique(),
        &[
            "if 0B unrevoked",
            "do intend 2A holding it failed past (renew)",
            "then if 2A open by us, 0B unrevoked",
        ],
    )]);
}

#[test]
fn an_abandoned_intent_is_burned_with_the_commit_of_the_next() {
    check([
        row(
            "its request is on record",
            Input::of(At::Abandoned, Approved).unique(),
            &[
                "if 1A open, it at 7",
                "do void 1A, set it approved live, intend 2A",
                "tell void",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A",
            ],
        ),
        row(
            "its request is on record and keeps its name",
            Input::of(At::AbandonedRetained, Approved),
            &[
                "if 1A open, it at 7",
                "do void 1A, set it approved live, intend 2A",
                "tell void",
                "then if 2A open by us, it is approved",
                "then do set it issued live with 2A",
            ],
        ),
        row(
            "it holds its request, which is stored as it is burned",
            Input::of(At::AbandonedHolding, Approved),
            &[
                "if 1A open",
                "do void 1A, set it approved live, intend 2A",
                "tell void",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A",
            ],
        ),
        row(
            "its token is used already",
            Input::of(At::Abandoned, ApprovedByUsedToken),
            &[
                "if 1A open, it at 7",
                "do void 1A, set it approved live, intend 2A",
                "tell void",
                "then if 2A open by us, it is approved",
                "then do set it issued past with 2A, token issued 2A",
            ],
        ),
    ]);
}

#[test]
fn what_is_signed_elsewhere_leaves_the_use_of_its_token_and_no_request() {
    check([
        row(
            "its token",
            Input::of(At::Elsewhere, ApprovedForOthers).using(token()),
            &[
                "if token usable",
                "do use token issued",
                "tell token.consumed, asked",
            ],
        ),
        row(
            "its token and its window, where a name has one certificate here",
            Input::of(At::Elsewhere, ApprovedForOthers)
                .unique()
                .using(window(false, true))
                .using(token()),
            &[
                "if token usable, window open with token",
                "do use window, use token issued",
                "tell window.used, token.consumed, asked",
            ],
        ),
    ]);
}

/// A certificate is given no more than was asked for, approved and possible; one that is drafted anew, what it had.
#[test]
fn the_validity_is_as_asked_within_bounds_or_as_it_was() {
    let fixed = Validity {
        not_before: NOW.minus_seconds(5),
        not_after: NOW.plus_seconds(77),
    };
    for (name, validity, granted, expected) in [
        ("usual", PlannedValidity::Asked(None), None, LIFETIME),
        ("less", PlannedValidity::Asked(Some(600)), None, 600),
        ("granted", PlannedValidity::Asked(None), Some(300), 300),
        ("as it was", PlannedValidity::Fixed(fixed), Some(30), 77),
    ] {
        let mut input = Input::of(At::Arriving, Approved);
        (input.validity, input.granted) = (validity, granted);
        let plan = input.plan();
        let intent = plan.draft.as_ref().unwrap().intent();
        assert_eq!(intent.not_after, NOW.plus_seconds(expected), "{name}");
    }
}

struct Row {
    name: &'static str,
    input: Input,
    expected: &'static [&'static str],
}

fn row(name: &'static str, input: Input, expected: &'static [&'static str]) -> Row {
    Row {
        name,
        input,
        expected,
    }
}

#[track_caller]
fn check<const N: usize>(rows: [Row; N]) {
    for row in rows {
        assert_eq!(lines(&row.input.plan()), row.expected, "{}", row.name);
    }
}

/// Where the request is.
#[derive(Clone, Copy)]
enum At {
    Arriving,
    ArrivingRetained,
    ArrivingWithCertificate,
    /// In place of a request in this state.
    Replacing(RequestState),
    Waiting,
    WaitingRetained,
    /// It waits, and a person decides.
    Person,
    Renewing,
    Abandoned,
    AbandonedRetained,
    AbandonedHolding,
    Elsewhere,
}

/// What was decided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Approved,
    /// It was approved by a token before, and that is on record.
    ApprovedByUsedToken,
    /// Another authority signs it.
    ApprovedForOthers,
    /// It has a certificate already.
    Issued,
    Renewed,
    /// Approved, though it cannot be signed.
    Failed,
    Denied,
    DeniedForToken,
    Pending,
    PendingForToken,
    Undecided,
}
use Outcome::{
    Approved, ApprovedByUsedToken, ApprovedForOthers, Denied, DeniedForToken, Failed, Issued,
    Pending, PendingForToken, Renewed, Undecided,
};

impl Outcome {
    fn state(self) -> RequestState {
        match self {
            Approved | ApprovedByUsedToken | ApprovedForOthers => RequestState::Approved,
            Issued => RequestState::Issued,
            Renewed | Failed => RequestState::Failed,
            Denied | DeniedForToken => RequestState::Denied,
            Pending | PendingForToken => RequestState::Pending,
            Undecided => RequestState::Undecided,
        }
    }

    fn effect(self) -> Effect {
        match self {
            Approved | ApprovedByUsedToken | ApprovedForOthers | Issued | Renewed | Failed => {
                Effect::Approve
            }
            Denied | DeniedForToken => Effect::Deny,
            Pending | PendingForToken | Undecided => Effect::Pending,
        }
    }

    fn code(self) -> ReasonCode {
        match self {
            DeniedForToken | PendingForToken => ReasonCode::TokenKeyMismatch,
            _ => ReasonCode::Person,
        }
    }

    fn is_signed_here(self) -> bool {
        matches!(self, Approved | ApprovedByUsedToken | Renewed)
    }
}

/// Whose signer it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Us,
    UsOnePerName,
    Others,
}

struct Input {
    at: At,
    decided: Outcome,
    by: By,
    uses: Vec<Use>,
    /// The name gives up a certificate.
    is_replacing: bool,
    /// It came with a token that was misused so often before.
    misused: Option<u32>,
    validity: PlannedValidity,
    /// The longest lifetime that was approved.
    granted: Option<u64>,
}

impl Input {
    fn of(at: At, decided: Outcome) -> Self {
        Self {
            at,
            decided,
            by: By::Us,
            uses: Vec::new(),
            is_replacing: false,
            misused: None,
            validity: PlannedValidity::Asked(None),
            granted: None,
        }
    }

    fn unique(mut self) -> Self {
        self.by = By::UsOnePerName;
        self
    }

    fn foreign(mut self) -> Self {
        self.by = By::Others;
        self
    }

    fn using(mut self, used: Use) -> Self {
        self.uses.push(used);
        self
    }

    fn replacing(mut self) -> Self {
        self.is_replacing = true;
        self
    }

    fn presenting(mut self, misused: u32) -> Self {
        self.misused = Some(misused);
        self
    }

    fn plan(&self) -> Plan {
        let csr = CsrBuilder::new(NAME).sign(keys::p256_b());
        let csr = CheckedCsr::check(&csr, &CsrLimits::STANDARD).unwrap();
        let (door, wishes, actor) = (DOOR, Wishes::default(), Requester::anonymous(None));
        let name = signer_name();
        let case = Case {
            id: it(),
            door: &door,
            key: NAME,
            csr: &csr,
            signer: &name,
            requester: &actor,
            wishes: &wishes,
            created: NOW,
            name: NAME,
        };
        let signer = self.signer();
        let explanation = self.explanation();
        let approval = Approval::from_recorded_decision(explanation.clone());
        let approval = approval.filter(|_| self.decided.is_signed_here());
        let slot = match (&signer, &approval) {
            (Some(_), Some(_)) => Some(self.slot()),
            _ => None,
        };
        let entry = entry();
        let before = match self.at {
            At::Replacing(state) => Some(RequestRecord {
                id: old(),
                version: Revision(5),
                ..self.record(&csr, state)
            }),
            _ => None,
        };
        let (record, intent) = (self.on_record(&csr), self.intent(&csr));
        let person = Person {
            actor: &actor,
            reason: "known",
        };
        let arriving = Arriving {
            retained: false,
            attachment: &[],
            replaces: before.as_ref(),
            certificate: None,
            confirmation: None,
        };
        let waiting = |attachment, person| Standing::Waiting {
            record: &record,
            attachment,
            person,
        };
        let standing = match self.at {
            At::Arriving | At::Replacing(_) => Standing::Arriving(arriving),
            At::ArrivingRetained => Standing::Arriving(Arriving {
                retained: true,
                ..arriving
            }),
            At::ArrivingWithCertificate => Standing::Arriving(Arriving {
                retained: true,
                certificate: Some(&entry),
                ..arriving
            }),
            At::Waiting | At::WaitingRetained => waiting(None, None),
            At::Person => waiting(Some(vec![1]), Some(person)),
            At::Renewing => Standing::Renewing {
                record: &record,
                of: &entry,
            },
            At::Abandoned | At::AbandonedRetained | At::AbandonedHolding => Standing::Abandoned {
                record: &record,
                intent: &intent,
            },
            At::Elsewhere => Standing::Elsewhere,
        };
        let mut gathered = Gathered::default();
        gathered.machine_version = Some(Revision(4));
        gathered.audit = vec![AuditEntry::own(NOW, "asked", String::new())];
        if let Some(misused) = self.misused {
            let token = token_record(misused);
            gathered.presented = Presented::Verified(token.id.clone());
            gathered.looked_up.record = Some(token);
        }
        let revocation = Revocation {
            issuer: issuer_id(),
            serial: entry.serial,
            revoked: Revoked {
                at: NOW,
                reason: RevocationReason::Superseded,
            },
            not_after: entry.not_after,
            listed: true,
        };
        let replaced = match self.is_replacing {
            true => vec![(entry.clone(), revocation)],
            false => Vec::new(),
        };
        let entries: Vec<LedgerEntry> = replaced.iter().map(|(entry, _)| entry.clone()).collect();
        let decision = Decided {
            state: self.decided.state(),
            explanation,
            evidence: Some(RecordedEvidence::default()),
            failure: (self.decided == Failed).then(|| "its key is too short".to_owned()),
            uses: self.uses.clone(),
            approval,
        };
        let facts = Facts {
            standing,
            gathered: &gathered,
            at: NOW,
            now: NOW,
            slot,
            replaced: &entries,
            due: &replaced,
            repeated: None,
        };
        plan(case, decision, signer.as_ref(), facts).unwrap()
    }

    fn signer(&self) -> Option<Signer> {
        let lifetime = Lifetime {
            default: LIFETIME,
            maximum: LIFETIME,
            minimum: 1,
            backdate: 0,
            backdate_included_from: None,
        };
        (self.by != By::Others).then(|| Signer {
            administrators_only: false,
            name: signer_name(),
            profile: Profile::for_names(lifetime),
            issuer: issuer_id(),
            one_certificate_per_name: self.by == By::UsOnePerName,
            on_waiting: OnWaiting::Refuse,
        })
    }

    fn explanation(&self) -> Explanation {
        let code = self.decided.code();
        let used = || TokenUsed {
            id: TOKEN.to_owned(),
            certname: NAME.to_owned(),
        };
        Explanation {
            by: Some(Deciding::rule("lab")),
            steps: vec![Step {
                answer: Answer::Abstain,
                code: code.clone(),
                ..Step::new("lab", "always", Finding::Match, String::new())
            }],
            code,
            lifetime: self.granted,
            token: match self.decided {
                ApprovedByUsedToken => Some(used()),
                _ => self.uses.iter().find_map(Use::token),
            },
            ..Explanation::new(self.decided.effect(), NOW, 1)
        }
    }

    fn slot(&self) -> Slot {
        let ca = Ca::root("Fleet CA", keys::p256_a(), NOW);
        let key = keys::p256_a();
        let issuer = Issuer::from_chain(
            issuer_id(),
            ca.certificate.to_pem().into_bytes(),
            key.issuer_algorithm().unwrap(),
            key.spki_der(),
        );
        Slot {
            issuer: Arc::new(issuer.unwrap()),
            serial: serial(0x2A),
            owner: Owner(US.to_owned()),
            lease_until: NOW.plus_seconds(60),
            validity: self.validity,
        }
    }

    /// The request as it was stored before.
    fn on_record(&self, csr: &CheckedCsr) -> RequestRecord {
        let retained = matches!(self.at, At::WaitingRetained | At::AbandonedRetained);
        let state = match self.at {
            At::Renewing => RequestState::Failed,
            At::Abandoned | At::AbandonedRetained | At::AbandonedHolding => RequestState::Approved,
            _ => RequestState::Pending,
        };
        RequestRecord {
            retained,
            live: !matches!(self.at, At::Renewing),
            ..self.record(csr, state)
        }
    }

    fn record(&self, csr: &CheckedCsr, state: RequestState) -> RequestRecord {
        RequestRecord {
            id: it(),
            door: DOOR,
            key: NAME.to_owned(),
            live: true,
            retained: false,
            version: Revision(7),
            state,
            signer: signer_name(),
            csr_der: csr.der().to_vec(),
            key_fingerprint: csr.key_fingerprint(),
            requester: Requester::anonymous(None),
            wishes: Wishes::default(),
            created: NOW,
            explanation: self.explanation(),
            evidence: RecordedEvidence::default(),
            failure: None,
            certificate: None,
            attachment: Vec::new(),
        }
    }

    /// The intent that was abandoned.
    fn intent(&self, csr: &CheckedCsr) -> Intent {
        let held = DeferredRequest {
            request: Arc::new(self.on_record(csr)),
            audit: Vec::new(),
        };
        Intent {
            issuer: issuer_id(),
            serial: serial(0x1A),
            request: it(),
            signer: signer_name(),
            name: NAME.to_owned(),
            key_fingerprint: csr.key_fingerprint(),
            not_before: NOW,
            not_after: NOW.plus_seconds(LIFETIME),
            explanation: self.explanation(),
            owner: Owner("somebody".to_owned()),
            lease_until: NOW,
            deferred: matches!(self.at, At::AbandonedHolding).then(|| Arc::new(held)),
        }
    }
}

fn machine(once: bool) -> Use {
    let name = NAME.to_owned();
    Use::Machine { name, once }
}

fn window(closes: bool, with_token: bool) -> Use {
    Use::Window {
        certname: NAME.to_owned(),
        closes,
        with_token,
    }
}

fn token() -> Use {
    Use::Token {
        id: TOKEN.to_owned(),
        name: NAME.to_owned(),
        replaces: false,
    }
}

fn token_record(failed_uses: u32) -> TokenRecord {
    TokenRecord {
        id: TokenId::known(TOKEN.to_owned()),
        mac: [0; 32],
        mac_key_id: String::new(),
        terms_mac: None,
        binding: TokenBinding::Exact(NAME.to_owned()),
        not_before: NOW,
        expires_at: NOW.plus_seconds(3600),
        max_uses: 1,
        uses: 0,
        standing: TokenStanding::Active,
        terms: TokenTerms::default(),
        created_by: String::new(),
        external_ref: String::new(),
        note: String::new(),
        created_at: NOW,
        failed_uses,
        epoch: 0,
        idempotency_key: None,
        version: Revision(9),
    }
}

/// A certificate that the name has.
fn entry() -> LedgerEntry {
    LedgerEntry {
        issuer: issuer_id(),
        serial: serial(0x0B),
        request: old(),
        signer: signer_name(),
        name: NAME.to_owned(),
        key_fingerprint: Fingerprint::from_bytes([0; 32]),
        not_before: NOW,
        not_after: NOW.plus_seconds(LIFETIME),
        der: Vec::new(),
        explanation: Explanation::new(Effect::Approve, NOW, 1),
        revoked: None,
        retired: None,
    }
}

/// The request that is decided.
fn it() -> RequestId {
    RequestId::from_bytes([1; 16])
}

/// Another one of its name.
fn old() -> RequestId {
    RequestId::from_bytes([2; 16])
}

fn serial(number: u64) -> Serial {
    Serial::try_from(number).unwrap()
}

fn issuer_id() -> IssuerId {
    IssuerId::parse("fleet").unwrap()
}

fn signer_name() -> SignerName {
    SignerName::parse("test.example/agent").unwrap()
}

fn lines(plan: &Plan) -> Vec<String> {
    let Plan {
        change, completion, ..
    } = plan;
    let mut lines = Vec::new();
    for (lead, change) in [("", change), ("then ", completion)] {
        let holds = change.preconditions.iter().map(held).collect();
        let writes = change.writes.iter().map(written).collect();
        for (word, parts) in [
            ("if", holds),
            ("do", writes),
            ("tell", actions(&change.audit)),
        ] {
            if !parts.is_empty() {
                lines.push(format!("{lead}{word} {}", parts.join(", ")));
            }
        }
    }
    if plan.is_fenced {
        lines.push("fenced".to_owned());
    }
    lines
}

fn held(precondition: &Precondition) -> String {
    match precondition {
        Precondition::RequestAt { id, version } => format!("{} at {version}", who(id)),
        Precondition::RequestIn { id, state } => format!("{} is {}", who(id), state.word()),
        Precondition::KeyFree { .. } => "name free".to_owned(),
        Precondition::NotDenied { .. } => "not denied".to_owned(),
        Precondition::NewestCertificate { serial, .. } => match serial {
            Some(serial) => format!("newest {serial}"),
            None => "newest none".to_owned(),
        },
        Precondition::Unrevoked { serial, .. } => format!("{serial} unrevoked"),
        Precondition::IntentOpen { serial, owner, .. } => match owner {
            Some(owner) => format!("{serial} open by {}", owner.0),
            None => format!("{serial} open"),
        },
        Precondition::MachineAt { version, .. } => {
            format!("machine at {}", version.unwrap())
        }
        Precondition::MachineUnused { .. } => "machine unused".to_owned(),
        Precondition::WindowOpen { with_token, .. } => {
            format!("window open{}", also(*with_token, " with token"))
        }
        Precondition::TokenUsable { .. } => "token usable".to_owned(),
        Precondition::TokenAt { version, .. } => format!("token at {version}"),
        other => panic!("{other:?}"),
    }
}

fn written(write: &Write) -> String {
    match write {
        Write::InsertRequest(request) => {
            let retained = also(request.retained, " retained");
            let certificate = with(request.certificate.as_ref());
            format!("store {}{retained}{certificate}", standing(request))
        }
        Write::UpdateRequest(update) => format!(
            "set {} {} {}{}{}{}{}",
            who(&update.id),
            update.state.word(),
            if update.live { "live" } else { "past" },
            also(update.explanation.is_some(), " decided"),
            also(update.failure.is_some(), " because"),
            also(update.attachment.is_some(), " attached"),
            with(update.certificate.as_ref()),
        ),
        Write::DeleteRequest(id) => format!("forget {}", who(id)),
        Write::Intend(intent) => match intent.deferred.as_deref() {
            Some(DeferredRequest { request, audit }) => format!(
                "intend {} holding {} ({})",
                intent.serial,
                standing(request),
                actions(audit).join(", ")
            ),
            None => format!("intend {}", intent.serial),
        },
        Write::VoidIntent { serial, .. } => format!("void {serial}"),
        Write::Revoke(revocation) => format!("revoke {}", revocation.serial),
        Write::Retire { .. } => "retire name".to_owned(),
        Write::EnrolMachine { .. } => "enrol machine".to_owned(),
        Write::UseWindow { .. } => "use window".to_owned(),
        Write::UseToken(used) => {
            let by = used.request.as_ref().map(|id| format!(" for {}", who(id)));
            format!("use token {}{}", used.state.word(), by.unwrap_or_default())
        }
        Write::TokenIssued { serial, .. } => format!("token issued {serial}"),
        Write::FailToken { .. } => "count misuse".to_owned(),
        Write::EndToken { .. } => "lock token".to_owned(),
        Write::TrimRejections { .. } => "trim rejections".to_owned(),
        Write::CountDenial(_) => "count denial".to_owned(),
        Write::DenialsTold(_) => "denials told".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// A request that is stored: one that occupies its name, unless it is said to be past.
fn standing(request: &RequestRecord) -> String {
    let past = also(!request.live, " past");
    format!("{} {}{past}", who(&request.id), request.state.word())
}

fn actions(audit: &[AuditEntry]) -> Vec<String> {
    audit.iter().map(|entry| entry.action.to_string()).collect()
}

fn with(certificate: Option<&(IssuerId, Serial)>) -> String {
    let with = certificate.map(|(_, serial)| format!(" with {serial}"));
    with.unwrap_or_default()
}

fn also(is_so: bool, words: &'static str) -> &'static str {
    if is_so { words } else { "" }
}

fn who(id: &RequestId) -> &'static str {
    if *id == it() { "it" } else { "old" }
}

const NOW: UnixTime = UnixTime(1_800_000_000);
const LIFETIME: u64 = 3600;
const DOOR: Door = Door::named("test");
const NAME: &str = "web01.example.com";
const TOKEN: &str = "aaaaaaaaaaaaaaaa";
const US: &str = "us";
