//! Evidence that is on this machine: the file of an `autosign` setting, and the policy executable it may be.
//!
//! The file is looked at for every request, so that a change takes effect at once. An executable runs without a shell,
//! in a process group of its own that does not outlive its answer, nor does what left that group; and it never holds up
//! another request.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_authority::{Busy, LocalEvidence};
use countersign_policy::{Allowlist, AutosignFile, Execution, ListFile, masked_tokens};
use futures_util::future::BoxFuture;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, geteuid, getrlimit, kill_process_group, prlimit,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use crate::left_behind::Run;
use crate::places::Places;

/// How policy executables are run.
#[derive(Clone, Debug)]
pub struct Executables {
    /// How long one may take, and may wait for a place.
    pub seconds: u64,
    /// How many run at once.
    pub at_once: usize,
    /// Variables that they see beside `PATH`, `LC_ALL` and, where their folders exist, Puppet's own `RUBYLIB` and
    /// `GEM_PATH`; these win.
    pub environment: BTreeMap<String, String>,
    /// How many files one may have open, where the server itself may have more; `None`: as many as the server.
    pub open_files: Option<u64>,
}

impl Executables {
    /// What fits most sites.
    pub const STANDARD: Self = Self {
        seconds: 10,
        at_once: 8,
        environment: BTreeMap::new(),
        open_files: None,
    };
}

/// What this machine can tell.
#[derive(Debug)]
pub struct ThisMachine {
    how: Executables,
    /// So many run at once.
    places: Places,
    read: Arc<Mutex<ReadLists>>,
}

/// The lists that were read, by the path where they really are.
type ReadLists = BTreeMap<PathBuf, ReadList>;

/// A list that was read, for as long as its file stays the same.
#[derive(Debug)]
struct ReadList {
    stamp: [i64; 7],
    list: Arc<Allowlist>,
}

impl ThisMachine {
    /// Runs executables as it is told here.
    pub fn new(how: Executables) -> Self {
        Self {
            places: Places::new(how.at_once),
            how,
            read: Arc::default(),
        }
    }
}

impl LocalEvidence for ThisMachine {
    /// What is at `path` now.
    fn file<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, AutosignFile> {
        Box::pin(async move {
            let shown = path.display().to_string();
            let (path, read) = (path.to_owned(), Arc::clone(&self.read));
            let looking = tokio::task::spawn_blocking(move || look(&path, &read));
            match tokio::time::timeout(LOOK, looking).await {
                Ok(Ok(file)) => file,
                Ok(Err(_)) => AutosignFile::Unusable(format!("{shown} could not be looked at")),
                Err(_) => {
                    error!(path = shown, "the autosign file's disk does not answer");
                    AutosignFile::Unusable(format!("the disk of {shown} does not answer"))
                }
            }
        })
    }

    /// What is in the allowlist at `path` now. It is never run.
    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, ListFile> {
        Box::pin(async move {
            let shown = path.display().to_string();
            let (path, read) = (path.to_owned(), Arc::clone(&self.read));
            let looking = tokio::task::spawn_blocking(move || {
                let real = path.canonicalize();
                let real = real.map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
                trusted_file(&real)?;
                read_list(&path, &real, &read)
            });
            let looked = match tokio::time::timeout(LOOK, looking).await {
                Ok(looked) => {
                    looked.unwrap_or_else(|_| Err(format!("{shown} could not be looked at")))
                }
                Err(_) => Err(format!("the disk of {shown} does not answer")),
            };
            match looked {
                Ok(list) => ListFile::List(list),
                Err(why) => {
                    error!(path = shown, why, "the allowlist is not used");
                    ListFile::Unusable(why)
                }
            }
        })
    }

    /// Runs a policy executable: the name is its only argument, the request its only input. Status 0 approves; every
    /// other end declines. `Err`: it was not run, because too many others are.
    fn run_program<'a>(
        &'a self,
        path: &'a Path,
        seconds: Option<u64>,
        name: &'a str,
        source: Option<IpAddr>,
        request_pem: String,
    ) -> BoxFuture<'a, Result<Execution, Busy>> {
        Box::pin(async move {
            let deadline = Duration::from_secs(seconds.unwrap_or(self.how.seconds));
            let waited = tokio::time::timeout(deadline, self.places.wait(source)).await;
            let Ok(Some(_place)) = waited else {
                return Err(Busy);
            };
            match tokio::time::timeout(deadline, run(&self.how, path, name, request_pem)).await {
                Ok(execution) => Ok(execution),
                // The future is gone, and with it the process group.
                Err(_) => {
                    let seconds = deadline.as_secs();
                    Ok(Execution::Failed(format!("did not end within {seconds} s")))
                }
            }
        })
    }
}

fn look(path: &Path, read: &Mutex<ReadLists>) -> AutosignFile {
    match examine(path, read) {
        Ok(file) => file,
        Err(why) => {
            error!(path = %path.display(), why, "the autosign file is not used");
            AutosignFile::Unusable(why)
        }
    }
}

fn examine(path: &Path, read: &Mutex<ReadLists>) -> Result<AutosignFile, String> {
    let shown = path.display();
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(AutosignFile::Missing),
        Err(error) => return Err(format!("{shown} cannot be looked at: {error}")),
    };
    trusted_file(&real)?;
    if access(&real, Access::EXEC_OK).is_ok() {
        return Ok(AutosignFile::Executable);
    }
    read_list(path, &real, read).map(AutosignFile::List)
}

/// Reads the list at `real`, which people know as `path`, unless it was read before and is still the same.
fn read_list(path: &Path, real: &Path, read: &Mutex<ReadLists>) -> Result<Arc<Allowlist>, String> {
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("{shown} cannot be read: {error}");
    let file = File::open(real).map_err(cannot)?;
    let facts = file.metadata().map_err(cannot)?;
    let stamp = stamp(&facts);
    let known = lock(read)
        .get(real)
        .filter(|known| known.stamp == stamp)
        .map(|known| Arc::clone(&known.list));
    if let Some(list) = known {
        return Ok(list);
    }
    let mut text = String::new();
    file.take(MAX_LIST.saturating_add(1))
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_LIST) {
        return Err(format!("{shown} is longer than {MAX_LIST} bytes"));
    }
    if text.starts_with("#!") {
        return Err(format!(
            "{shown} looks like a program, but the server may not execute it: run chmod +x"
        ));
    }
    let (list, bad) = Allowlist::parse(&text);
    for line in bad {
        error!(path = %shown, %line, "invalid pattern");
    }
    let list = Arc::new(list);
    // A file that is just being written may change again without a trace in its times.
    let is_settled = facts
        .modified()
        .ok()
        .and_then(|at| at.elapsed().ok())
        .is_some_and(|age| age > SETTLED);
    let mut read = lock(read);
    read.remove(real);
    if is_settled && read.len() < MAX_LISTS {
        let list = Arc::clone(&list);
        read.insert(real.to_owned(), ReadList { stamp, list });
    }
    drop(read);
    Ok(list)
}

/// Refuses a file that others than root and the server's user can change: by writing it, or by replacing it or a folder
/// on the way to it. The path must be without links.
///
/// # Errors
/// In words, with what to do about it.
pub fn trusted_file(real: &Path) -> Result<(), String> {
    let shown = real.display();
    let own = geteuid().as_raw();
    for (place, part) in real.ancestors().enumerate() {
        let facts = part
            .symlink_metadata()
            .map_err(|error| format!("{shown} cannot be looked at: {error}"))?;
        if place == 0 && !facts.is_file() {
            return Err(format!("{shown} is not a file"));
        }
        let is_ours = facts.uid() == 0 || facts.uid() == own;
        // In a folder like /tmp everybody may write, and nobody may replace what is not theirs.
        let is_sticky = place > 0 && facts.mode() & STICKY != 0;
        let is_open = !is_ours || (facts.mode() & WRITABLE_BY_OTHERS != 0 && !is_sticky);
        if is_open && !is_read_only(part) {
            let part = part.display();
            return Err(format!(
                "others than root and the server's user may write {part}: give it to one of them and run chmod go-w {part}"
            ));
        }
    }
    Ok(())
}

/// Whether it is mounted so that nobody can write, whatever the modes say: so are volumes of a container's configuration.
fn is_read_only(part: &Path) -> bool {
    statvfs(part).is_ok_and(|facts| facts.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn lock(read: &Mutex<ReadLists>) -> MutexGuard<'_, ReadLists> {
    read.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes whenever a file is written or replaced.
fn stamp(facts: &Metadata) -> [i64; 7] {
    let [device, inode, length] =
        [facts.dev(), facts.ino(), facts.len()].map(|n| i64::from_ne_bytes(n.to_ne_bytes()));
    let (written, changed) = (
        (facts.mtime(), facts.mtime_nsec()),
        (facts.ctime(), facts.ctime_nsec()),
    );
    [
        device, inode, length, written.0, written.1, changed.0, changed.1,
    ]
}

async fn run(how: &Executables, path: &Path, name: &str, request_pem: String) -> Execution {
    // What was looked at a moment ago is looked at again: the name may lead elsewhere now.
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) => return Execution::Failed(format!("cannot be found any more: {error}")),
    };
    if let Err(why) = trusted_file(&real) {
        return Execution::Failed(format!("is not trusted: {why}"));
    }
    let mut run = Run::begin();
    let mut command = Command::new(&real);
    command
        .arg(name)
        .env_clear()
        .envs(ENVIRONMENT)
        .envs(ruby_environment(Path::new("/")))
        .envs(&how.environment)
        .envs([run.mark()])
        .current_dir("/")
        .process_group(0);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = loop {
        match run.start(&mut command) {
            Ok(child) => break Group::new(child, run),
            // Somebody is just writing it; the deadline ends the waiting.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            Err(error) => {
                warn!(path = %path.display(), %error, "the policy executable cannot be started");
                return Execution::Failed(format!("cannot be started: {error}"));
            }
        }
    };
    child.limit_files(how.open_files);
    let Some(leader) = child.leader() else {
        return Execution::Failed("has no process".to_owned());
    };
    if let Some(mut stdin) = leader.stdin.take() {
        let request_pem = request_pem.clone();
        // It may end without reading: a broken pipe is its right.
        tokio::spawn(async move { stdin.write_all(request_pem.as_bytes()).await });
    }
    let mut said = JoinSet::new();
    said.spawn(collect("stdout", leader.stdout.take()));
    said.spawn(collect("stderr", leader.stderr.take()));
    let status = leader.wait().await;
    // What it left behind ends. A daemon that left the group may hold the pipes open for a moment: nobody waits for it.
    drop(child);
    let listen = async {
        while let Some(Ok((stream, text))) = said.join_next().await {
            if !text.is_empty() {
                let text = discreet(&text, &request_pem);
                debug!(target: LOG, path = %path.display(), name, stream, text, "the policy executable said");
            }
        }
    };
    let _heard_enough = tokio::time::timeout(LAST_WORDS, listen).await;
    match status {
        Ok(status) if status.success() => Execution::Approved,
        Ok(status) if status.code().is_some() => Execution::Declined(ending(status)),
        Ok(status) => Execution::Failed(ending(status)),
        Err(error) => Execution::Failed(format!("cannot be waited for: {error}")),
    }
}

/// What a program said without what it was told in confidence: a script that somebody debugs repeats its input, and that has
/// the one-time password in it. Its lines may be cut, so they are looked for in pieces.
fn discreet(said: &str, request_pem: &str) -> String {
    let lines = request_pem
        .lines()
        .filter(|line| !line.starts_with("-----"));
    let pieces = lines.flat_map(|line| line.as_bytes().chunks(PIECE));
    let pieces = pieces.filter_map(|piece| std::str::from_utf8(piece).ok());
    let left = pieces.fold(said.to_owned(), |text, piece| text.replace(piece, "…"));
    masked_tokens(&left).into_owned()
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// The first of what a stream says, as it may be repeated: a program that prints what it was given prints the token, too.
/// The rest is read and forgotten.
async fn collect(
    name: &'static str,
    stream: Option<impl AsyncRead + Unpin>,
) -> (&'static str, String) {
    let Some(mut stream) = stream else {
        return (name, String::new());
    };
    let (mut kept, mut buffer) = (Vec::new(), [0u8; 1024]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let room = MAX_OUTPUT.saturating_sub(kept.len());
        kept.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
    }
    let said = String::from_utf8_lossy(&kept);
    (name, masked_tokens(&said).into_owned())
}

/// A child and everything it started; killed when it goes out of scope.
struct Group {
    id: Option<Pid>,
    /// Until it goes out of scope.
    members: Option<(Child, Run)>,
}

impl Group {
    fn new(leader: Child, run: Run) -> Self {
        Self {
            id: run.leader(),
            members: Some((leader, run)),
        }
    }

    fn leader(&mut self) -> Option<&mut Child> {
        self.members.as_mut().map(|(leader, _)| leader)
    }

    /// Gives it the limit of open files that programs expect. It has begun to run by then, but hardly got further than
    /// its loader; there is no way to limit it sooner without limiting the server.
    fn limit_files(&self, open_files: Option<u64>) {
        let (Some(id), Some(files)) = (self.id, open_files) else {
            return;
        };
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: Some(files),
            maximum,
        };
        if let Err(error) = prlimit(Some(id), Resource::Nofile, limit) {
            debug!(target: LOG, %error, "the policy executable keeps the server's limit of open files");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Right after the leader has ended, or instead: what it left behind in its group ends with it.
        if let Some(group) = self.id {
            let _gone_already = kill_process_group(group, Signal::KILL);
        }
        if let Some((leader, run)) = self.members.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(bury(leader, run));
        }
    }
}

/// Waits for the first process of a group that was killed, and ends what has left the group.
async fn bury(mut leader: Child, run: Run) {
    let _ended = leader.wait().await;
    // It looks at files of the system.
    let _done = tokio::task::spawn_blocking(move || run.end()).await;
}

/// How long a look at the file may take; more, and its disk is not there.
/// Operators' log filters name it.
const LOG: &str = "countersign_authority::executable";
const LOOK: Duration = Duration::from_secs(5);
/// How long an executable's last words are waited for, once it has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// A file that was not written for so long shows in its times when it is.
const SETTLED: Duration = Duration::from_secs(2);
const STICKY: u32 = 0o1000;
/// Before an executable that is being written is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// So many lists are kept in memory; further ones are read each time.
const MAX_LISTS: usize = 64;
/// Ten thousand names.
const MAX_LIST: u64 = 1024 * 1024;
/// For the log; nobody needs more of a policy's chatter.
const MAX_OUTPUT: usize = 4096;
/// Characters of a request that are looked for together: 12 octets of it.
const PIECE: usize = 16;

/// What a policy in Ruby needs to require Puppet's own code, where that is installed.
fn ruby_environment(root: &Path) -> Vec<(&'static str, String)> {
    let existing = |folders: &[&str]| {
        let folders = folders.iter().map(|folder| root.join(folder));
        let folders: Vec<String> = folders
            .filter(|folder| folder.is_dir())
            .map(|folder| folder.display().to_string())
            .collect();
        folders.join(":")
    };
    let variables = RUBY_FOLDERS.map(|(name, folders)| (name, existing(folders)));
    let found = variables.into_iter().filter(|(_, value)| !value.is_empty());
    found.collect()
}

/// All that every executable sees of ours.
const ENVIRONMENT: [(&str, &str); 2] = [
    (
        "PATH",
        "/opt/puppetlabs/puppet/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("LC_ALL", "C.UTF-8"),
];

/// Where Puppet's packages keep their Ruby code, below the root.
const RUBY_FOLDERS: [(&str, &[&str]); 2] = [
    ("RUBYLIB", &["opt/puppetlabs/puppet/lib/ruby/vendor_ruby"]),
    (
        "GEM_PATH",
        &[
            "opt/puppetlabs/server/data/puppetserver/jruby-gems",
            "opt/puppetlabs/server/data/puppetserver/vendored-jruby-gems",
            "opt/puppetlabs/puppet/lib/ruby/vendor_gems",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_kept_without_what_it_was_told() {
        let token =
            "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";
        let pem =
            "-----BEGIN X-----\nAbCdEfGhIjKlMnOpQrStUvWxYz0123456789\nZz==\n-----END X-----\n";
        let said = format!("+ csr={pem}then AbCdEfGhIjKlMnOpQrSt and {token}");
        let shown = discreet(&said, pem);
        assert!(shown.starts_with("+ csr=-----BEGIN X-----"), "{shown}");
        for secret in ["AbCd", "EfGh", "QrStUvWx", "0123", "Zz", "eaqseize"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("aaaqeayeaudaocaj"), "{shown}");
    }

    #[test]
    fn ruby_finds_puppet_only_where_it_is_installed() {
        let root = tempfile::tempdir().unwrap();
        assert!(ruby_environment(root.path()).is_empty());
        let gems = root
            .path()
            .join("opt/puppetlabs/puppet/lib/ruby/vendor_gems");
        std::fs::create_dir_all(&gems).unwrap();
        let expected = vec![("GEM_PATH", gems.display().to_string())];
        assert_eq!(ruby_environment(root.path()), expected);
    }

    #[tokio::test]
    async fn what_an_executable_says_is_repeated_without_secrets() {
        let said = b"challengePassword: ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4\n";
        let (_, text) = collect("stdout", Some(&said[..])).await;
        assert_eq!(text, "challengePassword: ott1.aaaqeayeaudaocaj.\u{2026}\n");
    }
}
