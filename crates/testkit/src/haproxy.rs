//! HAProxy as a process of its own, with a configuration of the test's.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::api_server::{free_ports, start};
use crate::counterparts::{Counterpart, MissingCounterpart};
use crate::deadline::ask_again;
use crate::server_process::{ServerFault, ServerProcess};

/// A running HAProxy. Dropping it stops it.
#[derive(Debug)]
pub struct Haproxy<const PORTS: usize> {
    process: ServerProcess,
    /// Where it listens.
    pub ports: [u16; PORTS],
    socket: PathBuf,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum HaproxyFault {
    /// It was not prepared.
    #[error(transparent)]
    Missing(#[from] MissingCounterpart),
    /// It did not start.
    #[error(transparent)]
    Process(#[from] ServerFault),
    /// Its files.
    #[error("cannot prepare HAProxy")]
    Prepare(#[from] io::Error),
    /// It ended, or does not answer.
    #[error("HAProxy did not become ready; it had said: {said}")]
    NotReady {
        /// Its output until then.
        said: String,
    },
}

impl<const PORTS: usize> Haproxy<PORTS> {
    /// Starts it in a folder of its own, with a configuration for ports that are free.
    ///
    /// # Errors
    /// If it is not there, or does not take the configuration.
    pub fn start(
        folder: &Path,
        configuration: impl Fn([u16; PORTS]) -> String,
    ) -> Result<Self, HaproxyFault> {
        let program = Counterpart::Haproxy.find()?;
        let (file, socket) = (folder.join("haproxy.cfg"), folder.join("haproxy.socket"));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let ports = free_ports()?;
            let own = format!("global\n    stats socket {}\n", socket.display());
            std::fs::write(&file, format!("{}\n{own}", configuration(ports)))?;
            let mut command = Command::new(&program);
            command.arg("-db").arg("-f").arg(&file);
            let mut haproxy = Self {
                process: start(&command)?,
                ports,
                socket: socket.clone(),
            };
            let answers = ask_again(PATIENCE, || match haproxy.statistics() {
                Ok(_) => Some(true),
                Err(_) => haproxy.process.wait(Duration::ZERO).map(|_| false),
            });
            if answers == Some(true) {
                return Ok(haproxy);
            }
            let said = haproxy.process.log();
            // Another program may have taken a port meanwhile.
            if !said.contains("cannot bind") || attempts >= MAX_ATTEMPTS {
                return Err(HaproxyFault::NotReady { said });
            }
        }
    }

    /// What its health checks of a server came to last, as in `L7OK`; `None`: there was none yet.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn check_status(&self, proxy: &str, server: &str) -> io::Result<Option<String>> {
        let statistics = self.statistics()?;
        let mut lines = statistics.lines();
        let names = lines.next().unwrap_or_default().trim_start_matches("# ");
        let column = names.split(',').position(|name| name == "check_status");
        let column = column.ok_or_else(|| io::Error::other("no column check_status"))?;
        let line = lines.find(|line| line.starts_with(&format!("{proxy},{server},")));
        let status = line.and_then(|line| line.split(',').nth(column));
        Ok(status.filter(|text| !text.is_empty()).map(str::to_owned))
    }

    fn statistics(&self) -> io::Result<String> {
        let mut socket = UnixStream::connect(&self.socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"show stat\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Alone, it needs a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(30);
const MAX_ATTEMPTS: u32 = 5;
