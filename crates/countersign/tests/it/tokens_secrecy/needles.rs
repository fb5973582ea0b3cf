//! Looks for secrets in bytes, however they are written there.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Secrets to look for, in every encoding.
#[derive(Default)]
pub(super) struct Needles {
    /// By their first octets.
    by_start: HashMap<[u8; START], Vec<Needle>>,
}

struct Needle {
    bytes: Vec<u8>,
    /// Whose secret, and how it is written.
    what: String,
}

impl Needles {
    /// The secret of a token, as text and as the octets it stands for.
    pub(super) fn add_token(&mut self, token: &str) {
        let mut parts = token.split('.').skip(1);
        let (id, secret) = (parts.next().unwrap(), parts.next().unwrap());
        self.add(&format!("token {id}"), secret.as_bytes());
        self.add(&format!("octets of token {id}"), &octets(secret));
    }

    /// Any secret. It is looked for in pieces, because a page, a line or a limit may cut it.
    pub(super) fn add(&mut self, whose: &str, secret: &[u8]) {
        let last = secret.len() - PIECE;
        for from in [0, last / 2, last] {
            let piece = &secret[from..from + PIECE];
            for (how, bytes) in written(piece) {
                let start = bytes[..START].try_into().unwrap();
                let what = format!("{whose}, {how}");
                let needles = self.by_start.entry(start).or_default();
                needles.push(Needle { bytes, what });
            }
        }
    }

    /// What is found, and what stands before it.
    pub(super) fn find(&self, hay: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        for (at, window) in hay.windows(START).enumerate() {
            let Some(needles) = self.by_start.get(window) else {
                continue;
            };
            let here = needles.iter().filter(|n| hay[at..].starts_with(&n.bytes));
            let before = hay[at.saturating_sub(CONTEXT)..at].escape_ascii();
            found.extend(here.map(|needle| format!("{} after {before}", needle.what)));
        }
        found
    }
}

/// A piece of a secret in everything that a program may make of it.
fn written(piece: &[u8]) -> Vec<(String, Vec<u8>)> {
    let wide = |width: usize, at: usize| -> Vec<u8> {
        let character = |octet: &u8| {
            let mut character = vec![0; width];
            character[at] = *octet;
            character
        };
        piece.iter().flat_map(character).collect()
    };
    let hex = |octet: &u8| format!("{octet:02x}");
    let hex: String = piece.iter().map(hex).collect();
    let listed: Vec<String> = piece.iter().map(u8::to_string).collect();
    let mut all = vec![
        ("as it is".to_owned(), piece.to_vec()),
        ("in capitals".to_owned(), piece.to_ascii_uppercase()),
        ("in UTF-16BE".to_owned(), wide(2, 1)),
        ("in UTF-16LE".to_owned(), wide(2, 0)),
        ("in UTF-32BE".to_owned(), wide(4, 3)),
        ("in hexadecimal".to_owned(), hex.clone().into_bytes()),
        ("in HEXADECIMAL".to_owned(), hex.to_uppercase().into_bytes()),
        (
            "as Debug shows octets".to_owned(),
            listed.join(", ").into_bytes(),
        ),
    ];
    for once in base64(piece) {
        for twice in base64(&once) {
            all.push(("in base64, twice".to_owned(), twice));
        }
        all.push(("in base64".to_owned(), once));
    }
    all
}

/// What base64 makes of these octets wherever they stand: three ways, less what depends on their neighbours.
fn base64(octets: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for before in 0..3_usize {
        let padded = [&vec![0; before][..], octets].concat();
        let (from, until) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&padded).into_bytes()[from..until].to_vec();
            if !all.contains(&text) {
                all.push(text);
            }
        }
    }
    all
}

/// The octets of a text in base32 (RFC 4648 section 6, small letters).
pub(crate) fn octets(text: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    let (mut held, mut bits) = (0_u32, 0);
    for letter in text.bytes() {
        let five = match letter {
            b'a'..=b'z' => letter - b'a',
            _ => letter - b'2' + 26,
        };
        held = (held << 5) | u32::from(five);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            octets.push(u8::try_from(held >> bits).unwrap());
            held &= (1 << bits) - 1;
        }
    }
    octets
}

/// So many octets of a secret are its own: nothing else has them by chance.
const PIECE: usize = 16;
const START: usize = 8;
const CONTEXT: usize = 60;

#[test]
fn a_secret_is_found_in_whatever_form_it_was_planted() {
    let token = countersign_testkit::csr::TOKEN;
    let secret = token.split('.').nth(2).unwrap();
    let mut needles = Needles::default();
    needles.add_token(token);
    let csr = countersign_testkit::csr::CsrBuilder::new("web01")
        .challenge_password(token)
        .sign_pem(countersign_testkit::keys::p256_a());
    let utf16: Vec<u8> = secret.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    for (what, planted) in [
        ("text", secret.into()),
        ("a part", secret[30..].into()),
        ("capitals", secret.to_uppercase().into_bytes()),
        ("UTF-16", utf16),
        ("hexadecimal", hex_of(secret.as_bytes()).into_bytes()),
        ("octets", octets(secret)),
        ("Debug", format!("{:?}", secret.as_bytes()).into_bytes()),
        ("a request", csr.clone().into_bytes()),
        (
            "a request in an object",
            STANDARD_NO_PAD.encode(&csr).into_bytes(),
        ),
    ] {
        let file = folder.path().join("planted");
        std::fs::write(&file, [b"before ", &planted[..], b" after"].concat()).unwrap();
        let found = std::fs::read(&file).unwrap();
        assert!(!needles.find(&found).is_empty(), "{what}");
    }
    let public = token.split('.').nth(1).unwrap();
    assert_eq!(needles.find(public.as_bytes()), Vec::<String>::new());
}

fn hex_of(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
