//! Whether a change's preconditions hold: one statement per change, one column per precondition.

use countersign_authority::RequestId;
use countersign_authority::inventory_name;
use countersign_authority::store::{Change, Precondition};
use countersign_pki::Serial;
use tokio_postgres::Row;

use super::tokens::{EPOCH, usable};
use super::value::{Statement, Value};
use crate::records::with_skew;
use crate::row::{Cells as _, place};

/// The question; `None`: there is nothing to ask.
pub(super) fn question(change: &Change) -> Option<Statement<'_>> {
    if change.preconditions.is_empty() {
        return None;
    }
    let mut statement = Statement::default();
    for (index, precondition) in change.preconditions.iter().enumerate() {
        statement.push(if index == 0 { "SELECT " } else { ", " });
        condition(&mut statement, precondition);
    }
    Some(statement)
}

/// The first precondition that does not hold.
pub(super) fn failed<'c>(change: &'c Change, answer: &[Row]) -> Option<&'c Precondition> {
    let row = answer.first();
    let holds = |at| row.and_then(|row| row.integer(at).flatten()) == Some(1);
    let mut preconditions = change.preconditions.iter().enumerate();
    let failed = preconditions.find(|(index, _)| !holds(*index));
    failed.map(|(_, precondition)| precondition)
}

/// One condition. What is NULL does not hold.
fn condition<'c>(sql: &mut Statement<'c>, precondition: &'c Precondition) {
    match precondition {
        Precondition::RequestAt { id, version } => {
            sql.push("EXISTS (SELECT FROM requests WHERE id = ")
                .bind(id.as_bytes())
                .push(" AND version = ")
                .bind(place(version.0))
                .push(")");
        }
        Precondition::RequestExists { id } => {
            sql.push("EXISTS (SELECT FROM requests WHERE id = ")
                .bind(id.as_bytes())
                .push(")");
        }
        Precondition::RequestIn { id, state } => {
            sql.push("EXISTS (SELECT FROM requests WHERE id = ")
                .bind(id.as_bytes())
                .push(" AND state = ")
                .bind(state.word())
                .push(")");
        }
        Precondition::KeyFree { door, key } => {
            for (index, table) in ["requests", "intents"].into_iter().enumerate() {
                sql.push(if index == 0 { "NOT" } else { " AND NOT" })
                    .push(" EXISTS (SELECT FROM ")
                    .push(table)
                    .push(" WHERE door = ")
                    .bind(door.as_str())
                    .push(" AND key = ")
                    .bind(key.as_str())
                    .push(" AND live)");
            }
        }
        Precondition::NotDenied {
            door,
            key,
            key_fingerprint,
        } => {
            sql.push("NOT EXISTS (SELECT FROM requests WHERE door = ")
                .bind(door.as_str())
                .push(" AND key = ")
                .bind(key.as_str())
                .push(" AND key_fingerprint = ")
                .bind(key_fingerprint.as_bytes())
                .push(" AND state = 'denied' AND by_person)");
        }
        Precondition::NewestCertificate {
            issuer,
            name,
            serial,
        } => {
            sql.push("NOT EXISTS (SELECT FROM intents WHERE issuer = ")
                .bind(issuer.as_str())
                .push(" AND name = ")
                .bind(name.as_str())
                .push(") AND (SELECT serial FROM certificates WHERE issuer = ")
                .bind(issuer.as_str())
                .push(" AND name = ")
                .bind(name.as_str())
                .push(
                    " AND state = 'issued' AND retired IS NULL ORDER BY number DESC LIMIT 1) IS NOT DISTINCT FROM ",
                )
                .bind(serial.as_ref().map(Serial::as_bytes));
        }
        Precondition::IssuedCount {
            issuer,
            name,
            count,
        } => {
            sql.push("(SELECT count(*) FROM certificates WHERE issuer = ")
                .bind(issuer.as_str())
                .push(" AND name = ")
                .bind(name.as_str())
                .push(" AND state = 'issued') = ")
                .bind(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        Precondition::Unrevoked { issuer, serial } => {
            sql.push("EXISTS (SELECT FROM certificates WHERE issuer = ")
                .bind(issuer.as_str())
                .push(" AND serial = ")
                .bind(serial.as_bytes())
                .push(" AND state = 'issued' AND revoked_at IS NULL)");
        }
        Precondition::IntentOpen {
            issuer,
            serial,
            owner,
        } => {
            sql.push("EXISTS (SELECT FROM intents WHERE issuer = ")
                .bind(issuer.as_str())
                .push(" AND serial = ")
                .bind(serial.as_bytes());
            if let Some(owner) = owner {
                sql.push(" AND owner = ").bind(owner.0.as_str());
            }
            sql.push(")");
        }
        Precondition::PolicyFree { generation } => {
            sql.push("NOT EXISTS (SELECT FROM policies WHERE generation >= ")
                .bind(place(*generation))
                .push(")");
        }
        Precondition::CrlNumber {
            issuer,
            scope,
            number,
        } => {
            sql.push("(SELECT number FROM crls WHERE issuer = ")
                .bind(issuer.as_str())
                .push(" AND scope = ")
                .bind(scope.word())
                .push(") IS NOT DISTINCT FROM ")
                .bind(number.map(place));
        }
        Precondition::MachineAt { name, version } => {
            sql.push("(SELECT version FROM machines WHERE name = ")
                .bind(inventory_name(name))
                .push(") IS NOT DISTINCT FROM ")
                .bind(version.map(|version| place(version.0)));
        }
        Precondition::MachineExists { name } => {
            sql.push("EXISTS (SELECT FROM machines WHERE name = ")
                .bind(inventory_name(name))
                .push(")");
        }
        Precondition::MachineUnused { name } => {
            sql.push("EXISTS (SELECT FROM machines WHERE name = ")
                .bind(inventory_name(name))
                .push(" AND enrolled IS NULL)");
        }
        Precondition::WindowOpen {
            certname,
            at,
            with_token,
        } => {
            sql.push("EXISTS (SELECT FROM windows WHERE certname = ")
                .bind(inventory_name(certname))
                .push(" AND opens_at <= ")
                .bind(at.0)
                .push(" AND closes_at > ")
                .bind(at.0)
                .push(" AND issuances < max_issuances AND (NOT require_token OR ")
                .bind(*with_token)
                .push("))");
        }
        Precondition::WindowClosed { certname, before } => {
            sql.push("EXISTS (SELECT FROM windows WHERE certname = ")
                .bind(inventory_name(certname))
                .push(" AND closes_at < ")
                .bind(before.0)
                .push(")");
        }
        Precondition::LastSeal { number } => {
            sql.push("(SELECT coalesce(max(number), 0) FROM audit_seals) = ")
                .bind(place(*number));
        }
        Precondition::TokenUsable {
            id,
            certname,
            key_fingerprint,
            at,
        } => {
            sql.push("EXISTS (SELECT FROM tokens WHERE id = ")
                .bind(id.as_str())
                .push(" AND ");
            usable(sql, at.0, with_skew(*at).0);
            sql.push(") AND NOT EXISTS (SELECT FROM token_uses WHERE token = ")
                .bind(id.as_str())
                .push(" AND certname = ")
                .bind(certname.as_str())
                .push(" AND key_fingerprint = ")
                .bind(key_fingerprint.as_bytes())
                .push(")");
        }
        Precondition::TokenAt { id, version } => {
            sql.push("EXISTS (SELECT FROM tokens WHERE id = ")
                .bind(id.as_str())
                .push(" AND version = ")
                .bind(place(version.0))
                .push(")");
        }
        Precondition::ActiveTokens { certname, ids, at } => {
            let mut ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            sql.push(
                "(SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM tokens WHERE value = ",
            )
            .bind(certname.as_str())
            .push(" AND kind = 'exact' AND phase = 'open' AND epoch = ")
            .push(EPOCH)
            .push(" AND expires_at > ")
            .bind(at.0)
            .push(") = ")
            .bind(Value::Texts(ids.into_iter().map(Into::into).collect()))
            .push("::text[]");
        }
        Precondition::TokenNotOrdered {
            created_by,
            idempotency_key,
        } => {
            sql.push("NOT EXISTS (SELECT FROM tokens WHERE created_by = ")
                .bind(created_by.as_str())
                .push(" AND idempotency_key = ")
                .bind(idempotency_key.as_str())
                .push(")");
        }
        Precondition::ObjectAt { key, version } => {
            sql.push("(SELECT version FROM objects WHERE kind = ")
                .bind(key.kind.as_str())
                .push(" AND namespace = ")
                .bind(key.namespace.as_str())
                .push(" AND name = ")
                .bind(key.name.as_str())
                .push(") IS NOT DISTINCT FROM ")
                .bind(version.map(|version| place(version.0)));
        }
        Precondition::BootstrapTokenFree { id } => {
            sql.push("NOT EXISTS (SELECT FROM bootstrap_tokens WHERE id = ")
                .bind(id.as_str())
                .push(")");
        }
        Precondition::BootstrapTokenStands { id } => {
            sql.push("EXISTS (SELECT FROM bootstrap_tokens WHERE id = ")
                .bind(id.as_str())
                .push(" AND revoked_at IS NULL)");
        }
        Precondition::TokenReserved {
            id,
            certname,
            key_fingerprint,
            request,
        } => {
            let request = request.as_ref().map(RequestId::as_bytes);
            sql.push("EXISTS (SELECT FROM token_uses WHERE token = ")
                .bind(id.as_str())
                .push(" AND certname = ")
                .bind(certname.as_str())
                .push(" AND key_fingerprint = ")
                .bind(key_fingerprint.as_bytes())
                .push(" AND state = 'reserved' AND request IS NOT DISTINCT FROM ")
                .bind(request.map(|id| id.as_slice()))
                .push(")");
        }
    }
}
