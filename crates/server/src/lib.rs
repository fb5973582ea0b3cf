//! Everything that listens.
//!
//! A [`Listener`] accepts TLS connections of one trust domain and hands each request, with its
//! [`Peer`], to a door. All doors have one front end, which lets calls in, whole and judged twice. Doors
//! turn wire formats into calls of the engine and its answers back into wire formats. They decide
//! nothing and open no store.

pub mod access;
pub mod enrol;
pub mod foreman;
pub mod kubernetes;
pub mod metrics;
pub mod puppet;

mod activity;
mod admission_listener;
mod body;
mod connection;
mod connection_limit;
mod entrance;
mod frontend;
mod limiter;
mod limits;
mod listener;
mod monitor;
mod peer;
mod proxy_protocol;
mod readiness;
mod refusal;
mod stall;
mod tls;

pub use admission_listener::{AdmissionIdentity, AdmissionListener, Reviewer};
pub use limits::{RequestLimits, RequestRates};
pub use listener::{Identity, Listener, ListenerConfig, ListenerFault, Timeouts};
pub use monitor::{Monitor, MonitorListener};
pub use peer::{KnownClient, Peer, PeerIdentity};
pub use proxy_protocol::TrustedProxies;
pub use tls::{ForeignClients, OnBadCertificate, TlsFault, TlsIdentity};

use countersign_authority::DoorSpec;

/// Every door through which requests come on record.
pub static DOORS: [&DoorSpec; 3] = [&puppet::SPEC, &kubernetes::SPEC, &foreman::SPEC];
