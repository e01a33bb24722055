//! Tables of results, which the terminal and the HTML file show alike.

use crate::record::{Comparison, Latency, Measurement, Results, Target};

use super::Report;
use super::number::{NONE, number, quantity, ratio, value};
use super::tasks::{Judged, Task, tasks};

/// A table.
#[derive(Debug, Default)]
pub struct Table {
    /// What the columns have in common; may be empty.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// As many cells in each as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What is shown.
    pub text: String,
    /// What is shown beside or below it, less prominently.
    pub detail: String,
    /// The number that the text is made of.
    pub value: Option<f64>,
    /// What it means for the reader.
    pub tone: Tone,
}

/// What a cell means for the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// A target was reached.
    Good,
    /// A target was missed, or Xebec is worse.
    Bad,
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number, and how it is shown.
    pub fn number(value: f64, text: String) -> Self {
        Self { text, value: Some(value), ..Self::default() }
    }

    /// The same with a detail.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// The same with a tone.
    #[must_use]
    pub fn with_tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// Nothing was measured.
    fn none() -> Self {
        Self { text: NONE.into(), value: Some(f64::NAN), ..Self::default() }
    }

    /// A value in a unit.
    fn of(measured: f64, unit: &str) -> Self {
        Self::number(measured, value(measured, unit))
    }

    /// The median of a measurement, with its spread as a detail.
    fn median(measurement: &Measurement) -> Self {
        let cell = Self::of(measurement.median(), &measurement.unit);
        if measurement.runs.len() < 2 {
            return cell;
        }
        let (low, high) = measurement.spread();
        cell.with_detail(format!("{} to {}", value(low, &measurement.unit), value(high, &measurement.unit)))
    }
}

/// The values of a task: a line for each number of threads and a column for each subject, or a line for each subject.
pub fn values(task: &Task<'_>) -> Table {
    if task.is_scaling() { by_threads(task) } else { by_subject(task) }
}

fn by_threads(task: &Task<'_>) -> Table {
    let subjects = task.subjects();
    let mut head = vec!["threads".to_string()];
    head.extend(subjects.iter().map(ToString::to_string));
    let row = |threads| {
        let cell = |subject: &&str| task.find(threads, subject).map_or_else(Cell::none, Cell::median);
        let mut row = vec![count(threads)];
        row.extend(subjects.iter().map(cell));
        row
    };
    Table { title: String::new(), head, rows: task.threads().into_iter().map(row).collect() }
}

fn by_subject(task: &Task<'_>) -> Table {
    let mut head: Vec<_> = ["subject", "median", "lowest", "highest"].map(String::from).into();
    if task.has_latencies() {
        head.extend(LATENCIES.map(String::from));
    }
    let row = |measurement: &&Measurement| {
        let (low, high) = measurement.spread();
        let mut row = vec![Cell::text(&measurement.subject)];
        row.extend([measurement.median(), low, high].map(|value| Cell::of(value, &measurement.unit)));
        if task.has_latencies() {
            row.extend(percentiles(measurement.latency.as_ref()));
        }
        row
    };
    Table { title: String::new(), head, rows: task.measurements.iter().map(row).collect() }
}

/// Columns of latencies.
const LATENCIES: [&str; 3] = ["p50 of one call", "p99", "p99.9"];

fn percentiles(latency: Option<&Latency>) -> [Cell; 3] {
    match latency {
        Some(latency) => {
            [latency.p50_us, latency.p99_us, latency.p999_us].map(|latency| Cell::of(latency, "us"))
        }
        None => [Cell::none(), Cell::none(), Cell::none()],
    }
}

/// Latencies of a task that was measured with several numbers of threads.
pub fn latencies(task: &Task<'_>) -> Option<Table> {
    if !task.is_scaling() || !task.has_latencies() {
        return None;
    }
    let mut table = Table::default();
    table.head.extend(["threads", "subject"].map(String::from));
    table.head.extend(LATENCIES.map(String::from));
    for threads in task.threads() {
        for subject in task.subjects() {
            let measurement = task.find(threads, subject);
            let Some(latency) = measurement.and_then(|found| found.latency.as_ref()) else { continue };
            let mut row = vec![count(threads), Cell::text(subject)];
            row.extend(percentiles(Some(latency)));
            table.rows.push(row);
        }
    }
    Some(table)
}

/// The claims about a task; none if none needs more than the value.
pub fn comparisons(results: &Results, task: &Task<'_>) -> Option<Table> {
    let is_shown = |comparison: &&Comparison| comparison.peer.is_some() || comparison.target.is_some();
    let shown: Vec<_> = task.comparisons.iter().copied().filter(is_shown).collect();
    if shown.is_empty() {
        return None;
    }
    Some(if task.is_scaling() { ratios(results, task, &shown) } else { claims(results, &shown) })
}

/// A line for each claim.
fn claims(results: &Results, comparisons: &[&Comparison]) -> Table {
    let head = ["subject / peer", "ratio", "target"].map(String::from).into();
    let row = |comparison: &&Comparison| {
        let pair = match &comparison.peer {
            Some(peer) => format!("{} / {peer}", comparison.subject),
            None => comparison.subject.clone(),
        };
        let mut row = vec![Cell::text(pair)];
        match Judged::new(results, comparison) {
            Some(judged) => row.extend([ratio_and_result(&judged), target(&judged)]),
            None => row.extend([Cell::none().with_detail("not measured"), Cell::text(NONE)]),
        }
        row
    };
    Table { title: String::new(), head, rows: comparisons.iter().map(row).collect() }
}

/// A line for each number of threads, and a column for each pair with one target.
fn ratios(results: &Results, task: &Task<'_>, comparisons: &[&Comparison]) -> Table {
    let mut pairs: Vec<&Comparison> = Vec::new();
    let is_same = |one: &Comparison, other: &Comparison| {
        one.subject == other.subject && one.peer == other.peer && one.target == other.target
    };
    for comparison in comparisons {
        if !pairs.iter().any(|pair| is_same(pair, comparison)) {
            pairs.push(comparison);
        }
    }
    let common = comparisons.first().map(|first| &first.subject);
    let common =
        common.filter(|common| pairs.iter().all(|pair| pair.peer.is_some() && pair.subject == **common));
    let name = |pair: &&Comparison| {
        let target = target_in_words(pair).map_or_else(String::new, |target| format!("; target: {target}"));
        match &pair.peer {
            Some(peer) if common.is_some() => format!("{peer}{target}"),
            Some(peer) => format!("{} / {peer}{target}", pair.subject),
            None => format!("{}{target}", pair.subject),
        }
    };
    let cell = |threads: Option<u32>, pair: &Comparison| {
        let is_it = |other: &&&Comparison| other.threads == threads && is_same(pair, other);
        let Some(comparison) = comparisons.iter().find(is_it) else { return Cell::text(NONE) };
        Judged::new(results, comparison).map_or_else(Cell::none, |judged| brief(&judged))
    };
    let mut head = vec!["threads".to_string()];
    head.extend(pairs.iter().map(name));
    let row = |threads| {
        let mut row = vec![count(threads)];
        row.extend(pairs.iter().map(|pair| cell(threads, pair)));
        row
    };
    let title =
        common.map_or_else(String::new, |subject| format!("Median of {subject}, divided by the median of"));
    Table { title, head, rows: task.threads().into_iter().map(row).collect() }
}

/// The ratio, or the value if there is no peer; with a remark if it is worse, uncertain, or misses the target.
fn brief(judged: &Judged<'_>) -> Cell {
    let shown = match judged.comparison.peer {
        Some(_) => ratio_of(judged),
        None => Cell::of(judged.outcome.value, &judged.comparison.unit),
    };
    let result = result(judged);
    let worse = if result.text == "better" { "" } else { result.text.as_str() };
    let missed = if judged.is_missed() { "MISSED" } else { "" };
    let remarks: Vec<_> = [worse, missed].into_iter().filter(|text| !matches!(*text, "" | NONE)).collect();
    let tone = if judged.is_missed() { Tone::Bad } else { result.tone };
    shown.with_detail(remarks.join(", ")).with_tone(tone)
}

/// All claims that Xebec does not meet: missed targets first, then the largest losses.
pub fn shortfalls(report: &Report) -> Table {
    let mut found: Vec<(&Results, Judged<'_>)> = Vec::new();
    for results in &report.experiments {
        let judged = results.comparisons.iter().filter_map(|comparison| Judged::new(results, comparison));
        found.extend(
            judged.filter(|judged| judged.is_missed() || judged.outcome.lost).map(|judged| (results, judged)),
        );
    }
    found.sort_by(|(_, one), (_, other)| {
        other.is_missed().cmp(&one.is_missed()).then(other.loss().total_cmp(&one.loss()))
    });
    let head = ["task", "Xebec", "peer", "ratio", "target"].map(String::from).into();
    Table {
        title: String::new(),
        head,
        rows: found.iter().map(|(results, judged)| shortfall(results, judged)).collect(),
    }
}

fn shortfall(results: &Results, judged: &Judged<'_>) -> Vec<Cell> {
    let Comparison { task, unit, threads, subject, peer, .. } = judged.comparison;
    let place = match threads {
        Some(threads) => format!("{}, {}", results.experiment, threads_in_words(*threads)),
        None => results.experiment.clone(),
    };
    let with_unit = |value: f64| Cell::number(value, quantity(value, unit));
    vec![
        Cell::text(task).with_detail(place),
        with_unit(judged.outcome.value).with_detail(subject),
        match (judged.outcome.peer, peer) {
            (Some(value), Some(name)) => with_unit(value).with_detail(name),
            _ => Cell::text(NONE),
        },
        ratio_and_result(judged),
        target(judged),
    ]
}

/// A number of threads in words.
pub fn threads_in_words(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn count(threads: Option<u32>) -> Cell {
    threads.map_or_else(
        || Cell::text("not counted"),
        |threads| Cell::number(threads.into(), number(threads.into())),
    )
}

fn ratio_of(judged: &Judged<'_>) -> Cell {
    judged.outcome.ratio.map_or_else(|| Cell::text(NONE), |value| Cell::number(value, ratio(value)))
}

fn ratio_and_result(judged: &Judged<'_>) -> Cell {
    match result(judged) {
        result if result.text == NONE => Cell::text(NONE),
        result => ratio_of(judged).with_tone(result.tone).with_detail(result.text),
    }
}

fn result(judged: &Judged<'_>) -> Cell {
    let within = if judged.is_within_spread() { ", within the spread" } else { "" };
    if judged.outcome.ratio.is_none() {
        return Cell::text(NONE);
    }
    match judged.loss() {
        loss if judged.outcome.lost && loss > 1.0 => {
            let tone = if within.is_empty() { Tone::Bad } else { Tone::Plain };
            Cell::text(format!("worse{within}")).with_tone(tone)
        }
        loss if loss < 1.0 => Cell::text(format!("better{within}")),
        _ => Cell::text("equal"),
    }
}

fn target(judged: &Judged<'_>) -> Cell {
    match target_in_words(judged.comparison) {
        None => Cell::text(NONE),
        Some(what) if judged.is_missed() => Cell::text(format!("{what}: MISSED")).with_tone(Tone::Bad),
        Some(what) => Cell::text(format!("{what}: reached")).with_tone(Tone::Good),
    }
}

/// What must hold, in words; none without a target.
pub fn target_in_words(comparison: &Comparison) -> Option<String> {
    let unit = &comparison.unit;
    Some(match comparison.target? {
        Target::RatioAtLeast(min) => format!("ratio at least {}", plain(min)),
        Target::RatioAtMost(max) => format!("ratio at most {}", plain(max)),
        Target::AtLeast(min) => format!("at least {}", quantity(min, unit)),
        Target::AtMost(max) => format!("at most {}", quantity(max, unit)),
    })
}

/// A round number of our own, as it was written.
fn plain(value: f64) -> String {
    let rounded = super::number::rounded(value);
    format!("{rounded}")
}

/// The tables of an experiment with their headings, in the order in which the terminal shows them.
pub fn all<'r>(results: &'r Results, only: Option<&str>) -> Vec<(Task<'r>, Vec<Table>)> {
    let wanted = tasks(results).into_iter().filter(|task| only.is_none_or(|only| only == task.name));
    let with_tables = |task: Task<'r>| {
        let mut tables = vec![values(&task)];
        tables.extend(latencies(&task));
        tables.extend(comparisons(results, &task));
        (task, tables)
    };
    wanted.map(with_tables).collect()
}
