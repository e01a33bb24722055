//! Sorted leaf entries, wherever they lie: in leaves they grow upwards from the header, in a one-block directory
//! downwards from the tail.
//!
//! A removed entry stays as a stale one, with its hash and without an address. A new one goes into the nearest stale
//! one, so that only those between the two move.

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

/// Where the entries lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafEntryRange {
    /// The first one's offset.
    pub start: usize,
    /// How many, stale ones included.
    pub count: usize,
}

/// Which of two stale entries at about the same distance is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StalePreference {
    /// The one in front: of one-block directories.
    Front,
    /// The one behind: of leaves.
    Behind,
}

/// A leaf entry.
pub fn entry(hash: u32, pointer: DataPtr) -> LeafEntry {
    LeafEntry { hashval: U32::new(hash), address: U32::new(pointer.0) }
}

/// The index of the first entry whose hash is at least this.
#[inline]
pub fn first_at_least(entries: &[LeafEntry], hash: u32) -> usize {
    entries.partition_point(|entry| entry.hashval.get() < hash)
}

/// The index of the entry with this hash and address.
pub fn position(entries: &[LeafEntry], hash: u32, pointer: DataPtr) -> Option<usize> {
    let first = first_at_least(entries, hash);
    let equal = entries.get(first..)?.iter().take_while(|entry| entry.hashval.get() == hash);
    equal.zip(first..).find(|(entry, _)| entry.pointer() == pointer).map(|(_, index)| index)
}

/// The stale entry that is nearest to where a new one goes, which is in front of `index`.
pub(super) fn nearest_stale(entries: &[LeafEntry], index: usize, prefer: StalePreference) -> Option<usize> {
    let stale = |entry: &LeafEntry| entry.pointer() == DataPtr::NULL;
    let (front, behind) = entries.split_at_checked(index)?;
    // Both sides step by step, so that the search costs no more than the way to the nearest.
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

    /// The bytes behind the last.
    pub fn range(self) -> Range<usize> {
        self.start..self.start + self.count * SIZE
    }

    /// Writes one entry.
    pub fn set<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        entry: LeafEntry,
    ) -> Result<(), Damage> {
        ensure!(index < self.count, NAME, "count", format_args!("more than {index}"), self.count);
        put(block, NAME, self.start + index * SIZE, entry.as_bytes())
    }

    /// Makes an entry stale: it keeps its hash.
    pub fn set_stale<B: BlockMut + ?Sized>(self, block: &mut B, index: usize) -> Result<(), Damage> {
        let live = self.view(block.bytes())?.get(index).is_some_and(|entry| entry.pointer() != DataPtr::NULL);
        ensure!(live, NAME, "address", "that of an entry", format_args!("none at {index}"));
        put(block, NAME, self.start + index * SIZE + 4, &DataPtr::NULL.0.to_be_bytes())
    }

    /// Puts an entry in front of `index` by means of the nearest stale one. `false` where none is stale.
    pub fn insert_into_stale<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        new: LeafEntry,
        prefer: StalePreference,
    ) -> Result<bool, Damage> {
        let Some(stale) = nearest_stale(self.view(block.bytes())?, index, prefer) else { return Ok(false) };
        // Those between the stale one and the new one's place move by one, over the stale one.
        if stale < index {
            self.insert_moving_down(block, stale..index, new)?;
        } else {
            self.insert_moving_up(block, index..stale + 1, new)?;
        }
        Ok(true)
    }

    /// Puts an entry in front of `index` where there is room for one more behind the last.
    pub fn insert_upwards<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        new: LeafEntry,
    ) -> Result<(), Damage> {
        self.insert_moving_up(block, index..self.count + 1, new)
    }

    /// Puts an entry in front of `index` where there is room for one more in front of the first.
    pub fn insert_downwards<B: BlockMut + ?Sized>(
        self,
        block: &mut B,
        index: usize,
        new: LeafEntry,
    ) -> Result<(), Damage> {
        ensure!(self.start >= SIZE, NAME, "count", "room for one more", self.count);
        let moved = Self { start: self.start - SIZE, count: self.count + 1 };
        moved.insert_moving_down(block, 0..index + 1, new)
    }

    /// The first of the range gets the new entry, and the others move up by one, over the last.
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

    /// The last of the range gets the new entry, and the others move down by one, over the first.
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

    /// The entries without the stale ones, but for one that stays.
    pub fn compacted(self, bytes: &[u8], stays: Option<usize>) -> Result<Vec<LeafEntry>, Damage> {
        let kept =
            |(index, entry): &(usize, &LeafEntry)| entry.pointer() != DataPtr::NULL || Some(*index) == stays;
        Ok(self.view(bytes)?.iter().enumerate().filter(kept).map(|(_, entry)| *entry).collect())
    }
}
