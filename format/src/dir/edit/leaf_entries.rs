//! Sorted leaf entries. In leaf blocks they grow upwards from the header, in block format downwards from the tail.
//!
//! A removed entry becomes stale: it keeps its hash and loses its address. An insertion reuses the nearest stale entry,
//! so that only the entries in between move.

use std::ops::Range;

use zerocopy::IntoBytes;

use crate::damage::Damage;
use crate::dir::DataPtr;
use crate::dir::leaf::LeafEntry;
use crate::edit::{BlockMut, part_mut, put};
use crate::ensure;
use crate::ondisk::{OnDisk, U32};

const NAME: &str = "directory leaf";
const SIZE: usize = LeafEntry::SIZE;

/// The position of leaf entries in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafEntryRange {
    /// Offset of the first entry.
    pub start: usize,
    /// Number of entries, including stale ones.
    pub count: usize,
}

/// The side to search first for a stale entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StalePreference {
    /// Before the insert position: block format.
    Front,
    /// After the insert position: leaf blocks.
    Behind,
}

/// Builds a leaf entry.
pub fn entry(hash: u32, pointer: DataPtr) -> LeafEntry {
    LeafEntry { hashval: U32::new(hash), address: U32::new(pointer.0) }
}

/// Index of the first entry with at least this hash.
#[inline]
pub fn first_at_least(entries: &[LeafEntry], hash: u32) -> usize {
    entries.partition_point(|entry| entry.hashval.get() < hash)
}

/// Index of the entry with this hash and address.
pub fn position(entries: &[LeafEntry], hash: u32, pointer: DataPtr) -> Option<usize> {
    let first = first_at_least(entries, hash);
    let equal = entries.get(first..)?.iter().take_while(|entry| entry.hashval.get() == hash);
    equal.zip(first..).find(|(entry, _)| entry.pointer() == pointer).map(|(_, index)| index)
}

/// Index of the stale entry nearest to the insert position `index`.
pub(super) fn nearest_stale(entries: &[LeafEntry], index: usize, prefer: StalePreference) -> Option<usize> {
    let stale = |entry: &LeafEntry| entry.pointer() == DataPtr::NULL;
    let (front, behind) = entries.split_at_checked(index)?;
    // Search both sides in lockstep, so that the cost is proportional to the distance of the nearest stale entry.
    let ahead = match prefer {
        StalePreference::Front => 1,
        StalePreference::Behind => 0,
    };
    let mut behind = behind.iter();
    let mut front = front.iter();
    for _ in 0..ahead {
        if front.next_back().is_some_and(stale) {
            return Some(front.len());
        }
    }
    loop {
        let entry = behind.next();
        if entry.is_some_and(stale) {
            return Some(entries.len() - behind.len() - 1);
        }
        let other = front.next_back();
        if other.is_some_and(stale) {
            return Some(front.len());
        }
        if entry.is_none() && other.is_none() {
            return None;
        }
    }
}

impl LeafEntryRange {
    /// The entries.
    #[inline]
    pub fn view(self, bytes: &[u8]) -> Result<&[LeafEntry], Damage> {
        let rest = bytes.get(self.start..).and_then(|rest| LeafEntry::view_array(rest, self.count));
        rest.ok_or_else(|| Damage::short(NAME, self.range().end, bytes.len()))
    }

    /// Byte range of the entries.
    pub fn range(self) -> Range<usize> {
        self.start..self.start + self.count * SIZE
    }

    /// Marks an entry as stale; it keeps its hash.
    pub fn set_stale<B: BlockMut + ?Sized>(self, block: &mut B, index: usize) -> Result<(), Damage> {
        let live = self.view(block.bytes())?.get(index).is_some_and(|entry| entry.pointer() != DataPtr::NULL);
        ensure!(live, NAME, "address", "the address of an entry", format_args!("none at {index}"));
        put(block, NAME, self.start + index * SIZE + 4, &DataPtr::NULL.0.to_be_bytes())
    }

    /// Inserts an entry before `index` by reusing the nearest stale entry. Returns `false` if there is none.
    pub fn insert_into_stale<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        new: LeafEntry,
        prefer: StalePreference,
    ) -> Result<bool, Damage> {
        let Some(stale) = nearest_stale(self.view(block.bytes())?, index, prefer) else { return Ok(false) };
        // The entries between the stale one and the insert position move by one.
        if stale < index {
            self.insert_moving_down(block, stale..index, new)?;
        } else {
            self.insert_moving_up(block, index..stale + 1, new)?;
        }
        Ok(true)
    }

    /// Inserts an entry before `index`. The caller has checked that there is space after the last entry.
    pub fn insert_upwards<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        new: LeafEntry,
    ) -> Result<(), Damage> {
        self.insert_moving_up(block, index..self.count + 1, new)
    }

    /// Inserts an entry before `index`. The caller has checked that there is space before the first entry.
    pub fn insert_downwards<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        new: LeafEntry,
    ) -> Result<(), Damage> {
        ensure!(self.start >= SIZE, NAME, "count", "space for one more", self.count);
        let moved = Self { start: self.start - SIZE, count: self.count + 1 };
        moved.insert_moving_down(block, 0..index + 1, new)
    }

    /// Moves the entries of the range up by one, over the last, and writes the new entry at its start.
    fn insert_moving_up<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        range: Range<usize>,
        new: LeafEntry,
    ) -> Result<(), Damage> {
        let bytes = part_mut(block, NAME, self.start + range.start * SIZE..self.start + range.end * SIZE)?;
        let kept = bytes.len().saturating_sub(SIZE);
        bytes.copy_within(..kept, SIZE.min(bytes.len()));
        if let Some(place) = bytes.first_chunk_mut::<SIZE>() {
            place.copy_from_slice(new.as_bytes());
        }
        Ok(())
    }

    /// Moves the entries of the range down by one, over the first, and writes the new entry at its end.
    fn insert_moving_down<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        range: Range<usize>,
        new: LeafEntry,
    ) -> Result<(), Damage> {
        let bytes = part_mut(block, NAME, self.start + range.start * SIZE..self.start + range.end * SIZE)?;
        bytes.copy_within(SIZE.min(bytes.len()).., 0);
        if let Some(place) = bytes.last_chunk_mut::<SIZE>() {
            place.copy_from_slice(new.as_bytes());
        }
        Ok(())
    }

    /// A copy of the entries without stale ones, except the one at index `stays`.
    pub fn compacted(self, bytes: &[u8], stays: Option<usize>) -> Result<Vec<LeafEntry>, Damage> {
        let kept =
            |(index, entry): &(usize, &LeafEntry)| entry.pointer() != DataPtr::NULL || Some(*index) == stays;
        Ok(self.view(bytes)?.iter().enumerate().filter(kept).map(|(_, entry)| *entry).collect())
    }
}
