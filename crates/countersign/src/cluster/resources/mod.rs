//! What the project's own resources in a cluster come to: rules, signers, tokens.

pub(super) mod policies;
pub(super) mod signers;
pub(super) mod tokens;
