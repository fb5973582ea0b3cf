//! The client that enrols a machine: key, request, trust, submission, polling, installation, renewal.
//!
//! The order is what makes a crash harmless: the authority is verified before it is told anything, and before a key is
//! written; the key is on disk before anybody sees its public half, so the next try asks with the same one; the certificate
//! is checked before it is installed, and installed last. The authority's side decides; here is nothing but a client.

mod attributes;
pub mod ca;
pub mod client;
mod error;
pub mod files;
mod folder;
mod holdings;
mod hook;
pub mod issued;
mod kubernetes;
mod paths;
mod puppet;
mod request;
mod session;
mod token;
mod trust;
mod upkeep;
mod waiting;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use countersign_pki::{Crl, UnixTime, pem};
use countersign_private_keys::{KeySpec, LeafKey};

pub use self::attributes::{Assignment, Extras};
pub use self::error::{Cause, EnrolError, with_causes};
use self::error::{Result, internal};
use self::files::{Kind, Ownership, Secret, Written};
pub use self::holdings::{Held, Holdings, Standing};
use self::hook::Event;
pub use self::hook::Hook;
use self::issued::Chain;
pub use self::kubernetes::Order;
use self::paths::KeyOrigin;
pub use self::paths::{CertificatePaths, PathOptions};
pub use self::request::Wishes;
pub use self::session::Patience;
use self::session::{Obtained, Purpose, Session};
pub use self::token::{Token, TokenSource};
pub use self::trust::{Bundle, Server, Trust};
pub use self::upkeep::stay;

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The Puppet CA API, of Countersign or of a Puppet Server.
    Puppet,
    /// The Kubernetes API `certificates.k8s.io/v1`.
    Kubernetes,
}

/// A time before a certificate's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewBefore {
    /// So long.
    Time(Duration),
    /// So many hundredths of its life.
    Percent(u8),
}

impl Default for RenewBefore {
    /// A third: two tries that fail for a week each still leave time.
    fn default() -> Self {
        Self::Percent(33)
    }
}

/// Who is told what happens.
pub trait Voice: Send + Sync {
    /// What was done.
    ///
    /// # Errors
    /// If nobody can be told.
    fn result(&self, text: &str) -> io::Result<()>;
    /// What goes on.
    fn news(&self, text: &str);
    /// What somebody should know.
    fn warning(&self, text: &str);
    /// What went wrong, and is not the end.
    fn failure(&self, fault: &(dyn Error + 'static));
}

/// Everything that a run needs to know.
pub struct Plan {
    /// The authority.
    pub server: Server,
    /// What its door wants to know besides.
    pub door: DoorPlan,
    /// How it is recognised.
    pub trust: Trust,
    /// What is asked for.
    pub wishes: Wishes,
    /// The kind of key that is made.
    pub key: KeySpec,
    /// Where the token is.
    pub token: TokenSource,
    /// Where everything is installed.
    pub place: CertificatePaths,
    /// Whose it is then.
    pub ownership: Ownership,
    /// What runs afterwards.
    pub hook: Option<Hook>,
    /// How long to wait for a certificate.
    pub patience: Patience,
    /// When it is renewed.
    pub renew_before: RenewBefore,
    /// Who is told.
    pub voice: Box<dyn Voice>,
}

/// What a door wants to know besides.
pub enum DoorPlan {
    /// Nothing.
    Puppet,
    /// More.
    Kubernetes(KubernetesPlan),
}

/// What the Kubernetes door wants to know.
pub struct KubernetesPlan {
    /// What is asked of a signer.
    pub order: Order,
    /// Certificate and key to ask with.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Plan {
    /// Puts one of the files into its place.
    fn install(&self, path: &Path, content: &[u8], kind: Kind) -> Result<Written> {
        let base = self.place.base_of(path);
        self.ownership.install(base, path, content, kind)
    }

    fn tell(&self, text: &str) -> Result<()> {
        self.voice.result(text).map_err(EnrolError::Output)
    }
}

/// What became of a run.
pub enum Done {
    /// There is a valid certificate.
    Whole,
    /// There is, and what should have run then did not do its work.
    WithoutHook(EnrolError),
}

/// Brings the machine to a valid certificate.
///
/// # Errors
/// Why there is none.
pub async fn once(plan: &Plan) -> Result<Done> {
    let holdings = Holdings::read(&plan.place)?;
    match standing(plan, &holdings)? {
        Standing::Good { renewal } => {
            let (name, file) = (&plan.wishes.name, plan.place.certificate.display());
            let until = holdings.held.map(|held| held.not_after().to_string());
            plan.tell(&format!(
                "{name} has a certificate in {file} that is valid until {}; it is renewed from {renewal} on",
                until.unwrap_or_default()
            ))?;
            Ok(Done::Whole)
        }
        Standing::Absent => enrol(plan, holdings, plan.patience).await,
        Standing::Due => renew(plan, holdings, plan.patience).await,
    }
}

fn standing(plan: &Plan, holdings: &Holdings) -> Result<Standing> {
    let (name, place) = (&plan.wishes.name, &plan.place);
    holdings.standing(name, place, plan.renew_before, now())
}

/// A first certificate, or one after the last has expired.
async fn enrol(plan: &Plan, holdings: Holdings, patience: Patience) -> Result<Done> {
    let (token, warning) = plan.token.read()?;
    if let Some(warning) = warning {
        plan.voice.warning(&warning);
    }
    let mut session = match holdings.key {
        Some(key) => {
            write_public_key(plan, &key)?;
            Session::new(plan, &key, Purpose::Enrol(token))?
        }
        None => Session::with_new_key(plan, make_key(plan).await?, Purpose::Enrol(token))?,
    };
    let obtained = session.obtain(patience).await?;
    install(plan, &obtained, Event::Enrolled).await
}

/// A certificate after one that is still valid.
async fn renew(plan: &Plan, holdings: Holdings, patience: Patience) -> Result<Done> {
    let (Some(key), Some(held)) = (holdings.key, holdings.held) else {
        let what = "there is no certificate that could be renewed";
        return Err(internal(what));
    };
    let mut session = Session::new(plan, &key, Purpose::Renew(&held.chain))?;
    let obtained = session.obtain(patience).await.map_err(|fault| {
        let what = format!(
            "the certificate of {} is valid until {} and was not renewed",
            plan.wishes.name,
            held.not_after()
        );
        EnrolError::NotRenewed(what, Box::new(fault))
    })?;
    install(plan, &obtained, Event::Renewed).await
}

/// Makes a key, in memory.
async fn make_key(plan: &Plan) -> Result<LeafKey> {
    let path = &plan.place.key;
    if plan.place.origin == KeyOrigin::Given {
        let what = format!(
            "--key {} is not there: give the file of a key that exists, or leave --key out and one is made",
            path.display()
        );
        return Err(EnrolError::Arguments(what, None));
    }
    let kind = plan.key;
    // RSA takes seconds.
    let generated = tokio::task::spawn_blocking(move || LeafKey::generate_kind(kind)).await;
    generated.map_err(internal)?.map_err(internal)
}

/// Writes a new key to disk. If another run was faster, its key is the one that counts.
fn save_key(plan: &Plan, key: LeafKey) -> Result<LeafKey> {
    let path = &plan.place.key;
    let text = key.to_pkcs8_pem().map_err(internal)?;
    let key = match plan.install(path, text.as_bytes(), Kind::Key)? {
        Written::Now => key,
        Written::Before => holdings::read_key(&plan.place)?.ok_or_else(|| {
            let what = format!("{} has gone again: run this once more", path.display());
            EnrolError::Installed(what, None)
        })?,
    };
    write_public_key(plan, &key)?;
    Ok(key)
}

fn write_public_key(plan: &Plan, key: &LeafKey) -> Result<()> {
    if let Some(warning) = files::exposure(&plan.place.key, Secret::Key) {
        plan.voice.warning(&warning);
    }
    if let Some(path) = &plan.place.public_key {
        let text = pem::encode("PUBLIC KEY", key.spki_der());
        plan.install(path, text.as_bytes(), Kind::Public)?;
    }
    Ok(())
}

/// Writes what belongs to a certificate, and the certificate last: where it is, the rest is.
async fn install(plan: &Plan, obtained: &Obtained, event: Event) -> Result<Done> {
    let Obtained {
        chain,
        bundle,
        lists,
    } = obtained;
    let place = &plan.place;
    plan.install(&place.ca, bundle.text(), Kind::Public)?;
    if let Some(lists) = lists {
        install_lists(plan, lists)?;
    }
    plan.install(&place.certificate, chain.to_pem().as_bytes(), Kind::Public)?;
    plan.tell(&told(plan, chain, event))?;
    let Some(hook) = &plan.hook else {
        return Ok(Done::Whole);
    };
    let ran = hook.run(event, &plan.wishes.name, place, chain).await;
    Ok(match ran {
        Ok(()) => Done::Whole,
        Err(fault) => Done::WithoutHook(fault),
    })
}

fn install_lists(plan: &Plan, lists: &[Crl]) -> Result<()> {
    let text: String = lists.iter().map(Crl::to_pem).collect();
    let written = plan.install(&plan.place.crl, text.as_bytes(), Kind::Public);
    written.map(drop)
}

fn told(plan: &Plan, chain: &Chain, event: Event) -> String {
    let leaf = chain.leaf();
    format!(
        "{} is {}: certificate {} in {} is valid until {}",
        plan.wishes.name,
        event.word(),
        leaf.serial(),
        plan.place.certificate.display(),
        leaf.not_after()
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place here that reads the clock"
)]
fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    UnixTime(i64::try_from(seconds).unwrap_or(i64::MAX))
}
