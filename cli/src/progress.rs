//! Progress bar and messages of imports and extractions.

use std::fmt::Display;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use xebec::{Counts, Notice, NoticeKind, Phase, Progress};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::Messages;
use crate::sizes::with_unit;

/// A progress bar on a terminal.
pub struct TransferProgress<'m> {
    bar: ProgressBar,
    start: Instant,
    messages: &'m Messages,
}

/// Interval between redraws.
const TICK: Duration = Duration::from_millis(100);
/// Cost of a file relative to a byte of contents.
const FILE_WEIGHT: u64 = 4096;

fn weight(counts: Counts) -> u64 {
    counts.files * FILE_WEIGHT + counts.bytes
}

impl<'m> TransferProgress<'m> {
    /// Shows `task` until the first file.
    pub fn new(global: &Global, messages: &'m Messages, task: &'static str) -> Self {
        let Spinner(bar) = Spinner::new(global, task);
        Self { bar, start: Instant::now(), messages }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Removes the bar, prints what was not preserved and, with `--verbose`, the totals. Returns the duration in
    /// seconds.
    pub fn finish<'n, N: Display + 'n>(
        &self,
        done: Counts,
        not_preserved: impl IntoIterator<Item = (&'n N, &'n u64)>,
    ) -> f64 {
        self.clear();
        let seconds = self.seconds();
        for (what, count) in not_preserved {
            self.messages.note(format_args!("not kept: {count} {what}"));
        }
        let rate = with_unit((done.bytes as f64 / seconds.max(1e-3)) as u64);
        let (files, size) = (done.files, with_unit(done.bytes));
        self.messages.detail(format_args!("{files} files, {size} in {seconds:.2} s ({rate}/s)"));
        seconds
    }
}

impl Progress for TransferProgress<'_> {
    fn expect(&self, total: Counts) {
        self.bar.set_length(weight(total));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %, {msg}, {eta} left") {
            self.bar.set_style(style);
        }
    }

    fn advance(&self, done: Counts) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(weight(done));
        let rate = with_unit((done.bytes as f64 / self.seconds().max(1e-3)) as u64);
        self.bar.set_message(format!("{} files, {} ({rate}/s)", done.files, with_unit(done.bytes)));
    }

    fn phase(&self, phase: Phase) {
        self.messages.detail(format_args!("{phase} after {:.2} s", self.seconds()));
    }

    fn notice(&self, notice: &Notice) {
        let failure = Failure::at(&notice.path, notice.message.as_str());
        self.bar.suspend(|| match notice.kind {
            NoticeKind::Unreadable => self.messages.unreadable(failure),
            NoticeKind::Failed => self.messages.fail(failure),
            NoticeKind::Warning => self.messages.warn(failure.text),
            NoticeKind::NotStored | NoticeKind::Waiting => self.messages.note(failure.text),
        });
    }
}

/// A progress bar of a whole image on a terminal.
pub struct CopyProgress {
    bar: ProgressBar,
    start: Instant,
}

impl CopyProgress {
    /// For an image of `size` bytes.
    pub fn new(global: &Global, size: u64) -> Self {
        let bar = ProgressBar::new(size);
        bar.set_draw_target(target(global));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %, {msg}, {eta} left") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { bar, start: Instant::now() }
    }

    /// All before `up_to` is done, of which `bytes` are data.
    pub fn advance(&self, up_to: u64, bytes: u64) {
        self.bar.set_position(up_to);
        let rate = with_unit((bytes as f64 / self.start.elapsed().as_secs_f64().max(1e-3)) as u64);
        self.bar.set_message(format!("{} of data ({rate}/s)", with_unit(bytes)));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A task on a terminal whose end is not known.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Shows `task`.
    pub fn new(global: &Global, task: &'static str) -> Self {
        let bar = ProgressBar::no_length();
        bar.set_draw_target(target(global));
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.set_message(task);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Shows what was done.
    pub fn show(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// Removes the line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Hidden unless standard error is a terminal.
fn target(global: &Global) -> ProgressDrawTarget {
    if global.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    /// The line was blank as long as the sources were surveyed, which takes minutes for millions of files.
    #[test]
    fn the_task_is_shown_before_the_first_file() {
        let Cli { global, .. } =
            Cli::try_parse_from(["xebec", "info", "disk.xfs"]).unwrap_or_else(|_| panic!());
        let messages = Messages::new(&global, "disk.xfs");
        let progress = TransferProgress::new(&global, &messages, "surveying the sources");
        assert_eq!(progress.bar.message(), "surveying the sources");
    }
}
