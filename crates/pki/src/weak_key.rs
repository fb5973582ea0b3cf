//! Keys that are well formed and for which anybody could make signatures all the same.
//!
//! What can be seen at little cost is looked for: an RSA modulus that has a small factor, is the square of a number, or
//! was made by the generator of CVE-2017-15361 (ROCA); an EC key whose private half is one. That a modulus is prime, or
//! that its factors are near to each other, would cost more than many signatures to see and is not looked for.

use crate::key::{Curve, KeyFault, KeyType, ReadKey, rsa_modulus};

/// Refuses keys for which anybody could sign.
pub(crate) fn refuse(key: &ReadKey<'_>) -> Result<(), KeyFault> {
    match key.key_type {
        KeyType::Rsa { .. } => refuse_modulus(rsa_modulus(key.bits)?),
        KeyType::Ec(curve) => refuse_base_point(curve, key.bits),
        // Refused where it is read: the library itself would believe such a signature.
        KeyType::Ed25519 => Ok(()),
    }
}

fn refuse_modulus(modulus: &[u8]) -> Result<(), KeyFault> {
    let (mut is_square, mut is_roca) = (true, true);
    for &group in &GROUPS {
        // One long division for several primes.
        let rest = remainder(modulus, group.iter().map(|prime| prime.value).product());
        for prime in group {
            let residue = rest.checked_rem(prime.value).unwrap_or_default();
            if residue == 0 {
                let factor = prime.value;
                return Err(KeyFault::SmallFactor { factor });
            }
            is_square &= prime.squares.has(residue);
            is_roca &= prime.powers.has(residue);
        }
    }
    // Another number passes for a square once in 2^38 times, and for the other kind hardly ever.
    match (is_square, is_roca) {
        (true, _) => Err(KeyFault::SquareModulus),
        (false, true) => Err(KeyFault::Roca),
        (false, false) => Ok(()),
    }
}

/// The rest of a number, most significant octet first, by a divisor below 2^32.
fn remainder(number: &[u8], divisor: u64) -> u64 {
    let (head, words) = number.as_rchunks::<4>();
    let head = head
        .iter()
        .fold(0, |rest, octet| rest << 8 | u64::from(*octet));
    let rest_of = |number: u64| number.checked_rem(divisor).unwrap_or_default();
    words.iter().fold(rest_of(head), |rest, word| {
        rest_of(rest << 32 | u64::from(u32::from_be_bytes(*word)))
    })
}

/// The private half of the base point is one, and everybody knows that of its negative too.
fn refuse_base_point(curve: Curve, point: &[u8]) -> Result<(), KeyFault> {
    let x: &[u8] = match curve {
        Curve::P256 => &P256_X,
        Curve::P384 => &P384_X,
        Curve::P521 => &P521_X,
    };
    let coordinates = point.get(1..).unwrap_or_default();
    match coordinates.starts_with(x) {
        true => Err(KeyFault::BasePoint),
        false => Ok(()),
    }
}

/// A small prime, and what some numbers leave when they are divided by it.
struct Prime {
    value: u64,
    /// Squares.
    squares: Residues,
    /// Products of two primes of the ROCA generator, which leave powers of 65537 (Nemec et al., "The Return of
    /// Coppersmith's Attack", 2017).
    powers: Residues,
}

/// A bit for each number below 192.
#[derive(Clone, Copy)]
struct Residues([u64; 3]);

impl Residues {
    fn has(self, residue: u64) -> bool {
        let place = usize::try_from(residue / 64).unwrap_or(usize::MAX);
        let word = self.0.get(place).copied().unwrap_or_default();
        word >> (residue % 64) & 1 == 1
    }
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the compiler computes it: what goes wrong does not compile"
)]
const fn prime(value: u64) -> Prime {
    let (mut squares, mut powers) = ([0; 3], [0; 3]);
    let (mut root, mut power) = (1, 1);
    while root < value {
        let square = root * root % value;
        squares[(square / 64) as usize] |= 1 << (square % 64);
        powers[(power / 64) as usize] |= 1 << (power % 64);
        power = power * 65_537 % value;
        root += 1;
    }
    Prime {
        value,
        squares: Residues(squares),
        powers: Residues(powers),
    }
}

/// The odd primes up to 167, by which ROCA is told, in groups whose products are below 2^32.
static GROUPS: [&[Prime]; 8] = [
    &[
        prime(3),
        prime(5),
        prime(7),
        prime(11),
        prime(13),
        prime(17),
        prime(19),
        prime(23),
        prime(29),
    ],
    &[prime(31), prime(37), prime(41), prime(43), prime(47)],
    &[prime(53), prime(59), prime(61), prime(67), prime(71)],
    &[prime(73), prime(79), prime(83), prime(89), prime(97)],
    &[prime(101), prime(103), prime(107), prime(109)],
    &[prime(113), prime(127), prime(131), prime(137)],
    &[prime(139), prime(149), prime(151), prime(157)],
    &[prime(163), prime(167)],
];

/// The `x` of the base points (FIPS 186-4 D.1.2).
const P256_X: [u8; 32] = [
    0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2,
    0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96,
];
const P384_X: [u8; 48] = [
    0xaa, 0x87, 0xca, 0x22, 0xbe, 0x8b, 0x05, 0x37, 0x8e, 0xb1, 0xc7, 0x1e, 0xf3, 0x20, 0xad, 0x74,
    0x6e, 0x1d, 0x3b, 0x62, 0x8b, 0xa7, 0x9b, 0x98, 0x59, 0xf7, 0x41, 0xe0, 0x82, 0x54, 0x2a, 0x38,
    0x55, 0x02, 0xf2, 0x5d, 0xbf, 0x55, 0x29, 0x6c, 0x3a, 0x54, 0x5e, 0x38, 0x72, 0x76, 0x0a, 0xb7,
];
const P521_X: [u8; 66] = [
    0x00, 0xc6, 0x85, 0x8e, 0x06, 0xb7, 0x04, 0x04, 0xe9, 0xcd, 0x9e, 0x3e, 0xcb, 0x66, 0x23, 0x95,
    0xb4, 0x42, 0x9c, 0x64, 0x81, 0x39, 0x05, 0x3f, 0xb5, 0x21, 0xf8, 0x28, 0xaf, 0x60, 0x6b, 0x4d,
    0x3d, 0xba, 0xa1, 0x4b, 0x5e, 0x77, 0xef, 0xe7, 0x59, 0x28, 0xfe, 0x1d, 0xc1, 0x27, 0xa2, 0xff,
    0xa8, 0xde, 0x33, 0x48, 0xb3, 0xc1, 0x85, 0x6a, 0x42, 0x9b, 0xf9, 0x7e, 0x7e, 0x31, 0xc2, 0xe5,
    0xbd, 0x66,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn number(hex: &str) -> Vec<u8> {
        let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        pairs
            .iter()
            .map(|[high, low]| digit(*high) << 4 | digit(*low))
            .collect()
    }

    /// Both were made with another arithmetic than this one.
    #[test]
    fn moduli_that_anybody_can_take_apart_are_refused() {
        assert_eq!(refuse_modulus(&number(ROCA)), Err(KeyFault::Roca));
        assert_eq!(
            refuse_modulus(&number(SQUARE)),
            Err(KeyFault::SquareModulus)
        );
        let mut seen = 0;
        for prime in GROUPS.iter().flat_map(|group| group.iter()) {
            let factor = prime.value;
            let mut carry = 0;
            let mut multiple: Vec<u8> = Vec::new();
            for octet in number(ROCA).iter().rev() {
                carry += u64::from(*octet) * factor;
                multiple.push(u8::try_from(carry % 256).unwrap());
                carry /= 256;
            }
            multiple.push(u8::try_from(carry).unwrap());
            multiple.reverse();
            let refused = refuse_modulus(&multiple);
            assert_eq!(refused, Err(KeyFault::SmallFactor { factor }), "{factor}");
            seen += 1;
        }
        assert_eq!(seen, 38);
    }

    /// The coordinates were computed by another library, from the private keys one and its negative.
    #[test]
    fn base_points_and_their_negatives_are_refused() {
        for (curve, x, y, negative) in [
            (
                Curve::P256,
                "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
                "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
                "b01cbd1c01e58065711814b583f061e9d431cca994cea1313449bf97c840ae0a",
            ),
            (
                Curve::P384,
                "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7",
                "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
                "c9e821b569d9d390a26167406d6d23d6070be242d765eb831625ceec4a0f473ef59f4e30e2817e6285bce2846f15f1a0",
            ),
            (
                Curve::P521,
                "00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ff\
                 a8de3348b3c1856a429bf97e7e31c2e5bd66",
                "011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c97ee72995ef42640c550b9013fad\
                 0761353c7086a272c24088be94769fd16650",
                "00e7c6d6958765c43ffba375a04bd382e426670abbb6a864bb97e85042e8d8c199d368118d66a10bd9bf3aaf46fec052\
                 f89ecac38f795d8d3dbf77416b89602e99af",
            ),
        ] {
            let point = |x: &[u8], y: &str| [&[4], x, &number(y)].concat();
            let mut x = number(x);
            for y in [y, negative] {
                let refused = refuse_base_point(curve, &point(&x, y));
                assert_eq!(refused, Err(KeyFault::BasePoint), "{curve} {y}");
            }
            *x.last_mut().unwrap() ^= 1;
            let another = refuse_base_point(curve, &point(&x, y));
            assert_eq!(another, Ok(()), "{curve}");
        }
    }

    #[test]
    fn remainders() {
        for (number, divisor, rest) in [
            (&[][..], 7, 0),
            (&[8], 7, 1),
            (&[1, 0, 0, 0, 0], 7, 4),
            (&[0xff; 9], 4_294_967_291, 6399),
        ] {
            assert_eq!(remainder(number, divisor), rest, "{number:?} {divisor}");
        }
    }

    /// A number of 2048 bits that is a power of 65537 modulo every small prime.
    const ROCA: &str = "914a408c8b2e80330c8755ad5992890c3b7a38afdb8a387a3a23f5d1307ce07c71fe5e254e0f01ededdd682aafb07d0f\
         2da1c8854302a38a8955c094e2b4a44c872aa7fe3bae08f6faee5e4262dcdb3db6fa33547ee864a69482b27df4bacba6\
         7b257d991a3a6c55e5c3f24e9cbcc7405b0959ad13bd881bfc134ad509569d69243b25de342f47892981c0877cddfda5\
         7f1311ad59aa762a91f9eb9d6fc1d51bdf0151831de3919f8a83828dfb2e6bc79ce3cedb2b8ea59abef0b9899e7ededa\
         a178d452893a3f93231c092607bb2589138ccbb2d217aaff3cbc6696bbcd22d08dc49049ae7b991c3d5d6461cbe71688\
         3310f8aa2850c2979d5ea1534564480b";
    /// The square of a prime of 1024 bits.
    const SQUARE: &str = "fd6f6bdb93c3e23dc8dd061b336f17dc2cb5a2ed166eb98aafdfbdf3e2ed0744c5c97b8460a27394114fdeda403fbc9c\
         b0b1d26375616d97180179053f2c5697deb2a1601776c075f07b84bd8fac67cd544482b93ae722aa2eb61c005e29b1e6\
         4f755cf69249ea0fa2938142527617c744b098a691cc74c6eaa71a78f3f5a622a0141f1e06725a3f3d6e94e3c2428f68\
         ce0e2bb82ebc299ecb0d4eb983800d32d524d3081145089bc4612608f363721abd4bc0a4d3620ca1b2b27aaef34a1ae6\
         6bbd2102d8d437211227eeed7db3d73993ab5f905985560aa1cc8ce2eb93f0962968211cfd437b7a59a57ace00468300\
         4d69963cf92c2e3aadf160a45a3112a9";
}
