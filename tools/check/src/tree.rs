//! A walk over the leaves of any btree that verifies every block.
//!
//! It checks each block by itself (`format::btree::BtreeBlock::verify`), its level, its left and right siblings, the
//! order of records and keys within and across blocks, the keys of the parent (in the rmapbt also the high keys), and
//! that all blocks except the root are at least half full.
//!
//! # Invariants
//! One block per level is in memory. Levels strictly decrease, and after any damage no block is entered twice, so a
//! walk always ends.

use std::collections::HashSet;

use base::{AgBlock, AgNumber, Ino};
use format::btree::{
    self, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreeHeader, BtreePointer, FreeExtent, Rmap,
    RmapKey, rmap,
};
use format::inode::BmapRootView;
use format::ondisk::OnDisk;
use format::{Damage, Place};

use crate::ag::TreeRoot;
use crate::ownership::claim::owner_name;
use crate::volume::Volume;

/// What the walk needs of a btree type beyond its layout.
pub(crate) trait CheckedBtree: Btree<Record: Copy, Key: Copy> {
    /// Whether the high key in the parent is correct for this child; always true for btrees without high keys.
    fn high_key_matches(_key: &Self::Key, _child: &BtreeBlockBody<'_, Self>) -> bool
    where
        Self: Sized,
    {
        true
    }

    /// Formats a key for a finding.
    fn show(key: &Self::Key) -> String;
}

fn show_free_extent(key: &FreeExtent) -> String {
    format!("{} blocks from {:#x}", key.blockcount, key.startblock)
}

macro_rules! checked_btrees {
    ($($tree:ident: $show:expr;)*) => {$(
        impl CheckedBtree for btree::$tree {
            fn show(key: &Self::Key) -> String {
                let show: fn(&Self::Key) -> String = $show;
                show(key)
            }
        }
    )*};
}

checked_btrees! {
    BnoBt: show_free_extent;
    CntBt: show_free_extent;
    InoBt: |key| format!("AG inode {}", key.startino);
    FinoBt: |key| format!("AG inode {}", key.startino);
    RefcountBt: |key| format!("{:#x}", key.startblock);
    BmBt: |key| format!("file block {}", key.startoff);
}

impl CheckedBtree for btree::RmapBt {
    fn high_key_matches(key: &RmapKey, child: &BtreeBlockBody<'_, Self>) -> bool {
        let highest = match child {
            BtreeBlockBody::Leaf(records) => records.iter().map(highest_of_record).max(),
            BtreeBlockBody::Node(keys, _) => keys.iter().map(highest_of_key).max(),
        };
        highest == Some(highest_of_key(key))
    }

    fn show(key: &RmapKey) -> String {
        let half = |block: u32, owner: u64, offset: u64| {
            format!("{block:#x} of {} at {offset:#x}", owner_name(owner))
        };
        let low = half(key.startblock.get(), key.owner.get(), key.offset.get());
        let high = half(key.startblock_hi.get(), key.owner_hi.get(), key.offset_hi.get());
        format!("{low}, up to {high}")
    }
}

/// A high key. The order is that of the rmapbt, which ignores the unwritten flag.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HighKey {
    last_block: u64,
    owner: u64,
    last_offset: u64,
}

fn highest_of_record(record: &Rmap) -> HighKey {
    let last = u64::from(record.blockcount.get()).saturating_sub(1);
    let (owner, offset) = (record.owner.get(), record.offset.get() & !rmap::UNWRITTEN);
    // Only the offsets of file contents increase with the blocks.
    let is_contents = owner >> 63 == 0 && offset & rmap::BMBT_BLOCK == 0;
    let last_offset = if is_contents { offset.saturating_add(last) } else { offset };
    HighKey { last_block: u64::from(record.startblock.get()) + last, owner, last_offset }
}

fn highest_of_key(key: &RmapKey) -> HighKey {
    HighKey {
        last_block: key.startblock_hi.get().into(),
        owner: key.owner_hi.get(),
        last_offset: key.offset_hi.get() & !rmap::UNWRITTEN,
    }
}

/// The size of a walked btree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeSize {
    /// Blocks including the root.
    pub blocks: u64,
    /// Whether all blocks could be read.
    pub complete: bool,
}

/// The current block of one level.
#[derive(Default)]
struct Level {
    bytes: Vec<u8>,
    /// Number of records or children.
    count: usize,
    /// Index of the next child to enter.
    next: usize,
    /// The last block that was entered at this level, and its right sibling.
    last: Option<(u64, Option<u64>)>,
    /// A block of this level was skipped, so the left sibling of the next one is not known.
    gap: bool,
}

/// A walk. [`begin`](Self::begin) and [`begin_in_inode`](Self::begin_in_inode) start a new walk with the same buffers.
pub(crate) struct TreeWalk<'v, T: CheckedBtree> {
    volume: &'v Volume<'v>,
    ag: Option<AgNumber>,
    ino: Option<Ino>,
    /// By level, leaves first.
    levels: Vec<Level>,
    height: usize,
    /// The root is a leaf and was not yet returned.
    root_leaf: bool,
    root_in_inode: bool,
    last_record: Option<T::Record>,
    last_keys: Vec<Option<T::Key>>,
    /// Do not report findings: an earlier walk has reported them.
    quiet: bool,
    /// Blocks entered since the first damage.
    seen: HashSet<(AgNumber, AgBlock)>,
    damaged: bool,
    /// Some block could not be read, so records are missing.
    incomplete: bool,
}

impl<'v, T: CheckedBtree> TreeWalk<'v, T> {
    pub fn new(volume: &'v Volume<'v>) -> Self {
        Self {
            volume,
            ag: None,
            ino: None,
            levels: Vec::new(),
            height: 0,
            root_leaf: false,
            root_in_inode: false,
            last_record: None,
            last_keys: Vec::new(),
            quiet: false,
            seen: HashSet::new(),
            damaged: false,
            incomplete: false,
        }
    }

    /// Disables the reporting of findings.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Whether some records could not be read.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    fn reset(&mut self, height: usize) {
        self.height = height;
        self.levels.truncate(height);
        self.levels.resize_with(height, Level::default);
        for level in &mut self.levels {
            (level.count, level.next, level.last, level.gap) = (0, 0, None, false);
        }
        self.last_keys.clear();
        self.last_keys.resize_with(height, || None);
        (self.last_record, self.root_leaf, self.root_in_inode) = (None, false, false);
        self.seen.clear();
        (self.damaged, self.incomplete) = (false, false);
    }

    /// Begins at the root of a btree of an AG, which the caller has verified ([`crate::ag::AgCheck::root`]).
    pub fn begin(&mut self, ag: AgNumber, root: TreeRoot, visit: &mut dyn FnMut(AgNumber, AgBlock)) {
        (self.ag, self.ino) = (Some(ag), None);
        let height = root.levels.clamp(1, btree::MAX_LEVELS) as usize;
        self.reset(height);
        self.root_leaf = self.enter(height - 1, (ag, root.block), None, visit) && height == 1;
    }

    /// Begins at a root in an inode.
    pub fn begin_in_inode(&mut self, ino: Ino, root: &BmapRootView<'_>) {
        (self.ag, self.ino) = (None, Some(ino));
        let height = usize::from(root.level).min(btree::MAX_LEVELS as usize) + 1;
        self.reset(height);
        self.root_in_inode = true;
        let geometry = &self.volume.geometry;
        let pointers_at = T::Header::SIZE + T::max_keys(geometry) * T::Key::SIZE;
        let Some(level) = self.levels.last_mut() else { return };
        // Convert the root to the layout of a block, which the walk reads.
        level.bytes.clear();
        level.bytes.resize(geometry.block_size as usize, 0);
        let count = root.keys.len().min(root.pointers.len()).min(T::max_keys(geometry));
        for (n, (key, pointer)) in root.keys.iter().zip(root.pointers).take(count).enumerate() {
            let at = T::Header::SIZE + n * T::Key::SIZE;
            put(&mut level.bytes, at, &key.startoff.get().to_be_bytes());
            put(&mut level.bytes, pointers_at + n * 8, &pointer.get().to_be_bytes());
        }
        level.count = count;
    }

    /// Moves to the next leaf. Calls `visit` for each block that is entered, including nodes.
    pub fn next_leaf(&mut self, visit: &mut dyn FnMut(AgNumber, AgBlock)) -> bool {
        if std::mem::take(&mut self.root_leaf) {
            return true;
        }
        loop {
            let has_next = |level: &Level| level.next < level.count;
            let Some(parent) = (1..self.height).find(|n| self.levels.get(*n).is_some_and(has_next)) else {
                self.check_last_siblings();
                // There is no current leaf any more.
                self.levels.iter_mut().for_each(|level| level.count = 0);
                return false;
            };
            if self.descend(parent, visit) && parent == 1 {
                return true;
            }
        }
    }

    /// The records of the current leaf.
    pub fn records(&self) -> &[T::Record] {
        let level = self.levels.first();
        level
            .and_then(|l| T::Record::view_array(l.bytes.get(T::Header::SIZE..)?, l.count))
            .unwrap_or_default()
    }

    /// Enters the next child of the current block of level `parent`.
    fn descend(&mut self, parent: usize, visit: &mut dyn FnMut(AgNumber, AgBlock)) -> bool {
        let Some(level) = self.levels.get_mut(parent) else { return false };
        let child = level.next;
        level.next += 1;
        let geometry = &self.volume.geometry;
        let max_keys = T::max_keys(geometry);
        let body = level.bytes.get(T::Header::SIZE..).unwrap_or_default();
        let key = body.get(child * T::Key::SIZE..).and_then(T::Key::view).copied();
        let pointers = body.get(max_keys * T::Key::SIZE..).unwrap_or_default();
        let pointer = pointers.get(child * T::Pointer::SIZE..).and_then(T::Pointer::view);
        let Some((key, pointer)) = key.zip(pointer) else { return false };
        let Some(target) = pointer.locate(geometry, self.ag) else {
            let found = format!("{pointer:?}");
            self.report(None, Damage::new(T::NAME, "ptr", "a block within the volume", found));
            self.skip(parent - 1);
            return false;
        };
        self.enter(parent - 1, target, Some(key), visit)
    }

    /// Reads and checks a block and makes it the current one of `level`.
    fn enter(
        &mut self,
        level: usize,
        target: (AgNumber, AgBlock),
        key: Option<T::Key>,
        visit: &mut dyn FnMut(AgNumber, AgBlock),
    ) -> bool {
        if !self.may_enter(target) {
            self.skip(level);
            return false;
        }
        let mut bytes = self.levels.get_mut(level).map(|l| std::mem::take(&mut l.bytes)).unwrap_or_default();
        bytes.resize(self.volume.geometry.block_size as usize, 0);
        let place = self.place(Some(target));
        let entered = if self.read(place, target, &mut bytes) {
            self.check_block(level, target, key, &bytes)
        } else {
            None
        };
        if let Some(current) = self.levels.get_mut(level) {
            current.bytes = bytes;
            (current.count, current.next) = (entered.unwrap_or(0), 0);
        }
        if entered.is_some() {
            visit(target.0, target.1);
        } else {
            self.damaged = true;
            self.skip(level);
        }
        entered.is_some()
    }

    fn read(&self, place: Place, target: (AgNumber, AgBlock), bytes: &mut [u8]) -> bool {
        if self.quiet {
            let offset = self.volume.geometry.ag_block_offset(target.0, target.1);
            return self.volume.device.read_at(offset, bytes).is_ok();
        }
        self.volume.read_block(place, T::NAME, target, bytes)
    }

    /// Checks a block. Returns the number of its records or children.
    fn check_block(
        &mut self,
        level: usize,
        target: (AgNumber, AgBlock),
        key: Option<T::Key>,
        bytes: &[u8],
    ) -> Option<usize> {
        let place = self.place(Some(target));
        let identity = BtreeBlockIdentity { ag: target.0, block: target.1, ino: self.ino };
        let block = match BtreeBlock::<T>::verify(bytes, &self.volume.geometry, identity, level as u16) {
            Ok(block) => block,
            Err(damage) => {
                self.report(Some(place), damage);
                return None;
            }
        };
        if !self.quiet {
            self.volume.check_lsn(place, T::NAME, block.header.lsn());
        }
        self.check_siblings(level, target, place, block.header);
        if let Some(key) = key {
            self.check_key(place, &key, &block.body);
        }
        self.check_fill(level, place, block.header.numrecs().into());
        match block.body {
            BtreeBlockBody::Leaf(records) => {
                self.check_records(place, records);
                Some(records.len())
            }
            BtreeBlockBody::Node(keys, _) => {
                self.check_keys(level, place, keys);
                Some(keys.len())
            }
        }
    }

    fn check_siblings(
        &mut self,
        level: usize,
        (ag, block): (AgNumber, AgBlock),
        place: Place,
        header: &T::Header,
    ) {
        let (left, right) = header.siblings();
        let own = match self.ag {
            Some(_) => u64::from(block.get()),
            None => self.volume.geometry.fs_block(ag, block).get(),
        };
        let Some(current) = self.levels.get_mut(level) else { return };
        let (previous, gap) = (current.last, std::mem::take(&mut current.gap));
        current.last = Some((own, right));
        if gap {
            return;
        }
        let expected = previous.map(|(block, _)| block);
        if left != expected {
            self.report(Some(place), Damage::new(T::NAME, "leftsib", sibling(expected), sibling(left)));
        }
        if let Some((_, right_of_previous)) = previous
            && right_of_previous != Some(own)
        {
            let expected = format_args!("{own} in the left sibling");
            let damage = Damage::new(T::NAME, "rightsib", expected, sibling(right_of_previous));
            self.report(Some(place), damage);
        }
    }

    fn check_key(&mut self, place: Place, key: &T::Key, body: &BtreeBlockBody<'_, T>) {
        let low_key_matches = match body {
            BtreeBlockBody::Leaf(records) => records.first().is_some_and(|first| T::key_matches(key, first)),
            // Equal keys give the same result in both directions, in every btree.
            BtreeBlockBody::Node(keys, _) => {
                keys.first().is_some_and(|first| T::keys_in_order(key, first) == T::keys_in_order(first, key))
            }
        };
        let (field, expected) = if !low_key_matches {
            ("key", "in the parent: the first key of this block")
        } else if !T::high_key_matches(key, body) {
            ("high key", "in the parent: the highest key of this block")
        } else {
            return;
        };
        self.report(Some(place), Damage::new(T::NAME, field, expected, T::show(key)));
    }

    fn check_fill(&mut self, level: usize, place: Place, count: usize) {
        let is_root = level + 1 == self.height;
        // A root in an inode may be too small for the records of its only child, however few they are.
        let is_only_child = self.root_in_inode
            && level + 2 == self.height
            && self.levels.last().is_some_and(|root| root.count == 1);
        if is_root || is_only_child {
            return;
        }
        let geometry = &self.volume.geometry;
        let max = if level == 0 { T::max_records(geometry) } else { T::max_keys(geometry) };
        if count < max / 2 {
            let expected = format!("at least {}, half of the maximum", max / 2);
            self.report(Some(place), Damage::new(T::NAME, "numrecs", expected, count));
        }
    }

    fn check_records(&mut self, place: Place, records: &[T::Record]) {
        let follows_previous = match (self.last_record, records.first()) {
            (Some(left), Some(right)) => T::in_order(&left, right),
            _ => true,
        };
        let sorted = records.is_sorted_by(|left, right| T::in_order(left, right));
        if let Some(last) = records.last() {
            self.last_record = Some(*last);
        }
        if !(follows_previous && sorted) {
            let damage = Damage::new(T::NAME, "recs", "records in ascending order", "not in order");
            self.report(Some(place), damage);
        }
    }

    fn check_keys(&mut self, level: usize, place: Place, keys: &[T::Key]) {
        let previous = self.last_keys.get_mut(level).and_then(Option::take);
        let follows_previous = match (previous, keys.first()) {
            (Some(left), Some(right)) => T::keys_in_order(&left, right),
            _ => true,
        };
        let sorted = keys.is_sorted_by(|left, right| T::keys_in_order(left, right));
        if let Some(last) = self.last_keys.get_mut(level) {
            *last = keys.last().copied();
        }
        if !(follows_previous && sorted) {
            self.report(Some(place), Damage::new(T::NAME, "keys", "keys in ascending order", "not in order"));
        }
    }

    /// Checks that the last block of each level has no right sibling.
    fn check_last_siblings(&mut self) {
        for n in 0..self.height {
            let Some(level) = self.levels.get_mut(n) else { continue };
            let (last, gap) = (level.last.take(), level.gap);
            if let Some((block, Some(right))) = last
                && !gap
            {
                let place = self.place_of_number(block);
                self.report(Some(place), Damage::new(T::NAME, "rightsib", "none", right));
            }
        }
    }

    fn place_of_number(&self, number: u64) -> Place {
        let target = match self.ag {
            Some(ag) => Some((ag, AgBlock(number as u32))),
            None => self.volume.geometry.split_fs_block(number.into()),
        };
        self.place(target)
    }

    fn may_enter(&mut self, target: (AgNumber, AgBlock)) -> bool {
        if !self.damaged || self.seen.insert(target) {
            return true;
        }
        self.report(
            None,
            Damage::new(T::NAME, "ptr", "each block once", format_args!("block {:#x} twice", target.1)),
        );
        false
    }

    fn skip(&mut self, level: usize) {
        (self.incomplete, self.damaged) = (true, true);
        if let Some(level) = self.levels.get_mut(level) {
            level.gap = true;
        }
    }

    fn place(&self, target: Option<(AgNumber, AgBlock)>) -> Place {
        let place = match (target, self.ag) {
            (Some((ag, block)), _) => Place::block(ag, block),
            (None, Some(ag)) => Place::ag(ag),
            (None, None) => Place::default(),
        };
        match self.ino {
            Some(ino) => place.of_inode(ino),
            None => place,
        }
    }

    #[cold]
    fn report(&mut self, place: Option<Place>, damage: Damage) {
        self.damaged = true;
        if !self.quiet {
            self.volume.error(place.unwrap_or_else(|| self.place(None)), damage);
        }
    }
}

fn sibling(block: Option<u64>) -> String {
    block.map_or_else(|| "none".to_owned(), |block| block.to_string())
}

/// Copies `from` into a buffer that must be large enough.
fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + from.len()) {
        to.copy_from_slice(from);
    }
}

/// The records of a btree of an AG, which a walk with findings has passed before.
pub(crate) struct TreeRecords<'v, T: CheckedBtree> {
    walk: TreeWalk<'v, T>,
    /// Index of the next record of the current leaf.
    next: usize,
}

impl<'v, T: CheckedBtree> TreeRecords<'v, T> {
    pub fn new(volume: &'v Volume<'v>, ag: AgNumber, root: TreeRoot) -> Self {
        let mut walk = TreeWalk::new(volume).quiet();
        walk.begin(ag, root, &mut |_, _| ());
        walk.next_leaf(&mut |_, _| ());
        Self { walk, next: 0 }
    }

    /// The next record, which stays the next one.
    pub fn peek(&mut self) -> Option<T::Record> {
        loop {
            if let Some(record) = self.walk.records().get(self.next) {
                return Some(*record);
            }
            self.next = 0;
            if !self.walk.next_leaf(&mut |_, _| ()) {
                return None;
            }
        }
    }

    /// Whether some records could not be read.
    pub fn is_incomplete(&self) -> bool {
        self.walk.is_incomplete()
    }
}

impl<T: CheckedBtree> Iterator for TreeRecords<'_, T> {
    type Item = T::Record;

    fn next(&mut self) -> Option<T::Record> {
        let record = self.peek()?;
        self.next += 1;
        Some(record)
    }
}
