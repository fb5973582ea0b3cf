//! Which of several replicas works: the one that holds a Lease (`coordination.k8s.io/v1`), as client-go's leader election
//! does it, so that `kubectl get lease` shows it and other tools understand it.
//!
//! A holder renews its Lease; whoever has seen the same Lease unchanged for as long as it lasts, by its own clock, takes it. A
//! holder that could not renew in time stops working before anybody else can have begun.

use std::time::Duration;

use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::UnixTime;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{Api, CallFault, segment};

/// How replicas find out which one works.
#[derive(Clone, Debug)]
pub struct Election {
    /// The Lease's namespace; `None`: that of the pod or of the kubeconfig's context.
    pub namespace: Option<String>,
    /// The Lease's name.
    pub name: String,
    /// What this replica calls itself; no other may have the same.
    pub identity: String,
    /// How long a Lease that is not renewed keeps others out.
    pub lease: Duration,
    /// How long a holder tries to renew before it gives up; shorter than the above.
    pub renew_deadline: Duration,
    /// How often a Lease is renewed or looked at.
    pub retry_period: Duration,
}

impl Election {
    /// The times of Kubernetes' own components: 15, 10 and 2 seconds.
    pub fn new(identity: String) -> Self {
        Self {
            namespace: None,
            name: "countersign".to_owned(),
            identity,
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A Lease as somebody last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    holder: String,
    /// In seconds.
    lasts: u64,
    transitions: u64,
    version: String,
    acquired: String,
}

/// What to do about a Lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nobody has made one.
    Create,
    /// It is ours: say that we are alive.
    Renew,
    /// It is free, or its holder is gone.
    Take,
    /// Somebody holds it.
    Wait,
}

fn step(seen: Option<&Seen>, me: &str, unchanged_for: Duration) -> Step {
    match seen {
        None => Step::Create,
        Some(seen) if seen.holder == me => Step::Renew,
        Some(seen) if seen.holder.is_empty() => Step::Take,
        Some(seen) if unchanged_for >= Duration::from_secs(seen.lasts) => Step::Take,
        Some(_) => Step::Wait,
    }
}

impl Seen {
    fn read(lease: &Value) -> Self {
        let text = |path: &str| {
            let found = lease.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let number = |path: &str| lease.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        Self {
            holder: text("/spec/holderIdentity"),
            lasts: number("/spec/leaseDurationSeconds"),
            transitions: number("/spec/leaseTransitions"),
            version: text("/metadata/resourceVersion"),
            acquired: text("/spec/acquireTime"),
        }
    }
}

/// One replica's part in an election.
pub(crate) struct Candidate {
    api: Api,
    how: Election,
    namespace: String,
    /// The Lease, and since when it has been like this by our own clock.
    seen: Option<(Seen, Instant)>,
    told: Option<String>,
}

impl Candidate {
    pub(crate) fn new(api: Api, how: Election) -> Self {
        let namespace = how.namespace.clone();
        Self {
            namespace: namespace.unwrap_or_else(|| api.namespace.clone()),
            api,
            how,
            seen: None,
            told: None,
        }
    }

    /// Waits until the Lease is ours; `false` if the program is to end before. Says when another replica has it.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken, stands_by: impl Fn()) -> bool {
        loop {
            match self.attempt().await {
                Ok(true) => {
                    info!(lease = %self.path(), identity = %self.how.identity, "leading");
                    return true;
                }
                Ok(false) => {
                    self.tell_holder();
                    stands_by();
                }
                Err(fault) => warn!(lease = %self.path(), %fault, "cannot take the lease"),
            }
            tokio::select! {
                () = sleep(self.how.retry_period) => {}
                () = stop.cancelled() => return false,
            }
        }
    }

    /// Renews until that fails for too long (`Err`), or the program is to end (`Ok`).
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) -> Result<(), LeaseLost> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = sleep(self.how.retry_period) => {}
                () = stop.cancelled() => return Ok(()),
            }
            let left = self.how.renew_deadline.saturating_sub(renewed.elapsed());
            match timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    let holder = self.seen.as_ref().map(|(seen, _)| seen.holder.clone());
                    return Err(LeaseLost::Taken {
                        lease: self.path(),
                        holder: holder.unwrap_or_default(),
                    });
                }
                Ok(Err(fault)) => warn!(lease = %self.path(), %fault, "cannot renew the lease"),
                Err(_) => {}
            }
            if renewed.elapsed() >= self.how.renew_deadline {
                return Err(LeaseLost::NotRenewed {
                    lease: self.path(),
                    seconds: self.how.renew_deadline.as_secs(),
                });
            }
        }
    }

    /// Lets the next one take it at once.
    pub(crate) async fn release(&mut self) {
        let Some((seen, _)) = self.seen.clone() else {
            return;
        };
        if seen.holder != self.how.identity {
            return;
        }
        let free = self.lease("", &seen, 1, SystemClock.now());
        match timeout(self.how.retry_period, self.api.put(&self.own_path(), &free)).await {
            Ok(Ok(_)) => info!(lease = %self.path(), "released"),
            Ok(Err(fault)) => warn!(lease = %self.path(), %fault, "cannot release the lease"),
            Err(_) => warn!(lease = %self.path(), "cannot release the lease in time"),
        }
    }

    /// Looks at the Lease and takes, makes or renews it if that is possible; whether it is ours then.
    async fn attempt(&mut self) -> Result<bool, CallFault> {
        let found = self.api.get(&self.own_path()).await?;
        let found = found.as_ref().map(Seen::read);
        let now = Instant::now();
        let since = match (&self.seen, &found) {
            (Some((known, since)), Some(found)) if known == found => *since,
            _ => now,
        };
        self.seen = found.clone().map(|found| (found, since));
        let me = self.how.identity.clone();
        let lasts = self.how.lease.as_secs().max(1);
        let at = SystemClock.now();
        let seen = found.unwrap_or_default();
        let written = match step(
            self.seen.as_ref().map(|(seen, _)| seen),
            &me,
            now.saturating_duration_since(since),
        ) {
            Step::Wait => return Ok(false),
            Step::Create => {
                let lease = self.lease(&me, &seen, lasts, at);
                self.api.post(&self.folder(), &lease).await
            }
            Step::Renew => {
                let lease = self.lease(&me, &seen, lasts, at);
                self.api.put(&self.own_path(), &lease).await
            }
            Step::Take => {
                let next = Seen {
                    transitions: seen.transitions.saturating_add(1),
                    acquired: String::new(),
                    ..seen
                };
                let lease = self.lease(&me, &next, lasts, at);
                self.api.put(&self.own_path(), &lease).await
            }
        };
        match written {
            Ok(lease) => {
                self.seen = Some((Seen::read(&lease), Instant::now()));
                Ok(true)
            }
            // Somebody else was quicker.
            Err(CallFault::Conflict | CallFault::Exists) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    fn lease(&self, holder: &str, seen: &Seen, lasts: u64, now: UnixTime) -> Value {
        let now = micro_time(now);
        let acquired = match seen.acquired.as_str() {
            "" => now.clone(),
            acquired => acquired.to_owned(),
        };
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            // The version that this change is for; one that does not exist yet has none.
            "metadata": {
                "name": self.how.name, "namespace": self.namespace, "resourceVersion": seen.version,
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": lasts,
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": seen.transitions,
            },
        })
    }

    fn tell_holder(&mut self) {
        let holder = self.seen.as_ref().map(|(seen, _)| seen.holder.clone());
        if holder != self.told {
            let shown = holder.clone().unwrap_or_default();
            info!(lease = %self.path(), holder = %shown, "another replica leads");
            self.told = holder;
        }
    }

    /// As people are told of it.
    fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.how.name)
    }

    fn folder(&self) -> String {
        let namespace = segment(&self.namespace);
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    fn own_path(&self) -> String {
        format!("{}/{}", self.folder(), segment(&self.how.name))
    }
}

/// Why a replica no longer leads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseLost {
    /// Another one does.
    #[error("the lease {lease} was taken by {holder:?}: another replica leads")]
    Taken {
        /// Which Lease.
        lease: String,
        /// By whom.
        holder: String,
    },
    /// It could not be renewed in time.
    #[error("the lease {lease} could not be renewed for {seconds} s: another replica may lead")]
    NotRenewed {
        /// Which Lease.
        lease: String,
        /// For how long.
        seconds: u64,
    },
}

/// The API server wants exactly six digits of a second here.
pub(crate) fn micro_time(time: UnixTime) -> String {
    let text = time.to_string();
    format!("{}.000000Z", text.strip_suffix('Z').unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_only_when_its_holder_is_gone() {
        let held_by = |holder: &str| Seen {
            holder: holder.to_owned(),
            lasts: 15,
            ..Seen::default()
        };
        for (case, seen, unchanged, expected) in [
            ("there is none", None, 0, Step::Create),
            ("it is ours", Some(held_by("me")), 0, Step::Renew),
            (
                "it is ours, however old",
                Some(held_by("me")),
                99,
                Step::Renew,
            ),
            ("it was released", Some(held_by("")), 0, Step::Take),
            ("somebody has it", Some(held_by("you")), 14, Step::Wait),
            ("somebody had it", Some(held_by("you")), 15, Step::Take),
            (
                "it lasts no time at all",
                Some(Seen {
                    lasts: 0,
                    ..held_by("you")
                }),
                0,
                Step::Take,
            ),
        ] {
            let unchanged = Duration::from_secs(unchanged);
            assert_eq!(step(seen.as_ref(), "me", unchanged), expected, "{case}");
        }
    }

    #[test]
    fn times_have_six_digits_of_a_second() {
        let time = UnixTime(1_760_000_000);
        assert_eq!(micro_time(time), "2025-10-09T08:53:20.000000Z");
    }
}
