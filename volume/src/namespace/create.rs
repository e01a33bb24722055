//! New files of every kind.

use ag::InodeAllocRequest;
use base::{Ino, errno};
use format::inode::S_IFMT;
use inode::dir::NewEntry;
use inode::group_space::GroupSpace;
use inode::state::{InodeState, InodeTime};
use inode::{InodeRef, NewInode};

use super::inherit::{Begins, Made, With};
use super::parents::Parent;
use crate::attributes::Given;
use crate::checks::{expect_mutable, expect_symlinks};
use crate::metadata::from_time;
use crate::new_file::{NewFile, NewFileType};
use crate::operation::{Locked, Operation, expect_directory, is_dots};
use crate::{Error, Handle, Result, Volume};

/// Most links of an inode, as Linux has it.
pub(super) const MAX_LINKS: u32 = i32::MAX as u32;
/// Of what is no device.
pub(super) const NO_DEVICE: u32 = 0;
/// Longest target of a symbolic link.
const MAX_TARGET: usize = 1023;
/// Longer than every path that Linux takes, its final NUL included: no name is looked at first.
const MAX_PATH: usize = 4096;

impl Volume {
    /// Makes a file and gives it a name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` where the directory was removed, `ENOTDIR`, `ENOSPC`, `EMLINK`, `ENAMETOOLONG`, `EINVAL`;
    /// `EPERM` in an immutable directory.
    pub fn create(&self, dir: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Ino> {
        Ok(self.create_handle(dir, name, new)?.ino())
    }

    /// The same with a reference: what is done by the handle is done to this file, even if another thread removes its
    /// name.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_handle(&self, dir: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Handle> {
        let device = verify(new)?;
        if is_dots(name) {
            return Err(self.refuse_dots(dir, errno::EEXIST, "the name exists"));
        }
        let dir = self.inode(dir)?;
        let by_parts = |given: &[Given<'_>]| {
            let mut reader = self.reader()?;
            reader.expect_vacant(&mut dir.lock(), name)?;
            drop(reader);
            let file = self.nameless(&dir, (new, device), given)?;
            self.name_new(&file, &dir, name)?;
            Ok(file)
        };
        self.beginning(new, |with, given| self.try_create(&dir, name, (new, device), (with, given)), by_parts)
            .map(Handle::of)
    }

    /// Makes a file without a name, with everything that it begins with. As long as it has none, it is on the list of
    /// unlinked inodes.
    pub(super) fn nameless(
        &self,
        dir: &InodeRef,
        new: (&NewFile<'_>, u32),
        given: &[Given<'_>],
    ) -> Result<InodeRef> {
        let made = self.retry_on_enospc(|| self.try_nameless(dir, new, (With::Parts, given)))?;
        let Made::Done((file, begins)) = made else {
            return Err(Error::refused(errno::EIO, "a file of several parts asks for more of them"));
        };
        self.bequeath_by_parts(&file, &begins)?;
        Ok(file)
    }

    /// The same as far as one transaction goes.
    pub(super) fn try_nameless<'g>(
        &self,
        dir_ref: &InodeRef,
        (new, device): (&NewFile<'_>, u32),
        (with, given): (With, &'g [Given<'g>]),
    ) -> Result<Made<(InodeRef, Begins<'g>)>> {
        let mut change = self.begin_new(new, with)?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        expect_mutable(&dir)?;
        if matches!(new.file_type, NewFileType::Symlink(_)) {
            expect_symlinks(&dir)?;
        }
        let begins = match change.begins(&mut dir, new, (with, given))? {
            Made::Done(begins) => begins,
            Made::Needs(with) => return Ok(Made::Needs(with)),
        };
        let mut child = change.make((&dir, dir.ino()), new, device, 0)?;
        let held = child.reference();
        let parent = dir.ino();
        drop(dir);
        change.fill(&mut child, new, parent)?;
        change.bequeath(&mut child, &begins, with)?;
        date(&mut child, new);
        inode::unlinked::insert(self.inode_cache.shared(), &mut change.tx, &mut child)?;
        change.commit(&mut [&mut child])?;
        drop(child);
        Ok(Made::Done((held, begins)))
    }

    fn try_create(
        &self,
        dir_ref: &InodeRef,
        name: &[u8],
        (new, device): (&NewFile<'_>, u32),
        (with, given): (With, &[Given<'_>]),
    ) -> Result<Made<InodeRef>> {
        let mut change = self.begin_new(new, with)?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        let begins = match change.begins(&mut dir, new, (with, given))? {
            Made::Done(begins) => begins,
            Made::Needs(with) => return Ok(Made::Needs(with)),
        };
        let is_dir = matches!(new.file_type, NewFileType::Directory);
        let insert_slot = change.insert_slot(&mut dir, name)?;
        expect_mutable(&dir)?;
        if matches!(new.file_type, NewFileType::Symlink(_)) {
            expect_symlinks(&dir)?;
        }
        if is_dir && dir.nlink() >= MAX_LINKS {
            return Err(Error::refused(errno::EMLINK, "the directory has as many directories as it can"));
        }
        let nlink = if is_dir { 2 } else { 1 };
        let mut child = change.make((&dir, dir.ino()), new, device, nlink)?;
        change.fill(&mut child, new, dir.ino())?;
        change.bequeath(&mut child, &begins, with)?;
        change.add_parent(&mut child, Parent::of(&dir), name)?;
        date(&mut child, new);
        let (ino, ftype) = (child.ino(), new.inode_type().ftype());
        change.directory(&mut dir, |dir| dir.add_at(insert_slot, NewEntry { name, ino, ftype }))?;
        if is_dir {
            let nlink = dir.nlink() + 1;
            dir.set_nlink(nlink);
        }
        // The moment in which the file was made is that in which the directory got it.
        dir.set_times(&[InodeTime::Modify, InodeTime::Change], child.changed_at());
        let held = child.reference();
        change.commit(&mut [&mut dir, &mut child])?;
        drop(child);
        Ok(Made::Done(held))
    }
}

impl Operation<'_> {
    /// Takes an inode and makes it what is asked for, empty. It shall lie near to the inode `near`.
    pub(super) fn make(
        &mut self,
        (parent, near): (&InodeState, Ino),
        new: &NewFile<'_>,
        device: u32,
        nlink: u32,
    ) -> Result<Locked> {
        if matches!(new.file_type, NewFileType::Symlink(target) if target.len() > MAX_TARGET) {
            return Err(target_too_long());
        }
        let is_dir = matches!(new.file_type, NewFileType::Directory);
        let wanted = InodeAllocRequest { parent: near, is_dir, blocks: u32::from(is_dir) };
        let ino = self.volume.groups.alloc_inode(&mut self.tx, &mut self.blocks, wanted)?;
        let mode = mode_of(new);
        let new = NewInode { mode, uid: new.uid, gid: new.gid, nlink, device, parent: Some(parent) };
        Ok(self.volume.inode_cache.create(ino, &new)?)
    }

    /// Gives a new file what its kind begins with: a directory its own two names, a link its target.
    fn fill(&mut self, child: &mut Locked, new: &NewFile<'_>, parent: Ino) -> Result<()> {
        match new.file_type {
            NewFileType::Directory => self.directory(child, |child| child.init(parent)),
            NewFileType::Symlink(target) => self.write_target(child, target),
            _ => Ok(()),
        }
    }

    fn write_target(&mut self, link: &mut Locked, target: &[u8]) -> Result<()> {
        let volume = self.volume;
        let mut space = GroupSpace::for_metadata(&volume.groups, &mut self.blocks);
        Ok(inode::symlink::write(volume.inode_cache.shared(), &mut self.tx, &mut space, link, target)?)
    }
}

/// Gives a new file the times that its maker knows.
fn date(child: &mut Locked, new: &NewFile<'_>) {
    for (which, time) in [(InodeTime::Access, new.accessed), (InodeTime::Modify, new.modified)] {
        if let Some(time) = time {
            child.set_time(which, from_time(time));
        }
    }
}

fn mode_of(new: &NewFile<'_>) -> u16 {
    new.inode_type().mode() | new.masked() & !S_IFMT
}

fn target_too_long() -> Error {
    Error::refused(errno::ENAMETOOLONG, "a link's target has at most 1023 bytes")
}

/// Refuses what cannot be made; gives the device number as the inode has it.
fn verify(new: &NewFile<'_>) -> Result<u32> {
    match new.file_type {
        NewFileType::Symlink([]) => {
            Err(Error::refused(errno::ENOENT, "a link's target has at least one byte"))
        }
        NewFileType::Symlink(target) if target.len() >= MAX_PATH => Err(target_too_long()),
        NewFileType::Symlink(target) if target.contains(&0) => {
            Err(Error::refused(errno::EINVAL, "a link's target has no byte that is NUL"))
        }
        NewFileType::CharDevice(device) | NewFileType::BlockDevice(device) => {
            let why = "a device's major number is below 4096 and its minor number below 262144";
            device.packed().ok_or(Error::refused(errno::EINVAL, why))
        }
        _ => Ok(NO_DEVICE),
    }
}
