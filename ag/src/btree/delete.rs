//! Deletion: evening out with a sibling, joining, and a lower root.

use zerocopy::IntoBytes;

use super::block::{self, BlockLayout, Side};
use super::blocks::pair;
use super::cursor::{Descent, PathLevel, PtrOf};
use super::{BtreeCursor, BtreeOps, BtreeType, RawPointer};
use journal::engine::{Error, Transaction};

impl<T: BtreeOps> BtreeCursor<T> {
    /// Takes out the record at the position, and leaves the cursor in the gap: `next` goes to the record that stood
    /// behind it.
    ///
    /// # Errors
    /// Damage, where the cursor is not on a record.
    pub fn delete(&mut self, tx: &mut Transaction) -> Result<(), Error> {
        let Some(record) = self.get(tx) else {
            return Err(self.damage(self.step(0).block, "record", "a record to delete", "none"));
        };
        let moved = self.remove_entry(tx, 0).inspect_err(|_| self.levels = 0)?;
        if moved {
            self.seek(tx, Descent::To(T::Type::of_record(&record)))?;
        }
        self.gap = true;
        Ok(())
    }

    /// Takes the entry at the slot of a level's open block out. Returns whether entries or blocks moved, so that the
    /// path leads elsewhere.
    fn remove_entry(&mut self, tx: &mut Transaction, level: usize) -> Result<bool, Error> {
        let slot = self.step(level).slot;
        let old = self.records(tx).get(slot).map(T::Type::key).filter(|_| level == 0);
        self.edit(tx, level, |edit, shape| block::remove(edit, shape, slot));
        let count = self.count(tx, level);
        if level + 1 == self.levels {
            return self.lower_root(tx, level, count);
        }
        if count >= self.shape(level).min() {
            match old {
                Some(old) => self.shrink_keys(tx, &old),
                None => self.update_keys(tx, level),
            }
            return Ok(false);
        }
        let parent_slot = self.step(level + 1).slot;
        let own = self.step(level);
        if let Some(left) = self.sibling(tx, level, Side::Left)? {
            return self.even_out(tx, level, (left, own), parent_slot - 1);
        }
        if let Some(right) = self.sibling(tx, level, Side::Right)? {
            return self.even_out(tx, level, (own, right), parent_slot);
        }
        // A single child, which only a root in an inode may have. (Or the tree was damaged: it is no worse now.)
        self.update_keys(tx, level);
        if self.step(level + 1).id.is_none() { self.lower_root(tx, level + 1, 1) } else { Ok(false) }
    }

    /// BufferEdit of two siblings is less than half full: they share evenly, or join.
    fn even_out(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        (left, right): (PathLevel, PathLevel),
        left_slot: usize,
    ) -> Result<bool, Error> {
        let shape = self.shape_of_block(level);
        let counts = (shape.count(self.bytes_of(tx, left)), shape.count(self.bytes_of(tx, right)));
        let total = counts.0 + counts.1;
        if total >= 2 * shape.min() && total > shape.min() {
            let half = total / 2;
            pair(tx, left, right, |a, b| match counts.0.checked_sub(half) {
                Some(many) => block::move_right(a, b, &shape, many),
                None => block::move_left(a, b, &shape, half - counts.0),
            });
            for (step, slot) in [(left, left_slot), (right, left_slot + 1)] {
                self.set_step(level, step);
                self.set_slot(level + 1, slot);
                self.update_keys(tx, level);
            }
            return Ok(true);
        }
        self.join(tx, level, (left, right), left_slot, &shape)?;
        Ok(true)
    }

    /// Moves all of the right block to the left one, which has room, and frees the right one.
    fn join(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        (left, right): (PathLevel, PathLevel),
        left_slot: usize,
        shape: &BlockLayout,
    ) -> Result<(), Error> {
        let far = block::sibling::<PtrOf<T>>(self.bytes_of(tx, right), Side::Right);
        let far = far.map_or(PtrOf::<T>::NULL, RawPointer::number);
        if far != PtrOf::<T>::NULL {
            let far = PathLevel { id: Some(self.read(tx, level, far)?), block: far, slot: 0 };
            self.check_siblings(tx, right, far)?;
            let pointer = PtrOf::<T>::of(left.block);
            self.edit_block(tx, far.id, |edit| block::set_sibling(edit, Side::Left, pointer.as_bytes()));
        }
        let pointer = PtrOf::<T>::of(far);
        pair(tx, left, right, |a, b| {
            block::append_all(a, b, shape);
            block::set_sibling(a, Side::Right, pointer.as_bytes());
        });
        self.set_step(level, left);
        self.set_slot(level + 1, left_slot);
        self.update_keys(tx, level);
        self.drop_block(tx, right)?;
        self.set_slot(level + 1, left_slot + 1);
        self.remove_entry(tx, level + 1)?;
        Ok(())
    }

    /// After the root has lost an entry and has `count` left: where a single child is left, it becomes the root.
    fn lower_root(&mut self, tx: &mut Transaction, level: usize, count: usize) -> Result<bool, Error> {
        if level == 0 || count > 1 {
            return Ok(false);
        }
        let root = self.step(level);
        let Some(child) = self.child(tx, level, 0) else {
            return Err(self.damage(root.block, "numrecs", "at least 1", count));
        };
        if root.id.is_some() {
            self.levels -= 1;
            self.tree.set_root(tx, child, self.levels as u32);
            self.drop_block(tx, root)?;
            return Ok(true);
        }
        // A leaf's records do not fit a root of keys: the fork goes back to a list of extents instead.
        if level == 1 {
            return Ok(false);
        }
        let child = PathLevel { id: Some(self.read(tx, level - 1, child)?), block: child, slot: 0 };
        let (from, to) = (self.shape_of_block(level - 1), self.shape(level));
        let Some(id) = child.id.filter(|id| from.count(tx.bytes(*id)) <= to.max()) else { return Ok(false) };
        let bytes = tx.bytes(id);
        self.edit_inline(|edit| {
            block::set_inline_level(edit, level - 1);
            block::copy_all(bytes, &from, edit, &to);
        });
        self.levels -= 1;
        self.set_step(level - 1, PathLevel { id: None, block: 0, slot: 0 });
        self.drop_block(tx, child)?;
        Ok(true)
    }

    /// Gives a block back that the tree no longer has.
    fn drop_block(&mut self, tx: &mut Transaction, step: PathLevel) -> Result<(), Error> {
        self.tree.free_block(tx, step.block)?;
        if let Some(id) = step.id {
            tx.invalidate(id);
        }
        Ok(())
    }
}
