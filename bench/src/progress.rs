//! How far a run is: a bar on a terminal, with the time that is left; else a line for each experiment.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::record::Results;
use report::text;

use crate::recorder::Observer;
use crate::registry::{Chosen, Part};
use crate::scale::Size;

const TICK: Duration = Duration::from_millis(250);
/// Steps of the bar.
const STEPS: f64 = 1000.0;

/// Follows a run.
pub struct Progress<'i> {
    is_interrupted: &'i dyn Fn() -> bool,
    /// Results are printed as JSON at the end, and nothing before.
    quiet: bool,
    bar: ProgressBar,
    state: RefCell<State>,
}

struct State {
    work: Work,
    /// When the current part began.
    began: Instant,
    /// The experiment of the last line.
    experiment: String,
}

/// The work of a run. Each part has an expected time.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Expected seconds of all parts.
    total: f64,
    /// Of those that have ended.
    done: f64,
    /// Of the current one.
    current: f64,
    /// Seconds that the ended parts took.
    spent: f64,
}

impl Work {
    /// Part of the whole after which the measured pace alone counts.
    const TRUSTED: f64 = 0.1;
    /// Part of the current part that is done at most, before it ends.
    const CURRENT_MAX: f64 = 0.9;

    /// The share of the work that is done, and the seconds that are left, some seconds after the current part began.
    fn after(&self, seconds: f64) -> (f64, f64) {
        let total = self.total.max(1e-3);
        let trust = (self.done / total / Self::TRUSTED).min(1.0);
        let measured = if self.done > 0.0 { self.spent / self.done } else { 1.0 };
        // Seconds for each expected second.
        let pace = (1.0 - trust + trust * measured).max(1e-3);
        let done = self.done + (seconds / pace).min(self.current * Self::CURRENT_MAX);
        (done / total, (total - done).max(0.0) * pace)
    }

    fn end_part(&mut self, seconds: f64) {
        self.done += self.current;
        self.spent += seconds;
        self.current = 0.0;
    }
}

impl<'i> Progress<'i> {
    /// Of a run of these experiments.
    pub fn new(chosen: &[Chosen], size: Size, is_interrupted: &'i dyn Fn() -> bool, quiet: bool) -> Self {
        let total = chosen.iter().flat_map(Chosen::parts).map(|part| part.seconds(size)).sum();
        let bar = ProgressBar::new(STEPS as u64);
        // Hidden unless standard error is a terminal.
        bar.set_draw_target(if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %, {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        let work = Work { total, ..Work::default() };
        let state = State { work, began: Instant::now(), experiment: String::new() };
        Self { is_interrupted, quiet, bar, state: RefCell::new(state) }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, what: &str) {
        let state = self.state.borrow();
        let (share, left) = state.work.after(state.began.elapsed().as_secs_f64());
        self.bar.set_position((share * STEPS) as u64);
        self.bar.set_message(format!("{what}, {} left", time_in_words(left)));
    }
}

impl Observer for Progress<'_> {
    fn begins(&self, experiment: &str, part: &Part, size: Size) {
        let mut state = self.state.borrow_mut();
        state.work.current = part.seconds(size);
        state.began = Instant::now();
        let is_new = state.experiment != experiment;
        state.experiment = experiment.into();
        let (_, left) = state.work.after(0.0);
        drop(state);
        self.show(&format!("{experiment}/{}", part.name));
        if is_new && self.bar.is_hidden() && !self.quiet {
            eprintln!("{experiment} ... ({} left)", time_in_words(left));
        }
    }

    fn part_ended(&self) {
        let mut state = self.state.borrow_mut();
        let seconds = state.began.elapsed().as_secs_f64();
        state.work.end_part(seconds);
    }

    fn ended(&self, results: &Results, task: &str) {
        self.show(&results.experiment);
        if !self.quiet {
            self.bar.suspend(|| text::print_task(results, task));
        }
    }

    fn is_interrupted(&self) -> bool {
        (self.is_interrupted)()
    }
}

/// A time for a person who waits.
fn time_in_words(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("about {:.0} s", (seconds / 5.0).ceil() * 5.0),
        ..5400.0 => format!("about {:.0} min", seconds / 60.0),
        _ => format!("about {:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that is twice as slow as expected.
    #[test]
    fn the_time_left_follows_the_pace_of_the_run() {
        let mut work = Work { total: 100.0, current: 20.0, ..Work::default() };
        assert_eq!(work.after(0.0), (0.0, 100.0));
        assert_eq!(work.after(10.0), (0.1, 90.0));
        assert_eq!(work.after(1000.0), (0.18, 82.0), "a part that takes too long is not done");
        work.end_part(40.0);
        work.current = 80.0;
        assert_eq!(work.after(0.0), (0.2, 160.0));
        assert_eq!(work.after(80.0), (0.6, 80.0));
        work.end_part(160.0);
        assert_eq!(work.after(0.0), (1.0, 0.0));
    }

    #[test]
    fn times_are_rounded() {
        assert_eq!(time_in_words(0.0), "about 0 s");
        assert_eq!(time_in_words(11.0), "about 15 s");
        assert_eq!(time_in_words(150.0), "about 2 min");
        assert_eq!(time_in_words(9000.0), "about 2.5 h");
    }
}
