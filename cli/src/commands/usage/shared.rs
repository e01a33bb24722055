//! Extents that several files share.

use format::btree::{REFCOUNT_COW, RefcountBt};
use format::extent::Extent;
use format::inode::{Dinode, ForkKind, flags2};
use read::{AgTree, ExtentWalk, TreeLeaves, Volume};
use std::collections::BTreeMap;
use std::ops::Range;

use base::AgNumber;
use format::agf::RawAgf;

/// A range of file system blocks. It does not cross the end of an AG.
pub type Blocks = Range<u64>;

/// The extents of a volume with more than one reference, sorted; neighbours are merged. 16 bytes each.
#[derive(Debug, Default)]
pub struct SharedExtents(Vec<Blocks>);

impl SharedExtents {
    /// Reads the reference counts of all AGs.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn of(volume: &Volume) -> read::Result<Self> {
        let mut all = Self::default();
        for ag in volume.geometry().ags() {
            let agf = volume.agf(ag)?;
            all.add(volume, ag, &agf)?;
        }
        Ok(all)
    }

    fn add(&mut self, volume: &Volume, ag: AgNumber, agf: &RawAgf) -> read::Result<()> {
        let Some(tree) = refcounts(volume, ag, agf) else { return Ok(()) };
        let geometry = volume.geometry();
        tree.walk::<RefcountBt>(TreeLeaves::Read, &mut |_, records| {
            for record in records {
                let start = record.startblock.get();
                if start & REFCOUNT_COW != 0 || record.refcount.get() < 2 {
                    continue;
                }
                let start = geometry.fs_block(ag, start.into()).get();
                let end = start + u64::from(record.blockcount.get());
                match self.0.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => self.0.push(start..end),
                }
            }
        })
    }

    /// The parts of an extent that are shared.
    pub fn within(&self, extent: &Extent) -> impl Iterator<Item = Blocks> {
        let (start, end) = (extent.start.get(), extent.start.get() + extent.count);
        let first = self.0.partition_point(|shared| shared.end <= start);
        let overlapping = self.0.get(first..).unwrap_or_default().iter();
        overlapping
            .take_while(move |shared| shared.start < end)
            .map(move |shared| shared.start.max(start)..shared.end.min(end))
    }

    /// The shared blocks of a file; neighbours are merged.
    ///
    /// # Errors
    /// Damage of its extent map.
    pub fn of_file(&self, volume: &Volume, inode: &Dinode<'_>) -> read::Result<Vec<Blocks>> {
        let mut found: Vec<Blocks> = Vec::new();
        if inode.core.flags2.get() & flags2::REFLINK == 0 {
            return Ok(found);
        }
        for extent in ExtentWalk::new(volume, inode, ForkKind::Data, 0.into())? {
            for shared in self.within(&extent?) {
                match found.last_mut() {
                    Some(last) if last.end == shared.start => last.end = shared.end,
                    _ => found.push(shared),
                }
            }
        }
        Ok(found)
    }
}

/// The refcountbt of an AG; `None` on volumes without reflink.
pub fn refcounts<'v>(volume: &'v Volume, ag: AgNumber, agf: &RawAgf) -> Option<AgTree<'v>> {
    let has_tree = volume.geometry().features.reflink();
    has_tree.then(|| volume.ag_tree(ag, agf.refcntroot.get(), agf.refcntlevel.get()))
}

/// Shared blocks that were counted already.
#[derive(Debug, Default)]
pub struct CountedBlocks(BTreeMap<u64, u64>);

impl CountedBlocks {
    /// Counts blocks, and returns how many of them were counted before.
    pub fn add(&mut self, Range { start, end }: Blocks) -> u64 {
        let (mut from, mut to, mut repeated) = (start, end, 0);
        // Earlier ranges that touch this one are merged with it.
        while let Some((other_start, other_end)) = self.0.range(..=end).next_back() {
            let (other_start, other_end) = (*other_start, *other_end);
            if other_end < start {
                break;
            }
            repeated += other_end.min(end).saturating_sub(other_start.max(start));
            (from, to) = (from.min(other_start), to.max(other_end));
            self.0.remove(&other_start);
        }
        self.0.insert(from, to);
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_once() {
        let mut counted = CountedBlocks::default();
        assert_eq!(counted.add(10..20), 0);
        assert_eq!(counted.add(30..40), 0);
        assert_eq!(counted.add(15..35), 10);
        assert_eq!(counted.add(0..100), 30);
        assert_eq!(counted.add(100..101), 0);
        assert_eq!(counted.0.len(), 1);
        assert_eq!(counted.add(50..51), 1);
    }
}
