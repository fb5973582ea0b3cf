//! Processes that a policy executable leaves behind.
//!
//! Whoever calls `setsid` leaves the process group that ends with the executable. This process adopts such processes
//! (it is their subreaper, see prctl(2)), finds them among its children, and ends them. Children are a matter of the whole
//! process, and so is what is known of them here.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use tokio::process::{Child, Command};
use tracing::{debug, warn};

/// The executables of this process.
static RUNS: Mutex<Runs> = Mutex::new(Runs {
    next: 0,
    going_on: BTreeSet::new(),
    leaders: BTreeSet::new(),
    are_swept: false,
});

#[derive(Debug)]
struct Runs {
    next: u64,
    /// Numbers of executables that have not ended.
    going_on: BTreeSet<u64>,
    /// Their first processes, which others wait for.
    leaders: BTreeSet<i32>,
    /// Whether what they leave behind is adopted.
    are_swept: bool,
}

/// From now on this process adopts what its children leave behind, and ends it. It must have no children but policy
/// executables.
pub fn adopt_what_is_left_behind() {
    match set_child_subreaper(Some(getpid())) {
        Ok(()) => runs().are_swept = true,
        Err(error) => warn!(%error, "what policy executables leave behind cannot be found"),
    }
}

/// An executable that runs, or has just ended.
#[derive(Debug)]
pub(crate) struct Run {
    number: u64,
    leader: Option<Pid>,
}

impl Run {
    pub(crate) fn begin() -> Self {
        let mut runs = runs();
        let number = runs.next;
        runs.next = number.wrapping_add(1);
        runs.going_on.insert(number);
        Self {
            number,
            leader: None,
        }
    }

    /// What its processes have in their environment.
    pub(crate) fn mark(&self) -> (&'static str, String) {
        (MARK, self.number.to_string())
    }

    /// Starts its first process. Whoever looks for what was left behind meanwhile does not see one without its run.
    pub(crate) fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        let mut runs = runs();
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        self.leader = id.and_then(Pid::from_raw);
        runs.leaders.extend(id);
        Ok(child)
    }

    pub(crate) fn leader(&self) -> Option<Pid> {
        self.leader
    }

    /// Its first process was waited for; what it left behind ends.
    pub(crate) fn end(self) {
        drop(self);
        sweep();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut runs = runs();
        runs.going_on.remove(&self.number);
        if let Some(leader) = self.leader {
            runs.leaders.remove(&number_of(leader));
        }
    }
}

/// Ends the children that no executable which goes on has started. What such a child has started itself is adopted in
/// turn, so that several looks may be needed.
fn sweep() {
    for _ in 0..MAX_LOOKS {
        let left = runs().left_behind();
        if left.is_empty() {
            return;
        }
        for child in left {
            let pid = number_of(child);
            debug!(
                pid,
                "a process that a policy executable left behind is ended"
            );
            let _gone = kill_process(child, Signal::KILL);
            let _gone = waitpid(Some(child), WaitOptions::empty());
        }
    }
}

impl Runs {
    fn left_behind(&self) -> Vec<Pid> {
        if !self.are_swept {
            return Vec::new();
        }
        let children = children().into_iter();
        children.filter(|child| self.has_left(*child)).collect()
    }

    fn has_left(&self, child: Pid) -> bool {
        let number = number_of(child);
        if self.leaders.contains(&number) {
            return false;
        }
        let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        let mark = environment
            .split(|octet| *octet == 0)
            .filter_map(|one| std::str::from_utf8(one).ok())
            .find_map(|one| one.strip_prefix(MARK)?.strip_prefix('=')?.parse().ok());
        !mark.is_some_and(|mark: u64| self.going_on.contains(&mark))
    }
}

fn runs() -> MutexGuard<'static, Runs> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number_of(process: Pid) -> i32 {
    process.as_raw_nonzero().get()
}

/// The children of this process. Each of its threads has a list.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter();
    let threads = threads.flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let numbers = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    let numbers = numbers.filter_map(|number| number.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// The name of a variable that tells to which run a process belongs.
const MARK: &str = "COUNTERSIGN_RUN";
/// A process that starts others faster than they are ended gets away, until the next executable has ended.
const MAX_LOOKS: usize = 64;
