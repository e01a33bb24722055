//! Predicted throughput of pairs of operations on many CPUs.

use plotters::prelude::*;

use crate::sharing::{Pair, Sharing};

use super::super::number::{number, rounded};
use super::{Axis, Chart, Frame, Ink, Key, Line, SERIES_COUNT};

const HEIGHT: u32 = 600;

/// The pairs that share lines for the same reasons.
struct Group<'r> {
    name: String,
    pairs: Vec<&'r Pair>,
}

/// A line for each pair: its throughput on a number of CPUs, divided by that of one. None without predictions.
///
/// # Errors
/// None is expected.
pub fn draw(sharing: &Sharing) -> anyhow::Result<Option<Chart>> {
    let groups = groups(sharing);
    let mut cpus: Vec<u32> =
        sharing.pairs.iter().flat_map(|pair| &pair.predicted).map(|(cpus, _)| *cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let (Some(first), Some(last)) = (cpus.first().copied(), cpus.last().copied()) else { return Ok(None) };
    if first == 0 || first == last {
        return Ok(None);
    }
    let log = |value: f64| value.log2();
    let (low, high) = (log(first.into()), log(last.into()));
    let ticks = || cpus.iter().map(|cpus| (log((*cpus).into()), number((*cpus).into()))).collect();
    let lowest = sharing.pairs.iter().flat_map(|pair| speedups(pair, first)).map(|(_, speedup)| speedup);
    let bottom = lowest.map(log).filter(|speedup| speedup.is_finite()).fold(0.0, f64::min);
    let x =
        Axis { range: low - 0.12..high + 0.12, ticks: ticks(), words: "number of CPUs, logarithmic".into() };
    let words =
        format!("predicted throughput, divided by that of {} CPU; more is better", rounded(first.into()));
    let y = Axis { range: bottom - 0.1..high - low + 0.2, ticks: ticks(), words };
    let label = "Predicted throughput by number of CPUs; the numbers are in the table below".into();
    let frame = Frame { height: HEIGHT, left: 96, right: 24, label };
    let svg = frame.plot(&x, &y, |plot| {
        for (series, group) in groups.iter().enumerate() {
            for pair in &group.pairs {
                let points = speedups(pair, first).map(|(cpus, speedup)| (log(cpus.into()), log(speedup)));
                plot.draw_series(LineSeries::new(points, Ink::Series(series).line(3)))?;
            }
        }
        Ok(())
    })?;
    let key = |(series, group): (usize, &Group<'_>)| {
        let name = format!("{} ({} pairs)", group.name, group.pairs.len());
        Key { name, series, line: Line::Plain }
    };
    Ok(Some(Chart { svg, legend: groups.iter().enumerate().map(key).collect() }))
}

/// Throughput by number of CPUs, divided by that of the fewest.
fn speedups(pair: &Pair, first: u32) -> impl Iterator<Item = (u32, f64)> + '_ {
    let one = pair.predicted_by(first).unwrap_or(f64::NAN);
    let positive = |(_, speedup): &(u32, f64)| *speedup > 0.0;
    pair.predicted.iter().map(move |(cpus, rate)| (*cpus, rate / one)).filter(positive)
}

/// Groups by reasons, the largest first. As many as there are colors; the others are one group.
fn groups(sharing: &Sharing) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for pair in &sharing.pairs {
        let reasons = pair.reasons();
        let name = if reasons.is_empty() { "no shared line".to_string() } else { reasons };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.pairs.push(pair),
            None => groups.push(Group { name, pairs: vec![pair] }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.pairs.len()));
    if groups.len() > SERIES_COUNT {
        let others = groups.split_off(SERIES_COUNT - 1);
        let pairs = others.into_iter().flat_map(|group| group.pairs).collect();
        groups.push(Group { name: "other reasons".into(), pairs });
    }
    groups
}
