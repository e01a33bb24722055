//! A walk over the leaves of any B+tree, which verifies every block it passes.
//!
//! Checked: each block by itself (`format::btree::BtreeBlock::verify`), its level, its neighbours both ways, the order
//! of records and keys within a block and across blocks, the parent's keys (for reverse mappings the high ones too),
//! and that no block but the root is less than half full.
//!
//! # Invariants
//! One block is held per level. Levels only go down, and once anything was found wrong, a block that was seen before
//! is not entered again: a walk ends after as many blocks as the tree has, whatever the disk says.

use std::collections::HashSet;

use base::{AgBlock, AgNumber, Ino};
use format::btree::{
    self, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreeHeader, BtreePointer, FreeExtent, Rmap,
    RmapKey, rmap,
};
use format::inode::BmapRootView;
use format::ondisk::OnDisk;
use format::{Damage, Place};

use crate::ownership::claim::owner_name;
use crate::volume::Volume;

/// What the walk needs of a kind of tree beyond its layout.
pub(crate) trait Checked: Btree<Record: Copy, Key: Copy> {
    /// Whether the parent's key is what it must be for a child whose body is given: `false` is damage.
    fn high_key_matches(_key: &Self::Key, _child: &BtreeBlockBody<'_, Self>) -> bool
    where
        Self: Sized,
    {
        true
    }

    /// A key in words.
    fn show(key: &Self::Key) -> String;
}

/// A key in words.
fn free_extent(key: &FreeExtent) -> String {
    format!("{} blocks from {:#x}", key.blockcount, key.startblock)
}

macro_rules! checked {
    ($($tree:ident: $show:expr;)*) => {$(
        impl Checked for btree::$tree {
            fn show(key: &Self::Key) -> String {
                let show: fn(&Self::Key) -> String = $show;
                show(key)
            }
        }
    )*};
}

checked! {
    BnoBt: free_extent;
    CntBt: free_extent;
    InoBt: |key| format!("AG inode {}", key.startino);
    FinoBt: |key| format!("AG inode {}", key.startino);
    RefcountBt: |key| format!("{:#x}", key.startblock);
    BmBt: |key| format!("file block {}", key.startoff);
}

impl Checked for btree::RmapBt {
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

/// Last block, owner, last offset: the order of high keys. Whether an extent is written plays no part in it.
type High = (u64, u64, u64);

fn highest_of_record(record: &Rmap) -> High {
    let last = u64::from(record.blockcount.get()).saturating_sub(1);
    let (owner, offset) = (record.owner.get(), record.offset.get() & !rmap::UNWRITTEN);
    // Only a file's own blocks have offsets that run along with the blocks.
    let runs = owner >> 63 == 0 && offset & rmap::BMBT_BLOCK == 0;
    let offset = if runs { offset.saturating_add(last) } else { offset };
    (u64::from(record.startblock.get()) + last, owner, offset)
}

fn highest_of_key(key: &RmapKey) -> High {
    (key.startblock_hi.get().into(), key.owner_hi.get(), key.offset_hi.get() & !rmap::UNWRITTEN)
}

/// The block that is open at one level.
#[derive(Default)]
struct Level {
    bytes: Vec<u8>,
    /// Records or children.
    count: usize,
    /// The next child to enter.
    next: usize,
    /// The last block that was entered at this level, and the right neighbour that it named.
    last: Option<(u64, Option<u64>)>,
    /// A block of this level was skipped: the next one's left neighbour is not known.
    gap: bool,
}

/// The walk. Reusable: [`begin`](Self::begin) or [`begin_in_inode`](Self::begin_in_inode) start over with the same
/// buffers.
pub(crate) struct TreeWalk<'v, T: Checked> {
    volume: &'v Volume<'v>,
    ag: Option<AgNumber>,
    ino: Option<Ino>,
    /// By level, leaves first.
    levels: Vec<Level>,
    height: usize,
    /// The root is a leaf that was not yet handed out.
    root_leaf: bool,
    root_in_inode: bool,
    last_record: Option<T::Record>,
    last_keys: Vec<Option<T::Key>>,
    /// A second walk over a tree whose damage was told by the first.
    quiet: bool,
    seen: HashSet<(AgNumber, AgBlock)>,
    /// Something was wrong.
    damaged: bool,
    /// Some block could not be entered, so that records are missing.
    incomplete: bool,
}

impl<'v, T: Checked> TreeWalk<'v, T> {
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

    /// The same walk without findings.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Whether some records could not be reached.
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

    /// Begins at a root block with `height` levels. The caller has verified that the root lies in the AG and that the
    /// height is 1 to [`btree::MAX_LEVELS`].
    pub fn begin(
        &mut self,
        ag: AgNumber,
        root: AgBlock,
        height: u32,
        visit: &mut dyn FnMut(AgNumber, AgBlock),
    ) {
        (self.ag, self.ino) = (Some(ag), None);
        let height = height.clamp(1, btree::MAX_LEVELS) as usize;
        self.reset(height);
        self.root_leaf = self.enter(height - 1, (ag, root), None, visit) && height == 1;
    }

    /// Begins at the root in an inode.
    pub fn begin_in_inode(&mut self, ino: Ino, root: &BmapRootView<'_>) {
        (self.ag, self.ino) = (None, Some(ino));
        let height = usize::from(root.level).min(btree::MAX_LEVELS as usize) + 1;
        self.reset(height);
        self.root_in_inode = true;
        let geometry = &self.volume.geometry;
        let pointers_at = T::Header::SIZE + T::max_keys(geometry) * T::Key::SIZE;
        let Some(level) = self.levels.last_mut() else { return };
        // Laid out as a block would be, so that the walk needs no second way to read it.
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

    /// Goes on to the next leaf. `visit` gets each block that is entered, nodes included, once.
    pub fn next_leaf(&mut self, visit: &mut dyn FnMut(AgNumber, AgBlock)) -> bool {
        if std::mem::take(&mut self.root_leaf) {
            return true;
        }
        loop {
            let open = |level: &Level| level.next < level.count;
            let Some(parent) = (1..self.height).find(|n| self.levels.get(*n).is_some_and(open)) else {
                self.finish();
                // No leaf is open any more.
                self.levels.iter_mut().for_each(|level| level.count = 0);
                return false;
            };
            if self.descend(parent, visit) && parent == 1 {
                return true;
            }
        }
    }

    /// The records of the leaf that is open.
    pub fn records(&self) -> &[T::Record] {
        let level = self.levels.first();
        level
            .and_then(|l| T::Record::view_array(l.bytes.get(T::Header::SIZE..)?, l.count))
            .unwrap_or_default()
    }

    /// Enters the next child of the block that is open at `parent`.
    fn descend(&mut self, parent: usize, visit: &mut dyn FnMut(AgNumber, AgBlock)) -> bool {
        let Some(level) = self.levels.get_mut(parent) else { return false };
        let child = level.next;
        level.next += 1;
        let geometry = &self.volume.geometry;
        let most = T::max_keys(geometry);
        let body = level.bytes.get(T::Header::SIZE..).unwrap_or_default();
        let key = body.get(child * T::Key::SIZE..).and_then(T::Key::view).copied();
        let pointers = body.get(most * T::Key::SIZE..).unwrap_or_default();
        let pointer = pointers.get(child * T::Pointer::SIZE..).and_then(T::Pointer::view);
        let Some((key, pointer)) = key.zip(pointer) else { return false };
        let Some(target) = pointer.locate(geometry, self.ag) else {
            let found = format!("{pointer:?}");
            self.tell(None, Damage::new(T::NAME, "ptr", "a block within the volume", found));
            self.skip(parent - 1);
            return false;
        };
        self.enter(parent - 1, target, Some(key), visit)
    }

    /// Reads and checks a block as the one that is open at `level`.
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
            self.examine(level, target, key, &bytes)
        } else {
            None
        };
        if let Some(open) = self.levels.get_mut(level) {
            open.bytes = bytes;
            (open.count, open.next) = (entered.unwrap_or(0), 0);
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

    /// Checks a block that was read; returns how many records or children it has.
    fn examine(
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
                self.tell(Some(place), damage);
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
        let Some(open) = self.levels.get_mut(level) else { return };
        let (before, gap) = (open.last, std::mem::replace(&mut open.gap, false));
        open.last = Some((own, right));
        if gap {
            return;
        }
        let expected = before.map(|(block, _)| block);
        if left != expected {
            self.tell(Some(place), Damage::new(T::NAME, "leftsib", sibling(expected), sibling(left)));
        }
        if let Some((_, promised)) = before
            && promised != Some(own)
        {
            let promised = sibling(promised);
            self.tell(
                Some(place),
                Damage::new(T::NAME, "rightsib", format_args!("{own} in the block to the left"), promised),
            );
        }
    }

    fn check_key(&mut self, place: Place, key: &T::Key, body: &BtreeBlockBody<'_, T>) {
        let low = match body {
            BtreeBlockBody::Leaf(records) => records.first().is_some_and(|first| T::key_matches(key, first)),
            // Equal keys compare alike in both directions, whether or not the order allows equals to follow each
            // other.
            BtreeBlockBody::Node(keys, _) => {
                keys.first().is_some_and(|first| T::keys_in_order(key, first) == T::keys_in_order(first, key))
            }
        };
        if !low {
            self.tell(
                Some(place),
                Damage::new(T::NAME, "key", "the child's first key in its parent", T::show(key)),
            );
        } else if !T::high_key_matches(key, body) {
            self.tell(
                Some(place),
                Damage::new(T::NAME, "high key", "the child's highest key in its parent", T::show(key)),
            );
        }
    }

    fn check_fill(&mut self, level: usize, place: Place, count: usize) {
        let top = level + 1 == self.height;
        // A root in an inode may be too small to take over its only child, however empty that is.
        let only_child = self.root_in_inode
            && level + 2 == self.height
            && self.levels.last().is_some_and(|root| root.count == 1);
        if top || only_child {
            return;
        }
        let geometry = &self.volume.geometry;
        let most = if level == 0 { T::max_records(geometry) } else { T::max_keys(geometry) };
        if count < most / 2 {
            let expected = format!("at least {}, half of what fits", most / 2);
            self.tell(Some(place), Damage::new(T::NAME, "numrecs", expected, count));
        }
    }

    fn check_records(&mut self, place: Place, records: &[T::Record]) {
        let joint = match (self.last_record, records.first()) {
            (Some(left), Some(right)) => T::in_order(&left, right),
            _ => true,
        };
        let inside = records.is_sorted_by(|left, right| T::in_order(left, right));
        if let Some(last) = records.last() {
            self.last_record = Some(*last);
        }
        if !(joint && inside) {
            self.tell(
                Some(place),
                Damage::new(T::NAME, "recs", "records in ascending order", "another order"),
            );
        }
    }

    fn check_keys(&mut self, level: usize, place: Place, keys: &[T::Key]) {
        let before = self.last_keys.get_mut(level).and_then(Option::take);
        let joint = match (before, keys.first()) {
            (Some(left), Some(right)) => T::keys_in_order(&left, right),
            _ => true,
        };
        let inside = keys.is_sorted_by(|left, right| T::keys_in_order(left, right));
        if let Some(slot) = self.last_keys.get_mut(level) {
            *slot = keys.last().copied();
        }
        if !(joint && inside) {
            self.tell(Some(place), Damage::new(T::NAME, "keys", "keys in ascending order", "another order"));
        }
    }

    /// The last block of each level names no right neighbour.
    fn finish(&mut self) {
        for n in 0..self.height {
            let Some(level) = self.levels.get_mut(n) else { continue };
            let (last, gap) = (level.last.take(), level.gap);
            if let Some((block, Some(right))) = last
                && !gap
            {
                let place = self.place_of_number(block);
                self.tell(Some(place), Damage::new(T::NAME, "rightsib", "none", right));
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
        self.tell(
            None,
            Damage::new(T::NAME, "ptr", "each block once", format_args!("block {:#x} again", target.1)),
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
    fn tell(&mut self, place: Option<Place>, damage: Damage) {
        self.damaged = true;
        if !self.quiet {
            self.volume.error(place.unwrap_or_else(|| self.place(None)), damage);
        }
    }
}

fn sibling(block: Option<u64>) -> String {
    block.map_or_else(|| "none".to_owned(), |block| block.to_string())
}

/// Copies into a buffer that the caller knows to be large enough.
fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + from.len()) {
        to.copy_from_slice(from);
    }
}
