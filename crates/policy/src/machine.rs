//! Whether a request is the one that the inventory expects.

use std::net::IpAddr;

use countersign_pki::{AltName, UnixTime, oid};

use crate::facts::Machine;
use crate::reason::ReasonCode;
use crate::request::Request;
use crate::rules::MachineRule;

/// Why a request is not the expected one.
pub(crate) struct Difference {
    pub(crate) code: ReasonCode,
    pub(crate) reason: String,
}

/// Compares a request with the record of its name.
///
/// What the record says, the request must show: an identifier that the record has and the request lacks is a difference.
pub(crate) fn compare(
    rule: MachineRule,
    machine: &Machine,
    request: &Request<'_>,
    now: UnixTime,
) -> Result<(), Difference> {
    expected_now(rule, machine, now)?;
    if let Some(at) = machine.enrolled.filter(|_| rule.once || machine.single_use) {
        return Err(Difference {
            code: ReasonCode::MachineEnrolled,
            reason: format!("{} has enrolled at {at} already", machine.name),
        });
    }
    for (extension, recorded) in [
        ("pp_instance_id", &machine.instance_id),
        ("pp_uuid", &machine.uuid),
    ] {
        same_id(extension, recorded, machine, request)?;
    }
    known_names(machine, request)
}

fn expected_now(rule: MachineRule, machine: &Machine, now: UnixTime) -> Result<(), Difference> {
    let outside = |reason: String| Difference {
        code: ReasonCode::MachineWindow,
        reason: format!("{} {reason}", machine.name),
    };
    if let Some(from) = machine.not_before.filter(|from| now < *from) {
        return Err(outside(format!("is expected only from {from} on")));
    }
    if let Some(until) = machine.not_after.filter(|until| now >= *until) {
        return Err(outside(format!("was expected until {until}")));
    }
    let since = machine.not_before.unwrap_or(machine.created);
    match rule.window.map(|seconds| since.plus_seconds(seconds)) {
        Some(end) if now > end => Err(outside(format!("was expected until {end}"))),
        // A record from the future is a clock that lies.
        Some(_) if now < since => Err(outside(format!("is expected only from {since} on"))),
        Some(_) | None => Ok(()),
    }
}

fn same_id(
    extension: &str,
    recorded: &str,
    machine: &Machine,
    request: &Request<'_>,
) -> Result<(), Difference> {
    if recorded.is_empty() {
        return Ok(());
    }
    let shown = oid::registered_oid(extension)
        .and_then(|oid| request.csr.extension(&oid))
        .and_then(countersign_pki::Extension::text_value);
    let different = |reason| Difference {
        code: ReasonCode::MachineId,
        reason,
    };
    match shown {
        Some(shown) if shown.eq_ignore_ascii_case(recorded) => Ok(()),
        // What the record says stays there: the sender may get to read this.
        Some(shown) => Err(different(format!(
            "{extension} is {shown:?}, which the record of {} does not say",
            machine.name
        ))),
        None => Err(different(format!(
            "the request has no {extension}, and the record of {} has one",
            machine.name
        ))),
    }
}

fn known_names(machine: &Machine, request: &Request<'_>) -> Result<(), Difference> {
    for name in request.csr.alt_names() {
        let (is_known, shown) = match name {
            AltName::Dns(name) => (has_name(machine, name), format!("DNS:{name}")),
            AltName::Ip(address) => (has_address(machine, *address), format!("IP:{address}")),
            AltName::Email(name) => (false, format!("email:{name}")),
            AltName::Uri(name) => (false, format!("URI:{name}")),
            AltName::Other { .. } => (false, "a name of another kind".to_owned()),
        };
        if !is_known {
            return Err(Difference {
                code: ReasonCode::MachineAddress,
                reason: format!("the record of {} does not have {shown}", machine.name),
            });
        }
    }
    Ok(())
}

fn has_name(machine: &Machine, name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let mut names = machine.addresses.iter().filter(|a| !a.kind.is_ip());
    name.eq_ignore_ascii_case(&machine.name)
        || names.any(|known| known.address.eq_ignore_ascii_case(name))
}

fn has_address(machine: &Machine, address: IpAddr) -> bool {
    let address = address.to_canonical();
    let mut numbers = machine.addresses.iter().filter(|a| a.kind.is_ip());
    numbers.any(|known| {
        let known = known.address.parse::<IpAddr>();
        known.is_ok_and(|known| known.to_canonical() == address)
    })
}
