//! What a decision rests on beside the request, and how it is gathered.

pub(crate) mod access;
pub(crate) mod decider;
pub(crate) mod evaluation;
pub(crate) mod local;
