//! How many tokens there are, for monitoring.

use crate::engine::Authority;
use crate::store::StoreFault;

impl Authority {
    /// How many tokens can be used now. More than may be are not counted to the end.
    pub async fn active_tokens(&self) -> Result<usize, StoreFault> {
        let at_most = self.core.rules.load().tokens.max_active.saturating_add(1);
        self.core.store.active_tokens(self.now(), at_most).await
    }
}
