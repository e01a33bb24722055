//! File metadata: the fields of `stat`, and changes of them.

use base::Ino;
use base::rcu::{self, Section};
use base::time::Time;
use format::attr::acl;
use format::inode::{FileType, S_IFMT, device_numbers, flags};
use format::timestamp::Timestamp;
use inode::state::InodeTime;
use inode::{Inode, InodeRef, InodeStat, InodeState, LockedInode};

use crate::checks::{expect_mutable, expect_not_append_only};
use crate::contents::{self, Contents};
use crate::new_file::DeviceNumber;
use crate::operation::{Operation, is_directory};
use crate::permissions::{ACCESS_ACL, Caller, WRITE};
use crate::recover::damaged;
use crate::{Error, FileId, Handle, Result, Volume};

/// Metadata of a file.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use format::inode::FileType;
/// use xebec_volume::{NewFile, Options, SetMetadata, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let file = volume.create(volume.root(), b"motd", &NewFile { uid: 1000, ..NewFile::regular() })?;
/// volume.set_metadata(file, &SetMetadata { permissions: Some(0o600), ..SetMetadata::default() })?;
/// let metadata = volume.metadata(file)?;
/// assert_eq!((metadata.file_type, metadata.permissions, metadata.uid), (FileType::Regular, 0o600, 1000));
/// assert_eq!((metadata.size, metadata.nlink), (0, 1));
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Inode number.
    pub ino: Ino,
    /// Generation: differs between files that use the same inode number one after the other.
    pub generation: u32,
    /// File type.
    pub file_type: FileType,
    /// Permission bits: the lower twelve bits of the mode.
    pub permissions: u16,
    /// Link count; of a directory, 2 plus the number of its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project ID.
    pub project: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in file system blocks.
    pub blocks: u64,
    /// Device number of a device file.
    pub device: Option<DeviceNumber>,
    /// Inode flags (`format::inode::flags`).
    pub flags: u16,
    /// Access time (atime).
    pub accessed: Time,
    /// Modification time (mtime).
    pub modified: Time,
    /// Change time (ctime).
    pub changed: Time,
    /// Creation time (btime).
    pub created: Time,
}

/// Changes of a file's metadata. Fields that are `None` stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetMetadata {
    /// Permission bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time (atime).
    pub accessed: Option<Time>,
    /// Modification time (mtime).
    pub modified: Option<Time>,
    /// Change time (ctime); by default the current time. For a server whose kernel caches a later one.
    pub changed: Option<Time>,
    /// Sets the access and modification times to the current time. This is the only change that an append-only file
    /// allows.
    pub touched: bool,
}

pub(crate) fn from_time(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanos }
}

fn to_time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanos: time.nanoseconds }
}

impl Metadata {
    /// The identity of the file.
    pub fn id(&self) -> FileId {
        FileId { ino: self.ino, generation: self.generation }
    }

    /// `None` if the inode is free.
    #[inline]
    pub(crate) fn of(stat: &InodeStat) -> Option<Self> {
        let device = stat.device.map(device_numbers);
        Some(Self {
            ino: stat.ino,
            generation: stat.generation,
            file_type: FileType::from_mode(stat.mode)?,
            permissions: stat.mode & !S_IFMT,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            project: stat.project,
            size: stat.size,
            blocks: stat.blocks,
            device: device.map(|(major, minor)| DeviceNumber { major, minor }),
            flags: stat.flags,
            accessed: to_time(stat.times.access),
            modified: to_time(stat.times.modify),
            changed: to_time(stat.times.change),
            created: to_time(stat.times.create),
        })
    }

    /// The metadata, if they did not change since they were last read. Takes no lock.
    #[inline]
    pub(crate) fn in_memory(inode: &Inode, section: &Section) -> Option<Self> {
        let data = UnmappedData::in_memory(inode, section);
        let mut metadata = Self::of(&inode.published_stat()?)?;
        if let Some(data) = data {
            metadata.add_unmapped(data);
        }
        Some(metadata)
    }

    /// Includes data that is not written back yet.
    pub(crate) fn add_unmapped(&mut self, data: UnmappedData) {
        self.size = data.size;
        self.blocks += data.blocks;
    }
}

/// What the data in memory adds to the metadata of an inode. It must be read before the inode: blocks that are mapped
/// in between are then counted twice, which is harmless. If they were left out, programs would take the file for a
/// hole.
pub(crate) struct UnmappedData {
    size: u64,
    blocks: u64,
}

impl UnmappedData {
    pub(crate) fn of(contents: &Contents) -> Self {
        Self { size: contents.size(), blocks: contents.unmapped_blocks() }
    }

    /// `None` if no data of the file is in memory.
    #[inline]
    pub(crate) fn in_memory(inode: &Inode, section: &Section) -> Option<Self> {
        contents::in_section(inode, section).map(Self::of)
    }
}

impl Volume {
    /// Returns the metadata of a file.
    ///
    /// # Errors
    /// `ESTALE` if the file was removed; damage.
    pub fn metadata(&self, file: FileId) -> Result<Metadata> {
        // A file with names is in use: it is freed after they were removed, which changes the metadata. One without
        // names may become another file meanwhile.
        let in_use = |inode: &Inode| {
            if inode.is_internal() {
                return None;
            }
            let metadata = rcu::read(|section| Metadata::in_memory(inode, section))?;
            let is_in_use = metadata.nlink > 0 || inode.is_in_use() && inode.generation() == file.generation;
            (is_in_use && metadata.generation == file.generation).then_some(metadata)
        };
        match self.inode_cache.read_cached(file.ino, in_use) {
            Some(metadata) => Ok(metadata),
            None => self.metadata_of(&*self.inode(file)?),
        }
    }

    /// Returns the metadata of a file to which there is a reference.
    ///
    /// # Errors
    /// Damage.
    pub fn handle_metadata(&self, file: &Handle) -> Result<Metadata> {
        self.metadata_of(file.inode())
    }

    /// Returns the metadata of a file to which the caller has a reference.
    pub(crate) fn metadata_of(&self, inode: &Inode) -> Result<Metadata> {
        let data = rcu::read(|section| UnmappedData::in_memory(inode, section));
        let metadata = Metadata::of(&inode.stat());
        let mut metadata = metadata.ok_or(Error::refused(base::errno::ENOENT, "the inode is free"))?;
        if let Some(data) = data {
            metadata.add_unmapped(data);
        }
        Ok(metadata)
    }

    /// Changes metadata of a file. A change of owner or group clears the set-user-ID bit, and the set-group-ID bit if
    /// the group may execute the file, unless the same call sets them. If the file has an access control list, a change
    /// of the permission bits also changes the list: its mask becomes the group bits.
    ///
    /// # Errors
    /// `ESTALE`; `EPERM` for an immutable or append-only file; errors of the journal.
    pub fn set_metadata(&self, file: FileId, set: &SetMetadata) -> Result<()> {
        self.set_metadata_of(Caller::PROGRAM, &self.inode(file)?, set)
    }

    /// Changes metadata of a file for a caller.
    pub(crate) fn set_metadata_of(
        &self,
        caller: Caller<'_>,
        inode: &InodeRef,
        set: &SetMetadata,
    ) -> Result<()> {
        self.retry_on_enospc(|| self.try_set_metadata(caller, inode, set))
    }

    /// Checks whether the file's flags allow [`set_metadata`](Self::set_metadata), without changing anything.
    ///
    /// # Errors
    /// `EPERM`; `ESTALE`.
    pub fn check_set_metadata(&self, file: FileId, set: &SetMetadata) -> Result<()> {
        set.expect_allowed(&self.inode(file)?.lock())
    }

    /// Updates the access time after a read, by the rule of `relatime`: sets it to the current time if it is not later
    /// than the last change, or if it is a day old. Changes no other time. Immutable and append-only files and files
    /// with the flag `noatime` keep their times.
    ///
    /// # Errors
    /// `ESTALE`; errors of the journal.
    pub fn touch_atime(&self, file: FileId) -> Result<()> {
        self.touch_atime_of(&self.inode(file)?)
    }

    /// Updates the access time of a file to which the caller has a reference. Most files need none, which is decided
    /// without the inode's lock.
    pub(crate) fn touch_atime_of(&self, inode: &InodeRef) -> Result<()> {
        let now = self.inode_cache.shared().now();
        if !needs_atime_update(&inode.stat(), now) {
            return Ok(());
        }
        let operation = self.begin(self.reservations.inode)?;
        let mut state = inode.lock();
        // Another thread may have changed it in between.
        if !needs_atime_update(&InodeStat::of(&state.dinode()), now) {
            return Ok(());
        }
        state.set_time(InodeTime::Access, now);
        operation.commit(&mut [&mut state])
    }

    fn try_set_metadata(&self, caller: Caller<'_>, inode: &InodeRef, set: &SetMetadata) -> Result<()> {
        // Most files have no access control list (ACL): the first attempt reserves space for the inode alone. If an ACL
        // must change, the operation starts again with a reservation for that.
        let mut acl_reservation = None;
        loop {
            let mut operation = match acl_reservation {
                None => self.begin(self.reservations.inode)?,
                Some(remote_len) => self.begin_attribute(inode.ino(), remote_len)?,
            };
            let mut state = inode.lock();
            set.expect_allowed(&state)?;
            if set.touched && caller.expect_owner(&state).is_err() {
                operation.expect_permitted(caller, &mut state, WRITE)?;
            }
            let set = SetMetadata { permissions: caller.expect_settable(&state, set)?, ..set.clone() };
            let new_acl = match set.permissions {
                Some(permissions) if state.forkoff() != 0 => {
                    operation.changed_acl(&mut state, permissions)?
                }
                _ => None,
            };
            if let Some(new_acl) = new_acl {
                let needed = Some(self.remote_value_len(&ACCESS_ACL, new_acl.len()));
                if acl_reservation != needed {
                    operation.tx.release_clean();
                    acl_reservation = needed;
                    continue;
                }
                operation.put_attribute(&mut state, &ACCESS_ACL, &new_acl)?;
            }
            let times: &[InodeTime] = match set.touched {
                false => &[InodeTime::Change],
                true => &[InodeTime::Access, InodeTime::Modify, InodeTime::Change],
            };
            self.touch(&mut state, times);
            set.apply(caller, &mut state);
            return operation.commit(&mut [&mut state]);
        }
    }
}

/// Whether a read at the time `now` changes the access time.
fn needs_atime_update(stat: &InodeStat, now: Timestamp) -> bool {
    const DAY_SECONDS: i64 = 24 * 60 * 60;
    const KEEP_TIMES: u16 = flags::NOATIME | flags::IMMUTABLE | flags::APPEND;
    let times = &stat.times;
    let is_recent =
        times.access > times.modify.max(times.change) && times.access.seconds + DAY_SECONDS > now.seconds;
    !is_recent && stat.flags & KEEP_TIMES == 0
}

impl Operation<'_> {
    /// Returns the access control list that matches new permission bits, if it differs from the current one.
    fn changed_acl(&mut self, state: &mut LockedInode, permissions: u16) -> Result<Option<Vec<u8>>> {
        let Some(current) = self.attributes(state, |attributes| attributes.get(&ACCESS_ACL))? else {
            return Ok(None);
        };
        let new =
            acl::with_permissions(&current, permissions).map_err(|damage| damaged(state.ino(), damage))?;
        Ok((new.value != current).then_some(new.value))
    }
}

impl SetMetadata {
    /// Refuses changes that the file's flags forbid. Times of an append-only file can only be set to the current time.
    fn expect_allowed(&self, state: &InodeState) -> Result<()> {
        expect_mutable(state)?;
        let Self { permissions, uid, gid, accessed, modified, changed: _, touched: _ } = self;
        if permissions.is_none() && uid.or(*gid).is_none() && accessed.or(*modified).is_none() {
            return Ok(());
        }
        expect_not_append_only(state)
    }

    fn apply(&self, caller: Caller<'_>, state: &mut LockedInode) {
        // Linux removes the bits also if the owner is the same as before.
        if self.uid.or(self.gid).is_some() {
            if !is_directory(state) {
                let mode = state.mode() & !caller.set_id_to_remove(state);
                state.set_mode(mode);
            }
            let (uid, gid) = (state.core().uid.get(), state.core().gid.get());
            state.set_owner(self.uid.unwrap_or(uid), self.gid.unwrap_or(gid));
        }
        if let Some(permissions) = self.permissions {
            let mode = state.mode();
            state.set_mode(mode & S_IFMT | permissions & !S_IFMT);
        }
        let times = [
            (InodeTime::Access, self.accessed),
            (InodeTime::Modify, self.modified),
            (InodeTime::Change, self.changed),
        ];
        for (which, time) in times {
            if let Some(time) = time {
                state.set_time(which, from_time(time));
            }
        }
    }
}
