//! Where the answers may differ, and why.

use super::calls::Call;
use super::shape::{Field, Shape};

use Field::{Allow, Body, ContentType, Status};
use Scope::{Calls, Everywhere};

/// One accepted difference.
#[derive(Debug)]
pub(crate) struct Difference {
    scope: Scope,
    /// Status of the reference, and ours.
    statuses: (u16, u16),
    /// All that differ.
    pub(crate) fields: &'static [Field],
    #[expect(
        dead_code,
        reason = "for the reader, and shown when the difference is gone"
    )]
    reason: &'static str,
}

#[derive(Debug)]
enum Scope {
    Calls(&'static [&'static str]),
    Everywhere,
}

impl Difference {
    pub(crate) fn explains(&self, call: &Call, reference: &Shape, ours: &Shape) -> bool {
        let covered = match self.scope {
            Calls(names) => names.contains(&call.name),
            Everywhere => true,
        };
        let differing = reference.differing(ours);
        covered
            && self.statuses == (reference.status, ours.status)
            && self.fields.iter().all(|field| differing.contains(field))
    }
}

pub(crate) static ALL: &[Difference] = &[Difference {
    scope: Everywhere,
    statuses: (403, 403),
    fields: &[ContentType],
    reason: "a sentence says that it is text; Puppet Server leaves the type out",
}];
