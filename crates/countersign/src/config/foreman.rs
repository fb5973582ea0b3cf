//! `foreman`: the listener for a Foreman server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Listen, word};

/// Where a Foreman server finds its smart proxy, and who it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ForemanSection {
    #[serde(with = "word")]
    pub(crate) listen: Listen,
    /// Whose certificates may call; empty: nobody's.
    pub(crate) trusted_hosts: Vec<String>,
    /// The listener's own certificate, with its key; none: that of the Puppet listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    /// Who signs the callers' certificates; none: the Puppet issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
}

impl Default for ForemanSection {
    fn default() -> Self {
        Self {
            listen: Listen::Off,
            trusted_hosts: Vec::new(),
            cert: None,
            key: None,
            ca: None,
        }
    }
}
