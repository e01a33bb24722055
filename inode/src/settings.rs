//! Inode flags, extent size hints and project ID of a file, with the numbers and rules of Linux (`FS_IOC_FSGETXATTR`,
//! `FS_IOC_FSSETXATTR`).
//!
//! # Invariants
//! An extent size hint is a multiple of the block size, at most the maximum length of an extent, and at most half of an
//! AG. It is nonzero if and only if its flag is set.

use base::errno;
use error::{Error, Result};
use format::Geometry;
use format::extent::MAX_EXTENT_BLOCKS;
use format::inode::{FileType, ForkKind, flags, flags2};
use format::ondisk::{U16, U32, U64};

use crate::contents::file_transaction::shares;
use crate::shared::Shared;
use crate::state::{InodeState, InodeTime};

/// Flags in the numbers of the system call. The other flags are those of [`flags`], with the same numbers.
pub mod xflags {
    /// Direct access to persistent memory (DAX).
    pub const DAX: u32 = 1 << 15;
    /// The file has a CoW extent size hint.
    pub const COWEXTSIZE: u32 = 1 << 16;
    /// The file has extended attributes. Read-only.
    pub const HASATTR: u32 = 1 << 31;
}

/// Flags, extent size hints and project ID of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Flags: see [`xflags`].
    pub xflags: u32,
    /// Extent size hint in bytes: the unit of allocation for the file, or for new files in the directory.
    pub extsize: u32,
    /// CoW extent size hint in bytes.
    pub cowextsize: u32,
    /// Project ID.
    pub project: u32,
}

/// Flags of all file types.
const COMMON: u16 = flags::IMMUTABLE
    | flags::APPEND
    | flags::SYNC
    | flags::NOATIME
    | flags::NODUMP
    | flags::NODEFRAG
    | flags::FILESTREAM;
/// Flags of directories.
const DIRECTORY_FLAGS: u16 = flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
/// Flags of regular files.
const FILE_FLAGS: u16 = flags::REALTIME | flags::EXTSIZE;
/// Flags that users cannot change.
const INTERNAL: u16 = flags::PREALLOC | flags::NEWRTBM;
const HINTED: u16 = flags::EXTSIZE | flags::EXTSZINHERIT;
/// The flags of both extent size hints.
pub const HINTS: u32 = HINTED as u32 | xflags::COWEXTSIZE;

const fn refused(why: &'static str) -> Error {
    Error::Refused { errno: errno::EINVAL, why }
}

const NOT_A_FILE: Error = refused("only regular files have an extent size hint of their own");
const NOT_A_DIRECTORY: Error = refused("only directories have an inherited extent size hint");
const NEITHER: Error = refused("only regular files and directories can have this flag");
const NO_REALTIME: Error = refused("the volume has no realtime device");
const HAS_EXTENTS: Error = refused("the file has extents: its extent size hint cannot be changed");
const BAD_HINT: Error = refused(
    "an extent size hint is a multiple of the block size, at most the length of an extent and half of an AG",
);
const NO_REFLINK: Error = refused("the volume does not have the reflink feature: it has no copy-on-write");
const SHARED: Error = refused("a file with shared blocks cannot use DAX");

impl Settings {
    /// Returns the settings of a file.
    pub fn of(state: &InodeState, geometry: &Geometry) -> Self {
        let core = state.core();
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let has = |bit| core.flags2.get() & bit != 0;
        let bytes = |blocks: U32| blocks.get().saturating_mul(geometry.block_size);
        Self {
            xflags: u32::from(core.flags.get() & !flags::NEWRTBM)
                | flag(has(flags2::DAX), xflags::DAX)
                | flag(has(flags2::COWEXTSIZE), xflags::COWEXTSIZE)
                | flag(state.forkoff() != 0, xflags::HASATTR),
            extsize: bytes(core.extsize),
            cowextsize: bytes(core.cowextsize),
            project: state.dinode().project(),
        }
    }

    /// Replaces the settings of a file, and sets its change time. A hint of 0 clears its flag. Does not check
    /// permissions.
    ///
    /// # Errors
    /// `EINVAL`, with nothing changed: a flag that files of this type do not have, an invalid hint, or a new hint for a
    /// file that has extents.
    pub fn set(&self, shared: &Shared, state: &mut InodeState) -> Result<()> {
        let geometry = &shared.geometry;
        let new = self.without_empty_hints();
        new.verify_flags(state, geometry)?;
        let kind = FileType::from_mode(state.mode());
        let allowed = match kind {
            Some(FileType::Directory) => COMMON | DIRECTORY_FLAGS,
            Some(FileType::Regular) => COMMON | FILE_FLAGS,
            _ => COMMON,
        };
        let extsize = hint(new.extsize, geometry)?;
        let cowextsize = hint(new.cowextsize, geometry)?;
        if kind == Some(FileType::Regular)
            && state.extent_count(ForkKind::Data) > 0
            && extsize != state.core().extsize.get()
        {
            return Err(HAS_EXTENTS);
        }
        let flag = |bit: u32, set: u64| if new.xflags & bit != 0 { set } else { 0 };
        let chosen = new.xflags as u16 & allowed; // the lower bits have the same numbers
        let core = state.edit();
        core.flags = U16::new(core.flags.get() & INTERNAL | chosen);
        let kept = core.flags2.get() & !(flags2::DAX | flags2::COWEXTSIZE);
        core.flags2 =
            U64::new(kept | flag(xflags::DAX, flags2::DAX) | flag(xflags::COWEXTSIZE, flags2::COWEXTSIZE));
        core.extsize = U32::new(if chosen & HINTED != 0 { extsize } else { 0 });
        core.cowextsize = U32::new(if new.xflags & xflags::COWEXTSIZE != 0 { cowextsize } else { 0 });
        state.set_project(new.project);
        state.set_times(&[InodeTime::Change], shared.now());
        Ok(())
    }

    /// Returns a copy without the flags of hints that are 0.
    #[must_use]
    pub fn without_empty_hints(mut self) -> Self {
        if self.extsize == 0 {
            self.xflags &= !u32::from(HINTED);
        }
        if self.cowextsize == 0 {
            self.xflags &= !xflags::COWEXTSIZE;
        }
        self
    }

    /// Returns a copy without hints.
    #[must_use]
    pub fn without_hints(self) -> Self {
        Self { xflags: self.xflags & !HINTS, extsize: 0, cowextsize: 0, ..self }
    }

    /// Returns a copy with only the hints that are valid on a volume, by its block size and features.
    #[must_use]
    pub fn with_possible_hints(mut self, geometry: &Geometry) -> Self {
        if hint(self.extsize, geometry).is_err() {
            self.extsize = 0;
        }
        if hint(self.cowextsize, geometry).is_err() || !geometry.features.reflink() {
            self.cowextsize = 0;
        }
        self.without_empty_hints()
    }

    fn verify_flags(&self, state: &InodeState, geometry: &Geometry) -> Result<()> {
        let has = |bit: u16| self.xflags & u32::from(bit) != 0;
        let kind = FileType::from_mode(state.mode());
        let (is_file, is_directory) = (kind == Some(FileType::Regular), kind == Some(FileType::Directory));
        let both = xflags::DAX | xflags::COWEXTSIZE;
        let refusals = [
            (has(flags::EXTSIZE) && !is_file, NOT_A_FILE),
            (has(flags::EXTSZINHERIT) && !is_directory, NOT_A_DIRECTORY),
            (self.xflags & both != 0 && !is_file && !is_directory, NEITHER),
            (has(flags::REALTIME), NO_REALTIME),
            (self.xflags & xflags::COWEXTSIZE != 0 && !geometry.features.reflink(), NO_REFLINK),
            (self.xflags & xflags::DAX != 0 && shares(state), SHARED),
        ];
        refusals.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Converts a hint to blocks.
fn hint(bytes: u32, geometry: &Geometry) -> Result<u32> {
    let blocks = bytes / geometry.block_size;
    let max = (MAX_EXTENT_BLOCKS as u32).min(geometry.ag_blocks / 2); // 21 bits
    if !bytes.is_multiple_of(geometry.block_size) || blocks > max { Err(BAD_HINT) } else { Ok(blocks) }
}

#[cfg(test)]
mod tests {
    use journal::engine::Loggable;

    use super::*;
    use crate::tests::volume::{Volume, options};

    fn set(volume: &Volume, mode: u16, settings: Settings) -> Result<Settings, errno::Errno> {
        let inode = volume.create(mode);
        let tx = volume.begin();
        let mut locked = inode.lock();
        let before = locked.parts().0.flags;
        if let Err(error) = settings.set(volume.shared(), &mut locked) {
            assert!(!locked.is_changed() && locked.parts().0.flags == before);
            return Err(error.errno());
        }
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        let set = Settings::of(&locked, volume.groups.geometry());
        drop(locked);
        volume.check();
        Ok(set)
    }

    #[test]
    fn what_is_set_is_what_is_there_and_the_checker_agrees() {
        let volume = Volume::new(&options(1024, |_| {}));
        let file = Settings {
            xflags: u32::from(flags::EXTSIZE | flags::NODUMP | flags::APPEND) | xflags::COWEXTSIZE,
            extsize: 16 << 10,
            cowextsize: 4096,
            project: 0x12_3456,
        };
        assert_eq!(set(&volume, 0o100_644, file), Ok(file));
        let directory = Settings {
            xflags: u32::from(flags::EXTSZINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS),
            cowextsize: 0,
            ..file
        };
        let volume = Volume::new(&options(4096, |_| {}));
        // Anonymous directories are damage to the checker: the flags alone count.
        let inode = volume.create(0o100_644);
        let mut locked = inode.lock();
        locked.set_mode(0o040_755);
        directory.set(volume.shared(), &mut locked).unwrap();
        assert_eq!(Settings::of(&locked, volume.groups.geometry()), directory);
        volume.begin().commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    }

    #[test]
    fn hints_of_no_bytes_and_flags_for_others_are_dropped() {
        let volume = Volume::new(&options(1024, |_| {}));
        let file = Settings { xflags: u32::from(flags::EXTSIZE | flags::PREALLOC), ..Settings::default() };
        assert_eq!(set(&volume, 0o100_644, file), Ok(Settings::default()));
        let inherit = Settings { xflags: u32::from(flags::PROJINHERIT), project: 7, ..Settings::default() };
        assert_eq!(set(&volume, 0o100_644, inherit), Ok(Settings { xflags: 0, ..inherit }));
        // Without its flag, a hint is none.
        let bare = Settings { extsize: 2048, ..Settings::default() };
        assert_eq!(set(&volume, 0o100_644, bare), Ok(Settings::default()));
    }

    #[test]
    fn what_linux_refuses_is_refused() {
        let volume = Volume::new(&options(1024, |options| options.reflink = false));
        let hinted = Settings { xflags: flags::EXTSIZE.into(), extsize: 4096, ..Settings::default() };
        let refused = [
            (0o010_644, hinted),
            (0o100_644, Settings { extsize: 1000, ..hinted }),
            (0o100_644, Settings { extsize: 1 << 31, ..hinted }),
            (0o100_644, Settings { xflags: flags::EXTSZINHERIT.into(), ..hinted }),
            (0o100_644, Settings { xflags: flags::REALTIME.into(), ..hinted }),
            (0o100_644, Settings { xflags: xflags::COWEXTSIZE, cowextsize: 4096, ..hinted }),
            (0o010_644, Settings { xflags: xflags::DAX, ..hinted }),
        ];
        for (mode, settings) in refused {
            assert_eq!(set(&volume, mode, settings), Err(errno::EINVAL), "{settings:?}");
        }
        assert_eq!(set(&volume, 0o100_644, hinted), Ok(hinted));
        let inode = volume.create(0o100_644);
        let range = (base::FileBlock(0), base::FileBlock(3));
        crate::contents::preallocate(
            crate::contents::File { shared: volume.shared(), groups: &volume.groups, inode: &inode },
            range.0,
            range.1,
            None,
        )
        .unwrap();
        let mut locked = inode.lock();
        assert_eq!(hinted.set(volume.shared(), &mut locked).unwrap_err().errno(), errno::EINVAL);
        let other = Settings { xflags: flags::NODUMP.into(), ..Settings::default() };
        other.set(volume.shared(), &mut locked).unwrap();
        let kept = u32::from(flags::NODUMP | flags::PREALLOC);
        assert_eq!(Settings::of(&locked, volume.groups.geometry()).xflags, kept);
        volume.begin().commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    }
}
