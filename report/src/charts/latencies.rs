//! How many calls took longer than a time.
//!
//! The share of calls above a time shows the rare slow calls, which the number of calls in each class of a histogram
//! does not, and the percentiles can be read at the lines of 1 % and 0.1 %.

use plotters::prelude::*;

use crate::record::Latency;

use super::super::tables::threads_in_words;
use super::super::tasks::Task;
use super::{Axis, Chart, Frame, Ink, Key, Line, Palette};

const HEIGHT: u32 = 600;
/// Smallest share of calls that is shown, as a power of ten.
const SHARE_MIN: f64 = -6.0;

/// Upper bounds of latencies in microseconds, and the share of calls above them, both as logarithms.
struct Steps {
    series: usize,
    name: String,
    points: Vec<(f64, f64)>,
    /// The share of one call.
    one: f64,
}

/// Numbers of threads whose latencies are shown: the fewest and the most.
pub fn shown_threads(task: &Task<'_>) -> Vec<Option<u32>> {
    let with_latency = task.measurements.iter().filter(|measurement| measurement.latency.is_some());
    let threads: Vec<_> = with_latency.map(|measurement| measurement.threads).collect();
    let mut shown: Vec<_> = threads.iter().min().into_iter().chain(threads.iter().max()).copied().collect();
    shown.dedup();
    shown
}

/// The chart of a task with a number of threads; none without latencies.
///
/// # Errors
/// None is expected.
pub fn draw(task: &Task<'_>, threads: Option<u32>, palette: &Palette<'_>) -> anyhow::Result<Option<Chart>> {
    let of_threads = task.measurements.iter().filter(|measurement| measurement.threads == threads);
    let all: Vec<Steps> = of_threads
        .filter_map(|of| steps(of.latency.as_ref()?, palette.series(&of.subject), &of.subject))
        .collect();
    if all.is_empty() {
        return Ok(None);
    }
    let bounds = || all.iter().flat_map(|steps| steps.points.iter().map(|(bound, _)| *bound));
    let (low, high) = (bounds().fold(f64::INFINITY, f64::min), bounds().fold(f64::NEG_INFINITY, f64::max));
    let one = all.iter().map(|steps| steps.one).fold(0.0, f64::min);
    let bottom = one.floor().clamp(SHARE_MIN, -2.0);
    let decades = |low: f64, high: f64| (low.ceil() as i32..=high.floor() as i32).map(f64::from);
    let x = Axis {
        range: low..high.max(low + 1.0),
        ticks: decades(low, high.max(low + 1.0)).map(|decade| (decade, time(decade as i32))).collect(),
        words: "time of one call, logarithmic".into(),
    };
    let y = Axis {
        range: bottom..0.0,
        ticks: decades(bottom, 0.0).map(|decade| (decade, share(decade as i32))).collect(),
        words: format!("share of calls that took longer{}; less is better", with_threads(threads)),
    };
    let label = format!("{}: {}", task.name, y.words);
    let frame = Frame { height: HEIGHT, left: 152, right: 40, label };
    let svg = frame.plot(&x, &y, |plot| {
        for steps in all.iter().rev() {
            let points = steps.points.iter().map(|(bound, share)| (*bound, share.max(bottom)));
            plot.draw_series(LineSeries::new(points, Ink::Series(steps.series).line(4)))?;
        }
        Ok(())
    })?;
    let key = |steps: &Steps| Key { name: steps.name.clone(), series: steps.series, line: Line::Plain };
    Ok(Some(Chart { svg, legend: all.iter().map(key).collect() }))
}

fn with_threads(threads: Option<u32>) -> String {
    threads.map_or_else(String::new, |threads| format!(", {}", threads_in_words(threads)))
}

/// The steps of a histogram. Classes below the first call are left out.
fn steps(latency: &Latency, series: usize, name: &str) -> Option<Steps> {
    let usable: Vec<_> =
        latency.histogram.iter().filter(|(bound, _)| bound.is_finite() && *bound > 0.0).collect();
    let total: u64 = usable.iter().map(|(_, count)| count).sum();
    let first = usable.iter().position(|(_, count)| *count > 0)?;
    let factor = match usable.as_slice() {
        [(one, _), (next, _), ..] if next > one => next / one,
        _ => 2.0,
    };
    let begin = match first.checked_sub(1).and_then(|before| usable.get(before)) {
        Some((bound, _)) => *bound,
        None => usable.first()?.0 / factor,
    };
    let mut points = vec![(begin.log10(), 0.0)];
    let (mut left, mut share) = (total, 0.0);
    for (bound, count) in usable.iter().skip(first) {
        points.push((bound.log10(), share));
        left -= count;
        share = (left as f64 / total as f64).log10();
        points.push((bound.log10(), share));
        if left == 0 {
            break;
        }
    }
    Some(Steps { series, name: name.into(), points, one: (1.0 / total as f64).log10() })
}

/// A power of ten of microseconds.
fn time(decade: i32) -> String {
    let (unit, power) = match decade {
        ..0 => ("ns", decade + 3),
        0..3 => ("µs", decade),
        3..6 => ("ms", decade - 3),
        6.. => ("s", decade - 6),
    };
    format!("{} {unit}", 10f64.powi(power))
}

/// A power of ten as a percentage.
fn share(decade: i32) -> String {
    match decade + 2 {
        power @ 0.. => format!("{:.0} %", 10f64.powi(power)),
        power => format!("{:.*} %", power.unsigned_abs() as usize, 10f64.powi(power)),
    }
}
