//! How a new token is handed out: to standard output or to a file for its host, and to nobody else.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use countersign_api::MintedToken;
use countersign_keys::private_file;
use countersign_pki::Carrier;
use serde_json::json;
use zeroize::Zeroizing;

use super::order::Order;
use crate::cli::TokenFormat;
use crate::output;

/// Where new tokens go, and in which form.
#[derive(Debug)]
pub(super) struct Handout {
    pub(super) format: TokenFormat,
    /// Where a `csr_attributes.yaml` has the token.
    pub(super) carrier: Carrier,
    /// A directory with a file for each host; else standard output.
    pub(super) folder: Option<PathBuf>,
}

impl Handout {
    /// The file of a host, where there are files.
    pub(super) fn file(&self, order: &Order) -> Option<PathBuf> {
        let suffix = match self.format {
            TokenFormat::Bare => "token",
            TokenFormat::CsrAttributes | TokenFormat::Json | TokenFormat::Csv => "yaml",
        };
        let name = format!("{}.{suffix}", order.name);
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// Hands a token out. If this fails, nobody has it.
    pub(super) fn give(&self, order: &Order, minted: &MintedToken) -> Result<()> {
        let text = self.text(order, minted);
        match self.file(order) {
            Some(file) => Ok(private_file::write_new(&file, text.as_bytes())?),
            None => Ok(output::secret(&text)?),
        }
    }

    fn text(&self, order: &Order, minted: &MintedToken) -> Zeroizing<String> {
        let MintedToken {
            id,
            token,
            expires_at,
        } = minted;
        let token = token.0.as_str();
        let mut text = Zeroizing::new(String::with_capacity(CAPACITY));
        // Writing to a string cannot fail.
        let _infallible = match self.format {
            TokenFormat::Bare => writeln!(text, "{token}"),
            TokenFormat::CsrAttributes => write_attributes(&mut text, &self.carrier, order, minted),
            TokenFormat::Json => {
                let object = json!({"id": id, "token": token, "expires_at": expires_at, "certname": order.name});
                writeln!(text, "{object}")
            }
            TokenFormat::Csv => writeln!(text, "{},{id},{token},{expires_at}", order.name),
        };
        text
    }
}

/// A whole `csr_attributes.yaml`. The agent takes every value as text only if it is quoted.
fn write_attributes(
    text: &mut String,
    carrier: &Carrier,
    order: &Order,
    minted: &MintedToken,
) -> std::fmt::Result {
    let (id, until) = (&minted.id, &minted.expires_at);
    writeln!(
        text,
        "# Enrolment token {id} for {}, good until {until}.",
        order.name
    )?;
    writeln!(
        text,
        "# Keep this file at mode 0600, and remove it after enrolment."
    )?;
    let mut extensions: Vec<(String, &str)> = Vec::new();
    for (name, values) in order.extensions() {
        // Where a token leaves a choice, whoever uses it chooses.
        if let [value] = values.as_slice() {
            extensions.push((name.to_owned(), *value));
        }
    }
    match carrier {
        Carrier::PresharedKey => extensions.push((carrier.word(), &minted.token.0)),
        Carrier::ChallengePassword | Carrier::Attribute(_) => {
            let (oid, token) = (carrier.oid(), quoted(&minted.token.0));
            write!(text, "custom_attributes:\n  {oid}: {}\n", *token)?;
        }
    }
    if !extensions.is_empty() {
        writeln!(text, "extension_requests:")?;
    }
    for (name, value) in extensions {
        writeln!(text, "  {name}: {}", *quoted(value))?;
    }
    Ok(())
}

/// A text in double quotes: JSON's escapes are YAML's, too.
fn quoted(text: &str) -> Zeroizing<String> {
    Zeroizing::new(serde_json::Value::from(text).to_string())
}

/// Larger than any of the texts, so that none is copied about while it grows.
const CAPACITY: usize = 4096;

/// The columns of [`TokenFormat::Csv`].
pub(super) const HEADING: &str = "certname,id,token,expires_at";
