//! Which requests are prepared for the key while their approval is being written. An intent whose approval is not written
//! stays in the ledger as void, so that is not risked again where it has just failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::CallFault;
use crate::objects::CsrObject;

/// What became of approvals.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The requests whose approval was not written, by name, each with its identity.
    unwritten: Mutex<BTreeMap<String, String>>,
    /// Whether the last write failed for a reason that others may share.
    is_failing: AtomicBool,
}

impl Ahead {
    /// Whether an approval of this request will most probably be written.
    pub(crate) fn is_worthwhile(&self, request: &CsrObject) -> bool {
        !self.is_failing.load(Ordering::Relaxed)
            && self.unwritten().get(&request.name) != Some(&request.uid)
    }

    /// A write of its approval has brought this.
    pub(crate) fn wrote<T>(&self, request: &CsrObject, written: &Result<T, CallFault>) {
        match written {
            Ok(_) => {
                self.is_failing.store(false, Ordering::Relaxed);
                self.forget(&request.name);
                return;
            }
            // These say nothing of others.
            Err(CallFault::Conflict | CallFault::Exists | CallFault::NotFound) => {}
            Err(
                CallFault::Invalid(_)
                | CallFault::Forbidden(_)
                | CallFault::Status { .. }
                | CallFault::Unreachable(_),
            ) => self.is_failing.store(true, Ordering::Relaxed),
        }
        let (name, uid) = (request.name.clone(), request.uid.clone());
        self.unwritten().insert(name, uid);
    }

    /// The request is decided or gone.
    pub(crate) fn forget(&self, name: &str) {
        self.unwritten().remove(name);
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::tests::request;

    #[test]
    fn nothing_is_prepared_twice_nor_while_writes_fail() {
        let (a, b) = (request("a", json!({})), request("b", json!({})));
        let ahead = Ahead::default();
        let is_worthwhile = || [&a, &b].map(|request| ahead.is_worthwhile(request));
        assert_eq!(is_worthwhile(), [true, true]);
        ahead.wrote::<()>(&a, &Err(CallFault::Conflict));
        assert_eq!(is_worthwhile(), [false, true]);
        ahead.wrote::<()>(&a, &Err(CallFault::Invalid(String::new())));
        assert_eq!(is_worthwhile(), [false, false]);
        ahead.wrote(&b, &Ok(()));
        assert_eq!(is_worthwhile(), [false, true]);
        ahead.forget("a");
        assert_eq!(is_worthwhile(), [true, true]);
    }
}
