//! A report as one HTML file: no script, nothing from the network.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::record::{Published, Results};

use super::Report;
use crate::sharing::Sharing;

use super::charts::{Chart, Palette, bars, latencies, predicted, scaling};
use super::tables::{Cell, Table, Tone, all, shortfalls};
use super::tasks::{Tally, Task, tasks};
use super::terms::TERMS;
use super::text::{explanation, heading, no_shortfalls};

const STYLE: &str = include_str!("page.css");

/// The page.
///
/// # Errors
/// A chart cannot be drawn, which is not expected.
pub fn page(report: &Report) -> anyhow::Result<String> {
    let mut experiments = Vec::new();
    for results in &report.experiments {
        experiments.push(experiment(results)?);
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Xebec benchmarks, " (report.machine.date) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (head(report)) }
                main {
                    (losses(report))
                    (contents(report))
                    @for experiment in &experiments { (experiment) }
                    (terms())
                }
            }
        }
    };
    Ok(page.into_string())
}

fn head(report: &Report) -> Markup {
    let machine = &report.machine;
    let gibibytes = machine.memory_bytes as f64 / f64::from(1 << 30);
    html! {
        h1 { "Xebec benchmarks" }
        @for warning in report.warnings() { p.warning role="note" { strong { "Warning. " } (warning) } }
        dl.facts {
            dt { "Machine" }
            dd { (machine.processor) ", " (machine.cores) " CPUs, " (format!("{gibibytes:.1}")) " GiB of memory" }
            dt { "System" } dd { (machine.system) ", " (machine.kernel) }
            dt { "Commit" } dd { code { (machine.commit) } ", " (machine.profile) }
            dt { "Command" } dd { code { (report.command) } }
            dt { "Date" } dd { (machine.date) }
            dt { "Load" } dd { (report.load()) }
        }
        details {
            summary { "Versions of the programs" }
            dl.facts {
                @for (program, version) in &machine.versions { dt { (program) } dd { (version) } }
            }
        }
    }
}

fn losses(report: &Report) -> Markup {
    let table = shortfalls(report);
    let tallies = report.experiments.iter().map(|results| Tally::of(results, &results.comparisons));
    let tally = tallies.fold(Tally::default(), Tally::plus);
    html! {
        section #losses {
            h2 { "Where Xebec loses or misses a target" }
            @if table.rows.is_empty() {
                p { (no_shortfalls(report)) }
            } @else {
                p {
                    "Missed targets first, then the largest losses. All comparisons: " (in_words(tally)) "."
                }
                (shown(&table))
            }
            @if tally.not_measured > 0 {
                p.muted {
                    (tally.not_measured) " comparisons lack a measurement; the notes of the experiments say why."
                }
            }
        }
    }
}

/// The numbers of outcomes that occurred.
fn in_words(tally: Tally) -> String {
    let mut parts = Vec::new();
    let mut add = |count: usize, what: &str| {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    };
    add(tally.better, "better than a peer");
    add(tally.worse - tally.worse_within_spread, "worse");
    add(tally.worse_within_spread, "worse within the spread");
    add(tally.reached, if tally.reached == 1 { "target reached" } else { "targets reached" });
    add(tally.missed, if tally.missed == 1 { "target missed" } else { "targets missed" });
    parts.join(", ")
}

fn contents(report: &Report) -> Markup {
    html! {
        @if report.experiments.len() > 1 {
            nav aria-label="Experiments" {
                @for results in &report.experiments {
                    a href=(format!("#{}", anchor(results))) { (results.experiment) }
                    " "
                }
                a href="#terms" { "terms" }
            }
        }
    }
}

fn anchor(results: &Results) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    format!("experiment-{}", results.experiment.chars().map(letter).collect::<String>())
}

fn experiment(results: &Results) -> anyhow::Result<Markup> {
    let palette = Palette::of(&tasks(results));
    let mut figures = Vec::new();
    for (task, tables) in all(results, None) {
        figures.push(figure(results, &task, &tables, &palette)?);
    }
    if let Some(sharing) = &results.sharing {
        figures.push(pairs(sharing)?);
    }
    Ok(html! {
        section id=(anchor(results)) {
            h2 { (results.experiment) }
            p.summary { (results.summary) }
            @if !results.source.is_empty() { p { "Follows: " (linked(&results.source)) "." } }
            (published(&results.published))
            @if figures.is_empty() { p { "Nothing was measured." } }
            div.figures { @for figure in &figures { (figure) } }
            @if !results.notes.is_empty() {
                h3 { "Notes" }
                ul { @for note in &results.notes { li { (note) } } }
            }
            p.muted { "Took " (format!("{:.0}", results.seconds)) " s." }
        }
    })
}

fn published(figures: &[Published]) -> Markup {
    html! {
        @if !figures.is_empty() {
            div.scroll {
                table.prose {
                    thead { tr { th { "published" } th { "figures" } th { "what is comparable here" } } }
                    tbody {
                        @for Published { what, figures, comparable } in figures {
                            tr { td { (what) } td { (figures) } td { (comparable) } }
                        }
                    }
                }
            }
        }
    }
}

/// A task: its charts, and its numbers below them.
fn figure(
    results: &Results,
    task: &Task<'_>,
    tables: &[Table],
    palette: &Palette<'_>,
) -> anyhow::Result<Markup> {
    let mut charts: Vec<Chart> = Vec::new();
    charts.extend(if task.is_scaling() { scaling::draw(task, palette)? } else { bars::draw(task)? });
    for threads in latencies::shown_threads(task) {
        charts.extend(latencies::draw(task, threads, palette)?);
    }
    let tally = in_words(Tally::of(results, task.comparisons.iter().copied()));
    let numbers = html! { @for table in tables { (shown(table)) } };
    let caption = if charts.is_empty() { explanation(task) } else { legible_spread(task) };
    Ok(html! {
        figure class=[(charts.len() > 1).then_some("wide")] {
            figcaption { h3 { (heading(task)) } p.muted { (caption) } }
            div.charts { @for chart in &charts { div { (legend(chart)) (PreEscaped(&chart.svg)) } } }
            @if charts.is_empty() {
                (numbers)
            } @else {
                details {
                    summary { "Numbers" @if !tally.is_empty() { span.muted { " (" (tally) ")" } } }
                    (numbers)
                }
            }
        }
    })
}

/// What operations that commute share: predicted curves, and the table.
fn pairs(sharing: &Sharing) -> anyhow::Result<Markup> {
    let chart = predicted::draw(sharing)?;
    Ok(html! {
        figure.wide {
            figcaption {
                h3 { "Cache lines that operations share, and the throughput that a model predicts" }
                p.muted { (sharing.assumptions()) }
            }
            div.charts { @if let Some(chart) = &chart { div { (legend(chart)) (PreEscaped(&chart.svg)) } } }
            details {
                summary { "Numbers" }
                @for table in &sharing.tables() { (shown(table)) }
            }
        }
    })
}

/// What the marks of a chart mean. Its axes name the unit.
fn legible_spread(task: &Task<'_>) -> String {
    let runs = task.runs_in_words();
    if task.runs().1 < 2 { runs } else { format!("Median of {runs}; thin lines: lowest and highest run") }
}

fn legend(chart: &Chart) -> Markup {
    html! {
        @if !chart.legend.is_empty() {
            ul.legend { @for key in &chart.legend { li { (PreEscaped(key.to_svg())) span { (key.name) } } } }
        }
    }
}

/// A table that scrolls in a box of its own if it is too wide.
fn shown(table: &Table) -> Markup {
    let is_numeric =
        |column: usize| table.rows.iter().filter_map(|row| row.get(column)).any(|cell| cell.value.is_some());
    let class = |column: usize| is_numeric(column).then_some("number");
    html! {
        div.scroll {
            table {
                @if !table.title.is_empty() { caption { (table.title) } }
                thead { tr { @for (column, name) in table.head.iter().enumerate() {
                    th scope="col" class=[class(column)] { (name) }
                } } }
                tbody { @for row in &table.rows { tr { @for (column, cell) in row.iter().enumerate() {
                    td class=[class(column)] { (content(cell)) }
                } } } }
            }
        }
    }
}

fn content(cell: &Cell) -> Markup {
    let tone = match cell.tone {
        Tone::Plain => None,
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
    };
    html! {
        @match cell.value.filter(|value| value.is_finite()) {
            Some(value) => data value=(value) class=[tone] { (cell.text) },
            None => span class=[tone] { (cell.text) },
        }
        @if !cell.detail.is_empty() { small { (cell.detail) } }
    }
}

fn terms() -> Markup {
    html! {
        section #terms {
            h2 { "Terms" }
            dl.terms { @for (term, meaning) in TERMS { dt { (term) } dd { (meaning) } } }
        }
    }
}

/// Text whose URLs are links.
fn linked(text: &str) -> Markup {
    let words = text.split(' ').enumerate();
    html! {
        @for (number, word) in words {
            @if number > 0 { " " }
            @if word.starts_with("https://") || word.starts_with("http://") {
                @let url = word.trim_end_matches(['.', ',', ';', ')']);
                a href=(url) { (url) } (word.get(url.len()..).unwrap_or_default())
            } @else { (word) }
        }
    }
}
