//! What the model of tokens has on record, and what its replicas are about to do.
#![expect(clippy::indexing_slicing, reason = "what the model numbers is there")]

use crate::token_model::Answer;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// 0; 1 when leases given before have ended; 2 when tokens and retry windows from before have ended, too.
    pub(crate) clock: u8,
    pub(crate) tokens: Vec<Token>,
    pub(crate) uses: Vec<Use>,
    pub(crate) requests: Vec<Request>,
    /// By serial.
    pub(crate) intents: Vec<Intent>,
    /// Whether somebody was shown what is not on record, or is not theirs.
    pub(crate) has_shown_wrongly: bool,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) crashes: u8,
    pub(crate) releases: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(crate) is_ended: bool,
    pub(crate) uses: u8,
    pub(crate) minted_at: u8,
    pub(crate) version: u8,
    /// How many requests it had approved when it ended.
    pub(crate) approved_at_end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Use {
    pub(crate) token: usize,
    pub(crate) key: usize,
    /// None: reserved.
    pub(crate) serial: Option<usize>,
    pub(crate) at: u8,
    pub(crate) request: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) token: usize,
    pub(crate) key: usize,
    pub(crate) state: RequestIs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestIs {
    Approved,
    Issued,
    Released,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Intent {
    pub(crate) request: usize,
    pub(crate) owner: usize,
    pub(crate) drafted_at: u8,
    pub(crate) state: IntentIs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IntentIs {
    Open,
    Voided,
    Recorded,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replica {
    pub(crate) is_alive: bool,
    pub(crate) owner: usize,
    pub(crate) doing: Doing,
}

/// What a replica is about to do: what it has seen may no longer be true.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Doing {
    Nothing,
    Consume {
        token: usize,
        key: usize,
        at: u8,
    },
    Deny(&'static str),
    Retell {
        key: usize,
        serial: usize,
    },
    Sign {
        serial: usize,
        then: Then,
    },
    Record {
        serial: usize,
        then: Then,
    },
    Void {
        serial: usize,
        then: Then,
    },
    Redo {
        serial: usize,
        at: u8,
        rest: Vec<usize>,
    },
    Release {
        token: usize,
        key: usize,
        /// The open intent of the use; a revoked token's may have none any more.
        serial: Option<usize>,
    },
    Revoke {
        token: usize,
        version: u8,
        /// The open intents of what was begun by it.
        begun: Vec<usize>,
    },
    Mint {
        sees: Vec<usize>,
        at: u8,
    },
}

/// What comes after the certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Then {
    Answer { key: usize },
    Recover { rest: Vec<usize> },
}

impl Token {
    pub(crate) fn minted(minted_at: u8) -> Self {
        Self {
            is_ended: false,
            uses: 0,
            minted_at,
            version: 0,
            approved_at_end: 0,
        }
    }
}

impl State {
    pub(crate) fn used(&self, token: usize, key: usize) -> Option<&Use> {
        let mut uses = self.uses.iter();
        uses.find(|used| used.token == token && used.key == key)
    }

    /// The ledger: serials and what they were issued for.
    pub(crate) fn certificates(&self) -> Vec<(usize, &Request)> {
        let all = self.intents.iter().enumerate();
        all.filter(|(_, intent)| intent.state == IntentIs::Recorded)
            .filter_map(|(serial, intent)| Some((serial, self.requests.get(intent.request)?)))
            .collect()
    }

    pub(crate) fn certificates_of(&self, key: usize) -> usize {
        let all = self.certificates().into_iter();
        all.filter(|(_, request)| request.key == key).count()
    }

    /// How many requests a token has approved; those that were given back do not count, or do.
    pub(crate) fn approved_by(&self, token: usize, with_released: bool) -> usize {
        let by = self
            .requests
            .iter()
            .filter(|request| request.token == token);
        by.filter(|request| with_released || request.state != RequestIs::Released)
            .count()
    }

    pub(crate) fn kill(&mut self, replica: usize) {
        self.replicas[replica].is_alive = false;
        self.replicas[replica].doing = Doing::Nothing;
    }

    pub(crate) fn consume(&mut self, token: usize, key: usize, at: u8, owner: usize) -> usize {
        let request = self.requests.len();
        self.requests.push(Request {
            token,
            key,
            state: RequestIs::Approved,
        });
        self.uses.push(Use {
            token,
            key,
            serial: None,
            at,
            request,
        });
        self.tokens[token].uses += 1;
        self.tokens[token].version += 1;
        self.intend(request, owner, at)
    }

    pub(crate) fn intend(&mut self, request: usize, owner: usize, drafted_at: u8) -> usize {
        self.intents.push(Intent {
            request,
            owner,
            drafted_at,
            state: IntentIs::Open,
        });
        self.intents.len() - 1
    }

    pub(crate) fn record(&mut self, serial: usize) {
        let request = self.intents[serial].request;
        self.intents[serial].state = IntentIs::Recorded;
        self.requests[request].state = match self.requests[request].state {
            RequestIs::Released => RequestIs::Released,
            RequestIs::Approved | RequestIs::Issued => RequestIs::Issued,
        };
        let mut uses = self.uses.iter_mut();
        if let Some(used) = uses.find(|used| used.request == request) {
            used.serial = Some(serial);
            self.tokens[used.token].version += 1;
        }
    }

    pub(crate) fn void(&mut self, serial: usize) {
        if self.intents[serial].state == IntentIs::Open {
            self.intents[serial].state = IntentIs::Voided;
        }
    }

    /// The open intents of the uses of a token that are not signed.
    pub(crate) fn begun(&self, token: usize) -> Vec<usize> {
        let reserved = |request: usize| {
            let mut uses = self.uses.iter();
            uses.any(|used| used.token == token && used.serial.is_none() && used.request == request)
        };
        let intents = self.intents.iter().enumerate();
        intents
            .filter(|(_, intent)| intent.state == IntentIs::Open && reserved(intent.request))
            .map(|(serial, _)| serial)
            .collect()
    }

    /// Ends what an intent is for: nobody signs it any more.
    pub(crate) fn fail(&mut self, serial: usize) {
        let request = self.intents[serial].request;
        self.requests[request].state = RequestIs::Released;
        self.void(serial);
    }

    pub(crate) fn release(
        &mut self,
        token: usize,
        key: usize,
        keeps_intent: bool,
        serial: Option<usize>,
    ) {
        self.releases += 1;
        self.uses
            .retain(|used| (used.token, used.key) != (token, key));
        self.tokens[token].uses -= 1;
        self.tokens[token].version += 1;
        let Some(serial) = serial else {
            return;
        };
        match keeps_intent {
            true => {
                let request = self.intents[serial].request;
                self.requests[request].state = RequestIs::Released;
            }
            false => self.fail(serial),
        }
    }

    pub(crate) fn end(&mut self, token: usize) {
        let approved = self.approved_by(token, true);
        let it = &mut self.tokens[token];
        if !it.is_ended {
            it.is_ended = true;
            it.version += 1;
            it.approved_at_end = approved;
        }
    }

    pub(crate) fn show(&mut self, key: usize, serial: usize) -> Answer {
        let all = self.certificates();
        let is_its = all.iter().any(|(s, of)| *s == serial && of.key == key);
        self.has_shown_wrongly |= !is_its;
        Answer::Issued(serial)
    }

    /// The same state for the checker: replicas and owners have no order, times and versions matter only while they are
    /// compared with something.
    pub(crate) fn canonical(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.replicas.len()).collect();
        order.sort_by_key(|replica| {
            let it = &self.replicas[*replica];
            (it.is_alive, it.doing.clone())
        });
        for intent in &mut self.intents {
            let is_its = |replica: &usize| {
                let it = &self.replicas[*replica];
                it.is_alive && it.owner == intent.owner
            };
            let owner = order.iter().position(is_its).unwrap_or(NOBODY);
            (intent.owner, intent.drafted_at) = match intent.state {
                IntentIs::Open => (owner, intent.drafted_at),
                IntentIs::Voided | IntentIs::Recorded => (NOBODY, 0),
            };
        }
        let mut replicas: Vec<Replica> = order
            .iter()
            .map(|replica| self.replicas[*replica].clone())
            .collect();
        for (number, it) in replicas.iter_mut().enumerate() {
            it.owner = number;
            if let Doing::Revoke { token, version, .. } = &mut it.doing {
                *version = u8::from(*version != self.tokens[*token].version);
            }
        }
        for token in &mut self.tokens {
            token.version = 0;
        }
        self.replicas = replicas;
        self
    }
}

/// Whether the time of a token or retry window from then is over.
pub(crate) fn is_over(from: u8, now: u8) -> bool {
    from < 2 && now >= 2
}

/// The owner of what nobody alive has begun.
const NOBODY: usize = usize::MAX;
