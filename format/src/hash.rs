//! Name hashes: the key of directory and attribute leaves. (Format document, "Variable Length Record B+trees".)

use std::borrow::Cow;

use base::Ino;

use crate::geometry::Geometry;

/// The hash of a name: rotate left by seven bits and XOR each byte.
///
/// Processing four bytes at a time gives the same result, because rotation distributes over XOR.
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

/// The hash of a name on case-insensitive volumes.
pub fn name_ascii_ci(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, byte| hash.rotate_left(7) ^ u32::from(fold_case(*byte)))
}

/// The lower case of a letter on case-insensitive volumes: ASCII and, despite the feature's name, ISO 8859-1, because
/// the first implementation used the kernel's `tolower`.
pub const fn fold_case(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 0x20,
        other => other,
    }
}

/// The canonical form of a name: two names are equal in a directory of this volume if their canonical forms are.
pub fn folded<'n>(name: &'n [u8], geometry: &Geometry) -> Cow<'n, [u8]> {
    if geometry.features.ascii_ci() {
        name.iter().map(|byte| fold_case(*byte)).collect()
    } else {
        Cow::Borrowed(name)
    }
}

/// The hash of the name of a directory entry on this volume.
#[inline]
pub fn entry(bytes: &[u8], geometry: &Geometry) -> u32 {
    if geometry.features.ascii_ci() { name_ascii_ci(bytes) } else { name(bytes) }
}

/// Whether two names are equal in a directory of this volume.
pub fn names_match(left: &[u8], right: &[u8], geometry: &Geometry) -> bool {
    if !geometry.features.ascii_ci() {
        return left == right;
    }
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| fold_case(*l) == fold_case(*r))
}

/// The hash of a parent pointer: the hash of the entry's name XOR both halves of the parent's inode number, so that
/// equal names in many directories do not collide.
pub fn parent(bytes: &[u8], parent: Ino, geometry: &Geometry) -> u32 {
    let parent = parent.get();
    entry(bytes, geometry) ^ (parent >> 32) as u32 ^ parent as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the format document.
    #[test]
    fn hashes_match_the_format_document() {
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
