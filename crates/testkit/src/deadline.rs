//! Runs a program to its end, or kills it: a counterpart that hangs fails its test, not the whole run.

use std::fmt;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// What a program that ended by itself left behind.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

/// Why there is no [`Finished`].
#[derive(Debug, thiserror::Error)]
pub enum RunFault {
    /// The program is not there or may not be run.
    #[error("cannot start {program}")]
    Start {
        /// As given to the command.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The program, and all it started in its process group, was killed.
    #[error("{program} was killed after {deadline:?}; it had said: {said}")]
    Deadline {
        /// As given to the command.
        program: String,
        /// How long it had.
        deadline: Duration,
        /// Its output until then.
        said: Box<Finished>,
    },
    /// The system refused to say how the program ended.
    #[error("cannot wait for {program}")]
    Wait {
        /// As given to the command.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Runs `command` without input. When it has ended, or at the deadline, its whole process group is
/// killed, so that no grandchild outlives the test.
pub fn run_with_deadline(command: Command, deadline: Duration) -> Result<Finished, RunFault> {
    run(command, None, deadline)
}

/// As [`run_with_deadline`], with `input` as standard input.
pub fn run_with_input(
    command: Command,
    input: Vec<u8>,
    deadline: Duration,
) -> Result<Finished, RunFault> {
    run(command, Some(input), deadline)
}

/// Asks again, with a pause between two attempts, until there is an answer or so long has been waited. For what gives no
/// sign when it changes.
pub fn ask_again<T>(patience: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let (_never, nothing) = sync_channel::<()>(0);
    let attempts = patience.as_millis().div_euclid(PAUSE.as_millis());
    for _ in 0..attempts {
        if let Some(answer) = attempt() {
            return Some(answer);
        }
        let _elapsed = nothing.recv_timeout(PAUSE);
    }
    attempt()
}

impl Finished {
    /// Whether the program ended with code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

/// For assertion messages: code and both outputs.
impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(f, "exit code {code}")?,
            None => writeln!(f, "ended by a signal")?,
        }
        write!(
            f,
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout.trim_end(),
            self.stderr.trim_end()
        )
    }
}

fn run(
    mut command: Command,
    input: Option<Vec<u8>>,
    deadline: Duration,
) -> Result<Finished, RunFault> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(match input {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| RunFault::Start {
            program: program.clone(),
            source,
        })?;
    let group = Pid::from_child(&child);
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let stdin = child.stdin.take();

    thread::scope(|scope| {
        let stdout = scope.spawn(|| read_all(stdout));
        let stderr = scope.spawn(|| read_all(stderr));
        scope.spawn(move || {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A program may end without reading all of its input.
                let _ = stdin.write_all(&input);
            }
        });
        let (ended, waiting) = sync_channel(1);
        scope.spawn(move || {
            // The receiver lives until the message has arrived.
            let _ = ended.send(child.wait());
        });

        let in_time = waiting.recv_timeout(deadline);
        // Also after a regular end: a grandchild may hold the pipes. No such group is fine.
        let _ = kill_process_group(group, Signal::KILL);
        let (in_time, status) = match in_time {
            Ok(status) => (true, status),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                (false, waiting.recv().unwrap_or_else(|_| Err(lost_thread())))
            }
        };
        let status: ExitStatus = status.map_err(|source| RunFault::Wait {
            program: program.clone(),
            source,
        })?;
        let finished = Finished {
            code: status.code(),
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
        };
        if in_time {
            Ok(finished)
        } else {
            Err(RunFault::Deadline {
                program: program.clone(),
                deadline,
                said: Box::new(finished),
            })
        }
    })
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What arrived before an error is still worth showing.
        let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn lost_thread() -> io::Error {
    io::Error::other("the waiting thread ended early")
}

const PAUSE: Duration = Duration::from_millis(100);

/// A program that talks without end is cut off, not collected.
const MAX_OUTPUT: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn returns_code_and_both_outputs() {
        let finished = run_with_deadline(shell("echo out; echo err >&2; exit 7"), AMPLE).unwrap();
        assert_eq!(finished.code, Some(7));
        assert_eq!((&*finished.stdout, &*finished.stderr), ("out\n", "err\n"));
        assert!(!finished.success());
    }

    #[test]
    fn hands_over_the_input() {
        let input = vec![b'x'; 300_000];
        let finished = run_with_input(shell("wc -c"), input, AMPLE).unwrap();
        assert_eq!(finished.stdout.trim(), "300000");
    }

    #[test]
    fn kills_at_the_deadline_and_shows_what_was_said() {
        let script = "echo before; sleep 600 & sleep 600";
        let fault = run_with_deadline(shell(script), Duration::from_millis(300)).unwrap_err();
        let RunFault::Deadline { said, .. } = &fault else {
            panic!("{fault}");
        };
        assert_eq!(said.stdout, "before\n");
        assert_eq!(said.code, None);
    }

    #[test]
    fn a_grandchild_that_holds_the_pipes_does_not_hold_the_test() {
        let finished = run_with_deadline(shell("sleep 600 & echo done"), AMPLE).unwrap();
        assert!(finished.success());
        assert_eq!(finished.stdout, "done\n");
    }

    #[test]
    fn asks_again_until_there_is_an_answer() {
        let mut asked = 0;
        let mut third = || {
            asked += 1;
            (asked == 3).then_some(asked)
        };
        assert_eq!(ask_again(AMPLE, &mut third), Some(3));
        assert_eq!(ask_again(Duration::from_millis(250), || None::<()>), None);
    }

    #[test]
    fn a_missing_program_is_named() {
        let fault = run_with_deadline(Command::new("no-such-program"), AMPLE).unwrap_err();
        assert_eq!(fault.to_string(), "cannot start no-such-program");
    }
}
