//! Who does a task: Xebec in two ways, its variants, and other file systems.

use std::fmt;
use std::path::{Path, PathBuf};

use xebec::{DirtyLimit, Locks, MemoryBudget, Options};

use crate::bench_volume::{BenchVolume, copy, layout};
use crate::scale::Scale;

const IMAGE_BYTES: u64 = 8 << 30;
/// So that many threads do not wait for space in the log.
const LOG_BYTES: u64 = 256 << 20;

/// A mechanism of Xebec that can be switched off, to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Nothing is switched off.
    Nothing,
    /// One lock for all names, and one for all inodes.
    FineLocks,
    /// One list of commits for all CPUs.
    Shards,
    /// A plug for each file in writeback.
    PlugOverPass,
    /// Free inodes are searched in the btree of all inodes.
    Finobt,
}

/// Who does a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Xebec in this process, without system calls.
    Library(Without),
    /// `xebec mount`, through system calls and FUSE.
    Mounted,
    /// XFS of the kernel on a loop mount.
    Kernel,
    /// A directory of a mounted file system, which the user named.
    Directory(PathBuf),
    /// A copy of an image that the user named, with Xebec in this process.
    Image(PathBuf),
}

impl Subject {
    /// Xebec without anything switched off.
    pub const LIBRARY: Self = Self::Library(Without::Nothing);

    /// All variants of the library.
    pub const VARIANTS: [Self; 4] = [
        Self::Library(Without::FineLocks),
        Self::Library(Without::Shards),
        Self::Library(Without::PlugOverPass),
        Self::Library(Without::Finobt),
    ];

    /// A fresh volume of the subject, for as many threads.
    ///
    /// # Errors
    /// It cannot be made or mounted.
    pub fn open(&self, scale: &Scale, threads: u32) -> anyhow::Result<BenchVolume> {
        let image = scale.folder.join("subject.img");
        // An AG for each thread, as `mkfs.xfs -d concurrency` has it, as long as the log fits one.
        let layout =
            mkfs::Options { ag_count: Some(threads.clamp(4, 16).into()), ..layout(IMAGE_BYTES, LOG_BYTES) };
        match self {
            Self::Library(without) => {
                let finobt = *without != Without::Finobt;
                let layout = mkfs::Options { finobt, inobtcount: finobt, ..layout };
                BenchVolume::xebec(&image, &layout, without.options())
            }
            Self::Mounted => BenchVolume::fuse(&scale.xebec, &image, &layout),
            Self::Kernel => BenchVolume::kernel(&image, &layout),
            Self::Directory(directory) => BenchVolume::directory(directory),
            Self::Image(original) => {
                copy(original, &image)?;
                BenchVolume::open(&image, Options::default())
            }
        }
    }

    /// Whether it is Xebec.
    pub fn is_xebec(&self) -> bool {
        matches!(self, Self::Library(_) | Self::Mounted | Self::Image(_))
    }
}

impl Without {
    fn options(self) -> Options {
        let mut options = Options { memory: Some(MemoryBudget::new(4 << 30)), ..Options::default() };
        options.contents.dirty = Some(DirtyLimit::Bytes(1 << 30));
        match self {
            Self::Nothing | Self::Finobt => {}
            Self::FineLocks => options.locks = Locks::Coarse,
            Self::Shards => options.cil_shards = Some(1),
            Self::PlugOverPass => options.contents.plug_over_pass = false,
        }
        options
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &Path| path.display().to_string();
        match self {
            Self::Library(Without::Nothing) => f.write_str("Xebec, as a library"),
            Self::Library(Without::FineLocks) => f.write_str("Xebec with coarse locks"),
            Self::Library(Without::Shards) => f.write_str("Xebec with one list of commits"),
            Self::Library(Without::PlugOverPass) => f.write_str("Xebec with a plug for each file"),
            Self::Library(Without::Finobt) => f.write_str("Xebec without the finobt"),
            Self::Mounted => f.write_str("Xebec, mounted"),
            Self::Kernel => f.write_str("the kernel's XFS on a loop mount"),
            Self::Directory(directory) => f.write_str(&shown(directory)),
            Self::Image(image) => write!(f, "Xebec, as a library, on a copy of {}", shown(image)),
        }
    }
}
