//! A small seeded random number generator (SplitMix64) that gives the same numbers on every machine.

/// A random number generator; not cryptographically secure.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates the generator of stream `stream` of a seed. Different streams of a seed are independent.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ stream.wrapping_mul(0xa076_1d64_78bd_642f));
        mixed.next_u64();
        mixed
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// Returns an index into a list of `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns true with probability 1/`n`; never for 0.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n.into()) == 0
    }

    /// Returns `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    /// Returns a name of `len` letters and digits that starts with `prefix`, truncated to `len`.
    pub fn name(&mut self, prefix: &str, len: usize) -> Vec<u8> {
        let mut out = prefix.as_bytes().to_vec();
        while out.len() < len {
            out.extend(self.pick(b"abcdefghijklmnopqrstuvwxyz0123456789"));
        }
        out.truncate(len);
        out
    }

    /// Returns a random item; `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }
}
