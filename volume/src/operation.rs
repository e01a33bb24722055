//! One change of a volume: a transaction with the blocks that it may take, and directories within it.

use std::ops::ControlFlow;

use ag::{BlockReservation, Claim};
use base::Ino;
use base::errno::{self, Errno};
use format::Damage;
use format::dir::{DataPtr, DirEntry};
use format::inode::{FileType, flags2};
use inode::dir::{DirBlock, Directory, EntryPosition, FoundEntry, InodeDirFork, InsertSlot};
use inode::group_space::GroupSpace;
use inode::{InodeRef, InodeState, LockedInode, state};
use journal::engine::{LogReservation, Loggable, Transaction};

use crate::recover::damaged;
use crate::{Error, Result, Volume};

/// An inode whose lock this thread holds.
pub(crate) type Locked = LockedInode;

/// A transaction with the blocks that it may take.
pub(crate) struct Operation<'v> {
    pub volume: &'v Volume,
    pub tx: Transaction,
    /// Blocks that are claimed for the value of an attribute, in the order of the value. Claims end before what is
    /// reserved for them is given back: this field is dropped before the next one.
    pub value: Vec<Claim>,
    pub blocks: BlockReservation<'v>,
    /// How many blocks one directory in it may take.
    pub room: u32,
}

impl<'v> Operation<'v> {
    /// Ends it; what `locked` changed is part of it.
    pub fn commit(self, locked: &mut [&mut dyn Loggable]) -> Result<()> {
        Ok(self.tx.commit(locked)?)
    }

    /// Works on a directory whose inode is locked.
    pub fn directory<T>(
        &mut self,
        dir: &mut Locked,
        work: impl FnOnce(&mut Directory<'_, InodeDirFork<'_>>) -> inode::dir::Result<T>,
    ) -> Result<T> {
        let volume = self.volume;
        let mut space = GroupSpace::for_metadata(&volume.groups, &mut self.blocks);
        let room = self.room;
        let blocks = InodeDirFork::new(volume.inode_cache.shared(), &mut self.tx, &mut space, dir, room);
        let done = blocks.and_then(|mut blocks| work(&mut Directory::new(&volume.geometry, &mut blocks)));
        Ok(self.tx.settle(done, dir)?)
    }

    /// Looks a name up that shall be new.
    pub fn insert_slot(&mut self, dir: &mut Locked, name: &[u8]) -> Result<InsertSlot<DirBlock>> {
        self.directory(dir, |dir| dir.insert_slot(name))
    }

    /// Looks a name up that must exist, and keeps its blocks.
    pub fn entry_position(&mut self, dir: &mut Locked, name: &[u8]) -> Result<EntryPosition<DirBlock>> {
        let entry_position = self.directory(dir, |dir| dir.entry_position(name))?.ok_or_else(no_such_file)?;
        self.verify_entry(dir, name, entry_position.found().ino)?;
        Ok(entry_position)
    }

    /// Looks a name up and lets all of its blocks go again, so that the locks of other inodes may be waited for.
    pub fn lookup(&mut self, dir: &mut Locked, name: &[u8]) -> Result<Option<FoundEntry>> {
        let found = self.directory(dir, |dir| dir.lookup(name))?;
        self.tx.release_clean();
        if let Some(found) = found {
            self.verify_entry(dir, name, found.ino)?;
        }
        Ok(found)
    }

    /// Refuses an entry that no sound directory has. One that names its own directory would have its lock taken twice;
    /// the volume's own inodes have no names.
    fn verify_entry(&self, dir: &Locked, name: &[u8], ino: Ino) -> Result<()> {
        let may_be_itself = name == b"." || (name == b".." && dir.ino() == self.volume.root());
        if (ino != dir.ino() || may_be_itself) && !self.volume.internal.contains(&ino) {
            return Ok(());
        }
        Err(bad_entry(dir, name, "an inode that a name can stand for", ino.to_string()))
    }

    /// A reference to the inode that an entry of a locked directory names. While the directory is locked nobody can
    /// free that inode: one that is free is damage.
    pub fn named(&self, dir: &Locked, name: &[u8], ino: Ino) -> Result<InodeRef> {
        self.volume.inode(ino).map_err(|error| match error.errno() {
            errno::ENOENT => bad_entry(dir, name, "an inode in use", format!("{ino}, which is free")),
            _ => error,
        })
    }

    /// The same where the name must exist.
    pub fn find(&mut self, dir: &mut Locked, name: &[u8]) -> Result<FoundEntry> {
        self.lookup(dir, name)?.ok_or_else(no_such_file)
    }
}

impl Volume {
    /// Begins a change that takes no blocks.
    pub(crate) fn begin(&self, reservation: LogReservation) -> Result<Operation<'_>> {
        self.begin_with_blocks(reservation, 0)
    }

    /// Begins a change that may take so many blocks.
    pub(crate) fn begin_with_blocks(
        &self,
        reservation: LogReservation,
        blocks: u32,
    ) -> Result<Operation<'_>> {
        let blocks = self.groups.reserve_blocks(blocks)?;
        self.begin_reserved(reservation, blocks, Vec::new())
    }

    /// Begins a change that mostly gives back: it takes blocks if there are any, and does without if not.
    pub(crate) fn begin_freeing(&self, reservation: LogReservation, blocks: u32) -> Result<Operation<'_>> {
        let blocks = self.groups.reserve_blocks(blocks).or_else(|_| self.groups.reserve_blocks(0))?;
        self.begin_reserved(reservation, blocks, Vec::new())
    }

    /// Begins a change with blocks that were reserved, and claims among them. Where it fails, the claims end first:
    /// parameters are dropped in reverse order.
    pub(crate) fn begin_reserved<'v>(
        &'v self,
        reservation: LogReservation,
        blocks: BlockReservation<'v>,
        value: Vec<Claim>,
    ) -> Result<Operation<'v>> {
        let room = blocks.left().min(self.reservations.name_blocks);
        let tx = self.inode_cache.shared().begin(reservation)?;
        Ok(Operation { volume: self, tx, value, blocks, room })
    }

    /// Does what takes blocks. Where there are none, whatever is about to give some back is waited for, and then it is
    /// tried once more: contents that are not written yet hold blocks for maps that mostly need none, removed files are
    /// freed in the background, and their blocks when that is stable.
    pub(crate) fn retry_on_enospc<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.errno() == errno::ENOSPC => {
                // Who wrote is told where that fails.
                let _ = self.cache.sync_all();
                inode::inactive::drain(self.inode_cache.shared());
                self.log.flush_busy()?;
                self.groups.shrink_rmap_reservations(&mut self.inode_cache.shared().reader())?;
                work()
            }
            done => done,
        }
    }

    /// A context for looking only: it holds no log space, and cannot change anything.
    pub(crate) fn reader(&self) -> Result<Operation<'_>> {
        let shared = self.inode_cache.shared();
        let tx = Transaction::reader(&shared.target, &shared.buffers);
        Ok(Operation { volume: self, tx, blocks: self.groups.reserve_blocks(0)?, room: 0, value: Vec::new() })
    }

    /// A hold on an inode.
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeRef> {
        let inode = self.inode_cache.get(ino)?;
        // Files of the metadata directory are the volume's own.
        if self.geometry.features.metadir() && inode.read().core().flags2.get() & flags2::METADATA != 0 {
            let damage =
                Damage::new("inode", "flags2", "no file of the metadata directory", "one of its files");
            return Err(damaged(ino, damage));
        }
        Ok(inode)
    }

    /// The refusal of what is done to `.` or `..` of a directory; `ENOTDIR` where it is none.
    pub(crate) fn refuse_dots(&self, dir: Ino, errno: Errno, why: &'static str) -> Error {
        match self.inode(dir) {
            Ok(dir) if is_directory(&dir.read()) => Error::refused(errno, why),
            Ok(_) => Error::refused(errno::ENOTDIR, "not a directory"),
            Err(error) => error,
        }
    }

    /// Sets times of an inode to now.
    pub(crate) fn touch(&self, state: &mut InodeState, times: &[state::InodeTime]) {
        state.set_times(times, self.inode_cache.shared().now());
    }
}

fn no_such_file() -> Error {
    Error::refused(errno::ENOENT, "no such file or directory")
}

/// Refuses what is not a directory, or one that was removed while somebody still used it.
pub(crate) fn expect_directory(state: &InodeState) -> Result<()> {
    if !is_directory(state) {
        return Err(Error::refused(errno::ENOTDIR, "not a directory"));
    }
    if state.nlink() == 0 {
        return Err(Error::refused(errno::ENOENT, "the directory was removed"));
    }
    Ok(())
}

/// The two names that every directory has, and that nobody makes or takes away.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Whether it is a directory.
pub(crate) fn is_directory(state: &InodeState) -> bool {
    FileType::from_mode(state.mode()) == Some(FileType::Directory)
}

fn bad_entry(dir: &Locked, name: &[u8], expected: &str, found: String) -> Error {
    let expected = format!("for \"{}\" {expected}", name.escape_ascii());
    damaged(dir.ino(), Damage::new("directory entry", "inode", expected, found))
}

/// The directory that a directory's `..` names.
pub(crate) fn parent_of(change: &mut Operation<'_>, dir: &mut Locked) -> Result<InodeRef> {
    let Some(found) = change.lookup(dir, b"..")? else {
        return Err(bad_entry(dir, b"..", "a directory", "none".into()));
    };
    change.named(dir, b"..", found.ino)
}

/// Visits a directory's entries from a position on.
pub(crate) fn read_entries(
    change: &mut Operation<'_>,
    dir: &mut Locked,
    from: DataPtr,
    visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    change.directory(dir, |dir| dir.read(from, visit))
}
