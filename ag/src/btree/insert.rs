//! Insertion: shifting entries to a sibling, splitting, and a new root.

use zerocopy::IntoBytes;

use format::btree::MAX_LEVELS;

use super::block::{self, BlockEntry, Side};
use super::blocks::edit_pair;
use super::cursor::{Descent, KeyOf, LookupKeyOf, PathLevel, PtrOf, RecordOf, Siblings};
use super::{BtreeCursor, BtreeOps, BtreeType, RawPointer};
use error::Result;
use journal::engine::Transaction;

impl<T: BtreeOps> BtreeCursor<T> {
    /// Inserts a record and moves to it. No lookup is needed if the cursor is in the gap where a lookup has left it.
    ///
    /// # Errors
    /// Damage: there is an equal record. No space for a new block.
    pub fn insert(&mut self, tx: &mut Transaction, record: &RecordOf<T>) -> Result<()> {
        let at = T::Type::record_lookup_key(record);
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

    /// Maximum number of blocks that an insertion at the position allocates: one for each full block on the way up from
    /// the leaf, and a new root above a full one.
    pub fn blocks_to_insert(&self, tx: &Transaction) -> u32 {
        let full =
            (0..self.levels).take_while(|level| self.count(tx, *level) >= self.layout(*level).max()).count();
        (full + usize::from(full == self.levels)) as u32 // there are few levels
    }

    /// Whether the cursor is in the gap where a record belongs, as far as its leaf shows.
    fn is_gap_for(&self, tx: &Transaction, at: LookupKeyOf<T>) -> bool {
        if !self.gap || self.levels == 0 {
            return false;
        }
        let (slot, records) = (self.path_level(0).slot, self.records(tx));
        let before = slot.checked_sub(1).and_then(|before| records.get(before));
        before.is_none_or(|record| T::Type::record_lookup_key(record) < at)
            && records.get(slot).is_none_or(|record| at < T::Type::record_lookup_key(record))
    }

    /// Inserts an entry at the slot of a level's open block. Returns whether blocks were split: then the path no longer
    /// leads to the entry.
    fn insert_entry(&mut self, tx: &mut Transaction, level: usize, entry: BlockEntry<'_>) -> Result<bool> {
        let is_full = |cursor: &Self, tx: &Transaction| cursor.count(tx, level) >= cursor.layout(level).max();
        let mut split = false;
        if is_full(self, tx) && self.path_level(level).id.is_none() {
            self.push_root_down(tx, level)?;
            split = true;
        }
        if !is_full(self, tx) || self.shift(tx, level)? {
            let step = self.path_level(level);
            self.put_entry(tx, level, step, entry);
            match self.records(tx).get(step.slot).map(T::Type::init_key) {
                Some(key) if level == 0 => self.grow_keys(tx, &key),
                _ => self.update_keys(tx, level),
            }
            return Ok(split);
        }
        let right = self.split(tx, level)?;
        let (left, kept) = (self.path_level(level), self.count(tx, level));
        match left.slot.checked_sub(kept) {
            // An entry between both halves goes to the smaller one, the right one.
            Some(slot) => self.put_entry(tx, level, PathLevel { slot, ..right }, entry),
            None => self.put_entry(tx, level, left, entry),
        }
        let Some(key) = self.key_of(tx, level, right) else {
            return Err(self.damage(right.block, "numrecs", "at least 1", 0));
        };
        if level + 1 == self.levels {
            self.grow_root(tx, level, left, right, &key)?;
            return Ok(true);
        }
        self.update_keys(tx, level);
        let pointer = PtrOf::<T>::of(right.block);
        self.set_slot(level + 1, self.path_level(level + 1).slot + 1);
        self.insert_entry(tx, level + 1, BlockEntry { body: key.as_bytes(), pointer: pointer.as_bytes() })?;
        Ok(true)
    }

    fn put_entry(&mut self, tx: &mut Transaction, level: usize, step: PathLevel, entry: BlockEntry<'_>) {
        let layout = self.layout(level);
        self.edit_block(tx, step.id, |edit| block::insert(edit, &layout, step.slot, entry));
    }

    /// Frees a slot in a full block by moving entries to a sibling under the same parent, and moves the path to where
    /// the new entry belongs. Returns `false` if both siblings are full.
    ///
    /// It fills half of the sibling's free slots, so that not every insertion moves entries. If the new entry is the
    /// last, it fills all of them, so that ascending insertions leave full blocks behind.
    fn shift(&mut self, tx: &mut Transaction, level: usize) -> Result<bool> {
        if level + 1 >= self.levels {
            return Ok(false);
        }
        let (slot, layout) = (self.path_level(level).slot, self.layout(level));
        let max = layout.max();
        if let Some(mut pair) = self.siblings(tx, level, Side::Right)? {
            let there = layout.count(self.bytes_of(tx, pair.right));
            if there < max {
                let moved = if slot == max { 0 } else { (max - there).div_ceil(2) };
                edit_pair(tx, pair.left, pair.right, |a, b| block::move_right(a, b, &layout, moved));
                let stays = slot < max - moved || (slot == max - moved && moved > 0);
                pair.right.slot = slot.saturating_sub(max - moved);
                self.finish_shift(tx, &pair, if stays { Side::Left } else { Side::Right });
                return Ok(true);
            }
        }
        if let Some(mut pair) = self.siblings(tx, level, Side::Left)? {
            let there = layout.count(self.bytes_of(tx, pair.left));
            if there < max {
                let free = max - there;
                let moved = match slot {
                    0 => 0,
                    slot if slot == max => free,
                    _ => free.div_ceil(2),
                };
                edit_pair(tx, pair.left, pair.right, |a, b| block::move_left(a, b, &layout, moved));
                let moves = slot < moved || moved == 0;
                (pair.left.slot, pair.right.slot) = (there + slot.min(moved), slot.saturating_sub(moved));
                self.finish_shift(tx, &pair, if moves { Side::Left } else { Side::Right });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Updates the parent's keys of two siblings after entries moved between them, and opens the wanted one at its
    /// slot.
    fn finish_shift(&mut self, tx: &mut Transaction, pair: &Siblings, wanted: Side) {
        let other = match wanted {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        };
        self.open_sibling(tx, pair, other);
        self.open_sibling(tx, pair, wanted);
    }

    /// Moves the upper half of a full block to a new right sibling, which is not yet in the parent. The new entry
    /// belongs after the entries that stay, or among them: then the new block has more entries.
    fn split(&mut self, tx: &mut Transaction, level: usize) -> Result<PathLevel> {
        let (left, layout) = (self.path_level(level), self.layout(level));
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
        // The half that receives the new entry is the smaller one.
        let max = layout.max();
        let keep = if left.slot <= max / 2 { max / 2 } else { max - max / 2 };
        edit_pair(tx, left, right, |a, b| {
            block::move_right(a, b, &layout, max - keep);
            block::set_sibling(b, Side::Left, PtrOf::<T>::of(left.block).as_bytes());
            let next = far.map_or(PtrOf::<T>::NULL, |far| far.block);
            block::set_sibling(b, Side::Right, PtrOf::<T>::of(next).as_bytes());
            block::set_sibling(a, Side::Right, PtrOf::<T>::of(right.block).as_bytes());
        });
        if let Some(far) = far {
            let pointer = PtrOf::<T>::of(right.block);
            self.edit_block(tx, far.id, |edit| block::set_sibling(edit, Side::Left, pointer.as_bytes()));
        }
        Ok(right)
    }

    /// Creates a new root above a root that was split.
    fn grow_root(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        left: PathLevel,
        right: PathLevel,
        right_key: &KeyOf<T>,
    ) -> Result<()> {
        let Some(left_key) = self.key_of(tx, level, left) else {
            return Err(self.damage(left.block, "numrecs", "at least 1", 0));
        };
        self.check_height()?;
        let root = self.new_block(tx, level + 1, left.block)?;
        let layout = self.layout_of_level(level + 1);
        let pointers = (PtrOf::<T>::of(left.block), PtrOf::<T>::of(right.block));
        self.edit_block(tx, root.id, |edit| {
            let (left, right) = (left_key.as_bytes(), right_key.as_bytes());
            block::insert(edit, &layout, 0, BlockEntry { body: left, pointer: pointers.0.as_bytes() });
            block::insert(edit, &layout, 1, BlockEntry { body: right, pointer: pointers.1.as_bytes() });
        });
        self.levels += 1;
        self.tree.set_root(tx, root.block, self.levels as u32);
        Ok(())
    }

    /// Handles a full root in an inode: its entries move to a new block below, and the root keeps a single child.
    fn push_root_down(&mut self, tx: &mut Transaction, level: usize) -> Result<()> {
        self.check_height()?;
        let (inline_layout, slot) = (self.layout(level), self.path_level(level).slot);
        let child = self.new_block(tx, level, 0)?;
        let layout = self.layout_of_level(level);
        let inline = self.tree.inline();
        if let Some(id) = child.id {
            block::copy_all(inline, &inline_layout, &mut super::blocks::BufferEdit { tx, id }, &layout);
        }
        self.set_path_level(level, PathLevel { slot, ..child });
        self.set_path_level(level + 1, PathLevel { id: None, block: 0, slot: 0 });
        self.levels += 1;
        let Some(key) = self.key_of(tx, level, child) else {
            return Err(self.damage(child.block, "numrecs", "at least 1", 0));
        };
        let pointer = PtrOf::<T>::of(child.block);
        self.edit(tx, level + 1, |edit, layout| {
            block::set_inline_level(edit, level + 1);
            block::set_count(edit, layout, 0);
            block::insert(edit, layout, 0, BlockEntry { body: key.as_bytes(), pointer: pointer.as_bytes() });
        });
        Ok(())
    }

    fn check_height(&self) -> Result<()> {
        if self.levels < MAX_LEVELS as usize {
            return Ok(());
        }
        let most = format_args!("at most {MAX_LEVELS} levels");
        Err(self.damage(0, "level", most, "a tree that must grow further"))
    }
}
