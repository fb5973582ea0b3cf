//! A program that works beside the test and writes one JSON object per line about what it sees.

use std::fmt;
use std::io::{self, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// A running program. Dropping it kills it, and all in its process group; so does the end of the test's process.
#[derive(Debug)]
pub struct JsonLines {
    program: String,
    group: Pid,
    lines: Receiver<String>,
    ended: Receiver<io::Result<ExitStatus>>,
    status: Option<ExitStatus>,
    stderr: Arc<Mutex<String>>,
    seen: Vec<Value>,
    patience: Duration,
}

/// Why a line did not come.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// The program is not there or may not be run.
    #[error("cannot start {program}")]
    Start {
        /// As given to the command.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing came for so long.
    #[error("nothing came for {patience:?} from {said}")]
    Silent {
        /// How long was waited.
        patience: Duration,
        /// What it had said.
        said: String,
    },
    /// It has ended.
    #[error("no more lines come from {said}")]
    Ended {
        /// What it had said.
        said: String,
    },
    /// It wrote something else.
    #[error("{line:?} is not JSON; it came from {said}")]
    NotJson {
        /// What it wrote.
        line: String,
        /// What it had said before.
        said: String,
    },
}

impl JsonLines {
    /// Starts it.
    pub fn start(command: &Command) -> Result<Self, LineFault> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut command = ending_with_us(command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let stderr = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&stderr);
        let (line, lines) = sync_channel(MAX_LINES);
        let (end, ended) = sync_channel(1);
        let (start, started) = sync_channel(1);
        // The program ends with the thread that started it, so this one lives as long as the program.
        thread::spawn(move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _nobody_asks = start.send(Err(error));
                    return;
                }
            };
            let _nobody_asks = start.send(Ok(Pid::from_child(&child)));
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            thread::spawn(move || collect(stderr, &collected));
            if let Some(stdout) = stdout {
                pass_on(BufReader::new(stdout), &line);
            }
            drop(line);
            let _nobody_asks = end.send(child.wait());
        });
        let group = match started.recv() {
            Ok(Ok(group)) => group,
            Ok(Err(source)) => return Err(LineFault::Start { program, source }),
            Err(_) => {
                let source = io::Error::other("the starting thread ended early");
                return Err(LineFault::Start { program, source });
            }
        };
        Ok(Self {
            program,
            group,
            lines,
            ended,
            status: None,
            stderr,
            seen: Vec::new(),
            patience: PATIENCE,
        })
    }

    /// How long a line may take.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The next line.
    pub fn read(&mut self) -> Result<Value, LineFault> {
        let said = |program: &Self| program.to_string();
        let line = match self.lines.recv_timeout(self.patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let (patience, said) = (self.patience, said(self));
                return Err(LineFault::Silent { patience, said });
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(LineFault::Ended { said: said(self) });
            }
        };
        let Ok(value) = serde_json::from_str::<Value>(&line) else {
            return Err(LineFault::NotJson {
                line,
                said: said(self),
            });
        };
        self.seen.push(value.clone());
        Ok(value)
    }

    /// The next line that satisfies `test`; those before it are passed over, but see [`JsonLines::seen`].
    pub fn read_until(&mut self, test: impl Fn(&Value) -> bool) -> Result<Value, LineFault> {
        loop {
            let value = self.read()?;
            if test(&value) {
                return Ok(value);
            }
        }
    }

    /// All lines to its end, those before included, and how it ended.
    pub fn read_to_end(mut self) -> Result<(Vec<Value>, ExitStatus), LineFault> {
        loop {
            match self.read() {
                Ok(_) => {}
                Err(LineFault::Ended { said }) => {
                    let status = self.wait().ok_or(LineFault::Ended { said })?;
                    return Ok((std::mem::take(&mut self.seen), status));
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Stops it where it is, until [`JsonLines::resume`]: a client that does not read what it is sent.
    pub fn pause(&self) {
        let _gone_meanwhile = kill_process_group(self.group, Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        let _gone_meanwhile = kill_process_group(self.group, Signal::CONT);
    }

    /// What was read so far.
    #[must_use]
    pub fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        let text = self.stderr.lock();
        text.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = match self.ended.recv_timeout(self.patience) {
                Ok(status) => status.ok(),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
            };
        }
        self.status
    }
}

impl Drop for JsonLines {
    fn drop(&mut self) {
        // Never to a number that may belong to another process by now.
        if self.status.is_none() && self.ended.try_recv().is_err() {
            let _gone_meanwhile = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// For assertion messages: what it said.
impl fmt::Display for JsonLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.program)?;
        for line in &self.seen {
            writeln!(f, "{line}")?;
        }
        write!(f, "--- stderr\n{}", self.log().trim_end())
    }
}

/// The same program, killed when the thread that starts it ends: no test's process leaves one behind.
#[must_use]
pub(crate) fn ending_with_us(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped
        .args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}

/// A test that does not read stops the program, it loses nothing.
fn pass_on(stdout: impl io::BufRead, lines: &SyncSender<String>) {
    for line in stdout.lines() {
        let Ok(line) = line else { return };
        if lines.send(line).is_err() {
            return;
        }
    }
}

fn collect(stderr: Option<ChildStderr>, log: &Mutex<String>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0; 4096];
    while let Ok(count) = stderr.read(&mut buffer) {
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        let mut text = log.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() < MAX_LOG {
            text.push_str(&String::from_utf8_lossy(bytes));
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
const MAX_LINES: usize = 64 * 1024;
const MAX_LOG: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> JsonLines {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        JsonLines::start(&command).unwrap()
    }

    #[test]
    fn lines_arrive_while_the_program_runs() {
        let mut program = shell(r#"echo '{"n":1}'; echo '{"n":2}'; exec sleep 600"#);
        assert_eq!(program.read_until(|line| line["n"] == 2).unwrap()["n"], 2);
        assert_eq!(program.seen().len(), 2);
    }

    #[test]
    fn reads_to_the_end() {
        let program = shell(r#"echo '{"n":1}'; exit 3"#);
        let (lines, status) = program.read_to_end().unwrap();
        assert_eq!((lines.len(), status.code()), (1, Some(3)));
    }

    #[test]
    fn a_paused_program_is_silent_until_it_goes_on() {
        let mut program = shell(r#"echo '{"n":0}'; while :; do echo '{"n":1}'; sleep 0.01; done"#);
        assert_eq!(program.read().unwrap()["n"], 0);
        program.pause();
        program.set_patience(Duration::from_secs(1));
        let silence = program.read_until(|line| line["n"] == 2);
        assert!(
            matches!(silence, Err(LineFault::Silent { .. })),
            "{silence:?}"
        );
        program.resume();
        assert_eq!(program.read().unwrap()["n"], 1);
    }

    #[test]
    fn silence_an_early_end_and_nonsense_are_told_apart() {
        let mut silent = shell("exec sleep 600");
        silent.set_patience(Duration::from_millis(50));
        assert!(matches!(silent.read(), Err(LineFault::Silent { .. })));
        assert!(matches!(shell("").read(), Err(LineFault::Ended { .. })));
        let nonsense = shell("echo no").read();
        assert!(matches!(nonsense, Err(LineFault::NotJson { .. })));
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut program = JsonLines::start(&Command::new("no-such-program")).unwrap();
        let fault = program.read().unwrap_err().to_string();
        assert!(fault.contains("no-such-program"), "{fault}");
    }
}
