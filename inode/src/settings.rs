//! What a user may set of a file beside owner, permissions and times: flags, hints for the size of extents, the
//! project. Numbers and rules are those of Linux (`FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`).
//!
//! # Invariants
//! A hint is a multiple of the block size, no longer than an extent can be nor than half an allocation group, and is
//! there exactly where a flag says so.

use base::errno;
use error::Error;
use format::Geometry;
use format::extent::MAX_EXTENT_BLOCKS;
use format::inode::{FileType, ForkKind, flags, flags2};
use format::ondisk::{U16, U32, U64};

use crate::contents::step::shares;
use crate::shared::Shared;
use crate::state::{InodeState, InodeTime};

/// Flags as users know them. Those that are named nowhere here are the bits of [`flags`], with the same numbers.
pub mod xflags {
    /// The contents are to be accessed in memory, without a cache.
    pub const DAX: u32 = 1 << 15;
    /// There is a hint for the extents of copies on write.
    pub const COWEXTSIZE: u32 = 1 << 16;
    /// The file has extended attributes. It is told, and cannot be set.
    pub const HASATTR: u32 = 1 << 31;
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// [`xflags`].
    pub xflags: u32,
    /// In bytes: the unit in which space is allocated to the file, or to what is made in the directory.
    pub extsize: u32,
    /// The same for what is copied on write.
    pub cowextsize: u32,
    /// The project.
    pub project: u32,
}

/// For files of every kind.
const COMMON: u16 = flags::IMMUTABLE
    | flags::APPEND
    | flags::SYNC
    | flags::NOATIME
    | flags::NODUMP
    | flags::NODEFRAG
    | flags::FILESTREAM;
/// For directories.
const OF_DIRECTORIES: u16 = flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
/// For regular files.
const OF_FILES: u16 = flags::REALTIME | flags::EXTSIZE;
/// Nobody sets these from outside.
const KEPT: u16 = flags::PREALLOC | flags::NEWRTBM;
const HINTED: u16 = flags::EXTSIZE | flags::EXTSZINHERIT;
/// The flags of hints for the size of extents.
pub const HINTS: u32 = HINTED as u32 | xflags::COWEXTSIZE;

const fn refused(why: &'static str) -> Error {
    Error::Refused { errno: errno::EINVAL, why }
}

const NOT_A_FILE: Error = refused("a hint for the size of a file's own extents is for regular files");
const NOT_A_DIRECTORY: Error = refused("what new files take over is set on directories");
const NEITHER: Error = refused("the flag is for regular files and directories");
const NO_REALTIME: Error = refused("the volume has no realtime device");
const HAS_EXTENTS: Error = refused("the file has extents already: its hint cannot change any more");
const BAD_HINT: Error = refused(
    "a hint is a multiple of the block size, no longer than an extent or half of an allocation group",
);
const NO_REFLINK: Error =
    refused("the volume was made without the reflink feature: nothing is copied on write");
const SHARED: Error = refused("a file that shares blocks cannot be accessed in memory alone");

impl Settings {
    /// Those of a file.
    pub fn of(state: &InodeState, geometry: &Geometry) -> Self {
        let core = state.core();
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let has = |bit| core.flags2.get() & bit != 0;
        let bytes = |blocks: U32| blocks.get().saturating_mul(geometry.block_size);
        Self {
            xflags: u32::from(core.flags.get() & !flags::NEWRTBM)
                | flag(has(flags2::DAX), xflags::DAX)
                | flag(has(flags2::COWEXTSIZE), xflags::COWEXTSIZE)
                | flag(state.attr_offset() != 0, xflags::HASATTR),
            extsize: bytes(core.extsize),
            cowextsize: bytes(core.cowextsize),
            project: state.dinode().project(),
        }
    }

    /// Gives them to a file, in place of those that it has; moves its time of change. A hint of no bytes takes its flag
    /// away. Whether the caller may do that is for the caller to know.
    ///
    /// # Errors
    /// `EINVAL`, with nothing changed: a flag is not for such a file, a hint cannot be one, or comes too late.
    pub fn set(&self, shared: &Shared, state: &mut InodeState) -> Result<(), Error> {
        let geometry = &shared.geometry;
        let new = self.without_empty_hints();
        new.verify_flags(state, geometry)?;
        let kind = FileType::from_mode(state.mode());
        let allowed = match kind {
            Some(FileType::Directory) => COMMON | OF_DIRECTORIES,
            Some(FileType::Regular) => COMMON | OF_FILES,
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
        core.flags = U16::new(core.flags.get() & KEPT | chosen);
        let kept = core.flags2.get() & !(flags2::DAX | flags2::COWEXTSIZE);
        core.flags2 =
            U64::new(kept | flag(xflags::DAX, flags2::DAX) | flag(xflags::COWEXTSIZE, flags2::COWEXTSIZE));
        core.extsize = U32::new(if chosen & HINTED != 0 { extsize } else { 0 });
        core.cowextsize = U32::new(if new.xflags & xflags::COWEXTSIZE != 0 { cowextsize } else { 0 });
        state.set_project(new.project);
        state.set_times(&[InodeTime::Change], shared.now());
        Ok(())
    }

    /// The same without the flags of hints that have no size.
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

    /// The same without any hints.
    #[must_use]
    pub fn without_hints(self) -> Self {
        Self { xflags: self.xflags & !HINTS, extsize: 0, cowextsize: 0, ..self }
    }

    /// The same with those hints only that a volume can have, by its blocks and by what it shares.
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

    fn verify_flags(&self, state: &InodeState, geometry: &Geometry) -> Result<(), Error> {
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

/// A hint in blocks.
fn hint(bytes: u32, geometry: &Geometry) -> Result<u32, Error> {
    let blocks = bytes / geometry.block_size;
    let most = (MAX_EXTENT_BLOCKS as u32).min(geometry.ag_blocks / 2); // 21 bits
    if !bytes.is_multiple_of(geometry.block_size) || blocks > most { Err(BAD_HINT) } else { Ok(blocks) }
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
        volume.judge();
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
        crate::contents::preallocate(volume.shared(), &volume.groups, &inode, range, None).unwrap();
        let mut locked = inode.lock();
        assert_eq!(hinted.set(volume.shared(), &mut locked).unwrap_err().errno(), errno::EINVAL);
        let other = Settings { xflags: flags::NODUMP.into(), ..Settings::default() };
        other.set(volume.shared(), &mut locked).unwrap();
        let kept = u32::from(flags::NODUMP | flags::PREALLOC);
        assert_eq!(Settings::of(&locked, volume.groups.geometry()).xflags, kept);
        volume.begin().commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    }
}
