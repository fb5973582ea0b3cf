//! Invariant 3 in the model: every order of steps of two replicas, and what must be true after each.

use std::collections::BTreeSet;

use rstest::rstest;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::token_model::{Action, Flaw, Kind, Setting};
use crate::token_state::{Doing, Request, RequestIs, State};

impl Model for Setting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        *actions = self.possible(state);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let (mut next, _) = self.step(state, action);
        // What is only told comes between nobody: it is not worth states of its own.
        for replica in 0..self.replicas {
            let doing = next.replicas.get(replica).map(|it| &it.doing);
            if matches!(doing, Some(Doing::Deny(_) | Doing::Retell { .. })) {
                self.go(&mut next, replica);
            }
        }
        let next = next.canonical();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_MORE_THAN_ITS_USES, |setting: &Self, state: &State| {
                (0..state.tokens.len()).all(|token| {
                    let max = usize::from(setting.max_uses());
                    let uses = state.uses.iter().filter(|used| used.token == token);
                    let by_token = |(_, request): &&(usize, &Request)| request.token == token;
                    let certificates = state.certificates();
                    state.approved_by(token, false) <= max
                        && uses.count() <= max
                        && certificates.iter().filter(by_token).count() <= max
                })
            }),
            Property::always(ONE_SERIAL_PER_KEY, |_: &Self, state: &State| {
                let all = state.certificates();
                let is_only = |(serial, request): &(usize, &Request)| {
                    !all.iter().any(|(other, of)| {
                        (of.token, of.key) == (request.token, request.key) && other != serial
                    })
                };
                all.iter().all(is_only)
            }),
            Property::always(RELEASED_IS_NOT_ISSUED, |_: &Self, state: &State| {
                let all = state.certificates();
                all.iter()
                    .all(|(_, request)| request.state != RequestIs::Released)
            }),
            Property::always(ENDED_APPROVES_NOTHING, |_: &Self, state: &State| {
                let mut tokens = state.tokens.iter().enumerate();
                tokens.all(|(number, token)| {
                    !token.is_ended || state.approved_by(number, true) == token.approved_at_end
                })
            }),
            Property::always(SHOWN_IS_ON_RECORD, |_: &Self, state: &State| {
                !state.has_shown_wrongly
            }),
            Property::always(CAN_BE_FINISHED, |setting: &Self, state: &State| {
                setting.can_be_finished(state)
            }),
            Property::sometimes(FINISHED_BY_ANOTHER, |_: &Self, state: &State| {
                let all = state.certificates();
                all.iter().any(|(serial, _)| *serial > 0)
                    && state.releases == 0
                    && state.crashes > 0
            }),
            Property::sometimes(RELEASED_TO_ANOTHER_KEY, |_: &Self, state: &State| {
                let was = |key| {
                    let mut all = state.requests.iter();
                    all.any(|r| r.key == key && r.state == RequestIs::Released)
                };
                let all = state.certificates();
                all.iter().any(|(_, of)| of.token == 0 && of.key == 1) && was(0)
            }),
            Property::sometimes(USED_THOUGH_ENDED_LATER, |_: &Self, state: &State| {
                let all = state.certificates();
                let is_ended = |token: usize| state.tokens.get(token).is_some_and(|it| it.is_ended);
                all.iter().any(|(_, of)| is_ended(of.token))
            }),
        ]
    }
}

const NO_MORE_THAN_ITS_USES: &str = "a token approves no more than its uses";
const ONE_SERIAL_PER_KEY: &str = "a key has one serial by a token";
const RELEASED_IS_NOT_ISSUED: &str = "what was given back is never issued";
const ENDED_APPROVES_NOTHING: &str = "a revoked or superseded token approves nothing new";
const SHOWN_IS_ON_RECORD: &str = "what is shown is on record, and its key's";
const CAN_BE_FINISHED: &str = "what was reserved can be finished, and fetched by its key";
const ALWAYS: [&str; 6] = [
    NO_MORE_THAN_ITS_USES,
    ONE_SERIAL_PER_KEY,
    RELEASED_IS_NOT_ISSUED,
    ENDED_APPROVES_NOTHING,
    SHOWN_IS_ON_RECORD,
    CAN_BE_FINISHED,
];
const FINISHED_BY_ANOTHER: &str = "a successor finishes what another began";
const RELEASED_TO_ANOTHER_KEY: &str = "what was given back is used by another key";
const USED_THOUGH_ENDED_LATER: &str = "a certificate outlives its token";

/// Each case leaves something out, so that it can be gone through to its end in little time.
#[rstest]
#[case::two_crashes(
    Kind::Exact,
    |it| Setting { crashes: 2, mints: false, revokes: false, ..it },
    &[FINISHED_BY_ANOTHER, RELEASED_TO_ANOTHER_KEY]
)]
#[case::crash_mint_and_revoke(
    Kind::Exact,
    |it| Setting { releases: 0, end: 1, ..it },
    &[FINISHED_BY_ANOTHER, USED_THOUGH_ENDED_LATER]
)]
#[case::crash_revoke_and_release(
    Kind::Exact,
    |it| Setting { mints: false, ..it },
    &[FINISHED_BY_ANOTHER, RELEASED_TO_ANOTHER_KEY, USED_THOUGH_ENDED_LATER]
)]
#[case::crash_mint_and_release(
    Kind::Exact,
    |it| Setting { revokes: false, end: 1, ..it },
    &[FINISHED_BY_ANOTHER, RELEASED_TO_ANOTHER_KEY]
)]
#[case::all_but_a_crash(
    Kind::Exact,
    |it| Setting { crashes: 0, end: 1, ..it },
    &[RELEASED_TO_ANOTHER_KEY, USED_THOUGH_ENDED_LATER]
)]
#[case::mint_and_expiry(
    Kind::Exact,
    |it| Setting { crashes: 0, revokes: false, releases: 0, ..it },
    &[]
)]
#[case::domain_and_crash(
    Kind::Glob(2),
    |it| Setting { releases: 0, revokes: false, end: 1, ..it },
    &[FINISHED_BY_ANOTHER]
)]
#[case::domain_and_release(
    Kind::Glob(2),
    |it| Setting { crashes: 0, revokes: false, end: 0, ..it },
    &[RELEASED_TO_ANOTHER_KEY]
)]
#[case::domain_and_revoke(
    Kind::Glob(2),
    |it| Setting { crashes: 0, releases: 0, ..it },
    &[USED_THOUGH_ENDED_LATER]
)]
fn a_one_time_token_authorises_once_in_every_order(
    #[case] kind: Kind,
    #[case] narrowed: fn(Setting) -> Setting,
    #[case] sometimes: &[&'static str],
) {
    let setting = narrowed(Setting::new(kind));
    let checked = setting.checker().spawn_bfs().join();
    for property in ALWAYS {
        checked.assert_no_discovery(property);
    }
    for property in sometimes {
        checked.assert_any_discovery(property);
    }
}

/// The checker would notice.
#[test]
fn every_precondition_is_needed() {
    for (flaw, kind, property) in [
        (Flaw::UseUnchecked, Kind::Glob(2), NO_MORE_THAN_ITS_USES),
        (Flaw::UseOfEnded, Kind::Exact, ENDED_APPROVES_NOTHING),
        (
            Flaw::ReleaseKeepsIntent,
            Kind::Exact,
            RELEASED_IS_NOT_ISSUED,
        ),
        (Flaw::RecordUnchecked, Kind::Exact, ONE_SERIAL_PER_KEY),
    ] {
        let setting = Setting {
            flaw: Some(flaw),
            ..Setting::new(kind)
        };
        let only = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let checked = setting.checker().finish_when(only).spawn_bfs().join();
        let found = checked.discovery(property);
        assert!(found.is_some(), "{flaw:?} is not seen");
    }
}
