//! A small seeded generator (SplitMix64): the same seed gives the same operations on every machine.

/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole future is `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for part `part` of what `seed` decides, independent of all other parts.
    pub fn part(seed: u64, part: u64) -> Self {
        let mut mixed = Self(seed ^ part.wrapping_mul(0xa076_1d64_78bd_642f));
        mixed.next_u64();
        mixed
    }

    /// 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// An index into something of `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True once in `n` times; never for 0.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n.into()) == 0
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    /// A name of `len` letters and digits that starts with `prefix`, cut to `len`.
    pub fn name(&mut self, prefix: &str, len: usize) -> Vec<u8> {
        let mut out = prefix.as_bytes().to_vec();
        while out.len() < len {
            out.extend(self.pick(b"abcdefghijklmnopqrstuvwxyz0123456789"));
        }
        out.truncate(len);
        out
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.index(of.len()))
    }
}
