//! Who acts on the authority, and with which rights.

use std::fmt;
use std::sync::Arc;

use countersign_policy::Requester;

use crate::authorisation::grant::Grant;
use crate::engine::Authority;

/// Who acts, as a door has found out, and what they may do at that moment.
#[derive(Clone, Debug)]
pub struct Actor {
    /// Who, as it is recorded.
    pub requester: Requester,
    /// The roles they have.
    pub grant: Grant,
    /// What lets them act.
    pub admitted: Admitted,
    /// Whether they insist, where an administrator is asked twice.
    pub insists: bool,
}

/// What lets somebody act on requests and certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Their roles.
    ByRole,
    /// Rules of the door's own. Roles count all the same for what reaches beyond an ordinary name.
    ByDoor,
}

impl Actor {
    /// Somebody with roles.
    pub fn with_roles(requester: Requester, grant: Grant) -> Self {
        Self {
            requester,
            grant,
            admitted: Admitted::ByRole,
            insists: false,
        }
    }

    /// Somebody whom the door's own rules let do what they do.
    pub fn let_by_door(requester: Requester, grant: Grant) -> Self {
        Self {
            requester,
            grant,
            admitted: Admitted::ByDoor,
            insists: false,
        }
    }

    /// The authority itself, on its own machine: it may do everything.
    pub fn authority() -> Self {
        Self::with_roles(Requester::authority(), Grant::ADMIN).insisting(true)
    }

    /// The same, who insists or does not.
    #[must_use]
    pub fn insisting(self, insists: bool) -> Self {
        Self { insists, ..self }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requester.fmt(f)
    }
}

/// Who knows which roles come with a certificate.
pub trait Roles: Send + Sync {
    /// What the holder of a certificate with these common names, in lower case, and these organizations may do, wherever
    /// that is.
    fn of_certificate(&self, names: &[&str], groups: &[&str]) -> Grant;
}

/// Where nobody has roles.
#[derive(Debug)]
pub(crate) struct NoRoles;

impl Roles for NoRoles {
    fn of_certificate(&self, _: &[&str], _: &[&str]) -> Grant {
        Grant::NOTHING
    }
}

impl Authority {
    /// Lets somebody say from now on which roles come with a certificate: nobody approves one that may do more than
    /// themselves.
    pub fn set_roles(&self, roles: Arc<dyn Roles>) {
        self.core.roles.store(Arc::new(roles));
    }
}
