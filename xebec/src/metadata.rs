//! What is known of a file, and what can be changed of it.

use base::Ino;
use base::time::Time;
use format::inode::{FileType, S_IFMT, device_numbers};
use format::timestamp::Timestamp;
use inode::state::{self, InodeState};

use crate::change::Locked;
use crate::contents::in_memory;
use crate::new::Device;
use crate::{Error, Result, Volume};

/// What is known of a file.
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
    pub device: Option<Device>,
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
}

pub(crate) fn from_time(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanos }
}

fn to_time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanos: time.nanoseconds }
}

impl Metadata {
    fn of(state: &InodeState) -> Option<Self> {
        let (core, view) = (state.core(), state.dinode());
        let file_type = FileType::from_mode(core.mode.get())?;
        let times = view.times();
        let device = state.device().map(device_numbers).map(|(major, minor)| Device { major, minor });
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        Some(Self {
            ino: state.ino(),
            generation: core.generation.get(),
            file_type,
            permissions: core.mode.get() & !S_IFMT,
            nlink: core.nlink.get(),
            uid: core.uid.get(),
            gid: core.gid.get(),
            project: view.project(),
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
        let mut known = Metadata::of(&inode.read());
        if let (Some(known), Some(contents)) = (&mut known, in_memory(&inode)) {
            // What is not written yet counts as if it were.
            (known.size, known.blocks) = (contents.size(), known.blocks + contents.reserved_blocks());
        }
        known.ok_or(Error::refused(base::errno::ENOENT, "the inode is free"))
    }

    /// Changes what is known of a file. A file that is given to another owner or group loses its set-user-ID and
    /// set-group-ID bits, unless they are set in the same call.
    ///
    /// # Errors
    /// `ENOENT`, and what the journal reports.
    pub fn set_metadata(&self, ino: Ino, set: &SetMetadata) -> Result<()> {
        let inode = self.inode(ino)?;
        let change = self.begin(self.reservations.inode)?;
        let mut state = inode.lock();
        set.apply(&mut state);
        self.touch(&mut state, &[state::Time::Change]);
        change.commit(&mut [&mut state])
    }
}

impl SetMetadata {
    fn apply(&self, state: &mut Locked) {
        const SET_ID: u16 = 0o6000;
        let (uid, gid) = (state.core().uid.get(), state.core().gid.get());
        let owner = (self.uid.unwrap_or(uid), self.gid.unwrap_or(gid));
        if owner != (uid, gid) {
            state.set_owner(owner.0, owner.1);
            if state.mode() & S_IFMT == 0o100_000 && state.mode() & SET_ID != 0 {
                let mode = state.mode();
                state.set_mode(mode & !SET_ID);
            }
        }
        if let Some(permissions) = self.permissions {
            let mode = state.mode();
            state.set_mode(mode & S_IFMT | permissions & !S_IFMT);
        }
        let times = [(state::Time::Access, self.accessed), (state::Time::Modify, self.modified)];
        for (which, time) in times {
            if let Some(time) = time {
                state.set_time(which, from_time(time));
            }
        }
    }
}
