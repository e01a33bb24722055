//! Deletion: rebalancing with a sibling, merging, and removing a root level.

use zerocopy::IntoBytes;

use super::block::{self, BlockLayout, Side};
use super::blocks::edit_pair;
use super::cursor::{Descent, PathLevel, PtrOf, Siblings};
use super::{BtreeCursor, BtreeOps, BtreeType, RawPointer};
use error::Result;
use journal::engine::Transaction;

impl<T: BtreeOps> BtreeCursor<T> {
    /// Deletes the record at the position and leaves the cursor in the gap: `next` moves to the record after it.
    ///
    /// # Errors
    /// Damage: the cursor is not on a record.
    pub fn delete(&mut self, tx: &mut Transaction) -> Result<()> {
        let Some(record) = self.get(tx) else {
            return Err(self.damage(self.path_level(0).block, "record", "a record to delete", "none"));
        };
        let moved = self.remove_entry(tx, 0).inspect_err(|_| self.levels = 0)?;
        if moved {
            self.seek(tx, Descent::To(T::Type::record_lookup_key(&record)))?;
        }
        self.gap = true;
        Ok(())
    }

    /// Removes the entry at the slot of a level's open block. Returns whether entries or blocks moved: then the path
    /// leads elsewhere.
    fn remove_entry(&mut self, tx: &mut Transaction, level: usize) -> Result<bool> {
        let slot = self.path_level(level).slot;
        let old = self.records(tx).get(slot).map(T::Type::init_key).filter(|_| level == 0);
        self.edit(tx, level, |edit, layout| block::remove(edit, layout, slot));
        let count = self.count(tx, level);
        if level + 1 == self.levels {
            return self.lower_root(tx, level, count);
        }
        if count >= self.layout(level).min() {
            match old {
                Some(old) => self.shrink_keys(tx, &old),
                None => self.update_keys(tx, level),
            }
            return Ok(false);
        }
        for side in [Side::Left, Side::Right] {
            if let Some(pair) = self.siblings(tx, level, side)? {
                self.rebalance(tx, &pair)?;
                return Ok(true);
            }
        }
        // Only a root in an inode may have a single child. (Otherwise the tree was damaged before: it is no worse now.)
        self.update_keys(tx, level);
        if self.path_level(level + 1).id.is_none() { self.lower_root(tx, level + 1, 1) } else { Ok(false) }
    }

    /// Balances two siblings of which one is less than half full: divides the entries evenly, or merges the blocks.
    fn rebalance(&mut self, tx: &mut Transaction, pair: &Siblings) -> Result<()> {
        let (left, right, layout) = (pair.left, pair.right, self.layout_of_level(pair.level));
        let counts = (layout.count(self.bytes_of(tx, left)), layout.count(self.bytes_of(tx, right)));
        let total = counts.0 + counts.1;
        if total >= 2 * layout.min() && total > layout.min() {
            let half = total / 2;
            edit_pair(tx, left, right, |a, b| match counts.0.checked_sub(half) {
                Some(many) => block::move_right(a, b, &layout, many),
                None => block::move_left(a, b, &layout, half - counts.0),
            });
            self.open_sibling(tx, pair, Side::Left);
            self.open_sibling(tx, pair, Side::Right);
            return Ok(());
        }
        self.merge(tx, pair, &layout)
    }

    /// Moves all entries of the right block to the left one, which has space for them, and frees the right one.
    fn merge(&mut self, tx: &mut Transaction, pair: &Siblings, layout: &BlockLayout) -> Result<()> {
        let Siblings { level, left, right, parent_slot } = *pair;
        let far = block::sibling::<PtrOf<T>>(self.bytes_of(tx, right), Side::Right);
        let far = far.map_or(PtrOf::<T>::NULL, RawPointer::number);
        if far != PtrOf::<T>::NULL {
            let far = PathLevel { id: Some(self.read(tx, level, far)?), block: far, slot: 0 };
            self.check_siblings(tx, right, far)?;
            let pointer = PtrOf::<T>::of(left.block);
            self.edit_block(tx, far.id, |edit| block::set_sibling(edit, Side::Left, pointer.as_bytes()));
        }
        let pointer = PtrOf::<T>::of(far);
        edit_pair(tx, left, right, |a, b| {
            block::append_all(a, b, layout);
            block::set_sibling(a, Side::Right, pointer.as_bytes());
        });
        self.open_sibling(tx, pair, Side::Left);
        self.release_block(tx, right)?;
        self.set_slot(level + 1, parent_slot + 1);
        self.remove_entry(tx, level + 1)?;
        Ok(())
    }

    /// Lowers the tree after the root lost an entry and has `count` left: a single child becomes the root.
    fn lower_root(&mut self, tx: &mut Transaction, level: usize, count: usize) -> Result<bool> {
        if level == 0 || count > 1 {
            return Ok(false);
        }
        let root = self.path_level(level);
        let Some(child) = self.child(tx, level, 0) else {
            return Err(self.damage(root.block, "numrecs", "at least 1", count));
        };
        if root.id.is_some() {
            self.levels -= 1;
            self.tree.set_root(tx, child, self.levels as u32);
            self.release_block(tx, root)?;
            return Ok(true);
        }
        // A root in an inode cannot hold records: the fork changes to a list of extents instead.
        if level == 1 {
            return Ok(false);
        }
        let child = PathLevel { id: Some(self.read(tx, level - 1, child)?), block: child, slot: 0 };
        let (from, to) = (self.layout_of_level(level - 1), self.layout(level));
        let Some(id) = child.id.filter(|id| from.count(tx.bytes(*id)) <= to.max()) else { return Ok(false) };
        let bytes = tx.bytes(id);
        self.edit_inline(|edit| {
            block::set_inline_level(edit, level - 1);
            block::copy_all(bytes, &from, edit, &to);
        });
        self.levels -= 1;
        self.set_path_level(level - 1, PathLevel { id: None, block: 0, slot: 0 });
        self.release_block(tx, child)?;
        Ok(true)
    }

    /// Frees a block that is no longer in the tree.
    fn release_block(&mut self, tx: &mut Transaction, step: PathLevel) -> Result<()> {
        self.tree.free_block(tx, step.block)?;
        if let Some(id) = step.id {
            tx.invalidate(id);
        }
        Ok(())
    }
}
