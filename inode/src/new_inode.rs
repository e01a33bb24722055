//! Initialization of new inodes.

use format::inode::{FileType, ForkKind, flags, flags2};
use format::ondisk::{U16, U32, U64};

use crate::shared::Shared;
use crate::state::{ForkFormat, InodeState, InodeTime};

/// Set-group-ID bit; on a directory, new files inherit its group.
pub const S_ISGID: u16 = 0o2000;

/// The parameters of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// File type and permissions.
    pub mode: u16,
    /// User id.
    pub uid: u32,
    /// Group id, unless inherited from the parent.
    pub gid: u32,
    /// Initial link count: 0 for an anonymous file, 2 for a directory.
    pub nlink: u32,
    /// Device number of a special file, in the sysv encoding.
    pub device: u32,
    /// Parent directory.
    pub parent: Option<&'a InodeState>,
}

/// Inherited flags: the parent's flag, the child's flag, and the file types that inherit it.
const INHERITED: &[(u16, u16, InheritedBy)] = &[
    (flags::RTINHERIT, flags::RTINHERIT, InheritedBy::Directories),
    (flags::EXTSZINHERIT, flags::EXTSZINHERIT, InheritedBy::Directories),
    (flags::PROJINHERIT, flags::PROJINHERIT, InheritedBy::Directories),
    (flags::EXTSZINHERIT, flags::EXTSIZE, InheritedBy::Files),
    (flags::NOATIME, flags::NOATIME, InheritedBy::All),
    (flags::NODUMP, flags::NODUMP, InheritedBy::All),
    (flags::SYNC, flags::SYNC, InheritedBy::All),
    (flags::NODEFRAG, flags::NODEFRAG, InheritedBy::All),
    (flags::FILESTREAM, flags::FILESTREAM, InheritedBy::All),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InheritedBy {
    Directories,
    Files,
    All,
}

impl NewInode<'_> {
    /// Initializes a free inode.
    pub(crate) fn begin(&self, state: &mut InodeState, shared: &Shared) {
        let kind = FileType::from_mode(self.mode);
        state.init(shared.features);
        let (mut mode, mut gid) = (self.mode, self.gid);
        if let Some(parent) = self.parent.filter(|parent| parent.mode() & S_ISGID != 0) {
            gid = parent.core().gid.get();
            if kind == Some(FileType::Directory) {
                mode |= S_ISGID;
            }
        }
        let core = state.edit();
        core.mode = U16::new(mode);
        (core.uid, core.gid) = (U32::new(self.uid), U32::new(gid));
        core.nlink = U32::new(self.nlink);
        state.set_times(
            &[InodeTime::Access, InodeTime::Modify, InodeTime::Change, InodeTime::Create],
            shared.now(),
        );
        if let Some(parent) = self.parent {
            inherit(state, parent, kind, shared);
        }
        match kind {
            Some(FileType::CharDevice | FileType::BlockDevice) => state.set_device(self.device),
            Some(FileType::Fifo | FileType::Socket) => state.set_device(0),
            _ => state.set_fork_format(ForkKind::Data, ForkFormat::Extents),
        }
    }
}

fn inherit(state: &mut InodeState, parent: &InodeState, kind: Option<FileType>, shared: &Shared) {
    let from = parent.core();
    let (has, has_more) = (from.flags.get(), from.flags2.get());
    if has == 0 && has_more & (flags2::COWEXTSIZE | flags2::DAX) == 0 {
        return;
    }
    let heir = match kind {
        Some(FileType::Directory) => Some(InheritedBy::Directories),
        Some(FileType::Regular) => Some(InheritedBy::Files),
        _ => None,
    };
    let mut takes = 0;
    for (parents, childs, heirs) in INHERITED {
        if has & parents != 0 && (*heirs == InheritedBy::All || Some(*heirs) == heir) {
            takes |= childs;
        }
    }
    let project = has & flags::PROJINHERIT != 0;
    let cow_hint = has_more & flags2::COWEXTSIZE != 0 && heir.is_some() && shared.geometry.features.reflink();
    let dax = has_more & flags2::DAX != 0 && heir.is_some();
    if project {
        state.set_project(parent.dinode().project());
    }
    let core = state.edit();
    core.flags = U16::new(takes);
    if takes & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0 {
        core.extsize = from.extsize;
    }
    let mut more = core.flags2.get();
    if cow_hint {
        more |= flags2::COWEXTSIZE;
        core.cowextsize = U32::new(from.cowextsize.get());
    }
    if dax {
        more |= flags2::DAX;
    }
    core.flags2 = U64::new(more);
}
