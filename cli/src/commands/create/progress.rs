//! How far it is, and what was done.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use transfer::writer::Done;

use crate::args::Global;
use crate::excludes::count_left_out;
use crate::output::Messages;
use crate::sizes::spoken;

/// A bar on a terminal.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
}

/// A step of the bar weighs so many bytes for each file beside its contents: about what a file costs.
const FILE_WEIGHT: u64 = 4096;

impl Progress {
    /// Begins.
    pub fn new(global: &Global) -> Self {
        let bar = ProgressBar::no_length();
        // Hidden unless standard error is a terminal.
        let target = if global.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        bar.set_draw_target(target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.set_message("looking at the source");
        Self { bar, began: Instant::now() }
    }

    /// It is known how much there is.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.bar.set_length(files * FILE_WEIGHT + bytes);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %, {msg}, {eta} left") {
            self.bar.set_style(style);
        }
    }

    /// So much is done.
    pub fn show(&self, done: &Done) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(done.files * FILE_WEIGHT + done.bytes);
        let rate = done.bytes as f64 / self.began.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_message(format!(
            "{} files, {} ({}/s)",
            done.files,
            spoken(done.bytes),
            spoken(rate as u64)
        ));
    }

    /// Lets go of the terminal's line while something else is written to it.
    pub fn pause(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// A part of the work is done: a user who wants more is told when.
    pub fn phase(&self, what: &str, messages: &Messages) {
        messages.detail(format_args!("{what} after {:.2} s", self.began.elapsed().as_secs_f64()));
    }

    /// Ends: says what was not kept; and what was done, if the user wants to know.
    pub fn finish(&self, done: &Done, messages: &Messages) -> Summary {
        self.bar.finish_and_clear();
        let seconds = self.began.elapsed().as_secs_f64();
        for (lost, count) in &done.lost {
            messages.note(format_args!("not kept: {count} {}", lost.name()));
        }
        if done.unreadable > 0 {
            messages.warn(count_left_out(done.unreadable));
        }
        let rate = spoken((done.bytes as f64 / seconds.max(1e-3)) as u64);
        messages.detail(format_args!(
            "{} files, {} in {seconds:.2} s ({rate}/s)",
            done.files,
            spoken(done.bytes)
        ));
        let not_kept = done.lost.iter().map(|(lost, count)| (lost.name(), *count)).collect();
        let Done { links, bytes, unreadable, .. } = *done;
        Summary { files: done.files, links, bytes, seconds, not_kept, unreadable }
    }
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub files: u64,
    pub links: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub not_kept: std::collections::BTreeMap<&'static str, u64>,
    pub unreadable: u64,
}
