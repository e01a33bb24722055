//! Names of a path, read in words of eight bytes.
//!
//! One pass over a path finds the end of a name, its hash, and its first bytes as words, which are compared with those
//! of dentries.

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of a name that are compared as words. The rest of a longer name is compared as bytes.
const HEAD_BYTES: usize = 2 * WORD;
/// An odd number without structure.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// A bit in each byte of a word.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

/// A name, as it is hashed and compared.
///
/// The words of its head are two fields, not an array: loads of an array would take both words together, and wait for
/// the stores of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'p> {
    pub bytes: &'p [u8],
    /// The first bytes, followed by zeros.
    pub first: u64,
    /// The bytes after the first word, followed by zeros.
    pub second: u64,
    /// Hash of the bytes and a seed.
    pub hash: u64,
}

impl<'p> Name<'p> {
    /// A name of a directory entry, which has no slash.
    pub fn new(bytes: &'p [u8], seed: u64) -> Self {
        Names::new(bytes, 0, seed).read(|_| 0)
    }

    /// Whether it may be `.` or `..`.
    #[inline]
    pub fn begins_with_dot(&self) -> bool {
        self.first as u8 == b'.'
    }

    pub fn is_dot(&self) -> bool {
        self.bytes == b"."
    }

    pub fn is_dot_dot(&self) -> bool {
        self.bytes == b".."
    }

    /// The bytes after the head.
    #[inline]
    pub fn rest(&self) -> &'p [u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or_default()
    }
}

/// The names of a path from an offset on, in their order. Repeated slashes separate names like one.
#[derive(Debug)]
pub(crate) struct Names<'p> {
    path: &'p [u8],
    /// The end of the last name, as an offset in the path.
    position: usize,
    seed: u64,
}

impl<'p> Names<'p> {
    #[inline]
    pub fn new(path: &'p [u8], position: usize, seed: u64) -> Self {
        Self { path, position, seed }
    }

    /// The end of the last name, as an offset in the path.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The next name.
    #[inline]
    pub fn next(&mut self) -> Option<Name<'p>> {
        while *self.path.get(self.position)? == b'/' {
            self.position += 1;
        }
        Some(self.read(slashes))
    }

    /// Reads a name up to the end of the path, or where `ends` has the first bit in a word: see [`slashes`].
    #[inline]
    fn read(&mut self, ends: impl Fn(u64) -> u64) -> Name<'p> {
        let begin = self.position;
        let (first, mut has_more) = self.read_word(&ends);
        let (mut second, mut hash) = (0, mix(self.seed ^ first));
        if has_more {
            (second, has_more) = self.read_word(&ends);
            hash = mix(hash ^ second);
            while has_more {
                let word;
                (word, has_more) = self.read_word(&ends);
                hash = mix(hash ^ word);
            }
        }
        Name { bytes: self.path.get(begin..self.position).unwrap_or_default(), first, second, hash }
    }

    /// Reads the next bytes of a name: as many as a word has, or fewer at its end, followed by zeros. Returns them, and
    /// whether the word is full.
    #[inline]
    fn read_word(&mut self, ends: &impl Fn(u64) -> u64) -> (u64, bool) {
        let rest = self.path.get(self.position..).unwrap_or_default();
        let (word, len) = match rest.first_chunk() {
            Some(bytes) => (u64::from_le_bytes(*bytes), WORD),
            None => (last_word(self.path, rest), rest.len()),
        };
        let end = ends(word);
        if end == 0 {
            self.position += len;
            return (word, len == WORD);
        }
        self.position += end.trailing_zeros() as usize / 8;
        // Without the byte of the end, and those that follow.
        (word & (end ^ (end - 1)) >> 8, false)
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

/// The high bits of the bytes of a word that are slashes: of the first one, and maybe of others after it.
#[inline]
fn slashes(word: u64) -> u64 {
    // A byte that is zero gets its high bit, and none below it does.
    let differing = word ^ (LOW_BITS * b'/' as u64);
    differing.wrapping_sub(LOW_BITS) & !differing & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &[u8], seed: u64) -> Vec<Name<'_>> {
        let mut names = Names::new(path, 0, seed);
        std::iter::from_fn(|| names.next()).collect()
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
            assert_eq!([alone.first, alone.second], words[..]);
            assert_eq!(alone.rest(), &bytes[len.min(HEAD_BYTES)..]);
            for path in [
                format!("{}/x", &name[..len]),
                format!("/abc//{}", &name[..len]),
                format!("{}/", &name[..len]),
            ] {
                let found = all(path.as_bytes(), 5).into_iter().find(|name| name.bytes == bytes).unwrap();
                assert_eq!(
                    (found.first, found.second, found.hash),
                    (alone.first, alone.second, alone.hash),
                    "{path}"
                );
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
