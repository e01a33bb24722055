//! What is known of a file, and what can be changed of it.

use base::Ino;
use base::time::Time;
use format::attr::{Namespace, acl};
use format::inode::{Dinode, FileType, ForkKind, S_IFMT, device_numbers, flags};
use format::ondisk::{OnDisk as _, U32};
use format::timestamp::Timestamp;
use inode::attr::AttrKey;
use inode::contents::drop_set_id;
use inode::state;
use inode::{InodeRef, InodeState};

use crate::checks::{expect_mutable, expect_not_append_only};
use crate::contents::in_memory;
use crate::new_file::DeviceNumber;
use crate::operation::{Locked, Operation};
use crate::recover::damaged;
use crate::{Error, Result, Volume};

/// The list that governs access.
const LIST: AttrKey<'static> = AttrKey::new(Namespace::Trusted, acl::ACCESS);

/// What is known of a file.
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
/// let known = volume.metadata(file)?;
/// assert_eq!((known.file_type, known.permissions, known.uid), (FileType::Regular, 0o600, 1000));
/// assert_eq!((known.size, known.nlink), (0, 1));
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its number.
    pub ino: Ino,
    /// Tells it from others that had the number before.
    pub generation: u32,
    /// What it is.
    pub file_type: FileType,
    /// Permission bits: the lower twelve of the mode.
    pub permissions: u16,
    /// Names that it has; of a directory, 2 and one for each directory in it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub project: u32,
    /// Bytes of its contents.
    pub size: u64,
    /// Blocks of the file system that it takes.
    pub blocks: u64,
    /// Its numbers, if it is a device.
    pub device: Option<DeviceNumber>,
    /// Flags of the inode (`format::inode::flags`).
    pub flags: u16,
    /// Last read.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
}

/// What to change of a file: what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetMetadata {
    /// Permission bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed: Option<Time>,
    /// Last change of the contents.
    pub modified: Option<Time>,
    /// Last change of anything, which is the present unless a cache above has its own time for it.
    pub changed: Option<Time>,
    /// Both of the first two times become the present. It is all that a file allows that may only be appended to.
    pub touched: bool,
}

pub(crate) fn from_time(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanos }
}

fn to_time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanos: time.nanoseconds }
}

impl Metadata {
    pub(crate) fn of(inode: &Dinode<'_>) -> Option<Self> {
        let (core, _) = inode.parts();
        let file_type = inode.file_type()?;
        let times = inode.times();
        let device =
            (core.format == state::ForkFormat::Device as u8).then(|| inode.fork_bytes(ForkKind::Data));
        let device = device.and_then(U32::view).map(|raw| device_numbers(raw.get()));
        let device = device.map(|(major, minor)| DeviceNumber { major, minor });
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        Some(Self {
            ino: inode.ino(),
            generation: core.generation.get(),
            file_type,
            permissions: core.mode.get() & !S_IFMT,
            nlink: core.nlink.get(),
            uid: core.uid.get(),
            gid: core.gid.get(),
            project: inode.project(),
            size: core.size.get(),
            blocks: core.nblocks.get(),
            device: device.filter(|_| is_device),
            flags: core.flags.get(),
            accessed: to_time(times.access),
            modified: to_time(times.modify),
            changed: to_time(times.change),
            created: to_time(times.create),
        })
    }
}

impl Volume {
    /// What is known of a file.
    ///
    /// # Errors
    /// `ENOENT` where the inode is free; damage.
    pub fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let inode = self.inode(ino)?;
        let mut known = Metadata::of(&inode.read().dinode());
        if let (Some(known), Some(contents)) = (&mut known, in_memory(&inode)) {
            // What is not written yet counts as if it were.
            (known.size, known.blocks) = (contents.size(), known.blocks + contents.reserved_blocks());
        }
        known.ok_or(Error::refused(base::errno::ENOENT, "the inode is free"))
    }

    /// Changes what is known of a file. A file that is given to another owner or group loses its set-user-ID bit,
    /// and its set-group-ID bit where the group may run it, unless they are set in the same call. Where it has an
    /// access control list, that follows its permission bits: what they say of the group becomes the list's mask.
    ///
    /// # Errors
    /// `ENOENT`; `EPERM` for a file that is immutable or may only be appended to; what the journal reports.
    pub fn set_metadata(&self, ino: Ino, set: &SetMetadata) -> Result<()> {
        let inode = self.inode(ino)?;
        self.retry_on_enospc(|| self.try_set_metadata(&inode, set))
    }

    /// Whether [`set_metadata`](Self::set_metadata) would be refused by the file's flags.
    ///
    /// # Errors
    /// `EPERM`; `ENOENT`.
    pub fn check_set_metadata(&self, ino: Ino, set: &SetMetadata) -> Result<()> {
        set.expect_allowed(&self.inode(ino)?.lock())
    }

    /// Notes that a file was read, as Linux does by `relatime`: its access time becomes the present if it is not
    /// younger than the last change, or if it is a day old. No other time changes. A file that is immutable, may only
    /// be appended to, or has the flag `noatime` keeps its times.
    ///
    /// # Errors
    /// `ENOENT`; what the journal reports.
    pub fn touch_atime(&self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        let now = self.inode_cache.shared().now();
        if !shows_reads(&inode.read(), now) {
            return Ok(());
        }
        let change = self.begin(self.reservations.inode)?;
        let mut state = inode.lock();
        // It may have been changed since.
        if !shows_reads(&state, now) {
            return Ok(());
        }
        state.set_time(state::InodeTime::Access, now);
        change.commit(&mut [&mut state])
    }

    fn try_set_metadata(&self, inode: &InodeRef, set: &SetMetadata) -> Result<()> {
        // Most files have no list, and pay nothing for it: where there is one, the change begins anew with its needs.
        let mut has = None;
        loop {
            let mut change = match has {
                None => self.begin(self.reservations.inode)?,
                Some(value) => self.begin_attribute(inode.ino(), value)?,
            };
            let mut state = inode.lock();
            set.expect_allowed(&state)?;
            let list = match set.permissions {
                Some(permissions) if state.attr_offset() != 0 => change.fitting(&mut state, permissions)?,
                _ => None,
            };
            if let Some(list) = list {
                let needs = Some(self.value_bytes(&LIST, list.len()));
                if has != needs {
                    change.tx.release_clean();
                    has = needs;
                    continue;
                }
                change.put_attribute(&mut state, &LIST, &list)?;
            }
            let touched: &[state::InodeTime] = match set.touched {
                false => &[state::InodeTime::Change],
                true => &[state::InodeTime::Access, state::InodeTime::Modify, state::InodeTime::Change],
            };
            self.touch(&mut state, touched);
            set.apply(&mut state);
            return change.commit(&mut [&mut state]);
        }
    }
}

/// Whether a file that is read now gets another access time.
fn shows_reads(state: &InodeState, now: Timestamp) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    const KEEP: u16 = flags::NOATIME | flags::IMMUTABLE | flags::APPEND;
    let times = state.dinode().times();
    let is_new = times.access > times.modify.max(times.change) && times.access.seconds + DAY > now.seconds;
    !is_new && state.core().flags.get() & KEEP == 0
}

impl Operation<'_> {
    /// The list that governs access as it must be once the permission bits are these, if it is another than now.
    fn fitting(&mut self, state: &mut Locked, permissions: u16) -> Result<Option<Vec<u8>>> {
        let Some(list) = self.attributes(state, |attributes| attributes.get(&LIST))? else { return Ok(None) };
        let fitting =
            acl::with_permissions(&list, permissions).map_err(|damage| damaged(state.ino(), damage))?;
        Ok((fitting.value != list).then_some(fitting.value))
    }
}

impl SetMetadata {
    /// Refuses what the file's flags forbid: of one that may only be appended to, times move to the present alone.
    fn expect_allowed(&self, state: &Locked) -> Result<()> {
        expect_mutable(state)?;
        let Self { permissions, uid, gid, accessed, modified, changed: _, touched: _ } = self;
        if permissions.is_none() && uid.or(*gid).is_none() && accessed.or(*modified).is_none() {
            return Ok(());
        }
        expect_not_append_only(state)
    }

    fn apply(&self, state: &mut Locked) {
        let (uid, gid) = (state.core().uid.get(), state.core().gid.get());
        let owner = (self.uid.unwrap_or(uid), self.gid.unwrap_or(gid));
        if owner != (uid, gid) {
            state.set_owner(owner.0, owner.1);
            if FileType::from_mode(state.mode()) == Some(FileType::Regular) {
                drop_set_id(state);
            }
        }
        if let Some(permissions) = self.permissions {
            let mode = state.mode();
            state.set_mode(mode & S_IFMT | permissions & !S_IFMT);
        }
        let times = [
            (state::InodeTime::Access, self.accessed),
            (state::InodeTime::Modify, self.modified),
            (state::InodeTime::Change, self.changed),
        ];
        for (which, time) in times {
            if let Some(time) = time {
                state.set_time(which, from_time(time));
            }
        }
    }
}
