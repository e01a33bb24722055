//! The microbenchmarks of FxMark (Min, Kashyap, Maass, Kim, "Understanding Manycore Scalability of File Systems",
//! USENIX ATC 2016), by the names that they have there.
//!
//! A name says what is used (D data, M metadata), how (R read, W write), by which call, and how it is shared: L by none
//! (each thread has its own file, or directory), M in part (a common file or directory), H by all (the same block).

use anyhow::Context;

use crate::bench_volume::{BenchDir, BenchFile, BenchVolume, names};
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task, repeat};

const BLOCK: usize = 4096;
/// Blocks of a file that is read or overwritten.
const BLOCKS: u64 = 256;
/// Files of a directory that is listed, or in which files are opened.
const FILES: u32 = 100;
/// Files that each thread has in store, to remove or rename.
const STORE: u64 = 64;

/// What a thread uses.
struct State<'v> {
    volume: &'v BenchVolume,
    thread: u32,
    root: BenchDir,
    own: BenchDir,
    shared: BenchDir,
    own_path: String,
    shared_path: String,
    /// The file of this thread, and that of all.
    file: BenchFile<'v>,
    common: BenchFile<'v>,
    names: Vec<String>,
    buf: Vec<u8>,
}

/// One call of a thread, with the number of the call.
type Call = fn(&mut State<'_>, u64) -> anyhow::Result<()>;

/// Name, description, call.
const CALLS: [(&str, &str, Call); 19] = [
    ("DRBL", "read a block of its own file", |s, n| s.file.read(&mut s.buf, n % BLOCKS * BLOCK as u64)),
    ("DRBM", "read its own block of a common file", |s, _| {
        let at = own_block(s);
        s.common.read(&mut s.buf, at)
    }),
    ("DRBH", "read the same block of a common file", |s, _| s.common.read(&mut s.buf, 0)),
    ("DWOL", "overwrite a block of its own file", |s, n| s.file.write(&s.buf, n % BLOCKS * BLOCK as u64)),
    ("DWOM", "overwrite its own block of a common file", |s, _| s.common.write(&s.buf, own_block(s))),
    ("DWAL", "append a block to its own file", append),
    ("DWTL", "shorten its own file by a block", shorten),
    ("DWSL", "overwrite a block of its own file and fsync", |s, n| {
        s.file.write(&s.buf, n % BLOCKS * BLOCK as u64)?;
        s.file.sync()
    }),
    ("MRPL", "open and close a file in its own directory, five names deep", |s, n| open(s, n, false)),
    ("MRPM", "open and close any file of a common directory", |s, n| open(s, n.wrapping_mul(7919), true)),
    ("MRPH", "open and close the same file", |s, _| open(s, 0, true)),
    ("MRDL", "list its own directory", |s, _| s.volume.names(&s.own).map(drop)),
    ("MRDM", "list a common directory", |s, _| s.volume.names(&s.shared).map(drop)),
    ("MWCL", "create a file in its own directory", |s, n| s.volume.create(&s.own, &format!("new{n}"))),
    ("MWCM", "create a file in a common directory", |s, n| {
        s.volume.create(&s.shared, &format!("new{}-{n}", s.thread))
    }),
    ("MWUL", "unlink a file of its own directory", |s, n| unlink(s, n, false)),
    ("MWUM", "unlink a file of a common directory", |s, n| unlink(s, n, true)),
    ("MWRL", "rename a file in its own directory", |s, n| {
        let name = |n: u64| if n.is_multiple_of(2) { "here" } else { "there" };
        s.volume.rename((&s.own, name(n)), (&s.own, name(n + 1)))
    }),
    ("MWRM", "rename a file from its own directory to a common one, and back", |s, n| {
        let shared = format!("moved{}", s.thread);
        match n % 2 {
            0 => s.volume.rename((&s.own, "moving"), (&s.shared, &shared)),
            _ => s.volume.rename((&s.shared, &shared), (&s.own, "moving")),
        }
    }),
];

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    for (name, description, call) in CALLS {
        let run = |volume: &BenchVolume, threads| measure(scale, volume, threads, call);
        Task::rate(scale, format!("{name}: {description}"), "calls/s", &run).measure(
            scale,
            &scale.subjects,
            recorder,
        )?;
    }
    Ok(())
}

fn measure(scale: &Scale, volume: &BenchVolume, threads: u32, call: Call) -> anyhow::Result<Run> {
    let names = names(FILES);
    let shared_path = "shared";
    let shared = volume.mkdir(shared_path)?;
    names.iter().try_for_each(|name| volume.create(&shared, name))?;
    let common = volume.file(&shared, "common", true)?;
    for block in 0..BLOCKS.max(threads.into()) {
        common.write(&[7; BLOCK], block * BLOCK as u64)?;
    }
    let prepare = |thread| state(volume, thread, shared_path);
    Ok(repeat(threads, scale.time(), &prepare, &call)?.into())
}

fn state<'v>(volume: &'v BenchVolume, thread: u32, shared_path: &str) -> anyhow::Result<State<'v>> {
    let own_path = format!("{shared_path}-own{thread}/two/three/four");
    let own = volume.mkdir_all(&own_path)?;
    let names = names(FILES);
    names.iter().try_for_each(|name| volume.create(&own, name))?;
    ["here", "moving"].iter().try_for_each(|name| volume.create(&own, name))?;
    let file = volume.file(&own, "own", true)?;
    (0..BLOCKS).try_for_each(|block| file.write(&[7; BLOCK], block * BLOCK as u64))?;
    let shared = volume.dir(shared_path)?;
    let common = volume.file(&shared, "common", false)?;
    let (root, buf, shared_path) = (volume.root()?, vec![7; BLOCK], shared_path.into());
    Ok(State { volume, thread, root, own, shared, own_path, shared_path, file, common, names, buf })
}

/// The file is shortened after 4,096 blocks, so that the volume does not fill.
fn append(state: &mut State<'_>, call: u64) -> anyhow::Result<()> {
    let at = call % 4096;
    if at == 0 {
        state.file.truncate(0)?;
    }
    state.file.write(&state.buf, at * BLOCK as u64)
}

fn own_block(state: &State<'_>) -> u64 {
    u64::from(state.thread) * BLOCK as u64
}

/// The file gets all its blocks back when it has none left; FxMark has a file that lasts for the measurement.
fn shorten(state: &mut State<'_>, call: u64) -> anyhow::Result<()> {
    let left = BLOCKS - 1 - call % BLOCKS;
    if left == BLOCKS - 1 {
        (0..BLOCKS).try_for_each(|block| state.file.write(&state.buf, block * BLOCK as u64))?;
    }
    state.file.truncate(left * BLOCK as u64)
}

fn open(state: &mut State<'_>, number: u64, is_shared: bool) -> anyhow::Result<()> {
    let name = state.names.get(number as usize % state.names.len()).context("a name")?;
    let dir = if is_shared { &state.shared_path } else { &state.own_path };
    state.volume.open_close(&state.root, &format!("{dir}/{name}"))
}

/// The thread creates some files first, and again when it has removed all. Creating them counts: FxMark removes files
/// that it created before the measurement.
fn unlink(state: &mut State<'_>, call: u64, is_shared: bool) -> anyhow::Result<()> {
    let dir = if is_shared { &state.shared } else { &state.own };
    let name = |n: u64| format!("store{}-{n}", state.thread);
    if call.is_multiple_of(STORE) {
        (0..STORE).try_for_each(|n| state.volume.create(dir, &name(n)))?;
    }
    state.volume.unlink(dir, &name(call % STORE))
}
