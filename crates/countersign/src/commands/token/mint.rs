//! Minting one token, so that none is ever minted unseen.

use anyhow::{Context as _, Result, anyhow, bail};
use countersign_api::{ErrorBody, MintedToken, TokenId};
use countersign_authority::TokenText;
use http::{Method, StatusCode};
use serde_json::json;

use super::super::csr::accepted;
use super::super::machine::place;
use super::order::Order;
use crate::client::{Client, Reply};

/// Mints a token and hands it out. One that cannot be handed out is revoked.
pub(super) async fn hand_out(
    client: &mut Client,
    order: &Order,
    give: impl FnOnce(&MintedToken) -> Result<()>,
) -> Result<MintedToken> {
    let minted = mint(client, order).await?;
    if let Err(error) = give(&minted) {
        let id = &minted.id;
        return match revoke(client, id).await {
            Ok(()) => Err(error.context(format!("token {id} was revoked, because nobody got it"))),
            Err(_) => Err(error.context(format!(
                "nobody got token {id}, and it is still good: revoke it with `countersign token revoke {id}`"
            ))),
        };
    }
    Ok(minted)
}

/// Mints a token. An order whose answer is lost is sent again under the same key; if it was carried out, what nobody has
/// seen is revoked, and another one minted.
async fn mint(client: &mut Client, order: &Order) -> Result<MintedToken> {
    let body = json!(order.body());
    let mut key = random_key()?;
    let mut was_lost = false;
    loop {
        match client.order(TOKENS, &key, &body).await {
            Ok(reply) => match carried_out_before(&reply) {
                Some(id) if was_lost => {
                    revoke(client, &id).await?;
                    (key, was_lost) = (random_key()?, false);
                }
                Some(_) | None => return read(&accepted(reply)?),
            },
            Err(error) if error.may_have_arrived() && !was_lost => was_lost = true,
            Err(error) if error.may_have_arrived() || was_lost => {
                return Err(anyhow::Error::from(error).context(format!(
                    "it is not known whether a token was minted; `countersign token list --certname {}` shows it, and `countersign token revoke` takes it back",
                    order.name
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes back a token that nobody has.
async fn revoke(client: &mut Client, id: &TokenId) -> Result<()> {
    let path = place("tokens", &id.0);
    let reply = client.call(Method::DELETE, &path, None).await?;
    accepted(reply).map(drop)
}

fn read(reply: &Reply) -> Result<MintedToken> {
    let minted: MintedToken = reply.json()?;
    match TokenText::parse(&minted.token.0) {
        Ok(read) if read.id().as_str() == minted.id.0 => Ok(minted),
        Ok(_) | Err(_) => bail!("the server's answer holds no token; is it of another version?"),
    }
}

/// The token that came of the same order before.
fn carried_out_before(reply: &Reply) -> Option<TokenId> {
    if reply.status != StatusCode::CONFLICT {
        return None;
    }
    let told: ErrorBody = serde_json::from_slice(&reply.body).ok()?;
    told.id
}

fn random_key() -> Result<String> {
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| anyhow!("no random numbers"))
        .context("the order cannot be given a key")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

const TOKENS: &str = "/enrol/v1/tokens";
