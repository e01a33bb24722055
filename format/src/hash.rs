//! The hash of names: the key of directory leaves and of attribute leaves. (Format document, "Variable Length Record
//! B+trees".)

use std::borrow::Cow;

use base::Ino;

use crate::geometry::Geometry;

/// The hash of a name: each byte exclusive-ored in, after a rotation by seven bits.
///
/// Four bytes at a time give the same as one by one, as rotations of an exclusive or distribute over it.
#[inline]
pub fn name(name: &[u8]) -> u32 {
    let (fours, rest) = name.as_chunks::<4>();
    let mut hash = 0u32;
    for [a, b, c, d] in fours {
        let four = u32::from(*a) << 21 ^ u32::from(*b) << 14 ^ u32::from(*c) << 7 ^ u32::from(*d);
        hash = hash.rotate_left(28) ^ four;
    }
    rest.iter().fold(hash, |hash, byte| hash.rotate_left(7) ^ u32::from(*byte))
}

/// The hash of a name on volumes that ignore the case of letters.
pub fn name_ascii_ci(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, byte| hash.rotate_left(7) ^ u32::from(fold_case(*byte)))
}

/// The lower case of a letter, as such volumes define it: ASCII and, despite the feature's name, the letters of ISO
/// 8859-1 above it, since the first implementation used the kernel's `tolower`.
pub const fn fold_case(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 0x20,
        other => other,
    }
}

/// A name as all names are that a directory of this volume takes for the same.
pub fn folded<'n>(name: &'n [u8], geometry: &Geometry) -> Cow<'n, [u8]> {
    if geometry.features.ascii_ci() {
        name.iter().map(|byte| fold_case(*byte)).collect()
    } else {
        Cow::Borrowed(name)
    }
}

/// The hash of a directory entry's name on this volume.
#[inline]
pub fn entry(bytes: &[u8], geometry: &Geometry) -> u32 {
    if geometry.features.ascii_ci() { name_ascii_ci(bytes) } else { name(bytes) }
}

/// Whether a directory of this volume takes two names for the same.
pub fn names_match(left: &[u8], right: &[u8], geometry: &Geometry) -> bool {
    if !geometry.features.ascii_ci() {
        return left == right;
    }
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| fold_case(*l) == fold_case(*r))
}

/// The hash of a parent pointer: that of the entry's name, mixed with both halves of the parent's inode number, so that
/// links of one name in many directories do not collide.
pub fn parent(bytes: &[u8], parent: Ino, geometry: &Geometry) -> u32 {
    let parent = parent.get();
    entry(bytes, geometry) ^ (parent >> 32) as u32 ^ parent as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the format document's examples.
    #[test]
    fn published_names_have_their_published_hashes() {
        assert_eq!(name(b"."), 0x2e);
        assert_eq!(name(b".."), 0x172e);
        assert_eq!(name(b"frame001845.tst"), 0xf3a2_6094);
        assert_eq!(name(b"attribute_267"), 0x3437_d1a8);
        assert_eq!(name(b""), 0);
    }

    #[test]
    fn folding_case_changes_letters_only() {
        assert_eq!(name_ascii_ci(b"ReadMe-01"), name(b"readme-01"));
        assert_eq!(fold_case(0xc9), 0xe9);
        assert_eq!(fold_case(0xd7), 0xd7, "the multiplication sign is no letter");
        assert_eq!(fold_case(b'['), b'[');
    }
}
