//! What becomes of a request by what its token is worth, by the rule and by the configuration.

use std::sync::Arc;

use countersign_policy::{
    Allowlist, BuildWindow, Deciding, Effect, Evidence, ListSource, OnMissing, OnToken,
    OnUnavailable, Otherwise, Policy, RuleEffect, RuleKind, Token, TokenFacts, TokenHandling, Use,
    Webhook, WebhookAnswer, WebhookMode,
};

use super::{AGENTS, Asking, Found, ID, NAME, rules, token_for};
use crate::NOW;

const PEND: TokenHandling = TokenHandling {
    on_reject: OnToken::Pend,
    on_missing: OnMissing::Pend,
};
const STRICT: TokenHandling = TokenHandling {
    on_reject: OnToken::Deny,
    on_missing: OnMissing::Deny,
};

fn good() -> TokenFacts {
    TokenFacts::Known(Box::new(token_for(NAME)))
}

fn expired() -> TokenFacts {
    TokenFacts::Known(Box::new(Token {
        expires_at: NOW,
        ..token_for(NAME)
    }))
}

fn names(pattern: &str) -> RuleKind {
    RuleKind::Allowlist(ListSource::Names(Arc::new(Allowlist::parse(pattern).0)))
}

/// A token rule, then a list that has the name.
fn token_then_list(tokens: TokenHandling) -> Policy {
    let kinds = [("token", RuleKind::Token), ("list", names(NAME))];
    Policy {
        tokens,
        ..rules(AGENTS, &kinds)
    }
}

/// A rule alone, as changed.
fn alone(kind: RuleKind, change: fn(&mut Policy)) -> Policy {
    let mut policy = rules(AGENTS, &[("token", kind)]);
    change(&mut policy);
    policy
}

#[test]
fn a_wrong_token_is_denied_or_left_to_a_person_and_no_other_rule_is_asked() {
    let why = || "odd".to_owned();
    let unknown = TokenFacts::Unknown { id: ID.to_owned() };
    for (facts, code) in [
        (TokenFacts::Malformed { why: why() }, "token_malformed"),
        (TokenFacts::Ambiguous { why: why() }, "token_ambiguous"),
        (unknown, "token_unknown"),
        (expired(), "token_expired"),
    ] {
        let evidence = Evidence::none().with_token(Ok(facts), 0);
        for (tokens, effect) in [
            (TokenHandling::default(), Effect::Deny),
            (STRICT, Effect::Deny),
            (PEND, Effect::Pending),
        ] {
            let verdict = Asking::of(NAME).decided(&token_then_list(tokens), evidence.clone());
            let said = verdict.explanation();
            assert_eq!(
                (said.effect, said.code.as_str()),
                (effect, code),
                "{tokens:?}"
            );
            assert_eq!(said.steps.len(), 1, "{code}: {:?}", said.steps);
            assert!(!said.retry && !said.is_stopped(), "{code}");
            let by = (effect == Effect::Deny).then(|| Deciding::rule("token"));
            assert_eq!(said.by, by, "{code}");
        }
    }
}

#[test]
fn without_a_token_other_rules_may_approve_and_else_the_configuration_decides() {
    let missing = || Evidence::none().with_token(Ok(TokenFacts::Missing), 0);
    for tokens in [TokenHandling::default(), STRICT, PEND] {
        let found = Asking::of(NAME).decided(&token_then_list(tokens), missing());
        let by = &found.explanation().by;
        assert_eq!(*by, Some(Deciding::rule("list")), "{tokens:?}");
    }
    let other = "db01.example.com";
    for (tokens, effect) in [
        (TokenHandling::default(), Effect::Pending),
        (PEND, Effect::Pending),
        (STRICT, Effect::Deny),
    ] {
        let verdict = Asking::of(other).decided(&token_then_list(tokens), missing());
        let said = verdict.explanation();
        assert_eq!(said.effect, effect, "{tokens:?}");
        assert_eq!(said.code.as_str(), "token_missing", "{tokens:?}");
        assert_eq!(said.steps.len(), 2, "all rules were asked");
        let by = (effect == Effect::Deny).then(|| Deciding::rule("token"));
        assert_eq!(said.by, by, "{tokens:?}");
    }
    // Who might have approved could not be asked.
    let kinds = [("token", RuleKind::Token), ("build", RuleKind::Window)];
    let stops = Policy {
        tokens: STRICT,
        ..rules(AGENTS, &kinds)
    };
    let down = missing().with_window(Err("the store is away".to_owned()), 0);
    let verdict = Asking::of(NAME).decided(&stops, down);
    let said = verdict.explanation();
    assert_eq!(
        (said.effect, said.code.as_str()),
        (Effect::Pending, "store_unavailable")
    );
    assert!(said.is_stopped());
    // A rule that was not asked does not miss anything.
    let nobody_looks = Policy {
        tokens: STRICT,
        ..rules(AGENTS, &[("list", names("other.example.com"))])
    };
    let verdict = Asking::of(NAME).decided(&nobody_looks, Evidence::none());
    let said = verdict.explanation();
    assert_eq!((said.effect, said.code.as_str()), (Effect::Pending, ""));
}

#[test]
fn else_and_unavailable_mean_what_they_mean_for_other_kinds() {
    let down = || Err("the store is away".to_owned());
    let deny: fn(&mut Policy) = |p| p.rules[0].otherwise = Otherwise::Deny;
    let deny_and_pend: fn(&mut Policy) = |p| {
        p.rules[0].otherwise = Otherwise::Deny;
        p.tokens = PEND;
    };
    let next: fn(&mut Policy) = |p| p.rules[0].on_unavailable = OnUnavailable::Next;
    let strict: fn(&mut Policy) = |p| p.tokens = STRICT;
    let unchanged: fn(&mut Policy) = |_| {};
    for (case, change, facts, effect, code, stopped) in [
        (
            "else deny, missing",
            deny,
            Ok(TokenFacts::Missing),
            Effect::Deny,
            "token_missing",
            false,
        ),
        (
            "else deny, wrong",
            deny,
            Ok(expired()),
            Effect::Deny,
            "token_expired",
            false,
        ),
        (
            "else deny speaks for its rule",
            deny_and_pend,
            Ok(expired()),
            Effect::Deny,
            "token_expired",
            false,
        ),
        (
            "else deny, store down",
            deny,
            down(),
            Effect::Pending,
            "store_unavailable",
            true,
        ),
        (
            "store down",
            unchanged,
            down(),
            Effect::Pending,
            "store_unavailable",
            true,
        ),
        (
            "store down, missing denies",
            strict,
            down(),
            Effect::Pending,
            "store_unavailable",
            true,
        ),
        ("unavailable next", next, down(), Effect::Pending, "", false),
        (
            "else deny, good",
            deny,
            Ok(good()),
            Effect::Approve,
            "token",
            false,
        ),
    ] {
        let policy = alone(RuleKind::Token, change);
        let evidence = Evidence::none().with_token(facts, 0);
        let verdict = Asking::of(NAME).decided(&policy, evidence);
        let said = verdict.explanation();
        assert_eq!((said.effect, said.code.as_str()), (effect, code), "{case}");
        assert_eq!(said.is_stopped(), stopped, "{case}");
    }
}

#[test]
fn a_token_and_a_webhook_must_both_hold_and_the_token_is_asked_first() {
    let webhook = Arc::new(Webhook {
        url: "https://cmdb.example.com/".to_owned(),
        ca_bundle: None,
        timeout_ms: 1000,
        mode: WebhookMode::Json,
        include_csr: false,
        secret_file: None,
        client_cert_file: None,
        client_key_file: None,
    });
    let mut policy = rules(AGENTS, &[("both", RuleKind::Token)]);
    policy.rules[0]
        .kinds
        .push(RuleKind::Webhook(webhook.clone()));
    let reason = String::new;
    let allow = || WebhookAnswer::Allow {
        reason: reason(),
        ttl_seconds: Some(60),
    };
    for (case, facts, answer, effect, code, uses) in [
        ("both", good(), Some(allow()), Effect::Approve, "webhook", 1),
        (
            "no token",
            TokenFacts::Missing,
            None,
            Effect::Pending,
            "token_missing",
            0,
        ),
        (
            "a wrong token",
            expired(),
            None,
            Effect::Deny,
            "token_expired",
            0,
        ),
        (
            "denied",
            good(),
            Some(WebhookAnswer::Deny { reason: reason() }),
            Effect::Deny,
            "webhook_denied",
            0,
        ),
        (
            "left to others",
            good(),
            Some(WebhookAnswer::Pend { reason: reason() }),
            Effect::Pending,
            "",
            0,
        ),
        (
            "no answer",
            good(),
            Some(WebhookAnswer::Unavailable { reason: reason() }),
            Effect::Pending,
            "webhook_error",
            0,
        ),
    ] {
        // Without an answer a question to the webhook would make the decision wait.
        let evidence = Evidence::none().with_token(Ok(facts), 0);
        let evidence = match answer {
            Some(answer) => evidence.with_webhook(webhook.clone(), answer, 0),
            None => evidence,
        };
        let verdict = Asking::of(NAME).decided(&policy, evidence);
        let said = verdict.explanation();
        assert_eq!((said.effect, said.code.as_str()), (effect, code), "{case}");
        assert_eq!(verdict.uses().len(), uses, "{case}");
        assert_eq!(said.token.is_some(), uses == 1, "{case}");
        assert_eq!(said.lifetime.is_some(), uses == 1, "{case}");
    }
}

#[test]
fn a_window_that_wants_a_token_is_worth_what_the_token_is() {
    let window = BuildWindow {
        certname: NAME.to_owned(),
        opens_at: NOW,
        closes_at: NOW.plus_seconds(1),
        max_issuances: 1,
        issuances: 0,
        require_token: true,
    };
    let unchanged: fn(&mut Policy) = |_| {};
    let pend: fn(&mut Policy) = |p| p.tokens = PEND;
    let strict: fn(&mut Policy) = |p| p.tokens = STRICT;
    let denying: fn(&mut Policy) = |p| p.rules[0].effect = RuleEffect::Deny;
    let with_token: fn(&mut Policy) = |p| p.rules[0].kinds.push(RuleKind::Token);
    let down = || Err("the store is away".to_owned());
    let missing = || Ok(TokenFacts::Missing);
    for (case, change, facts, effect, code, uses) in [
        ("good", unchanged, Ok(good()), Effect::Approve, "window", 2),
        (
            "missing",
            unchanged,
            missing(),
            Effect::Pending,
            "window_needs_token",
            0,
        ),
        (
            "missing, which denies",
            strict,
            missing(),
            Effect::Deny,
            "window_needs_token",
            0,
        ),
        (
            "wrong",
            unchanged,
            Ok(expired()),
            Effect::Deny,
            "token_expired",
            0,
        ),
        (
            "wrong, left to a person",
            pend,
            Ok(expired()),
            Effect::Pending,
            "token_expired",
            0,
        ),
        (
            "store down",
            unchanged,
            down(),
            Effect::Pending,
            "store_unavailable",
            0,
        ),
        (
            "beside the token, good",
            with_token,
            Ok(good()),
            Effect::Approve,
            "token",
            2,
        ),
        (
            "beside the token, missing",
            with_token,
            missing(),
            Effect::Pending,
            "token_missing",
            0,
        ),
        (
            "beside the token, wrong",
            with_token,
            Ok(expired()),
            Effect::Deny,
            "token_expired",
            0,
        ),
        (
            "under deny, good",
            denying,
            Ok(good()),
            Effect::Deny,
            "window",
            0,
        ),
        (
            "under deny, wrong",
            denying,
            Ok(expired()),
            Effect::Deny,
            "window",
            0,
        ),
        (
            "under deny, missing",
            denying,
            missing(),
            Effect::Deny,
            "window",
            0,
        ),
    ] {
        let policy = alone(RuleKind::Window, change);
        let evidence = Evidence::none().with_token(facts, 0);
        let evidence = evidence.with_window(Ok(Some(window.clone())), 0);
        let verdict = Asking::of(NAME).decided(&policy, evidence);
        let said = verdict.explanation().clone();
        assert_eq!((said.effect, said.code.as_str()), (effect, code), "{case}");
        let found = Found::of(verdict);
        assert_eq!(found.uses.len(), uses, "{case}");
        let tokens = found.uses.iter().filter_map(Use::token).count();
        assert_eq!(tokens, uses / 2, "{case}: used up together");
    }
}
