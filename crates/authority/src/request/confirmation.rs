//! A decision that somebody else stores while its certificate is being prepared.

use tokio::sync::watch;

/// Whether a decision is stored where it belongs. Its intent may be stored before that is known; the key is used only
/// afterwards, and never if the [`Confirmer`] was dropped.
#[derive(Clone, Debug)]
pub struct Confirmation(watch::Receiver<bool>);

/// Whoever stores the decision.
#[derive(Debug)]
pub struct Confirmer(watch::Sender<bool>);

impl Confirmation {
    /// A decision that is not stored yet, and who says when it is.
    pub fn pending() -> (Confirmer, Self) {
        let (sender, receiver) = watch::channel(false);
        (Confirmer(sender), Self(receiver))
    }

    /// Waits for it. `false`: it will never be stored.
    pub(crate) async fn wait(mut self) -> bool {
        self.0.wait_for(|is_stored| *is_stored).await.is_ok()
    }
}

impl Confirmer {
    /// The decision is stored.
    pub fn confirm(self) {
        self.0.send_replace(true);
    }
}
