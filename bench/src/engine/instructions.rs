//! Instructions of small changes, counted by valgrind, so that other work on the machine does not matter; and whether
//! the number depends on the size of the volume.
//!
//! A volume is filled. Then a fresh process opens it and makes some changes, and another one makes more. The difference
//! of the two counts is the cost of the additional changes, with all background work for them.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use base::errno;
use report::record::Target;
use xebec::{Dir, NewFile, OpenOptions, Options, SetAttribute};

use super::Scale;
use crate::bench_volume::{self, BenchVolume, layout};
use crate::peers;
use crate::recorder::{Recorder, Row};

/// Files per directory.
const PER_DIRECTORY: u32 = 1000;
const WARM: u32 = 2 * PER_DIRECTORY;
const MEASURED: u32 = 5 * PER_DIRECTORY;
const INODES_PER_CHUNK: u32 = 64;
/// Numbers of files on the volume.
const AMONG: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// Environment variable that passes the workload to the counted process.
const WORKLOAD_VARIABLE: &str = "XEBEC_BENCH_WORKLOAD";

/// Workloads by name.
const WORKLOADS: [(&str, Workload); 10] = [
    ("create", create),
    ("many", create_many),
    ("scattered", create_one_by_one),
    ("attribute", set_attributes),
    ("small", write_small),
    ("unlink", create_and_unlink),
    ("fsync", write_and_sync),
    ("stat", stat),
    ("absent", stat_absent),
    ("open", open_and_close),
];

/// Makes a number of changes, in directories whose names have a prefix.
type Workload = fn(&xebec::Volume, &str, u32) -> anyhow::Result<()>;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    if !table.has_peer("instructions", false, peers::installed(&["valgrind"])) {
        return Ok(());
    }
    let mut first = None;
    for among in AMONG.into_iter().filter(|among| *among <= scale.inodes) {
        let image = scale.folder.join("instructions.img");
        fill(&image, among)?;
        let each = count_each(scale, &image, "create")?;
        if first.is_none() {
            for (task, work) in [
                ("setting an attribute of 32 bytes, each twice", "attribute"),
                ("creating and writing a file of 4 KiB", "small"),
                ("creating a file, a hundred by one call", "many"),
                ("creating and removing a file", "unlink"),
                ("writing 4 KiB and fsync", "fsync"),
                ("stat of a path of four names", "stat"),
                ("stat of a path of four names, the last of which does not exist", "absent"),
                ("opening a path of four names", "open"),
            ] {
                table.add(alone(task, count_each(scale, &image, work)?));
            }
        }
        let few = *first.get_or_insert(each);
        table.add(Row {
            task: format!("instructions of a create among {among} files"),
            unit: "instructions",
            ours_is: "among this number",
            other_is: "among the smallest number",
            ours: vec![each],
            other: vec![few],
            target: Some(Target::RatioAtMost(1.1)),
        });
        std::fs::remove_file(image)?;
    }
    let image = scale.folder.join("instructions.img");
    scatter(&image)?;
    table.add(alone("creating a file, each in another chunk", count_each(scale, &image, "scattered")?));
    std::fs::remove_file(image)?;
    Ok(())
}

/// The row of one workload.
fn alone(task: &str, each: f64) -> Row {
    Row {
        task: format!("instructions of {task}"),
        unit: "instructions",
        ours_is: "each",
        other_is: "-",
        ours: vec![each],
        other: Vec::new(),
        target: None,
    }
}

/// Counts the instructions of one change.
fn count_each(scale: &Scale, image: &Path, work: &str) -> anyhow::Result<f64> {
    let counted = |changes| count(scale, image, &format!("{work}:{changes}"));
    Ok((counted(WARM + MEASURED)? - counted(WARM)?) / f64::from(MEASURED))
}

fn fill(image: &Path, files: u32) -> anyhow::Result<()> {
    let bytes = (u64::from(files) * 700).max(4 << 30);
    let layout = mkfs::Options { max_inode_percent: Some(100), ..layout(bytes, 64 << 20) };
    let BenchVolume::Xebec(volume) = BenchVolume::xebec(image, &layout, Options::default())? else {
        bail!("not a volume of Xebec")
    };
    create(&volume, "old", files)?;
    Ok(volume.unmount()?)
}

/// Fills one AG and frees one inode of each chunk, more than are created afterwards.
fn scatter(image: &Path) -> anyhow::Result<()> {
    let layout =
        mkfs::Options { ag_count: Some(1), max_inode_percent: Some(100), ..layout(4 << 30, 64 << 20) };
    let BenchVolume::Xebec(volume) = BenchVolume::xebec(image, &layout, Options::default())? else {
        bail!("not a volume of Xebec")
    };
    volume.create(volume.root(), b"new", &NewFile::directory())?;
    let dir = volume.create(volume.root(), b"old", &NewFile::directory())?;
    let chunks = WARM + MEASURED + PER_DIRECTORY;
    let names: Vec<_> = (0..chunks * INODES_PER_CHUNK).map(|file| format!("file{file:06}")).collect();
    names.iter().try_for_each(|name| volume.create(dir, name.as_bytes(), &NewFile::regular()).map(drop))?;
    let each_chunk = names.iter().step_by(INODES_PER_CHUNK as usize);
    each_chunk.into_iter().try_for_each(|name| volume.unlink(dir, name.as_bytes()))?;
    Ok(volume.unmount()?)
}

/// Creates files in the directory that [`scatter`] made for them.
fn create_one_by_one(volume: &xebec::Volume, prefix: &str, files: u32) -> anyhow::Result<()> {
    let dir = volume.lookup(volume.root(), prefix.as_bytes())?;
    (0..files).try_for_each(|file| {
        volume.create(dir, format!("file{file:06}").as_bytes(), &NewFile::regular()).map(drop)
    })?;
    Ok(())
}

fn create(volume: &xebec::Volume, prefix: &str, files: u32) -> anyhow::Result<()> {
    for group in 0..files.div_ceil(PER_DIRECTORY) {
        let name = format!("{prefix}{group}");
        let dir = volume.create(volume.root(), name.as_bytes(), &NewFile::directory())?;
        for file in 0..PER_DIRECTORY {
            volume.create(dir, format!("file{file:06}").as_bytes(), &NewFile::regular())?;
        }
    }
    Ok(())
}

/// Creates the files that [`create`] creates, by calls of `create_many` with a hundred files each.
fn create_many(volume: &xebec::Volume, prefix: &str, files: u32) -> anyhow::Result<()> {
    for group in 0..files.div_ceil(PER_DIRECTORY) {
        let name = format!("{prefix}{group}");
        let dir = volume.create(volume.root(), name.as_bytes(), &NewFile::directory())?;
        let dir = Dir::open_id(volume, dir)?;
        for batch in 0..PER_DIRECTORY / 100 {
            let name = |file| format!("file{:06}", batch * 100 + file);
            let files: Vec<_> = (0..100).map(|file| (name(file), NewFile::regular())).collect();
            for created in dir.create_many(&files) {
                created?;
            }
        }
    }
    Ok(())
}

/// Sets one attribute of each of a thousand files twice, then of the next thousand.
fn set_attributes(volume: &xebec::Volume, prefix: &str, calls: u32) -> anyhow::Result<()> {
    let dir = volume.create(volume.root(), prefix.as_bytes(), &NewFile::directory())?;
    let make = |file| volume.create(dir, format!("file{file:06}").as_bytes(), &NewFile::regular());
    // The same number of files for both counts, so that they differ only in calls.
    let files = (0..(WARM + MEASURED) / 2).map(make).collect::<Result<Vec<_>, _>>()?;
    let all = files.chunks(PER_DIRECTORY as usize).flat_map(|files| {
        [[1; 32], [2; 32]].into_iter().flat_map(move |value| files.iter().map(move |file| (*file, value)))
    });
    for (file, value) in all.take(calls as usize) {
        volume.set_attribute(file, b"user.attribute", &value, SetAttribute::Any)?;
    }
    Ok(())
}

/// Creates files of one block, whose contents are written back in the background.
fn write_small(volume: &xebec::Volume, prefix: &str, files: u32) -> anyhow::Result<()> {
    for group in 0..files.div_ceil(PER_DIRECTORY) {
        let name = format!("{prefix}{group}");
        let dir = volume.create(volume.root(), name.as_bytes(), &NewFile::directory())?;
        for file in 0..PER_DIRECTORY {
            let file = volume.create(dir, format!("file{file:06}").as_bytes(), &NewFile::regular())?;
            volume.open_file(file)?.write_at(&[7; 4096], 0)?;
        }
    }
    Ok(())
}

/// Creates and removes files, a thousand at a time.
fn create_and_unlink(volume: &xebec::Volume, prefix: &str, files: u32) -> anyhow::Result<()> {
    let dir = volume.create(volume.root(), prefix.as_bytes(), &NewFile::directory())?;
    for _ in 0..files.div_ceil(PER_DIRECTORY) {
        let names: Vec<_> = (0..PER_DIRECTORY).map(|file| format!("file{file:06}")).collect();
        names
            .iter()
            .try_for_each(|name| volume.create(dir, name.as_bytes(), &NewFile::regular()).map(drop))?;
        names.iter().try_for_each(|name| volume.unlink(dir, name.as_bytes()))?;
    }
    Ok(())
}

/// Appends a block to ten files in turn, each with `fsync`.
fn write_and_sync(volume: &xebec::Volume, prefix: &str, calls: u32) -> anyhow::Result<()> {
    let dir = volume.create(volume.root(), prefix.as_bytes(), &NewFile::directory())?;
    let make = |file| volume.create(dir, format!("file{file}").as_bytes(), &NewFile::regular());
    let files = (0..10).map(make).collect::<Result<Vec<_>, _>>()?;
    let files = files.into_iter().map(|file| volume.open_file(file)).collect::<Result<Vec<_>, _>>()?;
    for (call, file) in (0..calls).zip(files.iter().cycle()) {
        file.write_at(&[7; 4096], u64::from(call / 10) * 4096)?;
        file.sync_all()?;
    }
    Ok(())
}

fn stat(volume: &xebec::Volume, prefix: &str, calls: u32) -> anyhow::Result<()> {
    call_on_paths(volume, prefix, calls, |path| Ok(volume.metadata_at(path, true).map(drop)?))
}

fn stat_absent(volume: &xebec::Volume, prefix: &str, calls: u32) -> anyhow::Result<()> {
    call_on_paths(volume, prefix, calls, |path| {
        let absent = path.get(..path.len() - 1).unwrap_or_default();
        match volume.metadata_at(absent, true) {
            Err(error) if error.errno() == errno::ENOENT => Ok(()),
            other => bail!("{other:?} for a file that does not exist"),
        }
    })
}

fn open_and_close(volume: &xebec::Volume, prefix: &str, calls: u32) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    call_on_paths(volume, prefix, calls, |path| Ok(options.read(true).open(volume, path).map(drop)?))
}

/// Calls a function on the paths of a thousand files, four names deep.
fn call_on_paths(
    volume: &xebec::Volume,
    prefix: &str,
    calls: u32,
    mut call: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let folder = format!("{prefix}/src/module");
    let dir = volume.create_dir_all(folder.as_bytes(), &NewFile::directory())?;
    let names: Vec<_> = (0..PER_DIRECTORY).map(|file| format!("file{file:06}")).collect();
    names.iter().try_for_each(|name| volume.create(dir, name.as_bytes(), &NewFile::regular()).map(drop))?;
    let paths: Vec<_> = names.iter().map(|name| format!("{folder}/{name}")).collect();
    paths.iter().cycle().take(calls as usize).try_for_each(|path| call(path.as_bytes()))
}

/// Counts the instructions of a process that opens a copy of the image and runs a workload (`NAME:CHANGES`) on it.
fn count(scale: &Scale, image: &Path, work: &str) -> anyhow::Result<f64> {
    let (copy, out) = (scale.folder.join("counted.img"), scale.folder.join("callgrind.out"));
    bench_volume::copy(image, &copy)?;
    let mut program = crate::child::command("valgrind");
    program.args(["--tool=callgrind", "--quiet"]);
    program.arg(format!("--callgrind-out-file={}", out.display()));
    program.arg(std::env::current_exe()?);
    program.env(WORKLOAD_VARIABLE, format!("{work}:{}", copy.display()));
    program.stdout(Stdio::null());
    let status = program.status().context("valgrind")?;
    if !status.success() {
        bail!("the counted process failed: {status}");
    }
    let text = std::fs::read_to_string(&out)?;
    let totals =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    let total = totals.and_then(|line| line.split_whitespace().next()?.parse().ok());
    std::fs::remove_file(copy)?;
    std::fs::remove_file(out)?;
    total.context("valgrind's count")
}

/// In the counted process: runs the workload. Returns `false` in any other process.
pub fn serve() -> anyhow::Result<bool> {
    let Some(value) = std::env::var_os(WORKLOAD_VARIABLE) else { return Ok(false) };
    let value = value.to_string_lossy();
    let mut parts = value.splitn(3, ':');
    let mut next = || parts.next().context("workload, number of changes, image");
    let (name, changes, image) = (next()?, next()?.parse()?, next()?);
    let (_, work) = WORKLOADS.into_iter().find(|(work, _)| *work == name).context("no such workload")?;
    let volume = bench_volume::open(Path::new(image), Options::default())?;
    work(&volume, "new", changes)?;
    volume.unmount()?;
    Ok(true)
}
