//! What a mount tells of itself, for Prometheus: its text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write as _;

use fuse::counts::BOUNDS;

use super::status::{Document, Operation};

/// What a number is.
const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// The numbers, as text.
pub fn text(known: &Document) -> String {
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    head(&mut text, "xebec_info", GAUGE, "The version that serves the mount.");
    line(&mut text, format_args!("xebec_info{{version=\"{version}\"}} 1"));
    for (name, kind, help, value) in numbers(known) {
        head(&mut text, name, kind, help);
        line(&mut text, format_args!("{name} {value}"));
    }
    let writers = known.cache.held_back_us as f64 / 1e6;
    let name = "xebec_writeback_held_back_seconds_total";
    head(&mut text, name, COUNTER, "How long writers were held back until contents were written.");
    line(&mut text, format_args!("{name} {writers}"));
    operations(&mut text, &known.operations);
    text
}

/// Those that have neither fractions nor labels.
fn numbers(known: &Document) -> [(&'static str, &'static str, &'static str, u64); 18] {
    let (cache, log) = (&known.cache, &known.log);
    [
        ("xebec_threads", GAUGE, "Threads that serve the mount.", known.threads as u64),
        ("xebec_block_size_bytes", GAUGE, "Bytes of a block.", known.block_size.into()),
        ("xebec_volume_bytes", GAUGE, "Bytes of the volume.", known.bytes),
        ("xebec_volume_free_bytes", GAUGE, "Bytes of it that are free.", known.bytes_free),
        ("xebec_device_bytes", GAUGE, "Bytes of what the volume lies on.", known.device_bytes),
        ("xebec_inodes", GAUGE, "Inodes that exist, free ones among them.", known.inodes),
        ("xebec_inodes_free", GAUGE, "Inodes that exist and are free.", known.inodes_free),
        ("xebec_cache_bytes", GAUGE, "Contents of files in memory.", cache.bytes),
        ("xebec_cache_dirty_bytes", GAUGE, "Of them, those that are to be written.", cache.dirty_bytes),
        ("xebec_cache_misses_total", COUNTER, "Reads that did not find all in memory.", cache.misses),
        ("xebec_cache_reads_total", COUNTER, "Batches of reads from the device.", cache.reads),
        ("xebec_writeback_passes_total", COUNTER, "Passes that wrote contents home.", cache.passes),
        ("xebec_writeback_held_back_total", COUNTER, "Times that a writer was held back.", cache.held_back),
        ("xebec_log_commits_total", COUNTER, "Changes that were committed.", log.commits),
        ("xebec_log_checkpoints_total", COUNTER, "Checkpoints that were written.", log.checkpoints),
        ("xebec_log_forces_total", COUNTER, "Times that somebody waited for the log.", log.forces),
        ("xebec_log_written_bytes_total", COUNTER, "Bytes that were written to the log.", log.written_bytes),
        ("xebec_log_items", GAUGE, "Items that are in the log and not in their place.", log.items),
    ]
}

/// Requests of the kernel, by kind.
fn operations(text: &mut String, all: &[Operation]) {
    const TIMES: &str = "xebec_operation_duration_seconds";
    const FAILED: &str = "xebec_operations_failed_total";
    head(text, TIMES, "histogram", "How long requests of the kernel took, from request to reply.");
    for Operation { name, nanoseconds, classes, .. } in all {
        let mut below = 0;
        for (bound, class) in BOUNDS.iter().zip(classes) {
            below += class;
            let bound = *bound as f64 / 1e9;
            line(text, format_args!("{TIMES}_bucket{{operation=\"{name}\",le=\"{bound}\"}} {below}"));
        }
        // Not the counter beside them: a request may be counted there and not yet in its class.
        let all = classes.iter().sum::<u64>();
        let seconds = *nanoseconds as f64 / 1e9;
        line(text, format_args!("{TIMES}_bucket{{operation=\"{name}\",le=\"+Inf\"}} {all}"));
        line(text, format_args!("{TIMES}_sum{{operation=\"{name}\"}} {seconds}"));
        line(text, format_args!("{TIMES}_count{{operation=\"{name}\"}} {all}"));
    }
    head(text, FAILED, COUNTER, "Requests of the kernel that were answered with an error.");
    for Operation { name, failed, .. } in all {
        line(text, format_args!("{FAILED}{{operation=\"{name}\"}} {failed}"));
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // A string takes all that is written into it.
    let _ = writeln!(text, "{words}");
}
