//! Names of a path, read in words of eight bytes.
//!
//! One pass over a path finds the end of a name, its hash, and its first bytes as words, which are compared with those
//! of dentries.

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Words of a name that are compared as words. The rest of a longer name is compared as bytes.
pub(crate) const HEAD_WORDS: usize = 5;
/// Bytes of these words.
pub(crate) const HEAD_BYTES: usize = HEAD_WORDS * WORD;
/// An odd number without structure.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A name, as it is hashed and compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'p> {
    pub bytes: &'p [u8],
    /// The first bytes, followed by zeros.
    pub head: [u64; HEAD_WORDS],
    /// Hash of the bytes and a seed.
    pub hash: u64,
}

impl<'p> Name<'p> {
    /// A name of a directory entry, which has no slash.
    pub fn new(bytes: &'p [u8], seed: u64) -> Self {
        let mut names = Names::new(bytes, seed);
        names.read(|_| WORD);
        names.name
    }

    #[inline]
    pub fn is_dot(&self) -> bool {
        self.bytes.len() == 1 && self.head[0] == u64::from(b'.')
    }

    #[inline]
    pub fn is_dot_dot(&self) -> bool {
        self.bytes.len() == 2 && self.head[0] == u64::from_le_bytes(*b"..\0\0\0\0\0\0")
    }

    /// The bytes after the head.
    #[inline]
    pub fn rest(&self) -> &'p [u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or_default()
    }
}

/// The names of a path, in their order. Repeated slashes separate names like one.
#[derive(Debug)]
pub(crate) struct Names<'p> {
    path: &'p [u8],
    /// What follows the last name.
    rest: &'p [u8],
    seed: u64,
    /// The last name. It stays in its place: a copy would load words together that were stored one by one, and wait for
    /// the stores.
    name: Name<'p>,
}

impl<'p> Names<'p> {
    #[inline]
    pub fn new(path: &'p [u8], seed: u64) -> Self {
        Self { path, rest: path, seed, name: Name { bytes: &[], head: [0; HEAD_WORDS], hash: seed } }
    }

    /// The next name.
    #[inline]
    pub fn next(&mut self) -> Option<&Name<'p>> {
        while let Some((b'/', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        self.read(first_slash);
        Some(&self.name)
    }

    /// Reads a name up to the end of the path, or where `end` finds its end in a word.
    #[inline]
    fn read(&mut self, end: impl Fn(u64) -> usize) {
        let begin = self.rest;
        let (mut hash, mut name_len) = (self.seed, 0);
        self.name.head = [0; HEAD_WORDS];
        let mut slots = self.name.head.iter_mut();
        loop {
            let (mut word, len) = match self.rest.first_chunk() {
                Some(bytes) => {
                    let word = u64::from_le_bytes(*bytes);
                    (word, end(word))
                }
                None => {
                    let word = last_word(self.path, self.rest);
                    (word, end(word).min(self.rest.len()))
                }
            };
            if len < WORD {
                // Without the bytes that follow.
                word &= 1u64.wrapping_shl(8 * len as u32).wrapping_sub(1);
            }
            hash = mix(hash ^ word);
            if let Some(slot) = slots.next() {
                *slot = word;
            }
            self.rest = self.rest.get(len..).unwrap_or_default();
            name_len += len;
            if len < WORD {
                break;
            }
        }
        self.name.bytes = begin.get(..name_len).unwrap_or_default();
        self.name.hash = hash;
    }
}

/// The rest of a path, which is shorter than a word, followed by zeros.
#[inline]
fn last_word(path: &[u8], rest: &[u8]) -> u64 {
    match path.last_chunk() {
        // The last word of the path, without the bytes before the rest.
        Some(bytes) if !rest.is_empty() => {
            u64::from_le_bytes(*bytes).wrapping_shr(8 * (WORD - rest.len()) as u32)
        }
        _ => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Mixes all bits of a number into all bits of the result: both halves of its product.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let product = u128::from(number).wrapping_mul(u128::from(MULTIPLIER));
    product as u64 ^ (product >> 64) as u64
}

/// The number of bytes before the first slash of a word.
#[inline]
fn first_slash(word: u64) -> usize {
    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = LOW_BITS << 7;
    // A byte that is zero gets its high bit, and none below it does.
    let differing = word ^ (LOW_BITS * b'/' as u64);
    let slashes = differing.wrapping_sub(LOW_BITS) & !differing & HIGH_BITS;
    slashes.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &[u8], seed: u64) -> Vec<Name<'_>> {
        let mut names = Names::new(path, seed);
        std::iter::from_fn(|| names.next().copied()).collect()
    }

    fn names(path: &[u8]) -> Vec<&[u8]> {
        all(path, 1).into_iter().map(|name| name.bytes).collect()
    }

    /// Names of all lengths at all offsets, at the end of a path and before more names.
    #[test]
    fn a_path_is_split_at_its_slashes() {
        for len in 1..=20 {
            for before in 0..=20 {
                let name = vec![b'/' + 1; len];
                for after in [&b""[..], b"/", b"//", b"/x", b"/longer than a word"] {
                    let path = [&vec![b'/'; before][..], &name, after].concat();
                    let split: Vec<_> =
                        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
                    assert_eq!(names(&path), split, "{:?}", path.escape_ascii().to_string());
                }
            }
        }
        assert!(names(b"").is_empty() && names(b"///////////").is_empty());
    }

    /// Bytes that differ from a slash in one bit, or are 0 after a subtraction, must not be taken for one.
    #[test]
    fn other_bytes_are_not_slashes() {
        for byte in (1..=255).filter(|byte| *byte != b'/') {
            let name = [byte; 11];
            assert_eq!(names(&name), [name]);
            let path = [b'/', byte, b'/', byte.wrapping_add(1).max(1), b'a'];
            assert_eq!(names(&path)[0], [byte]);
        }
    }

    /// The hash and the head of a name do not depend on where it was read.
    #[test]
    fn a_name_is_the_same_in_every_path() {
        let name = "0123456789".repeat(6);
        for len in 1..=name.len() {
            let bytes = &name.as_bytes()[..len];
            let alone = Name::new(bytes, 5);
            let mut head = [0; HEAD_BYTES];
            head[..len.min(HEAD_BYTES)].copy_from_slice(&bytes[..len.min(HEAD_BYTES)]);
            let words: Vec<_> =
                head.chunks(WORD).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(alone.head, words[..]);
            assert_eq!(alone.rest(), &bytes[len.min(HEAD_BYTES)..]);
            for path in [
                format!("{}/x", &name[..len]),
                format!("/abc//{}", &name[..len]),
                format!("{}/", &name[..len]),
            ] {
                let found = all(path.as_bytes(), 5).into_iter().find(|name| name.bytes == bytes).unwrap();
                assert_eq!((found.head, found.hash), (alone.head, alone.hash), "{path}");
            }
            assert_ne!(Name::new(bytes, 6).hash, alone.hash);
        }
    }

    #[test]
    fn names_of_the_directory_itself_and_its_parent_are_told_from_others() {
        let kinds = |bytes| {
            let name = Name::new(bytes, 0);
            (name.is_dot(), name.is_dot_dot())
        };
        assert_eq!(kinds(b"."), (true, false));
        assert_eq!(kinds(b".."), (false, true));
        for other in [&b"..."[..], b".a", b"a.", b"a", b"..a", b".\0"] {
            assert_eq!(kinds(other), (false, false), "{other:?}");
        }
    }
}
