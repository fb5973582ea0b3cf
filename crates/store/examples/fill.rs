//! Fills the store of a server that is not running, for benchmarks of a long ledger.
//!
//! `cargo run --release -p countersign-store --example fill -- DATABASE TEMPLATE FROM TO`
//!
//! TEMPLATE is a name that was enrolled through the door. Its request, certificate and audit entries are written again
//! under other names, serials and identities, numbers FROM to TO. The copies' signatures do not verify; everything else
//! about them is as it would be.

use std::error::Error;

use countersign_authority::store::{AuditReads as _, LedgerReads as _, RequestReads as _};
use countersign_authority::store::{Change, Store as _, Write};
use countersign_authority::{
    AuditEntry, IssuerId, LedgerEntry, RequestId, RequestRecord, Revision,
};
use countersign_pki::{Serial, fingerprint_sha256};
use countersign_store::SqliteStore;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, template, from, to] = arguments.as_slice() else {
        return Err("fill DATABASE TEMPLATE FROM TO".into());
    };
    let (from, to): (u32, u32) = (from.parse()?, to.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let store = SqliteStore::open(database.as_ref())?;
        let template = Template::read(&store, template).await?;
        for first in (from..to).step_by(GROUP) {
            let mut change = Change::default();
            for number in (first..to).take(GROUP) {
                template.copy(number, &mut change)?;
            }
            store.commit(change).await?;
        }
        Ok(())
    })
}

struct Template {
    request: RequestRecord,
    certificate: LedgerEntry,
    /// As JSON, so that whatever is named in them can be replaced.
    audit: Vec<String>,
}

impl Template {
    async fn read(store: &SqliteStore, name: &str) -> Result<Self, Box<dyn Error>> {
        let issuer = IssuerId::parse("puppet")?;
        let certificate = store.newest_certificate(&issuer, name).await?;
        let certificate = certificate.ok_or("the template has no certificate")?;
        let request = store.request(certificate.request).await?;
        let request = request.ok_or("the template has no request")?;
        let id = request.id.to_string();
        // It is among the first that were enrolled.
        let entries = store.audit(Revision(0), 1000).await?;
        let audit = entries
            .iter()
            .filter(|(_, entry)| entry.request.as_ref() == Some(&id))
            .map(|(_, entry)| serde_json::to_string(entry))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            request,
            certificate,
            audit,
        })
    }

    fn copy(&self, number: u32, change: &mut Change) -> Result<(), Box<dyn Error>> {
        let (old, mut entry) = (&self.certificate, self.certificate.clone());
        let mut request = self.request.clone();
        // Machines do not enrol in the order of their names.
        let scattered = number.wrapping_mul(0x9e37_79b1);
        let tail = old.name.get(LABEL..).unwrap_or_default();
        entry.name = format!("fill-{scattered:08x}{tail}");
        if entry.name.len() != old.name.len() {
            return Err("the template's name must begin with 13 characters to replace".into());
        }
        let digest = fingerprint_sha256(&number.to_be_bytes());
        let (random, rest) = digest.as_bytes().split_at(16);
        entry.serial = Serial::random_from(random.try_into()?);
        request.id = RequestId::new(
            request.created,
            rest.get(..10).unwrap_or_default().try_into()?,
        );
        entry.request = request.id;
        let names = (old.name.as_bytes(), entry.name.as_bytes());
        replace(&mut entry.der, names);
        replace(
            &mut entry.der,
            (old.serial.as_bytes(), entry.serial.as_bytes()),
        );
        replace(&mut request.csr_der, names);
        request.key.clone_from(&entry.name);
        request.certificate = Some((entry.issuer.clone(), entry.serial));
        for text in &self.audit {
            let text = text
                .replace(&old.name, &entry.name)
                .replace(&old.serial.to_hex(), &entry.serial.to_hex())
                .replace(&self.request.id.to_string(), &request.id.to_string());
            change
                .audit
                .push(serde_json::from_str::<AuditEntry>(&text)?);
        }
        change.writes.push(Write::InsertRequest(request));
        change.writes.push(Write::Import(entry));
        Ok(())
    }
}

/// Puts bytes of the same length in the place of others, wherever they are.
fn replace(bytes: &mut [u8], (old, new): (&[u8], &[u8])) {
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..) {
        let Some(found) = rest.windows(old.len()).position(|window| window == old) else {
            return;
        };
        for (to, from) in rest.iter_mut().skip(found).zip(new) {
            *to = *from;
        }
        at += found + old.len();
    }
}

const GROUP: usize = 5000; // large groups touch a page of an index once for many entries
const LABEL: usize = 13; // "fill-" and eight digits
