//! Randomness for serial numbers and identifiers.

use aws_lc_rs::rand;
use countersign_authority::{Entropy, EntropyFault};

/// The cryptography library's generator, seeded and reseeded from the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyFault> {
        rand::fill(bytes).map_err(|_| EntropyFault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_every_byte_and_differs() {
        let (mut a, mut b) = ([0_u8; 64], [0_u8; 64]);
        SystemEntropy.fill(&mut a).unwrap();
        SystemEntropy.fill(&mut b).unwrap();
        assert_ne!(a, b);
        // 16 zero bytes at either end of 64 random ones: once in 2^127.
        assert!(a.first_chunk::<16>() != Some(&[0; 16]) && a.last_chunk::<16>() != Some(&[0; 16]));
        SystemEntropy.fill(&mut []).unwrap();
    }
}
