//! Results on a terminal of 80 to 120 columns.

use std::fmt::Write as _;

use crate::record::Results;

use super::Report;
use super::number::{unit_and_direction, unit_in_words};
use super::tables::{Cell, Table, Tone, all, shortfalls, threads_in_words};
use super::tasks::{Tally, Task};
use super::terms::TERMS;

/// Columns that a table has at most, if it can be divided.
const WIDTH_MAX: usize = 120;
/// Words are broken into lines of this width.
const WIDTH_TEXT: usize = 100;
/// Widths of a column of words. The first with which a table fits is used.
const WIDTHS_WORDS: [usize; 4] = [28, 24, 20, 16];
/// A space at which a line is not broken.
const GLUE: &str = "\u{a0}";

/// Prints the machine, the versions, and reasons to distrust the numbers.
pub fn print_head(report: &Report) {
    print!("{}", head(report));
}

/// Prints what an experiment is, before its tasks.
pub fn print_opening(results: &Results) {
    print!("{}", opening(results));
}

/// Prints what an experiment has beside its tasks.
pub fn print_closing(results: &Results) {
    print!("{}", closing(results));
}

/// Prints one task of an experiment.
pub fn print_task(results: &Results, task: &str) {
    print!("{}", blocks(results, Some(task)));
}

/// Prints what Xebec did not reach, and the terms.
pub fn print_foot(report: &Report) {
    print!("{}", foot(report));
}

/// What [`print_head`] prints.
pub fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut lines = vec![
        (
            "machine",
            format!(
                "{}, {} CPUs, {} MiB of memory",
                machine.processor,
                machine.cores,
                machine.memory_bytes >> 20
            ),
        ),
        ("system", format!("{}, {}", machine.system, machine.kernel)),
        ("load", report.load()),
        ("date", machine.date.clone()),
        ("commit", format!("{}, {}", machine.commit, machine.profile)),
        ("command", report.command.clone()),
    ];
    lines.extend(
        machine.versions.iter().map(|(program, version)| ("program", format!("{program}: {version}"))),
    );
    // Whether it finishes is not known before the first run.
    let begun = Report { finished: true, experiments: Vec::new(), ..report.clone() };
    lines.extend(begun.warnings().into_iter().map(|warning| ("WARNING", warning)));
    let mut text = String::new();
    for (name, what) in lines.iter().filter(|(_, what)| !what.is_empty()) {
        let _ = writeln!(text, "{name:<9} {}", wrap(what, WIDTH_TEXT - 10).join("\n          "));
    }
    text
}

/// What [`print_opening`] prints.
pub fn opening(results: &Results) -> String {
    let mut text = format!("\n== {} ==\n", results.experiment);
    paragraph(&mut text, "", &results.summary);
    paragraph(&mut text, "", &results.source);
    text
}

/// What [`print_closing`] prints: what operations share, and notes.
pub fn closing(results: &Results) -> String {
    let mut text = pairs(results);
    for note in &results.notes {
        text.push('\n');
        paragraph(&mut text, "Note: ", note);
    }
    text
}

/// What [`print_task`] prints: a block for each task.
pub fn blocks(results: &Results, only: Option<&str>) -> String {
    let mut text = String::new();
    for (task, tables) in all(results, only) {
        text.push('\n');
        paragraph(&mut text, "", &heading(&task));
        paragraph(&mut text, "  ", &explanation(&task));
        for table in &tables {
            text.push_str(&render(table));
        }
    }
    text
}

/// What operations that commute share.
fn pairs(results: &Results) -> String {
    let Some(sharing) = &results.sharing else { return String::new() };
    let mut text = String::from("\n");
    paragraph(&mut text, "", &sharing.assumptions());
    sharing.tables().iter().for_each(|table| text.push_str(&render(table)));
    text
}

/// What [`print_foot`] prints.
pub fn foot(report: &Report) -> String {
    let mut text = String::new();
    let missed = shortfalls(report);
    text.push('\n');
    if missed.rows.is_empty() {
        paragraph(&mut text, "", &no_shortfalls(report));
    } else {
        text.push_str("Where Xebec is worse than a peer or misses a target:\n");
        text.push_str(&render(&missed));
    }
    text.push('\n');
    for (term, meaning) in TERMS {
        paragraph(&mut text, "", &format!("{term}: {meaning}"));
    }
    text
}

/// The sentence in place of an empty table of shortfalls.
pub fn no_shortfalls(report: &Report) -> String {
    let tallies = report.experiments.iter().map(|results| Tally::of(results, &results.comparisons));
    let tally = tallies.fold(Tally::default(), Tally::plus);
    if tally.better + tally.reached == 0 {
        return "Nothing was compared with a peer or a target.".into();
    }
    "Xebec is not worse than any peer, and reaches all targets.".into()
}

/// The name of a task, with the number of threads if there is only one number.
pub fn heading(task: &Task<'_>) -> String {
    match task.threads()[..] {
        [Some(threads)] => format!("{}, {}", task.name, threads_in_words(threads)),
        _ => task.name.into(),
    }
}

/// The unit, the direction and the number of runs.
pub fn explanation(task: &Task<'_>) -> String {
    let unit = unit_and_direction(&unit_in_words(task.unit), task.less_is_better);
    let runs = task.runs_in_words();
    if task.is_scaling() && task.runs().1 > 1 {
        return format!("{unit}; median of {runs}, with the lowest and the highest in parentheses");
    }
    format!("{unit}; {runs}")
}

/// A table as text. One that is too wide is divided by columns; each part repeats the first.
pub fn render(table: &Table) -> String {
    let widths = |cap| (0..table.head.len()).map(|column| width(table, column, cap)).collect::<Vec<_>>();
    let fits = |widths: &Vec<usize>| widths.iter().map(|width| width + 2).sum::<usize>() <= WIDTH_MAX;
    let widths = WIDTHS_WORDS.map(widths).into_iter().find(fits).unwrap_or_else(|| widths(WIDTHS_WORDS[0]));
    let mut text = String::new();
    if !table.title.is_empty() {
        let _ = writeln!(text, "  {}", table.title);
    }
    let mut begin = 1;
    while begin < widths.len().max(2) {
        let mut end = begin;
        let mut total = 2 + widths.first().copied().unwrap_or(0);
        while let Some(width) = widths.get(end) {
            total += width + 2;
            if total > WIDTH_MAX && end > begin {
                break;
            }
            end += 1;
        }
        let columns: Vec<usize> = std::iter::once(0).chain(begin..end).collect();
        part(&mut text, table, &columns, &widths);
        begin = end.max(begin + 1);
    }
    text
}

fn part(text: &mut String, table: &Table, columns: &[usize], widths: &[usize]) {
    let head = |column: &usize| table.head.get(*column).cloned().unwrap_or_default();
    line(text, table, columns, widths, &columns.iter().map(head).collect::<Vec<_>>());
    let rules: Vec<String> =
        columns.iter().map(|column| "-".repeat(widths.get(*column).copied().unwrap_or(0))).collect();
    line(text, table, columns, widths, &rules);
    for row in &table.rows {
        let shown = |column: &usize| row.get(*column).map(shown).unwrap_or_default();
        line(text, table, columns, widths, &columns.iter().map(shown).collect::<Vec<_>>());
    }
}

/// One row, in as many lines as its cells need.
fn line(text: &mut String, table: &Table, columns: &[usize], widths: &[usize], cells: &[String]) {
    let width = |column: &usize| widths.get(*column).copied().unwrap_or(0);
    let broken: Vec<Vec<String>> =
        columns.iter().zip(cells).map(|(column, cell)| wrap(cell, width(column))).collect();
    for number in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
        let mut shown = String::new();
        for (column, lines) in columns.iter().zip(&broken) {
            let (cell, width) = (lines.get(number).map_or("", String::as_str), width(column));
            let _ = if is_numeric(table, *column) {
                write!(shown, "  {cell:>width$}")
            } else {
                write!(shown, "  {cell:<width$}")
            };
        }
        let _ = writeln!(text, "{}", shown.trim_end().replace(GLUE, " "));
    }
}

fn shown(cell: &Cell) -> String {
    let text = match cell.detail.as_str() {
        "" => cell.text.clone(),
        detail => format!("{} ({detail})", cell.text),
    };
    // There is no color.
    let text = if cell.tone == Tone::Bad { text.replacen("worse", "WORSE", 1) } else { text };
    let is_spread = cell.value.is_some() && cell.detail.starts_with(|letter: char| letter.is_ascii_digit());
    if is_spread { text.replace(' ', GLUE) } else { text }
}

fn is_numeric(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|row| row.get(column));
    cells.any(|cell| cell.value.is_some())
}

/// A column is as wide as its longest cell up to `cap`, or as its longest word. Its heading is broken.
fn width(table: &Table, column: usize, cap: usize) -> usize {
    let cells = || table.rows.iter().filter_map(|row| row.get(column)).map(shown);
    let widest = cells().map(|text| text.chars().count()).max().unwrap_or(0);
    let heading = table.head.get(column).map_or("", String::as_str);
    let longest_word = |text: &str| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    let words = cells().map(|text| longest_word(&text)).max().unwrap_or(0);
    let heading_width = heading.chars().count().min(cap).max(longest_word(heading));
    widest.min(cap).max(words).max(heading_width)
}

fn paragraph(text: &mut String, before: &str, words: &str) {
    if words.is_empty() {
        return;
    }
    let indent = " ".repeat(before.len());
    for (number, line) in wrap(words, WIDTH_TEXT - before.len()).iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if number == 0 { before } else { &indent });
    }
}

/// Breaks words into lines. A word that is longer than a line has a line for itself.
pub fn wrap(words: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in words.split([' ', '\n']).filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}
