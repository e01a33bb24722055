//! Keeps a mounted volume busy until it is shut down, which leaves a dirty log.
//!
//! Each worker has its own directory and changes files at random. Two more kinds of workers create states that are rare
//! in a log after a crash: one frees and remaps hundreds of extents in one call, which is a long chain of intents, and
//! one syncs all the time, which writes parts of such chains to the log.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use model::Rng;

/// Options of `stress`.
#[derive(clap::Args)]
pub struct Options {
    /// Root of the mounted volume.
    pub dir: PathBuf,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of plain workers.
    #[arg(long, default_value_t = 3)]
    pub workers: u64,
    /// Number of workers that create long chains of intents.
    #[arg(long, default_value_t = 1)]
    pub chains: u64,
    /// Number of workers that only change and sync a file. Each sync ends a checkpoint; an intent with its done item
    /// in the same checkpoint is not logged.
    #[arg(long, default_value_t = 1)]
    pub syncers: u64,
    /// Number of open unlinked files of each plain worker.
    #[arg(long, default_value_t = 10)]
    pub orphans: usize,
    /// Time limit in seconds, if the volume is not shut down.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
}

/// Changes files until the volume is shut down, which is the expected end.
///
/// # Errors
/// A worker cannot start.
pub fn run(options: &Options) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    std::thread::scope(|scope| {
        for id in 0..options.workers {
            let dir = options.dir.join(format!("worker{id}"));
            std::fs::create_dir(&dir)?;
            let rng = Rng::new(options.seed.wrapping_mul(1000) + id);
            let (mut files, mut open) = (Vec::new(), Vec::new());
            scope.spawn(move || {
                let mut worker = Worker { dir, rng, next: 0, files: &mut files, open: &mut open };
                until_shut_down(end, || worker.step(options.orphans));
                // Open files are closed after the shutdown, so they remain on the unlinked lists.
            });
        }
        for id in 0..options.chains {
            let dir = options.dir.join(format!("chain{id}"));
            std::fs::create_dir(&dir)?;
            let mut rng = Rng::new(options.seed.wrapping_mul(1000) + 500 + id);
            scope.spawn(move || until_shut_down(end, || chain(&dir, &mut rng)));
        }
        for id in 0..options.syncers {
            let file = File::create_new(options.dir.join(format!("synced{id}")))?;
            let mut mode = 0;
            scope.spawn(move || {
                until_shut_down(end, || {
                    mode = (mode + 1) & 0o777;
                    rustix::fs::fchmod(&file, Mode::from(mode))?;
                    rustix::fs::fsync(&file)
                });
            });
        }
        Ok(())
    })
}

/// Repeats `step` until the volume returns an I/O error, or the time is up. Other errors are expected.
fn until_shut_down(end: Instant, mut step: impl FnMut() -> Result<(), Errno>) {
    while Instant::now() < end {
        if step() == Err(Errno::IO) {
            return;
        }
    }
}

struct Worker<'a> {
    dir: PathBuf,
    rng: Rng,
    next: u64,
    files: &'a mut Vec<PathBuf>,
    open: &'a mut Vec<File>,
}

impl Worker<'_> {
    fn step(&mut self, orphans: usize) -> Result<(), Errno> {
        match self.rng.below(24) {
            0..6 => self.create(),
            6..9 => self.write(),
            9 => self.truncate(),
            10 => self.space(),
            11..13 => self.unlink(),
            13 => self.directory(),
            14 => self.rename(),
            15 => self.link(),
            16 => self.symlink(),
            17..20 => self.xattr(),
            20 => self.clone_file(),
            21 => self.attributes(),
            22 => self.orphan(orphans),
            _ => self.open_some().map_or(Ok(()), |f| rustix::fs::fsync(&f)),
        }
    }

    fn new_path(&mut self) -> PathBuf {
        self.next += 1;
        let len = 4 + self.rng.below(60) as usize;
        let name = self.rng.name(&format!("{:x}-", self.next), len.max(8));
        self.dir.join(String::from_utf8_lossy(&name).as_ref())
    }

    fn some(&mut self) -> Option<PathBuf> {
        let i = self.rng.below(self.files.len() as u64) as usize;
        self.files.get(i).cloned()
    }

    fn open_some(&mut self) -> Option<File> {
        File::options().read(true).write(true).open(self.some()?).ok()
    }

    fn create(&mut self) -> Result<(), Errno> {
        let path = self.new_path();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(CWD, &path, flags, Mode::from(0o644))?);
        self.files.push(path);
        let len = self.rng.below(20_000) as usize;
        file.write_all_at(&self.rng.bytes(len), 0).map_err(errno)
    }

    fn write(&mut self) -> Result<(), Errno> {
        let Some(file) = self.open_some() else { return Ok(()) };
        let (at, len) = (self.rng.below(1 << 18), self.rng.below(30_000) as usize);
        file.write_all_at(&self.rng.bytes(len), at).map_err(errno)?;
        if self.rng.one_in(3) { rustix::fs::fdatasync(&file) } else { Ok(()) }
    }

    fn truncate(&mut self) -> Result<(), Errno> {
        let Some(file) = self.open_some() else { return Ok(()) };
        rustix::fs::ftruncate(&file, self.rng.below(1 << 18))
    }

    fn space(&mut self) -> Result<(), Errno> {
        let Some(file) = self.open_some() else { return Ok(()) };
        let keep = FallocateFlags::KEEP_SIZE;
        let modes =
            [FallocateFlags::empty(), keep, keep | FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
        let mode = modes[self.rng.below(4) as usize];
        rustix::fs::fallocate(&file, mode, self.rng.below(1 << 18), 1 + self.rng.below(1 << 16))
    }

    fn unlink(&mut self) -> Result<(), Errno> {
        if self.files.len() < 20 {
            return Ok(());
        }
        let i = self.rng.below(self.files.len() as u64) as usize;
        let path = self.files.swap_remove(i);
        rustix::fs::unlinkat(CWD, &path, AtFlags::empty())
    }

    fn directory(&mut self) -> Result<(), Errno> {
        let path = self.new_path();
        rustix::fs::mkdirat(CWD, &path, Mode::from(0o755))?;
        if self.rng.one_in(3) {
            return rustix::fs::unlinkat(CWD, &path, AtFlags::REMOVEDIR);
        }
        self.files.push(path.join("inside"));
        std::fs::write(path.join("inside"), b"inside").map_err(errno)
    }

    fn rename(&mut self) -> Result<(), Errno> {
        let i = self.rng.below(self.files.len() as u64) as usize;
        let Some(from) = self.files.get(i).cloned() else { return Ok(()) };
        if self.rng.one_in(3) {
            let Some(to) = self.some() else { return Ok(()) };
            return rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE);
        }
        let to = self.new_path();
        rustix::fs::renameat(CWD, &from, CWD, &to)?;
        self.files[i] = to;
        Ok(())
    }

    fn link(&mut self) -> Result<(), Errno> {
        let Some(from) = self.some() else { return Ok(()) };
        // Sometimes many links, so that the parent pointers outgrow the inode.
        let many = self.rng.one_in(6);
        for _ in 0..if many { 30 } else { 1 } {
            let mut to = self.new_path().into_os_string();
            to.push("-another-link-to-the-same-file".repeat(if many { 5 } else { 0 }));
            rustix::fs::linkat(CWD, &from, CWD, &to, AtFlags::empty())?;
            self.files.push(to.into());
        }
        Ok(())
    }

    fn symlink(&mut self) -> Result<(), Errno> {
        let path = self.new_path();
        let len = 1 + self.rng.below(900) as usize;
        let target = self.rng.name("to-", len);
        rustix::fs::symlinkat(target.as_slice(), CWD, &path)
    }

    fn xattr(&mut self) -> Result<(), Errno> {
        let Some(path) = self.some() else { return Ok(()) };
        let name = format!("user.{}", self.rng.below(12));
        if self.rng.one_in(4) {
            return match rustix::fs::lremovexattr(&path, &name) {
                Err(Errno::NODATA) => Ok(()),
                other => other,
            };
        }
        let len = if self.rng.one_in(5) { self.rng.below(40_000) } else { self.rng.below(200) };
        rustix::fs::lsetxattr(&path, &name, &self.rng.bytes(len as usize), XattrFlags::empty())
    }

    fn clone_file(&mut self) -> Result<(), Errno> {
        let Some(from) = self.open_some() else { return Ok(()) };
        let path = self.new_path();
        let to = File::create_new(&path).map_err(errno)?;
        self.files.push(path);
        rustix::fs::ioctl_ficlone(&to, &from)
    }

    fn attributes(&mut self) -> Result<(), Errno> {
        let Some(path) = self.some() else { return Ok(()) };
        rustix::fs::chmod(&path, Mode::from(self.rng.below(0o1000) as u32))?;
        let time = Timespec {
            tv_sec: self.rng.below(1 << 33) as i64,
            tv_nsec: self.rng.below(1_000_000_000) as i64,
        };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())
    }

    /// Creates a file without a name, and unlinks an open file.
    fn orphan(&mut self, keep: usize) -> Result<(), Errno> {
        if self.open.len() > keep {
            let i = self.rng.below(self.open.len() as u64) as usize;
            self.open.swap_remove(i);
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let nameless = File::from(rustix::fs::openat(CWD, &self.dir, flags, Mode::from(0o600))?);
        nameless.write_all_at(&self.rng.bytes(5000), 0).map_err(errno)?;
        self.open.push(nameless);
        if let Some(file) = self.open_some() {
            self.open.push(file);
            return self.unlink();
        }
        Ok(())
    }
}

/// Allocates a file block by block, clones it, overwrites blocks, and frees everything in one call.
fn chain(dir: &Path, rng: &mut Rng) -> Result<(), Errno> {
    let path = dir.join(format!("chain{:x}", rng.next_u64()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(errno)?;
    let block = rustix::fs::fstatvfs(&file)?.f_frsize;
    let blocks = 100 + rng.below(300);
    for i in 0..blocks {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), i * 2 * block, block)?;
    }
    file.write_all_at(&rng.bytes((block * 4) as usize), 0).map_err(errno)?;
    let other = dir.join("clone");
    let clone =
        File::options().read(true).write(true).create(true).truncate(true).open(&other).map_err(errno)?;
    if rustix::fs::ioctl_ficlone(&clone, &file) == Ok(()) {
        for i in 0..blocks / 4 {
            clone.write_all_at(b"mine", i * 4 * block).map_err(errno)?;
        }
        rustix::fs::fsync(&clone)?;
    }
    if rng.one_in(2) {
        // Moves every extent after the hole by one block: a chain of remappings.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, block, block);
    }
    rustix::fs::ftruncate(&file, block * rng.below(8))?;
    if rng.one_in(3) { Ok(()) } else { rustix::fs::unlinkat(CWD, &path, AtFlags::empty()) }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}
