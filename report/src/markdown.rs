//! Results as Markdown, for documents.

use std::fmt::Write as _;

use crate::digest::digest;
use crate::machine::{Machine, RELEASE};
use crate::record::Results;
use crate::tables::{Cell, Table};
use crate::text::wrap;
use crate::{Report, sharing::Sharing};

/// Characters of a line of words.
const WIDTH: usize = 120;

/// An experiment: what its publication reports, and the results.
pub fn experiment(report: &Report, results: &Results) -> String {
    let mut text = String::new();
    if !results.published.is_empty() {
        let head = ["published", "figures", "what is comparable here"].map(String::from).into();
        let row =
            |of: &crate::record::Published| [&of.what, &of.figures, &of.comparable].map(Cell::text).into();
        let rows = results.published.iter().map(row).collect();
        paragraph(&mut text, &format!("{}:", results.source));
        text.push_str(&table(&Table { title: String::new(), head, rows }));
        text.push('\n');
    }
    // A trace names its own machine and commit.
    if !results.measurements.is_empty() {
        paragraph(&mut text, &run(report));
    }
    for (number, of_results) in digest(results).iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        text.push_str(&table(of_results));
    }
    if let Some(sharing) = &results.sharing {
        text.push_str(&pairs(sharing));
    }
    text
}

/// The run of results in a sentence. It says if the run was quick or the build not optimized.
fn run(report: &Report) -> String {
    let quick = if report.quick { ", a quick run with small sizes" } else { "" };
    let Machine { date, commit, profile, .. } = &report.machine;
    let build = if profile == RELEASE { String::new() } else { format!(", {profile}") };
    format!("{date}, commit {commit}, load {}{quick}{build}:", report.load())
}

/// The machine of a run, the command, and reasons to distrust it.
pub fn machine(path: &str, report: &Report) -> String {
    let (machine, warnings) = (&report.machine, report.warnings());
    let mut text = String::new();
    paragraph(
        &mut text,
        &format!(
            "- `{path}`: `{}`; {}, {} CPUs, {} GiB of memory; {}, {}; {}, commit {}, {}; load {}{}",
            report.command,
            machine.processor,
            machine.cores,
            (machine.memory_bytes + (1 << 29)) >> 30,
            machine.system,
            machine.kernel,
            machine.date,
            machine.commit,
            machine.profile,
            report.load(),
            if warnings.is_empty() { String::new() } else { format!(". **{}**", warnings.join(" ")) },
        ),
    );
    text.trim_end().replace('\n', "\n  ") + "\n"
}

/// What operations share.
fn pairs(sharing: &Sharing) -> String {
    let mut text = String::new();
    paragraph(&mut text, &format!("{}.", sharing.assumptions()));
    for (number, of_pairs) in sharing.tables().iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        paragraph(&mut text, &format!("{}:", of_pairs.title));
        text.push_str(&table(of_pairs));
    }
    text
}

/// A table.
pub fn table(table: &Table) -> String {
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(table.head.iter().map(|name| escaped(name)).collect());
    line(table.head.iter().map(|_| "---".to_string()).collect());
    table.rows.iter().for_each(|row| line(row.iter().map(shown).collect()));
    text
}

fn shown(cell: &Cell) -> String {
    match cell.detail.as_str() {
        "" => escaped(&cell.text),
        detail => escaped(&format!("{} ({detail})", cell.text)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A paragraph in lines of [`WIDTH`], and an empty line.
fn paragraph(text: &mut String, words: &str) {
    let _ = write!(text, "{}\n\n", wrap(words, WIDTH - 2).join("\n"));
}
