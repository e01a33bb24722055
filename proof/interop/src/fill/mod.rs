//! Fills an empty mounted volume with every structure that files can have.
//!
//! | part | what it makes |
//! |---|---|
//! | `dirs` | directories of every form, awkward names, equal hashes, depth |
//! | `attrs` | extended attributes of every form, ACLs, labels |
//! | `files` | holes, unwritten and shared extents, maps of every form |
//! | `odd` | devices, links, owners, times, flags, projects |
//! | `space` | breaks up the free space, so that forks and trees grow tall |
//!
//! The order matters: what needs inodes is made first, then the free space is broken up for what needs many extents,
//! then it is given back. The same seed and options give the same tree; only the times of creation differ.

mod attrs;
mod dirs;
mod files;
mod odd;
mod space;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags};

pub use dirs::equal_hash_name;

use model::Rng;

/// The volume to fill, and how.
#[derive(clap::Args)]
pub struct Options {
    /// The root of the mounted volume.
    pub dir: PathBuf,
    /// The seed of all names, contents and choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The directory block size of the volume, in bytes; 0 for mkfs's default.
    #[arg(long, default_value_t = 0)]
    pub dir_block: u64,
    /// The inode size of the volume, in bytes.
    #[arg(long, default_value_t = 512)]
    pub inode_size: u64,
    /// How many names of one hash to put into a directory. Runs longer than a leaf block are where tools go wrong:
    /// xfs_repair 6.1.0 takes them for damage.
    #[arg(long, default_value_t = 60)]
    pub equal_hashes: u32,
    /// Fill contents and values with one byte each, so that the image compresses to little.
    #[arg(long)]
    pub plain: bool,
    /// How much to make: `tiny` is one of each form that is cheap, `full` is all of them.
    #[arg(long, value_enum, default_value_t = Amount::Full)]
    pub amount: Amount,
}

/// How much to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Amount {
    /// What fits a volume of 16 MB and takes no time.
    Tiny,
    /// Everything.
    Full,
}

/// What the parts share.
struct Fill {
    root: PathBuf,
    rng: Rng,
    /// Bytes of a file system block.
    block: u64,
    /// Bytes of a directory block.
    dir_block: u64,
    /// How many extents fit an inode that has nothing else.
    fork_extents: u64,
    full: bool,
    /// One byte repeated for contents and values.
    plain: bool,
    /// How many names of one hash.
    equal_hashes: u32,
    /// Files that exist to be linked to, so that a large directory costs no inodes.
    pool: Vec<PathBuf>,
}

/// Fills the volume.
///
/// # Errors
/// The first call that failed, with what it was for.
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
    odd::run(&mut fill).context("odd inodes")?;
    if fill.full {
        dirs::many_inodes(&mut fill).context("many inodes")?;
        let mut broken = space::break_up(&mut fill).context("breaking up the free space")?;
        files::tall(&mut fill).context("files of many extents")?;
        dirs::tall(&mut fill).context("directories of many extents")?;
        attrs::tall(&mut fill).context("attribute forks of many extents")?;
        broken.give_back(&fill).context("giving back the space")?;
        dirs::large(&mut fill).context("large directories")?;
        attrs::large(&mut fill).context("large attributes")?;
        files::large(&mut fill).context("large files")?;
    }
    odd::flags(&mut fill).context("inode flags")?;
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

    /// Contents of a file, or a value.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        if self.plain {
            return vec![b'a' + self.rng.below(26) as u8; len];
        }
        self.rng.bytes(len)
    }

    /// Makes a directory under the root and gives its path.
    fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Makes a file and opens it for reading and writing.
    fn file(&self, path: &Path) -> Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        options.open(path).with_context(|| path.display().to_string())
    }

    /// Links files of the pool in turn under the given names.
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
