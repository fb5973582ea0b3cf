//! Every animal of the zoo meets its fate.

use countersign_pki::{CheckedCsr, CsrLimits};
use countersign_testkit::zoo::{Fate, Input, specimens};

#[test]
fn every_specimen_meets_its_fate() {
    let mut surprises = Vec::new();
    for specimen in specimens() {
        let read = match &specimen.input {
            Input::Der(der) => CheckedCsr::check(der, &CsrLimits::STANDARD),
            Input::Pem(text) => CheckedCsr::from_pem(text, &CsrLimits::STANDARD),
        };
        match (&read, specimen.fate) {
            (Ok(_), Fate::Accept) => {}
            (Err(fault), Fate::Refuse(part)) if fault.to_string().contains(part) => {}
            (Ok(_), Fate::Refuse(part)) => {
                surprises.push(format!("{}: accepted, not {part:?}", specimen.name))
            }
            (Err(fault), fate) => {
                surprises.push(format!("{}: {fault}, not {fate:?}", specimen.name))
            }
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn specimens_have_names_of_their_own() {
    let mut names: Vec<&str> = specimens().iter().map(|s| s.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count >= 150, "the zoo shrank to {count}");
}

#[test]
fn der_and_armour_agree() {
    for specimen in specimens() {
        let Input::Der(der) = &specimen.input else {
            continue;
        };
        let plain = CheckedCsr::check(der, &CsrLimits::STANDARD);
        let armoured = CheckedCsr::from_pem(&specimen.to_pem(), &CsrLimits::STANDARD);
        assert_eq!(plain, armoured, "{}", specimen.name);
    }
}
