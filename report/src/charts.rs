//! Charts as SVG, which the style sheet of the page colors and scales.
//!
//! | module | subject |
//! |---|---|
//! | [`scaling`] | values of several subjects by number of threads |
//! | [`bars`] | values of several subjects |
//! | [`latencies`] | how many calls took longer than a time |
//! | [`predicted`] | predicted throughput on many CPUs |
//!
//! A chart is drawn twice as large as it is shown on a narrow page, because plotters rounds to whole pixels. Colors are
//! placeholders while it is drawn, and then CSS variables with a light and a dark value.

pub mod bars;
pub mod latencies;
pub mod predicted;
pub mod scaling;

use std::ops::Range;

use anyhow::Context;
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::tasks::Task;

/// Width of all charts, in units of their own.
const WIDTH: u32 = 960;
/// Height of the text.
const TEXT_SIZE: f64 = 28.0;
/// Font sizes of plotters are larger than those of SVG by this factor.
const FONT_FACTOR: f64 = 1.24;
/// Free space above the charts, with the unit.
const TOP: u32 = 62;
/// Free space below, with the ticks and the unit of the x axis.
const BOTTOM: u32 = 96;
/// Number of colors of series.
pub const SERIES_COUNT: usize = 6;

/// Corners of the markers, which distinguish series without their colors. No corners: a circle.
const MARKERS: [&[(i32, i32)]; SERIES_COUNT] = [
    &[],
    &[(-8, -8), (8, -8), (8, 8), (-8, 8)],
    &[(0, -11), (10, 8), (-10, 8)],
    &[(0, -11), (11, 0), (0, 11), (-11, 0)],
    &[(-10, -8), (10, -8), (0, 11)],
    &[
        (-3, -10),
        (3, -10),
        (3, -3),
        (10, -3),
        (10, 3),
        (3, 3),
        (3, 10),
        (-3, 10),
        (-3, 3),
        (-10, 3),
        (-10, -3),
        (-3, -3),
    ],
];

/// A chart.
pub struct Chart {
    /// An `svg` element.
    pub svg: String,
    /// The names and colors of its series, if there are several.
    pub legend: Vec<Key>,
}

/// An entry of a legend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// What the series shows.
    pub name: String,
    /// Index of the series' color and marker.
    pub series: usize,
    /// How it is drawn.
    pub line: Line,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// With markers.
    Marked,
    /// Without.
    Plain,
    /// Thin and dashed.
    Dashed,
}

impl Key {
    /// The line and the marker as an `svg` element.
    pub fn to_svg(&self) -> String {
        let color = Ink::Series(self.series).variable();
        let style = if self.line == Line::Dashed {
            "stroke-dasharray=\"10 8\" stroke-width=\"3\""
        } else {
            "stroke-width=\"5\""
        };
        let marker = if self.line == Line::Marked { self.marker(&color) } else { String::new() };
        format!(
            "<svg class=\"key\" viewBox=\"0 0 60 24\" aria-hidden=\"true\"><line x1=\"0\" y1=\"12\" x2=\"60\" \
             y2=\"12\" stroke=\"{color}\" {style}/>{marker}</svg>"
        )
    }

    fn marker(&self, color: &str) -> String {
        match MARKERS.get(self.series % SERIES_COUNT) {
            None | Some([]) => format!("<circle cx=\"30\" cy=\"12\" r=\"9\" fill=\"{color}\"/>"),
            Some(corners) => {
                let corners: Vec<_> = corners.iter().map(|(x, y)| format!("{},{}", x + 30, y + 12)).collect();
                format!("<polygon points=\"{}\" fill=\"{color}\"/>", corners.join(" "))
            }
        }
    }
}

/// The series of the subjects of an experiment: a subject has the same color in all its charts.
#[derive(Debug, Default)]
pub struct Palette<'r>(Vec<&'r str>);

impl<'r> Palette<'r> {
    /// Subjects in the order in which they first appear in a chart with lines.
    pub fn of(tasks: &[Task<'r>]) -> Self {
        let mut palette = Self::default();
        for task in tasks.iter().filter(|task| task.is_scaling() || task.has_latencies()) {
            for subject in task.subjects() {
                if !palette.0.contains(&subject) {
                    palette.0.push(subject);
                }
            }
        }
        palette
    }

    fn series(&self, subject: &str) -> usize {
        self.0.iter().position(|known| *known == subject).unwrap_or(0)
    }
}

/// A color of the style sheet.
#[derive(Clone, Copy, Debug)]
enum Ink {
    Text,
    Axis,
    Grid,
    /// Subjects that are not highlighted.
    Peer,
    Series(usize),
}

impl Ink {
    fn index(self) -> u8 {
        match self {
            Self::Text => 1,
            Self::Axis => 2,
            Self::Grid => 3,
            Self::Peer => 4,
            Self::Series(series) => 5 + (series % SERIES_COUNT) as u8,
        }
    }

    /// All colors.
    fn all() -> impl Iterator<Item = Self> {
        [Self::Text, Self::Axis, Self::Grid, Self::Peer]
            .into_iter()
            .chain((0..SERIES_COUNT).map(Self::Series))
    }

    /// The color for plotters.
    fn placeholder(self) -> RGBColor {
        RGBColor(1, self.index(), 0)
    }

    fn variable(self) -> String {
        match self {
            Self::Text => "var(--text)".into(),
            Self::Axis => "var(--axis)".into(),
            Self::Grid => "var(--grid)".into(),
            Self::Peer => "var(--peer)".into(),
            Self::Series(series) => format!("var(--series-{})", 1 + series % SERIES_COUNT),
        }
    }

    fn line(self, width: u32) -> ShapeStyle {
        self.placeholder().stroke_width(width)
    }

    fn filled(self) -> ShapeStyle {
        self.placeholder().filled()
    }

    fn font(self, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
        let font = ("sans-serif", TEXT_SIZE * FONT_FACTOR).into_font();
        font.color(&self.placeholder()).pos(Pos::new(horizontal, vertical))
    }
}

/// An axis, which is also its own coordinates.
#[derive(Clone)]
struct Axis {
    range: Range<f64>,
    /// Positions and texts of the ticks.
    ticks: Vec<(f64, String)>,
    /// Unit and meaning.
    words: String,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|(tick, _)| *tick).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

type Backend<'s> = SVGBackend<'s>;
/// The inner area of a chart.
type Plot<'a, 's> = ChartContext<'a, Backend<'s>, Cartesian2d<Axis, Axis>>;

/// The frame of a chart.
struct Frame {
    height: u32,
    /// Free space on the left, with the ticks of the y axis; without it there is no y axis.
    left: u32,
    right: u32,
    /// The chart in words, for readers who do not see it.
    label: String,
}

impl Frame {
    /// Draws axes, and then what `draw` draws.
    fn plot(
        &self,
        x: &Axis,
        y: &Axis,
        draw: impl FnOnce(&mut Plot<'_, '_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, self.height)).into_drawing_area();
            let mut chart = ChartBuilder::on(&area)
                .margin_top(if y.words.is_empty() { 0 } else { TOP })
                .margin_right(self.right)
                .margin_left(if self.left == 0 { 6 } else { 0 })
                .x_label_area_size(BOTTOM)
                .y_label_area_size(self.left)
                .build_cartesian_2d(x.clone(), y.clone())?;
            self.axes(&mut chart)?;
            self.words(&area, x, y)?;
            draw(&mut chart)?;
            area.present()?;
        }
        finish(&svg, &self.label)
    }

    fn axes(&self, chart: &mut Plot<'_, '_>) -> anyhow::Result<()> {
        let label = Ink::Text.font(HPos::Center, VPos::Center);
        let mut mesh = chart.configure_mesh();
        mesh.bold_line_style(Ink::Grid.line(2)).axis_style(Ink::Axis.line(2)).label_style(label);
        if self.left == 0 {
            mesh.disable_y_mesh().disable_y_axis();
        } else {
            mesh.disable_x_mesh();
        }
        mesh.draw()?;
        Ok(())
    }

    /// The units: that of the y axis above it, that of the x axis below.
    fn words(&self, area: &DrawingArea<Backend<'_>, Shift>, x: &Axis, y: &Axis) -> anyhow::Result<()> {
        let style = Ink::Text.font(HPos::Left, VPos::Top);
        area.draw(&Text::new(y.words.clone(), (6, 8), style))?;
        let middle = (self.left + WIDTH - self.right) / 2;
        let style = Ink::Text.font(HPos::Center, VPos::Bottom);
        area.draw(&Text::new(x.words.clone(), (middle as i32, self.height as i32 - 8), style))?;
        Ok(())
    }
}

/// Draws a marker of a series.
fn draw_marker(plot: &mut Plot<'_, '_>, series: usize, at: (f64, f64)) -> anyhow::Result<()> {
    let style = Ink::Series(series).filled();
    match MARKERS.get(series % SERIES_COUNT) {
        None | Some([]) => plot.draw_series([Circle::new(at, 9, style)])?,
        Some(corners) => plot.draw_series([EmptyElement::at(at) + Polygon::new(corners.to_vec(), style)])?,
    };
    Ok(())
}

/// Round positions from 0 to a value, at most six.
fn ticks(max: f64) -> Vec<f64> {
    let coarse = max / 5.0;
    let power = 10f64.powf(coarse.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= coarse * 0.999).unwrap_or(max);
    (0..=6).map(|number| f64::from(number) * step).filter(|tick| *tick <= max * 1.0001).collect()
}

/// Replaces placeholders, and the fixed size by that of the page.
fn finish(svg: &str, label: &str) -> anyhow::Result<String> {
    let (root, content) = svg.split_once('>').context("an SVG file without an element")?;
    let view = root.find("viewBox").and_then(|at| root.get(at..)).context("an SVG file without a size")?;
    let view = view.split(" xmlns").next().unwrap_or(view);
    let label = maud::html! { (label) }.into_string().replace('\'', "&#39;");
    let mut svg = format!("<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" {view}>{content}");
    for ink in Ink::all() {
        svg = svg.replace(&format!("\"#01{:02X}00\"", ink.index()), &format!("\"{}\"", ink.variable()));
    }
    // The font is that of the page.
    Ok(svg.replace(" font-family=\"sans-serif\"", "").replace(" opacity=\"1\"", ""))
}
