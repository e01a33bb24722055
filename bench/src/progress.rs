//! How far a run is: a bar on a terminal, with the time that is left; else a line for each experiment.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use report::record::Results;
use report::text;

use crate::recorder::Observer;
use crate::registry::{Chosen, Part};
use crate::scale::Scale;

const TICK: Duration = Duration::from_millis(250);
/// Characters of the bar.
const WIDTH: usize = 30;

/// Follows a run.
pub struct Progress<'i> {
    is_interrupted: &'i dyn Fn() -> bool,
    /// Results are printed as JSON at the end, and nothing before.
    quiet: bool,
    bar: ProgressBar,
    /// The thread that draws the bar asks it for the time that is left.
    state: Arc<Mutex<State>>,
}

struct State {
    work: Work,
    /// When the current part began.
    began: Instant,
    /// The experiment of the last line.
    experiment: String,
    /// Names of the experiment and the part.
    what: String,
}

impl State {
    fn shown(&self) -> String {
        let (share, left) = self.work.after(self.began.elapsed().as_secs_f64());
        let full = (share * WIDTH as f64) as usize;
        let bar = "█".repeat(full) + &"░".repeat(WIDTH.saturating_sub(full));
        format!("{bar} {:.0} %, {}, {} left", share * 100.0, self.what, time_in_words(left))
    }
}

/// The work of a run, in expected seconds ([`Part::seconds`]).
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Expected seconds of all parts.
    total: f64,
    /// Expected seconds of the parts that have ended.
    done: f64,
    /// Expected seconds of the current part.
    current: f64,
    /// Seconds that the ended parts took in fact.
    spent: f64,
}

impl Work {
    /// Share of the work after which only the measured pace counts, and no longer the expected one.
    const TRUSTED: f64 = 0.1;
    /// Share of the current part that counts as done at most, as long as it has not ended.
    const CURRENT_MAX: f64 = 0.9;

    /// The share of the work that is done, and the seconds that are left, some seconds after the current part began.
    fn after(&self, seconds: f64) -> (f64, f64) {
        let total = self.total.max(1e-3);
        let trust = (self.done / total / Self::TRUSTED).min(1.0);
        let measured = if self.done > 0.0 { self.spent / self.done } else { 1.0 };
        // Measured seconds for each expected one.
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
    pub fn new(chosen: &[Chosen], scale: &Scale, is_interrupted: &'i dyn Fn() -> bool, quiet: bool) -> Self {
        let parts = chosen.iter().flat_map(Chosen::parts);
        let total = parts.map(|part| part.seconds(scale.size, scale.rounds)).sum();
        let work = Work { total, ..Work::default() };
        let state = State { work, began: Instant::now(), experiment: String::new(), what: "starting".into() };
        let state = Arc::new(Mutex::new(state));
        let bar = ProgressBar::new_spinner();
        // Hidden unless standard error is a terminal.
        bar.set_draw_target(if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
        if let Ok(style) = ProgressStyle::with_template("{run}") {
            let drawn = state.clone();
            // A part may take many minutes, in which nothing else is drawn.
            bar.set_style(style.with_key("run", move |_: &ProgressState, text: &mut dyn fmt::Write| {
                let _ = text.write_str(&lock(&drawn).shown());
            }));
        }
        bar.enable_steady_tick(TICK);
        Self { is_interrupted, quiet, bar, state }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn print(&self, print: impl FnOnce()) {
        if !self.quiet {
            self.bar.suspend(print);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Progress<'_> {
    fn begins(&self, results: &Results, part: &Part, scale: &Scale) {
        let experiment = &results.experiment;
        let mut state = lock(&self.state);
        state.work.current = part.seconds(scale.size, scale.rounds);
        state.began = Instant::now();
        state.what = format!("{experiment}/{}", part.name);
        let is_new = state.experiment != *experiment;
        state.experiment.clone_from(experiment);
        let (_, left) = state.work.after(0.0);
        drop(state);
        if is_new {
            if self.bar.is_hidden() && !self.quiet {
                eprintln!("{experiment} ... ({} left)", time_in_words(left));
            }
            self.print(|| text::print_opening(results));
        }
    }

    fn part_ended(&self) {
        let mut state = lock(&self.state);
        let seconds = state.began.elapsed().as_secs_f64();
        state.work.end_part(seconds);
    }

    fn ended(&self, results: &Results, task: &str) {
        self.print(|| text::print_task(results, task));
    }

    fn experiment_ended(&self, results: &Results) {
        self.print(|| text::print_closing(results));
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
    fn the_time_left_shrinks_within_a_part() {
        let work = Work { total: 600.0, current: 300.0, ..Work::default() };
        let began = Instant::now() - Duration::from_secs(120);
        let state = State { work, began, experiment: String::new(), what: "fxmark/calls".into() };
        let shown = state.shown();
        assert!(shown.contains(" 20 %, fxmark/calls, about 8 min left"), "{shown}");
        assert!(shown.starts_with("██████░"), "{shown}");
    }

    #[test]
    fn times_are_rounded() {
        assert_eq!(time_in_words(0.0), "about 0 s");
        assert_eq!(time_in_words(11.0), "about 15 s");
        assert_eq!(time_in_words(150.0), "about 2 min");
        assert_eq!(time_in_words(9000.0), "about 2.5 h");
    }
}
