//! UUID and inode generations, derived from a seed.

use base::random::mix;

/// Pseudorandom numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub struct Random(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: [u8; 16]) -> Self {
        let [low, high] = halves(seed);
        Self(mix(low) ^ high.rotate_left(32))
    }

    /// The next number.
    pub fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(STEP);
        (mix(self.0) >> 32) as u32
    }
}

/// A UUID of version 4 that depends on every bit of the seed.
pub fn uuid(seed: [u8; 16]) -> [u8; 16] {
    let [low, high] = halves(seed);
    // The mixing of each half is reversible, so different seeds give different UUIDs (except the six fixed bits).
    let (low, high) = (mix(low.wrapping_add(STEP)), mix(high.wrapping_add(STEP.wrapping_mul(3))));
    let bits = u128::from(low) << 64 | u128::from(high);
    let version = 0x4u128 << 76 | 0x8u128 << 60;
    let fixed = 0xfu128 << 76 | 0xcu128 << 60;
    (bits & !fixed | version).to_be_bytes()
}

fn halves(seed: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(seed);
    [number as u64, (number >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_the_seed_are_used_and_the_version_is_4() {
        let seed = |low: u64, high: u64| (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
        let all = [seed(0, 0), seed(1, 0), seed(0, 1), seed(1, 1)];
        for (n, one) in all.iter().enumerate() {
            let id = uuid(*one);
            assert_eq!((id[6] >> 4, id[8] >> 6), (4, 2));
            assert!(all.iter().skip(n + 1).all(|other| uuid(*other) != id));
            assert!(
                all.iter().skip(n + 1).all(|o| Random::new(*o).next_u32() != Random::new(*one).next_u32())
            );
        }
    }
}
