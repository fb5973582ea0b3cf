//! Whether the authority can serve, as every door's health answers tell it.

use countersign_authority::store::{Past, StoreFault};
use countersign_authority::{Door, Requests};

/// Asks the store something small; keys and revocations were loaded before any door opened.
pub(crate) async fn probe(requests: &Requests) -> Result<(), StoreFault> {
    let asked = requests.at(&Door::LOCAL, "", Past::Ignore).await;
    asked.map(|_| ())
}

/// What clients without an identity are told of a fault that may pass; which one it is stands in the log.
pub(crate) const CANNOT_STORE: &str = "the authority cannot use its store at the moment";
