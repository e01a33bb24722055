//! Where a record was last found, to update it without a lookup.
//!
//! # Invariants
//! A hint is checked before use: records of a tree are unique, so a leaf of this tree with an equal record at the slot
//! is the right one. The buffer of a leaf that left the tree is no longer valid.

use std::sync::{Arc, Weak};

use format::btree::{Btree, BtreeHeader};
use format::ondisk::OnDisk;
use journal::engine::{Buffer, Transaction};
use zerocopy::IntoBytes;

use super::block::BlockLayout;
use super::cursor::RecordOf;
use super::{BtreeCursor, BtreeOps, BtreeOwner, BtreeType};

/// Location of a record. It does not keep the buffer in memory.
#[derive(Clone, Debug, Default)]
pub struct RecordHint {
    leaf: Weak<Buffer>,
    slot: usize,
}

impl<T: BtreeOps> BtreeCursor<T> {
    /// The location of the record at the position; `None` in a gap.
    pub fn hint(&self, tx: &mut Transaction) -> Option<RecordHint> {
        let step = self.path_level(0);
        let leaf = step.id.filter(|_| self.levels > 0 && !self.gap)?;
        Some(RecordHint { leaf: Arc::downgrade(tx.buffer_mut(leaf).buffer()), slot: step.slot })
    }
}

impl RecordHint {
    /// Replaces `old` by `new`, which has the same lookup key, and remembers its slot. Returns `false`, with nothing
    /// changed, if this leaf does not hold `old`: the caller must look it up.
    pub fn update<T: BtreeOps>(
        &mut self,
        tree: &T,
        tx: &mut Transaction,
        old: &RecordOf<T>,
        new: &RecordOf<T>,
    ) -> bool {
        debug_assert!(
            !T::Type::OVERLAPPING && T::Type::record_lookup_key(old) == T::Type::record_lookup_key(new)
        );
        let Some(id) = self.leaf.upgrade().and_then(|leaf| tx.rejoin(leaf)) else { return false };
        let (bytes, layout) = (tx.bytes(id), BlockLayout::leaf::<T::Type>(tree.geometry()));
        let owner = match tree.owner() {
            BtreeOwner::Ag(ag) => ag.get().into(),
            BtreeOwner::Inode(ino) => ino.get(),
        };
        let header = <T::Type as Btree>::Header::view(bytes);
        let is_leaf = header.is_some_and(|header| {
            (header.magic(), header.level(), header.owner()) == (T::Type::MAGIC, 0, owner)
        });
        let records = layout.view::<RecordOf<T>>(bytes);
        let is_it = |slot: &usize| records.get(*slot).is_some_and(|found| found.as_bytes() == old.as_bytes());
        let at = T::Type::record_lookup_key(old);
        let in_order = || records.partition_point(|record| T::Type::record_lookup_key(record) < at);
        let found = Some(self.slot).filter(is_it).or_else(|| Some(in_order()).filter(is_it));
        let Some(slot) = found.filter(|_| is_leaf) else {
            tx.release(id);
            return false;
        };
        self.slot = slot;
        tx.bytes_mut(id, layout.entries(slot..slot + 1)).copy_from_slice(new.as_bytes());
        true
    }
}
