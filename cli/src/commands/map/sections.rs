//! The pictures of a map, drawn for a width.

use std::cmp::Reverse;

use super::canvas::{Align, Draw, LEVELS, Paint, fitting, shortened};
use super::directories::Directory;
use super::histogram::Group;
use super::space::{AgSpace, BlockUse, Uses};
use super::treemap::{Area, squarify};
use super::{MapData, text};
use crate::names::printable;
use crate::sizes::with_unit;

/// A picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Bars,
    FreeRuns,
    Sizes,
    Fragments,
    Directories,
}

/// Size of text in pixels.
pub const TEXT: f64 = 13.0;
/// Height of a row of a histogram, and of its bar.
const ROW: f64 = 24.0;
const ROW_BAR: f64 = 16.0;
/// Height of the bar of an AG, and distance of the next one.
const AG_BAR: f64 = 26.0;
const AG_ROW: f64 = 34.0;
/// Largest number of bars: more AGs are drawn several in a bar.
const BARS_MAX: usize = 64;
/// Pixels of a column of a bar.
const COLUMN: f64 = 4.0;
/// Space for labels.
const LABEL: f64 = 92.0;

impl Section {
    pub const ALL: [Self; 5] = [Self::Bars, Self::FreeRuns, Self::Sizes, Self::Fragments, Self::Directories];

    /// Height in pixels for a width.
    pub fn height(self, data: &MapData, width: f64) -> f64 {
        match self {
            Self::Bars => bar_count(data) as f64 * AG_ROW,
            Self::Directories => (width * 0.6).max(440.0),
            _ => groups(self, data).len().max(1) as f64 * ROW,
        }
    }

    /// Draws it at a place.
    pub fn draw(self, data: &MapData, canvas: &mut dyn Draw, (left, top): (f64, f64), width: f64) {
        let area = Area { left, top, width, height: self.height(data, width) };
        match self {
            Self::Bars => draw_bars(data, canvas, area),
            Self::Directories => draw_directory(&data.root, canvas, area, 0),
            _ => draw_histogram(self, data, canvas, area),
        }
    }
}

/// AGs in a bar.
fn ags_per_bar(data: &MapData) -> usize {
    data.space.ags.len().div_ceil(BARS_MAX).max(1)
}

fn bar_count(data: &MapData) -> usize {
    data.space.ags.len().div_ceil(ags_per_bar(data))
}

/// The parts of the bar of some AGs, each of which may be empty.
pub fn bar_columns(ags: &[AgSpace], columns: usize, longest: u32) -> Vec<Uses> {
    if ags.len() > columns {
        let of_column = |ags: &[AgSpace]| {
            let mut uses = Uses::default();
            ags.iter().for_each(|ag| uses.add_all(&ag.uses()));
            uses
        };
        return ags.chunks(ags.len().div_ceil(columns.max(1))).map(of_column).collect();
    }
    let each = columns / ags.len().max(1);
    ags.iter().flat_map(|ag| ag.columns(each, longest)).collect()
}

/// Name of the bar that begins with an AG.
pub fn bar_name(first: usize, count: usize) -> String {
    if count > 1 { format!("AG {first}-{}", first + count - 1) } else { format!("AG {first}") }
}

fn draw_bars(data: &MapData, canvas: &mut dyn Draw, area: Area) {
    let per_bar = ags_per_bar(data);
    let columns = ((area.width - LABEL) / COLUMN) as usize;
    let longest = data.space.longest();
    for (bar, ags) in data.space.ags.chunks(per_bar).enumerate() {
        let top = area.top + bar as f64 * AG_ROW;
        let name = bar_name(bar * per_bar, ags.len());
        canvas.text(&name, (area.left, top + 6.0), TEXT, Paint::Text, Align::Left);
        let (mut at, mut run) = (0, None::<(usize, Vec<(Paint, f64)>)>);
        let mut flush = |run: &mut Option<(usize, Vec<(Paint, f64)>)>, end: usize| {
            let Some((start, parts)) = run.take() else { return };
            let left = area.left + LABEL + start as f64 * COLUMN;
            let mut bottom = top + AG_BAR;
            for (paint, height) in parts {
                bottom -= height;
                let width = (end - start) as f64 * COLUMN;
                canvas.fill(Area { left, top: bottom, width, height }, paint);
            }
        };
        for uses in bar_columns(ags, columns, longest) {
            let parts = parts(&uses);
            if run.as_ref().is_none_or(|(_, same)| *same != parts) {
                flush(&mut run, at);
                run = Some((at, parts));
            }
            at += 1;
        }
        flush(&mut run, at);
    }
}

/// The parts of a column, from below, with their heights in whole pixels. Any use is visible.
fn parts(uses: &Uses) -> Vec<(Paint, f64)> {
    let total = uses.total();
    if total == 0 {
        return Vec::new();
    }
    let mut heights: Vec<(BlockUse, f64)> = BlockUse::ALL
        .into_iter()
        .filter(|block_use| uses.get(*block_use) > 0)
        .map(|block_use| {
            let share = uses.get(block_use) as f64 / total as f64;
            (block_use, (share * AG_BAR).round().max(1.0))
        })
        .collect();
    // The largest part takes what rounding has left.
    let excess = heights.iter().map(|(_, height)| height).sum::<f64>() - AG_BAR;
    if let Some((_, height)) = heights.iter_mut().max_by(|(_, a), (_, b)| a.total_cmp(b)) {
        *height -= excess;
    }
    heights.into_iter().map(|(block_use, height)| (Paint::Use(block_use), height)).collect()
}

/// The groups of a histogram.
pub fn groups(section: Section, data: &MapData) -> Vec<Group> {
    match section {
        Section::FreeRuns => data.free_runs.groups(2),
        Section::Sizes => data.files.by_size.groups(2),
        Section::Fragments => data.files.by_fragments.groups(1),
        Section::Bars | Section::Directories => Vec::new(),
    }
}

/// Label of a group, length of its bar, and what is written behind the bar.
pub fn row(section: Section, data: &MapData, group: &Group) -> (String, u64, String) {
    let block = u64::from(data.block_bytes);
    match section {
        Section::FreeRuns => {
            let label =
                text::size_range(group.from * block, group.to.saturating_add(1).saturating_mul(block));
            let bytes = group.sum.saturating_mul(block);
            (label, bytes, format!("{} in {}", with_unit(bytes), text::counted(group.count, "run")))
        }
        Section::Sizes => {
            let label = match group.to {
                0 => "empty".into(),
                to => text::size_range(group.from, to.saturating_add(1)),
            };
            (label, group.count, format!("{}, {}", text::counted(group.count, "file"), with_unit(group.sum)))
        }
        _ => {
            let label = match (group.from, group.to) {
                (1, 1) => "in 1 piece".into(),
                (from, to) => format!("{from} to {to}"),
            };
            (label, group.count, text::counted(group.count, "file"))
        }
    }
}

fn draw_histogram(section: Section, data: &MapData, canvas: &mut dyn Draw, area: Area) {
    let groups = groups(section, data);
    let rows: Vec<_> = groups.iter().map(|group| row(section, data, group)).collect();
    let most = rows.iter().map(|(_, length, _)| *length).max().unwrap_or(0).max(1);
    let paint = match section {
        Section::FreeRuns => Paint::Level(3),
        _ => Paint::Use(BlockUse::Data),
    };
    if rows.is_empty() {
        canvas.text("none", (area.left, area.top + 4.0), TEXT, Paint::Muted, Align::Left);
    }
    // Space for the text behind the longest bar.
    let behind =
        rows.iter().map(|(.., text)| text.chars().count()).max().unwrap_or(0) as f64 * TEXT * 0.56 + 8.0;
    let label = LABEL + 34.0;
    let width = (area.width - label - behind).max(20.0);
    for (index, (name, length, behind)) in rows.iter().enumerate() {
        let top = area.top + index as f64 * ROW;
        let length = (*length as f64 / most as f64 * width).max(if *length > 0 { 1.0 } else { 0.0 });
        canvas.text(name, (area.left + label - 8.0, top + 2.0), TEXT, Paint::Text, Align::Right);
        canvas.fill(Area { left: area.left + label, top, width: length, height: ROW_BAR }, paint);
        let at = (area.left + label + length + 6.0, top + 2.0);
        canvas.text(behind, at, TEXT, Paint::Muted, Align::Left);
    }
}

/// Smallest side of a rectangle with contents.
const INNER_MIN: f64 = 26.0;
/// Levels that are drawn.
const LEVELS_DRAWN: usize = 6;
/// Height of the title of a directory.
const TITLE: f64 = 17.0;

/// Draws a directory and those in it. Recursive: the tree is not deeper than [`LEVELS_DRAWN`].
fn draw_directory(directory: &Directory, canvas: &mut dyn Draw, area: Area, level: usize) {
    let gap = Area { width: area.width - 1.0, height: area.height - 1.0, ..area };
    canvas.fill(gap, Paint::Level(level % LEVELS));
    let most = fitting(area.width - 8.0, TEXT - 1.0);
    let (name, size) = (printable(&directory.name), with_unit(directory.usage.allocated));
    let title = match format!("{name} {size}") {
        title if title.chars().count() <= most => title,
        _ => shortened(&name, most),
    };
    let has_title = area.height >= TITLE + 2.0 && !title.is_empty();
    if has_title {
        canvas.text(&title, (area.left + 4.0, area.top + 3.0), TEXT - 1.0, Paint::Text, Align::Left);
    }
    let inner = gap.inner(2.0, if has_title { TITLE } else { 0.0 });
    if directory.contents.is_empty() || level >= LEVELS_DRAWN || inner.width.min(inner.height) < INNER_MIN {
        return;
    }
    let rest = directory.rest();
    let mut parts: Vec<(u64, Option<&Directory>)> =
        directory.contents.iter().map(|inner| (inner.usage.allocated, Some(inner))).collect();
    parts.push((rest, None));
    parts.sort_by_key(|(size, _)| Reverse(*size));
    let sizes: Vec<u64> = parts.iter().map(|(size, _)| *size).collect();
    for ((_, inner), area) in parts.iter().zip(squarify(inner, &sizes)) {
        match inner {
            Some(inner) => draw_directory(inner, canvas, area, level + 1),
            None => {
                canvas.fill(Area { width: area.width - 1.0, height: area.height - 1.0, ..area }, Paint::Rest)
            }
        }
    }
}
