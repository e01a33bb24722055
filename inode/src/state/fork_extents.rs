//! The extents of an inode's forks: their counters, and those that are in memory.

use base::FileBlock;
use error::Result;
use format::Geometry;
use format::damage::Damage;
use format::extent::{Extent, RawExtent};
use format::inode::{Fork, ForkKind, flags2, verify_extents};
use format::log::inode::fields;
use format::ondisk::{OnDisk, U16, U32, U64};
use zerocopy::IntoBytes;

use super::InodeState;
use crate::extents::{ExtentLimits, ExtentList, LoadedExtents, Splice};
use crate::fork::TOO_MANY;

/// The most extents that a counter holds.
const fn max_extents(kind: ForkKind, wide: bool) -> u64 {
    let (narrow, wide_max) = match kind {
        ForkKind::Data => (i32::MAX as u64, (1 << 48) - 1),
        ForkKind::Attr => (i16::MAX as u64, u32::MAX as u64),
    };
    if wide { wide_max } else { narrow }
}

const fn index(kind: ForkKind) -> usize {
    match kind {
        ForkKind::Data => 0,
        ForkKind::Attr => 1,
    }
}

/// Extents of a list that do not count as memory of its own: the estimate for an inode includes them.
const UNCOUNTED: usize = 4;

impl InodeState {
    /// Number of extents of a fork.
    pub fn extent_count(&self, kind: ForkKind) -> u64 {
        self.dinode().extent_count(kind)
    }

    /// Whether the extent counter of a fork can hold `count`. Uses the 64-bit limits (`nrext64`) if the inode has wide
    /// counters or can get them.
    pub fn can_count_extents(&self, kind: ForkKind, count: u64) -> bool {
        count <= max_extents(kind, self.features.nrext64 || self.dinode().wide_counts())
    }

    /// Checks that the extent counter of a fork can hold `more` further extents. Called before the first change of an
    /// operation.
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn check_extent_count(&self, kind: ForkKind, more: usize) -> Result<()> {
        let count = self.extent_count(kind).saturating_add(more as u64);
        if self.can_count_extents(kind, count) { Ok(()) } else { Err(TOO_MANY) }
    }

    /// Sets the extent counter of a fork. Widens the inode's counters if needed and the volume has `nrext64`. Returns
    /// `false`, with nothing changed, if the count does not fit.
    #[must_use]
    pub fn set_extent_count(&mut self, kind: ForkKind, count: u64) -> bool {
        if !self.can_count_extents(kind, count) {
            return false;
        }
        if count > max_extents(kind, self.dinode().wide_counts()) {
            self.widen_counts();
        }
        let wide = self.dinode().wide_counts();
        let core = self.edit();
        match (kind, wide) {
            (ForkKind::Data, false) => core.nextents = U32::new(count as u32),
            (ForkKind::Data, true) => core.big_nextents = U64::new(count),
            (ForkKind::Attr, false) => core.anextents = U16::new(count as u16),
            (ForkKind::Attr, true) => core.nextents = U32::new(count as u32),
        }
        true
    }

    fn widen_counts(&mut self) {
        let core = self.edit();
        core.big_nextents = U64::new(core.nextents.get().into());
        core.nextents = U32::new(core.anextents.get().into());
        core.anextents = U16::new(0);
        core.flags2 = U64::new(core.flags2.get() | flags2::NREXT64);
    }

    /// All extents of a fork, if they are in memory. Those of a btree are read when they are needed, and only a part of
    /// them if there are many.
    pub fn list(&self, kind: ForkKind) -> Option<&ExtentList> {
        self.loaded(kind)?.whole()
    }

    /// Extents of a fork around a block, if they are in memory: the *next* one, which contains the block or is the
    /// first one after it, `before` extents before it and `after` extents after it, as far as the map has them. If the
    /// block is in a hole, the extent before it is always included. Of the list that is returned, nothing else is to be
    /// used.
    pub(crate) fn extents_around(
        &self,
        kind: ForkKind,
        at: FileBlock,
        before: usize,
        after: usize,
    ) -> Option<&ExtentList> {
        self.loaded(kind)?.around(at, before, after)
    }

    /// The extents of a fork that are in memory.
    pub(crate) fn loaded(&self, kind: ForkKind) -> Option<&LoadedExtents> {
        self.extents.get(index(kind))?.as_ref()
    }

    /// Sets or drops the extents of a fork, which have changed.
    pub fn set_list(&mut self, kind: ForkKind, list: Option<ExtentList>) {
        self.recent_buffers = None;
        self.set_loaded(kind, list.map(LoadedExtents::Whole));
    }

    /// Sets the extents of a fork that are in memory. The map stays as it is.
    pub(crate) fn set_loaded(&mut self, kind: ForkKind, extents: Option<LoadedExtents>) {
        if let Some(slot) = self.extents.get_mut(index(kind)) {
            *slot = extents;
        }
    }

    /// Applies a splice to the extents in memory. The caller changes the bytes accordingly. Returns `false` if there
    /// are none.
    #[must_use]
    pub(crate) fn splice_extents(&mut self, kind: ForkKind, splice: &Splice, limits: ExtentLimits) -> bool {
        self.recent_buffers = None;
        let loaded = self.extents.get_mut(index(kind)).and_then(Option::as_mut);
        loaded.map(|loaded| loaded.apply(splice, limits)).is_some()
    }

    /// Keeps only some extents around an index in memory.
    pub(crate) fn narrow_extents(&mut self, kind: ForkKind, index_kept: usize, limits: ExtentLimits) {
        if let Some(Some(loaded)) = self.extents.get_mut(index(kind)) {
            loaded.narrow(index_kept, limits);
        }
    }

    /// Drops the extents of both forks from memory. They can be read again.
    pub(crate) fn drop_extents(&mut self) {
        self.extents = [None, None];
    }

    /// The extents that memory is allocated for, without the few that any inode may have.
    #[inline]
    pub(crate) fn counted_extents(&self) -> usize {
        let capacities = self.extents.iter().flatten().map(LoadedExtents::capacity);
        capacities.map(|capacity| if capacity > UNCOUNTED { capacity } else { 0 }).sum()
    }

    /// Decodes and verifies the extents of a fork that stores them in the inode. A fork that is local, a device or
    /// absent has none. Does nothing for a btree.
    #[inline]
    pub fn load_inline_extents(&mut self, kind: ForkKind, geometry: &Geometry) -> Result<(), Damage> {
        if self.loaded(kind).is_some() {
            return Ok(());
        }
        self.decode_inline_extents(kind, geometry)
    }

    fn decode_inline_extents(&mut self, kind: ForkKind, geometry: &Geometry) -> Result<(), Damage> {
        let list = match self.dinode().fork(kind, geometry)? {
            Some(Fork::Extents(raw)) => {
                verify_extents(raw, geometry)?;
                ExtentList::from_sorted(raw.iter().map(Extent::decode).collect())
            }
            Some(Fork::Btree(_)) => return Ok(()),
            _ => ExtentList::default(),
        };
        self.set_list(kind, Some(list));
        Ok(())
    }

    /// The most extents that fit a fork's area.
    pub fn inline_extents_max(&self, kind: ForkKind) -> usize {
        self.fork_capacity(kind) / RawExtent::SIZE
    }

    /// Writes the extents from index `first` on to the fork's area and marks them. They must fit.
    pub fn store_inline_extents(&mut self, kind: ForkKind, first: usize) {
        let Some(slot) = self.extents.get_mut(index(kind)) else { return };
        let Some(loaded) = slot.take() else { return };
        let area = self.fork_bytes_mut(kind);
        let extents = loaded.whole().map_or(&[][..], ExtentList::as_slice);
        debug_assert!(extents.len() * RawExtent::SIZE <= area.len());
        for (target, extent) in area.chunks_exact_mut(RawExtent::SIZE).zip(extents).skip(first) {
            target.copy_from_slice(extent.encode().as_bytes());
        }
        self.recent_buffers = None;
        self.set_loaded(kind, Some(loaded));
        self.mark(match kind {
            ForkKind::Data => fields::DATA_EXTENTS,
            ForkKind::Attr => fields::ATTR_EXTENTS,
        });
    }
}
