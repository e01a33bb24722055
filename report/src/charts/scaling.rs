//! Values of several subjects by number of threads.

use plotters::prelude::*;

use crate::record::Measurement;

use super::super::number::{Scale, number, unit_and_direction};
use super::super::tasks::{Task, is_xebec};
use super::{Axis, Chart, Frame, Ink, Key, Line, Palette, Plot, draw_marker, ticks};

const HEIGHT: u32 = 600;
/// Ideal scaling is shown up to this multiple of the highest value: above, it would make the curves flat.
const IDEAL_MAX: f64 = 1.6;

/// The measurements of one subject, by number of threads.
struct Curve<'r> {
    subject: &'r str,
    points: Vec<(u32, &'r Measurement)>,
}

/// The chart of a task; none if it was not measured with several numbers of threads.
///
/// # Errors
/// None is expected.
pub fn draw(task: &Task<'_>, palette: &Palette<'_>) -> anyhow::Result<Option<Chart>> {
    let curves = curves(task);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let highest = points().map(|(_, measurement)| measurement.spread().1).fold(0.0, f64::max);
    let mut threads: Vec<u32> = points().map(|(threads, _)| *threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let (Some(first), Some(last)) = (threads.first(), threads.last()) else { return Ok(None) };
    if first == last || !highest.is_finite() || highest <= 0.0 {
        return Ok(None);
    }
    let ideal = ideal(task, &curves);
    let top = ideal.map_or(highest, |(_, rate)| {
        let end = rate * f64::from(*last) / f64::from(*first);
        end.clamp(highest, highest * IDEAL_MAX)
    }) * 1.04;
    let scale = Scale::of(top, task.unit);
    let x = Axis {
        range: f64::from(*first).log2() - 0.12..f64::from(*last).log2() + 0.12,
        ticks: thread_ticks(&threads),
        words: "number of threads".into(),
    };
    let y = Axis {
        range: 0.0..top,
        ticks: ticks(top).into_iter().map(|tick| (tick, scale.tick(tick))).collect(),
        words: unit_and_direction(&scale.words, task.less_is_better),
    };
    let label = format!("{}, by number of threads; the numbers are in the table below", task.name);
    let frame = Frame { height: HEIGHT, left: 96, right: 24, label };
    let svg = frame.plot(&x, &y, |plot| {
        if let Some((curve, rate)) = ideal {
            draw_ideal(plot, palette.series(curve.subject), (*first, *last), rate, top)?;
        }
        // Xebec last, so that it is on top.
        curves.iter().rev().try_for_each(|curve| draw_curve(plot, palette.series(curve.subject), curve))
    })?;
    Ok(Some(Chart { svg, legend: legend(&curves, ideal.map(|(curve, _)| curve), palette) }))
}

fn curves<'r>(task: &Task<'r>) -> Vec<Curve<'r>> {
    let curve = |subject: &'r str| {
        let of_subject = task.measurements.iter().filter(|measurement| measurement.subject == subject);
        let mut points: Vec<(u32, &Measurement)> = of_subject
            .filter(|measurement| measurement.median().is_finite())
            .filter_map(|measurement| {
                Some((measurement.threads.filter(|threads| *threads > 0)?, *measurement))
            })
            .collect();
        points.sort_by_key(|(threads, _)| *threads);
        Curve { subject, points }
    };
    task.subjects().into_iter().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// Xebec's curve, and its rate with the fewest threads. Times have no ideal: it depends on the task whether they should
/// fall or stay.
fn ideal<'c, 'r>(task: &Task<'_>, curves: &'c [Curve<'r>]) -> Option<(&'c Curve<'r>, f64)> {
    if task.less_is_better {
        return None;
    }
    let curve = curves.iter().find(|curve| is_xebec(curve.subject))?;
    let (_, measurement) = curve.points.first()?;
    Some((curve, measurement.median()))
}

/// A tick for each number of threads, except where two would overlap.
fn thread_ticks(threads: &[u32]) -> Vec<(f64, String)> {
    let mut ticks: Vec<(f64, String)> = Vec::new();
    let range = threads
        .last()
        .zip(threads.first())
        .map_or(1.0, |(last, first)| (f64::from(*last) / f64::from(*first)).log2());
    for threads in threads {
        let position = f64::from(*threads).log2();
        if ticks.last().is_none_or(|(last, _)| position - last > range / 16.0) {
            ticks.push((position, number((*threads).into())));
        }
    }
    ticks
}

fn draw_curve(plot: &mut Plot<'_, '_>, series: usize, curve: &Curve<'_>) -> anyhow::Result<()> {
    let position = |threads: u32| f64::from(threads).log2();
    let ink = Ink::Series(series);
    for (threads, measurement) in &curve.points {
        let (low, high) = measurement.spread();
        let x = position(*threads);
        plot.draw_series([PathElement::new(vec![(x, low), (x, high)], ink.line(2))])?;
        let cap = |y| EmptyElement::at((x, y)) + PathElement::new(vec![(-7, 0), (7, 0)], ink.line(2));
        plot.draw_series([cap(low), cap(high)])?;
    }
    let points: Vec<_> = curve.points.iter().map(|(threads, of)| (position(*threads), of.median())).collect();
    plot.draw_series(LineSeries::new(points.iter().copied(), ink.line(4)))?;
    points.iter().try_for_each(|point| draw_marker(plot, series, *point))
}

/// Ideal scaling up to the upper end of the chart.
fn draw_ideal(
    plot: &mut Plot<'_, '_>,
    series: usize,
    (first, last): (u32, u32),
    rate: f64,
    top: f64,
) -> anyhow::Result<()> {
    let (begin, end) = (f64::from(first).log2(), f64::from(last).log2());
    let end = end.min(begin + (top / rate).log2());
    let points = (0..=40).map(|step| {
        let x = begin + (end - begin) * f64::from(step) / 40.0;
        (x, (rate * (x - begin).exp2()).min(top))
    });
    plot.draw_series(DashedLineSeries::new(points, 10, 8, Ink::Series(series).line(2)))?;
    Ok(())
}

/// The subjects in the order of their curves at the right end, and ideal scaling.
fn legend(curves: &[Curve<'_>], ideal: Option<&Curve<'_>>, palette: &Palette<'_>) -> Vec<Key> {
    let last =
        |curve: &Curve<'_>| curve.points.last().map_or(f64::NAN, |(_, measurement)| measurement.median());
    let mut ordered: Vec<_> = curves.iter().collect();
    ordered.sort_by(|one, other| last(other).total_cmp(&last(one)));
    let key = |name: String, subject: &str, line| Key { name, series: palette.series(subject), line };
    let mut keys: Vec<_> =
        ordered.into_iter().map(|curve| key(curve.subject.into(), curve.subject, Line::Marked)).collect();
    keys.extend(
        ideal.map(|curve| key(format!("ideal scaling of {}", curve.subject), curve.subject, Line::Dashed)),
    );
    keys
}
