//! A decoded record of the inode trees: which of a chunk's 64 inodes exist, and which are free.
//!
//! # Invariants
//! Inodes in holes count as free: their bits are set in `free`, as on disk. At least one inode exists.

use base::AgIno;
use format::btree::InodeChunk;
use format::geometry::INODES_PER_CHUNK;
use format::ondisk::{U16, U32, U64};
use format::{Damage, ensure};

/// Number of inodes for each bit of the hole mask.
pub const INODES_PER_HOLE: u32 = 4;
const NAME: &str = "inode chunk";

/// A chunk of 64 inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRecord {
    /// First inode: a multiple of the chunk alignment. It may itself lie in a hole.
    pub start: AgIno,
    /// Hole mask: a bit for each four inodes that do not exist.
    pub holes: u16,
    /// Free mask: a bit for each inode that is free or does not exist.
    pub free: u64,
}

/// A bit for each inode outside of holes.
fn present(holes: u16) -> u64 {
    // Each of the 16 bits is moved to the lowest bit of its nibble in halving steps, then multiplied to the whole
    // nibble.
    let mut bits = u64::from(!holes);
    bits = (bits | bits << 24) & 0x0000_00ff_0000_00ff;
    bits = (bits | bits << 12) & 0x000f_000f_000f_000f;
    bits = (bits | bits << 6) & 0x0303_0303_0303_0303;
    bits = (bits | bits << 3) & 0x1111_1111_1111_1111;
    bits * 0xf
}

/// The lowest `count` bits.
fn low_bits(count: u32) -> u64 {
    if count >= u64::BITS { u64::MAX } else { (1 << count) - 1 }
}

impl ChunkRecord {
    /// A chunk of 64 new inodes, all free.
    pub fn whole(start: AgIno) -> Self {
        Self { start, holes: 0, free: u64::MAX }
    }

    /// A sparse chunk: only `count` inodes exist, from the `skip`th on, all free. Both are multiples of four.
    pub fn part(start: AgIno, skip: u32, count: u32) -> Self {
        let bits = low_bits(count / INODES_PER_HOLE) << (skip / INODES_PER_HOLE).min(63);
        Self { start, holes: !(bits as u16), free: u64::MAX }
    }

    /// Decodes a record and verifies its consistency.
    pub fn decode(raw: &InodeChunk, sparse: bool) -> Result<Self, Damage> {
        let holes = if sparse { raw.holemask.get() } else { 0 };
        let chunk = Self { start: AgIno(raw.startino.get()), holes, free: raw.free.get() };
        ensure!(holes != u16::MAX, NAME, "holemask", "some inodes", format_args!("{holes:#x}"));
        let (count, free) = (chunk.count(), chunk.free_count());
        ensure!(!sparse || u32::from(raw.count) == count, NAME, "count", count, raw.count);
        let stored = raw.free_count(sparse);
        ensure!(stored == free, NAME, "freecount", free, stored);
        let covered = chunk.free | chunk.present_mask() == u64::MAX;
        ensure!(
            covered,
            NAME,
            "free",
            "a set bit for each inode in a hole",
            format_args!("{:#x}", chunk.free)
        );
        Ok(chunk)
    }

    /// The on-disk record.
    pub fn encode(&self, sparse: bool) -> InodeChunk {
        let free = self.free_count() as u8;
        InodeChunk {
            startino: U32::new(self.start.get()),
            holemask: U16::new(if sparse { self.holes } else { 0 }),
            count: if sparse { self.count() as u8 } else { 0 },
            freecount: free,
            free: U64::new(self.free),
        }
    }

    /// A bit for each inode that exists.
    pub fn present_mask(&self) -> u64 {
        present(self.holes)
    }

    /// A bit for each inode that exists and is free.
    pub fn free_mask(&self) -> u64 {
        self.free & self.present_mask()
    }

    /// Number of inodes that exist: 4 to 64.
    pub fn count(&self) -> u32 {
        INODES_PER_CHUNK - INODES_PER_HOLE * self.holes.count_ones()
    }

    /// Number of free inodes.
    pub fn free_count(&self) -> u32 {
        self.free_mask().count_ones()
    }

    /// Whether no inode is in use.
    pub fn is_unused(&self) -> bool {
        self.free == u64::MAX
    }

    /// Index of an inode in the chunk; `None` if it is not in the chunk.
    pub fn index_of(&self, ino: AgIno) -> Option<u32> {
        ino.get().checked_sub(self.start.get()).filter(|index| *index < INODES_PER_CHUNK)
    }

    /// Allocates the first free inode; `None` if there is none.
    pub fn take(&mut self) -> Option<AgIno> {
        let index = self.free_mask().trailing_zeros();
        let ino = self.start.checked_add(index).filter(|_| index < INODES_PER_CHUNK)?;
        self.free &= !(1 << index);
        Some(ino)
    }

    /// Frees an inode.
    ///
    /// # Errors
    /// The inode is not in this chunk, does not exist, or is free already.
    pub fn put(&mut self, ino: AgIno) -> Result<(), Damage> {
        let index = self.index_of(ino).filter(|index| self.present_mask() & 1 << index != 0);
        let Some(index) = index else {
            return Err(Damage::new(NAME, "startino", format_args!("a chunk with inode {ino}"), self.start));
        };
        ensure!(self.free & 1 << index == 0, NAME, "free", format_args!("inode {ino} in use"), "a free one");
        self.free |= 1 << index;
        Ok(())
    }

    /// Merges both parts of one chunk.
    ///
    /// # Errors
    /// They are not parts of one chunk, or they overlap.
    pub fn merge(&self, other: &Self) -> Result<Self, Damage> {
        ensure!(self.start == other.start, NAME, "startino", self.start, other.start);
        let apart = self.present_mask() & other.present_mask() == 0;
        let holes = format_args!("none of the inodes {:#x}", other.present_mask()).to_string();
        ensure!(apart, NAME, "holemask", holes, format_args!("{:#x}", self.present_mask()));
        Ok(Self { start: self.start, holes: self.holes & other.holes, free: self.free & other.free })
    }

    /// Runs of inodes that exist: index of the first, and length.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let mut rest = self.present_mask();
        std::iter::from_fn(move || {
            let skip = rest.trailing_zeros();
            let count = (rest.checked_shr(skip)?).trailing_ones();
            rest &= !(low_bits(count) << skip);
            Some((skip, count))
        })
    }

    /// Distance of `ino` from the nearest inode number of this chunk; 0 inside.
    pub fn distance(&self, ino: AgIno) -> u32 {
        let last = self.start.get().saturating_add(INODES_PER_CHUNK - 1);
        self.start.get().saturating_sub(ino.get()).max(ino.get().saturating_sub(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hole_bit_covers_four_inodes(holes: u16) {
            let slow = (0..64).filter(|n| holes & 1 << (n / 4) == 0).fold(0, |bits, n| bits | 1u64 << n);
            prop_assert_eq!(present(holes), slow);
        }

        #[test]
        fn a_record_reads_back(start: u32, holes in 0..u16::MAX, free: u64, sparse: bool) {
            let holes = if sparse { holes } else { 0 };
            let chunk = ChunkRecord { start: AgIno(start), holes, free: free | !present(holes) };
            prop_assert_eq!(ChunkRecord::decode(&chunk.encode(sparse), sparse), Ok(chunk));
            let runs: u64 = chunk.runs().map(|(skip, count)| low_bits(count) << skip).sum();
            prop_assert_eq!(runs, chunk.present_mask());
        }

        #[test]
        fn damaged_records_are_rejected(start: u32, holemask: u16, count: u8, freecount: u8, free: u64) {
            let raw = InodeChunk {
                startino: U32::new(start),
                holemask: U16::new(holemask),
                count,
                freecount,
                free: U64::new(free),
            };
            if let Ok(chunk) = ChunkRecord::decode(&raw, true) {
                prop_assert_eq!(u32::from(freecount), chunk.free_count());
                prop_assert!(chunk.count() > 0);
            }
        }
    }

    #[test]
    fn the_lowest_free_inode_outside_of_holes_is_allocated() {
        let mut chunk = ChunkRecord::part(AgIno(128), 32, 32);
        assert_eq!((chunk.count(), chunk.free_count(), chunk.holes), (32, 32, 0x00ff));
        for n in 160..192 {
            assert_eq!(chunk.take(), Some(AgIno(n)));
        }
        assert_eq!(chunk.take(), None);
        assert!(!chunk.is_unused());
        assert_eq!(chunk.put(AgIno(130)).unwrap_err().field(), "startino");
        assert_eq!(chunk.put(AgIno(192)).unwrap_err().field(), "startino");
        chunk.put(AgIno(170)).unwrap();
        assert_eq!(chunk.put(AgIno(170)).unwrap_err().field(), "free");
        assert_eq!(chunk.take(), Some(AgIno(170)));
    }

    #[test]
    fn parts_merge_and_must_not_overlap() {
        let (mut low, high) = (ChunkRecord::part(AgIno(0), 0, 32), ChunkRecord::part(AgIno(0), 32, 32));
        assert_eq!(low.take(), Some(AgIno(0)));
        let whole = low.merge(&high).unwrap();
        assert_eq!((whole.holes, whole.free), (0, !1));
        assert!(whole.merge(&high).is_err());
        assert!(low.merge(&ChunkRecord::part(AgIno(64), 32, 32)).is_err());
        assert_eq!(ChunkRecord { holes: 0xf00f, ..whole }.runs().collect::<Vec<_>>(), [(16, 32)]);
    }

    #[test]
    fn distance_is_to_the_nearest_end() {
        let chunk = ChunkRecord::whole(AgIno(128));
        for (ino, distance) in [(0, 128), (127, 1), (128, 0), (191, 0), (192, 1), (u32::MAX, u32::MAX - 191)]
        {
            assert_eq!(chunk.distance(AgIno(ino)), distance);
        }
    }
}
