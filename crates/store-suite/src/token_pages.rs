//! Listings of enrolment tokens, how many can be used, and which are over.

use countersign_authority::store::{Precondition, Store, Write};
use countersign_authority::{TokenFilter, TokenId, TokenRecord, TokenStanding, TokenStatus};
use countersign_policy::TokenUseState;

use super::inventory::holds;
use super::sample::write;
use super::tokens::{end, key, put};
use super::{Ground, Sample};

/// What every token was made for: it is shown, alone and in a listing, and found by its status and by no other.
pub async fn every_status_is_shown_and_found(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let tokens = one_of_each(&*store, &sample).await;
    let mut seen = Vec::new();
    for (token, at, expected) in tokens {
        let now = Sample::time(at);
        let listed = store.listed_token(&token, now).await.unwrap().unwrap();
        assert_eq!(listed.status, expected, "{:?} at {at}", listed.record);
        for status in TokenStatus::ALL {
            let filter = TokenFilter {
                status: Some(status),
                ..TokenFilter::newest(now, 100)
            };
            let page = store.tokens(filter).await.unwrap();
            assert!(page.iter().all(|listed| listed.status == status));
            let found = page.contains(&listed);
            assert_eq!(found, status == expected, "{status:?} {listed:?} at {at}");
        }
        seen.push(expected);
    }
    assert!(TokenStatus::ALL.iter().all(|status| seen.contains(status)));
}

/// Newest first, in pages of any size, by everything that a filter can name.
pub async fn pages_of_tokens_come_newest_first_and_by_what_is_asked_for(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut minted = Vec::new();
    for _ in 0..3 {
        for (token, _, _) in one_of_each(&*store, &sample).await {
            if minted.last() != Some(&token) {
                minted.push(token);
            }
        }
    }
    let statuses = TokenStatus::ALL.map(Some).into_iter().chain([None]);
    for status in statuses {
        for at in [0, 50, 51, 100] {
            for certname in [None, Some("a"), Some("b"), Some("*.example.com"), Some("")] {
                for unused in [false, true] {
                    let filter = TokenFilter {
                        certname: certname.map(str::to_owned),
                        status,
                        unused,
                        ..TokenFilter::newest(Sample::time(at), 0)
                    };
                    let mut expected = Vec::new();
                    for id in minted.iter().rev() {
                        let listed = store.listed_token(id, filter.now).await;
                        let listed = listed.unwrap().unwrap();
                        if status.is_none_or(|status| status == listed.status)
                            && certname.is_none_or(|name| name == listed.record.binding.value())
                            && (!unused || listed.record.uses == 0)
                        {
                            expected.push(id.clone());
                        }
                    }
                    for limit in [1, 4, 100] {
                        let found = pages(&*store, &filter, limit).await;
                        assert_eq!(found, expected, "{filter:?} {limit}");
                    }
                }
            }
        }
    }
    let forgotten = TokenFilter {
        after: Some(Sample::token_id(1000)),
        ..TokenFilter::newest(Sample::time(0), 10)
    };
    assert!(store.tokens(forgotten).await.unwrap().is_empty());
}

/// A page may begin after a token that would no longer be on it.
pub async fn a_page_goes_on_after_a_token_whose_status_changed(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut minted = Vec::new();
    for _ in 0..5 {
        minted.push(put(&*store, sample.token("a")).await);
    }
    let mut filter = TokenFilter {
        status: Some(TokenStatus::Active),
        ..TokenFilter::newest(Sample::time(10), 2)
    };
    let first = store.tokens(filter.clone()).await.unwrap();
    let last = &first.last().unwrap().record;
    let revoked = TokenStanding::Revoked {
        at: Sample::time(10),
        superseded_by: None,
    };
    write(&*store, vec![end(last, &revoked)]).await;
    filter.after = Some(last.id.clone());
    let second = store.tokens(filter).await.unwrap();
    let second: Vec<_> = second.into_iter().map(|listed| listed.record).collect();
    assert_eq!(second, [minted[2].clone(), minted[1].clone()]);
}

/// Those that have a use left and are not over count, whether or not their time has begun.
pub async fn usable_tokens_are_counted_up_to_a_bound(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    assert_eq!(store.active_tokens(Sample::time(0), 10).await.unwrap(), 0);
    one_of_each(&*store, &sample).await;
    for (at, at_most, expected) in [(0, 100, 4), (0, 3, 3), (20, 100, 3), (100, 100, 0)] {
        let counted = store.active_tokens(Sample::time(at), at_most).await;
        assert_eq!(counted.unwrap(), expected, "{at} {at_most}");
        let filter = TokenFilter {
            status: Some(TokenStatus::Active),
            ..TokenFilter::newest(Sample::time(at), at_most)
        };
        assert_eq!(store.tokens(filter).await.unwrap().len(), expected);
    }
}

/// Those for exactly the name that have a use left and are not over; in any order, but all of them.
pub async fn usable_tokens_of_a_name_are_checked(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let of_name = |differently: fn(&mut TokenRecord)| {
        let mut token = sample.token("a.example.com");
        differently(&mut token);
        token
    };
    let first = put(&*store, of_name(|_| {})).await;
    let later = |token: &mut TokenRecord| token.not_before = Sample::time(90);
    let second = put(&*store, of_name(later)).await;
    for other in [
        of_name(|token| token.expires_at = Sample::time(20)),
        of_name(|token| token.uses = 1),
        of_name(|token| {
            token.standing = TokenStanding::Locked {
                at: Sample::time(1),
            };
        }),
        sample.token("b.example.com"),
        TokenRecord {
            binding: countersign_policy::TokenBinding::Glob("a.example.com".to_owned()),
            ..sample.glob_token(2)
        },
    ] {
        put(&*store, other).await;
    }
    let now = Sample::time(20);
    let active = store.active_tokens_of("a.example.com", now).await.unwrap();
    assert_eq!(active, [first.clone(), second.clone()]);
    let [one, two] = [&first, &second].map(|token| token.id.clone());
    for (ids, at, expected) in [
        (vec![one.clone(), two.clone()], 20, true),
        (vec![two.clone(), one.clone()], 20, true),
        (vec![one.clone()], 20, false),
        (vec![], 20, false),
        (
            vec![one.clone(), two.clone(), Sample::token_id(1000)],
            20,
            false,
        ),
        (vec![one.clone(), two.clone()], 19, false),
        (vec![], 100, true),
    ] {
        let exactly = Precondition::ActiveTokens {
            certname: "a.example.com".to_owned(),
            ids,
            at: Sample::time(at),
        };
        assert_eq!(
            holds(&*store, exactly.clone()).await,
            expected,
            "{exactly:?}"
        );
    }
    let used = sample.token_use(&first, "a.example.com", &key(1));
    write(&*store, vec![Write::UseToken(used)]).await;
    let active = store.active_tokens_of("a.example.com", now).await.unwrap();
    assert_eq!(active, [second]);
}

/// A token is over when its time is and nobody can ask for its outcome any more; those that were over first come first.
pub async fn tokens_are_over_after_their_last_retry(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let ending = |at, retries: &[u32]| {
        let token = TokenRecord {
            expires_at: Sample::time(at),
            ..sample.glob_token(5)
        };
        let mut writes = vec![Write::PutToken(token.clone())];
        for (number, retry_until) in (0..).zip(retries) {
            let mut used = sample.token_use(&token, "a", &key(number));
            used.retry_until = Sample::time(*retry_until);
            writes.push(Write::UseToken(used));
        }
        (token, writes)
    };
    let mut minted = Vec::new();
    for (at, retries) in [
        (40, &[] as &[u32]),
        (30, &[70, 20]),
        (20, &[]),
        (90, &[30]),
        (25, &[60, 50]),
    ] {
        let (token, writes) = ending(at, retries);
        write(&*store, writes).await;
        minted.push(token.id);
    }
    let revoked = TokenStanding::Revoked {
        at: Sample::time(1),
        superseded_by: None,
    };
    let (taken_back, mut writes) = ending(80, &[]);
    writes.push(end(&taken_back, &revoked));
    write(&*store, writes).await;
    minted.push(taken_back.id);
    for (before, limit, expected) in [
        (20, 10, &[] as &[usize]),
        (21, 10, &[2]),
        (41, 10, &[2, 0]),
        (60, 10, &[2, 0]),
        (61, 10, &[2, 0, 4]),
        (70, 10, &[2, 0, 4]),
        (81, 10, &[2, 0, 4, 1, 5]),
        (91, 10, &[2, 0, 4, 1, 5, 3]),
        (91, 2, &[2, 0]),
    ] {
        let over = store.tokens_over(Sample::time(before), limit).await;
        let expected: Vec<_> = expected
            .iter()
            .map(|index| minted[*index].clone())
            .collect();
        assert_eq!(over.unwrap(), expected, "{before} {limit}");
    }
    // A use that is given back is no longer waited for.
    let release = Write::ReleaseToken {
        id: minted[1].clone(),
        certname: "a".to_owned(),
        key_fingerprint: key(0),
        request: store.token_uses(&minted[1], 1).await.unwrap()[0].request,
    };
    write(&*store, vec![release]).await;
    let over = store.tokens_over(Sample::time(40), 10).await.unwrap();
    assert_eq!(over, [minted[2].clone(), minted[1].clone()]);
}

/// Tokens in every state, each with moments and what it is then.
async fn one_of_each(store: &dyn Store, sample: &Sample) -> Vec<(TokenId, u32, TokenStatus)> {
    let at = Sample::time(5);
    let superseded_by = None;
    let locked = TokenStanding::Locked { at };
    let revoked = TokenStanding::Revoked { at, superseded_by };
    let mut all = Vec::new();
    use TokenStatus::{Active, Exhausted, Expired, Issued, Locked, Reserved, Revoked};
    let short = |token: &mut TokenRecord| token.expires_at = Sample::time(20);
    let later = |token: &mut TokenRecord| token.not_before = Sample::time(90);
    let nothing = |_: &mut TokenRecord| {};
    for (max_uses, differently, uses, standing, expected) in [
        (
            1,
            nothing as fn(&mut TokenRecord),
            vec![],
            None,
            vec![(0, Active), (99, Active), (100, Expired)],
        ),
        (1, short, vec![], None, vec![(19, Active), (20, Expired)]),
        (1, later, vec![], None, vec![(0, Active)]),
        (
            1,
            nothing,
            vec![],
            Some(&locked),
            vec![(0, Locked), (100, Locked)],
        ),
        (
            1,
            nothing,
            vec![],
            Some(&revoked),
            vec![(0, Revoked), (100, Revoked)],
        ),
        (
            1,
            nothing,
            vec![TokenUseState::Reserved],
            None,
            vec![(10, Reserved), (100, Reserved)],
        ),
        (
            1,
            nothing,
            vec![TokenUseState::Issued],
            None,
            vec![(10, Issued), (50, Issued), (51, Exhausted)],
        ),
        (
            1,
            short,
            vec![TokenUseState::Issued],
            None,
            vec![(50, Issued), (51, Exhausted)],
        ),
        (
            1,
            nothing,
            vec![TokenUseState::Issued],
            Some(&revoked),
            vec![(10, Revoked)],
        ),
        (
            2,
            nothing,
            vec![TokenUseState::Reserved],
            None,
            vec![(10, Active), (100, Expired)],
        ),
        (
            2,
            nothing,
            vec![TokenUseState::Issued, TokenUseState::Reserved],
            None,
            vec![(10, Exhausted)],
        ),
    ] {
        let mut token = match max_uses {
            1 => sample.token(["a", "b"][all.len() % 2]),
            _ => sample.glob_token(max_uses),
        };
        differently(&mut token);
        let token = put(store, token).await;
        for (number, state) in (0..).zip(uses) {
            use_and_complete(store, sample, &token, number, state).await;
        }
        if let Some(standing) = standing {
            write(store, vec![end(&token, standing)]).await;
        }
        let expected = expected.into_iter();
        all.extend(expected.map(|(at, status)| (token.id.clone(), at, status)));
    }
    all
}

/// A use that came as far as this, the way that uses do.
async fn use_and_complete(
    store: &dyn Store,
    sample: &Sample,
    token: &TokenRecord,
    number: u32,
    state: TokenUseState,
) {
    let used = sample.token_use(token, "a", &key(number));
    write(store, vec![Write::UseToken(used)]).await;
    if state == TokenUseState::Issued {
        let issued = Write::TokenIssued {
            id: token.id.clone(),
            certname: "a".to_owned(),
            key_fingerprint: key(number),
            serial: Sample::serial(number),
        };
        write(store, vec![issued]).await;
    }
}

async fn pages(store: &dyn Store, filter: &TokenFilter, limit: usize) -> Vec<TokenId> {
    let mut filter = TokenFilter {
        limit,
        ..filter.clone()
    };
    let mut found = Vec::new();
    loop {
        let page = store.tokens(filter.clone()).await.unwrap();
        assert!(page.len() <= limit);
        let Some(last) = page.last() else {
            return found;
        };
        filter.after = Some(last.record.id.clone());
        found.extend(page.into_iter().map(|listed| listed.record.id));
    }
}
