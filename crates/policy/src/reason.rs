//! Reasons in one word, for programs: each has a meaning that stays, and is what people filter by.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::node::CheckId;

macro_rules! reason_codes {
    (
        about_token { $($(#[$of_token:meta])* $token:ident = $token_word:literal,)+ }
        others { $($(#[$of_other:meta])* $other:ident = $other_word:literal,)+ }
    ) => {
        /// The reason for a decision, or for what a rule found, in one word.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "Cow<'static, str>")]
        pub enum ReasonCode {
            /// None: nothing settled it.
            #[default]
            None,
            $($(#[$of_token])* $token,)+
            $($(#[$of_other])* $other,)+
            /// A check of a rule about nodes did not hold.
            Check(CheckId),
            /// A word on record that this version does not know.
            Unknown(Box<str>),
        }

        impl ReasonCode {
            /// The word; empty if there is none.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::None => "",
                    $(Self::$token => $token_word,)+
                    $(Self::$other => $other_word,)+
                    Self::Check(check) => check.as_str(),
                    Self::Unknown(word) => word,
                }
            }

            /// Whether it says that a token was wrong. Who has none tries nothing.
            pub fn is_token_failure(&self) -> bool {
                self.is_about_token() && *self != Self::TokenMissing
            }

            /// Whether it is about an enrolment token.
            pub fn is_about_token(&self) -> bool {
                match self {
                    $(Self::$token)|+ => true,
                    Self::None | Self::Check(_) $(| Self::$other)+ => false,
                    Self::Unknown(word) => word.starts_with("token_"),
                }
            }
        }

        impl FromStr for ReasonCode {
            type Err = Infallible;

            fn from_str(word: &str) -> Result<Self, Infallible> {
                Ok(match word {
                    "" => Self::None,
                    $($token_word => Self::$token,)+
                    $($other_word => Self::$other,)+
                    word => match CheckId::parse(word) {
                        Some(check) => Self::Check(check),
                        None => Self::Unknown(word.into()),
                    },
                })
            }
        }

        impl From<ReasonCode> for Cow<'static, str> {
            fn from(code: ReasonCode) -> Self {
                Self::Borrowed(match code {
                    ReasonCode::None => "",
                    $(ReasonCode::$token => $token_word,)+
                    $(ReasonCode::$other => $other_word,)+
                    ReasonCode::Check(check) => check.as_str(),
                    ReasonCode::Unknown(word) => return Self::Owned(word.into()),
                })
            }
        }
    };
}

reason_codes! {
    about_token {
        /// There is none.
        TokenMissing = "token_missing",
        /// What came is none.
        TokenMalformed = "token_malformed",
        /// More than one came.
        TokenAmbiguous = "token_ambiguous",
        /// Nobody minted it, or its secret is wrong.
        TokenUnknown = "token_unknown",
        /// It was taken back.
        TokenRevoked = "token_revoked",
        /// It was misused too often.
        TokenLocked = "token_locked",
        /// Its uses are used up.
        TokenExhausted = "token_exhausted",
        /// It is for another name, or signer.
        TokenCertnameMismatch = "token_certname_mismatch",
        /// It is for another key, or another key has used it.
        TokenKeyMismatch = "token_key_mismatch",
        /// Its time has not come.
        TokenNotYetValid = "token_not_yet_valid",
        /// Its time is over.
        TokenExpired = "token_expired",
        /// The request comes from elsewhere.
        TokenSourceNotAllowed = "token_source_not_allowed",
        /// It does not permit an alternative name.
        TokenSanNotAllowed = "token_san_not_allowed",
        /// It does not permit an extension.
        TokenExtensionNotAllowed = "token_extension_not_allowed",
        /// The same key asked again, and got what it got.
        TokenRetry = "token_retry",
        /// The name has a certificate that the token may not replace.
        ExistingCertificate = "existing_certificate",
    }
    others {
        /// The token is good.
        Token = "token",
        /// The rule matches everything.
        Always = "always",
        /// An expression.
        Cel = "cel",
        /// An expression could not be evaluated.
        ExpressionError = "expression_error",
        /// The rule's condition does not hold.
        Skipped = "skipped",
        /// The name is on a list.
        Allowlist = "allowlist",
        /// The name is not on the list.
        NotListed = "not_listed",
        /// The list cannot be read.
        AllowlistUnreadable = "allowlist_unreadable",
        /// A build window is open.
        Window = "window",
        /// No build window is open.
        WindowClosed = "window_closed",
        /// The build window wants a token.
        WindowNeedsToken = "window_needs_token",
        /// A signing policy permits it.
        SigningPolicy = "signing_policy",
        /// No signing policy permits it.
        NoSigningPolicy = "no_signing_policy",
        /// The inventory expects it, or a Machine of the cluster has its names.
        Machine = "machine",
        /// A Machine is expected to become the node.
        ClientMachine = "client-machine",
        /// The node's egress addresses are what is new.
        Egress = "egress",
        /// The names of the node, and what they resolve to, are as expected.
        Dns = "dns",
        /// The inventory does not know the name.
        MachineUnknown = "machine_unknown",
        /// It has enrolled already.
        MachineEnrolled = "machine_enrolled",
        /// It is not expected at this time.
        MachineWindow = "machine_window",
        /// It shows another identifier than the inventory has.
        MachineId = "machine_id",
        /// It asks for a name or address that the inventory does not have.
        MachineAddress = "machine_address",
        /// A program approved.
        Executable = "executable",
        /// A program declined.
        ExecutableDeclined = "executable_declined",
        /// A program did not come to an end of its own.
        ExecutableFailed = "executable_failed",
        /// A program was not run.
        ExecutableBusy = "executable_busy",
        /// A webhook allowed.
        Webhook = "webhook",
        /// A webhook denied.
        WebhookDenied = "webhook_denied",
        /// A webhook leaves it to others.
        WebhookPending = "webhook_pending",
        /// A webhook gave no answer that counts.
        WebhookError = "webhook_error",
        /// The sender has the right that is asked for.
        SubjectAccess = "subject_access",
        /// The sender does not have it.
        AccessNotAllowed = "access_not_allowed",
        /// Whether the sender has it cannot be known.
        AccessUnavailable = "access_unavailable",
        /// The store does not answer.
        StoreUnavailable = "store_unavailable",
        /// A trial says that the evidence cannot be had.
        Unavailable = "unavailable",
        /// A name that only a person gives away.
        ReservedName = "reserved_name",
        /// A person decided.
        Person = "person",
        /// The authority decided for itself: its own certificates, and what it took over.
        Authority = "authority",
        /// It renews a certificate.
        Renewal = "renewal",
        /// Its signer could never sign it.
        Unsignable = "unsignable",
        /// Another key has the name.
        NameTaken = "name_taken",
        /// The rules do not approve, and say no more.
        NotApproved = "not_approved",
        /// The message cannot be read.
        CsrMalformed = "csr_malformed",
    }
}

impl ReasonCode {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Whether a token that was rejected for it was misused: its secret is known to somebody who should not.
    pub fn is_misuse(&self) -> bool {
        [
            Self::TokenCertnameMismatch,
            Self::TokenKeyMismatch,
            Self::TokenSanNotAllowed,
            Self::TokenExtensionNotAllowed,
            Self::TokenSourceNotAllowed,
        ]
        .contains(self)
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for ReasonCode {
    fn from(word: String) -> Self {
        let Ok(code) = word.parse();
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_went_also_those_of_other_versions() {
        for (word, is_about_token) in [
            ("", false),
            ("token", false),
            ("token_missing", true),
            ("existing_certificate", true),
            ("window_needs_token", false),
            ("not_listed", false),
            ("token_of_tomorrow", true),
            ("something_else", false),
            ("client-machine", false),
            ("X03", false),
        ] {
            let code = ReasonCode::from(word.to_owned());
            assert_eq!(code.as_str(), word);
            assert_eq!(code.is_about_token(), is_about_token, "{word}");
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(json, format!("{word:?}"));
            assert_eq!(serde_json::from_str::<ReasonCode>(&json).unwrap(), code);
        }
    }
}
