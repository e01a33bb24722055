//! Fills an empty mounted volume with all structures of files and directories.
//!
//! | part | creates |
//! |---|---|
//! | `dirs` | directories of every format, unusual names, names with the same hash, deep paths |
//! | `attrs` | extended attributes of every format, ACLs, labels |
//! | `files` | holes, unwritten and shared extents, data forks of every format |
//! | `special` | devices, links, owners, times, flags, projects |
//! | `space` | fragments the free space, so that forks need btrees |
//!
//! The order matters: files that need many inodes are created first; then the free space is fragmented for files that
//! need many extents, and freed again. The same seed and options give the same tree; only creation times differ.

mod attrs;
mod dirs;
mod files;
mod space;
mod special;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags};

pub use dirs::same_hash_name;

use model::Rng;

/// Options of `fill`.
#[derive(clap::Args)]
pub struct Options {
    /// Root of the mounted volume.
    pub dir: PathBuf,
    /// Seed of all names, contents and choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory block size of the volume in bytes; 0 for the default of mkfs.
    #[arg(long, default_value_t = 0)]
    pub dir_block: u64,
    /// Inode size of the volume in bytes.
    #[arg(long, default_value_t = 512)]
    pub inode_size: u64,
    /// Number of names with the same hash in a directory. xfs_repair 6.1.0 reports more than fit a leaf block as
    /// damage.
    #[arg(long, default_value_t = 60)]
    pub equal_hashes: u32,
    /// Fill each file and value with one byte, so that the image compresses well.
    #[arg(long)]
    pub plain: bool,
    /// How much to create: `tiny` is one of each cheap structure, `full` is everything.
    #[arg(long, value_enum, default_value_t = Amount::Full)]
    pub amount: Amount,
}

/// How much to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Amount {
    /// One of each structure that fits a volume of 16 MB.
    Tiny,
    /// Everything.
    Full,
}

/// State shared by the parts.
struct Fill {
    root: PathBuf,
    rng: Rng,
    /// Block size in bytes.
    block: u64,
    /// Directory block size in bytes.
    dir_block: u64,
    /// Number of extents that fit an inode without other forks.
    fork_extents: u64,
    full: bool,
    /// Fill each file and value with one byte.
    plain: bool,
    /// Number of names with the same hash.
    equal_hashes: u32,
    /// Files for hard links, so that a large directory needs no inodes.
    pool: Vec<PathBuf>,
}

/// Fills the volume.
///
/// # Errors
/// The first call that failed, with its purpose.
pub fn run(options: &Options) -> Result<()> {
    let block = rustix::fs::statvfs(&options.dir)?.f_frsize;
    let mut fill = Fill {
        root: options.dir.clone(),
        rng: Rng::new(options.seed),
        block,
        dir_block: if options.dir_block == 0 { block.max(4096) } else { options.dir_block },
        // The version 3 inode core takes 176 bytes, an extent record 16.
        fork_extents: (options.inode_size - 176) / 16,
        full: options.amount == Amount::Full,
        plain: options.plain,
        equal_hashes: options.equal_hashes,
        pool: Vec::new(),
    };
    fill.make_pool().context("files to link to")?;
    dirs::small(&mut fill).context("small directories")?;
    attrs::small(&mut fill).context("small attributes")?;
    files::small(&mut fill).context("files")?;
    special::run(&mut fill).context("special inodes")?;
    if fill.full {
        dirs::many_inodes(&mut fill).context("many inodes")?;
        let mut fragmented = space::fragment(&mut fill).context("fragmenting the free space")?;
        files::tall(&mut fill).context("files of many extents")?;
        dirs::tall(&mut fill).context("directories of many extents")?;
        attrs::tall(&mut fill).context("attribute forks of many extents")?;
        fragmented.free(&fill).context("freeing the space")?;
        dirs::large(&mut fill).context("large directories")?;
        attrs::large(&mut fill).context("large attributes")?;
        files::large(&mut fill).context("large files")?;
    }
    special::flags(&mut fill).context("inode flags")?;
    Ok(())
}

impl Fill {
    fn make_pool(&mut self) -> Result<()> {
        let dir = self.dir("pool")?;
        let count = if self.full { 200 } else { 12 };
        for i in 0..count {
            let path = dir.join(format!("p{i:03}"));
            std::fs::write(&path, format!("{i}\n"))?;
            self.pool.push(path);
        }
        Ok(())
    }

    /// Returns contents of a file, or an attribute value.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        if self.plain {
            return vec![b'a' + self.rng.below(26) as u8; len];
        }
        self.rng.bytes(len)
    }

    /// Creates a directory below the root and returns its path.
    fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Creates a file and opens it for reading and writing.
    fn file(&self, path: &Path) -> Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        options.open(path).with_context(|| path.display().to_string())
    }

    /// Creates hard links with the given names to the files of the pool in turn.
    fn link(&self, dir: &Path, names: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
        let fd = open_dir(dir)?;
        for (name, target) in names.into_iter().zip(self.pool.iter().cycle()) {
            rustix::fs::linkat(CWD, target, &fd, name.as_slice(), rustix::fs::AtFlags::empty())
                .with_context(|| format!("{}/{}", dir.display(), name.escape_ascii()))?;
        }
        Ok(())
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).with_context(|| path.display().to_string())
}
