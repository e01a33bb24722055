//! Names that stress directories: short, long, of arbitrary bytes, and many with the same hash.

use crate::operation::Name;
use crate::rng::Rng;

/// Weights of the styles of names that a generator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameStyles {
    /// A few letters.
    pub short: u32,
    /// 100 to 255 bytes, so that blocks fill soon.
    pub long: u32,
    /// Any bytes except `/` and NUL.
    pub bytes: u32,
    /// Names with the same hash.
    pub same_hash: u32,
}

impl Default for NameStyles {
    fn default() -> Self {
        Self { short: 6, long: 2, bytes: 1, same_hash: 1 }
    }
}

impl NameStyles {
    /// Returns a random name, sometimes one that was returned before.
    pub fn name(&self, rng: &mut Rng) -> Name {
        let total = self.short + self.long + self.bytes + self.same_hash;
        let drawn = rng.below(total.into()) as u32;
        if drawn < self.short {
            let number = rng.below(100_000);
            return format!("f{number}").into_bytes();
        }
        if drawn < self.short + self.long {
            let length = 100 + rng.index(156);
            return letters(rng, length);
        }
        if drawn < self.short + self.long + self.bytes {
            let length = 1 + rng.index(24);
            return any_bytes(rng, length);
        }
        same_hash(rng.below(SAME_HASH_NAMES))
    }
}

fn letters(rng: &mut Rng, length: usize) -> Name {
    (0..length).map(|_| b'a' + rng.below(26) as u8).collect()
}

fn any_bytes(rng: &mut Rng, length: usize) -> Name {
    let mut name: Name = (0..length).map(|_| rng.next_u64() as u8).collect();
    for byte in &mut name {
        if matches!(*byte, 0 | b'/') {
            *byte = b'_';
        }
    }
    // `.` and `..` cannot be created.
    if name.iter().all(|byte| *byte == b'.') { b"dots".to_vec() } else { name }
}

/// Number of names that [`same_hash`] can make.
pub const SAME_HASH_NAMES: u64 = 1 << (GROUPS * 3);
/// Groups of four bytes in such a name.
const GROUPS: usize = 6;

/// Returns the `n`th of many names with the same hash.
///
/// A byte enters the hash seven bits to the left of the next byte: its lowest bit and the highest bit of the next byte
/// fall on the same bit of the hash, so inverting both leaves the hash unchanged. Each group of four bytes has three
/// such pairs.
pub fn same_hash(n: u64) -> Name {
    let mut name = Name::with_capacity(GROUPS * 4);
    for group in 0..GROUPS {
        let mut bytes = *b"bdfh";
        for pair in 0..3 {
            if n >> (group * 3 + pair) & 1 == 1 {
                bytes[pair] ^= 0x01;
                bytes[pair + 1] ^= 0x80;
            }
        }
        name.extend_from_slice(&bytes);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn same_hash_makes_different_names_with_one_hash() {
        let names: BTreeSet<Name> = (0..5000).map(same_hash).collect();
        assert_eq!(names.len(), 5000);
        let hashes: BTreeSet<u32> = names.iter().map(|name| format::hash::name(name)).collect();
        assert_eq!(hashes.len(), 1);
        assert!(names.iter().flatten().all(|byte| !matches!(byte, 0 | b'/')));
    }

    #[test]
    fn every_style_makes_valid_names() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let name = NameStyles::default().name(&mut rng);
            assert!((1..=255).contains(&name.len()) && name != b"." && name != b"..");
            assert!(!name.contains(&0) && !name.contains(&b'/'));
        }
    }
}
