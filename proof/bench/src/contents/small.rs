//! Many small files, by several threads in several directories (Chinner, "writeback: plug writeback at a high level").

use std::time::Instant;

use anyhow::Context;
use xebec::Options;

use super::{Scale, beside, ours};
use crate::measure::turns;
use crate::side::{Side, names};
use crate::table::{Row, Table, Target};

const DIRECTORIES: u32 = 8;
const THREADS: u32 = 4;
const FILE: [u8; 4096] = [7; 4096];

/// Measures it.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let files = scale.files;
    let name = format!("{DIRECTORIES} directories of {files} files of 4 KiB, {THREADS} threads");
    let work = |side| rate(scale, side, false);
    table.add(beside(scale, (&name, "files/s"), Some(4.0), &options(true), &work)?);
    let work = |side| rate(scale, side, true);
    table.add(beside(scale, (&format!("{name}, and a sync"), "files/s"), None, &options(true), &work)?);
    let image = scale.image();
    let writes = |plug| device_writes(scale, ours(&image, options(plug))?);
    let (with, without) = turns(scale.rounds, || writes(true), || writes(false))?;
    table.add(Row {
        task: "the same: writes of contents to the device".into(),
        unit: "writes",
        ours_is: "one plug over the pass",
        other_is: "a plug for each file",
        ours: with,
        other: without,
        target: Some(Target::RatioAtMost(1.0 / 15.0)),
    });
    Ok(())
}

/// As much memory as the kernel gives what waits to be written: a fifth of this machine's is more than all the files.
fn options(plug_over_pass: bool) -> Options {
    let mut options = Options::default();
    options.contents.cache_bytes = Some(4 << 30);
    options.contents.plug_over_pass = plug_over_pass;
    options
}

fn rate(scale: &Scale, side: Side, sync: bool) -> anyhow::Result<f64> {
    let begin = Instant::now();
    write_all(scale, &side)?;
    if sync {
        side.sync()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    side.unmount()?;
    Ok(f64::from(DIRECTORIES * scale.files) / seconds)
}

fn device_writes(scale: &Scale, side: Side) -> anyhow::Result<f64> {
    write_all(scale, &side)?;
    side.sync()?;
    let writes = side.volume().context("our side")?.statistics().contents.plug.writes;
    side.unmount()?;
    Ok(writes as f64)
}

fn write_all(scale: &Scale, side: &Side) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || write_some(scale, side, thread))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

fn write_some(scale: &Scale, side: &Side, thread: u32) -> anyhow::Result<()> {
    let names = names(scale.files);
    for directory in (thread..DIRECTORIES).step_by(THREADS as usize) {
        let dir = side.mkdir(&format!("{directory}"))?;
        names.iter().try_for_each(|name| side.file(&dir, name, true)?.write(&FILE, 0))?;
    }
    Ok(())
}
