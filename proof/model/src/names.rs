//! Names that are hard on directories: short, long, of any bytes, and many of one hash.

use crate::operation::Name;
use crate::rng::Rng;

/// Which names a generator makes, each with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Styles {
    /// A few letters.
    pub short: u32,
    /// 100 to 255 bytes, so that blocks fill soon.
    pub long: u32,
    /// Any bytes but `/` and NUL.
    pub bytes: u32,
    /// All of one hash.
    pub equal: u32,
}

impl Default for Styles {
    fn default() -> Self {
        Self { short: 6, long: 2, bytes: 1, equal: 1 }
    }
}

impl Styles {
    /// A name; now and then one that was made before.
    pub fn name(&self, rng: &mut Rng) -> Name {
        let total = self.short + self.long + self.bytes + self.equal;
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
        equal_hash(rng.below(EQUAL_NAMES))
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
    // `.` and `..` are names that nobody can make.
    if name.iter().all(|byte| *byte == b'.') { b"dots".to_vec() } else { name }
}

/// How many names [`equal_hash`] can make.
pub const EQUAL_NAMES: u64 = 1 << (GROUPS * 3);
/// Groups of four bytes in such a name.
const GROUPS: usize = 6;

/// The n-th of many names with one hash.
///
/// A byte enters the hash seven bits to the left of the byte behind it: its lowest bit and the highest bit of the next
/// byte fall on the same bit of the hash, so that both can be inverted together without a trace. Each group of four
/// bytes has three such places.
pub fn equal_hash(n: u64) -> Name {
    let mut name = Name::with_capacity(GROUPS * 4);
    for group in 0..GROUPS {
        let mut bytes = *b"bdfh";
        for place in 0..3 {
            if n >> (group * 3 + place) & 1 == 1 {
                bytes[place] ^= 0x01;
                bytes[place + 1] ^= 0x80;
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
    fn names_of_one_hash_have_one_hash_and_differ() {
        let names: BTreeSet<Name> = (0..5000).map(equal_hash).collect();
        assert_eq!(names.len(), 5000);
        let hashes: BTreeSet<u32> = names.iter().map(|name| format::hash::name(name)).collect();
        assert_eq!(hashes.len(), 1);
        assert!(names.iter().flatten().all(|byte| !matches!(byte, 0 | b'/')));
    }

    #[test]
    fn every_style_makes_names_that_can_be_made() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let name = Styles::default().name(&mut rng);
            assert!((1..=255).contains(&name.len()) && name != b"." && name != b"..");
            assert!(!name.contains(&0) && !name.contains(&b'/'));
        }
    }
}
