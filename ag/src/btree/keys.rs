//! A parent's keys after a child has changed.

use zerocopy::IntoBytes;

use super::block::{self, BlockLayout};
use super::cursor::{KeyOf, PathLevel, RecordOf};
use super::{BtreeCursor, BtreeOps, BtreeType};
use journal::engine::Transaction;

impl<T: BtreeOps> BtreeCursor<T> {
    /// What a parent must say of a block; `None` of an empty one.
    pub(super) fn key_of(&self, tx: &Transaction, level: usize, step: PathLevel) -> Option<KeyOf<T>> {
        let bytes = match step.id {
            Some(id) => tx.bytes(id),
            None => self.tree.inline(),
        };
        let shape = self.shape_of_block(level);
        if level == 0 { key_of_leaf::<T>(&shape, bytes) } else { key_of_node::<T>(&shape, bytes) }
    }

    /// Corrects the keys on the path above a block that has changed, up to the first that is right.
    pub(super) fn update_keys(&mut self, tx: &mut Transaction, level: usize) {
        for level in level..self.levels.saturating_sub(1) {
            // The key is that of the first record, where records do not overlap.
            let Some(key) = self.key_of(tx, level, self.step(level)) else { return };
            if !self.set_key(tx, level + 1, self.step(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// The same after a record came to the open leaf, or grew there. Where records overlap, this saves looking through
    /// all entries of a block for the highest: nothing below has become lower.
    pub(super) fn grow_keys(&mut self, tx: &mut Transaction, new: &KeyOf<T>) {
        for level in 0..self.levels.saturating_sub(1) {
            let Some(key) = self.key_with(tx, level, new) else { return };
            if !self.set_key(tx, level + 1, self.step(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// The same after a record went from the open leaf, or shrank there. Only where it may have been the highest, all
    /// entries are looked through.
    pub(super) fn shrink_keys(&mut self, tx: &mut Transaction, old: &KeyOf<T>) {
        for level in 0..self.levels.saturating_sub(1) {
            let Some(parent) = self.parent_key(tx, level) else { return };
            let mut highest = *old;
            T::Type::widen(&mut highest, &parent);
            if T::Type::OVERLAPPING && highest.as_bytes() == old.as_bytes() {
                return self.update_keys(tx, level);
            }
            let Some(key) = self.key_with(tx, level, &parent) else { return };
            if !self.set_key(tx, level + 1, self.step(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// What the parent says of the open block of a level.
    fn parent_key(&self, tx: &Transaction, level: usize) -> Option<KeyOf<T>> {
        let keys = self.shape(level + 1).view::<KeyOf<T>>(self.bytes(tx, level + 1));
        keys.get(self.step(level + 1).slot).copied()
    }

    /// The key of the open block's first entry, as wide as the parent says already, and as `other` is.
    fn key_with(&self, tx: &Transaction, level: usize, other: &KeyOf<T>) -> Option<KeyOf<T>> {
        let (shape, bytes) = (self.shape(level), self.bytes(tx, level));
        let mut key = match level {
            0 => T::Type::key(shape.view::<RecordOf<T>>(bytes).first()?),
            _ => *shape.view::<KeyOf<T>>(bytes).first()?,
        };
        if T::Type::OVERLAPPING {
            T::Type::widen(&mut key, &self.parent_key(tx, level)?);
            T::Type::widen(&mut key, other);
        }
        Some(key)
    }

    /// Stores a key in the open block of a level; `false` where it was there already.
    pub(super) fn set_key(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        slot: usize,
        key: &KeyOf<T>,
    ) -> bool {
        let shape = self.shape(level);
        let old = self.bytes(tx, level).get(shape.entries(slot..slot + 1));
        if old == Some(key.as_bytes()) {
            return false;
        }
        self.edit(tx, level, |edit, shape| block::replace(edit, shape, slot, key.as_bytes()));
        true
    }
}

fn key_of_leaf<T: BtreeOps>(shape: &BlockLayout, bytes: &[u8]) -> Option<KeyOf<T>> {
    let (first, rest) = shape.view::<RecordOf<T>>(bytes).split_first()?;
    let mut key = T::Type::key(first);
    if T::Type::OVERLAPPING {
        rest.iter().for_each(|record| T::Type::widen(&mut key, &T::Type::key(record)));
    }
    Some(key)
}

fn key_of_node<T: BtreeOps>(shape: &BlockLayout, bytes: &[u8]) -> Option<KeyOf<T>> {
    let (first, rest) = shape.view::<KeyOf<T>>(bytes).split_first()?;
    let mut key = *first;
    if T::Type::OVERLAPPING {
        rest.iter().for_each(|other| T::Type::widen(&mut key, other));
    }
    Some(key)
}
