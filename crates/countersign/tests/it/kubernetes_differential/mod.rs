//! The same calls, in the same order, to a real kube-apiserver with its controllers and to the Kubernetes door: status,
//! headers, bodies and certificates are the same, but for the differences that `differences.yaml` lists, each with its
//! reason. A difference that is not listed fails the test; so does a listed one that no longer occurs.
//!
//! Both get the table of `calls/*.yaml`, whose order matters: later calls meet what earlier ones left.

pub(crate) mod certificate;
mod differences;
pub(crate) mod requests;
mod shape;
mod side;
mod table;

use std::collections::BTreeSet;
use std::thread;

use countersign_testkit::api_server::{ApiServer, ApiServerSettings};

use crate::installation::Installation;
use differences::Findings;
use side::{Side, USERS};
use table::Step;

#[test]
fn answers_are_those_of_kube_apiserver() {
    let steps = table::read();
    let names: BTreeSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names.len(), steps.len(), "two calls have one name");
    let requests = requests::all();

    let folder = tempfile::tempdir().unwrap();
    let (reference, ours) = thread::scope(|scope| {
        let reference = scope.spawn(|| {
            let server = ApiServer::start(folder.path(), &ApiServerSettings::default());
            let server = server.unwrap_or_else(|fault| panic!("{fault}"));
            let mut side = Side::new(&requests, server.anonymous().unwrap());
            for (alias, user, groups) in USERS {
                side.add_user(alias, server.client(user, groups).unwrap());
            }
            side.answers(&steps)
        });
        let ours = scope.spawn(|| {
            let site = Installation::new();
            let server = site.serve(&["--hostname", "localhost"]);
            let mut side = Side::new(&requests, side::anonymous_of(&site, &server));
            for (alias, user, groups) in USERS {
                side.add_user(alias, side::user_of(&site, &server, user, groups));
            }
            side.answers(&steps)
        });
        (reference.join().unwrap(), ours.join().unwrap())
    });

    let mut findings = Findings::default();
    for (step, (reference, ours)) in steps.iter().zip(reference.iter().zip(&ours)) {
        if step.compared {
            findings.compare(step, reference, ours);
        }
    }
    findings.finish(&steps);
}

/// Both ways: a reason that is not in the manual, and a point of the manual that is no difference any more.
#[test]
fn the_manual_lists_every_difference() {
    let (_, section) = MANUAL.split_once("\n### In detail\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut points = Vec::<String>::new();
    for line in section.lines() {
        match (line.strip_prefix("- "), points.last_mut()) {
            (Some(begin), _) => points.push(begin.to_owned()),
            (None, Some(point)) if line.starts_with("  ") => {
                point.push(' ');
                point.push_str(line.trim());
            }
            (None, _) => {}
        }
    }
    let points: BTreeSet<String> = points.into_iter().collect();
    let reasons = differences::reasons();
    let missing: Vec<&String> = reasons.difference(&points).collect();
    let surplus: Vec<&String> = points.difference(&reasons).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "not in the manual: {missing:#?}\nin the manual alone: {surplus:#?}"
    );
}

const MANUAL: &str = include_str!("../../../../../docs/kubernetes.md");
