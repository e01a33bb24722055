//! Updating parent keys after a child has changed.

use zerocopy::IntoBytes;

use super::block::{self, BlockLayout};
use super::cursor::{KeyOf, PathLevel, RecordOf};
use super::{BtreeCursor, BtreeOps, BtreeType};
use journal::engine::Transaction;

impl<T: BtreeOps> BtreeCursor<T> {
    /// The key of a block; `None` if the block is empty.
    pub(super) fn key_of(&self, tx: &Transaction, level: usize, step: PathLevel) -> Option<KeyOf<T>> {
        let bytes = match step.id {
            Some(id) => tx.bytes(id),
            None => self.tree.inline(),
        };
        let layout = self.layout_of_level(level);
        if level == 0 { key_of_leaf::<T>(&layout, bytes) } else { key_of_node::<T>(&layout, bytes) }
    }

    /// Updates the keys on the path above a changed block, up to the first that is correct.
    pub(super) fn update_keys(&mut self, tx: &mut Transaction, level: usize) {
        for level in level..self.levels.saturating_sub(1) {
            // Without overlapping records, the key is that of the first record.
            let Some(key) = self.key_of(tx, level, self.path_level(level)) else { return };
            if !self.set_key(tx, level + 1, self.path_level(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// [`update_keys`](Self::update_keys) after a record was added to the open leaf, or became larger. In an
    /// overlapping tree this avoids scanning all entries for the highest key: no high key below has become lower.
    pub(super) fn grow_keys(&mut self, tx: &mut Transaction, new: &KeyOf<T>) {
        for level in 0..self.levels.saturating_sub(1) {
            let Some(key) = self.key_with(tx, level, new) else { return };
            if !self.set_key(tx, level + 1, self.path_level(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// [`update_keys`](Self::update_keys) after a record was removed from the open leaf, or became smaller. It scans
    /// all entries only if the record may have had the highest key.
    pub(super) fn shrink_keys(&mut self, tx: &mut Transaction, old: &KeyOf<T>) {
        for level in 0..self.levels.saturating_sub(1) {
            let Some(parent) = self.parent_key(tx, level) else { return };
            let mut highest = *old;
            T::Type::widen_key(&mut highest, &parent);
            if T::Type::OVERLAPPING && highest.as_bytes() == old.as_bytes() {
                return self.update_keys(tx, level);
            }
            let Some(key) = self.key_with(tx, level, &parent) else { return };
            if !self.set_key(tx, level + 1, self.path_level(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// The parent's key for the open block of a level.
    fn parent_key(&self, tx: &Transaction, level: usize) -> Option<KeyOf<T>> {
        let keys = self.layout(level + 1).view::<KeyOf<T>>(self.bytes(tx, level + 1));
        keys.get(self.path_level(level + 1).slot).copied()
    }

    /// The key of the open block's first entry, with a high key that covers the parent's current key and `other`.
    fn key_with(&self, tx: &Transaction, level: usize, other: &KeyOf<T>) -> Option<KeyOf<T>> {
        let (layout, bytes) = (self.layout(level), self.bytes(tx, level));
        let mut key = match level {
            0 => T::Type::init_key(layout.view::<RecordOf<T>>(bytes).first()?),
            _ => *layout.view::<KeyOf<T>>(bytes).first()?,
        };
        if T::Type::OVERLAPPING {
            T::Type::widen_key(&mut key, &self.parent_key(tx, level)?);
            T::Type::widen_key(&mut key, other);
        }
        Some(key)
    }

    /// Stores a key in the open block of a level; `false` if it is unchanged.
    pub(super) fn set_key(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        slot: usize,
        key: &KeyOf<T>,
    ) -> bool {
        let layout = self.layout(level);
        let old = self.bytes(tx, level).get(layout.entries(slot..slot + 1));
        if old == Some(key.as_bytes()) {
            return false;
        }
        self.edit(tx, level, |edit, layout| block::replace(edit, layout, slot, key.as_bytes()));
        true
    }
}

fn key_of_leaf<T: BtreeOps>(layout: &BlockLayout, bytes: &[u8]) -> Option<KeyOf<T>> {
    let (first, rest) = layout.view::<RecordOf<T>>(bytes).split_first()?;
    let mut key = T::Type::init_key(first);
    if T::Type::OVERLAPPING {
        rest.iter().for_each(|record| T::Type::widen_key(&mut key, &T::Type::init_key(record)));
    }
    Some(key)
}

fn key_of_node<T: BtreeOps>(layout: &BlockLayout, bytes: &[u8]) -> Option<KeyOf<T>> {
    let (first, rest) = layout.view::<KeyOf<T>>(bytes).split_first()?;
    let mut key = *first;
    if T::Type::OVERLAPPING {
        rest.iter().for_each(|other| T::Type::widen_key(&mut key, other));
    }
    Some(key)
}
