//! `xebec status`: what a mount tells of itself, through the mount; for [`metrics`](super::metrics), too.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use block::Device;
use clap::Args;
use fuse::counts::{BOUNDS, Counts};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use xebec::Volume;

use crate::args::Global;
use crate::json::{self, Envelope};
use crate::output::{Stdout, exit_code};
use crate::sizes::spoken;

/// Arguments of `status`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec status mnt\n  \
    xebec status --json mnt | jq .operations\n\n\
    Exit codes: 0 done; 1 nothing of Xebec is mounted there; 2 wrong usage.")]
pub struct Arguments {
    /// The directory on which the volume is mounted.
    pub directory: PathBuf,
}

/// The JSON payload, in the order of docs/json.md.
#[derive(Debug, Deserialize, Serialize)]
pub struct Document {
    /// The process that serves the mount.
    process: u32,
    /// Threads of it that do.
    pub threads: usize,
    /// Why the volume was shut down; absent while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shut_down: Option<String>,
    /// Where it answers over HTTP.
    metrics: Option<String>,
    pub block_size: u32,
    pub bytes: u64,
    pub bytes_free: u64,
    /// What the volume lies on has.
    pub device_bytes: u64,
    pub ag_count: u32,
    pub inodes: u64,
    pub inodes_free: u64,
    pub operations: Vec<Operation>,
    pub cache: Cache,
    pub log: Log,
}

/// Requests of one kind.
#[derive(Debug, Deserialize, Serialize)]
pub struct Operation {
    pub name: String,
    pub count: u64,
    pub failed: u64,
    /// Of all of them, from request to reply.
    pub nanoseconds: u64,
    /// How many took at most as long as the class says, and longer than the one before; the last, longer than all.
    pub classes: Vec<u64>,
}

/// Contents in memory.
#[derive(Debug, Deserialize, Serialize)]
pub struct Cache {
    pub bytes: u64,
    pub dirty_bytes: u64,
    /// Folios that had to be read, and transfers that read them.
    pub misses: u64,
    pub reads: u64,
    /// Passes that wrote dirty contents back.
    pub passes: u64,
    /// Times that a writer was held back.
    pub held_back: u64,
    /// How long in all.
    pub held_back_us: u64,
}

/// The journal.
#[derive(Debug, Deserialize, Serialize)]
pub struct Log {
    pub commits: u64,
    pub checkpoints: u64,
    pub forces: u64,
    pub written_bytes: u64,
    /// Items that are in the log and not in their place.
    pub items: u64,
}

/// Where a mount's numbers are.
pub struct Sources<'v> {
    pub volume: &'v Volume,
    pub counts: &'v Counts,
    /// What the volume lies on; `None` where it is changed in memory.
    pub device: Option<&'v dyn Device>,
    pub metrics: Option<SocketAddr>,
}

/// What the mount tells through itself.
pub fn text(sources: &Sources<'_>) -> String {
    json::object(&Envelope::new("status", "", document(sources)))
}

/// What the mount tells.
pub fn document(sources: &Sources<'_>) -> Document {
    let Sources { volume, counts, device, metrics } = sources;
    let now = volume.statistics();
    let operations = counts.all().into_iter().map(|counted| Operation {
        name: counted.name,
        count: counted.operations,
        failed: counted.failed,
        nanoseconds: counted.nanoseconds,
        classes: counted.classes,
    });
    let block = u64::from(now.block_size);
    let bytes = now.blocks * block;
    Document {
        process: std::process::id(),
        threads: counts.threads().len(),
        shut_down: now.shut_down.as_deref().map(str::to_owned),
        metrics: metrics.map(|address| format!("http://{address}/metrics")),
        block_size: now.block_size,
        bytes,
        bytes_free: now.blocks_available * block,
        // Where it cannot be seen now, it is as large as it was.
        device_bytes: device.map_or(bytes, |device| device.look_again().unwrap_or_else(|_| device.size())),
        ag_count: volume.geometry().ag_count(),
        inodes: now.inodes.allocated,
        inodes_free: now.inodes.free,
        operations: operations.collect(),
        cache: Cache {
            bytes: now.contents.memory_bytes,
            dirty_bytes: now.contents.dirty_bytes,
            misses: now.contents.misses,
            reads: now.contents.reads,
            passes: now.contents.passes,
            held_back: now.contents.paused,
            held_back_us: now.contents.paused_us,
        },
        log: Log {
            commits: now.journal.commits,
            checkpoints: now.journal.pushes,
            forces: now.journal.forces,
            written_bytes: now.journal.bytes,
            items: now.journal.ail_items,
        },
    }
}

/// The process that serves a mount.
pub fn process(directory: &Path) -> anyhow::Result<Pid> {
    let (_, known) = ask(directory)?;
    i32::try_from(known.process).ok().and_then(Pid::from_raw).context("the mount names no process")
}

/// What a mount tells, as it is and understood.
pub fn ask(directory: &Path) -> anyhow::Result<(Vec<u8>, Document)> {
    let mut told = vec![0; 64 << 10];
    let name = std::str::from_utf8(fuse::served::STATUS).context("the attribute's name")?;
    let length = rustix::fs::getxattr(directory, name, &mut told)
        .map_err(|_| anyhow!("no volume of xebec is mounted here (mount shows what is mounted where)"))?;
    told.truncate(length);
    let known = serde_json::from_slice(&told).context("the mount tells what this version does not know")?;
    Ok((told, known))
}

/// Runs `status`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let (told, known) = ask(&arguments.directory)?;
    let mut out = Stdout::buffered();
    if global.json {
        out.write_all(&told)?;
        writeln!(out)?;
        out.flush()?;
        return Ok(exit_code::OK);
    }
    writeln!(out, "process    {} with {} threads", known.process, known.threads)?;
    if let Some(address) = &known.metrics {
        writeln!(out, "metrics    {address}")?;
    }
    if let Some(cause) = &known.shut_down {
        writeln!(out, "shut down  {cause}")?;
        writeln!(out, "           (unmount it; mounting it anew recovers what was synced)")?;
    }
    writeln!(out, "space      {} of {} free", spoken(known.bytes_free), spoken(known.bytes))?;
    writeln!(
        out,
        "cache      {}, {} of it dirty",
        spoken(known.cache.bytes),
        spoken(known.cache.dirty_bytes)
    )?;
    writeln!(out, "log        {} commits in {} checkpoints", known.log.commits, known.log.checkpoints)?;
    writeln!(out, "{:<16} {:>12} {:>10} {:>10} {:>10}", "operation", "count", "failed", "mean", "99 %")?;
    for operation in &known.operations {
        let mean = operation.nanoseconds.checked_div(operation.count).unwrap_or(0);
        let Operation { name, count, failed, .. } = operation;
        writeln!(out, "{name:<16} {count:>12} {failed:>10} {:>10} {:>10}", time(mean), most(operation))?;
    }
    out.flush()?;
    Ok(exit_code::OK)
}

/// A time below which 99 of 100 are.
fn most(operation: &Operation) -> String {
    let mut left = operation.count - operation.count / 100;
    for (count, bound) in operation.classes.iter().zip(BOUNDS) {
        if *count >= left {
            return format!("<{}", time(bound));
        }
        left -= count;
    }
    BOUNDS.last().map_or_else(String::new, |bound| format!(">{}", time(*bound)))
}

fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{} s", nanoseconds / 1_000_000_000),
    }
}
