//! Pages of lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One page.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// What is listed.
    pub items: Vec<T>,
    /// Present as long as more follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A page that is filtered: it may be empty and others follow.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}FilteredPage")]
pub struct FilteredPage<T> {
    /// What was found.
    #[serde(flatten)]
    pub page: Page<T>,
    /// How many entries were looked at for it.
    pub looked_at: usize,
}
