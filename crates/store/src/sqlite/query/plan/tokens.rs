//! How SQLite plans what is asked and written about tokens, however many were minted.

use countersign_authority::{TokenFilter, TokenId, TokenStanding, TokenStatus, TokenUseRecord};
use countersign_policy::TokenUseState;

use super::*;
use crate::sqlite::tokens;

const NOW: UnixTime = UnixTime(1_700_000_000);

#[test]
fn a_token_and_its_uses_are_found_by_identity() {
    let by_identity = "SEARCH tokens USING INDEX tokens_id (id=?)";
    let found = plans(|connection| tokens::token(connection, &id(), "a", &key()));
    // There is no such token, and everything is asked all the same: how long it takes tells nobody which ids there are.
    assert_eq!(
        found,
        [
            by_identity,
            "SEARCH store_state USING INTEGER PRIMARY KEY (rowid=?)",
            "SEARCH token_uses USING INDEX token_uses_once (token=? AND certname=? AND key_fingerprint=?)",
            "SEARCH token_uses USING INDEX token_uses_order (token=?)",
        ]
    );
    let version = Revision(1);
    let at = plan_of(Precondition::TokenAt { id: id(), version });
    assert_eq!(at, by_identity);
    let uses = one_plan(|connection| tokens::token_uses(connection, &id(), 10));
    assert_eq!(
        uses,
        "SEARCH token_uses USING INDEX token_uses_order (token=?)"
    );
    let ordered = one_plan(|connection| tokens::token_ordered(connection, "a", "b"));
    assert_eq!(
        ordered,
        "SEARCH tokens USING INDEX tokens_ordered (created_by=? AND idempotency_key=?)"
    );
}

#[test]
fn the_uses_of_a_token_that_matter_are_found_without_sorting() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connection(&folder);
    for (condition, index) in [
        (
            tokens::SAME,
            "token_uses_once (token=? AND certname=? AND key_fingerprint=?)",
        ),
        (tokens::OTHER, "token_uses_order (token=?)"),
    ] {
        let plan = explain(&connection, &tokens::first_use(condition));
        assert_eq!(plan, format!("SEARCH token_uses USING INDEX {index}"));
    }
    let last = explain(&connection, &tokens::last_use());
    assert_eq!(
        last,
        "SEARCH token_uses USING INDEX token_uses_order (token=?)"
    );
}

#[test]
fn what_a_use_relies_on_is_checked_by_its_keys() {
    let usable = plan_of(Precondition::TokenUsable {
        id: id(),
        certname: "a".to_owned(),
        key_fingerprint: key(),
        at: NOW,
    });
    let reserved = plan_of(Precondition::TokenReserved {
        id: id(),
        certname: "a".to_owned(),
        key_fingerprint: key(),
        request: None,
    });
    let once = "INDEX token_uses_once (token=? AND certname=? AND key_fingerprint=?)";
    for plan in [&usable, &reserved] {
        assert!(plan.contains(once), "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
    assert!(usable.contains("INDEX tokens_id (id=?)"), "{usable}");
}

/// A name may have had many; those alone that can be used are looked at, and sorted.
#[test]
fn usable_tokens_are_found_and_counted_in_their_indexes() {
    let expected = "SEARCH tokens USING INDEX tokens_usable_of (value=? AND expires_at>?)";
    let of_name = one_plan(|connection| tokens::active_tokens_of(connection, "a", NOW));
    let checked = plan_of(Precondition::ActiveTokens {
        certname: "a".to_owned(),
        ids: vec![],
        at: NOW,
    });
    for plan in [of_name, checked] {
        assert!(plan.starts_with(expected), "{plan}");
    }
    let counted = one_plan(|connection| tokens::active_tokens(connection, NOW, 10));
    assert!(
        counted.contains("COVERING INDEX tokens_usable (epoch=? AND expires_at>?)"),
        "{counted}"
    );
    let over = one_plan(|connection| tokens::tokens_over(connection, NOW, 10));
    assert_eq!(over, "SEARCH tokens USING INDEX tokens_over (over_at<?)");
}

#[test]
fn pages_of_tokens_are_chosen_in_an_index() {
    let by_number = "SEARCH tokens USING INTEGER PRIMARY KEY (rowid<?)";
    let by_phase = "COVERING INDEX tokens_phase (phase=? AND number>? AND number<?)";
    let by_name = "SEARCH tokens USING INDEX tokens_value (value=? AND number<?)";
    for unused in [false, true] {
        for status in TokenStatus::ALL.map(Some).into_iter().chain([None]) {
            for certname in [None, Some("a".to_owned())] {
                let expected = match (&certname, status) {
                    (Some(_), _) => by_name,
                    (None, Some(_)) => by_phase,
                    (None, None) if unused => "SEARCH tokens USING INDEX tokens_unused (number<?)",
                    (None, None) => by_number,
                };
                let filter = TokenFilter {
                    certname,
                    unused,
                    status,
                    ..TokenFilter::newest(NOW, 10)
                };
                let plans = plans(|connection| tokens::tokens(connection, &filter));
                let [epoch, restored, page] = plans.as_slice() else {
                    panic!("{plans:?}");
                };
                assert!(epoch.starts_with("SEARCH store_state"), "{epoch}");
                assert_eq!(
                    restored,
                    "SEARCH tokens USING COVERING INDEX tokens_epoch (epoch<?)"
                );
                assert!(page.contains(expected), "{filter:?}: {page}");
                assert!(!page.contains("TEMP B-TREE"), "{filter:?}: {page}");
                assert!(!page.contains("SCAN tokens"), "{filter:?}: {page}");
            }
        }
    }
}

#[test]
fn tokens_are_written_by_their_keys() {
    let (id, certname, key_fingerprint) = (id, || "a".to_owned(), key());
    let used = TokenUseRecord {
        token: id(),
        certname: certname(),
        key_fingerprint,
        state: TokenUseState::Reserved,
        request: None,
        serial: None,
        at: NOW,
        retry_until: NOW,
    };
    for write in [
        Write::UseToken(used),
        Write::TokenIssued {
            id: id(),
            certname: certname(),
            key_fingerprint,
            serial: serial(),
        },
        Write::EndToken {
            id: id(),
            standing: TokenStanding::Locked { at: NOW },
        },
        Write::FailToken { id: id() },
        Write::ReleaseToken {
            id: id(),
            certname: certname(),
            key_fingerprint,
            request: None,
        },
        Write::ForgetToken { id: id() },
    ] {
        let change = Change {
            writes: vec![write],
            ..Change::default()
        };
        let plans = plans(|connection| change::write(connection, &change, Revision(1)));
        assert!(!plans.is_empty());
        for plan in plans {
            assert!(
                plan.starts_with("SEARCH token") && !plan.contains("SCAN"),
                "{change:?}: {plan}"
            );
        }
    }
}

fn id() -> TokenId {
    TokenId::parse("aaaqeayeaudaocaj").unwrap()
}

fn key() -> Fingerprint {
    countersign_pki::fingerprint_sha256(b"key")
}
