//! Project ids and flags: what Linux keeps beside a file and changes by a call of its own.

use std::io;
use std::os::fd::AsFd;

use block::fsxattr;
use format::geometry::Geometry;
use format::inode::{Dinode, flags, flags2};
use read::Metadata;
use rustix::io::Errno;

use super::progress::Progress;
use super::source::Facts;

/// Flags that say what may be done with a file, and who pays for it. Others that tell an allocator where to put it
/// (file streams, realtime, DAX) belong to the volume that they were chosen for. On disk and in Linux's call they have
/// the same bits.
const KEPT: u16 = GUARDS
    | flags::SYNC
    | flags::NOATIME
    | flags::NODUMP
    | flags::PROJINHERIT
    | flags::NOSYMLINKS
    | flags::NODEFRAG;
/// Those that forbid changes: nothing can be done to the file behind them, and only root may set them.
const GUARDS: u16 = flags::IMMUTABLE | flags::APPEND;

/// What of it a file has: its project id, and which flags.
fn wanted(metadata: &Metadata) -> (u32, u32) {
    (metadata.project, metadata.xflags & u32::from(KEPT))
}

/// Gives them to an open file or directory, last of all. A file that has none keeps what it got from the directory that
/// it was made in.
///
/// # Errors
/// None for what this file system or this user cannot have: that is counted as lost.
pub fn give(file: impl AsFd, metadata: &Metadata, progress: &Progress) -> io::Result<()> {
    let (project, mut xflags) = wanted(metadata);
    if (project, xflags) == (0, 0) {
        return Ok(());
    }
    let guards = xflags & u32::from(GUARDS);
    if guards != 0 && metadata.links > 1 && metadata.file_type != format::inode::FileType::Directory {
        // Its other names are made later, and could not be.
        progress.lose("immutable and append-only flags (of files with several names)");
        xflags &= !guards;
    }
    let file = file.as_fd();
    let lost = match add(file, project, xflags) {
        Ok(()) => return Ok(()),
        Err(error) if xflags & u32::from(GUARDS) == 0 => error,
        // The rest may be allowed without them.
        Err(error) => match add(file, project, xflags & !u32::from(GUARDS)) {
            Ok(()) => {
                progress.lose(&format!("immutable and append-only flags ({})", errno(&error)));
                return Ok(());
            }
            Err(error) => error,
        },
    };
    match errno(&lost) {
        refused @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => {
            progress.lose(&format!("{} ({refused})", what(project)));
            Ok(())
        }
        _ => Err(lost),
    }
}

/// Extent size hints of a file, or those that a directory gives to new files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    xflags: u32,
    /// Bytes, for extents that are written, and for copies.
    extent: u32,
    copy: u32,
}

impl Hints {
    /// Of an inode in a volume with such blocks.
    pub fn of(inode: &Dinode<'_>, geometry: &Geometry) -> Self {
        /// Bits of `fsx_xflags` in Linux: `FS_XFLAG_EXTSIZE`, `FS_XFLAG_EXTSZINHERIT` and `FS_XFLAG_COWEXTSIZE`.
        const EXTENT: u32 = (flags::EXTSIZE | flags::EXTSZINHERIT) as u32;
        const COPY: u32 = 1 << 16;
        let core = inode.core;
        let bytes = |blocks: u32| blocks.saturating_mul(geometry.block_size);
        let has_copy = core.flags2.get() & flags2::COWEXTSIZE != 0;
        let xflags = u32::from(core.flags.get()) & EXTENT;
        Self {
            xflags: if has_copy { xflags | COPY } else { xflags },
            extent: if xflags == 0 { 0 } else { bytes(core.extsize.get()) },
            copy: if has_copy { bytes(core.cowextsize.get()) } else { 0 },
        }
    }
}

/// Gives a file its extent size hints, before it has contents: then it could not have them any more. Where this file
/// system has none, that is counted.
pub fn hint(file: impl AsFd, facts: &Facts, progress: &Progress) {
    let Hints { xflags, extent, copy } = facts.hints;
    if xflags == 0 {
        return;
    }
    let set = fsxattr::get(&file).and_then(|mut wants| {
        wants.xflags |= xflags;
        (wants.extsize, wants.cowextsize) = (extent, copy);
        fsxattr::set(&file, wants)?;
        // Some file systems that know the call take it, and keep nothing.
        let has = fsxattr::get(&file)?;
        Ok((has.extsize, has.cowextsize) == (extent, copy))
    });
    match set {
        Ok(true) => {}
        Ok(false) => progress.lose("extent size hints (this file system has none)"),
        Err(error) => progress.lose(&format!("extent size hints ({})", errno(&error))),
    }
}

/// Counts what a file that cannot be opened without side effects would have had.
pub fn lose(metadata: &Metadata, progress: &Progress) {
    let (project, xflags) = wanted(metadata);
    if (project, xflags) != (0, 0) {
        progress.lose(&format!("{} (only files and directories can be given them)", what(project)));
    }
}

fn what(project: u32) -> &'static str {
    if project == 0 { "flags" } else { "project ids and flags" }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Adds flags to those that the file has, and sets its project id if there is one to set.
fn add(file: impl AsFd, project: u32, xflags: u32) -> io::Result<()> {
    let has = fsxattr::get(&file)?;
    let mut wants = has;
    wants.xflags |= xflags;
    if project != 0 {
        wants.projid = project;
    }
    if wants == has { Ok(()) } else { fsxattr::set(&file, wants) }
}
