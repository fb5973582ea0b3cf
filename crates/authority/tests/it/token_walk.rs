//! Random choices that a seed repeats.

/// A generator with 64 bits of state (Knuth's MMIX constants, the high bits used).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Less than `bound`.
    pub(crate) fn up_to(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap() % bound
    }

    pub(crate) fn choice<T: Copy>(&mut self, of: &[T]) -> T {
        *of.get(self.up_to(of.len())).unwrap()
    }
}
