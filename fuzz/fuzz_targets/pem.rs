//! Armoured text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| countersign_testkit::fuzz::pem(data));
