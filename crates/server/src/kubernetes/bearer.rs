//! Enrolment tokens and bootstrap tokens as bearer tokens: who shows one is that token, for as long as it can enrol somebody,
//! or until it ends.
//!
//! The text is taken out of the request before anything else sees it, and is kept for the length of one call.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use countersign_authority::{BearerToken, BootstrapText, BootstrapUser, CarriedToken, TokenText};
use countersign_kapi::UserInfo;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tracing::debug;
use zeroize::Zeroizing;

use super::KubernetesDoor;
use super::answer::Refusal;
use super::identity::{AUTHENTICATED, Credential};
use crate::limits::RequestLimits;

/// What somebody shows as a bearer token, whatever it is.
#[derive(Clone)]
pub(super) struct Bearer(Arc<Zeroizing<String>>);

impl Bearer {
    /// Takes the token out of the head of a request. Like API servers, it reads the word between the first blanks.
    pub(super) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let value = headers.remove(AUTHORIZATION)?;
        let (scheme, rest) = value.to_str().ok()?.trim().split_once(' ')?;
        let token = rest.split(' ').next().unwrap_or_default();
        let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
        is_bearer.then(|| Self(Arc::new(Zeroizing::new(token.to_owned()))))
    }

    /// Who shows it; `None`: nobody who could be told apart. Which of its parts is wrong is told to nobody.
    pub(super) async fn user(
        &self,
        door: &KubernetesDoor,
        source: IpAddr,
        limits: Option<&RequestLimits>,
    ) -> Result<Option<(UserInfo, Credential)>, Refusal> {
        let (carried, now) = (self.carried(), door.authority.now());
        let admitted = limits.map_or(Ok(()), |limits| limits.admit_token(source, &carried, now));
        if carried == CarriedToken::Other {
            admitted?;
        }
        // Compared even where others have sent too many wrong ones under its public part: it is one look-up, and
        // whoever has the right one must not wait for them.
        let authority = &door.authority;
        let known = match &carried {
            CarriedToken::Bootstrap(_) => {
                let user = authority.tokens.bootstrap_user(&self.0).await?;
                user.map(|user| (of_bootstrap(&user), Credential::BootstrapToken))
            }
            CarriedToken::None | CarriedToken::Id(_) | CarriedToken::Other => {
                let token = authority.tokens.bearer(&self.0).await?;
                token.map(|token| (of_enrolment(&token), Credential::EnrolmentToken(token)))
            }
        };
        if known.is_none() {
            debug!(%source, "a bearer token does not count");
            if let Some(limits) = limits {
                admitted?;
                limits.token_failed(source, &carried, now);
            }
        }
        Ok(known)
    }

    /// What failures are counted under.
    fn carried(&self) -> CarriedToken {
        if let Some(token) = BootstrapText::parse(&self.0) {
            return CarriedToken::Bootstrap(token.id().clone());
        }
        match TokenText::parse(&self.0) {
            Ok(token) => CarriedToken::Id(token.id().clone()),
            Err(_) => CarriedToken::Other,
        }
    }
}

fn of_enrolment(token: &BearerToken) -> UserInfo {
    let id = token.id();
    UserInfo {
        username: format!("{BOOTSTRAP_USER}{id}"),
        uid: String::new(),
        groups: [BOOTSTRAPPERS, AUTHENTICATED].map(str::to_owned).to_vec(),
        extra: [(ENROLMENT_TOKEN.to_owned(), vec![id.to_string()])].into(),
    }
}

fn of_bootstrap(user: &BootstrapUser) -> UserInfo {
    let mut all = vec![BOOTSTRAPPERS.to_owned()];
    all.extend(user.groups().iter().cloned());
    all.push(AUTHENTICATED.to_owned());
    UserInfo {
        username: format!("{BOOTSTRAP_USER}{}", user.id()),
        uid: String::new(),
        groups: all,
        extra: Default::default(),
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer")
    }
}

/// Whether this is the name of a token: certificates of such a name are no identity.
pub(crate) fn is_token_name(username: &str) -> bool {
    username.starts_with(BOOTSTRAP_USER)
}

/// As bootstrap tokens are called in a cluster.
const BOOTSTRAP_USER: &str = "system:bootstrap:";
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// What groups of single tokens begin with.
pub(crate) const BOOTSTRAP_GROUPS: &str = "system:bootstrappers:";
/// Whoever reads an object learns from it which token its sender showed; nothing is decided by it.
const ENROLMENT_TOKEN: &str = "countersign.dev/enrolment-token";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_word_behind_bearer_leaves_the_head() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER abc def", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("abc", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            let taken = Bearer::take(&mut headers);
            let text = taken.as_ref().map(|bearer| bearer.0.as_str());
            assert_eq!(text, expected, "{value:?}");
            assert!(headers.is_empty(), "{value:?}");
            if let Some(bearer) = taken {
                assert_eq!(format!("{bearer:?}"), "Bearer");
            }
        }
    }
}
