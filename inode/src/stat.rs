//! The metadata of an inode as `stat` returns it, readable without the inode's lock.

use base::Ino;
use base::seqlock::SeqLock;
use format::inode::{Dinode, FileType, ForkKind, InodeTimes, flags2};
use format::ondisk::{OnDisk, U32};
use format::timestamp::Timestamp;

use crate::state::ForkFormat;

/// The fields of an inode that `stat` needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeStat {
    /// Inode number.
    pub ino: Ino,
    /// Inode generation.
    pub generation: u32,
    /// File type and permission bits.
    pub mode: u16,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project ID.
    pub project: u32,
    /// Size on disk in bytes.
    pub size: u64,
    /// Allocated blocks.
    pub blocks: u64,
    /// Device number of a device file, as the inode stores it.
    pub device: Option<u32>,
    /// Inode flags (`format::inode::flags`).
    pub flags: u16,
    /// Whether the inode has no flags, hints, project or attributes. What is created in such a directory inherits
    /// nothing, except its group if it has the set-group-ID bit.
    pub is_plain: bool,
    /// Whether the inode has space for attributes: without it, the mode says all about permissions.
    pub may_have_attributes: bool,
    /// Access, modification, change and creation times.
    pub times: InodeTimes,
}

/// Number of words of a published [`InodeStat`].
const WORDS: usize = 12;
/// Marks above the device number.
const HAS_DEVICE: u32 = 1;
const IS_PLAIN: u32 = 2;
const MAY_HAVE_ATTRIBUTES: u32 = 4;

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl InodeStat {
    /// The fields of an inode.
    pub fn of(inode: &Dinode<'_>) -> Self {
        let (core, _) = inode.parts();
        let is_device = matches!(inode.file_type(), Some(FileType::CharDevice | FileType::BlockDevice))
            && core.format == ForkFormat::Device as u8;
        let device = is_device.then(|| inode.fork_bytes(ForkKind::Data)).and_then(U32::view);
        Self {
            ino: inode.ino(),
            generation: core.generation.get(),
            mode: core.mode.get(),
            nlink: core.nlink.get(),
            uid: core.uid.get(),
            gid: core.gid.get(),
            project: inode.project(),
            size: core.size.get(),
            blocks: core.nblocks.get(),
            device: device.map(|raw| raw.get()),
            flags: core.flags.get(),
            is_plain: core.flags.get() == 0
                && core.flags2.get() & !(flags2::BIGTIME | flags2::NREXT64) == 0
                && inode.project() == 0
                && core.forkoff == 0,
            may_have_attributes: core.forkoff != 0,
            times: inode.times(),
        }
    }

    fn to_words(self) -> [u64; WORDS] {
        let InodeTimes { access, modify, change, create } = self.times;
        let mark = |bit, is_set| if is_set { bit } else { 0 };
        let marks = mark(HAS_DEVICE, self.device.is_some())
            | mark(IS_PLAIN, self.is_plain)
            | mark(MAY_HAVE_ATTRIBUTES, self.may_have_attributes);
        [
            join(self.generation, u32::from(self.mode) << 16 | u32::from(self.flags)),
            join(self.nlink, self.project),
            join(self.uid, self.gid),
            self.size,
            self.blocks,
            join(marks, self.device.unwrap_or(0)),
            access.seconds as u64,
            modify.seconds as u64,
            change.seconds as u64,
            create.seconds as u64,
            join(access.nanoseconds, modify.nanoseconds),
            join(change.nanoseconds, create.nanoseconds),
        ]
    }

    #[inline]
    fn from_words(ino: Ino, words: [u64; WORDS]) -> Self {
        let [head, links, owner, size, blocks, device, access, modify, change, create, first, second] = words;
        let ((generation, mode_flags), (nlink, project), (uid, gid)) =
            (split(head), split(links), split(owner));
        let (marks, device) = split(device);
        let time = |seconds: u64, nanoseconds| Timestamp { seconds: seconds as i64, nanoseconds };
        Self {
            ino,
            generation,
            mode: (mode_flags >> 16) as u16,
            nlink,
            uid,
            gid,
            project,
            size,
            blocks,
            device: (marks & HAS_DEVICE != 0).then_some(device),
            flags: mode_flags as u16,
            is_plain: marks & IS_PLAIN != 0,
            may_have_attributes: marks & MAY_HAVE_ATTRIBUTES != 0,
            times: InodeTimes {
                access: time(access, split(first).0),
                modify: time(modify, split(first).1),
                change: time(change, split(second).0),
                create: time(create, split(second).1),
            },
        }
    }
}

/// The metadata of an inode as it was published last.
///
/// # Invariants
/// A commit invalidates it before the inode is unlocked, and before any other trace of the change can be seen. The next
/// `stat` publishes it again, so that an inode that changes often pays nothing.
#[derive(Debug, Default)]
pub(crate) struct PublishedStat(SeqLock<WORDS>);

impl PublishedStat {
    /// The metadata; `None` if it is not published, or changed during the call. Takes no lock.
    #[inline]
    pub fn read(&self, ino: Ino) -> Option<InodeStat> {
        self.0.read().map(|words| InodeStat::from_words(ino, words))
    }

    /// The inode changed. The caller has it locked.
    #[inline]
    pub fn invalidate(&self) {
        self.0.invalidate();
    }

    /// Publishes the metadata. The caller has the inode locked.
    pub fn publish(&self, stat: &InodeStat) {
        self.0.publish(stat.to_words());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_metadata_is_read_back() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        for device in [None, Some(0), Some(u32::MAX)] {
            let stat = InodeStat {
                ino: Ino(131),
                generation: 0xfedc_ba98,
                mode: 0o120_777,
                nlink: u32::MAX,
                uid: 1,
                gid: u32::MAX - 1,
                project: 7,
                size: u64::MAX,
                blocks: 1 << 40,
                device,
                flags: 0xffff,
                is_plain: device == Some(0),
                may_have_attributes: device.is_none(),
                times: InodeTimes {
                    access: time(-1, 999_999_999),
                    modify: time(1 << 33, 1),
                    change: time(i64::MIN, 2),
                    create: time(i64::MAX, 3),
                },
            };
            let published = PublishedStat::default();
            assert_eq!(published.read(stat.ino), None);
            published.publish(&stat);
            assert_eq!(published.read(stat.ino), Some(stat));
        }
    }
}
