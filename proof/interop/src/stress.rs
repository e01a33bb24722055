//! Keeps a mounted volume busy until it is shut down under it: what is left is a dirty log.
//!
//! Each worker has a directory of its own and works on files at random. Two kinds of worker beside the plain one make
//! what a log rarely holds at the moment of a crash: one frees and remaps hundreds of extents in one call, which is a
//! long chain of intents, and one syncs all the time, which puts the middle of such chains into the log.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use model::Rng;

/// The volume, and how to work on it.
#[derive(clap::Args)]
pub struct Options {
    /// The root of the mounted volume.
    pub dir: PathBuf,
    /// The seed of each worker's choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many plain workers.
    #[arg(long, default_value_t = 3)]
    pub workers: u64,
    /// How many workers that make long chains of intents.
    #[arg(long, default_value_t = 1)]
    pub chains: u64,
    /// How many workers that do nothing but change a file and sync it. Each sync ends a checkpoint of the log; an
    /// intent that is done within one checkpoint never reaches the log.
    #[arg(long, default_value_t = 1)]
    pub syncers: u64,
    /// How many open unlinked files each plain worker keeps.
    #[arg(long, default_value_t = 10)]
    pub orphans: usize,
    /// The longest time to work, should nobody shut the volume down.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
}

/// Works until the volume is shut down, which is its success.
///
/// # Errors
/// When a worker cannot begin.
pub fn run(options: &Options) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    std::thread::scope(|scope| {
        for id in 0..options.workers {
            let dir = options.dir.join(format!("worker{id}"));
            std::fs::create_dir(&dir)?;
            let rng = Rng::new(options.seed.wrapping_mul(1000) + id);
            let (mut files, mut held) = (Vec::new(), Vec::new());
            scope.spawn(move || {
                let mut worker = Worker { dir, rng, next: 0, files: &mut files, held: &mut held };
                until_shut_down(end, || worker.step(options.orphans));
                // The files that were held open are closed only after the shutdown, so they stay unlinked on disk.
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

/// Repeats `step` until the volume answers with an I/O error, or time is up. Other errors are part of random work.
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
    held: &'a mut Vec<File>,
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

    fn fresh(&mut self) -> PathBuf {
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
        let path = self.fresh();
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
        let path = self.fresh();
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
        let to = self.fresh();
        rustix::fs::renameat(CWD, &from, CWD, &to)?;
        self.files[i] = to;
        Ok(())
    }

    fn link(&mut self) -> Result<(), Errno> {
        let Some(from) = self.some() else { return Ok(()) };
        // Now and then so many that the parent pointers outgrow the inode.
        let many = self.rng.one_in(6);
        for _ in 0..if many { 30 } else { 1 } {
            let mut to = self.fresh().into_os_string();
            to.push("-another-link-to-the-same-file".repeat(if many { 5 } else { 0 }));
            rustix::fs::linkat(CWD, &from, CWD, &to, AtFlags::empty())?;
            self.files.push(to.into());
        }
        Ok(())
    }

    fn symlink(&mut self) -> Result<(), Errno> {
        let path = self.fresh();
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
        let path = self.fresh();
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

    /// Unlinks a file that stays open, or makes one that never had a name.
    fn orphan(&mut self, keep: usize) -> Result<(), Errno> {
        if self.held.len() > keep {
            let i = self.rng.below(self.held.len() as u64) as usize;
            self.held.swap_remove(i);
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let nameless = File::from(rustix::fs::openat(CWD, &self.dir, flags, Mode::from(0o600))?);
        nameless.write_all_at(&self.rng.bytes(5000), 0).map_err(errno)?;
        self.held.push(nameless);
        if let Some(file) = self.open_some() {
            self.held.push(file);
            return self.unlink();
        }
        Ok(())
    }
}

/// Maps a file block by block, shares it, writes over every other block, and frees it all in one call.
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
        // Moves every extent behind the hole by one place: a chain of remappings.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, block, block);
    }
    rustix::fs::ftruncate(&file, block * rng.below(8))?;
    if rng.one_in(3) { Ok(()) } else { rustix::fs::unlinkat(CWD, &path, AtFlags::empty()) }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}
