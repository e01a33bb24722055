//! Project IDs, inode flags and extent size hints, set with `FS_IOC_FSSETXATTR`.

use std::io;
use std::os::fd::AsFd;

use block::fsxattr;
use format::geometry::Geometry;
use format::inode::{Dinode, flags, flags2};
use read::Metadata;
use rustix::io::Errno;

use super::counters::Counters;
use super::source::FileInfo;
use crate::item::KEPT_FLAGS;
use crate::syscalls::errno_of;

/// Flags that forbid changes. They are set last, and only root may set them.
const GUARDS: u32 = (flags::IMMUTABLE | flags::APPEND) as u32;

/// The project ID and flags to set. On disk and in `fsx_xflags`, [`KEPT_FLAGS`] have the same bits.
fn wanted(metadata: &Metadata) -> (u32, u32) {
    (metadata.project, metadata.xflags & KEPT_FLAGS)
}

/// Sets project ID and flags of an open file or directory, after everything else. A file without any keeps those
/// inherited from its directory.
///
/// # Errors
/// Those of the system, except that the file system does not support them or the user may not set them: that is
/// counted.
pub fn set_flags(file: impl AsFd, metadata: &Metadata, counters: &Counters) -> io::Result<()> {
    let (project, mut xflags) = wanted(metadata);
    if (project, xflags) == (0, 0) {
        return Ok(());
    }
    let guards = xflags & GUARDS;
    if guards != 0 && metadata.links > 1 && metadata.file_type != format::inode::FileType::Directory {
        // Its other names are created later, which the flags would forbid.
        counters.lose("immutable and append-only flags (of files with several names)");
        xflags &= !guards;
    }
    let file = file.as_fd();
    let error = match add(file, project, xflags) {
        Ok(()) => return Ok(()),
        Err(error) if xflags & GUARDS == 0 => error,
        // The others may be allowed.
        Err(error) => match add(file, project, xflags & !GUARDS) {
            Ok(()) => {
                counters.lose(&format!("immutable and append-only flags ({})", errno_of(&error)));
                return Ok(());
            }
            Err(error) => error,
        },
    };
    match errno_of(&error) {
        refused @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => {
            counters.lose(&format!("{} ({refused})", what(project)));
            Ok(())
        }
        _ => Err(error),
    }
}

/// Extent size hints of a file, or of a directory for new files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentHints {
    xflags: u32,
    /// Extent size hint in bytes.
    extsize: u32,
    /// CoW extent size hint in bytes.
    cowextsize: u32,
}

impl ExtentHints {
    /// The hints of an inode.
    pub fn of(inode: &Dinode<'_>, geometry: &Geometry) -> Self {
        /// Bits of `fsx_xflags` in Linux: `FS_XFLAG_EXTSIZE`, `FS_XFLAG_EXTSZINHERIT` and `FS_XFLAG_COWEXTSIZE`.
        const EXTSIZE: u32 = (flags::EXTSIZE | flags::EXTSZINHERIT) as u32;
        const COWEXTSIZE: u32 = 1 << 16;
        let core = inode.core;
        let bytes = |blocks: u32| blocks.saturating_mul(geometry.block_size);
        let has_cow = core.flags2.get() & flags2::COWEXTSIZE != 0;
        let xflags = u32::from(core.flags.get()) & EXTSIZE;
        Self {
            xflags: if has_cow { xflags | COWEXTSIZE } else { xflags },
            extsize: if xflags == 0 { 0 } else { bytes(core.extsize.get()) },
            cowextsize: if has_cow { bytes(core.cowextsize.get()) } else { 0 },
        }
    }
}

/// Sets the extent size hints of a file; to be called before it has contents, as the kernel refuses them later. A file
/// system without hints is counted.
pub fn set_hints(file: impl AsFd, info: &FileInfo, counters: &Counters) {
    let ExtentHints { xflags, extsize, cowextsize } = info.hints;
    if xflags == 0 {
        return;
    }
    let set = fsxattr::get(&file).and_then(|mut wanted| {
        wanted.xflags |= xflags;
        (wanted.extsize, wanted.cowextsize) = (extsize, cowextsize);
        fsxattr::set(&file, wanted)?;
        // Some file systems accept the call and ignore the hints.
        let actual = fsxattr::get(&file)?;
        Ok((actual.extsize, actual.cowextsize) == (extsize, cowextsize))
    });
    match set {
        Ok(true) => {}
        Ok(false) => counters.lose("extent size hints (not supported by this file system)"),
        Err(error) => counters.lose(&format!("extent size hints ({})", errno_of(&error))),
    }
}

/// Counts project ID and flags of a special file, which cannot be opened to set them.
pub fn count_lost(metadata: &Metadata, counters: &Counters) {
    let (project, xflags) = wanted(metadata);
    if (project, xflags) != (0, 0) {
        counters.lose(&format!("{} (only files and directories can have them)", what(project)));
    }
}

fn what(project: u32) -> &'static str {
    if project == 0 { "flags" } else { "project ids and flags" }
}

/// Adds flags to those of the file, and sets its project ID unless it is 0.
fn add(file: impl AsFd, project: u32, xflags: u32) -> io::Result<()> {
    let actual = fsxattr::get(&file)?;
    let mut wanted = actual;
    wanted.xflags |= xflags;
    if project != 0 {
        wanted.projid = project;
    }
    if wanted == actual { Ok(()) } else { fsxattr::set(&file, wanted) }
}
