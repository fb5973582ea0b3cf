//! The task that writes: it takes the changes that are waiting and commits them together.
//!
//! A group is one transaction at READ COMMITTED, sent in two parts, and one wait for the disk:
//!
//! 1. It locks the names of everything its changes are about ([`names`]), and asks whether their preconditions
//!    hold. Each statement sees what was committed before it began, and nobody can change what a lock stands for, so what
//!    holds goes on to hold. Two changes of a group that share a name do not meet in it: the later one waits for the next.
//! 2. It gives out revisions, which locks the one row that has them; writes what the changes write that were not refused;
//!    and commits. All of that is on its way at once: while the row is locked, the server waits for nobody but the disk.
//!    Revisions are thus visible in their order, and rows are written by one process at a time.
//!
//! Names are locked in their order and before the row of revisions, so that two groups do not wait for each other. Locks by
//! name and not SERIALIZABLE: preconditions are about things that are not there, which only predicate locks of that level
//! know, and it takes those of whole pages; groups of a hundred changes would mostly be refused, over and over.
//! Conditional writes and unique keys repeat what matters most: a change that breaks one ends the transaction, and the
//! group is committed once more, change by change with savepoints, so that it fails alone.
//!
//! If the connection breaks while a group is committed, nobody knows whether it was. Each group therefore notes its number
//! in the row that this process has in `writers`. After reconnecting, that row tells; if the group is not there, the
//! number is taken so that whatever is still under way cannot be committed any more, and the group is tried again.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use countersign_authority::store::{
    Change, CommitFault, Committed, Precondition, StoreFault, Write,
};
use countersign_authority::{Door, Revision, Telemetry};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Row;

use super::address::Address;
use super::check;
use super::fault::{DatabaseFault, Fault};
use super::names::{self, Lock, Resolved};
use super::session::{Limits, Session};
use super::value::{Statement, Value};
use super::watch::{CHANNEL, told};
use super::write::{self, GIVE_REVISIONS, Refusal};
use crate::row::{Cell as _, Cells as _, document};
use crate::write_queue::WriteJob;

/// What the writing task owns.
pub(super) struct Writer {
    address: Arc<Address>,
    /// This process, as the database knows it.
    owner: String,
    session: Option<Session>,
    /// The number of the last group of which something was committed.
    number: i64,
    /// How long to wait before the next attempt to connect, and from when on.
    backoff: Backoff,
    /// Changes that wait for what others of their names do.
    held: VecDeque<WriteJob>,
    revisions: Arc<watch::Sender<Revision>>,
    telemetry: Arc<dyn Telemetry>,
}

impl Writer {
    pub(super) fn new(
        address: Arc<Address>,
        owner: String,
        revisions: Arc<watch::Sender<Revision>>,
        telemetry: Arc<dyn Telemetry>,
    ) -> Self {
        Self {
            address,
            owner,
            session: None,
            number: 0,
            backoff: Backoff::default(),
            held: VecDeque::new(),
            revisions,
            telemetry,
        }
    }

    /// Serves until every sender is gone, and everything they sent is answered.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<WriteJob>) {
        let mut group = Vec::with_capacity(LARGEST_GROUP);
        loop {
            group.extend(self.held.drain(..));
            while group.len() < LARGEST_GROUP
                && let Ok(job) = queue.try_recv()
            {
                group.push(job);
            }
            if group.is_empty() && queue.recv_many(&mut group, LARGEST_GROUP).await == 0 {
                break;
            }
            self.serve(&mut group).await;
        }
        if let Some(session) = &self.session {
            let gone = Statement::new("DELETE FROM writers WHERE owner = $1").with(&*self.owner);
            // A row that stays is removed by another process, much later.
            let _ = timeout(SILENCE, session.rows(&gone)).await;
        }
    }

    async fn serve(&mut self, group: &mut Vec<WriteJob>) {
        let until = Instant::now() + LONGEST_TRY;
        let mut attempts = 0_u32;
        let fault = loop {
            attempts = attempts.saturating_add(1);
            let fault = match self.attempt(group).await {
                Ok(outcomes) => return self.answer(group, outcomes),
                Err(fault) => fault,
            };
            let again = match &fault {
                GroupFault::Database(fault) => {
                    let is_early = attempts < MAX_ATTEMPTS && Instant::now() < until;
                    let is_lost = fault.spoils_session() && Instant::now() < until;
                    fault.is_contention() && is_early || is_lost
                }
                GroupFault::Unknown(_) | GroupFault::Corrupt { .. } => false,
            };
            if !again {
                break fault;
            }
            sleep(PAUSE.saturating_mul(attempts)).await;
        };
        tracing::error!(%fault, "a group of changes was not committed");
        for job in group.drain(..) {
            let _ = job.answer.send(Err(CommitFault::Store(fault.tell())));
        }
    }

    fn answer(&mut self, group: &mut Vec<WriteJob>, outcomes: Vec<Outcome>) {
        let answered = outcomes.iter().filter(|it| !matches!(it, Outcome::Later));
        self.telemetry.grouped(answered.count());
        for (job, outcome) in group.drain(..).zip(outcomes) {
            let answer = match outcome {
                Outcome::Committed(revision) => Ok(Committed { revision }),
                Outcome::Refused(refused) => Err(refused),
                Outcome::Later => {
                    self.held.push_back(job);
                    continue;
                }
            };
            // A caller that went away does not undo what it asked for.
            let _ = job.answer.send(answer);
        }
    }

    /// Commits a group. `Err`: nothing of it is stored.
    async fn attempt(&mut self, group: &[WriteJob]) -> Result<Vec<Outcome>, GroupFault> {
        self.connect().await?;
        let Some(session) = self.session.take() else {
            return Err(DatabaseFault::Silent.into());
        };
        let mut transaction = Transaction {
            session: &session,
            owner: &self.owner,
            number: self.number.saturating_add(1),
            outcomes: Vec::with_capacity(group.len()),
            given: 0,
            is_sent: false,
        };
        let mut ended = within_time(transaction.together(group)).await;
        if matches!(&ended, Err(GroupFault::Database(fault)) if fault.is_of_a_change()) {
            ended = within_time(transaction.one_by_one(group)).await;
        }
        let Transaction {
            number,
            outcomes,
            given,
            is_sent,
            ..
        } = transaction;
        let planned = Planned { outcomes, given };
        match ended {
            Ok(last) => {
                self.session = Some(session);
                Ok(self.committed(number, planned, last))
            }
            Err(GroupFault::Database(fault)) if fault.spoils_session() && is_sent => {
                drop(session);
                self.find_out(number, planned, fault).await
            }
            Err(fault) => {
                // A new session finds no transaction, and its row in `writers` again if somebody removed it.
                drop(session);
                Err(fault)
            }
        }
    }

    /// A group is stored; `None`: there was nothing to store.
    fn committed(&mut self, number: i64, planned: Planned, last: Option<i64>) -> Vec<Outcome> {
        let base = match last {
            Some(last) => {
                self.number = number;
                told(&self.revisions, revision(last));
                last.saturating_sub(planned.given)
            }
            None => 0,
        };
        let outcome = |outcome| match outcome {
            PlannedOutcome::Given(offset) => {
                Outcome::Committed(revision(base.saturating_add(offset)))
            }
            PlannedOutcome::Refused(refused) => Outcome::Refused(refused),
            PlannedOutcome::Later => Outcome::Later,
        };
        planned.outcomes.into_iter().map(outcome).collect()
    }

    /// What became of a group, after the connection broke in the middle of its commit.
    async fn find_out(
        &mut self,
        number: i64,
        planned: Planned,
        fault: DatabaseFault,
    ) -> Result<Vec<Outcome>, GroupFault> {
        tracing::warn!(%fault, "the connection to PostgreSQL broke during a commit");
        let until = Instant::now() + LONGEST_DOUBT;
        loop {
            let found = match self.connect().await {
                Ok(()) => self.ask_for(number).await,
                Err(fault) => Err(fault),
            };
            match found {
                Ok(Some(last)) => return Ok(self.committed(number, planned, Some(last))),
                Ok(None) => {
                    self.number = number;
                    return Err(fault.into());
                }
                Err(again) => {
                    self.session = None;
                    if Instant::now() > until {
                        tracing::error!(fault = %again, "it is not known whether the last commit succeeded");
                        return Err(GroupFault::Unknown(again));
                    }
                }
            }
        }
    }

    /// The last revision of a group if it was committed. If not, it cannot be any more: where a server still works on it,
    /// this waits for the end of that.
    async fn ask_for(&mut self, number: i64) -> Result<Option<i64>, DatabaseFault> {
        let Some(session) = &self.session else {
            return Err(DatabaseFault::Silent);
        };
        let asked = async {
            session.batch("BEGIN").await?;
            let found = Statement::new(
                "SELECT revision FROM writers WHERE owner = $1 AND number = $2 FOR UPDATE",
            );
            let rows = session.rows(&found.with(&*self.owner).with(number)).await?;
            let last = rows.first().and_then(|row| row.integer(0).flatten());
            if last.is_none() {
                let given_up = Statement::new(
                    "INSERT INTO writers (owner, number) VALUES ($1, $2)
                     ON CONFLICT (owner) DO UPDATE SET number = excluded.number, revision = NULL",
                );
                session
                    .rows(&given_up.with(&*self.owner).with(number))
                    .await?;
            }
            session.batch("COMMIT").await?;
            Ok(last)
        };
        timeout(SILENCE, asked)
            .await
            .unwrap_or(Err(DatabaseFault::Silent))
    }

    /// Sees to it that there is a session, and that the database knows this process. Attempts that fail follow each other
    /// more and more slowly.
    async fn connect(&mut self) -> Result<(), DatabaseFault> {
        if self.session.as_ref().is_some_and(Session::is_usable) {
            return Ok(());
        }
        self.session = None;
        if let Some(at) = self.backoff.at {
            sleep_until(at).await;
        }
        match self.new_session().await {
            Ok((session, number)) => {
                self.backoff = Backoff::default();
                self.session = Some(session);
                // Further than known, if a commit that was given up came through after all.
                self.number = self.number.max(number);
                Ok(())
            }
            Err(fault) => {
                self.backoff = self.backoff.longer();
                Err(fault)
            }
        }
    }

    /// A session, and the number of this process's last group.
    async fn new_session(&self) -> Result<(Session, i64), DatabaseFault> {
        let session = Session::connect(&self.address, LIMITS, None).await?;
        let known = Statement::new(
            "INSERT INTO writers (owner, number) VALUES ($1, $2)
             ON CONFLICT (owner) DO UPDATE SET seen = now() RETURNING number",
        );
        let old = Statement::new("DELETE FROM writers WHERE seen < now() - interval '30 days'");
        let known = known.with(&*self.owner).with(self.number);
        let register = async {
            session.rows(&old).await?;
            session.rows(&known).await
        };
        let registered = timeout(SILENCE, register).await;
        let registered = registered.unwrap_or(Err(DatabaseFault::Silent))?;
        let number = registered.first().and_then(|row| row.integer(0).flatten());
        Ok((session, number.unwrap_or(self.number)))
    }
}

/// One group on its way into the database.
struct Transaction<'s> {
    session: &'s Session,
    owner: &'s str,
    /// The group's, which nobody else has.
    number: i64,
    /// What becomes of each change if the transaction is committed.
    outcomes: Vec<PlannedOutcome>,
    /// How many revisions it gives out.
    given: i64,
    /// Whether it may have been committed, if nothing was heard of it.
    is_sent: bool,
}

impl Transaction<'_> {
    /// Commits the changes of a group together; answers with the last revision, if there is one.
    async fn together(&mut self, group: &[WriteJob]) -> Result<Option<i64>, GroupFault> {
        let locks = self.lockable(group).await?;
        let mut statements = vec![Statement::new("BEGIN"), lock(locks)];
        let mut asked = Vec::new();
        for (index, job) in self.taken(group) {
            if let Some(question) = check::question(&job.change) {
                asked.push((index, &job.change));
                statements.push(question);
            }
        }
        let answers = all_ok(self.session.pipeline(&statements).await);
        let answers = self.or_roll_back(answers).await?;
        // The answers to `BEGIN` and the locks come first.
        for ((index, change), answer) in asked.into_iter().zip(answers.iter().skip(2)) {
            if let Some(failed) = check::failed(change, answer) {
                self.plan(index, PlannedOutcome::Refused(conflict(failed)));
            }
        }

        let (mut writes, mut audit) = (Vec::new(), AuditTexts::default());
        for (index, job) in self.taken(group) {
            let offset = self.given.saturating_add(1);
            match written(&job.change, offset) {
                Ok(Written { statements, texts }) => {
                    self.given = offset;
                    writes.extend(statements.into_iter().map(|(_, statement)| statement));
                    audit.add(offset, texts);
                    self.plan(index, PlannedOutcome::Given(offset));
                }
                Err(fault) => self.plan(index, PlannedOutcome::Refused(alone(fault)?)),
            }
        }
        if self.given == 0 {
            self.session.batch("ROLLBACK").await?;
            return Ok(None);
        }
        let mut statements = vec![Statement::new(GIVE_REVISIONS).with(self.given)];
        statements.extend(writes);
        statements.extend(audit.statement());
        statements.extend(self.end(self.given));
        let answers = self.send_last(&statements).await?;
        Ok(Some(first_integer(answers.first())?))
    }

    /// Commits the changes of a group, each undone by itself if it fails.
    async fn one_by_one(&mut self, group: &[WriteJob]) -> Result<Option<i64>, GroupFault> {
        self.outcomes.clear();
        self.given = 0;
        let locks = self.lockable(group).await?;
        let begun = all_ok(
            self.session
                .pipeline(&[Statement::new("BEGIN"), lock(locks)])
                .await,
        );
        self.or_roll_back(begun).await?;
        let mut last = None;
        for (index, job) in self.taken(group) {
            match self.one(&job.change).await? {
                Ok(revision) => {
                    self.given = self.given.saturating_add(1);
                    self.plan(index, PlannedOutcome::Given(self.given));
                    last = Some(revision);
                }
                Err(refused) => self.plan(index, PlannedOutcome::Refused(refused)),
            }
        }
        if last.is_none() {
            self.session.batch("ROLLBACK").await?;
            return Ok(None);
        }
        // The setting is the revision before the last change's.
        self.send_last(&self.end(1)).await?;
        Ok(last)
    }

    /// One change of several in a transaction: its revision, or why it is refused and has left nothing.
    async fn one(&self, change: &Change) -> Result<Result<i64, CommitFault>, GroupFault> {
        if let Some(question) = check::question(change) {
            let answer = self.session.rows(&question).await?;
            if let Some(failed) = check::failed(change, &answer) {
                return Ok(Err(conflict(failed)));
            }
        }
        let Written { statements, texts } = match written(change, 1) {
            Ok(written) => written,
            Err(fault) => return Ok(Err(alone(fault)?)),
        };
        let mut audit = AuditTexts::default();
        audit.add(1, texts);
        let audit = audit.statement().map(|statement| (None, statement));
        let writes = statements.into_iter();
        let writes = writes.map(|(write, statement)| (Some(write), statement));
        self.session.batch("SAVEPOINT change").await?;
        let given = Statement::new(GIVE_REVISIONS).with(1_i64);
        let given = self.session.rows(&given).await?;
        let revision = first_integer(Some(&given))?;
        for (write, statement) in writes.chain(audit) {
            let Err(fault) = self.session.rows(&statement).await else {
                continue;
            };
            if !fault.is_of_a_change() {
                return Err(fault.into());
            }
            self.session.batch("ROLLBACK TO change").await?;
            let refusal = write.and_then(|write| write::refusal(write, &fault));
            return Ok(Err(self.refused(refusal, &fault).await?));
        }
        self.session.batch("RELEASE change").await?;
        Ok(Ok(revision))
    }

    async fn refused(
        &self,
        refusal: Option<Refusal>,
        fault: &DatabaseFault,
    ) -> Result<CommitFault, GroupFault> {
        match refusal {
            Some(Refusal::Is(fault)) => alone(fault),
            Some(Refusal::NameOf(id)) => {
                let named = Statement::new("SELECT door, key FROM requests WHERE id = $1");
                let rows = self.session.rows(&named.with(id.as_bytes())).await?;
                let text = |at| String::read(rows.first()?, at).flatten();
                let (door, key) = (text(0).unwrap_or_default(), text(1).unwrap_or_default());
                Ok(conflict(&write::name_taken(&Door::from_text(door), &key)))
            }
            None => Ok(CommitFault::Store(fault.as_store_fault())),
        }
    }

    /// The locks of the changes that share no name with one before them; the others wait for the next group.
    async fn lockable(&mut self, group: &[WriteJob]) -> Result<Vec<Lock>, GroupFault> {
        let changes: Vec<&Change> = group.iter().map(|job| &job.change).collect();
        let resolved = match Resolved::of(self.session, &changes).await {
            Ok(resolved) => resolved,
            Err(Fault::Database(fault)) => return Err(fault.into()),
            Err(Fault::Corrupt { what }) => return Err(GroupFault::Corrupt { what }),
            Err(Fault::Refused(_)) => return Err(GroupFault::Corrupt { what: "name" }),
        };
        let mut taken: HashSet<Lock> = HashSet::new();
        for change in changes {
            let locks = names::locks(change, &resolved);
            if locks.iter().any(|lock| taken.contains(lock)) {
                self.outcomes.push(PlannedOutcome::Later);
            } else {
                taken.extend(locks);
                self.outcomes.push(PlannedOutcome::Given(0));
            }
        }
        let mut locks: Vec<Lock> = taken.into_iter().collect();
        locks.sort_unstable();
        Ok(locks)
    }

    /// The changes that are neither refused nor put off.
    fn taken<'g>(&self, group: &'g [WriteJob]) -> Vec<(usize, &'g WriteJob)> {
        let planned = group.iter().enumerate().zip(&self.outcomes);
        let taken = planned.filter(|(_, planned)| matches!(planned, PlannedOutcome::Given(_)));
        taken.map(|(job, _)| job).collect()
    }

    fn plan(&mut self, index: usize, outcome: PlannedOutcome) {
        if let Some(planned) = self.outcomes.get_mut(index) {
            *planned = outcome;
        }
    }

    /// The end of a transaction: its number, a word to the other processes, and the commit, for which a synchronous standby
    /// may be waited for. So many revisions come after the one in the setting.
    fn end(&self, given: i64) -> Vec<Statement<'static>> {
        vec![
            Statement::new(
                "WITH noted AS (
                     UPDATE writers
                     SET number = $2, revision = current_setting('countersign.revision')::bigint + $3, seen = now()
                     WHERE owner = $1 AND number < $2 RETURNING 1)
                 SELECT ln(count(*)::double precision) FROM noted",
            )
            .with(self.owner.to_owned())
            .with(self.number)
            .with(given),
            Statement::new(format!("SELECT pg_notify('{CHANNEL}', $1)")).with(self.owner.to_owned()),
            Statement::new("SET LOCAL statement_timeout = 0"),
            Statement::new("COMMIT"),
        ]
    }

    /// Sends the last part of a transaction. Where a statement fails, the server has rolled it back.
    async fn send_last(
        &mut self,
        statements: &[Statement<'_>],
    ) -> Result<Vec<Vec<Row>>, GroupFault> {
        let prepared = self.session.prepare_all(statements).await;
        let prepared = self
            .or_roll_back(prepared.map_err(GroupFault::from))
            .await?;
        self.is_sent = true;
        let answers = all_ok(self.session.send(statements, &prepared).await);
        if let Err(GroupFault::Database(fault)) = &answers {
            self.is_sent = fault.spoils_session();
        }
        answers
    }

    async fn or_roll_back<T>(&self, result: Result<T, GroupFault>) -> Result<T, GroupFault> {
        if let Err(GroupFault::Database(fault)) = &result
            && !fault.spoils_session()
        {
            self.session.batch("ROLLBACK").await?;
        }
        result
    }
}

/// What becomes of a change.
enum Outcome {
    Committed(Revision),
    Refused(CommitFault),
    /// It is taken with the next group.
    Later,
}

/// The same before the revisions are known.
enum PlannedOutcome {
    /// The n-th revision of the group, from 1 on.
    Given(i64),
    Refused(CommitFault),
    Later,
}

/// What becomes of a group that is committed.
struct Planned {
    outcomes: Vec<PlannedOutcome>,
    given: i64,
}

/// A change as statements, each with the write that it is of, and what the audit log says of it.
struct Written<'c> {
    statements: Vec<(&'c Write, Statement<'c>)>,
    texts: Vec<String>,
}

fn written(change: &Change, offset: i64) -> Result<Written<'_>, Fault> {
    let texts = change.audit.iter();
    let texts: Result<_, _> = texts.map(|entry| document(entry, "audit entry")).collect();
    Ok(Written {
        statements: write::statements(change, offset)?,
        texts: texts?,
    })
}

/// The audit entries of a group.
#[derive(Default)]
struct AuditTexts {
    offsets: Vec<i64>,
    texts: Vec<Cow<'static, str>>,
}

impl AuditTexts {
    fn add(&mut self, offset: i64, texts: Vec<String>) {
        self.offsets.extend(texts.iter().map(|_| offset));
        self.texts.extend(texts.into_iter().map(Cow::from));
    }

    fn statement(self) -> Option<Statement<'static>> {
        let is_empty = self.texts.is_empty();
        (!is_empty).then(|| write::audit_statement(self.offsets, self.texts))
    }
}

/// Locks names until the transaction ends; one after the other, in their order.
fn lock(locks: Vec<Lock>) -> Statement<'static> {
    Statement::new("SELECT count(pg_advisory_xact_lock(lock)) FROM unnest($1::bigint[]) AS lock")
        .with(Value::Integers(locks))
}

/// Every answer, or the first fault: those after it only say that the transaction has failed.
fn all_ok(answers: Vec<Result<Vec<Row>, DatabaseFault>>) -> Result<Vec<Vec<Row>>, GroupFault> {
    let answers: Result<_, _> = answers.into_iter().collect();
    answers.map_err(GroupFault::Database)
}

/// Separates what concerns one change alone from what fails the group.
fn alone(fault: Fault) -> Result<CommitFault, GroupFault> {
    match fault {
        Fault::Refused(refused) => Ok(refused),
        Fault::Database(fault) => Err(fault.into()),
        Fault::Corrupt { what } => Err(GroupFault::Corrupt { what }),
    }
}

fn conflict(precondition: &Precondition) -> CommitFault {
    let precondition = precondition.clone();
    CommitFault::Conflict { precondition }
}

fn first_integer(rows: Option<&Vec<Row>>) -> Result<i64, GroupFault> {
    let row = rows.and_then(|rows| rows.first());
    row.and_then(|row| row.integer(0).flatten())
        .ok_or(GroupFault::Corrupt { what: "revision" })
}

fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// The server ends what takes longer than its own limits; one that does not answer even then is not there.
async fn within_time<T>(
    work: impl Future<Output = Result<T, GroupFault>>,
) -> Result<T, GroupFault> {
    let ended = timeout(SILENCE, work).await;
    ended.unwrap_or(Err(GroupFault::Database(DatabaseFault::Silent)))
}

/// Why a whole group was not committed.
#[derive(Clone, Debug, thiserror::Error)]
enum GroupFault {
    #[error("{0}")]
    Database(DatabaseFault),
    #[error("the database did not say whether the changes were committed: {0}")]
    Unknown(DatabaseFault),
    #[error("a stored {what} cannot be read")]
    Corrupt { what: &'static str },
}

impl GroupFault {
    fn tell(&self) -> StoreFault {
        match self {
            Self::Database(fault) => fault.as_store_fault(),
            Self::Unknown(_) => StoreFault::Failed {
                source: Box::new(self.clone()),
            },
            Self::Corrupt { what } => StoreFault::Corrupt { what },
        }
    }
}

impl From<DatabaseFault> for GroupFault {
    fn from(fault: DatabaseFault) -> Self {
        Self::Database(fault)
    }
}

/// When the next attempt to connect may be made.
#[derive(Clone, Copy, Default)]
struct Backoff {
    pause: Duration,
    at: Option<Instant>,
}

impl Backoff {
    fn longer(self) -> Self {
        let pause = self.pause.saturating_mul(2).clamp(PAUSE, LONGEST_PAUSE);
        Self {
            pause,
            at: Some(Instant::now() + pause),
        }
    }
}

/// Limits of the writing session. A lock that takes longer than this is held by a process that hangs.
const LIMITS: Limits = Limits {
    statement: Duration::from_secs(8),
    lock: Duration::from_secs(3),
    // A process that stops in the middle of a transaction must not stop the others.
    idle: Duration::from_secs(3),
};

/// Longer than the server takes to give up by itself.
const SILENCE: Duration = Duration::from_secs(12);

/// How long a group is tried anew while the database cannot be reached, or others are in the way.
const LONGEST_TRY: Duration = Duration::from_secs(5);

/// How long it is asked what became of a commit, before its callers are told that nobody knows.
const LONGEST_DOUBT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const MAX_ATTEMPTS: u32 = 8;

/// Bounds how long the first change of a group waits for the last, and how many locks one process holds: a server has room
/// for some 6000 with its defaults, and a change takes about five.
const LARGEST_GROUP: usize = 128;
