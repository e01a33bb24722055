//! How far an extraction has come, and what it could not keep.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::args::Global;
use crate::output::Messages;
use crate::sizes::spoken;

/// Shared by all threads.
pub struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    losses: Mutex<BTreeMap<String, u64>>,
    bar: ProgressBar,
    began: Instant,
}

/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// Begins. The bar is shown on a terminal only; it has a length where the number of files is known.
    pub fn new(global: &Global, files: Option<u64>) -> Self {
        let bar = match files {
            Some(files) => ProgressBar::new(files),
            None => ProgressBar::no_length(),
        };
        // Hidden unless standard error is a terminal.
        bar.set_draw_target(if global.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        });
        let template = match files {
            Some(_) => "{bar:30} {pos}/{len} files, {msg}",
            None => "{spinner} {pos} files, {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self {
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            losses: Mutex::default(),
            bar,
            began: Instant::now(),
        }
    }

    /// One that shows nothing.
    #[cfg(test)]
    pub fn hidden() -> Self {
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { files, bytes, losses: Mutex::default(), bar: ProgressBar::hidden(), began: Instant::now() }
    }

    /// One more file, with so many bytes of data.
    pub fn file(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// More bytes of a file that was counted before.
    pub fn bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Shows how far it is. Called by one thread.
    pub fn show(&self) {
        if !self.bar.is_hidden() {
            self.bar.set_position(self.files.load(Ordering::Relaxed));
            self.bar.set_message(spoken(self.bytes.load(Ordering::Relaxed)));
        }
    }

    /// Something that was not kept: a plural, such as `owners`, and the reason behind it.
    pub fn lose(&self, what: &str) {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        match losses.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                losses.insert(what.into(), 1);
            }
        }
    }

    /// Lets go of the terminal's line while something else is written to it.
    pub fn pause(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Ends: says what was not kept; and how much was done how fast, if the user wants to know.
    pub fn finish(&self, messages: &Messages) -> Summary {
        self.bar.finish_and_clear();
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let seconds = self.began.elapsed().as_secs_f64();
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (what, count) in &losses {
            messages.note(format_args!("not kept: {count} {what}"));
        }
        let rate = spoken((bytes as f64 / seconds.max(1e-3)) as u64);
        messages.detail(format_args!("{files} files, {} in {seconds:.2} s ({rate}/s)", spoken(bytes)));
        Summary {
            files,
            bytes,
            seconds,
            not_kept: losses,
            failures: messages.failures(),
            unreadable: messages.left_out(),
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    files: u64,
    bytes: u64,
    seconds: f64,
    not_kept: BTreeMap<String, u64>,
    failures: u64,
    unreadable: u64,
}
