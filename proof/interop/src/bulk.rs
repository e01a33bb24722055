//! Large plain trees for benchmarks: many inodes, or a tree like that of an installed system.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use model::Rng;

/// Options of `bulk`.
#[derive(clap::Args)]
pub struct Options {
    /// Directory for the tree.
    pub dir: PathBuf,
    /// Seed of sizes and contents.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of directories.
    #[arg(long)]
    pub dirs: u64,
    /// Number of files in each directory.
    #[arg(long)]
    pub files: u64,
    /// Total size of all files in bytes, distributed unevenly as in real trees; 0 for empty files.
    #[arg(long, default_value_t = 0)]
    pub bytes: u64,
}

/// Creates the tree.
///
/// # Errors
/// The first call that failed, with the directory.
pub fn run(options: &Options) -> Result<()> {
    let mut rng = Rng::new(options.seed);
    let mean = options.bytes / (options.dirs * options.files).max(1);
    for d in 0..options.dirs {
        // 32 subdirectories per directory, so that the tree has some depth.
        let dir = options.dir.join(format!("{:03}", d / 32)).join(format!("dir{d:06}"));
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let fd = rustix::fs::openat(CWD, &dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        for f in 0..options.files {
            let name = format!("file{f:05}");
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            let file = rustix::fs::openat(&fd, name.as_str(), flags, Mode::from(0o644))
                .with_context(|| dir.display().to_string())?;
            if mean > 0 {
                let len = size(&mut rng, mean);
                File::from(file).write_all(&rng.bytes(len as usize))?;
            }
        }
        if d % 16 == 0 {
            rustix::fs::symlinkat("file00000", &fd, "link")?;
            rustix::fs::chownat(
                &fd,
                "file00000",
                Some(rustix::fs::Uid::from_raw(1000)),
                None,
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
    }
    Ok(())
}

/// Returns a random size, distributed as in real trees: most far below the mean, a few far above.
fn size(rng: &mut Rng, mean: u64) -> u64 {
    match rng.below(100) {
        0..70 => rng.below(mean / 2),
        70..95 => rng.below(mean * 2),
        95..99 => rng.below(mean * 10),
        _ => rng.below(mean * 76),
    }
}
