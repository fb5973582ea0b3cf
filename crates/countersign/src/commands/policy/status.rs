//! `countersign policy check` without files: what the running server says of its policy.

use anyhow::Result;
use countersign_api::{Policy, RefusedPolicy};
use countersign_pki::terminal_safe;
use serde_json::Value;

use crate::cli::{Form, Reach};
use crate::commands::csr::{accepted, client};
use crate::output::{self, Table};

/// Exit code 1 while the files on disk are not what is in force.
pub(super) async fn run(reach: &Reach, form: Form) -> Result<u8> {
    let mut client = client(&reach.server, &reach.config)?;
    let reply = accepted(client.get("/enrol/v1/policy").await?)?;
    let status: Policy = reply.json()?;
    let code = u8::from(status.refused.is_some());
    if form != Form::Table {
        output::object(&reply.json::<Value>()?, form)?;
        return Ok(code);
    }
    let loaded = status.loaded.map(|at| at.to_string());
    let loaded = loaded.as_deref().unwrap_or("an unknown time");
    let from = match status.files.as_slice() {
        [] => "no file".to_owned(),
        files => files.join(", "),
    };
    let head = format!(
        "generation {} in force since {loaded}, from {from}",
        status.generation
    );
    output::line(&terminal_safe(&head))?;
    if status.rules.is_empty() {
        output::line("no rules: every request waits for a person")?;
    } else {
        let mut table = Table::new(&["POLICY", "RULE", "SIGNERS"]);
        for rule in &status.rules {
            let policy = rule.policy.as_deref().unwrap_or("(a setting)");
            table.row([policy, &rule.name, &rule.signers.join(", ")]);
        }
        output::line(&table.text())?;
    }
    for warning in &status.warnings {
        output::complain(&terminal_safe(&format!("countersign: warning: {warning}")));
    }
    if let Some(RefusedPolicy { time, faults }) = &status.refused {
        let head = format!("countersign: the files were changed and refused at {time}:");
        output::complain(&terminal_safe(&head));
        for fault in faults {
            output::complain(&terminal_safe(&format!("countersign: {fault}")));
        }
    }
    Ok(code)
}
