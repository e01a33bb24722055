//! Rates of system calls, of one client and of one client per CPU.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::fs::{Advice, CWD, Mode, OFlags};

use super::{Results, Scale};

/// Files per directory.
const PER_DIRECTORY: u32 = 1_000;

const CONTENTS: [u8; 4096] = [7; 4096];

/// Bytes per call on the large file.
const PIECE: usize = 1 << 20;

/// Names of a task in the report: by one client, and by several.
pub type TaskNames = [&'static str; 2];
pub const CREATE: TaskNames =
    ["create an empty file and close it", "create an empty file and close it, a client for each processor"];
pub const STAT: TaskNames = ["stat", "stat, a client for each processor"];
pub const OPEN: TaskNames = ["open and close", "open and close, a client for each processor"];
pub const WRITE: TaskNames =
    ["open, write 4 KiB, close", "open, write 4 KiB, close, a client for each processor"];
pub const READ: TaskNames = [
    "open, read 4 KiB that the kernel does not have, close",
    "open, read 4 KiB that the kernel does not have, close, a client for each processor",
];
pub const AGAIN: TaskNames = [
    "open, read 4 KiB that the kernel has, close",
    "open, read 4 KiB that the kernel has, close, a client for each processor",
];
pub const UNLINK: TaskNames = ["unlink", "unlink, a client for each processor"];
pub const STREAM_OUT: &str = "write a large file, 1 MiB at a time, and fsync";
pub const STREAM_IN: &str = "read it, after it was mounted again and the page cache dropped";

/// Makes the calls by one client.
pub fn files(scale: &Scale, root: &Path, results: &mut Results) -> anyhow::Result<()> {
    by_clients(scale, &[root.to_path_buf()], &mut |[task, _], rate| results.add(task, rate))
}

/// Makes the calls by one client per CPU, each in directories of its own.
pub fn together(scale: &Scale, root: &Path, results: &mut Results) -> anyhow::Result<()> {
    let clients = std::thread::available_parallelism()?.get();
    let roots: Vec<_> = (0..clients).map(|client| root.join(format!("client{client}"))).collect();
    by_clients(scale, &roots, &mut |[_, task], rate| results.add(task, rate))
}

/// Runs each task by all clients at once, each with files below its root, and passes the rate in files per second to
/// `report`.
fn by_clients(
    scale: &Scale,
    roots: &[PathBuf],
    report: &mut dyn FnMut(TaskNames, f64),
) -> anyhow::Result<()> {
    let paths = |root: &PathBuf| {
        let directory = |file: u32| root.join(format!("d{}", file / PER_DIRECTORY));
        let firsts = (0..scale.files).step_by(PER_DIRECTORY as usize);
        firsts.map(directory).try_for_each(std::fs::create_dir_all)?;
        anyhow::Ok((0..scale.files).map(|file| directory(file).join(format!("file{file}"))).collect())
    };
    let clients: Vec<Vec<PathBuf>> = roots.iter().map(paths).collect::<anyhow::Result<_>>()?;
    let each = |name: &str, call: Call<'_>| {
        std::thread::scope(|scope| {
            let work = |paths| move || for_each(name, paths, call);
            let working: Vec<_> = clients.iter().map(|paths| scope.spawn(work(paths))).collect();
            (working.into_iter())
                .try_for_each(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
        })
    };
    let mut measured = |task: TaskNames, call: Call<'_>| {
        let begin = Instant::now();
        each(task[0], call)?;
        let files = clients.iter().map(Vec::len).sum::<usize>();
        report(task, files as f64 / begin.elapsed().as_secs_f64());
        anyhow::Ok(())
    };
    let read = |path: &Path| {
        let mut buf = [0; CONTENTS.len()];
        let read = rustix::io::read(open(path, OFlags::RDONLY)?, &mut buf)?;
        ensure!(read == CONTENTS.len(), "the file is too short");
        Ok(())
    };
    let opened = |path: &Path, flags| {
        open(path, flags)?;
        Ok(())
    };
    measured(CREATE, &|path| opened(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY))?;
    measured(STAT, &|path| Ok(rustix::fs::stat(path).map(|_| ())?))?;
    measured(OPEN, &|path| opened(path, OFlags::RDONLY))?;
    measured(WRITE, &|path| {
        let written = rustix::io::write(open(path, OFlags::WRONLY)?, &CONTENTS)?;
        ensure!(written == CONTENTS.len(), "the file system is full");
        Ok(())
    })?;
    each("fdatasync", &|path| {
        let file = open(path, OFlags::RDONLY)?;
        // Only the kernel's XFS has dirty pages: FUSE writes through.
        rustix::fs::fdatasync(&file)?;
        Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
    })?;
    measured(READ, &read)?;
    measured(AGAIN, &read)?;
    measured(UNLINK, &|path| Ok(rustix::fs::unlink(path)?))
}

/// A call on a file.
type Call<'c> = &'c (dyn Fn(&Path) -> anyhow::Result<()> + Sync);

fn for_each(name: &str, paths: &[PathBuf], call: Call<'_>) -> anyhow::Result<()> {
    paths.iter().try_for_each(|path| call(path).with_context(|| format!("{name}: {}", path.display())))
}

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

const LARGE: &str = "large";

/// Writes a large file sequentially.
pub fn stream_out(scale: &Scale, root: &Path, results: &mut Results) -> anyhow::Result<()> {
    let piece = vec![7; PIECE];
    let mut file = File::create(root.join(LARGE))?;
    let begin = Instant::now();
    for _ in 0..scale.stream_bytes / PIECE as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    results.add(STREAM_OUT, scale.stream_bytes as f64 / 1e6 / begin.elapsed().as_secs_f64());
    Ok(())
}

/// Reads it. Where it is stored, it was mounted again before; the image is not in the page cache, either.
pub fn stream_in(scale: &Scale, root: &Path, results: &mut Results) -> anyhow::Result<()> {
    let path = root.join(LARGE);
    let mut piece = vec![0; PIECE];
    // Drops the page cache, not dentries: the server that does nothing finds no names.
    std::fs::write("/proc/sys/vm/drop_caches", "1").context("/proc/sys/vm/drop_caches")?;
    let mut file = File::open(&path)?;
    let begin = Instant::now();
    for _ in 0..scale.stream_bytes / PIECE as u64 {
        file.read_exact(&mut piece)?;
    }
    results.add(STREAM_IN, scale.stream_bytes as f64 / 1e6 / begin.elapsed().as_secs_f64());
    drop(file);
    Ok(std::fs::remove_file(path)?)
}
