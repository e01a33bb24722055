//! Renaming, with all flags.
//!
//! | step | function |
//! |---|---|
//! | look up both names, without keeping locks | `Operation::find_entry` |
//! | lock all inodes in order, and look up both names again | `lock_all`, `Operation::is_unchanged` |
//! | check flags, project IDs and link counts | `RenameInodes::expect_movable`, `expect_replaceable` |
//! | change the entries, parent pointers and link counts | `Operation::move_entry`, `Operation::exchange_entries` |
//! | report the change to watches of the directories | `Operation::report_move`, `Operation::report_exchange` |
//!
//! If the second lookup gives another result, the rename starts again.
//!
//! # Locking
//! A rename that gives a directory another parent changes the directory tree. Such renames of a volume exclude each
//! other (rank `Rename`), so that the path to the root does not change while it is checked that no directory becomes
//! its own ancestor.
//!
//! AGIs are locked first, in ascending order. So a whiteout is created before, unlinked, in an operation of its own:
//! its AGI is known then. If the rename fails, the whiteout is freed like every unlinked file.

mod report;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use base::lock::MutexGuard;
use base::{Ino, errno};
use format::Damage;
use format::inode::FileType;
use inode::dir::{FoundEntry, NewEntry};
use inode::state::InodeTime;
use inode::{InodeRef, LockedInode};
use journal::engine::Loggable;

use super::create::{MAX_LINKS, too_many_subdirectories};
use super::lock_order::lock_all;
use super::parent_pointers::Parent;
use crate::checks::{expect_changeable, expect_mutable, expect_same_project};
use crate::new_file::{DeviceNumber, NewFile, NewFileType};
use crate::operation::{Operation, expect_directory, is_directory, is_dots};
use crate::permissions::{Caller, EXECUTE, WRITE};
use crate::recover::damaged;
use crate::{Error, FileId, Handle, Result, Volume};

/// The mode of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rename {
    /// Replace the new name if it exists.
    Replace,
    /// Fail if the new name exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Exchange both names, which must exist (`RENAME_EXCHANGE`).
    Exchange,
    /// As `Replace`, and put a whiteout at the old name, a character device 0:0 (`RENAME_WHITEOUT`). For overlay file
    /// systems.
    Whiteout,
}

/// A directory, and the name of an entry in it.
#[derive(Clone, Copy)]
pub(crate) struct EntryName<'a> {
    pub dir: &'a InodeRef,
    pub name: &'a [u8],
}

/// The inode of an entry, found before all inodes were locked.
struct FoundInode {
    entry: FoundEntry,
    inode: InodeRef,
}

/// All inodes that a rename changes, locked.
struct RenameInodes {
    /// Directory of the old name.
    from: LockedInode,
    /// Directory of the new name; `None` if it is the same.
    to: Option<LockedInode>,
    source: LockedInode,
    /// The inode that the new name refers to.
    target: Option<LockedInode>,
    /// Replaces the source at the old name. Still unlinked.
    whiteout: Option<LockedInode>,
}

/// The result of an attempt.
enum RenameAttempt {
    /// It is done. The file that lost its last name, if there is one.
    Done(Option<InodeRef>),
    /// An entry changed before all inodes were locked.
    Changed,
    /// A directory gets another parent: this needs the rename lock.
    NeedsRenameLock,
    /// The rename needs a whiteout.
    NeedsWhiteout,
}

const WHITEOUT: NewFile<'static> = NewFile {
    file_type: NewFileType::CharDevice(DeviceNumber { major: 0, minor: 0 }),
    permissions: 0,
    ..NewFile::regular()
};

impl Volume {
    /// Renames a file or directory.
    ///
    /// # Errors
    /// `ESTALE`, `ENOENT`, `ENOTDIR`, `EISDIR`, `EMLINK`, `ENOSPC`; `EEXIST` if the new name exists in the mode
    /// `NoReplace`, or is a directory that is not empty; `ENOTEMPTY` if that directory contains the old name; `EINVAL`
    /// if a directory would become its own ancestor; `EBUSY` for `.` and `..`; `EPERM` if a directory or a file is
    /// immutable or append-only; `EXDEV` if the directory of the new name passes on another project ID.
    pub fn rename(
        &self,
        from: FileId,
        from_name: &[u8],
        to: FileId,
        to_name: &[u8],
        mode: Rename,
    ) -> Result<()> {
        self.rename_handle(from, from_name, to, to_name, mode).map(drop)
    }

    /// Like [`rename`](Self::rename), and returns a reference to the file that lost its last name, if there is one.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn rename_handle(
        &self,
        from: FileId,
        from_name: &[u8],
        to: FileId,
        to_name: &[u8],
        mode: Rename,
    ) -> Result<Option<Handle>> {
        let from = EntryName { dir: &self.inode(from)?, name: from_name };
        let to = EntryName { dir: &self.inode(to)?, name: to_name };
        Ok(self.rename_in(Caller::PROGRAM, from, to, mode)?.map(Handle::new))
    }

    /// Renames a file or directory for a caller. Returns the file that lost its last name, if there is one.
    pub(crate) fn rename_in(
        &self,
        caller: Caller<'_>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: Rename,
    ) -> Result<Option<InodeRef>> {
        if is_dots(from.name) || is_dots(to.name) {
            return Err(self.refuse_to_rename_dots(from, to, mode));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        let (mut needs_lock, mut whiteout) = (false, None);
        loop {
            let rename_lock = needs_lock.then(|| self.rename_lock.lock());
            match self.retry_on_enospc(|| {
                self.try_rename(caller, from, to, mode, rename_lock.as_ref(), whiteout.as_ref())
            })? {
                RenameAttempt::Done(removed) => return Ok(removed),
                RenameAttempt::Changed => {}
                RenameAttempt::NeedsRenameLock => needs_lock = true,
                RenameAttempt::NeedsWhiteout => {
                    drop(rename_lock);
                    whiteout = Some(self.retry_on_enospc(|| self.create_whiteout(caller, to.dir))?);
                }
            }
        }
    }

    fn refuse_to_rename_dots(&self, from: EntryName<'_>, to: EntryName<'_>, mode: Rename) -> Error {
        let (errno, why) = match mode {
            Rename::NoReplace if !is_dots(from.name) => (errno::EEXIST, "the new name exists"),
            _ => (errno::EBUSY, "\".\" and \"..\" cannot be renamed"),
        };
        match self.refuse_dots(from.dir, errno, why) {
            error if error.errno() == errno => self.refuse_dots(to.dir, errno, why),
            error => error,
        }
    }

    fn try_rename(
        &self,
        caller: Caller<'_>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: Rename,
        rename_lock: Option<&MutexGuard<'_, ()>>,
        whiteout: Option<&InodeRef>,
    ) -> Result<RenameAttempt> {
        let mut operation =
            self.begin_with_blocks(self.reservations.rename, self.reservations.rename_blocks)?;
        let source = operation.find_entry(from)?.ok_or_else(|| missing_source(to.dir))?;
        let target = operation.find_entry(to)?;
        match (mode, &target) {
            (Rename::NoReplace, Some(_)) => {
                return Err(Error::refused(errno::EEXIST, "the new name exists"));
            }
            (Rename::Exchange, None) => {
                return Err(Error::refused(errno::ENOENT, "no such file or directory"));
            }
            _ => {}
        }
        if target.as_ref().is_some_and(|target| target.entry.ino == source.entry.ino) {
            return Ok(RenameAttempt::Done(None));
        }
        if mode == Rename::Whiteout && whiteout.is_none() {
            return Ok(RenameAttempt::NeedsWhiteout);
        }
        let is_dir = |found: &FoundInode| is_directory(&found.inode.read());
        let changes_parent = from.dir.ino() != to.dir.ino();
        if changes_parent && (is_dir(&source) || target.as_ref().is_some_and(is_dir)) {
            if rename_lock.is_none() {
                return Ok(RenameAttempt::NeedsRenameLock);
            }
            self.expect_no_cycle(from, to, &source, target.as_ref(), mode)?;
        }
        let target_ref = target.as_ref().map(|target| &target.inode);
        let [Some(from_dir), to_dir, Some(source_inode), target_inode, whiteout] =
            lock_all([Some(from.dir), Some(to.dir), Some(&source.inode), target_ref, whiteout])
        else {
            return Err(move_into_itself());
        };
        if target.is_some() && target_inode.is_none() {
            return Err(Error::refused(errno::ENOTEMPTY, "the directory is not empty"));
        }
        let mut inodes =
            RenameInodes { from: from_dir, to: to_dir, source: source_inode, target: target_inode, whiteout };
        if !operation.is_unchanged(&mut inodes, from, to, &source, target.as_ref())? {
            return Ok(RenameAttempt::Changed);
        }
        operation.expect_movable(caller, &mut inodes, mode)?;
        match mode {
            Rename::Exchange => operation.exchange_entries(&mut inodes, from.name, to.name)?,
            _ => operation.move_entry(&mut inodes, from.name, to.name)?,
        }
        let is_removed = inodes.target.as_ref().is_some_and(|target| target.nlink() == 0);
        inodes.commit(operation)?;
        Ok(RenameAttempt::Done(target.filter(|_| is_removed).map(|target| target.inode)))
    }

    /// Creates an unlinked whiteout. It inherits no attributes. As in Linux, its group and its AG are those of a new
    /// file in the directory of the new name.
    fn create_whiteout(&self, caller: Caller<'_>, dir_ref: &InodeRef) -> Result<InodeRef> {
        let new = caller.owned(&WHITEOUT)?;
        let blocks = self.reservations.create_blocks(&WHITEOUT);
        let mut operation = self.begin_with_blocks(self.reservations.create, blocks)?;
        let dir = dir_ref.lock();
        expect_directory(&dir)?;
        let mut whiteout = operation.create_inode(&dir, &new, 0)?;
        let whiteout_ref = whiteout.reference();
        drop(dir);
        inode::unlinked::insert(self.inode_cache.shared(), &mut operation.tx, &mut whiteout)?;
        operation.commit(&mut [&mut whiteout])?;
        drop(whiteout);
        Ok(whiteout_ref)
    }

    /// Refuses to move a directory below itself. The caller must hold the rename lock, so that no directory gets
    /// another parent meanwhile.
    fn expect_no_cycle(
        &self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        source: &FoundInode,
        target: Option<&FoundInode>,
        mode: Rename,
    ) -> Result<()> {
        if self.is_within(to.dir, source.entry.ino)? {
            return Err(move_into_itself());
        }
        let Some(target) = target else { return Ok(()) };
        if self.is_within(from.dir, target.entry.ino)? {
            return Err(match mode {
                Rename::Exchange => move_into_itself(),
                _ => Error::refused(errno::ENOTEMPTY, "the directory is not empty"),
            });
        }
        Ok(())
    }

    /// Whether a directory is `ancestor` or below it.
    fn is_within(&self, dir: &InodeRef, ancestor: Ino) -> Result<bool> {
        let (mut current, mut visited) = (dir.clone(), HashSet::new());
        loop {
            if current.ino() == ancestor {
                return Ok(true);
            }
            if current.ino() == self.geometry.root {
                return Ok(false);
            }
            if !visited.insert(current.ino()) {
                let damage = Damage::new("directory", "..", "a path to the root", "a cycle");
                return Err(damaged(current.ino(), damage));
            }
            let mut reader = self.reader()?;
            let mut locked = current.lock();
            expect_directory(&locked)?;
            let parent = reader.parent(&mut locked)?;
            drop(locked);
            if !is_directory(&parent.read()) {
                let found = format!("inode {}, which is not a directory", parent.ino());
                return Err(damaged(current.ino(), Damage::new("directory", "..", "a directory", found)));
            }
            current = parent;
        }
    }
}

fn move_into_itself() -> Error {
    Error::refused(errno::EINVAL, "a directory cannot be moved into itself")
}

/// The error for a source that does not exist. Linux reports first that the new directory is not a directory.
fn missing_source(to: &InodeRef) -> Error {
    if is_directory(&to.read()) {
        Error::refused(errno::ENOENT, "no such file or directory")
    } else {
        Error::refused(errno::ENOTDIR, "not a directory")
    }
}

/// Refuses a directory that cannot have another subdirectory.
fn expect_links_available(dir: &LockedInode) -> Result<()> {
    if dir.nlink() < MAX_LINKS { Ok(()) } else { Err(too_many_subdirectories()) }
}

fn ftype(inode: &LockedInode) -> u8 {
    FileType::from_mode(inode.mode()).map_or(0, FileType::ftype)
}

fn add_links(dir: &mut LockedInode, change: i32) {
    let nlink = dir.nlink().saturating_add_signed(change);
    dir.set_nlink(nlink);
}

impl RenameInodes {
    /// The directory of the new name.
    fn to(&mut self) -> &mut LockedInode {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    /// Refuses an exchange that gives a directory too many subdirectories.
    fn expect_exchange_links(&self) -> Result<()> {
        let (Some(to), Some(target)) = (&self.to, &self.target) else { return Ok(()) };
        match (is_directory(&self.source), is_directory(target)) {
            (true, false) => expect_links_available(to),
            (false, true) => expect_links_available(&self.from),
            _ => Ok(()),
        }
    }

    fn commit(self, operation: Operation<'_>) -> Result<()> {
        let Self { mut from, mut to, mut source, mut target, mut whiteout } = self;
        let inodes = [Some(&mut from), to.as_mut(), Some(&mut source), target.as_mut(), whiteout.as_mut()];
        let mut inodes: smallvec::SmallVec<[&mut dyn Loggable; 5]> =
            inodes.into_iter().flatten().map(|inode| inode as &mut dyn Loggable).collect();
        operation.commit(&mut inodes)
    }
}

impl Operation<'_> {
    /// Refuses what inode flags and permissions forbid. The directory of the old name loses an entry; that of the new
    /// name loses one or gets one. A directory that gets another parent is written to.
    fn expect_movable(&mut self, caller: Caller<'_>, inodes: &mut RenameInodes, mode: Rename) -> Result<()> {
        let RenameInodes { from, to, source, target, whiteout: _ } = inodes;
        self.expect_removable(caller, from, source)?;
        expect_changeable(source)?;
        let changes_parent = to.is_some();
        let to = to.as_mut().unwrap_or(from);
        match target {
            Some(target) => {
                self.expect_removable(caller, to, target)?;
                expect_changeable(target)?;
                match (is_directory(source), is_directory(target)) {
                    _ if mode == Rename::Exchange => {}
                    (true, false) => {
                        return Err(Error::refused(errno::ENOTDIR, "cannot replace a file with a directory"));
                    }
                    (false, true) => {
                        return Err(Error::refused(errno::EISDIR, "cannot replace a directory with a file"));
                    }
                    _ => {}
                }
            }
            None => {
                expect_mutable(to)?;
                self.expect_permitted(caller, to, WRITE | EXECUTE)?;
            }
        }
        if changes_parent && is_directory(source) {
            self.expect_permitted(caller, source, WRITE)?;
        }
        match target {
            Some(target) if changes_parent && mode == Rename::Exchange && is_directory(target) => {
                self.expect_permitted(caller, target, WRITE)
            }
            _ => Ok(()),
        }
    }

    /// Finds an entry and takes a reference to its inode, without keeping locks.
    fn find_entry(&mut self, at: EntryName<'_>) -> Result<Option<FoundInode>> {
        let mut dir = at.dir.lock();
        expect_directory(&dir)?;
        let Some(entry) = self.lookup(&mut dir, at.name)? else { return Ok(None) };
        // While the directory is locked the inode cannot be freed.
        Ok(Some(FoundInode { inode: self.entry_inode(&dir, at.name, entry.ino)?, entry }))
    }

    /// Whether both entries are still those that were found before all inodes were locked.
    fn is_unchanged(
        &mut self,
        inodes: &mut RenameInodes,
        from: EntryName<'_>,
        to: EntryName<'_>,
        source: &FoundInode,
        target: Option<&FoundInode>,
    ) -> Result<bool> {
        expect_directory(&inodes.from)?;
        expect_directory(inodes.to())?;
        let source_now = self.lookup(&mut inodes.from, from.name)?.map(|entry| entry.ino);
        let target_now = self.lookup(inodes.to(), to.name)?.map(|entry| entry.ino);
        Ok(source_now == Some(source.entry.ino) && target_now == target.map(|target| target.entry.ino))
    }

    /// A directory can replace only an empty directory.
    fn expect_replaceable(&mut self, inodes: &mut RenameInodes) -> Result<()> {
        let is_dir = is_directory(&inodes.source);
        expect_same_project(inodes.to.as_ref().unwrap_or(&inodes.from), &inodes.source)?;
        let Some(target) = &mut inodes.target else {
            return match &inodes.to {
                Some(to) if is_dir => expect_links_available(to),
                _ => Ok(()),
            };
        };
        if is_dir { self.expect_empty(target, errno::EEXIST) } else { Ok(()) }
    }

    fn move_entry(&mut self, inodes: &mut RenameInodes, from_name: &[u8], to_name: &[u8]) -> Result<()> {
        inode::dir::verify_name(to_name)?;
        self.expect_replaceable(inodes)?;
        self.lock_unlinked_lists(inodes)?;
        self.remove_parents(inodes, from_name, to_name)?;
        self.set_new_entry(inodes, to_name)?;
        let (from, to) = (Parent::of(&inodes.from), Parent::of(inodes.to()));
        self.add_parent(&mut inodes.source, to, to_name)?;
        match &mut inodes.whiteout {
            Some(whiteout) => {
                self.add_parent(whiteout, from, from_name)?;
                let (ino, ftype) = (whiteout.ino(), FileType::CharDevice.ftype());
                self.replace_entry(&mut inodes.from, from_name, ino, ftype)?;
            }
            None => {
                let position = self.entry_position(&mut inodes.from, from_name)?;
                self.remove_entry(&mut inodes.from, position, from_name)?;
            }
        }
        self.report_move(inodes, from_name, to_name);
        // Last: these lock inode clusters, and a thread that holds one waits for no AGF.
        if let Some(target) = &mut inodes.target {
            self.drop_link(target, is_directory(&inodes.source))?;
        }
        if let Some(whiteout) = &mut inodes.whiteout {
            inode::unlinked::remove(self.volume.inode_cache.shared(), &mut self.tx, whiteout)?;
            whiteout.set_nlink(1);
            self.volume.touch(whiteout, &[InodeTime::Change]);
        }
        self.touch_all(inodes);
        Ok(())
    }

    /// Locks the AGIs of the unlinked lists that the whiteout leaves and the target enters, before any AGF.
    fn lock_unlinked_lists(&mut self, inodes: &RenameInodes) -> Result<()> {
        let loses_last_link = |target: &&LockedInode| is_directory(target) || target.nlink() <= 1;
        let target = inodes.target.as_ref().filter(loses_last_link).map(|target| target.ino());
        let whiteout = inodes.whiteout.as_ref().map(|whiteout| whiteout.ino());
        // The AG number is the high part of an inode number: this is also the order of AGs.
        let mut listed = [whiteout, target];
        listed.sort_unstable();
        for ino in listed.into_iter().flatten() {
            inode::unlinked::lock(self.volume.inode_cache.shared(), &mut self.tx, ino)?;
        }
        Ok(())
    }

    /// Makes the new name refer to the source, and corrects the link counts of the directories. The link count of a
    /// replaced target is left to the caller.
    fn set_new_entry(&mut self, inodes: &mut RenameInodes, to_name: &[u8]) -> Result<()> {
        let (ino, is_dir, ftype) = (inodes.source.ino(), is_directory(&inodes.source), ftype(&inodes.source));
        let replaces = inodes.target.is_some();
        let to = inodes.to();
        if replaces {
            self.replace_entry(to, to_name, ino, ftype)?;
            if is_dir {
                add_links(to, -1);
            }
        } else {
            let slot = self.insert_slot(to, to_name)?;
            self.add_entry(to, slot, NewEntry { name: to_name, ino, ftype })?;
        }
        if is_dir && let Some(to) = &mut inodes.to {
            let parent = to.ino();
            self.replace_entry(&mut inodes.source, b"..", parent, FileType::Directory.ftype())?;
            add_links(to, 1);
            add_links(&mut inodes.from, -1);
        }
        Ok(())
    }

    /// Removes the parent pointers of the old names of source and target.
    fn remove_parents(&mut self, inodes: &mut RenameInodes, from_name: &[u8], to_name: &[u8]) -> Result<()> {
        let (from, to) = (Parent::of(&inodes.from), Parent::of(inodes.to()));
        self.remove_parent(&mut inodes.source, from, from_name)?;
        match &mut inodes.target {
            Some(target) => self.remove_parent(target, to, to_name),
            None => Ok(()),
        }
    }

    fn exchange_entries(
        &mut self,
        inodes: &mut RenameInodes,
        from_name: &[u8],
        to_name: &[u8],
    ) -> Result<()> {
        expect_same_project(inodes.to.as_ref().unwrap_or(&inodes.from), &inodes.source)?;
        let Some((target_ino, target_ftype)) =
            inodes.target.as_ref().map(|target| (target.ino(), ftype(target)))
        else {
            return Ok(());
        };
        let (source_ino, source_ftype) = (inodes.source.ino(), ftype(&inodes.source));
        inodes.expect_exchange_links()?;
        self.remove_parents(inodes, from_name, to_name)?;
        let (from, to) = (Parent::of(&inodes.from), Parent::of(inodes.to()));
        self.add_parent(&mut inodes.source, to, to_name)?;
        if let Some(target) = &mut inodes.target {
            self.add_parent(target, from, from_name)?;
        }
        self.replace_entry(&mut inodes.from, from_name, target_ino, target_ftype)?;
        self.replace_entry(inodes.to(), to_name, source_ino, source_ftype)?;
        self.report_exchange(inodes, from_name, to_name);
        if let (Some(to), Some(target)) = (&mut inodes.to, &mut inodes.target) {
            let moved = [(&mut inodes.source, to.ino(), 1), (target, inodes.from.ino(), -1)];
            for (child, parent, change) in moved {
                if is_directory(child) {
                    self.replace_entry(child, b"..", parent, FileType::Directory.ftype())?;
                    add_links(to, change);
                    add_links(&mut inodes.from, -change);
                }
            }
        }
        if let Some(target) = &mut inodes.target {
            self.volume.touch(target, &[InodeTime::Change]);
        }
        self.touch_all(inodes);
        Ok(())
    }

    fn touch_all(&mut self, inodes: &mut RenameInodes) {
        self.volume.touch(&mut inodes.source, &[InodeTime::Change]);
        self.volume.touch(&mut inodes.from, &[InodeTime::Modify, InodeTime::Change]);
        if let Some(to) = &mut inodes.to {
            self.volume.touch(to, &[InodeTime::Modify, InodeTime::Change]);
        }
    }
}
