//! Directories in transactions on a real fork: what a reopened volume contains is what was done.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base::{FsBlock, Ino, errno};
use error::Result;
use format::dir::DataPtr;
use format::inode::ForkKind;
use journal::engine::Loggable;

use super::{Directory, FoundEntry, InodeDirFork};
use crate::inode::{InodeRef, LockedInode};
use crate::space::{BlockRequest, ForkOwner, SpaceAllocator};
use crate::state::ForkFormat;
use crate::testing::Fixture;

const ROOM: u32 = 100;

struct OnDisk {
    fixture: Fixture,
    inode: Option<InodeRef>,
    ino: Ino,
    model: BTreeMap<Vec<u8>, Ino>,
    free_blocks: u32,
}

impl OnDisk {
    fn new() -> Self {
        let fixture = Fixture::new();
        let (inode, locked) = fixture.create(0o040_755);
        let ino = locked.ino();
        drop(locked);
        let mut this = Self { fixture, inode: Some(inode), ino, model: BTreeMap::new(), free_blocks: ROOM };
        this.change(|dir| dir.init(Ino(70))).unwrap();
        this
    }

    fn lock(&mut self) -> LockedInode {
        if self.inode.is_none() {
            self.inode = Some(self.fixture.cache.get(self.ino).unwrap());
        }
        self.inode.as_ref().map(|inode| inode.lock()).unwrap()
    }

    /// Runs one change and commits it.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Directory<'_, InodeDirFork<'_>>) -> Result<T>,
    ) -> Result<T> {
        let reserved = self.free_blocks;
        let mut locked = self.lock();
        let shared = self.fixture.shared();
        let mut tx = self.fixture.begin();
        let mut space = self.fixture.space();
        let mut blocks = InodeDirFork::new(shared, &mut tx, &mut space, &mut locked, reserved)?;
        let result = change(&mut Directory::new(&shared.geometry, &mut blocks));
        drop(space);
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        result
    }

    fn add(&mut self, name: &[u8], ino: Ino) {
        match self.change(|dir| dir.add(name, ino, 1)) {
            Ok(()) => assert!(self.model.insert(name.to_vec(), ino).is_none()),
            Err(error) if error.errno() == errno::EEXIST => assert!(self.model.contains_key(name)),
            Err(error) => {
                assert_eq!((error.errno(), self.free_blocks < ROOM), (errno::ENOSPC, true), "{error}")
            }
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let found: Option<FoundEntry> = self.change(|dir| dir.remove(name)).ok();
        assert_eq!(found.map(|found| found.ino), self.model.remove(name));
    }

    /// Reopens the volume, so that every block is read and verified, and compares it with the model.
    fn check(&mut self) {
        self.inode = None;
        self.fixture.reopen();
        let mut found = BTreeMap::new();
        self.change(|dir| {
            dir.read(DataPtr(0), |entry| {
                if !entry.is_dot() && !entry.is_dot_dot() {
                    assert!(found.insert(entry.name.to_vec(), entry.ino).is_none());
                }
                ControlFlow::Continue(())
            })
        })
        .unwrap();
        assert_eq!(found, self.model);
        let names: Vec<_> = self.model.clone().into_iter().collect();
        for (name, ino) in names.iter().step_by(7) {
            let found = self.change(|dir| dir.lookup(name)).unwrap();
            assert_eq!(found.map(|found| found.ino), Some(*ino));
        }
        assert_eq!(self.change(|dir| dir.lookup(b"..")).unwrap().map(|found| found.ino), Some(Ino(70)));
    }

    fn fork_format(&mut self) -> Option<ForkFormat> {
        self.lock().fork_format(ForkKind::Data)
    }

    /// Fragments free space: no two adjacent blocks are free.
    fn fragment(&mut self) {
        let mut tx = self.fixture.begin();
        let mut space = self.fixture.space();
        let owner = ForkOwner { ino: Ino(99), fork: ForkKind::Data, tree: true };
        let mut taken: Vec<FsBlock> = Vec::new();
        let mut near = FsBlock(0);
        loop {
            let want = BlockRequest { near: Some(near), max: 64, min: 1, align: 1 };
            let Ok(run) = space.allocate(&mut tx, owner, want) else { break };
            near = FsBlock(run.start.get() + u64::from(run.count));
            taken.extend((0..u64::from(run.count)).map(|n| FsBlock(run.start.get() + n)));
        }
        for block in taken.iter().filter(|block| block.get().is_multiple_of(2)) {
            space.free_tree_block(&mut tx, owner, *block).unwrap();
        }
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("{number:x} a name of {}", "some length".repeat((number % 9) as usize)).into_bytes()
}

fn grow_and_shrink(dir: &mut OnDisk, count: u32) {
    for number in 0..count {
        dir.add(&name(number.wrapping_mul(2_654_435_761)), Ino(u64::from(66 + number % 200)));
        if number.is_power_of_two() || number % 499 == 0 {
            dir.check();
        }
    }
    dir.check();
    for number in (0..count).rev().step_by(2).chain((0..count).rev().skip(1).step_by(2)) {
        dir.remove(&name(number.wrapping_mul(2_654_435_761)));
        if number % 499 == 0 {
            dir.check();
        }
    }
    dir.check();
    assert_eq!(dir.fork_format(), Some(ForkFormat::Local));
    let left = dir.lock();
    assert_eq!((left.nblocks(), left.extent_count(ForkKind::Data)), (0, 0));
}

#[test]
fn through_all_formats_and_back_on_disk() {
    let mut dir = OnDisk::new();
    let used = dir.fixture.groups.used();
    grow_and_shrink(&mut dir, 2500);
    assert_eq!(dir.fixture.groups.used(), used, "every block came back");
}

#[test]
fn directory_blocks_of_several_extents_in_fragmented_space() {
    let mut dir = OnDisk::new();
    dir.fragment();
    let used = dir.fixture.groups.used();
    for number in 0..600 {
        dir.add(&name(number), Ino(80));
    }
    assert_eq!(dir.fork_format(), Some(ForkFormat::Btree), "each block is an extent");
    dir.check();
    for number in 0..600 {
        dir.remove(&name(number));
    }
    dir.check();
    assert_eq!(dir.fixture.groups.used(), used);
}

#[test]
fn without_reserved_blocks_names_that_fit_can_be_added_and_all_removed() {
    let mut dir = OnDisk::new();
    for number in 0..700 {
        dir.add(&name(number), Ino(80));
    }
    dir.free_blocks = 0;
    let before = dir.model.len();
    for number in 700..1100 {
        dir.add(&name(number), Ino(81));
    }
    let fitted = dir.model.len() - before;
    assert!(fitted > 0 && fitted < 400, "{fitted} fitted");
    dir.check();
    for number in 0..1100 {
        dir.remove(&name(number));
    }
    dir.check();
    assert!(dir.model.is_empty());
    assert!(dir.change(|dir| dir.is_empty()).unwrap());
}
