//! `xebec status --watch`: what a mount does, interval by interval.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::status::{Document, Operation, percentile_99, query, time};
use crate::args::Global;
use crate::output::{Level, Stdout, exit_code, print_message};
use crate::sizes::with_unit;

/// Moves the cursor to the upper left corner. The text that follows replaces the previous one.
const HOME: &str = "\x1b[H";
const CLEAR_SCREEN: &str = "\x1b[2J";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Shows the mount until a signal, or until it ends.
pub fn run(directory: &Path, interval: Duration, global: &Global) -> anyhow::Result<u8> {
    let (first, document) = query(directory)?;
    let mut last = Sample { document, at: Instant::now() };
    let process = last.document.process;
    let ended = signalled()?;
    let mut out = Stdout::raw();
    if global.json {
        write_line(&mut out, &first)?;
    }
    let is_terminal = Stdout::is_terminal() && !global.json;
    if is_terminal {
        let name = directory.display();
        writeln!(out, "{CLEAR_SCREEN}{HOME}{name}: the first interval has begun")?;
    }
    let mut shown = 0u64;
    loop {
        if ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return Ok(exit_code::OK);
        }
        let (text, document) = match query(directory) {
            Ok((text, document)) if document.process == process => (text, document),
            _ => {
                if !global.quiet {
                    print_message(Level::Note, "", format!("{}: the mount has ended", directory.display()));
                }
                return Ok(exit_code::OK);
            }
        };
        let now = Sample { document, at: Instant::now() };
        if global.json {
            write_line(&mut out, &text)?;
        } else {
            let text = Interval::new(&last, &now).text(&directory.display().to_string());
            write_text(&mut out, &text, is_terminal, shown > 0)?;
        }
        shown += 1;
        last = now;
    }
}

/// A channel that receives something when the program shall end.
fn signalled() -> anyhow::Result<mpsc::Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    let (end, ended) = mpsc::channel();
    let wait = move || {
        signals.forever().next();
        // The receiver is gone if the program ends by itself.
        let _ = end.send(());
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot wait for signals")?;
    Ok(ended)
}

fn write_line(out: &mut impl io::Write, text: &[u8]) -> io::Result<()> {
    out.write_all(&[text, b"\n"].concat())
}

/// Writes a text in one call: on a terminal it replaces the previous one, otherwise an empty line separates them.
fn write_text(out: &mut impl io::Write, text: &str, is_terminal: bool, follows: bool) -> io::Result<()> {
    let text = match is_terminal {
        true => format!("{HOME}{}{CLEAR_BELOW}", text.replace('\n', &format!("{CLEAR_LINE}\n"))),
        false if follows => format!("\n{text}"),
        false => text.to_owned(),
    };
    out.write_all(text.as_bytes())
}

/// The counters at a time.
struct Sample {
    document: Document,
    at: Instant,
}

/// Two samples.
struct Interval<'i> {
    old: &'i Document,
    new: &'i Document,
    seconds: f64,
}

impl<'i> Interval<'i> {
    fn new(old: &'i Sample, new: &'i Sample) -> Self {
        let seconds = new.at.duration_since(old.at).as_secs_f64().max(1e-3);
        Self { old: &old.document, new: &new.document, seconds }
    }

    /// The increase of a counter per second.
    fn rate(&self, counter: impl Fn(&Document) -> u64) -> f64 {
        counter(self.new).saturating_sub(counter(self.old)) as f64 / self.seconds
    }

    /// The increase of a counter of bytes per second, as text.
    fn bytes(&self, counter: impl Fn(&Document) -> u64) -> String {
        format!("{}/s", with_unit(self.rate(counter) as u64))
    }

    fn text(&self, name: &str) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, name);
        text
    }

    fn write(&self, text: &mut String, name: &str) -> std::fmt::Result {
        let (new, seconds) = (self.new, self.seconds);
        let (process, threads) = (new.process, new.threads);
        writeln!(text, "{name}: process {process} with {threads} threads; the last {seconds:.1} s")?;
        if let Some(cause) = &new.shut_down {
            writeln!(text, "shut down  {cause}")?;
        }
        writeln!(text)?;
        self.write_operations(text)?;
        writeln!(text)?;
        self.write_caches(text)?;
        self.write_device(text)?;
        writeln!(text, "space      {} of {} free", with_unit(new.bytes_free), with_unit(new.bytes))
    }

    fn write_operations(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:<16} {:>10} {:>10} {:>10} {:>10}",
            "operation", "per second", "failed/s", "mean", "99 %"
        )?;
        let mut recent: Vec<_> = self.new.operations.iter().map(|operation| self.recent(operation)).collect();
        recent.retain(|operation| operation.count > 0);
        recent.sort_by(|left, right| right.count.cmp(&left.count).then_with(|| left.name.cmp(&right.name)));
        if recent.is_empty() {
            writeln!(text, "none")?;
        }
        for operation in &recent {
            let Operation { name, count, failed, nanoseconds, .. } = operation;
            let mean = nanoseconds.checked_div(*count).unwrap_or(0);
            let (rate, failed) = (per_second(*count, self.seconds), per_second(*failed, self.seconds));
            let (mean, most) = (time(mean), percentile_99(operation));
            writeln!(text, "{name:<16} {rate:>10} {failed:>10} {mean:>10} {most:>10}")?;
        }
        Ok(())
    }

    /// The requests of the interval.
    fn recent(&self, now: &Operation) -> Operation {
        let old = self.old.operations.iter().find(|old| old.name == now.name);
        let since = |counter: fn(&Operation) -> u64| counter(now).saturating_sub(old.map_or(0, counter));
        let old_buckets = old.map(|old| old.buckets.as_slice()).unwrap_or_default();
        let buckets = now.buckets.iter().enumerate();
        let buckets =
            buckets.map(|(at, count)| count.saturating_sub(old_buckets.get(at).copied().unwrap_or(0)));
        Operation {
            name: now.name.clone(),
            count: since(|operation| operation.count),
            failed: since(|operation| operation.failed),
            nanoseconds: since(|operation| operation.nanoseconds),
            buckets: buckets.collect(),
        }
    }

    fn write_caches(&self, text: &mut String) -> std::fmt::Result {
        let (memory, cache, log) = (&self.new.memory, &self.new.cache, &self.new.log);
        let budget = match memory.limit < memory.budget {
            true => format!("{} (of a budget of {})", with_unit(memory.limit), with_unit(memory.budget)),
            false => with_unit(memory.budget),
        };
        writeln!(
            text,
            "memory     {} of {budget}: {} metadata, {} inodes and names",
            with_unit(memory.used),
            with_unit(memory.buffers),
            with_unit(memory.inodes)
        )?;
        writeln!(
            text,
            "cache      {} clean, {} dirty; {:.0} misses/s in {:.0} reads/s",
            with_unit(cache.bytes.saturating_sub(cache.dirty_bytes)),
            with_unit(cache.dirty_bytes),
            self.rate(|now| now.cache.misses),
            self.rate(|now| now.cache.reads)
        )?;
        let throttled = self.rate(|now| now.cache.throttled_us) / 1e4;
        writeln!(
            text,
            "reclaim    {:.0} folios/s dropped of {:.0}/s examined, {} written",
            self.rate(|now| now.cache.dropped),
            self.rate(|now| now.cache.examined),
            self.bytes(|now| now.cache.written_by_reclaim)
        )?;
        writeln!(
            text,
            "writeback  {:.1} passes/s; writers throttled {:.0} times/s, {throttled:.1} % of the time",
            self.rate(|now| now.cache.passes),
            self.rate(|now| now.cache.throttled)
        )?;
        writeln!(
            text,
            "log        {:.0} commits/s, {:.1} checkpoints/s, {:.1} forces/s, {}",
            self.rate(|now| now.log.commits),
            self.rate(|now| now.log.checkpoints),
            self.rate(|now| now.log.forces),
            self.bytes(|now| now.log.written_bytes)
        )?;
        writeln!(text, "AIL        {} items", log.items)
    }

    fn write_device(&self, text: &mut String) -> std::fmt::Result {
        let mut line = |name: &str, requests: fn(&Document) -> u64, bytes: fn(&Document) -> u64| {
            let (count, total) = (self.rate(requests), self.rate(bytes));
            let size = if count > 0.0 { with_unit((total / count) as u64) } else { "-".into() };
            writeln!(text, "{name:<10} {count:.0} requests/s, {}, {size} each", self.bytes(bytes))
        };
        line("reads", |now| now.device.reads, |now| now.device.read_bytes)?;
        line("writes", |now| now.device.writes, |now| now.device.written_bytes)?;
        writeln!(text, "flushes    {:.1}/s", self.rate(|now| now.device.flushes))
    }
}

/// A number per second: with a decimal if it is small.
fn per_second(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    if rate == 0.0 || rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(count: u64, nanoseconds: u64, buckets: Vec<u64>) -> Operation {
        Operation { name: "lookup".into(), count, failed: 0, nanoseconds, buckets }
    }

    #[test]
    fn an_interval_shows_what_happened_in_it() {
        let mut old = Document::default();
        old.operations.push(operation(1000, 900_000_000, vec![0, 0, 0, 0, 0, 1000]));
        let mut new = Document::default();
        new.operations.push(operation(1020, 900_040_000, vec![0, 20, 0, 0, 0, 1000]));
        new.operations.push(Operation { name: "read".into(), ..operation(0, 0, Vec::new()) });
        (new.device.writes, new.device.written_bytes, new.log.commits) = (4, 64 << 10, 30);
        (new.cache.bytes, new.cache.dirty_bytes) = (3 << 20, 1 << 20);
        let text = Interval { old: &old, new: &new, seconds: 2.0 }.text("mnt");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lookup = text.lines().find(|line| line.starts_with("lookup")).unwrap();
        assert_eq!(words(lookup), ["lookup", "10", "0", "2", "us", "<4", "us"]);
        assert!(!text.contains("read  "), "{text}");
        assert!(text.contains("writes     2 requests/s, 32.0 KiB/s, 16.0 KiB each\n"), "{text}");
        assert!(text.contains("cache      2.0 MiB clean, 1.0 MiB dirty; "), "{text}");
        assert!(text.contains("log        15 commits/s, "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn a_terminal_is_overwritten_and_a_file_is_not() {
        let written = |is_terminal, follows| {
            let mut out = Vec::new();
            write_text(&mut out, "a\nb\n", is_terminal, follows).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(false, false), "a\nb\n");
        assert_eq!(written(false, true), "\na\nb\n");
        assert_eq!(written(true, true), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
