//! A parent's keys after a child has changed.

use zerocopy::IntoBytes;

use super::cursor::{Key, Record, Step};
use super::page::{self, Shape};
use super::{Cursor, Kind, Tree};
use journal::engine::Transaction;

impl<T: Tree> Cursor<T> {
    /// What a parent must say of a block; `None` of an empty one.
    pub(super) fn key_of(&self, tx: &Transaction, level: usize, step: Step) -> Option<Key<T>> {
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
    pub(super) fn grow_keys(&mut self, tx: &mut Transaction, new: &Key<T>) {
        for level in 0..self.levels.saturating_sub(1) {
            let Some(key) = self.key_with(tx, level, new) else { return };
            if !self.set_key(tx, level + 1, self.step(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// The same after a record went from the open leaf, or shrank there. Only where it may have been the highest, all
    /// entries are looked through.
    pub(super) fn shrink_keys(&mut self, tx: &mut Transaction, old: &Key<T>) {
        for level in 0..self.levels.saturating_sub(1) {
            let Some(parent) = self.parent_key(tx, level) else { return };
            let mut highest = *old;
            T::Kind::widen(&mut highest, &parent);
            if T::Kind::OVERLAPPING && highest.as_bytes() == old.as_bytes() {
                return self.update_keys(tx, level);
            }
            let Some(key) = self.key_with(tx, level, &parent) else { return };
            if !self.set_key(tx, level + 1, self.step(level + 1).slot, &key) {
                return;
            }
        }
    }

    /// What the parent says of the open block of a level.
    fn parent_key(&self, tx: &Transaction, level: usize) -> Option<Key<T>> {
        let keys = self.shape(level + 1).view::<Key<T>>(self.bytes(tx, level + 1));
        keys.get(self.step(level + 1).slot).copied()
    }

    /// The key of the open block's first entry, as wide as the parent says already, and as `other` is.
    fn key_with(&self, tx: &Transaction, level: usize, other: &Key<T>) -> Option<Key<T>> {
        let (shape, bytes) = (self.shape(level), self.bytes(tx, level));
        let mut key = match level {
            0 => T::Kind::key(shape.view::<Record<T>>(bytes).first()?),
            _ => *shape.view::<Key<T>>(bytes).first()?,
        };
        if T::Kind::OVERLAPPING {
            T::Kind::widen(&mut key, &self.parent_key(tx, level)?);
            T::Kind::widen(&mut key, other);
        }
        Some(key)
    }

    /// Stores a key in the open block of a level; `false` where it was there already.
    pub(super) fn set_key(&mut self, tx: &mut Transaction, level: usize, slot: usize, key: &Key<T>) -> bool {
        let shape = self.shape(level);
        let old = self.bytes(tx, level).get(shape.entries(slot..slot + 1));
        if old == Some(key.as_bytes()) {
            return false;
        }
        self.edit(tx, level, |edit, shape| page::replace(edit, shape, slot, key.as_bytes()));
        true
    }
}

fn key_of_leaf<T: Tree>(shape: &Shape, bytes: &[u8]) -> Option<Key<T>> {
    let (first, rest) = shape.view::<Record<T>>(bytes).split_first()?;
    let mut key = T::Kind::key(first);
    if T::Kind::OVERLAPPING {
        rest.iter().for_each(|record| T::Kind::widen(&mut key, &T::Kind::key(record)));
    }
    Some(key)
}

fn key_of_node<T: Tree>(shape: &Shape, bytes: &[u8]) -> Option<Key<T>> {
    let (first, rest) = shape.view::<Key<T>>(bytes).split_first()?;
    let mut key = *first;
    if T::Kind::OVERLAPPING {
        rest.iter().for_each(|other| T::Kind::widen(&mut key, other));
    }
    Some(key)
}
