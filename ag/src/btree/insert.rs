//! Insertion: shifting entries to a sibling, splitting, and a new root.

use zerocopy::IntoBytes;

use format::btree::MAX_LEVELS;

use super::block::{self, BlockEntry, Side};
use super::blocks::pair;
use super::cursor::{Descent, KeyOf, LookupKeyOf, PathLevel, PtrOf, RecordOf};
use super::{BtreeCursor, BtreeOps, BtreeType, RawPointer};
use journal::engine::{Error, Transaction};

impl<T: BtreeOps> BtreeCursor<T> {
    /// Inserts a record where it belongs, and goes there. No search is needed where the cursor is in the gap that a
    /// lookup has left it in.
    ///
    /// # Errors
    /// Damage, where there is an equal record. No space for a new block.
    pub fn insert(&mut self, tx: &mut Transaction, record: &RecordOf<T>) -> Result<(), Error> {
        let at = T::Type::of_record(record);
        if !self.is_gap_for(tx, at) && self.lookup_eq(tx, at)?.is_some() {
            return Err(self.out_of_order(at));
        }
        let split = self.insert_entry(tx, 0, BlockEntry { body: record.as_bytes(), pointer: &[] });
        let split = split.inspect_err(|_| self.levels = 0)?;
        if split {
            self.seek(tx, Descent::To(at))?;
        }
        self.gap = false;
        Ok(())
    }

    /// The most blocks that an insertion takes where a lookup has led: one for each full block on the way up from the
    /// leaf, and a root above a full one.
    pub fn blocks_to_insert(&self, tx: &Transaction) -> u32 {
        let full =
            (0..self.levels).take_while(|level| self.count(tx, *level) >= self.shape(*level).max()).count();
        (full + usize::from(full == self.levels)) as u32 // there are few levels
    }

    /// Whether the cursor is where a record belongs, as far as its leaf tells.
    fn is_gap_for(&self, tx: &Transaction, at: LookupKeyOf<T>) -> bool {
        if !self.gap || self.levels == 0 {
            return false;
        }
        let (slot, records) = (self.step(0).slot, self.records(tx));
        let before = slot.checked_sub(1).and_then(|before| records.get(before));
        before.is_none_or(|record| T::Type::of_record(record) < at)
            && records.get(slot).is_none_or(|record| at < T::Type::of_record(record))
    }

    /// Inserts an entry at the slot of a level's open block. Returns whether blocks were split, so that the path is
    /// no longer that of the entry.
    fn insert_entry(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        entry: BlockEntry<'_>,
    ) -> Result<bool, Error> {
        let is_full = |cursor: &Self, tx: &Transaction| cursor.count(tx, level) >= cursor.shape(level).max();
        let mut split = false;
        if is_full(self, tx) && self.step(level).id.is_none() {
            self.push_root_down(tx, level)?;
            split = true;
        }
        if !is_full(self, tx) || self.shift(tx, level)? {
            let step = self.step(level);
            self.put_entry(tx, level, step, entry);
            match self.records(tx).get(step.slot).map(T::Type::key) {
                Some(key) if level == 0 => self.grow_keys(tx, &key),
                _ => self.update_keys(tx, level),
            }
            return Ok(split);
        }
        let right = self.split(tx, level)?;
        let (left, kept) = (self.step(level), self.count(tx, level));
        match left.slot.checked_sub(kept) {
            // An entry between both halves goes to the smaller one, which is the right one.
            Some(slot) => self.put_entry(tx, level, PathLevel { slot, ..right }, entry),
            None => self.put_entry(tx, level, left, entry),
        }
        let Some(key) = self.key_of(tx, level, right) else {
            return Err(self.damage(right.block, "numrecs", "at least 1", 0));
        };
        if level + 1 == self.levels {
            self.grow_root(tx, level, left, (right, &key))?;
            return Ok(true);
        }
        self.update_keys(tx, level);
        let pointer = PtrOf::<T>::of(right.block);
        self.set_slot(level + 1, self.step(level + 1).slot + 1);
        self.insert_entry(tx, level + 1, BlockEntry { body: key.as_bytes(), pointer: pointer.as_bytes() })?;
        Ok(true)
    }

    fn put_entry(&mut self, tx: &mut Transaction, level: usize, step: PathLevel, entry: BlockEntry<'_>) {
        let shape = self.shape(level);
        self.edit_block(tx, step.id, |edit| block::insert(edit, &shape, step.slot, entry));
    }

    /// Makes room in a full block by moving entries to a sibling under the same parent, and moves the path to where
    /// the new entry belongs. `false` where no sibling has room.
    ///
    /// Half of the sibling's room is filled, so that not every insertion moves entries; all of it where the new entry
    /// is the last, so that insertions in ascending order leave full blocks behind.
    fn shift(&mut self, tx: &mut Transaction, level: usize) -> Result<bool, Error> {
        if level + 1 >= self.levels {
            return Ok(false);
        }
        let (full, shape) = (self.step(level), self.shape(level));
        let (slot, max) = (full.slot, shape.max());
        let parent_slot = self.step(level + 1).slot;
        if let Some(right) = self.sibling(tx, level, Side::Right)? {
            let there = shape.count(self.bytes_of(tx, right));
            if there < max {
                let moved = if slot == max { 0 } else { (max - there).div_ceil(2) };
                pair(tx, full, right, |a, b| block::move_right(a, b, &shape, moved));
                let stays = slot < max - moved || (slot == max - moved && moved > 0);
                let right_slot = slot.saturating_sub(max - moved);
                self.settle(tx, level, (full, slot), (right, right_slot), parent_slot, stays);
                return Ok(true);
            }
        }
        if let Some(left) = self.sibling(tx, level, Side::Left)? {
            let there = shape.count(self.bytes_of(tx, left));
            if there < max {
                let room = max - there;
                let moved = match slot {
                    0 => 0,
                    slot if slot == max => room,
                    _ => room.div_ceil(2),
                };
                pair(tx, left, full, |a, b| block::move_left(a, b, &shape, moved));
                let stays_left = slot < moved || moved == 0;
                let slots = (there + slot.min(moved), slot.saturating_sub(moved));
                self.settle(tx, level, (left, slots.0), (full, slots.1), parent_slot - 1, stays_left);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// After entries went from one neighbour to the other: corrects the parent's keys of both, and opens the one that
    /// is wanted at its slot.
    fn settle(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        (left, left_slot): (PathLevel, usize),
        (right, right_slot): (PathLevel, usize),
        parent_slot: usize,
        want_left: bool,
    ) {
        let mut open = |cursor: &mut Self, step: PathLevel, slot, parent_slot| {
            cursor.set_step(level, PathLevel { slot, ..step });
            cursor.set_slot(level + 1, parent_slot);
            cursor.update_keys(tx, level);
        };
        if want_left {
            open(self, right, right_slot, parent_slot + 1);
            open(self, left, left_slot, parent_slot);
        } else {
            open(self, left, left_slot, parent_slot);
            open(self, right, right_slot, parent_slot + 1);
        }
    }

    /// Moves the upper half of a full block to a new right sibling, which the parent does not know yet. The new entry
    /// belongs behind what is left, or within: then in the new block there are more entries.
    fn split(&mut self, tx: &mut Transaction, level: usize) -> Result<PathLevel, Error> {
        let (left, shape) = (self.step(level), self.shape(level));
        let far = block::sibling::<PtrOf<T>>(self.bytes(tx, level), Side::Right).map(RawPointer::number);
        let far = match far.filter(|far| *far != PtrOf::<T>::NULL) {
            None => None,
            Some(block) => {
                let far = PathLevel { id: Some(self.read(tx, level, block)?), block, slot: 0 };
                self.check_siblings(tx, left, far)?;
                Some(far)
            }
        };
        let right = self.new_block(tx, level, left.block)?;
        // The half that takes the new entry is the smaller one.
        let max = shape.max();
        let keep = if left.slot <= max / 2 { max / 2 } else { max - max / 2 };
        pair(tx, left, right, |a, b| {
            block::move_right(a, b, &shape, max - keep);
            block::set_sibling(b, Side::Left, PtrOf::<T>::of(left.block).as_bytes());
            let behind = far.map_or(PtrOf::<T>::NULL, |far| far.block);
            block::set_sibling(b, Side::Right, PtrOf::<T>::of(behind).as_bytes());
            block::set_sibling(a, Side::Right, PtrOf::<T>::of(right.block).as_bytes());
        });
        if let Some(far) = far {
            let pointer = PtrOf::<T>::of(right.block);
            self.edit_block(tx, far.id, |edit| block::set_sibling(edit, Side::Left, pointer.as_bytes()));
        }
        Ok(right)
    }

    /// A new root above a root that was split.
    fn grow_root(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        left: PathLevel,
        (right, right_key): (PathLevel, &KeyOf<T>),
    ) -> Result<(), Error> {
        let Some(left_key) = self.key_of(tx, level, left) else {
            return Err(self.damage(left.block, "numrecs", "at least 1", 0));
        };
        self.room_for_level()?;
        let root = self.new_block(tx, level + 1, left.block)?;
        let shape = self.shape_of_block(level + 1);
        let pointers = (PtrOf::<T>::of(left.block), PtrOf::<T>::of(right.block));
        self.edit_block(tx, root.id, |edit| {
            let (left, right) = (left_key.as_bytes(), right_key.as_bytes());
            block::insert(edit, &shape, 0, BlockEntry { body: left, pointer: pointers.0.as_bytes() });
            block::insert(edit, &shape, 1, BlockEntry { body: right, pointer: pointers.1.as_bytes() });
        });
        self.levels += 1;
        self.tree.set_root(tx, root.block, self.levels as u32);
        Ok(())
    }

    /// A root in an inode is full: all of it moves to a new block below, and the root keeps a single child.
    fn push_root_down(&mut self, tx: &mut Transaction, level: usize) -> Result<(), Error> {
        self.room_for_level()?;
        let (inline_shape, slot) = (self.shape(level), self.step(level).slot);
        let child = self.new_block(tx, level, 0)?;
        let shape = self.shape_of_block(level);
        let inline = self.tree.inline();
        if let Some(id) = child.id {
            block::copy_all(inline, &inline_shape, &mut super::blocks::BufferEdit { tx, id }, &shape);
        }
        self.set_step(level, PathLevel { slot, ..child });
        self.set_step(level + 1, PathLevel { id: None, block: 0, slot: 0 });
        self.levels += 1;
        let Some(key) = self.key_of(tx, level, child) else {
            return Err(self.damage(child.block, "numrecs", "at least 1", 0));
        };
        let pointer = PtrOf::<T>::of(child.block);
        self.edit(tx, level + 1, |edit, shape| {
            block::set_inline_level(edit, level + 1);
            block::set_count(edit, shape, 0);
            block::insert(edit, shape, 0, BlockEntry { body: key.as_bytes(), pointer: pointer.as_bytes() });
        });
        Ok(())
    }

    fn room_for_level(&self) -> Result<(), Error> {
        if self.levels < MAX_LEVELS as usize {
            return Ok(());
        }
        let most = format_args!("at most {MAX_LEVELS} levels");
        Err(self.damage(0, "level", most, "a tree that has to grow further"))
    }
}
