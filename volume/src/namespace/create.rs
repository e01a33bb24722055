//! Creating files.
//!
//! [`Volume::create`] is one transaction, in these steps:
//!
//! | step | function |
//! |---|---|
//! | check the arguments | `verify` |
//! | reserve blocks and log space, enough for the attributes of the file | `Volume::begin_create` |
//! | lock the directory; find the inherited attributes and the position of the new entry | `Volume::try_create` |
//! | allocate and initialize an inode | `Operation::create_inode` |
//! | write `.` and `..`, or the target of a symbolic link | `Operation::init_contents` |
//! | set attributes | `Operation::set_initial_attributes` |
//! | add the parent pointer and the entry | `Operation::name_new` |
//! | commit | `Volume::try_create` |
//!
//! A file with many or large attributes takes several transactions. It is created unlinked, so that log recovery frees
//! it after a crash; it gets its attributes one by one, and its name last (`Volume::create_unlinked`,
//! `Volume::link_new`). The module `initial_attributes` decides between the two.

use ag::InodeAllocRequest;
use base::{Ino, errno};
use format::inode::S_IFMT;
use inode::dir::{DirBlock, InsertSlot, NewEntry};
use inode::group_space::GroupSpace;
use inode::state::{InodeState, InodeTime};
use inode::{InodeRef, LockedInode, NewInode};

use super::initial_attributes::{AttributeMode, CreateAttempt, InitialAttributes};
use super::parent_pointers::Parent;
use crate::attributes::NewAttribute;
use crate::checks::{expect_mutable, expect_symlinks_allowed};
use crate::metadata::from_time;
use crate::new_file::{NewFile, NewFileType};
use crate::operation::{Operation, expect_directory, is_dots};
use crate::permissions::{Caller, EXECUTE, WRITE};
use crate::{Error, FileId, Handle, Result, Volume, WatchEvent};

/// Maximum link count of an inode, as in Linux.
pub(super) const MAX_LINKS: u32 = i32::MAX as u32;
/// Maximum length of the target of a symbolic link in bytes.
pub(super) const MAX_TARGET: usize = 1023;
/// `PATH_MAX` of Linux. A target of this length is refused before the name is looked up.
const MAX_PATH: usize = 4096;

impl Volume {
    /// Creates a file in a directory.
    ///
    /// # Errors
    /// `EEXIST`, `ESTALE` or `ENOENT` if the directory was removed, `ENOTDIR`, `ENOSPC`, `EMLINK`, `ENAMETOOLONG`,
    /// `EINVAL`; `EPERM` in an immutable directory.
    pub fn create(&self, dir: FileId, name: &[u8], new: &NewFile<'_>) -> Result<FileId> {
        Ok(self.create_handle(dir, name, new)?.id())
    }

    /// Creates a file and returns a reference to it. The reference stays valid if another thread removes the name.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_handle(&self, dir: FileId, name: &[u8], new: &NewFile<'_>) -> Result<Handle> {
        self.create_in(Caller::PROGRAM, &self.inode(dir)?, name, new).map(Handle::new)
    }

    /// Creates a file for a caller, to whom it then belongs.
    pub(crate) fn create_in(
        &self,
        caller: Caller<'_>,
        dir: &InodeRef,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<InodeRef> {
        verify(new)?;
        if is_dots(name) {
            return Err(self.refuse_dots(dir, errno::EEXIST, "the name exists"));
        }
        let create_in_steps = |requested: &[NewAttribute<'_>]| {
            self.reader()?.expect_absent(&mut dir.lock(), name)?;
            let file = self.create_unlinked(caller, dir, new, requested)?;
            self.link_new(caller, &file, dir, name)?;
            Ok(file)
        };
        let create =
            |mode, requested: &[NewAttribute<'_>]| self.try_create(caller, dir, name, new, mode, requested);
        let created = self.create_with_attributes(new, create, create_in_steps);
        created.map_err(|error| match error.errno() {
            // Blocks are reserved before it is found that the name exists.
            errno::ENOSPC if self.lookup_in(dir, name).is_ok() => {
                Error::refused(errno::EEXIST, "the name exists")
            }
            _ => error,
        })
    }

    /// Creates a file and its entry in one transaction, if `mode` reserves enough for its attributes.
    fn try_create(
        &self,
        caller: Caller<'_>,
        dir_ref: &InodeRef,
        name: &[u8],
        new: &NewFile<'_>,
        mode: AttributeMode,
        requested: &[NewAttribute<'_>],
    ) -> Result<CreateAttempt<InodeRef>> {
        let mut operation = self.begin_create(new, mode)?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        let initial = match operation.initial_attributes(&mut dir, new, mode, requested)? {
            CreateAttempt::Done(initial) => initial,
            CreateAttempt::Needs(mode) => return Ok(CreateAttempt::Needs(mode)),
        };
        let insert_slot = operation.insert_slot(&mut dir, name)?;
        expect_allowed(&dir, new)?;
        operation.expect_permitted(caller, &mut dir, WRITE | EXECUTE)?;
        caller.expect_type_allowed(new)?;
        if new.is_directory() && dir.nlink() >= MAX_LINKS {
            return Err(too_many_subdirectories());
        }
        let nlink = if new.is_directory() { 2 } else { 1 };
        let mut child = operation.create_inode(&dir, new, nlink)?;
        caller.restrict_mode(&dir, &mut child);
        operation.init_contents(&mut child, new, dir.ino())?;
        operation.set_initial_attributes(&mut child, &initial, mode)?;
        operation.name_new(&mut dir, &mut child, insert_slot, name, new)?;
        let file = child.reference();
        operation.commit(&mut [&mut dir, &mut child])?;
        drop(child);
        Ok(CreateAttempt::Done(file))
    }

    /// Creates a file without a name, with all of its attributes, in several transactions. It is on an unlinked list
    /// until it gets a name.
    pub(super) fn create_unlinked(
        &self,
        caller: Caller<'_>,
        dir: &InodeRef,
        new: &NewFile<'_>,
        requested: &[NewAttribute<'_>],
    ) -> Result<InodeRef> {
        let mode = AttributeMode::OwnTransactions;
        let created = self.retry_on_enospc(|| self.try_create_unlinked(caller, dir, new, mode, requested))?;
        let CreateAttempt::Done((file, initial)) = created else {
            return Err(Error::refused(
                errno::EIO,
                "attributes in transactions of their own need no other mode",
            ));
        };
        self.set_attributes_in_steps(&file, &initial)?;
        Ok(file)
    }

    /// Creates a file without a name in one transaction. With [`AttributeMode::OwnTransactions`] the caller must set
    /// its attributes.
    pub(super) fn try_create_unlinked<'a>(
        &self,
        caller: Caller<'_>,
        dir_ref: &InodeRef,
        new: &NewFile<'_>,
        mode: AttributeMode,
        requested: &'a [NewAttribute<'a>],
    ) -> Result<CreateAttempt<(InodeRef, InitialAttributes<'a>)>> {
        let mut operation = self.begin_create(new, mode)?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        expect_allowed(&dir, new)?;
        operation.expect_permitted(caller, &mut dir, WRITE | EXECUTE)?;
        caller.expect_type_allowed(new)?;
        let initial = match operation.initial_attributes(&mut dir, new, mode, requested)? {
            CreateAttempt::Done(initial) => initial,
            CreateAttempt::Needs(mode) => return Ok(CreateAttempt::Needs(mode)),
        };
        let mut child = operation.create_inode(&dir, new, 0)?;
        caller.restrict_mode(&dir, &mut child);
        let file = child.reference();
        let parent = dir.ino();
        drop(dir);
        operation.init_contents(&mut child, new, parent)?;
        operation.set_initial_attributes(&mut child, &initial, mode)?;
        set_requested_times(&mut child, new);
        inode::unlinked::insert(self.inode_cache.shared(), &mut operation.tx, &mut child)?;
        operation.commit(&mut [&mut child])?;
        drop(child);
        Ok(CreateAttempt::Done((file, initial)))
    }
}

impl Operation<'_> {
    /// Allocates an inode near its directory and initializes it, without contents.
    pub(super) fn create_inode(
        &mut self,
        dir: &InodeState,
        new: &NewFile<'_>,
        nlink: u32,
    ) -> Result<LockedInode> {
        if matches!(new.file_type, NewFileType::Symlink(target) if target.len() > MAX_TARGET) {
            return Err(target_too_long());
        }
        let is_dir = new.is_directory();
        let request = InodeAllocRequest { parent: dir.ino(), is_dir, blocks: u32::from(is_dir) };
        let ino = self.volume.groups.alloc_inode(&mut self.tx, &mut self.blocks, request)?;
        self.init_inode(ino, dir, new, nlink)
    }

    /// Initializes an allocated inode, without contents.
    #[inline]
    pub(super) fn init_inode(
        &self,
        ino: Ino,
        dir: &InodeState,
        new: &NewFile<'_>,
        nlink: u32,
    ) -> Result<LockedInode> {
        let mode = new.inode_type().mode() | new.masked_permissions() & !S_IFMT;
        let device = packed_device(new)?;
        let new = NewInode { mode, uid: new.uid, gid: new.gid, nlink, device, parent: Some(dir) };
        Ok(self.volume.inode_cache.create(ino, &new)?)
    }

    /// Gives a new file its name.
    #[inline]
    pub(super) fn name_new(
        &mut self,
        dir: &mut LockedInode,
        child: &mut LockedInode,
        insert_slot: InsertSlot<DirBlock>,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<()> {
        self.add_parent(child, Parent::of(dir), name)?;
        let (ino, ftype) = (child.ino(), new.inode_type().ftype());
        self.add_entry(dir, insert_slot, NewEntry { name, ino, ftype })?;
        self.named(dir, child, name, new);
        Ok(())
    }

    /// A new file has its name: sets its times, and those and the link count of the directory.
    #[inline]
    pub(super) fn named(
        &mut self,
        dir: &mut LockedInode,
        child: &mut LockedInode,
        name: &[u8],
        new: &NewFile<'_>,
    ) {
        set_requested_times(child, new);
        self.report(dir, name, child, WatchEvent::Created);
        if new.is_directory() {
            let nlink = dir.nlink() + 1;
            dir.set_nlink(nlink);
        }
        // The directory changed when the file was created: both get the same time.
        dir.set_times(&[InodeTime::Modify, InodeTime::Change], child.ctime());
    }

    /// Writes `.` and `..` of a new directory, or the target of a new symbolic link.
    pub(super) fn init_contents(
        &mut self,
        child: &mut LockedInode,
        new: &NewFile<'_>,
        parent: Ino,
    ) -> Result<()> {
        match new.file_type {
            NewFileType::Directory => self.directory(child, |child| child.init(parent)),
            NewFileType::Symlink(target) => {
                let shared = self.volume.inode_cache.shared();
                let mut space = GroupSpace::for_metadata(&self.volume.groups, &mut self.blocks);
                Ok(inode::symlink::write(shared, &mut self.tx, &mut space, child, target)?)
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a file that the flags of its directory forbid.
pub(super) fn expect_allowed(dir: &InodeState, new: &NewFile<'_>) -> Result<()> {
    expect_mutable(dir)?;
    match new.file_type {
        NewFileType::Symlink(_) => expect_symlinks_allowed(dir),
        _ => Ok(()),
    }
}

/// Sets the times that the caller asked for.
pub(super) fn set_requested_times(child: &mut LockedInode, new: &NewFile<'_>) {
    for (which, time) in [(InodeTime::Access, new.accessed), (InodeTime::Modify, new.modified)] {
        if let Some(time) = time {
            child.set_time(which, from_time(time));
        }
    }
}

/// Checks the arguments that do not depend on the directory.
pub(crate) fn verify(new: &NewFile<'_>) -> Result<()> {
    match new.file_type {
        NewFileType::Symlink([]) => {
            Err(Error::refused(errno::ENOENT, "the target of a symbolic link must not be empty"))
        }
        NewFileType::Symlink(target) if target.len() >= MAX_PATH => Err(target_too_long()),
        NewFileType::Symlink(target) if target.contains(&0) => {
            Err(Error::refused(errno::EINVAL, "the target of a symbolic link must not contain NUL"))
        }
        _ => packed_device(new).map(drop),
    }
}

/// The device number as the inode stores it; 0 for files that are not devices.
fn packed_device(new: &NewFile<'_>) -> Result<u32> {
    let (NewFileType::CharDevice(device) | NewFileType::BlockDevice(device)) = new.file_type else {
        return Ok(0);
    };
    let why = "a device's major number must be below 4096 and its minor number below 262144";
    device.packed().ok_or(Error::refused(errno::EINVAL, why))
}

fn target_too_long() -> Error {
    Error::refused(errno::ENAMETOOLONG, "the target of a symbolic link has at most 1023 bytes")
}

pub(super) fn too_many_subdirectories() -> Error {
    Error::refused(errno::EMLINK, "the directory has the maximum number of subdirectories")
}
