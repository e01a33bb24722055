//! One change of a volume: its reservations, its transaction, and the directories that it works on.
//!
//! The usual order of steps:
//!
//! | step | function |
//! |---|---|
//! | 1 | reserve blocks and log space: [`Volume::begin`], [`Volume::begin_with_blocks`] |
//! | 2 | lock inodes, and check that the operation is allowed |
//! | 3 | change directories, attributes and inodes |
//! | 4 | [`Operation::commit`], which also unlocks buffers and returns unused reservations |
//!
//! An operation that is dropped before it changed anything has no effect.

use std::ops::ControlFlow;

use ag::{BlockReservation, Claim};
use backing::no_space;
use base::Ino;
use base::errno::{self, Errno};
use format::Damage;
use format::dir::{DataPtr, DirEntry};
use format::inode::FileType;
use inode::dir::{DirBlock, Directory, EntryPosition, FoundEntry, InodeDirFork, InsertSlot, NewEntry};
use inode::group_space::GroupSpace;
use inode::{InodeRef, InodeState, LockedInode, state};
use journal::engine::{LogReservation, Loggable, Transaction};

use crate::recover::damaged;
use crate::watch::Events;
use crate::{Error, Result, Volume};

/// A change in progress: a transaction, and the blocks that it may allocate.
pub(crate) struct Operation<'v> {
    pub volume: &'v Volume,
    pub tx: Transaction,
    /// Blocks claimed for the value of an attribute, in the order of the value. They are part of `blocks`: claims must
    /// end before their reservation is returned, so this field is dropped first.
    pub value_claims: Vec<Claim>,
    pub blocks: BlockReservation<'v>,
    /// Maximum number of blocks that one directory may allocate.
    pub dir_blocks_max: u32,
    /// Changes of watched directories. Their watches get them when the transaction is committed.
    pub events: Events,
}

impl<'v> Operation<'v> {
    /// Commits the transaction, with the changes of the locked inodes `locked`. The directories whose entries changed
    /// must be locked until this returns, so that their watches get the events in the order of the changes.
    #[inline]
    pub fn commit(self, locked: &mut [&mut dyn Loggable]) -> Result<()> {
        self.tx.commit(locked)?;
        if let Some(events) = self.events.get() {
            self.volume.watches.publish(events);
        }
        Ok(())
    }

    /// Adds an entry to a directory at its insert slot.
    pub fn add_entry(
        &mut self,
        dir: &mut LockedInode,
        slot: InsertSlot<DirBlock>,
        entry: NewEntry<'_>,
    ) -> Result<()> {
        self.volume.names.changing(dir, entry.name);
        self.directory(dir, |dir| dir.add_at(slot, entry))
    }

    /// Adds an entry to a directory that needs no other block for it. Otherwise returns `false`, and the directory has
    /// the same entries as before.
    pub fn add_entry_in_place(
        &mut self,
        dir: &mut LockedInode,
        slot: InsertSlot<DirBlock>,
        entry: NewEntry<'_>,
    ) -> Result<bool> {
        self.volume.names.changing(dir, entry.name);
        let dir_blocks_max = std::mem::replace(&mut self.dir_blocks_max, 0);
        let added = self.directory(dir, |dir| match dir.add_at(slot, entry) {
            Err(error) if error.errno() == errno::ENOSPC => Ok(false),
            added => added.map(|()| true),
        });
        self.dir_blocks_max = dir_blocks_max;
        added
    }

    /// Makes an existing entry of a directory refer to another inode.
    pub fn replace_entry(&mut self, dir: &mut LockedInode, name: &[u8], ino: Ino, ftype: u8) -> Result<()> {
        self.volume.names.changing(dir, name);
        self.directory(dir, |dir| dir.replace(name, ino, ftype)).map(drop)
    }

    /// Removes an entry of a directory.
    pub fn remove_entry(
        &mut self,
        dir: &mut LockedInode,
        position: EntryPosition<DirBlock>,
        name: &[u8],
    ) -> Result<()> {
        self.volume.names.changing(dir, name);
        self.directory(dir, |dir| dir.remove_at(position, name)).map(drop)
    }

    /// Runs `work` on a locked directory. Entries are changed by the functions above.
    pub fn directory<T>(
        &mut self,
        dir: &mut LockedInode,
        work: impl FnOnce(&mut Directory<'_, InodeDirFork<'_>>) -> inode::dir::Result<T>,
    ) -> Result<T> {
        self.tx.expect_readable()?;
        let volume = self.volume;
        let mut space = GroupSpace::for_metadata(&volume.groups, &mut self.blocks);
        let shared = volume.inode_cache.shared();
        let fork = InodeDirFork::new(shared, &mut self.tx, &mut space, dir, self.dir_blocks_max);
        let result = fork.and_then(|mut fork| work(&mut Directory::new(&volume.geometry, &mut fork)));
        Ok(self.tx.settle(result, dir)?)
    }

    /// Finds where a new entry goes, and keeps the blocks locked. `EEXIST` if the name exists.
    pub fn insert_slot(&mut self, dir: &mut LockedInode, name: &[u8]) -> Result<InsertSlot<DirBlock>> {
        self.directory(dir, |dir| dir.insert_slot(name))
    }

    /// Finds an entry that must exist, and keeps its blocks locked.
    pub fn entry_position(&mut self, dir: &mut LockedInode, name: &[u8]) -> Result<EntryPosition<DirBlock>> {
        let position = self.directory(dir, |dir| dir.entry_position(name))?.ok_or_else(no_such_file)?;
        self.verify_entry(dir, name, position.found().ino)?;
        Ok(position)
    }

    /// Looks up a name and unlocks the directory's blocks, so that the thread may wait for another inode.
    pub fn lookup(&mut self, dir: &mut LockedInode, name: &[u8]) -> Result<Option<FoundEntry>> {
        let found = self.directory(dir, |dir| dir.lookup(name))?;
        self.tx.release_clean();
        if let Some(found) = found {
            self.verify_entry(dir, name, found.ino)?;
        }
        Ok(found)
    }

    /// Rejects an entry that cannot be valid: the volume's internal inodes have no names, and the lock of a directory
    /// that an entry of its own refers to would be taken twice.
    fn verify_entry(&self, dir: &LockedInode, name: &[u8], ino: Ino) -> Result<()> {
        let may_be_itself = name == b"." || (name == b".." && dir.ino() == self.volume.geometry.root);
        if (ino != dir.ino() || may_be_itself) && !self.volume.internal.contains(&ino) {
            return Ok(());
        }
        Err(bad_entry(dir, name, "an inode that an entry may refer to", ino.to_string()))
    }

    /// Returns a reference to the inode of an entry of a locked directory. The inode cannot be freed while the
    /// directory is locked, so a free one is damage.
    pub fn entry_inode(&self, dir: &LockedInode, name: &[u8], ino: Ino) -> Result<InodeRef> {
        self.volume.inode_at(ino).map_err(|error| match error.errno() {
            errno::ENOENT => bad_entry(dir, name, "an inode in use", format!("{ino}, which is free")),
            _ => error,
        })
    }

    /// Returns a reference to the parent of a locked directory.
    pub fn parent(&mut self, dir: &mut LockedInode) -> Result<InodeRef> {
        let Some(found) = self.lookup(dir, b"..")? else {
            return Err(bad_entry(dir, b"..", "a directory", "none".into()));
        };
        self.entry_inode(dir, b"..", found.ino)
    }

    /// Calls `visit` with the entries of a directory, from a position on.
    pub fn read_entries(
        &mut self,
        dir: &mut LockedInode,
        from: DataPtr,
        visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.directory(dir, |dir| dir.read(from, visit))
    }
}

impl Volume {
    /// Begins an operation that allocates no blocks.
    pub(crate) fn begin(&self, reservation: LogReservation) -> Result<Operation<'_>> {
        self.begin_with_blocks(reservation, 0)
    }

    /// Begins an operation that may allocate up to `blocks` blocks.
    pub(crate) fn begin_with_blocks(
        &self,
        reservation: LogReservation,
        blocks: u32,
    ) -> Result<Operation<'_>> {
        let blocks = self.groups.reserve_blocks(blocks)?;
        self.begin_reserved(reservation, blocks, Vec::new())
    }

    /// Begins an operation that mostly frees blocks: on a full volume it runs without a reservation of blocks.
    pub(crate) fn begin_freeing(&self, reservation: LogReservation, blocks: u32) -> Result<Operation<'_>> {
        let blocks = self.groups.reserve_blocks(blocks).or_else(|_| self.groups.reserve_blocks(0))?;
        self.begin_reserved(reservation, blocks, Vec::new())
    }

    /// Begins an operation with reserved blocks, and claims among them. On an error the claims end before the
    /// reservation: parameters are dropped in reverse order.
    pub(crate) fn begin_reserved<'v>(
        &'v self,
        reservation: LogReservation,
        blocks: BlockReservation<'v>,
        value_claims: Vec<Claim>,
    ) -> Result<Operation<'v>> {
        self.memory.budget.make_room();
        let dir_blocks_max = blocks.left().min(self.reservations.name_blocks);
        let tx = self.inode_cache.shared().begin(reservation)?;
        Ok(Operation { volume: self, tx, value_claims, blocks, dir_blocks_max, events: Events::default() })
    }

    /// Begins an operation that only reads: it has no log space.
    pub(crate) fn reader(&self) -> Result<Operation<'_>> {
        self.memory.budget.make_room();
        let tx = self.inode_cache.shared().reader();
        let blocks = self.groups.reserve_blocks(0)?;
        let (value_claims, events) = (Vec::new(), Events::default());
        Ok(Operation { volume: self, tx, value_claims, blocks, dir_blocks_max: 0, events })
    }

    /// Runs `work`. If it fails with `ENOSPC`, releases what it can and tries once more ([`backing::no_space`], stage
    /// 4).
    pub(crate) fn retry_on_enospc<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        no_space::retry(work, || Ok(self.release_space()?))
    }

    /// Releases reserved blocks, and waits for blocks that are about to be free. Dirty data reserves blocks for extent
    /// maps that are mostly not needed. Removed files are freed in the background, and their blocks can be reused when
    /// that is stable.
    pub(crate) fn release_space(&self) -> error::Result<bool> {
        // fsync reports an error of writeback.
        let _ = self.cache.sync_all();
        // After writeback, which may preallocate.
        self.cache.release_preallocations();
        inode::inactive::drain(self.inode_cache.shared());
        self.log.flush_busy()?;
        self.groups.shrink_rmap_reservations(&mut self.inode_cache.shared().reader())?;
        Ok(true)
    }

    /// Returns a reference to an inode. `ENOENT` if it is free.
    pub(crate) fn inode_at(&self, ino: Ino) -> Result<InodeRef> {
        let inode = self.inode_cache.get(ino)?;
        // Files of the metadata directory are internal.
        if inode.is_internal() {
            let damage =
                Damage::new("inode", "flags2", "no file of the metadata directory", "one of its files");
            return Err(damaged(ino, damage));
        }
        Ok(inode)
    }

    /// The error for an operation on `.` or `..` of `dir`; `ENOTDIR` if `dir` is not a directory.
    pub(crate) fn refuse_dots(&self, dir: &InodeRef, errno: Errno, why: &'static str) -> Error {
        if is_directory(&dir.read()) { Error::refused(errno, why) } else { not_a_directory() }
    }

    /// Sets times of an inode to the current time.
    pub(crate) fn touch(&self, state: &mut InodeState, times: &[state::InodeTime]) {
        state.set_times(times, self.inode_cache.shared().now());
    }
}

pub(crate) fn no_such_file() -> Error {
    Error::refused(errno::ENOENT, "no such file or directory")
}

pub(crate) fn not_a_directory() -> Error {
    Error::refused(errno::ENOTDIR, "not a directory")
}

/// Rejects an inode that is not a directory, or a directory that was removed while it was still referenced.
pub(crate) fn expect_directory(state: &InodeState) -> Result<()> {
    if !is_directory(state) {
        return Err(not_a_directory());
    }
    if state.nlink() == 0 {
        return Err(Error::refused(errno::ENOENT, "the directory was removed"));
    }
    Ok(())
}

/// Whether a name is `.` or `..`, which every directory has: they cannot be created, removed or renamed.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Whether an inode is a directory.
pub(crate) fn is_directory(state: &InodeState) -> bool {
    FileType::from_mode(state.mode()) == Some(FileType::Directory)
}

fn bad_entry(dir: &LockedInode, name: &[u8], expected: &str, found: String) -> Error {
    let expected = format!("for \"{}\" {expected}", name.escape_ascii());
    damaged(dir.ino(), Damage::new("directory entry", "inode", expected, found))
}
