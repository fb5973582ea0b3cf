//! Tokens and their uses, as their tables and the log tell of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use countersign_pki::UnixTime;

use super::{Finding, Reconciliation};
use crate::audit::sealing::BATCH;
use crate::store::{Store, StoreFault};
use crate::token::bootstrap::{BootstrapId, BootstrapToken};
use crate::token::{ListedToken, MAX_USES, TokenFilter, TokenId, TokenStanding};

/// Which token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Enrolment(String),
    Bootstrap(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrolment(id) => write!(f, "token {id}"),
            Self::Bootstrap(id) => write!(f, "bootstrap token {id}"),
        }
    }
}

/// Whether somebody has ended a token. What is further down stays so, and nothing goes back up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ended {
    No,
    Locked,
    Revoked,
}

impl Ended {
    fn of(token: &ListedToken) -> Self {
        match token.record.standing {
            TokenStanding::Active => Self::No,
            TokenStanding::Locked { .. } => Self::Locked,
            TokenStanding::Revoked { .. } => Self::Revoked,
        }
    }

    fn of_bootstrap(token: &BootstrapToken) -> Self {
        match token.record.revoked_at {
            Some(_) => Self::Revoked,
            None => Self::No,
        }
    }
}

/// What the tables say.
#[derive(Default)]
pub(super) struct TokenRows {
    tokens: BTreeMap<Name, Ended>,
    /// The keys that have used each enrolment token.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// Used so often that not every use was read.
    worn: BTreeSet<String>,
}

impl TokenRows {
    pub(super) async fn read(store: &dyn Store, now: UnixTime) -> Result<Self, StoreFault> {
        let mut rows = Self::default();
        let mut filter = TokenFilter::newest(now, BATCH);
        loop {
            let page = store.tokens(filter.clone()).await?;
            let Some(last) = page.last() else {
                break;
            };
            filter.after = Some(last.record.id.clone());
            for token in &page {
                let id = token.record.id.to_string();
                let keys = keys_of(store, &token.record.id).await?;
                if keys.len() >= MAX_USES {
                    rows.worn.insert(id.clone());
                }
                rows.uses.insert(id.clone(), keys);
                rows.tokens.insert(Name::Enrolment(id), Ended::of(token));
            }
        }
        let mut after: Option<BootstrapId> = None;
        loop {
            let page = store.bootstrap_tokens(after, BATCH).await?;
            let Some(last) = page.last() else {
                return Ok(rows);
            };
            after = Some(last.record.id.clone());
            for token in &page {
                let name = Name::Bootstrap(token.record.id.to_string());
                rows.tokens.insert(name, Ended::of_bootstrap(token));
            }
        }
    }

    /// How many uses there are.
    pub(super) fn count_uses(&self) -> usize {
        self.uses.values().map(BTreeSet::len).sum()
    }

    pub(super) async fn compare(
        &self,
        store: &dyn Store,
        told: &TokensTold,
        now: UnixTime,
        found: &mut Reconciliation,
    ) -> Result<(), StoreFault> {
        for (name, ended) in &self.tokens {
            match told.minted.get(name) {
                None if told.forgotten.contains(name) => {}
                None => found.add(Finding::TokenWithoutEntry {
                    token: name.to_string(),
                }),
                Some(told) if told > ended => {
                    // It may have ended since its row was read.
                    let ended = current(store, name, now).await?;
                    if ended.is_some_and(|ended| *told > ended) {
                        let token = name.to_string();
                        found.add(Finding::EntryWithoutEnd { token });
                    }
                }
                Some(_) => {}
            }
        }
        let beside = told.minted.keys();
        for name in beside.filter(|name| !self.tokens.contains_key(name)) {
            if current(store, name, now).await?.is_none() {
                let token = name.to_string();
                found.add(Finding::EntryWithoutToken { token });
            }
        }
        self.compare_uses(store, told, found).await
    }

    /// Those of tokens that the tables and the log know; of others enough was told.
    async fn compare_uses(
        &self,
        store: &dyn Store,
        told: &TokensTold,
        found: &mut Reconciliation,
    ) -> Result<(), StoreFault> {
        let none = BTreeSet::new();
        for (token, rows) in &self.uses {
            let is_known = told.minted.contains_key(&Name::Enrolment(token.clone()));
            if self.worn.contains(token) || !is_known {
                continue;
            }
            let known = told.uses.get(token).unwrap_or(&none);
            for key in rows.difference(known) {
                let (token, key) = (token.clone(), key.clone());
                found.add(Finding::UseWithoutEntry { token, key });
            }
            let mut missing = known.difference(rows).peekable();
            if missing.peek().is_none() {
                continue;
            }
            let again = keys_of(store, &TokenId::known(token.clone())).await?;
            for key in missing.filter(|key| !again.contains(*key)) {
                let (token, key) = (token.clone(), key.clone());
                found.add(Finding::EntryWithoutUse { token, key });
            }
        }
        Ok(())
    }
}

/// What the log says in the end of tokens that were not forgotten.
#[derive(Default)]
pub(super) struct TokensTold {
    minted: BTreeMap<Name, Ended>,
    uses: BTreeMap<String, BTreeSet<String>>,
    /// Forgotten since their rows were read, or before.
    forgotten: BTreeSet<Name>,
}

impl TokensTold {
    /// Takes in what an entry says of a token, by the key of this fingerprint.
    pub(super) fn take(
        &mut self,
        action: &str,
        token: String,
        key: Option<String>,
        rows: &TokenRows,
    ) {
        match action {
            "token.minted" => self.mint(Name::Enrolment(token)),
            "token.revoked" | "token.superseded" => {
                self.end(&Name::Enrolment(token), Ended::Revoked);
            }
            "token.locked" => self.end(&Name::Enrolment(token), Ended::Locked),
            "token.consumed" => self.uses.entry(token).or_default().extend(key),
            "token.released" => {
                if let (Some(keys), Some(key)) = (self.uses.get_mut(&token), &key) {
                    keys.remove(key);
                }
            }
            "token.expired_purged" => {
                self.uses.remove(&token);
                self.forget(Name::Enrolment(token), rows);
            }
            "bootstrap_token.minted" => self.mint(Name::Bootstrap(token)),
            "bootstrap_token.revoked" => self.end(&Name::Bootstrap(token), Ended::Revoked),
            "bootstrap_token.purged" => self.forget(Name::Bootstrap(token), rows),
            _ => {}
        }
    }

    fn mint(&mut self, name: Name) {
        self.forgotten.remove(&name);
        self.minted.insert(name, Ended::No);
    }

    fn end(&mut self, name: &Name, ended: Ended) {
        if let Some(found) = self.minted.get_mut(name) {
            *found = ended.max(*found);
        }
    }

    fn forget(&mut self, name: Name, rows: &TokenRows) {
        self.minted.remove(&name);
        if rows.tokens.contains_key(&name) {
            self.forgotten.insert(name);
        }
    }
}

/// How a token stands now; nothing: it is not there.
async fn current(
    store: &dyn Store,
    name: &Name,
    now: UnixTime,
) -> Result<Option<Ended>, StoreFault> {
    match name {
        Name::Enrolment(id) => {
            let id = TokenId::known(id.clone());
            let found = store.listed_token(&id, now).await?;
            Ok(found.as_ref().map(Ended::of))
        }
        Name::Bootstrap(id) => match BootstrapId::parse(id) {
            Some(id) => {
                let found = store.bootstrap_token(&id).await?;
                Ok(found.as_ref().map(Ended::of_bootstrap))
            }
            None => Ok(None),
        },
    }
}

async fn keys_of(store: &dyn Store, token: &TokenId) -> Result<BTreeSet<String>, StoreFault> {
    let uses = store.token_uses(token, MAX_USES).await?;
    Ok(uses
        .iter()
        .map(|used| used.key_fingerprint.to_hex())
        .collect())
}
