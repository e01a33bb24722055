//! `xebec status`: statistics of a mount, read through an extended attribute; also for [`metrics`](super::metrics).

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use fuse::statistics::{LATENCY_BUCKETS, RequestStatistics};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use xebec::device::{CountedDevice, Device};
use xebec::{Clock as _, SystemClock, Volume};

use super::watch;
use crate::args::Global;
use crate::json::{self, Envelope};
use crate::output::{Stdout, exit_code};
use crate::sizes::with_unit;

/// Arguments of `status`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec status mnt\n  \
    xebec status --json mnt | jq .operations\n  \
    xebec status --watch mnt              # refreshed every second, until Ctrl-C or unmounting\n  \
    xebec status --watch 10 mnt > log     # a block every ten seconds\n  \
    xebec status --watch --json mnt       # one document a line\n\n\
    Exit codes: 0 success; 1 not a mount of Xebec; 2 usage error.")]
pub struct Arguments {
    /// Mount point.
    pub directory: PathBuf,
    /// Show what happens in each interval of so many seconds (default: 1): operations per second and how long they
    /// take, caches, log, and device.
    // A number after the option is attached by `args::rewrite_watch_interval`.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = interval)]
    pub watch: Option<Duration>,
}

/// An interval in seconds.
fn interval(text: &str) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 86400.0;
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=SECONDS_MAX).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds, at least 0.1".into())
}

/// The JSON payload, in the order of docs/json.md.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Document {
    /// When the counters were read; absent from older servers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    time: String,
    /// The process that serves the mount.
    pub process: u32,
    /// Worker threads.
    pub threads: usize,
    /// Why the volume was shut down; absent while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shut_down: Option<String>,
    /// URL of the metrics.
    metrics: Option<String>,
    pub block_size: u32,
    pub bytes: u64,
    pub bytes_free: u64,
    /// Size of the device, partition or image file.
    pub device_bytes: u64,
    pub ag_count: u32,
    pub inodes: u64,
    pub inodes_free: u64,
    pub operations: Vec<Operation>,
    pub memory: Memory,
    pub cache: Cache,
    pub log: Log,
    /// Zeros from older servers.
    #[serde(default)]
    pub device: DeviceUse,
}

/// FUSE requests of one type.
#[derive(Debug, Deserialize, Serialize)]
pub struct Operation {
    pub name: String,
    pub count: u64,
    pub failed: u64,
    /// Total time, from request to reply.
    pub nanoseconds: u64,
    /// Histogram: requests per bucket of [`LATENCY_BUCKETS`], and longer ones.
    pub buckets: Vec<u64>,
}

/// Memory of the caches in bytes.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Memory {
    /// What all caches may hold, except for what is in use or dirty.
    pub budget: u64,
    /// What they may hold now: less than the budget while the system is short of memory.
    pub limit: u64,
    pub used: u64,
    /// Metadata buffers, and changes on their way to the log.
    pub buffers: u64,
    /// File data, and what describes it.
    pub contents: u64,
    /// Inodes and names.
    pub inodes: u64,
    /// Removed files that wait to be freed.
    pub files_to_free: u64,
}

/// File data in memory.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Cache {
    pub bytes: u64,
    pub dirty_bytes: u64,
    /// Folios that were read, and transfers that read them.
    pub misses: u64,
    pub reads: u64,
    /// Writeback passes.
    pub passes: u64,
    /// Times that a writer was throttled.
    pub throttled: u64,
    /// Total time of throttling.
    pub throttled_us: u64,
    /// Percentiles of the times of throttling.
    pub throttled_us_p50: u64,
    pub throttled_us_p99: u64,
    pub throttled_us_p999: u64,
    /// Bytes that reclaim wrote.
    pub written_by_reclaim: u64,
    /// Folios that reclaim examined, and that it dropped.
    #[serde(default)]
    pub examined: u64,
    #[serde(default)]
    pub dropped: u64,
}

/// The journal.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Log {
    pub commits: u64,
    pub checkpoints: u64,
    pub forces: u64,
    pub written_bytes: u64,
    /// Items in the AIL.
    pub items: u64,
}

/// Requests to the device of the volume, and to that of an external log.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct DeviceUse {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
}

/// Collects the statistics of a mount.
pub struct Collector<'v> {
    pub volume: &'v Volume,
    pub requests: &'v RequestStatistics,
    /// Device of the volume; `None` if changes stay in memory.
    pub device: Option<&'v dyn Device>,
    /// Counters of its devices.
    pub counted: &'v [Arc<CountedDevice>],
    pub metrics: Option<SocketAddr>,
}

impl Collector<'_> {
    fn device_use(&self) -> DeviceUse {
        let mut all = DeviceUse::default();
        for counts in self.counted.iter().map(|device| device.counts()) {
            all.reads += counts.reads;
            all.read_bytes += counts.read_bytes;
            all.writes += counts.writes;
            all.written_bytes += counts.written_bytes;
            all.flushes += counts.flushes;
        }
        all
    }

    /// The statistics as JSON.
    pub fn json(&self) -> String {
        json::object(&Envelope::new("status", "", self.document()))
    }

    /// Collects the statistics.
    pub fn document(&self) -> Document {
        let now = self.volume.statistics();
        let operations = self.requests.summary().into_iter().map(|summary| Operation {
            name: summary.name,
            count: summary.operations,
            failed: summary.failed,
            nanoseconds: summary.nanoseconds,
            buckets: summary.buckets,
        });
        let block = u64::from(now.block_size);
        let bytes = now.blocks * block;
        let clock = SystemClock.now();
        Document {
            time: format!("{}.{:09}", clock.seconds, clock.nanos),
            process: std::process::id(),
            threads: self.requests.threads().len(),
            shut_down: now.shut_down.as_deref().map(str::to_owned),
            metrics: self.metrics.map(|address| format!("http://{address}/metrics")),
            block_size: now.block_size,
            bytes,
            bytes_free: now.blocks_available * block,
            // If the current size cannot be read, the last known one is used.
            device_bytes: self
                .device
                .map_or(bytes, |device| device.refresh_size().unwrap_or_else(|_| device.size())),
            ag_count: self.volume.geometry().ag_count(),
            inodes: now.inodes.allocated,
            inodes_free: now.inodes.free,
            operations: operations.collect(),
            memory: Memory {
                budget: now.memory.budget,
                limit: now.memory.limit,
                used: now.memory.used,
                buffers: now.memory.buffers,
                contents: now.memory.contents,
                inodes: now.memory.inodes,
                files_to_free: now.memory.files_to_free,
            },
            cache: Cache {
                bytes: now.contents.memory_bytes,
                dirty_bytes: now.contents.dirty_bytes,
                misses: now.contents.misses,
                reads: now.contents.reads,
                passes: now.contents.passes,
                throttled: now.contents.throttled,
                throttled_us: now.contents.throttled_us,
                throttled_us_p50: now.contents.throttled_us_p50,
                throttled_us_p99: now.contents.throttled_us_p99,
                throttled_us_p999: now.contents.throttled_us_p999,
                written_by_reclaim: now.contents.written_by_reclaim,
                examined: now.contents.looked,
                dropped: now.contents.dropped,
            },
            log: Log {
                commits: now.journal.commits,
                checkpoints: now.journal.pushes,
                forces: now.journal.forces,
                written_bytes: now.journal.bytes,
                items: now.journal.ail_items,
            },
            device: self.device_use(),
        }
    }
}

/// The process that serves a mount.
pub fn process(directory: &Path) -> anyhow::Result<Pid> {
    let (_, document) = query(directory)?;
    i32::try_from(document.process)
        .ok()
        .and_then(Pid::from_raw)
        .context("invalid process ID in the status of the mount")
}

/// Reads the statistics of a mount: the JSON document, and parsed.
pub fn query(directory: &Path) -> anyhow::Result<(Vec<u8>, Document)> {
    let mut text = vec![0; 64 << 10];
    let name = std::str::from_utf8(fuse::volume_operations::STATUS).context("the attribute's name")?;
    let length = rustix::fs::getxattr(directory, name, &mut text)
        .map_err(|_| anyhow!("not a mount of xebec (findmnt lists mounts)"))?;
    text.truncate(length);
    let document = serde_json::from_slice(&text)
        .context("unknown format of the mount's status (another version of xebec?)")?;
    Ok((text, document))
}

/// Runs `status`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    if let Some(interval) = arguments.watch {
        return watch::run(&arguments.directory, interval, global);
    }
    let (text, document) = query(&arguments.directory)?;
    let mut out = Stdout::buffered();
    if global.json {
        out.write_all(&text)?;
        writeln!(out)?;
        out.flush()?;
        return Ok(exit_code::OK);
    }
    writeln!(out, "process    {} with {} threads", document.process, document.threads)?;
    if let Some(address) = &document.metrics {
        writeln!(out, "metrics    {address}")?;
    }
    if let Some(cause) = &document.shut_down {
        writeln!(out, "shut down  {cause}")?;
        writeln!(out, "           (unmount and mount it again to replay the log)")?;
    }
    writeln!(out, "space      {} of {} free", with_unit(document.bytes_free), with_unit(document.bytes))?;
    writeln!(
        out,
        "memory     {} of {}: {} metadata, {} inodes and names",
        with_unit(document.memory.used),
        with_unit(document.memory.limit),
        with_unit(document.memory.buffers),
        with_unit(document.memory.inodes)
    )?;
    writeln!(
        out,
        "cache      {}, {} of it dirty",
        with_unit(document.cache.bytes),
        with_unit(document.cache.dirty_bytes)
    )?;
    writeln!(out, "log        {} commits in {} checkpoints", document.log.commits, document.log.checkpoints)?;
    writeln!(out, "{:<16} {:>12} {:>10} {:>10} {:>10}", "operation", "count", "failed", "mean", "99 %")?;
    for operation in &document.operations {
        let mean = operation.nanoseconds.checked_div(operation.count).unwrap_or(0);
        let Operation { name, count, failed, .. } = operation;
        writeln!(
            out,
            "{name:<16} {count:>12} {failed:>10} {:>10} {:>10}",
            time(mean),
            percentile_99(operation)
        )?;
    }
    out.flush()?;
    Ok(exit_code::OK)
}

/// The 99th percentile. A request that is just being counted may not be in its bucket yet: the sum of the buckets
/// counts.
pub fn percentile_99(operation: &Operation) -> String {
    let count: u64 = operation.buckets.iter().sum();
    let mut remaining = count - count / 100;
    for (count, bound) in operation.buckets.iter().zip(LATENCY_BUCKETS) {
        if *count >= remaining {
            return format!("<{}", time(bound));
        }
        remaining -= count;
    }
    LATENCY_BUCKETS.last().map_or_else(String::new, |bound| format!(">{}", time(*bound)))
}

/// A duration with its unit.
pub fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{} s", nanoseconds / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worker thread counts a request before it adds it to its bucket. With the statistics read between the two,
    /// the 99th percentile of a few fast requests was more than a second.
    #[test]
    fn a_request_that_is_not_in_its_bucket_yet_does_not_change_the_percentile() {
        let (name, failed, nanoseconds) = (String::new(), 0, 0);
        let operation = Operation { name, count: 3, failed, nanoseconds, buckets: vec![1, 1, 0] };
        assert_eq!(percentile_99(&operation), "<4 us");
    }
}
