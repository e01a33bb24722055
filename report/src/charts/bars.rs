//! Values of several subjects, as horizontal bars.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::record::Measurement;

use super::super::number::{Scale, unit_and_direction, value};
use super::super::tasks::{Task, is_xebec};
use super::{Axis, BOTTOM, Chart, Frame, Ink, Plot, ticks};

/// Height of a bar with its name.
const ROW: u32 = 100;
/// Characters of a name that fit into the width.
const NAME_MAX: usize = 60;

/// The chart of a task; none if there is nothing to compare.
///
/// # Errors
/// None is expected.
pub fn draw(task: &Task<'_>) -> anyhow::Result<Option<Chart>> {
    let has_value = |measurement: &&&Measurement| measurement.median().is_finite();
    let measured: Vec<&Measurement> = task.measurements.iter().filter(has_value).copied().collect();
    let highest = measured.iter().map(|measurement| measurement.spread().1).fold(0.0, f64::max);
    if measured.len() < 2 || !highest.is_finite() || highest <= 0.0 {
        return Ok(None);
    }
    let scale = Scale::of(highest, task.unit);
    let x = Axis {
        range: 0.0..highest,
        ticks: ticks(highest).into_iter().map(|tick| (tick, scale.tick(tick))).collect(),
        words: unit_and_direction(&scale.words, task.less_is_better),
    };
    let rows = measured.len() as f64;
    let y = Axis { range: 0.0..rows, ticks: Vec::new(), words: String::new() };
    let label = format!("{}, by subject; the numbers are in the table below", task.name);
    let height = BOTTOM + ROW * measured.len() as u32;
    let frame = Frame { height, left: 0, right: 204, label };
    let svg = frame.plot(&x, &y, |plot| {
        let mut rows = measured.iter().zip((1..=measured.len()).rev());
        rows.try_for_each(|(measurement, row)| draw_bar(plot, task, measurement, row as f64))
    })?;
    Ok(Some(Chart { svg, legend: Vec::new() }))
}

/// The subject of a claim has the color of Xebec, its variants the same color but lighter, and others are gray.
fn style(task: &Task<'_>, subject: &str) -> ShapeStyle {
    let is_subject = task.comparisons.iter().any(|comparison| comparison.subject == subject);
    if is_subject || task.comparisons.is_empty() && is_xebec(subject) {
        Ink::Series(0).filled()
    } else if is_xebec(subject) {
        Ink::Series(0).placeholder().mix(0.5).filled()
    } else {
        Ink::Peer.filled()
    }
}

/// A bar, below its name. `top` is the upper end of its row.
fn draw_bar(plot: &mut Plot<'_, '_>, task: &Task<'_>, of: &Measurement, top: f64) -> anyhow::Result<()> {
    let (upper, lower) = (top - 0.48, top - 0.86);
    let (median, (low, high)) = (of.median(), of.spread());
    let name = Ink::Text.font(HPos::Left, VPos::Top);
    plot.draw_series([Text::new(shortened(&of.subject), (0.0, top - 0.1), name)])?;
    plot.draw_series([Rectangle::new([(0.0, upper), (median, lower)], style(task, &of.subject))])?;
    let middle = f64::midpoint(upper, lower);
    if of.runs.len() > 1 {
        let ink = Ink::Text.line(2);
        plot.draw_series([PathElement::new(vec![(low, middle), (high, middle)], ink)])?;
        let cap = |x| EmptyElement::at((x, middle)) + PathElement::new(vec![(0, -8), (0, 8)], ink);
        plot.draw_series([cap(low), cap(high)])?;
    }
    let text = Text::new(value(median, &of.unit), (14, 0), Ink::Text.font(HPos::Left, VPos::Center));
    plot.draw_series([EmptyElement::at((high.max(median), middle)) + text])?;
    Ok(())
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.into();
    }
    name.chars().take(NAME_MAX - 1).chain(['…']).collect()
}
