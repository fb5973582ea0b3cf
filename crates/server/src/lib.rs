//! Everything that listens.
//!
//! A [`Listener`] accepts TLS connections of one trust domain and hands each request, with its
//! [`Peer`], to a door. Doors turn wire formats into calls of the engine and its answers back into
//! wire formats. They decide nothing and open no store.

pub mod enrol;
pub mod kubernetes;
pub mod puppet;

mod listener;
mod peer;
mod tls;

pub use listener::{Listener, ListenerFault};
pub use peer::{KnownClient, Peer, PeerIdentity};
pub use tls::{TlsFault, TlsIdentity};
