//! A parent's keys after a child has changed.

use zerocopy::IntoBytes;

use super::cursor::{Key, Record, Step};
use super::page::{self, Shape};
use super::{Cursor, Kind, Tree};
use log::engine::Transaction;

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
