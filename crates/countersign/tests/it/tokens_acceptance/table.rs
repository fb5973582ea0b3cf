//! The cases of `tests/data/token-acceptance.yaml`.

use std::collections::BTreeMap;

use countersign_authority::TokenText;
use countersign_pki::{fingerprint_sha256, oid};
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys::{self, Key};
use serde::Deserialize;
use serde_json::Value;

use super::{TABLE, World};
use crate::commands::wait_until;
use crate::site::read_certificate;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    #[serde(default)]
    more: String,
    #[serde(default)]
    mint: BTreeMap<String, Value>,
    sends: Vec<Send>,
    #[serde(default)]
    leaves: BTreeMap<String, (String, u64, u64)>,
    #[serde(default)]
    events: BTreeMap<String, usize>,
    #[serde(default)]
    names_both_keys: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    name: String,
    key: String,
    token: Option<String>,
    #[serde(default, rename = "in")]
    carrier: String,
    #[serde(default)]
    sans: Vec<String>,
    #[serde(default)]
    broken: bool,
    after: Option<String>,
    status: u16,
    #[serde(default)]
    signed: bool,
    reason: Option<String>,
}

impl Send {
    fn request(&self, tokens: &BTreeMap<String, TokenText>) -> String {
        let mut csr = CsrBuilder::new(&self.name);
        if let Some(token) = &self.token {
            let text = tokens.get(token).map_or(token.as_str(), TokenText::expose);
            csr = match self.carrier.as_str() {
                "pp_preshared_key" => csr.extension(&oid::PP_PRESHARED_KEY, text),
                _ => csr.challenge_password(text),
            };
        }
        for san in &self.sans {
            csr = csr.dns(san);
        }
        if self.broken {
            csr = csr.flaw(SignatureFlaw::FlippedBit);
        }
        csr.sign_pem(key(&self.key))
    }
}

fn key(letter: &str) -> &'static Key {
    match letter {
        "a" => keys::p256_a(),
        "b" => keys::p256_b(),
        "c" => keys::p256_c(),
        other => panic!("there is no key {other}"),
    }
}

fn run(number: &str) {
    let cases: Vec<Case> = serde_saphyr::from_str(TABLE).unwrap();
    let case = cases.into_iter().find(|case| case.case == number).unwrap();
    let world = World::start(&case.more);
    let minted = case.mint.iter();
    let tokens: BTreeMap<String, TokenText> = minted
        .map(|(letter, order)| (letter.clone(), world.order(order)))
        .collect();
    let mut refusals = Vec::new();
    for (index, send) in case.sends.iter().enumerate() {
        let at = format!("{number}, request {}", index + 1);
        if let (Some(status), Some(token)) = (&send.after, &send.token) {
            let token = &tokens[token];
            wait_until(status, || world.standing(token).0 == *status);
        }
        let answer = world.put(&send.name, &send.request(&tokens));
        assert_eq!(answer.status, send.status, "{at}: {}", answer.text());
        if answer.status == 403 {
            let text = answer.text();
            let (sentence, id) = text.split_once(" (request ").unwrap();
            assert_eq!(sentence, "certificate request not authorised", "{at}");
            assert_eq!(id.len(), 37, "{at}: {text}");
            refusals.push(sentence.to_owned());
        }
        let certificate = world.governed.site.certificate(&send.name);
        let is_signed = certificate.status == 200 && {
            let certificate = read_certificate(certificate.body);
            let is_carried = certificate.extensions().iter();
            let is_carried = is_carried.clone().any(|e| e.oid == oid::PP_PRESHARED_KEY);
            assert!(!is_carried, "{at}: the token is in the certificate");
            certificate.spki_der() == key(&send.key).spki_der()
        };
        assert_eq!(is_signed, send.signed, "{at}");
        if let Some(reason) = &send.reason {
            let last = world.rejections(&send.name).pop();
            assert_eq!(last.as_ref(), Some(reason), "{at}");
        }
    }
    for (letter, left) in &case.leaves {
        assert_eq!(world.standing(&tokens[letter]), *left, "{number}: {letter}");
    }
    for (event, times) in &case.events {
        let events = world.events(event);
        assert_eq!(events.len(), *times, "{number}: {events:?}");
    }
    if case.names_both_keys {
        let audit = world.governed.well(&["audit", "export"]);
        for send in &case.sends {
            let print = fingerprint_sha256(key(&send.key).spki_der()).to_hex();
            assert!(audit.contains(&print), "{number}: {print}");
        }
    }
}

macro_rules! cases {
    ($($test:ident => $number:literal,)*) => {
        $(
            #[test]
            fn $test() {
                run($number);
            }
        )*

        #[test]
        fn every_case_of_the_table_is_run() {
            let cases: Vec<Case> = serde_saphyr::from_str(TABLE).unwrap();
            let numbers: Vec<_> = cases.iter().map(|case| case.case.as_str()).collect();
            assert_eq!(numbers, [$($number),*]);
        }
    };
}

cases! {
    a04_another_name => "A04",
    a05_expired => "A05",
    a08_a_broken_signature => "A08",
    a09_a_name_that_is_not_listed => "A09",
    a10_a_token_with_an_underscore => "A10",
    a12_in_a_preshared_key => "A12",
    a13_without_a_token => "A13",
    a23_a_stranger_waits => "A23",
    a26_for_all_below_a_domain => "A26",
}
