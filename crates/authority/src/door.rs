//! What doors say of themselves.

use crate::model::Door;
use crate::request::collection::{Keeper, PlainKeeper, WhenEnded};

/// A door as it registers: said once, and read wherever requests are submitted, listed, counted or collected by door.
#[derive(Debug)]
pub struct DoorSpec {
    /// Its name, in listings and in metrics.
    pub name: Door,
    /// Whether its requests go on occupying their names once they are issued.
    pub retained: bool,
    /// What becomes of its issued requests whose certificate has ended before they are old.
    pub when_ended: WhenEnded,
    /// What it knows of its requests beyond their records.
    pub keeper: &'static dyn Keeper,
}

impl DoorSpec {
    /// No door: where the authority itself and its administrators ask for certificates.
    pub const LOCAL: &'static Self = &LOCAL;

    /// A door whose requests let go of their names when they are over, and that knows nothing beyond their records.
    pub const fn plain(name: Door) -> Self {
        Self {
            name,
            retained: false,
            when_ended: WhenEnded::Stays,
            keeper: &PlainKeeper,
        }
    }
}

static LOCAL: DoorSpec = DoorSpec::plain(Door::LOCAL);
