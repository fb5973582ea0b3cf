//! `countersign policy`: files and decisions, offline but for those that are on record.

mod explain;
mod replay;
mod status;
mod trials;

use anyhow::Result;
use countersign_pki::terminal_safe;
use countersign_policy::{PolicyFault, PolicySet};
use serde_json::{Value, json};
use std::path::PathBuf;

use crate::cli::{Form, PolicyCommand, Reach};
use crate::output::{self, Table};
use crate::policies;
use crate::policy_files::{self, BadLines};

/// Carries a command out; the number is its exit code.
pub(crate) async fn run(command: PolicyCommand) -> Result<u8> {
    match command {
        PolicyCommand::Check {
            places,
            output,
            reach,
        } => match places.is_empty() {
            true => status::run(&reach, output.form).await,
            false => check(&places, &reach, output.form),
        },
        PolicyCommand::Test {
            files,
            coverage,
            output,
        } => trials::run(&files, coverage, output.form),
        PolicyCommand::Explain(args) => explain::run(&args),
        PolicyCommand::Replay(args) => replay::run(&args).await,
    }
}

fn check(places: &[PathBuf], reach: &Reach, form: Form) -> Result<u8> {
    let (files, _) = policy_files::texts(places);
    let distrusted: Vec<PolicyFault> = files.iter().filter_map(policies::distrusted).collect();
    let (set, faults) = match policy_files::read(places) {
        Ok(set) => {
            let mut faults = distrusted;
            faults.extend(policy_files::unknown_signers(&set));
            faults.extend(policy_files::check_needed(&set, BadLines::Told));
            if faults.is_empty() {
                faults.extend(policy_files::check_webhooks(&set));
            }
            (Some(set), faults)
        }
        Err(mut faults) => {
            faults.extend(distrusted);
            (None, faults)
        }
    };
    let config = reach.config.read()?;
    let declared: Vec<&str> = config.signers.iter().map(|it| it.name.as_str()).collect();
    let warnings = set.as_ref().map_or_else(Vec::new, |set| {
        policy_files::unserved_signers(set, &declared)
    });
    let documents = set.as_ref().map_or(&[][..], PolicySet::documents);
    if form != Form::Table {
        let policies: Vec<Value> = documents
            .iter()
            .map(|document| {
                let rules: Vec<&str> = document.rules.iter().map(|r| r.name.as_str()).collect();
                json!({
                    "name": &*document.name, "file": document.file, "order": document.order,
                    "signers": &*document.signers, "rules": rules,
                })
            })
            .collect();
        let faults_shown: Vec<Value> = faults.iter().map(shown_fault).collect();
        let report = json!({
            "ok": faults.is_empty(), "policies": policies, "faults": faults_shown,
            "warnings": warnings,
        });
        output::object(&report, form)?;
        return Ok(u8::from(!faults.is_empty()));
    }
    if !faults.is_empty() {
        complain(&faults);
        return Ok(1);
    }
    for warning in &warnings {
        output::complain(&terminal_safe(&format!("countersign: warning: {warning}")));
    }
    let mut table = Table::new(&["POLICY", "ORDER", "RULES", "SIGNERS", "FILE"]);
    for document in documents {
        let signers: Vec<&str> = document.signers.iter().map(|s| s.as_str()).collect();
        table.row([
            &*document.name,
            &document.order.to_string(),
            &document.rules.len().to_string(),
            &signers.join(", "),
            &document.file.display().to_string(),
        ]);
    }
    output::line(&table.text())?;
    Ok(0)
}

/// Tells what is wrong, a line each.
fn complain(faults: &[PolicyFault]) {
    for fault in faults {
        let text = fault.to_string();
        output::complain(&format!("countersign: {}", terminal_safe(&text)));
    }
}

fn shown_fault(fault: &PolicyFault) -> Value {
    json!({
        "file": fault.file, "line": fault.place.line, "column": fault.place.column,
        "key": fault.key, "message": fault.what,
    })
}
