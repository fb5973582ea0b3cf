//! Where an enrolment token travels in a request, and how its text is taken out.
//!
//! Two parsers that disagree about which password a request holds are an attack, so nothing is guessed: one place, one
//! attribute, one value, one primitive string of visible ASCII. What is unclear ends the search; it is never passed over
//! in favour of another place.

use std::fmt;

use zeroize::Zeroizing;

use crate::csr::CheckedCsr;
use crate::der::{self, tag};
use crate::extension::Extension;
use crate::oid::{self, Oid};
use crate::value;

/// One place in a request where an enrolment token may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// The PKCS#9 challengePassword attribute (RFC 2985 5.4.1).
    ChallengePassword,
    /// An attribute below Puppet's arc for private use.
    Attribute(Oid),
    /// Puppet's `pp_preshared_key`, which travels as a requested extension.
    PresharedKey,
}

impl Carrier {
    /// Reads the name of a place as a configuration writes it: a name or a dotted identifier.
    ///
    /// # Errors
    /// If there is no such place, or one that other things than secrets live in.
    pub fn parse(word: &str) -> Result<Self, CarrierFault> {
        if word == CHALLENGE_PASSWORD_WORD {
            return Ok(Carrier::ChallengePassword);
        }
        let oid = oid::registered_oid(word)
            .or_else(|| Oid::parse(word).ok())
            .ok_or_else(|| CarrierFault::Unknown { word: word.into() })?;
        match oid {
            oid::CHALLENGE_PASSWORD => Ok(Carrier::ChallengePassword),
            oid::PP_PRESHARED_KEY => Ok(Carrier::PresharedKey),
            private if private.is_under(&oid::PP_PRIV) => Ok(Carrier::Attribute(private)),
            _ => Err(CarrierFault::NotPrivate { word: word.into() }),
        }
    }

    /// The name that [`Carrier::parse`] reads.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Carrier::ChallengePassword => CHALLENGE_PASSWORD_WORD.to_owned(),
            Carrier::Attribute(oid) => {
                oid::registered_name(oid).map_or_else(|| oid.to_string(), str::to_owned)
            }
            Carrier::PresharedKey => PRESHARED_KEY_WORD.to_owned(),
        }
    }

    /// The type of the attribute or of the extension.
    #[must_use]
    pub fn oid(&self) -> Oid {
        match self {
            Carrier::ChallengePassword => oid::CHALLENGE_PASSWORD,
            Carrier::Attribute(oid) => *oid,
            Carrier::PresharedKey => oid::PP_PRESHARED_KEY,
        }
    }

    /// The encoded text in this place; nothing if the request does not have the place.
    fn find<'a>(&self, csr: &'a CheckedCsr) -> Result<Option<Encoded<'a>>, CarriedFault> {
        match self {
            Carrier::PresharedKey => Ok(csr
                .extension(&oid::PP_PRESHARED_KEY)
                .map(Encoded::extension)),
            Carrier::ChallengePassword | Carrier::Attribute(_) => {
                let wanted = self.oid();
                let mut attributes = csr.attributes().iter().filter(|a| a.oid == wanted);
                let Some(attribute) = attributes.next() else {
                    return Ok(None);
                };
                if attributes.next().is_some() {
                    return Err(CarriedFault::Ambiguous {
                        detail: "its attribute occurs more than once",
                    });
                }
                match attribute.values.as_slice() {
                    [value] => Ok(Some(Encoded {
                        tag: value.tag(),
                        content: value.content(),
                    })),
                    _ => Err(CarriedFault::Ambiguous {
                        detail: "its attribute does not have exactly one value",
                    }),
                }
            }
        }
    }
}

/// Why a word names no place for tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarrierFault {
    /// Neither a name that is known nor an object identifier.
    #[error(
        "{word:?} names no place for a token: use challengePassword, pp_preshared_key or an object identifier below \
         {PRIVATE_ARC}"
    )]
    Unknown {
        /// What was written.
        word: String,
    },
    /// An attribute or extension that has another meaning.
    #[error(
        "{word:?} is not for tokens: besides challengePassword and pp_preshared_key only private attributes are, with \
         an object identifier below {PRIVATE_ARC}"
    )]
    NotPrivate {
        /// What was written.
        word: String,
    },
}

/// Text that a request carries and nobody else may see: erased when dropped, shown by nothing, compared by nobody but
/// those who take it out by [`CarriedText::expose`].
pub struct CarriedText(Zeroizing<String>);

impl CarriedText {
    /// The text: between 1 and 4096 characters of visible ASCII.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for CarriedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CarriedText(..)")
    }
}

/// Why the text that a request carries cannot be told. Nothing of its content is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarriedFault {
    /// There is more than one candidate.
    #[error("enrolment token is ambiguous: {detail}")]
    Ambiguous {
        /// In which way.
        detail: &'static str,
    },
    /// What is there is no text, or no text that could be a token.
    #[error("enrolment token is malformed: {detail}")]
    Malformed {
        /// In which way.
        detail: &'static str,
    },
}

/// The text that the request has in one of these places. Nothing if it has none of them, or an empty one.
///
/// # Errors
/// If more than one place is filled or one of them more than once, or if what stands there is not a primitive string of 1
/// to 4096 visible ASCII characters.
pub fn carried(
    csr: &CheckedCsr,
    carriers: &[Carrier],
) -> Result<Option<CarriedText>, CarriedFault> {
    let mut found = None;
    for (i, carrier) in carriers.iter().enumerate() {
        // A configuration may name a place twice, by its name and by its number.
        if carriers.iter().take(i).any(|earlier| earlier == carrier) {
            continue;
        }
        let Some(encoded) = carrier.find(csr)? else {
            continue;
        };
        if found.replace(encoded).is_some() {
            return Err(CarriedFault::Ambiguous {
                detail: "more than one place in the request may hold it",
            });
        }
    }
    found.map_or(Ok(None), |encoded| encoded.text())
}

/// A string by its identifier octet and content.
struct Encoded<'a> {
    tag: u8,
    content: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// Agents put one DER string into the extension; very old ones the bare text, which is then read like IA5String.
    fn extension(extension: &'a Extension) -> Self {
        match der::single_any(&extension.value) {
            Ok(tlv) => Encoded {
                tag: tlv.tag,
                content: tlv.content,
            },
            Err(_) => Encoded {
                tag: tag::IA5_STRING,
                content: &extension.value,
            },
        }
    }

    /// Wider than PrintableString, because agents do not check its alphabet, and narrower than Unicode: no blanks, no
    /// controls, nothing that could be normalised in two ways.
    fn text(&self) -> Result<Option<CarriedText>, CarriedFault> {
        let malformed = |detail| CarriedFault::Malformed { detail };
        let width = value::unit_width(self.tag)
            .ok_or_else(|| malformed("its value is not a primitive string"))?;
        let units = self.content.chunks_exact(width);
        if !units.remainder().is_empty() {
            return Err(malformed("its last character is cut off"));
        }
        if units.len() == 0 {
            return Ok(None);
        }
        if units.len() > MAX_CHARACTERS {
            return Err(malformed("it has more than 4096 characters"));
        }
        // Room for all of it from the start: a string that grows would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(units.len()));
        for unit in units {
            match unit.split_last() {
                Some((character @ 0x21..=0x7e, zeros)) if zeros.iter().all(|b| *b == 0) => {
                    text.push(char::from(*character));
                }
                _ => return Err(malformed("it has characters other than visible ASCII")),
            }
        }
        Ok(Some(CarriedText(text)))
    }
}

const CHALLENGE_PASSWORD_WORD: &str = "challengePassword";
const PRESHARED_KEY_WORD: &str = "pp_preshared_key";
const PRIVATE_ARC: Oid = oid::PP_PRIV;

/// Several times the longest token of any known issuer of them: a signed one made with an RSA 4096 key has some 800.
const MAX_CHARACTERS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("challengePassword", "challengePassword", "1.2.840.113549.1.9.7")]
    #[case("1.2.840.113549.1.9.7", "challengePassword", "1.2.840.113549.1.9.7")]
    #[case("pp_preshared_key", "pp_preshared_key", "1.3.6.1.4.1.34380.1.1.4")]
    #[case(
        "1.3.6.1.4.1.34380.1.1.4",
        "pp_preshared_key",
        "1.3.6.1.4.1.34380.1.1.4"
    )]
    #[case(
        "1.3.6.1.4.1.34380.1.2.7",
        "1.3.6.1.4.1.34380.1.2.7",
        "1.3.6.1.4.1.34380.1.2.7"
    )]
    #[case(
        "1.3.6.1.4.1.34380.1.2.7.1",
        "1.3.6.1.4.1.34380.1.2.7.1",
        "1.3.6.1.4.1.34380.1.2.7.1"
    )]
    fn words_go_both_ways(#[case] written: &str, #[case] word: &str, #[case] oid: &str) {
        let carrier = Carrier::parse(written).unwrap();
        assert_eq!(
            (carrier.word(), carrier.oid().to_string()),
            (word.into(), oid.into())
        );
        assert_eq!(Carrier::parse(&carrier.word()), Ok(carrier));
    }

    #[rstest]
    #[case::empty("", "names no place")]
    #[case::case_matters("challengepassword", "names no place")]
    #[case::blank(" challengePassword", "names no place")]
    #[case::no_identifier("1.2.x", "names no place")]
    #[case::extension_in_certificates("pp_instance_id", "is not for tokens")]
    #[case::right("1.3.6.1.4.1.34380.1.3.39", "is not for tokens")]
    #[case::the_arc_itself("1.3.6.1.4.1.34380.1.2", "is not for tokens")]
    #[case::numeric_prefix("1.3.6.1.4.1.34380.1.20.1", "is not for tokens")]
    #[case::extension_request("1.2.840.113549.1.9.14", "is not for tokens")]
    fn refuses_other_words(#[case] word: &str, #[case] part: &str) {
        let sentence = Carrier::parse(word).unwrap_err().to_string();
        assert!(
            sentence.starts_with(&format!("{word:?} {part}")),
            "{sentence}"
        );
        assert!(
            sentence.contains("below 1.3.6.1.4.1.34380.1.2"),
            "{sentence}"
        );
    }
}
