//! `kubectl get --watch` of every release: rows come as things happen.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_testkit::counterparts::KubernetesRelease;
use countersign_testkit::kubectl::Kubectl;
use countersign_testkit::server_process::ServerProcess;
use serde_json::Value;

use super::Writer;
use crate::site::{JSON, REQUESTS, Site, approved};

#[test]
fn a_watched_list_shows_what_came_after_it() {
    let site = Site::start(&[]);
    let writer = Writer::new(&site);
    for release in KubernetesRelease::ALL {
        let kubectl = Kubectl::of(release, &site.kubeconfig(), &site.folder("home")).unwrap();
        let name = format!("v{}", release.minor());
        writer.create(&name);
        // The list's row is the sign that the watch follows from there: nothing is lost in between.
        let shown = Cell::new(0);
        let seen = watch(&kubectl, &["get", "csr", "--watch"], |line| {
            if is_row(line, &name, "Pending") {
                if shown.replace(shown.get() + 1) == 0 {
                    writer.annotate(&name, "seen", "once");
                } else {
                    writer.approve(&name);
                }
            }
            is_row(line, &name, "Approved,Issued")
        });
        assert_eq!(seen.matches("SIGNERNAME").count(), 1, "one heading: {seen}");
        writer.delete(&name);
    }
}

#[test]
fn a_watched_object_shows_its_changes_and_nothing_else() {
    let site = Site::start(&[]);
    let writer = Writer::new(&site);
    writer.create("other");
    for release in KubernetesRelease::ALL {
        let kubectl = Kubectl::of(release, &site.kubeconfig(), &site.folder("home")).unwrap();
        let name = format!("v{}", release.minor());
        writer.create(&name);
        // kubectl reads the object, watches it from any version, and keeps the first event to itself. So the object changes
        // until a change is shown.
        let follows = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..MAX_ROUNDS {
                    if follows.load(Ordering::Relaxed) {
                        break;
                    }
                    writer.annotate("other", "round", &round.to_string());
                    writer.annotate(&name, "round", &round.to_string());
                }
            });
            let rows = Cell::new(0);
            watch(&kubectl, &["get", "csr", &name, "--watch"], |line| {
                if is_row(line, &name, "Pending") && rows.replace(rows.get() + 1) == 1 {
                    follows.store(true, Ordering::Relaxed);
                    Writer::new(&site).approve_whenever(&name);
                }
                is_row(line, &name, "Approved,Issued")
            })
        });
        assert!(
            !seen.lines().any(|line| line.starts_with("other")),
            "{seen}"
        );
    }
}

impl Writer {
    /// Approves although somebody else may still be changing it: only one version can be the one that was read.
    fn approve_whenever(&self, name: &str) {
        let mut object = approved(self.get(name));
        object["metadata"]["resourceVersion"] = Value::Null;
        let path = format!("{}/{name}/approval", REQUESTS);
        self.done("PUT", &path, JSON, &object.to_string());
    }
}

/// Runs kubectl until a line satisfies `last`, which sees every line as it comes; answers with those before it.
fn watch(kubectl: &Kubectl, arguments: &[&str], last: impl Fn(&str) -> bool) -> String {
    let command = kubectl.command(arguments);
    let running = ServerProcess::start_wrapped(command, last, PATIENCE);
    running
        .unwrap_or_else(|fault| panic!("{arguments:?}: {fault}"))
        .greeting
        .clone()
}

fn is_row(line: &str, name: &str, state: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some(name) && words.next_back() == Some(state)
}

const PATIENCE: Duration = Duration::from_secs(60);
/// More than enough for a kubectl to begin on a busy machine.
const MAX_ROUNDS: u32 = 100_000;
