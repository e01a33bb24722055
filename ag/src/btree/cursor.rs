//! Btree cursor: lookups, steps and updates in place.

use error::Result;
use format::btree::{Btree, MAX_LEVELS};
use format::ondisk::{OnDisk, U16};
use journal::engine::{BufferId, Transaction};

use super::block::{self, BlockLayout, EditBytes, Side};
use super::blocks::{BufferEdit, InlineRootEdit};
use super::{BtreeOps, BtreeRoot, BtreeType, RawPointer};

/// Record type of a tree.
pub(super) type RecordOf<T> = <<T as BtreeOps>::Type as Btree>::Record;
/// Key type of a tree.
pub(super) type KeyOf<T> = <<T as BtreeOps>::Type as Btree>::Key;
/// Pointer type of a tree.
pub(super) type PtrOf<T> = <<T as BtreeOps>::Type as Btree>::Pointer;
/// Lookup key type of a tree.
pub(super) type LookupKeyOf<T> = <<T as BtreeOps>::Type as BtreeType>::LookupKey;

const HEIGHT_MAX: usize = MAX_LEVELS as usize;

/// The block that a cursor has open at one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathLevel {
    /// Buffer; `None` for a root in an inode.
    pub id: Option<BufferId>,
    /// Block number, in the form of the tree's pointers; 0 for a root in an inode.
    pub block: u64,
    /// The entry on the path. In a leaf it may be one beyond the last.
    pub slot: usize,
}

/// Two adjacent blocks of a level, under the same parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Siblings {
    pub level: usize,
    pub left: PathLevel,
    pub right: PathLevel,
    /// The slot of the left block in the parent.
    pub parent_slot: usize,
}

const UNOPENED: PathLevel = PathLevel { id: None, block: 0, slot: 0 };

/// Target of a descent.
#[derive(Clone, Copy)]
pub(super) enum Descent<S> {
    To(S),
    First,
    Last,
}

/// A position in a btree: on a record, or in a gap before or after one.
///
/// A cursor is valid as long as nothing else changes the tree; it does not notice such changes. Its calls take the
/// transaction that read its blocks.
#[derive(Clone, Debug)]
pub struct BtreeCursor<T: BtreeOps> {
    pub(super) tree: T,
    pub(super) path: [PathLevel; HEIGHT_MAX],
    /// Number of levels; 0 if the cursor has no position.
    pub(super) levels: usize,
    /// The position is the gap before the record at the leaf's slot.
    pub(super) gap: bool,
    leaf: BlockLayout,
    node: BlockLayout,
}

impl<T: BtreeOps> BtreeCursor<T> {
    /// A cursor without a position.
    pub fn new(tree: T) -> Self {
        let leaf = BlockLayout::leaf::<T::Type>(tree.geometry());
        let node = BlockLayout::node::<T::Type>(tree.geometry());
        Self { tree, path: [UNOPENED; HEIGHT_MAX], levels: 0, gap: true, leaf, node }
    }

    /// The btree instance.
    pub fn tree(&self) -> &T {
        &self.tree
    }

    /// Lookup EQ: moves to the record with this key and returns it. If there is none, moves to the gap where it would
    /// be.
    pub fn lookup_eq(&mut self, tx: &mut Transaction, at: LookupKeyOf<T>) -> Result<Option<RecordOf<T>>> {
        self.seek(tx, Descent::To(at))?;
        let found = self
            .records(tx)
            .get(self.path_level(0).slot)
            .filter(|record| T::Type::record_lookup_key(record) == at);
        let found = found.copied();
        self.gap = found.is_none();
        Ok(found)
    }

    /// [`lookup_eq`](Self::lookup_eq) without a descent if the open leaf is the one where the key belongs: cheap for
    /// keys that ascend.
    pub fn lookup_eq_near(
        &mut self,
        tx: &mut Transaction,
        at: LookupKeyOf<T>,
    ) -> Result<Option<RecordOf<T>>> {
        let Some(slot) = self.slot_in_leaf(tx, at) else { return self.lookup_eq(tx, at) };
        self.set_slot(0, slot);
        let found = self.records(tx).get(slot).filter(|record| T::Type::record_lookup_key(record) == at);
        let found = found.copied();
        self.gap = found.is_none();
        Ok(found)
    }

    /// Whether the open leaf shows that there is no record with this key.
    pub fn leaf_lacks(&self, tx: &Transaction, at: LookupKeyOf<T>) -> bool {
        let slot = self.slot_in_leaf(tx, at);
        slot.is_some_and(|slot| {
            self.records(tx).get(slot).is_none_or(|record| T::Type::record_lookup_key(record) != at)
        })
    }

    /// The slot of the first record of the open leaf at or after a key; `None` if the key may belong to another leaf.
    fn slot_in_leaf(&self, tx: &Transaction, at: LookupKeyOf<T>) -> Option<usize> {
        if self.levels == 0 {
            return None;
        }
        let bytes = self.bytes(tx, 0);
        let records = self.leaf.view::<RecordOf<T>>(bytes);
        let slot = records.partition_point(|record| T::Type::record_lookup_key(record) < at);
        let here = records.get(slot).map(T::Type::record_lookup_key);
        let starts_before = slot > 0 || here == Some(at);
        let ends_behind = here.is_some()
            || block::sibling::<PtrOf<T>>(bytes, Side::Right)
                .is_some_and(|sibling| sibling.number() == PtrOf::<T>::NULL);
        (starts_before && ends_behind).then_some(slot)
    }

    /// Lookup LE: moves to the last record at or before this key and returns it. If there is none, moves to the gap
    /// before the first record.
    pub fn lookup_le(&mut self, tx: &mut Transaction, at: LookupKeyOf<T>) -> Result<Option<RecordOf<T>>> {
        self.seek(tx, Descent::To(at))?;
        let slot = self.path_level(0).slot;
        let records = self.records(tx);
        let equal = records.get(slot).filter(|record| T::Type::record_lookup_key(record) == at);
        let (slot, found) = match (equal, slot.checked_sub(1)) {
            (Some(record), _) => (slot, Some(*record)),
            (None, Some(before)) => (before, records.get(before).copied()),
            (None, None) => (0, None),
        };
        self.set_slot(0, slot);
        self.gap = found.is_none();
        Ok(found)
    }

    /// Lookup GE: moves to the first record at or after this key and returns it. If there is none, moves to the gap
    /// after the last record.
    pub fn lookup_ge(&mut self, tx: &mut Transaction, at: LookupKeyOf<T>) -> Result<Option<RecordOf<T>>> {
        self.seek(tx, Descent::To(at))?;
        self.gap = true;
        self.next(tx)
    }

    /// Moves to the first record.
    pub fn first(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<T>>> {
        self.seek(tx, Descent::First)?;
        self.gap = true;
        self.next(tx)
    }

    /// Moves to the last record.
    pub fn last(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<T>>> {
        self.seek(tx, Descent::Last)?;
        let slot = self.path_level(0).slot;
        let found = self.records(tx).get(slot).copied();
        self.gap = found.is_none();
        Ok(found)
    }

    /// Counts the blocks of the tree by walking all of it. The cursor has no position afterwards.
    pub fn count_blocks(&mut self, tx: &mut Transaction) -> Result<u32> {
        self.seek(tx, Descent::First)?;
        let mut blocks = self.levels as u32;
        loop {
            let before = self.path;
            if !self.step_to_sibling(tx, Side::Right)? {
                self.levels = 0;
                return Ok(blocks);
            }
            let moved = |(old, new): &(PathLevel, PathLevel)| old.block != new.block;
            for (old, _) in before.into_iter().zip(self.path).filter(moved) {
                blocks += 1;
                if let Some(id) = old.id {
                    tx.release(id);
                }
            }
        }
    }

    /// The record at the position; `None` in a gap.
    pub fn get(&self, tx: &Transaction) -> Option<RecordOf<T>> {
        if self.gap || self.levels == 0 {
            return None;
        }
        self.records(tx).get(self.path_level(0).slot).copied()
    }

    /// Moves to the next record; from a gap, to the record after it. If there is none, returns `None` and moves to the
    /// gap after the last record.
    pub fn next(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<T>>> {
        if self.levels == 0 {
            return Ok(None);
        }
        let slot = self.path_level(0).slot + usize::from(!self.gap);
        let count = self.records(tx).len();
        self.gap = false;
        if slot < count {
            self.set_slot(0, slot);
        } else if !self.step_to_sibling(tx, Side::Right)? {
            self.set_slot(0, count);
            self.gap = true;
        }
        Ok(self.get(tx))
    }

    /// Moves to the previous record. If there is none, returns `None` and moves to the gap before the first record.
    pub fn prev(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<T>>> {
        if self.levels == 0 {
            return Ok(None);
        }
        self.gap = false;
        match self.path_level(0).slot.checked_sub(1) {
            Some(slot) => self.set_slot(0, slot),
            None => self.gap = !self.step_to_sibling(tx, Side::Left)?,
        }
        Ok(self.get(tx))
    }

    /// Replaces the record at the position. The new record must belong between the same neighbours.
    ///
    /// # Errors
    /// Damage if it does not: records of the tree overlap or are out of order.
    pub fn update(&mut self, tx: &mut Transaction, record: &RecordOf<T>) -> Result<()> {
        let slot = self.path_level(0).slot;
        let records = self.records(tx);
        let at = T::Type::record_lookup_key(record);
        let old = records.get(slot).map(T::Type::init_key);
        let after = slot.checked_sub(1).and_then(|before| records.get(before));
        let fits = !self.gap
            && slot < records.len()
            && after.is_none_or(|before| T::Type::record_lookup_key(before) < at)
            && records.get(slot + 1).is_none_or(|next| at < T::Type::record_lookup_key(next));
        if !fits {
            return Err(self.out_of_order(at));
        }
        self.edit(tx, 0, |edit, layout| {
            block::replace(edit, layout, slot, zerocopy::IntoBytes::as_bytes(record));
        });
        let new = T::Type::init_key(record);
        match old {
            // Overlapping records: is the high key still as high as before?
            Some(old) if T::Type::OVERLAPPING => {
                let mut of_new = new;
                T::Type::widen_key(&mut of_new, &old);
                if zerocopy::IntoBytes::as_bytes(&of_new) == zerocopy::IntoBytes::as_bytes(&new) {
                    self.grow_keys(tx, &new);
                } else {
                    self.shrink_keys(tx, &old);
                }
            }
            _ => self.update_keys(tx, 0),
        }
        Ok(())
    }

    /// Replaces the record at the position if the new one certainly belongs between the same neighbours: they are in
    /// the same leaf, or do not exist. Otherwise returns `false`, with nothing changed; the caller must delete and
    /// insert.
    pub fn update_in_order(&mut self, tx: &mut Transaction, record: &RecordOf<T>) -> Result<bool> {
        let slot = self.path_level(0).slot;
        let bytes = self.bytes(tx, 0);
        let records = self.leaf.view::<RecordOf<T>>(bytes);
        let at = T::Type::record_lookup_key(record);
        let is_end = |side| {
            block::sibling::<PtrOf<T>>(bytes, side)
                .is_some_and(|sibling| sibling.number() == PtrOf::<T>::NULL)
        };
        let behind_left = match slot.checked_sub(1).and_then(|before| records.get(before)) {
            Some(before) => T::Type::record_lookup_key(before) < at,
            None => is_end(Side::Left),
        };
        let before_right = match records.get(slot + 1) {
            Some(next) => at < T::Type::record_lookup_key(next),
            None => is_end(Side::Right),
        };
        if !behind_left || !before_right {
            return Ok(false);
        }
        self.update(tx, record).map(|()| true)
    }

    /// The open block of a level.
    #[inline]
    pub(super) fn path_level(&self, level: usize) -> PathLevel {
        self.path.get(level).copied().unwrap_or(UNOPENED)
    }

    #[inline]
    pub(super) fn set_path_level(&mut self, level: usize, step: PathLevel) {
        if let Some(place) = self.path.get_mut(level) {
            *place = step;
        }
    }

    #[inline]
    pub(super) fn set_slot(&mut self, level: usize, slot: usize) {
        if let Some(place) = self.path.get_mut(level) {
            place.slot = slot;
        }
    }

    /// Layout of the open block of a level.
    #[inline]
    pub(super) fn layout(&self, level: usize) -> BlockLayout {
        match (level, self.path_level(level).id) {
            (0, _) => self.leaf,
            (_, Some(_)) => self.node,
            (_, None) => BlockLayout::inline::<T::Type>(self.tree.inline().len()),
        }
    }

    /// Bytes of the open block of a level.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, tx: &'a Transaction, level: usize) -> &'a [u8] {
        match self.path_level(level).id {
            Some(id) => tx.bytes(id),
            None => self.tree.inline(),
        }
    }

    #[inline]
    pub(super) fn count(&self, tx: &Transaction, level: usize) -> usize {
        self.layout(level).count(self.bytes(tx, level))
    }

    #[inline]
    pub(super) fn records<'a>(&'a self, tx: &'a Transaction) -> &'a [RecordOf<T>] {
        self.leaf.view(self.bytes(tx, 0))
    }

    /// The child at a slot of the open block of a level.
    #[inline]
    pub(super) fn child(&self, tx: &Transaction, level: usize, slot: usize) -> Option<u64> {
        let pointers = self.layout(level).view_pointers::<PtrOf<T>>(self.bytes(tx, level));
        pointers.get(slot).map(RawPointer::number)
    }

    /// Bytes of a block.
    #[inline]
    pub(super) fn bytes_of<'a>(&'a self, tx: &'a Transaction, step: PathLevel) -> &'a [u8] {
        step.id.map_or(&[], |id| tx.bytes(id))
    }

    /// A level's open block and its sibling under the same parent, if there is one on this side.
    pub(super) fn siblings(
        &self,
        tx: &mut Transaction,
        level: usize,
        side: Side,
    ) -> Result<Option<Siblings>> {
        let (own, slot) = (self.path_level(level), self.path_level(level + 1).slot);
        let found = match side {
            Side::Left => slot.checked_sub(1),
            Side::Right => slot.checked_add(1),
        };
        let Some(block) = found.and_then(|slot| self.child(tx, level + 1, slot)) else { return Ok(None) };
        let found = PathLevel { id: Some(self.read(tx, level, block)?), block, slot: 0 };
        let (left, right, parent_slot) = match side {
            Side::Left => (found, own, slot - 1),
            Side::Right => (own, found, slot),
        };
        self.check_siblings(tx, left, right)?;
        Ok(Some(Siblings { level, left, right, parent_slot }))
    }

    /// Opens one of two siblings, and updates its keys in the parent.
    pub(super) fn open_sibling(&mut self, tx: &mut Transaction, pair: &Siblings, side: Side) {
        let (step, slot) = match side {
            Side::Left => (pair.left, pair.parent_slot),
            Side::Right => (pair.right, pair.parent_slot + 1),
        };
        self.set_path_level(pair.level, step);
        self.set_slot(pair.level + 1, slot);
        self.update_keys(tx, pair.level);
    }

    /// Edits a block.
    pub(super) fn edit_block<R>(
        &mut self,
        tx: &mut Transaction,
        id: Option<BufferId>,
        change: impl FnOnce(&mut dyn EditBytes) -> R,
    ) -> R {
        match id {
            Some(id) => change(&mut BufferEdit { tx, id }),
            None => change(&mut InlineRootEdit(&mut self.tree)),
        }
    }

    /// Edits the root in the inode.
    pub(super) fn edit_inline<R>(&mut self, change: impl FnOnce(&mut dyn EditBytes) -> R) -> R {
        change(&mut InlineRootEdit(&mut self.tree))
    }

    /// Edits the open block of a level.
    pub(super) fn edit<R>(
        &mut self,
        tx: &mut Transaction,
        level: usize,
        change: impl FnOnce(&mut dyn EditBytes, &BlockLayout) -> R,
    ) -> R {
        let layout = self.layout(level);
        match self.path_level(level).id {
            Some(id) => change(&mut BufferEdit { tx, id }, &layout),
            None => change(&mut InlineRootEdit(&mut self.tree), &layout),
        }
    }

    /// Descends from the root. In the leaf, the slot becomes that of the first record at or after the key, or of the
    /// first or last record.
    pub(super) fn seek(&mut self, tx: &mut Transaction, way: Descent<LookupKeyOf<T>>) -> Result<()> {
        self.levels = 0;
        let mut level = self.open_root(tx)?;
        let levels = level + 1;
        while level > 0 {
            let slot = match way {
                Descent::First => 0,
                Descent::Last => self.count(tx, level).saturating_sub(1),
                Descent::To(at) => {
                    let keys = self.layout(level).view::<KeyOf<T>>(self.bytes(tx, level));
                    keys.partition_point(|key| T::Type::key_lookup_key(key) <= at).saturating_sub(1)
                }
            };
            self.set_slot(level, slot);
            level -= 1;
            self.enter_child(tx, level)?;
        }
        let slot = match way {
            Descent::First => 0,
            Descent::Last => self.records(tx).len().saturating_sub(1),
            Descent::To(at) => {
                self.records(tx).partition_point(|record| T::Type::record_lookup_key(record) < at)
            }
        };
        self.set_slot(0, slot);
        self.levels = levels;
        Ok(())
    }

    /// Opens the root and returns its level.
    pub(super) fn open_root(&mut self, tx: &mut Transaction) -> Result<usize> {
        match self.tree.root(tx) {
            BtreeRoot::Block { block, levels } => {
                let level = (levels as usize).wrapping_sub(1);
                if level >= HEIGHT_MAX {
                    return Err(self.damage(0, "level", format_args!("1 to {HEIGHT_MAX} levels"), levels));
                }
                let id = self.read(tx, level, block)?;
                self.set_path_level(level, PathLevel { id: Some(id), block, slot: 0 });
                Ok(level)
            }
            BtreeRoot::Inline => {
                let inline = self.tree.inline();
                let level = U16::view(inline).map_or(0, |level| usize::from(level.get()));
                let count = BlockLayout::inline::<T::Type>(inline.len()).count(inline);
                if !(1..HEIGHT_MAX).contains(&level) || count == 0 {
                    let found = format_args!("level {level} with {count} children");
                    return Err(self.damage(0, "level", "a root with a level and children", found));
                }
                self.set_path_level(level, UNOPENED);
                Ok(level)
            }
        }
    }

    /// Opens the child on the path at `level`.
    pub(super) fn enter_child(&mut self, tx: &mut Transaction, level: usize) -> Result<()> {
        let slot = self.path_level(level + 1).slot;
        let Some(block) = self.child(tx, level + 1, slot) else {
            return Err(self.damage(self.path_level(level + 1).block, "numrecs", "a child", "none"));
        };
        let id = self.read(tx, level, block)?;
        // A fork that lost its last extent has an empty leaf below its root.
        let may_be_empty = self.path_level(level + 1).id.is_none() && self.count(tx, level + 1) == 1;
        if self.layout_of_level(level).count(tx.bytes(id)) == 0 && !may_be_empty {
            return Err(self.damage(block, "numrecs", "at least 1", 0));
        }
        self.set_path_level(level, PathLevel { id: Some(id), block, slot: 0 });
        Ok(())
    }

    /// Layout of a block of a level, other than a root in an inode.
    #[inline]
    pub(super) fn layout_of_level(&self, level: usize) -> BlockLayout {
        if level == 0 { self.leaf } else { self.node }
    }

    /// Moves to the nearest record of the sibling leaf. If there is none, returns `false` without moving.
    fn step_to_sibling(&mut self, tx: &mut Transaction, side: Side) -> Result<bool> {
        let stepped = |cursor: &Self, tx: &Transaction, level| match side {
            Side::Left => cursor.path_level(level).slot.checked_sub(1),
            Side::Right => {
                Some(cursor.path_level(level).slot + 1).filter(|slot| *slot < cursor.count(tx, level))
            }
        };
        let mut above = 1..self.levels;
        let Some((level, slot)) = above.find_map(|level| Some((level, stepped(self, tx, level)?))) else {
            return Ok(false);
        };
        let levels = std::mem::take(&mut self.levels);
        let first =
            |cursor: &Self, tx: &Transaction| cursor.records(tx).first().map(T::Type::record_lookup_key);
        let before = first(self, tx);
        self.set_slot(level, slot);
        for level in (0..level).rev() {
            let from = self.path_level(level);
            self.enter_child(tx, level)?;
            let to = self.path_level(level);
            match side {
                Side::Left => self.check_siblings(tx, to, from)?,
                Side::Right => self.check_siblings(tx, from, to)?,
            }
            if side == Side::Left {
                self.set_slot(level, self.count(tx, level).saturating_sub(1));
            }
        }
        // Leaves that name each other in a cycle would be walked forever.
        let after = first(self, tx);
        let in_order = if side == Side::Left { after < before } else { before < after };
        if !in_order {
            let expected = format_args!("records on the other side of {before:?}");
            return Err(self.damage(self.path_level(0).block, "record", expected, format_args!("{after:?}")));
        }
        self.levels = levels;
        Ok(true)
    }

    /// Verifies that two blocks, which are neighbours by their parents, name each other as siblings.
    pub(super) fn check_siblings(&self, tx: &Transaction, left: PathLevel, right: PathLevel) -> Result<()> {
        let (Some(left_id), Some(right_id)) = (left.id, right.id) else { return Ok(()) };
        let named = |id, side| block::sibling::<PtrOf<T>>(tx.bytes(id), side).map(RawPointer::number);
        if named(left_id, Side::Right) != Some(right.block) || left.block == right.block {
            let expected = format_args!("{:#x}, as the parent says", right.block);
            return Err(self.damage(left.block, "rightsib", expected, "another"));
        }
        if named(right_id, Side::Left) != Some(left.block) {
            let expected = format_args!("{:#x}, as the parent says", left.block);
            return Err(self.damage(right.block, "leftsib", expected, "another"));
        }
        Ok(())
    }
}
