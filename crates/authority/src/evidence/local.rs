//! Evidence that is on this machine: lists, and programs that are run.

use std::net::IpAddr;
use std::path::Path;

use countersign_policy::{AutosignFile, Execution, ListFile};
use futures_util::future::BoxFuture;

/// Who reads files and runs programs for the policy. It never fails: whatever goes wrong is an answer that approves nothing.
pub trait LocalEvidence: Send + Sync {
    /// What is at the path of a setting now, which may be a list or a program.
    fn file<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, AutosignFile>;

    /// What is in the allowlist at `path` now. It is never run.
    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, ListFile>;

    /// Runs a program: the name is its only argument, the request its only input. It has `seconds`, or as many as is usual.
    /// Those who ask from different places (`source`) share what can be run at once.
    ///
    /// # Errors
    /// If it was not run, because too many others are.
    fn run_program<'a>(
        &'a self,
        path: &'a Path,
        seconds: Option<u64>,
        name: &'a str,
        source: Option<IpAddr>,
        request_pem: String,
    ) -> BoxFuture<'a, Result<Execution, Busy>>;
}

/// No place came free in time.
#[derive(Clone, Copy, Debug)]
pub struct Busy;

/// Where nothing is read and nothing run.
#[derive(Debug)]
pub(crate) struct NoLocalEvidence;

impl LocalEvidence for NoLocalEvidence {
    fn file<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, AutosignFile> {
        Box::pin(async { AutosignFile::Unusable(NOTHING_READ.to_owned()) })
    }

    fn list<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, ListFile> {
        Box::pin(async { ListFile::Unusable(NOTHING_READ.to_owned()) })
    }

    fn run_program<'a>(
        &'a self,
        _: &'a Path,
        _: Option<u64>,
        _: &'a str,
        _: Option<IpAddr>,
        _: String,
    ) -> BoxFuture<'a, Result<Execution, Busy>> {
        let said =
            Execution::Unavailable("was not run: this authority runs no programs".to_owned());
        Box::pin(async move { Ok(said) })
    }
}

const NOTHING_READ: &str = "this authority reads no files";
