//! Directories against a model. After each operation every block passes its verifier, the blocks agree with each other,
//! and the names are those of the model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base::{FileBlock, Ino, errno};
use format::dabtree::{self, NodeEntry};
use format::dir::DataPtr;
use format::{Geometry, hash};
use proptest::prelude::*;

use super::memory_fork::{INO, MemoryFork, geometry};
use super::{Directory, Error, FoundEntry};

pub(super) type Model = BTreeMap<Vec<u8>, (Ino, u8)>;

const PARENT: Ino = Ino(140);

/// A directory and its model.
pub(super) struct Pair {
    pub memory: MemoryFork,
    pub model: Model,
    parent: Ino,
}

impl Pair {
    pub fn new(block_log: u8, dir_block_log: u8, capacity: usize) -> Self {
        Self::on(geometry(block_log, dir_block_log), capacity)
    }

    pub fn on(geometry: Geometry, capacity: usize) -> Self {
        let mut memory = MemoryFork::new(geometry, capacity);
        let geometry = memory.geometry.clone();
        Directory::new(&geometry, &mut memory).init(PARENT).unwrap();
        Self { memory, model: Model::new(), parent: PARENT }
    }

    pub fn with<T>(&mut self, run: impl FnOnce(&mut Directory<'_, MemoryFork>) -> T) -> T {
        let geometry = self.memory.geometry.clone();
        run(&mut Directory::new(&geometry, &mut self.memory))
    }

    pub fn add(&mut self, name: &[u8], ino: Ino, ftype: u8) {
        let result = self.with(|dir| dir.add(name, ino, ftype));
        if self.model.contains_key(name) {
            assert_eq!(result.unwrap_err().errno(), errno::EEXIST);
        } else if let Err(error) = result {
            assert_eq!(error.errno(), errno::ENOSPC, "{error}");
            assert!(self.memory.free_blocks < u32::MAX);
        } else {
            self.model.insert(name.to_vec(), (ino, ftype));
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        let result = self.with(|dir| dir.remove(name));
        match self.model.remove(name) {
            Some((ino, ftype)) => {
                let found = result.unwrap();
                assert_eq!((found.ino, found.ftype), (ino, ftype));
            }
            None => assert_eq!(result.unwrap_err().errno(), errno::ENOENT),
        }
    }

    pub fn replace(&mut self, name: &[u8], ino: Ino, ftype: u8) {
        let result = self.with(|dir| dir.replace(name, ino, ftype));
        if let Err(Error::NoSpace { .. }) = result {
            assert!(self.memory.free_blocks < u32::MAX);
            return;
        }
        if name == b".." {
            assert_eq!(result.unwrap().ino, std::mem::replace(&mut self.parent, ino));
            return;
        }
        match self.model.get_mut(name) {
            Some(entry) => {
                assert_eq!(result.unwrap().ino, entry.0);
                *entry = (ino, ftype);
            }
            None => assert_eq!(result.unwrap_err().errno(), errno::ENOENT),
        }
    }

    /// All entries, in the order of positions.
    pub fn list(&mut self) -> Vec<(DataPtr, Vec<u8>, Ino, u8)> {
        let mut list = Vec::new();
        self.with(|dir| {
            dir.read(DataPtr(0), |entry| {
                list.push((entry.pointer, entry.name.to_vec(), entry.ino, entry.ftype));
                ControlFlow::Continue(())
            })
        })
        .unwrap();
        list
    }

    pub fn check(&mut self) {
        self.memory.check().unwrap();
        let list = self.list();
        assert!(list.is_sorted_by(|left, right| left.0 < right.0), "positions rise");
        assert_eq!((list[0].1.as_slice(), list[0].2), (&b"."[..], INO));
        assert_eq!((list[1].1.as_slice(), list[1].2), (&b".."[..], self.parent));
        let found: Model =
            list.iter().skip(2).map(|(_, name, ino, ftype)| (name.clone(), (*ino, *ftype))).collect();
        assert_eq!((list.len() - 2, &found), (self.model.len(), &self.model));
        let empty = self.with(|dir| dir.is_empty()).unwrap();
        assert_eq!(empty, self.model.is_empty());
        // Reading from any position gives the rest.
        if let Some((from, ..)) = list.get(list.len() / 2) {
            let mut rest = 0;
            self.with(|dir| {
                dir.read(*from, |_| {
                    rest += 1;
                    ControlFlow::Continue(())
                })
            })
            .unwrap();
            assert_eq!(rest, list.len() - list.len() / 2);
        }
    }

    pub fn check_lookups(&mut self) {
        let names: Vec<_> = self.model.iter().map(|(name, entry)| (name.clone(), *entry)).collect();
        for (name, (ino, ftype)) in names {
            let found: Option<FoundEntry> = self.with(|dir| dir.lookup(&name)).unwrap();
            assert_eq!(found.map(|found| (found.ino, found.ftype)), Some((ino, ftype)));
        }
        assert_eq!(self.with(|dir| dir.lookup(b"not there")).unwrap(), None);
        assert_eq!(self.with(|dir| dir.lookup(b"..")).unwrap().unwrap().ino, self.parent);
        assert_eq!(self.with(|dir| dir.lookup(b".")).unwrap().unwrap().ino, INO);
    }
}

/// One of a small set of names: short and long ones, some with equal hashes, with bytes of all values.
fn name(number: u16) -> Vec<u8> {
    let (kind, number) = (number % 8, number / 8);
    match kind {
        0 => format!("{number}").into_bytes(),
        1 => {
            let mut name = vec![b'x'; 200];
            name.extend(number.to_string().as_bytes());
            name
        }
        2 => alike(number.into()),
        3 => {
            let bytes = number.to_le_bytes();
            let safe = |byte: u8| if matches!(byte, 0 | b'/' | b'.') { 0xff } else { byte };
            vec![0x80, safe(bytes[0]), safe(bytes[1])]
        }
        _ => format!("a file of some length {number:05}").into_bytes(),
    }
}

/// Names of one hash: bytes 32 apart are rotated alike, so equal changes of both cancel out.
pub(super) fn alike(number: u32) -> Vec<u8> {
    let mut name = vec![b'a'; 64];
    for bit in 0..32 {
        if number >> bit & 1 == 1 {
            name[bit] ^= 0x10;
            name[bit + 32] ^= 0x10;
        }
    }
    name
}

#[test]
fn alike_names_have_equal_hashes() {
    assert_eq!(hash::name(&alike(0)), hash::name(&alike(12345)));
    assert_ne!(alike(0), alike(12345));
}

pub(super) fn ino(number: u32, wide: bool) -> Ino {
    Ino(u64::from(number % 100_000) + 200 + if wide { 1 << 33 } else { 0 })
}

#[derive(Clone, Debug)]
enum Op {
    Add(u16, bool),
    Remove(u16),
    Replace(u16, bool),
    Parent(bool),
    FreeBlocks(Option<u32>),
    Frees(bool),
}

fn op(names: u16) -> impl Strategy<Value = Op> {
    let rare = prop::bool::weighted(0.02);
    prop_oneof![
        10 => (0..names, rare).prop_map(|(name, wide)| Op::Add(name, wide)),
        7 => (0..names).prop_map(Op::Remove),
        1 => (0..names, rare).prop_map(|(name, wide)| Op::Replace(name, wide)),
        1 => rare.prop_map(Op::Parent),
        1 => prop::option::weighted(0.3, 0..4u32).prop_map(Op::FreeBlocks),
        1 => prop::bool::weighted(0.8).prop_map(Op::Frees),
    ]
}

fn run(pair: &mut Pair, ops: &[Op], check_every: usize) {
    for (number, op) in ops.iter().enumerate() {
        let inode = |wide| ino(number as u32, wide);
        match *op {
            Op::Add(number, wide) => pair.add(&name(number), inode(wide), 1 + (number % 7) as u8),
            Op::Remove(number) => pair.remove(&name(number)),
            Op::Replace(number, wide) => pair.replace(&name(number), inode(wide), 2),
            Op::Parent(wide) => pair.replace(b"..", inode(wide), 2),
            Op::FreeBlocks(free) => pair.memory.free_blocks = free.unwrap_or(u32::MAX),
            Op::Frees(frees) => pair.memory.frees = if frees { u32::MAX } else { 0 },
        }
        if number % check_every == 0 {
            pair.check();
        }
    }
    pair.check();
    pair.check_lookups();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn small_blocks(ops in prop::collection::vec(op(400), 1..400)) {
        run(&mut Pair::new(9, 0, 100), &ops, 1);
    }

    #[test]
    fn usual_blocks(ops in prop::collection::vec(op(1200), 1..600)) {
        run(&mut Pair::new(12, 0, 336), &ops, 7);
    }

    #[test]
    fn blocks_of_several_blocks(ops in prop::collection::vec(op(300), 1..300)) {
        run(&mut Pair::new(10, 1, 200), &ops, 3);
    }

    #[test]
    fn the_largest_blocks(ops in prop::collection::vec(op(4000), 1..400)) {
        run(&mut Pair::new(12, 4, 1000), &ops, 50);
    }
}

/// A permutation without random numbers: a linear congruential generator with full period.
pub(super) fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    let period = count.next_power_of_two();
    let mut state = 1;
    (0..period)
        .map(move |_| {
            state = (state * 5 + 3) % period;
            state
        })
        .filter(move |number| *number < count)
}

#[test]
fn grows_to_a_deep_tree_and_back() {
    let mut pair = Pair::new(9, 0, 100);
    let count = 8000;
    for number in shuffled(count) {
        pair.add(format!("entry {number}").as_bytes(), ino(number as u32, false), 1);
        if number % 257 == 0 {
            pair.check();
        }
    }
    pair.check();
    pair.check_lookups();
    let levels = dabtree::edit::NodeShape::of(&pair.memory.blocks[&(1 << 26)].bytes).unwrap().level;
    assert!(levels >= 2, "a tree of {levels} levels above leaves");
    assert!(pair.memory.blocks.range(1 << 27..).count() > 1, "several free blocks");
    for number in shuffled(count) {
        let number = (number * 3001) % count;
        pair.remove(format!("entry {number}").as_bytes());
        if number % 257 == 0 {
            pair.check();
        }
    }
    pair.check();
    assert!(pair.memory.local.is_some(), "back in the inode");
}

/// A removal freed the only leaf of a node, and then found that the node could not be freed: the tree kept a node
/// without children, which is damage. Later it checked beforehand that each of them could be freed, but not that both
/// could: on a full volume the first may use the last free extent record, and the removal failed half way.
#[test]
fn the_only_leaf_of_a_node_goes_with_the_node_or_stays() {
    // Names with ascending hashes.
    let name = |number: u32| [18, 12, 6, 0].map(|shift| 64 + (number >> shift & 63) as u8);
    let node = |pair: &Pair, block: FileBlock| -> Vec<NodeEntry> {
        dabtree::edit::entries(&pair.memory.blocks[&block.get()].bytes).unwrap().to_vec()
    };
    let root = FileBlock(1 << 26);
    for (is_stuck, frees) in [(false, u32::MAX), (true, u32::MAX), (false, 1), (false, 2), (false, 3)] {
        let mut pair = Pair::new(9, 0, 100);
        let mut numbers = (0..).step_by(1000);
        let level = |pair: &Pair| {
            let root = pair.memory.blocks.get(&root.get());
            root.and_then(|root| dabtree::edit::NodeShape::of(&root.bytes).ok())
                .map_or(0, |shape| shape.level)
        };
        while level(&pair) < 2 {
            pair.add(&name(numbers.next().unwrap()), ino(1, false), 1);
        }
        let [left, right] = node(&pair, root).try_into().unwrap();
        // The left node must be too full to be joined with the right one.
        for number in 10_001.. {
            if node(&pair, left.child()).len() > 50 {
                break;
            }
            pair.add(&name(number), ino(1, false), 1);
        }
        let in_right = |name: &[u8]| hash::entry(name, &geometry(9, 0)) > left.hashval.get();
        let gone: Vec<_> = pair.model.keys().filter(|name| in_right(name)).cloned().collect();
        let (last, others) = gone.split_last().unwrap();
        others.iter().for_each(|name| pair.remove(name));
        assert_eq!(node(&pair, right.child()).len(), 1);
        pair.memory.stuck = is_stuck.then(|| right.child());
        pair.memory.frees = frees;
        pair.remove(last);
        pair.check();
        pair.check_lookups();
        assert_eq!(level(&pair), if is_stuck || frees < 3 { 2 } else { 1 });
    }
}

#[test]
fn thousands_of_names_with_one_hash() {
    let mut pair = Pair::new(10, 0, 100);
    for number in 0..1500 {
        pair.add(&alike(number), ino(number, false), 1);
        pair.add(format!("other {number}").as_bytes(), ino(number, false), 1);
    }
    pair.check();
    for number in (0..1500).step_by(3) {
        pair.replace(&alike(number), ino(number + 5, false), 1);
        assert_eq!(pair.with(|dir| dir.lookup(&alike(number))).unwrap().unwrap().ino, ino(number + 5, false));
    }
    for number in (0..1500).map(|number| (number * 7) % 1500) {
        pair.remove(&alike(number));
        if number % 100 == 0 {
            pair.check();
        }
    }
    pair.check();
}

#[test]
fn invalid_names_are_refused() {
    let mut pair = Pair::new(12, 0, 336);
    for (name, errno) in [
        (&b""[..], errno::EINVAL),
        (b".", errno::EINVAL),
        (b"..", errno::EINVAL),
        (b"a/b", errno::EINVAL),
        (b"a\0b", errno::EINVAL),
        (&[b'x'; 256], errno::ENAMETOOLONG),
    ] {
        assert_eq!(pair.with(|dir| dir.add(name, ino(1, false), 1)).unwrap_err().errno(), errno);
        assert_eq!(pair.with(|dir| dir.remove(name)).unwrap_err().errno(), errno);
    }
    pair.add(&[0xff; 255], ino(1, false), 1);
    pair.check();
}

#[test]
fn adding_an_entry_logs_few_bytes() {
    let mut pair = Pair::new(12, 0, 336);
    let count = 20_000;
    for number in 0..count {
        pair.add(format!("file {number:08}").as_bytes(), ino(number, false), 1);
    }
    let before = pair.memory.logged.get();
    for number in count..count + 1000 {
        pair.add(format!("file {number:08}").as_bytes(), ino(number, false), 1);
    }
    let each = (pair.memory.logged.get() - before) / 1000;
    // Without stale entries, an insertion moves half of the leaf on average.
    assert!(each < 2500, "{each} bytes logged for an entry");
}
