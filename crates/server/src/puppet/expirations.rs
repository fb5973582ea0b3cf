//! `expirations`: when the issuer's certificates and lists end, for monitoring.

use std::collections::BTreeMap;

use axum::response::Response;
use countersign_pki::{CertFault, Certificate, Subject, pem};
use http::StatusCode;
use serde::Serialize;
use tracing::error;

use super::status_object::date;
use super::{PuppetDoor, answer};

/// Ends by common name, as clients expect them.
#[derive(Debug, Default, Serialize)]
struct Expirations {
    #[serde(rename = "ca-certs")]
    certificates: BTreeMap<String, String>,
    crls: BTreeMap<String, String>,
}

impl PuppetDoor {
    /// One entry for each certificate of the chain file, and for the published list and each that is served with it.
    pub(super) fn expirations(&self) -> Response {
        let mut ends = Expirations::default();
        match self.chain_certificates() {
            Ok(chain) => ends.certificates.extend(
                chain
                    .iter()
                    .map(|one| (name(one.subject()), date(one.not_after()))),
            ),
            Err(fault) => {
                error!(%fault, "the chain file cannot be read");
                return answer::internal("the issuer's chain cannot be read");
            }
        }
        if let Some(published) = self.authority().issuers.crl(self.issuer()) {
            let dated = published.ends.iter().filter_map(|list| {
                let end = list.next_update?;
                Some((list.common_name.clone(), date(end)))
            });
            ends.crls.extend(dated);
        }
        match serde_json::to_string(&ends) {
            Ok(json) => answer::with(StatusCode::OK, "application/json", json),
            Err(_) => answer::internal("the answer cannot be written"),
        }
    }

    fn chain_certificates(&self) -> Result<Vec<Certificate>, CertFault> {
        // The authority has read the file before; what is no PEM there is not here either.
        let blocks = pem::decode_all(&self.shared.chain, &pem::PemLimits::BUNDLE);
        blocks
            .unwrap_or_default()
            .iter()
            .filter(|block| block.label == "CERTIFICATE")
            .map(|block| Certificate::parse(&block.der))
            .collect()
    }
}

fn name(subject: &Subject) -> String {
    subject.first_common_name().unwrap_or_default().to_owned()
}
