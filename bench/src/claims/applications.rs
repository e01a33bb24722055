//! What applications do with a file system, as calls: three that FxMark has (Exim, RocksDB, dbench), and a web server.
//! The applications themselves do not run.

use anyhow::Context;

use crate::bench_volume::{BenchDir, BenchFile, BenchVolume, names};
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task, repeat_timed};

const KIB: usize = 1024;
/// Pages of the web server, and files of the file server.
const FILES: u32 = 100;

/// What a thread uses.
struct State<'v> {
    volume: &'v BenchVolume,
    thread: u32,
    own: BenchDir,
    shared: BenchDir,
    /// A mailbox, a log of a database, or a log of accesses.
    log: BenchFile<'v>,
    /// A table of a database.
    table: BenchFile<'v>,
    end: u64,
    names: Vec<String>,
    buf: Vec<u8>,
}

/// One piece of work.
type Work = fn(&mut State<'_>, u64) -> anyhow::Result<()>;

const PATTERNS: [(&str, &str, Work); 4] = [
    ("mail server (Exim): spool a message, deliver it to a mailbox, remove it", "messages/s", mail),
    (
        "database (RocksDB): append to the log, read blocks, sync each 64th, write tables",
        "transactions/s",
        database,
    ),
    ("file server (dbench): create, write, stat, list, read, rename and remove", "rounds/s", file_server),
    ("web server: open, read and close ten pages, append to a log", "requests/s", web),
];

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    for (name, unit, work) in PATTERNS {
        let run = |volume: &BenchVolume, threads| measure(scale, volume, threads, work);
        Task::rate(scale, name, unit, &run).measure(scale, &scale.subjects, recorder)?;
    }
    Ok(())
}

fn measure(scale: &Scale, volume: &BenchVolume, threads: u32, work: Work) -> anyhow::Result<Run> {
    let shared_path = "shared";
    let shared = volume.mkdir(shared_path)?;
    for name in names(FILES) {
        volume.file(&shared, &name, true)?.write(&[7; 16 * KIB], 0)?;
    }
    let prepare = |thread| {
        let own = volume.mkdir(&format!("{shared_path}-own{thread}"))?;
        let (log, table) = (volume.file(&own, "log", true)?, volume.file(&own, "table", true)?);
        (0..64).try_for_each(|n| table.write(&[7; 64 * KIB], n * 64 * KIB as u64))?;
        let shared = volume.dir(shared_path)?;
        let (names, buf) = (names(FILES), vec![7; 64 * KIB]);
        Ok(State { volume, thread, own, shared, log, table, end: 0, names, buf })
    };
    repeat_timed(threads, scale.time(), &prepare, &work)
}

impl State<'_> {
    fn append(&mut self, bytes: usize) -> anyhow::Result<()> {
        self.log.write(self.buf.get(..bytes).context("bytes")?, self.end)?;
        // A log that starts again, so that the volume does not fill.
        self.end = (self.end + bytes as u64) % (64 << 20);
        Ok(())
    }
}

fn mail(state: &mut State<'_>, number: u64) -> anyhow::Result<()> {
    let (header, data) = (format!("{}-{number}-H", state.thread), format!("{}-{number}-D", state.thread));
    let (header_new, size) = (format!("{header}.new"), 2 * KIB + number as usize % 8 * KIB);
    state.volume.file(&state.shared, &data, true)?.write(state.buf.get(..size).context("bytes")?, 0)?;
    state.volume.file(&state.shared, &header_new, true)?.write(&state.buf[..KIB], 0)?;
    state.volume.rename((&state.shared, &header_new), (&state.shared, &header))?;
    let mut message = vec![0; size];
    state.volume.file(&state.shared, &data, false)?.read(&mut message, 0)?;
    state.append(size)?;
    state.volume.unlink(&state.shared, &data)?;
    state.volume.unlink(&state.shared, &header)
}

fn database(state: &mut State<'_>, number: u64) -> anyhow::Result<()> {
    state.append(200)?;
    let mut block = [0; 4 * KIB];
    for read in 0..4 {
        let at = (number * 4 + read).wrapping_mul(2_654_435_761) % 1024;
        state.table.read(&mut block, at * 4 * KIB as u64)?;
    }
    if number % 64 == 63 {
        state.log.sync()?;
    }
    if number % 4096 == 4095 {
        let new = state.volume.file(&state.own, "table.new", true)?;
        (0..64).try_for_each(|n| new.write(&state.buf, n * 64 * KIB as u64))?;
        new.sync()?;
        drop(new);
        state.volume.rename((&state.own, "table.new"), (&state.own, "table.old"))?;
    }
    Ok(())
}

fn file_server(state: &mut State<'_>, number: u64) -> anyhow::Result<()> {
    let (name, new) = (format!("client{number}"), format!("client{number}.doc"));
    let file = state.volume.file(&state.own, &name, true)?;
    file.write(&state.buf, 0)?;
    let mut block = [0; 4 * KIB];
    (0..16).try_for_each(|n| file.read(&mut block, n * 4 * KIB as u64))?;
    drop(file);
    state.volume.names(&state.own)?;
    state.volume.rename((&state.own, &name), (&state.own, &new))?;
    state.volume.list(&state.own)?;
    state.volume.unlink(&state.own, &new)
}

fn web(state: &mut State<'_>, number: u64) -> anyhow::Result<()> {
    let mut page = [0; 16 * KIB];
    for read in 0..10 {
        let at = (number * 10 + read).wrapping_mul(7919) as usize % state.names.len();
        let name = state.names.get(at).context("a name")?;
        state.volume.file(&state.shared, name, false)?.read(&mut page, 0)?;
    }
    state.append(160)
}
