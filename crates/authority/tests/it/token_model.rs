//! A model of tokens and what happens to them on several replicas.
//!
//! A step of the model is what the engine does between two points where others may come between: it looks, then commits
//! or signs. Each commit is written here from its preconditions:
//!
//! | here | in the engine | holds if |
//! |---|---|---|
//! | [`Doing::Consume`] | `Stored::change` with `use_token` | `TokenUsable`, then `KeyFree` and `NewestCertificate` of the name |
//! | [`Doing::Record`] | `Core::complete` | `IntentOpen` of its owner, `RequestExists`, `RequestIn` approved |
//! | [`Doing::Void`] | `Core::void` | `IntentOpen` of anybody; a conflict is no fault |
//! | [`Doing::Redo`] | `Core::redo` | `IntentOpen` of the old intent; `RequestAt` says nothing more here |
//! | [`Doing::Release`] | `Core::releasing` | `TokenReserved` of the same request, and `IntentOpen` |
//! | [`Doing::Revoke`] | `Core::revoke_token` | `TokenAt`, `IntentOpen` |
//! | [`Doing::Mint`] | `Core::mint` with `end_tokens_of` | `ActiveTokens` |
//!
//! What is looked at before a commit is in [`Setting::look`], from `Core::recall` and the policy's comparison of token and
//! request. [`crate::token_orders`] goes through every order of steps; [`crate::token_conformance`] shows that the engine does
//! what the model does.
#![expect(clippy::indexing_slicing, reason = "what the model numbers is there")]

use countersign_authority::TokenStatus;

use crate::token_state::{
    Doing, Intent, IntentIs, Replica, Request, RequestIs, State, Then, Token, is_over,
};

/// Whom the tokens are for, and what may happen how often.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) keys: usize,
    pub(crate) replicas: usize,
    pub(crate) crashes: u8,
    pub(crate) releases: u8,
    pub(crate) mints: bool,
    pub(crate) revokes: bool,
    /// The last time on the clock.
    pub(crate) end: u8,
    pub(crate) flaw: Option<Flaw>,
}

/// Whom the tokens are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One name that all keys ask for; each token is good once, and another may be minted in its place.
    Exact,
    /// A name of its own for each key; the token is good so many times.
    Glob(u8),
}

/// A precondition that is left out: the checker must see that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The token is looked at, and later used whatever happened meanwhile.
    UseUnchecked,
    /// The commit asks for a use that is left, but not whether the token has ended.
    UseOfEnded,
    /// A use is given back, but what was begun for it goes on.
    ReleaseKeepsIntent,
    /// A certificate is recorded though its intent was voided.
    RecordUnchecked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Submit {
        replica: usize,
        token: usize,
        key: usize,
    },
    Recover {
        replica: usize,
    },
    Release {
        replica: usize,
        token: usize,
    },
    Revoke {
        replica: usize,
        token: usize,
    },
    Mint {
        replica: usize,
    },
    /// What the replica is about to do happens.
    Go {
        replica: usize,
    },
    /// It does not, and whatever the replica knew is lost.
    Crash {
        replica: usize,
    },
    Restart {
        replica: usize,
    },
    Tick,
}

/// What the one who asked is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Issued(usize),
    Denied(&'static str),
    /// The same key is being enrolled.
    InProgress,
    /// Somebody else is being enrolled under the name.
    NameTaken,
    /// Others were faster; try again.
    Contended,
    NotReserved,
    Done,
}

impl Setting {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            keys: match kind {
                Kind::Exact => 2,
                Kind::Glob(_) => 3,
            },
            replicas: 2,
            crashes: 1,
            releases: 1,
            mints: kind == Kind::Exact,
            revokes: true,
            end: 2,
            flaw: None,
        }
    }

    pub(crate) fn start(&self) -> State {
        let replica = |owner| Replica {
            is_alive: true,
            owner,
            doing: Doing::Nothing,
        };
        State {
            clock: 0,
            tokens: vec![Token::minted(0)],
            uses: Vec::new(),
            requests: Vec::new(),
            intents: Vec::new(),
            has_shown_wrongly: false,
            replicas: (0..self.replicas).map(replica).collect(),
            crashes: 0,
            releases: 0,
        }
    }

    pub(crate) fn max_uses(&self) -> u8 {
        match self.kind {
            Kind::Exact => 1,
            Kind::Glob(uses) => uses,
        }
    }

    fn same_name(&self, one: usize, other: usize) -> bool {
        self.kind == Kind::Exact || one == other
    }

    pub(crate) fn possible(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        if state.clock < self.end {
            actions.push(Action::Tick);
        }
        for (replica, it) in state.replicas.iter().enumerate() {
            if !it.is_alive {
                actions.push(Action::Restart { replica });
                continue;
            }
            if it.doing != Doing::Nothing {
                actions.push(Action::Go { replica });
                // What a replica knows while it is idle is on record: its death then is that of an idle one.
                if state.crashes < self.crashes {
                    actions.push(Action::Crash { replica });
                }
                continue;
            }
            actions.push(Action::Recover { replica });
            if self.mints && state.tokens.len() < 2 {
                actions.push(Action::Mint { replica });
            }
            for token in 0..state.tokens.len() {
                let submit = |key| Action::Submit {
                    replica,
                    token,
                    key,
                };
                actions.extend((0..self.keys).map(submit));
                if self.revokes {
                    actions.push(Action::Revoke { replica, token });
                }
                if state.releases < self.releases {
                    actions.push(Action::Release { replica, token });
                }
            }
        }
        actions
    }

    /// What a step leads to, and what whoever asked is told if that was the last one.
    pub(crate) fn step(&self, before: &State, action: Action) -> (State, Option<Answer>) {
        let mut state = before.clone();
        let answer = match action {
            Action::Tick => {
                state.clock += 1;
                None
            }
            Action::Crash { replica } => {
                state.crashes += 1;
                state.kill(replica);
                None
            }
            Action::Restart { replica } => {
                let it = &mut state.replicas[replica];
                it.is_alive = true;
                it.owner += self.replicas;
                self.recover(&mut state, replica)
            }
            Action::Submit {
                replica,
                token,
                key,
            } => self.look(&mut state, replica, token, key),
            Action::Recover { replica } => self.recover(&mut state, replica),
            Action::Release { replica, token } => look_for_release(&mut state, replica, token),
            Action::Revoke { replica, token } => look_for_revocation(&mut state, replica, token),
            Action::Mint { replica } => {
                let at = state.clock;
                let sees = self.active(&state, at);
                state.replicas[replica].doing = Doing::Mint { sees, at };
                None
            }
            Action::Go { replica } => self.go(&mut state, replica),
        };
        (state, answer)
    }

    /// A request with a token is looked at: what is to be written about it, or the answer.
    fn look(&self, state: &mut State, replica: usize, token: usize, key: usize) -> Option<Answer> {
        let it = &state.tokens[token];
        let same = state.used(token, key);
        let doing = 'doing: {
            if it.is_ended {
                break 'doing Doing::Deny("token_revoked");
            }
            match same.map(|used| (used.serial, used.at)) {
                Some((None, _)) => return Some(Answer::InProgress),
                Some((Some(serial), at)) if !is_over(at, state.clock) => {
                    break 'doing Doing::Retell { key, serial };
                }
                Some((Some(serial), _)) => return Some(state.show(key, serial)),
                None => {}
            }
            let newest = self.newest_certificate(state, key);
            match newest {
                Some((serial, of)) if of == key => return Some(state.show(key, serial)),
                Some(_) | None => {}
            }
            Doing::Deny(if self.max_uses() == 1 && it.uses > 0 {
                "token_key_mismatch"
            } else if is_over(it.minted_at, state.clock) {
                "token_expired"
            } else if it.uses >= self.max_uses() {
                "token_exhausted"
            } else if newest.is_some() {
                "existing_certificate"
            } else {
                let at = state.clock;
                break 'doing Doing::Consume { token, key, at };
            })
        };
        state.replicas[replica].doing = doing;
        None
    }

    /// The tokens that a new one takes the place of.
    fn active(&self, state: &State, at: u8) -> Vec<usize> {
        let tokens = state.tokens.iter().enumerate();
        let active = tokens.filter(|(_, it)| {
            !it.is_ended && it.uses < self.max_uses() && !is_over(it.minted_at, at)
        });
        active.map(|(number, _)| number).collect()
    }

    fn newest_certificate(&self, state: &State, key: usize) -> Option<(usize, usize)> {
        let all = state.certificates().into_iter();
        all.map(|(serial, request)| (serial, request.key))
            .rfind(|(_, of)| self.same_name(*of, key))
    }

    fn recover(&self, state: &mut State, replica: usize) -> Option<Answer> {
        let open = state.intents.iter().enumerate();
        let open = open.filter(|(_, intent)| intent.state == IntentIs::Open);
        let rest = open.map(|(serial, _)| serial).collect();
        self.recover_next(state, replica, rest)
    }

    fn recover_next(
        &self,
        state: &mut State,
        replica: usize,
        mut rest: Vec<usize>,
    ) -> Option<Answer> {
        let at = state.clock;
        while !rest.is_empty() {
            let serial = rest.remove(0);
            let intent = &state.intents[serial];
            if intent.drafted_at >= at {
                // Its owner may be at work.
                continue;
            }
            let is_approved = state.requests[intent.request].state == RequestIs::Approved;
            state.replicas[replica].doing = match is_approved {
                true => Doing::Redo { serial, at, rest },
                false => Doing::Void {
                    serial,
                    then: Then::Recover { rest },
                },
            };
            return None;
        }
        Some(Answer::Done)
    }

    /// The commit or signature that a replica is about to make.
    pub(crate) fn go(&self, state: &mut State, replica: usize) -> Option<Answer> {
        let owner = state.replicas[replica].owner;
        let doing = std::mem::replace(&mut state.replicas[replica].doing, Doing::Nothing);
        match doing {
            Doing::Nothing => None,
            Doing::Deny(code) => Some(Answer::Denied(code)),
            Doing::Retell { key, serial } => Some(state.show(key, serial)),
            Doing::Consume { token, key, at } => {
                if !self.is_usable(state, token, key, at) {
                    return self.look(state, replica, token, key);
                }
                let is_taken = |request: &Request| {
                    request.state == RequestIs::Approved && self.same_name(request.key, key)
                };
                if state.requests.iter().any(is_taken) {
                    return Some(Answer::NameTaken);
                }
                if self.newest_certificate(state, key).is_some() {
                    return self.look(state, replica, token, key);
                }
                let serial = state.consume(token, key, at, owner);
                let then = Then::Answer { key };
                state.replicas[replica].doing = Doing::Sign { serial, then };
                None
            }
            Doing::Sign { serial, then } => {
                state.replicas[replica].doing = Doing::Record { serial, then };
                None
            }
            Doing::Record { serial, then } => {
                let intent = &state.intents[serial];
                let is_mine = intent.state == IntentIs::Open && intent.owner == owner;
                if !is_mine && self.flaw != Some(Flaw::RecordUnchecked) {
                    state.replicas[replica].doing = Doing::Void { serial, then };
                    return None;
                }
                state.record(serial);
                match then {
                    Then::Answer { key } => Some(state.show(key, serial)),
                    Then::Recover { rest } => self.recover_next(state, replica, rest),
                }
            }
            Doing::Void { serial, then } => {
                state.void(serial);
                match then {
                    Then::Answer { .. } => Some(Answer::Contended),
                    Then::Recover { rest } => self.recover_next(state, replica, rest),
                }
            }
            Doing::Redo { serial, at, rest } => {
                let request = state.intents[serial].request;
                if state.intents[serial].state != IntentIs::Open {
                    return self.recover_next(state, replica, rest);
                }
                state.void(serial);
                let serial = state.intend(request, owner, at);
                let then = Then::Recover { rest };
                state.replicas[replica].doing = Doing::Sign { serial, then };
                None
            }
            Doing::Release { token, key, serial } => {
                let reserved = state
                    .used(token, key)
                    .is_some_and(|used| used.serial.is_none());
                let is_open = |serial: usize| state.intents[serial].state == IntentIs::Open;
                if !reserved || !serial.is_none_or(is_open) {
                    return look_for_release(state, replica, token);
                }
                state.release(
                    token,
                    key,
                    self.flaw == Some(Flaw::ReleaseKeepsIntent),
                    serial,
                );
                Some(Answer::Done)
            }
            Doing::Revoke {
                token,
                version,
                begun,
            } => {
                if state.tokens[token].version != version || state.begun(token) != begun {
                    return look_for_revocation(state, replica, token);
                }
                state.end(token);
                for serial in begun {
                    state.fail(serial);
                }
                Some(Answer::Done)
            }
            Doing::Mint { sees, at } => {
                let active = self.active(state, at);
                if active != sees {
                    let at = state.clock;
                    let sees = self.active(state, at);
                    state.replicas[replica].doing = Doing::Mint { sees, at };
                    return None;
                }
                for token in active {
                    state.end(token);
                }
                state.tokens.push(Token::minted(at));
                Some(Answer::Done)
            }
        }
    }

    fn is_usable(&self, state: &State, token: usize, key: usize, at: u8) -> bool {
        let it = &state.tokens[token];
        let is_left = it.uses < self.max_uses() && !is_over(it.minted_at, at);
        let is_new = state.used(token, key).is_none();
        match self.flaw {
            Some(Flaw::UseUnchecked) => is_new,
            Some(Flaw::UseOfEnded) => is_left && is_new,
            Some(Flaw::ReleaseKeepsIntent | Flaw::RecordUnchecked) | None => {
                !it.is_ended && is_left && is_new
            }
        }
    }

    /// Where a token stands, as people see it.
    pub(crate) fn status(&self, state: &State, token: usize) -> TokenStatus {
        let it = &state.tokens[token];
        let last = state.uses.iter().rfind(|used| used.token == token);
        match last {
            _ if it.is_ended => TokenStatus::Revoked,
            Some(_) if it.uses >= self.max_uses() && self.max_uses() > 1 => TokenStatus::Exhausted,
            Some(used) if it.uses >= self.max_uses() => match used.serial {
                None => TokenStatus::Reserved,
                Some(_) if is_over(used.at, state.clock) => TokenStatus::Exhausted,
                Some(_) => TokenStatus::Issued,
            },
            Some(_) | None if is_over(it.minted_at, state.clock) => TokenStatus::Expired,
            Some(_) | None => TokenStatus::Active,
        }
    }

    /// Everybody dies; one comes back after the leases. What was reserved is then issued, and its key may have it.
    pub(crate) fn can_be_finished(&self, state: &State) -> bool {
        let mut later = state.clone();
        for replica in 0..self.replicas {
            later.kill(replica);
        }
        if state.uses.iter().all(|used| used.serial.is_some()) {
            return true;
        }
        later.clock += 1;
        let replica = 0;
        let (mut later, _) = self.step(&later, Action::Restart { replica });
        while later.replicas[replica].doing != Doing::Nothing {
            later = self.step(&later, Action::Go { replica }).0;
        }
        // What a revocation has ended is over.
        let is_ended = |used: &crate::token_state::Use| {
            state.requests[used.request].state == RequestIs::Released
        };
        state
            .uses
            .iter()
            .filter(|used| !is_ended(used))
            .all(|used| {
                let (token, key) = (used.token, used.key);
                let serial = later.used(token, key).and_then(|used| used.serial);
                let mut asks = later.clone();
                let mut answer = self.look(&mut asks, replica, token, key);
                if answer.is_none() {
                    answer = self.go(&mut asks, replica);
                }
                let is_told = answer == serial.map(Answer::Issued);
                serial.is_some() && (is_told || later.tokens[token].is_ended)
            })
    }
}

fn look_for_release(state: &mut State, replica: usize, token: usize) -> Option<Answer> {
    let mut uses = state.uses.iter();
    let reserved = uses.find(|used| used.token == token && used.serial.is_none());
    let Some(used) = reserved else {
        return Some(Answer::NotReserved);
    };
    let (key, request) = (used.key, used.request);
    let is_its = |intent: &Intent| intent.request == request && intent.state == IntentIs::Open;
    let serial = state.intents.iter().position(is_its);
    state.replicas[replica].doing = Doing::Release { token, key, serial };
    None
}

fn look_for_revocation(state: &mut State, replica: usize, token: usize) -> Option<Answer> {
    let it = &state.tokens[token];
    if it.is_ended {
        return Some(Answer::Done);
    }
    let (version, begun) = (it.version, state.begun(token));
    state.replicas[replica].doing = Doing::Revoke {
        token,
        version,
        begun,
    };
    None
}
