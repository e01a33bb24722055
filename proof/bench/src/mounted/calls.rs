//! System calls of one process, one after the other, and how many of them there are in a second.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::fs::{Advice, CWD, Mode, OFlags};

use super::{Scale, Seen};

/// Files of a directory.
const A_DIRECTORY: u32 = 1_000;

const CONTENTS: [u8; 4096] = [7; 4096];

/// Bytes of a call on the large file.
const PIECE: usize = 1 << 20;

/// The tasks, as the report has them.
pub const CREATE: &str = "create an empty file and close it";
pub const STAT: &str = "stat";
pub const OPEN: &str = "open and close";
pub const WRITE: &str = "open, write 4 KiB, close";
pub const READ: &str = "open, read 4 KiB that the kernel does not have, close";
pub const AGAIN: &str = "open, read 4 KiB that the kernel has, close";
pub const UNLINK: &str = "unlink";
pub const STREAM_OUT: &str = "write a large file, 1 MiB at a time, and fsync";
pub const STREAM_IN: &str = "read it, after the page cache was dropped";

/// Files, many to a directory.
pub fn files(scale: &Scale, root: &Path, seen: &mut Seen) -> anyhow::Result<()> {
    let directories = scale.files.div_ceil(A_DIRECTORY);
    for number in 0..directories {
        std::fs::create_dir(root.join(format!("d{number}")))?;
    }
    let paths: Vec<PathBuf> =
        (0..scale.files).map(|file| root.join(format!("d{}/file{file}", file / A_DIRECTORY))).collect();
    let open = |path: &Path, flags| {
        rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
    };
    let mut buf = [0; CONTENTS.len()];
    let mut read = |path: &Path| {
        let read = rustix::io::read(open(path, OFlags::RDONLY)?, &mut buf)?;
        ensure!(read == CONTENTS.len(), "{} is too short", path.display());
        Ok(())
    };
    let mut measured = |task, call: &mut dyn FnMut(&Path) -> anyhow::Result<()>| {
        let begin = Instant::now();
        for path in &paths {
            call(path).with_context(|| format!("{task}: {}", path.display()))?;
        }
        seen.add(task, paths.len() as f64 / begin.elapsed().as_secs_f64());
        anyhow::Ok(())
    };
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    measured(CREATE, &mut |path| {
        open(path, new)?;
        Ok(())
    })?;
    measured(STAT, &mut |path| {
        rustix::fs::stat(path)?;
        Ok(())
    })?;
    measured(OPEN, &mut |path| {
        open(path, OFlags::RDONLY)?;
        Ok(())
    })?;
    measured(WRITE, &mut |path| {
        let written = rustix::io::write(open(path, OFlags::WRONLY)?, &CONTENTS)?;
        ensure!(written == CONTENTS.len(), "it is full");
        Ok(())
    })?;
    for path in &paths {
        let file = open(path, OFlags::RDONLY)?;
        // What is dirty, only the kernel's XFS has: the others have written it.
        rustix::fs::fdatasync(&file)?;
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?;
    }
    measured(READ, &mut read)?;
    measured(AGAIN, &mut read)?;
    measured(UNLINK, &mut |path| Ok(rustix::fs::unlink(path)?))
}

/// A large file, from its begin to its end.
pub fn stream(scale: &Scale, root: &Path, seen: &mut Seen) -> anyhow::Result<()> {
    let path = root.join("large");
    let megabytes = scale.stream_bytes as f64 / 1e6;
    let mut piece = vec![7; PIECE];
    let pieces = scale.stream_bytes / PIECE as u64;
    let mut file = File::create(&path)?;
    let begin = Instant::now();
    for _ in 0..pieces {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    seen.add(STREAM_OUT, megabytes / begin.elapsed().as_secs_f64());
    drop(file);
    // Contents, not names: who does nothing has none to find again.
    std::fs::write("/proc/sys/vm/drop_caches", "1").context("/proc/sys/vm/drop_caches")?;
    let mut file = File::open(&path)?;
    let begin = Instant::now();
    for _ in 0..pieces {
        file.read_exact(&mut piece)?;
    }
    seen.add(STREAM_IN, megabytes / begin.elapsed().as_secs_f64());
    drop(file);
    Ok(std::fs::remove_file(path)?)
}
