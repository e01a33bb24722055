//! Node ids: inode number and generation in one number of 64 bits.
//!
//! A node id says by itself which file it refers to, so nothing is kept for a name that was looked up. There are two
//! forms, which bit 63 distinguishes. Neither depends on the size of the volume, which may grow while it is mounted.
//!
//! | inode number | bits 0 and up | next bits | bit 63 |
//! |---|---|---|---|
//! | of at most 31 bits | number: 31 bits | generation: 32 bits | 0 |
//! | of at most 56 bits, as in all volumes of Linux | number: 56 bits | generation: its lower 7 bits | 1 |
//!
//! # Invariants
//! - Each file has one node id. A number that is in the wrong form is no node id.
//! - The root is 1. No inode has the numbers 0 and 1: the superblock is there.

use base::Ino;
use xebec::FileId;

use crate::operations::NodeId;

const SHORT_BITS: u32 = 31;
const LONG_BITS: u32 = 56;
const LONG: u64 = 1 << 63;
/// Bits of the generation in the second form.
const GENERATION_BITS: u32 = 63 - LONG_BITS;

/// What a node id says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// All of it.
    File(FileId),
    /// The inode number, and the lower bits of the generation ([`agrees`]).
    Part {
        /// Inode number.
        ino: Ino,
        /// Lower bits of the generation.
        generation: u32,
    },
}

/// The node id of a file other than the root; `None` if its inode number is too large.
pub fn encode(file: FileId) -> Option<NodeId> {
    let (ino, generation) = (file.ino.get(), u64::from(file.generation));
    if ino >> SHORT_BITS == 0 {
        Some(NodeId(ino | generation << SHORT_BITS))
    } else if ino >> LONG_BITS == 0 {
        Some(NodeId(LONG | ino | (generation & lower(GENERATION_BITS)) << LONG_BITS))
    } else {
        None
    }
}

/// Parses a node id other than the root's; `None` if it is none.
pub fn parse(node: NodeId) -> Option<Parsed> {
    let NodeId(node) = node;
    if node & LONG == 0 {
        let (ino, generation) = (Ino(node & lower(SHORT_BITS)), (node >> SHORT_BITS) as u32);
        return (ino.get() > 1).then_some(Parsed::File(FileId { ino, generation }));
    }
    let (ino, generation) = (node & lower(LONG_BITS), (node & !LONG) >> LONG_BITS);
    (ino >> SHORT_BITS != 0).then_some(Parsed::Part { ino: Ino(ino), generation: generation as u32 })
}

/// Whether a generation has these lower bits.
pub fn agrees(generation: u32, lower_bits: u32) -> bool {
    u64::from(generation) & lower(GENERATION_BITS) == u64::from(lower_bits)
}

const fn lower(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use base::random::Random;

    use super::*;

    #[test]
    fn a_node_id_says_which_file_it_is() {
        let random = Random::seeded(7);
        let edges = [2, (1 << SHORT_BITS) - 1, 1 << SHORT_BITS, (1 << LONG_BITS) - 1];
        let numbers = (0..20_000).map(|_| 2 + (random.next_u64() >> (8 + random.next_u32() % 54)));
        for ino in edges.into_iter().chain(numbers).map(Ino) {
            let file = FileId { ino, generation: random.next_u32() };
            let node = encode(file).unwrap();
            assert!(node.0 > 1);
            match parse(node).unwrap() {
                Parsed::File(parsed) => assert_eq!(parsed, file),
                Parsed::Part { ino, generation } => {
                    assert!(ino == file.ino && ino.get() >> SHORT_BITS != 0);
                    assert!(agrees(file.generation, generation));
                    assert!(!agrees(file.generation ^ 1, generation));
                }
            }
        }
        assert_eq!(encode(FileId { ino: Ino(1 << LONG_BITS), generation: 0 }), None);
    }

    #[test]
    fn each_file_has_one_node_id() {
        let random = Random::seeded(8);
        for _ in 0..20_000 {
            let node = NodeId(random.next_u64() & !(random.next_u64() & lower(56)));
            let again = match parse(node) {
                Some(Parsed::File(file)) => encode(file),
                Some(Parsed::Part { ino, generation }) => encode(FileId { ino, generation }),
                None => continue,
            };
            assert_eq!(again, Some(node));
        }
        for none in [0, 1, LONG, LONG | 5, LONG | ((1 << SHORT_BITS) - 1)] {
            assert_eq!(parse(NodeId(none)), None);
        }
    }
}
