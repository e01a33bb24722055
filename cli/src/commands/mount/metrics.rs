//! Metrics of a mount in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write as _;

use fuse::statistics::LATENCY_BUCKETS;

use super::status::{Document, Operation};

/// Types of metrics.
const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// All metrics as text.
pub fn text(document: &Document) -> String {
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    head(&mut text, "xebec_info", GAUGE, "Version of the server.");
    line(&mut text, format_args!("xebec_info{{version=\"{version}\"}} 1"));
    for (name, kind, help, value) in integers(document) {
        head(&mut text, name, kind, help);
        line(&mut text, format_args!("{name} {value}"));
    }
    let throttled = document.cache.throttled_us as f64 / 1e6;
    let name = "xebec_writeback_throttled_seconds_total";
    head(&mut text, name, COUNTER, "Time that writers were throttled until data was written back.");
    line(&mut text, format_args!("{name} {throttled}"));
    operations(&mut text, &document.operations);
    text
}

/// Metrics without fractions and labels.
fn integers(document: &Document) -> [(&'static str, &'static str, &'static str, u64); 31] {
    let (memory, cache, log, device) = (&document.memory, &document.cache, &document.log, &document.device);
    [
        ("xebec_threads", GAUGE, "Worker threads.", document.threads as u64),
        ("xebec_block_size_bytes", GAUGE, "Block size.", document.block_size.into()),
        ("xebec_volume_bytes", GAUGE, "Size of the volume.", document.bytes),
        ("xebec_volume_free_bytes", GAUGE, "Free space of the volume.", document.bytes_free),
        ("xebec_device_bytes", GAUGE, "Size of the device, partition or image file.", document.device_bytes),
        ("xebec_inodes", GAUGE, "Allocated inodes, including free ones.", document.inodes),
        ("xebec_inodes_free", GAUGE, "Free inodes among the allocated ones.", document.inodes_free),
        ("xebec_memory_budget_bytes", GAUGE, "What the caches may hold.", memory.budget),
        ("xebec_memory_limit_bytes", GAUGE, "What they may hold now: less if memory is short.", memory.limit),
        ("xebec_memory_used_bytes", GAUGE, "What the caches hold.", memory.used),
        (
            "xebec_memory_buffers_bytes",
            GAUGE,
            "Metadata in memory, and changes on their way to the log.",
            memory.buffers,
        ),
        ("xebec_memory_inodes_bytes", GAUGE, "Inodes and names in memory.", memory.inodes),
        ("xebec_files_to_free", GAUGE, "Removed files that wait to be freed.", memory.files_to_free),
        ("xebec_cache_bytes", GAUGE, "File data in memory, and what describes it.", cache.bytes),
        ("xebec_cache_dirty_bytes", GAUGE, "Dirty file data in memory.", cache.dirty_bytes),
        ("xebec_cache_misses_total", COUNTER, "Cache misses of reads.", cache.misses),
        ("xebec_cache_reads_total", COUNTER, "Batches of reads from the device.", cache.reads),
        ("xebec_writeback_passes_total", COUNTER, "Writeback passes.", cache.passes),
        ("xebec_writeback_throttled_total", COUNTER, "Times that a writer was throttled.", cache.throttled),
        (
            "xebec_writeback_throttled_p999_microseconds",
            GAUGE,
            "99.9 % of these were not longer.",
            cache.throttled_us_p999,
        ),
        (
            "xebec_reclaim_written_bytes_total",
            COUNTER,
            "File data written by reclaim.",
            cache.written_by_reclaim,
        ),
        ("xebec_log_commits_total", COUNTER, "Committed transactions.", log.commits),
        ("xebec_log_checkpoints_total", COUNTER, "Checkpoints written to the log.", log.checkpoints),
        ("xebec_log_forces_total", COUNTER, "Log forces.", log.forces),
        ("xebec_log_written_bytes_total", COUNTER, "Bytes written to the log.", log.written_bytes),
        ("xebec_log_items", GAUGE, "Items in the AIL.", log.items),
        ("xebec_device_reads_total", COUNTER, "Read requests to the device.", device.reads),
        ("xebec_device_read_bytes_total", COUNTER, "Bytes read from the device.", device.read_bytes),
        ("xebec_device_writes_total", COUNTER, "Write requests to the device.", device.writes),
        ("xebec_device_written_bytes_total", COUNTER, "Bytes written to the device.", device.written_bytes),
        ("xebec_device_flushes_total", COUNTER, "Flushes of the device.", device.flushes),
    ]
}

/// FUSE requests by type.
fn operations(text: &mut String, all: &[Operation]) {
    const TIMES: &str = "xebec_operation_duration_seconds";
    const FAILED: &str = "xebec_operations_failed_total";
    head(text, TIMES, "histogram", "Duration of FUSE requests, from request to reply.");
    for Operation { name, nanoseconds, buckets, .. } in all {
        let mut below = 0;
        for (bound, count) in LATENCY_BUCKETS.iter().zip(buckets) {
            below += count;
            let bound = *bound as f64 / 1e9;
            line(text, format_args!("{TIMES}_bucket{{operation=\"{name}\",le=\"{bound}\"}} {below}"));
        }
        // The sum of the buckets: a request may be counted and not yet be in its bucket.
        let all = buckets.iter().sum::<u64>();
        let seconds = *nanoseconds as f64 / 1e9;
        line(text, format_args!("{TIMES}_bucket{{operation=\"{name}\",le=\"+Inf\"}} {all}"));
        line(text, format_args!("{TIMES}_sum{{operation=\"{name}\"}} {seconds}"));
        line(text, format_args!("{TIMES}_count{{operation=\"{name}\"}} {all}"));
    }
    head(text, FAILED, COUNTER, "FUSE requests that failed.");
    for Operation { name, failed, .. } in all {
        line(text, format_args!("{FAILED}{{operation=\"{name}\"}} {failed}"));
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
