//! The fuzz targets' checks on mutated specimens, a fixed number with a fixed seed.

use countersign_pki::{RevocationReason, RevokedEntry, Serial, UnixTime};
use countersign_testkit::{fuzz, keys, zoo};

use crate::authority::Issuer;

const ROUNDS: usize = 40_000; // a few seconds without optimisation; the fuzzer proper runs for hours

/// Marsaglia's xorshift: no random source, the same mutations in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }

    fn octet(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let Some(octet) = bytes.get(at).copied() else {
                return;
            };
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.octet(),
                2 => bytes[at] = octet.wrapping_add(1),
                3 => bytes.truncate(at),
                4 => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, self.octet()),
            }
        }
    }
}

fn storm(seeds: &[Vec<u8>], rounds: usize, target: fn(&[u8])) {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        target(seed);
    }
    for _ in 0..rounds {
        let mut bytes = seeds[chance.below(seeds.len())].clone();
        chance.mutate(&mut bytes);
        target(&bytes);
    }
}

#[test]
fn hostile_input_is_cheap_for_mutated_requests() {
    let seeds: Vec<Vec<u8>> = zoo::specimens()
        .iter()
        .filter_map(zoo::Specimen::to_der)
        .collect();
    storm(&seeds, ROUNDS, fuzz::csr);
}

#[test]
fn hostile_input_is_cheap_for_mutated_texts() {
    let seeds: Vec<Vec<u8>> = zoo::specimens().iter().map(zoo::Specimen::to_pem).collect();
    storm(&seeds, ROUNDS / 4, fuzz::pem);
}

#[test]
fn hostile_input_is_cheap_for_mutated_certificates_and_lists() {
    let serial = Serial::try_from(9).unwrap();
    let entry = RevokedEntry {
        serial,
        at: UnixTime(0),
        reason: RevocationReason::KeyCompromise,
    };
    let seeds: Vec<Vec<u8>> = [Issuer::new(keys::p256_a()), Issuer::new(keys::ed25519())]
        .iter()
        .flat_map(|issuer| {
            [
                issuer.certificate.der().to_vec(),
                issuer
                    .issue(serial, "a", keys::rsa2048_a().spki_der())
                    .der()
                    .to_vec(),
                issuer.revoke(3, &[entry, entry]).der().to_vec(),
            ]
        })
        .collect();
    storm(&seeds, ROUNDS, fuzz::certificate);
}

/// Everything that could grow is refused at its limit, before a signature is verified: the work that one
/// request can cause is bounded by constants, whatever it holds.
#[test]
fn hostile_input_is_cheap_beyond_every_limit() {
    use countersign_pki::{CheckedCsr, CsrFault, CsrLimits, oid};
    use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
    use countersign_testkit::keys;

    let limits = CsrLimits::STANDARD;
    let many = |count: usize, add: fn(CsrBuilder, usize) -> CsrBuilder| {
        (0..count).fold(CsrBuilder::new("web01"), add)
    };
    let cases: Vec<(&str, CsrBuilder)> = vec![
        (
            "alternative names",
            many(limits.max_alt_names + 1, |b, n| b.dns(&format!("n{n}"))),
        ),
        (
            "attributes",
            many(limits.max_attributes + 1, |b, n| {
                let kind = format!("1.3.6.1.4.1.55555.{n}").parse().unwrap();
                b.attribute(&kind, 12, b"x")
            }),
        ),
        (
            "name attributes",
            many(limits.max_name_attributes + 1, |b, _| b.organization("x")),
        ),
        (
            "extensions",
            many(limits.max_extensions + 1, |b, n| {
                b.extension(
                    &format!("1.3.6.1.4.1.34380.1.1.{}", n + 1).parse().unwrap(),
                    "x",
                )
            }),
        ),
        ("text", CsrBuilder::new(&"x".repeat(limits.max_text + 1))),
        (
            "octets",
            CsrBuilder::new("web01").extension(&oid::PP_PRESHARED_KEY, &"x".repeat(limits.max_der)),
        ),
    ];
    for (what, builder) in cases {
        // A wrong signature would be found by verification; the limit must be found first.
        let der = builder.flaw(SignatureFlaw::FlippedBit).sign(keys::p256_a());
        match CheckedCsr::check(&der, &limits) {
            Err(CsrFault::Signature(fault)) => panic!("{what}: verified first: {fault}"),
            Err(_) => {}
            Ok(_) => panic!("{what}: accepted"),
        }
    }
}

/// Whatever the limits: a request that is let in is read again when it comes back from a store.
#[test]
fn what_is_let_in_under_any_limits_can_be_read_back() {
    use countersign_pki::{AttributesField, CheckedCsr, CsrLimits};
    use countersign_testkit::csr::CsrBuilder;

    let boundless = CsrLimits {
        max_der: usize::MAX,
        max_pem: usize::MAX,
        max_attributes: usize::MAX,
        max_extensions: usize::MAX,
        max_alt_names: usize::MAX,
        max_name_attributes: usize::MAX,
        max_text: usize::MAX,
        attributes: AttributesField::Optional,
    };
    let many = |count: usize| {
        let names = (0..count).map(|n| format!("n{n}.example.com"));
        names.fold(CsrBuilder::new("web01"), |csr, name| csr.dns(&name))
    };
    let with_octets =
        |count: usize| CsrBuilder::new("web01").challenge_password(&"x".repeat(count));
    for (csr, is_let_in) in [
        (with_octets(32_000), true),
        (with_octets(33_000), true),
        (with_octets(780_000), true),
        (with_octets(790_000), false),
        (many(256), true),
        (many(257), false),
        (CsrBuilder::new(&"x".repeat(2049)), false),
        (CsrBuilder::new("web01").without_attributes(), true),
    ] {
        let der = csr.sign(keys::p256_a());
        let checked = CheckedCsr::check(&der, &boundless);
        assert_eq!(checked.is_ok(), is_let_in, "{} octets", der.len());
        if checked.is_ok() {
            assert_eq!(CheckedCsr::trusted_from_store(&der), checked);
        }
    }
}
