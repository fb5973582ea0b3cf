//! Certificates and revocation lists in DER.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| countersign_testkit::fuzz::certificate(data));
