//! A server as a process of its own: started, asked, stopped or killed. Mostly the program under test.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A running server. Dropping it stops it: politely first, then not.
#[derive(Debug)]
pub struct ServerProcess {
    pid: Pid,
    reach: Reach,
    /// Only to be shared between threads: who waits has the process to himself.
    ended: Mutex<Receiver<io::Result<ExitStatus>>>,
    status: Option<ExitStatus>,
    /// Where it listens.
    pub addresses: Addresses,
    /// What it printed before it was ready.
    pub greeting: String,
    log: Arc<Log>,
}

/// What it has logged; wakes who waits for more.
#[derive(Debug, Default)]
struct Log {
    text: Mutex<String>,
    news: Condvar,
}

/// Whom signals reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The process alone; it is in our process group, so a person's Ctrl-C reaches it too.
    Process,
    /// A process group of its own: what was started may be a wrapper around the server.
    Group,
}

/// The addresses of the line `ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// URL of the Puppet and native API.
    pub puppet: String,
    /// URL of the Kubernetes API; empty if it is off.
    pub kubernetes: String,
    /// URL of what Foreman takes for a smart proxy; empty if it is off.
    pub foreman: String,
    /// URL of metrics and health; empty if they are off.
    pub metrics: String,
    /// URL where an API server asks before it stores an object; empty if that is off.
    pub admission: String,
}

impl Addresses {
    /// The port of the Puppet and native API.
    pub fn puppet_port(&self) -> Option<u16> {
        port(&self.puppet)
    }

    /// The port of the Kubernetes API.
    pub fn kubernetes_port(&self) -> Option<u16> {
        port(&self.kubernetes)
    }

    /// The port of what Foreman takes for a smart proxy.
    pub fn foreman_port(&self) -> Option<u16> {
        port(&self.foreman)
    }

    /// The port of metrics and health.
    pub fn metrics_port(&self) -> Option<u16> {
        port(&self.metrics)
    }

    fn read(ready: &str) -> Self {
        let value = |name: &str| {
            let mut words = ready.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            puppet: value("puppet="),
            kubernetes: value("kubernetes="),
            foreman: value("foreman="),
            metrics: value("metrics="),
            admission: value("admission="),
        }
    }
}

/// Why there is no running server.
#[derive(Debug, thiserror::Error)]
pub enum ServerFault {
    /// The program is not there or may not be run.
    #[error("cannot start {program}")]
    Start {
        /// Its path.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It ended, or did not become ready in time.
    #[error("the server did not become ready ({outcome}); it had said: {said}")]
    NotReady {
        /// How it ended.
        outcome: String,
        /// Its output until then.
        said: String,
    },
}

impl ServerProcess {
    /// Runs `<binary> serve <arguments>` and waits until it is ready. The environment's own settings do not reach it.
    pub fn start(binary: &Path, arguments: &[&str]) -> Result<Self, ServerFault> {
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .args(arguments)
            .env_remove("COUNTERSIGN_DATA")
            .env_remove("RUST_LOG");
        Self::start_command(command)
    }

    /// As [`ServerProcess::start`], with a command of the caller's making.
    pub fn start_command(command: Command) -> Result<Self, ServerFault> {
        let is_ready = |line: &str| line.starts_with("ready");
        Self::start_until(command, Reach::Process, is_ready, PATIENCE)
    }

    /// A server behind a wrapper that ends with it and with us: ready when it has printed such a line, with so much
    /// patience between two lines. Signals go to a process group of its own.
    pub fn start_wrapped(
        mut command: Command,
        is_ready: impl Fn(&str) -> bool,
        patience: Duration,
    ) -> Result<Self, ServerFault> {
        command.process_group(0);
        Self::start_until(command, Reach::Group, is_ready, patience)
    }

    fn start_until(
        mut command: Command,
        reach: Reach,
        is_ready: impl Fn(&str) -> bool,
        patience: Duration,
    ) -> Result<Self, ServerFault> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let log = Arc::new(Log::default());
        let (end, ended) = sync_channel(1);
        let (line, lines) = sync_channel(MAX_LINES);
        let (start, started) = sync_channel(1);
        let collected = Arc::clone(&log);
        // Some servers end with the thread that started them, so this one lives as long as the server.
        thread::spawn(move || {
            let child = command.spawn();
            // Both receivers are gone only when nobody asks any more.
            let _ = match child {
                Ok(mut child) => {
                    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
                    thread::spawn(move || collect(stderr, &collected));
                    thread::spawn(move || read_lines(stdout, &line));
                    let _ = start.send(Ok(Pid::from_child(&child)));
                    end.send(child.wait()).is_ok()
                }
                Err(error) => start.send(Err(error)).is_ok(),
            };
        });
        let pid = match started.recv() {
            Ok(Ok(pid)) => pid,
            Ok(Err(source)) => return Err(ServerFault::Start { program, source }),
            Err(_) => {
                let source = io::Error::other("the starting thread ended early");
                return Err(ServerFault::Start { program, source });
            }
        };
        let mut server = Self {
            pid,
            reach,
            ended: Mutex::new(ended),
            status: None,
            addresses: Addresses::default(),
            greeting: String::new(),
            log,
        };
        match lines_until_ready(&lines, is_ready, patience) {
            Ok((greeting, ready)) => {
                server.addresses = Addresses::read(&ready);
                server.greeting = greeting;
                Ok(server)
            }
            Err(greeting) => {
                let outcome = match server.wait(Duration::from_secs(1)) {
                    Some(status) => status.to_string(),
                    None => "still running".to_owned(),
                };
                Err(ServerFault::NotReady {
                    outcome,
                    said: format!("{greeting}{}", server.log()),
                })
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        let text = self.log.text.lock();
        text.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until its log satisfies `test`; false if it does not in time.
    pub fn wait_for_log(&self, test: impl Fn(&str) -> bool) -> bool {
        let text = self.log.text.lock();
        let text = text.unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .log
            .news
            .wait_timeout_while(text, PATIENCE, |text| !test(text));
        let (text, _) = waited.unwrap_or_else(PoisonError::into_inner);
        test(&text)
    }

    /// Asks it to read its configuration again (SIGHUP), and does not wait.
    pub fn hang_up(&mut self) {
        self.signal(Signal::HUP);
    }

    /// Stops it where it is, as a disk or a hypervisor that hangs would; [`ServerProcess::resume`] lets it go on.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// See [`ServerProcess::pause`].
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end and waits; `None` if it does not.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(PATIENCE)
    }

    /// Kills it at once, as a crash would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait(PATIENCE);
    }

    /// Kills it at once and does not wait. To be followed by [`ServerProcess::kill9`].
    pub fn kill_now(&self) {
        if self.status.is_none() {
            self.send(Signal::KILL);
        }
    }

    /// Waits until it has ended by itself; `None` if it does not in time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            let ended = self.ended.get_mut();
            let ended = ended.unwrap_or_else(PoisonError::into_inner);
            self.status = match ended.recv_timeout(patience) {
                Ok(status) => status.ok(),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
            };
        }
        self.status
    }

    fn signal(&mut self, signal: Signal) {
        // Never to a number that may belong to another process by now.
        if self.wait(Duration::ZERO).is_none() {
            self.send(signal);
        }
    }

    fn send(&self, signal: Signal) {
        let _gone_meanwhile = match self.reach {
            Reach::Process => kill_process(self.pid, signal),
            Reach::Group => kill_process_group(self.pid, signal),
        };
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.stop().is_none() {
            self.kill9();
        }
    }
}

/// For assertion messages: where it listens and what it logged.
impl fmt::Display for ServerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}\n--- log\n{}",
            self.addresses,
            self.log().trim_end()
        )
    }
}

/// The lines before the one that says so, and that line; else all there were.
fn lines_until_ready(
    lines: &Receiver<String>,
    is_ready: impl Fn(&str) -> bool,
    patience: Duration,
) -> Result<(String, String), String> {
    let mut greeting = String::new();
    loop {
        // Each line has its own deadline: a first start with large keys says nothing for long.
        match lines.recv_timeout(patience) {
            Ok(line) if is_ready(&line) => return Ok((greeting, line)),
            Ok(line) => {
                greeting.push_str(&line);
                greeting.push('\n');
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(greeting);
            }
        }
    }
}

fn read_lines(stdout: Option<ChildStdout>, lines: &std::sync::mpsc::SyncSender<String>) {
    let Some(stdout) = stdout else { return };
    for line in BufReader::new(stdout).lines() {
        // The pipe is read to its end, so that the server never waits for a reader.
        let Ok(line) = line else { return };
        let _nobody_listens_any_more = lines.try_send(line);
    }
}

fn collect(stderr: Option<ChildStderr>, log: &Log) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0; 4096];
    while let Ok(count) = stderr.read(&mut buffer) {
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        let mut text = log.text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() < MAX_LOG {
            text.push_str(&String::from_utf8_lossy(bytes));
        }
        log.news.notify_all();
    }
}

fn port(url: &str) -> Option<u16> {
    url.rsplit(':').next()?.parse().ok()
}

/// More than a server needs to start or stop on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const MAX_LINES: usize = 1024;
const MAX_LOG: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<ServerProcess, ServerFault> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ServerProcess::start_command(command)
    }

    #[test]
    fn reads_the_greeting_and_the_addresses() {
        let script = "echo hello; echo log >&2; echo 'ready puppet=https://127.0.0.1:8140 kubernetes=https://[::1]:81'; exec sleep 600";
        let mut server = shell(script).unwrap();
        assert_eq!(server.greeting, "hello\n");
        assert_eq!(
            (
                server.addresses.puppet_port(),
                server.addresses.kubernetes_port()
            ),
            (Some(8140), Some(81))
        );
        server.kill9();
        assert_eq!(server.wait(Duration::ZERO).unwrap().code(), None);
    }

    #[test]
    fn stops_politely() {
        let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done";
        assert_eq!(shell(script).unwrap().stop().unwrap().code(), Some(3));
    }

    #[test]
    fn a_server_that_ends_early_tells_why() {
        let fault = shell("echo oh no >&2; exit 7").unwrap_err().to_string();
        assert!(fault.contains("exit status: 7"), "{fault}");
    }
}
