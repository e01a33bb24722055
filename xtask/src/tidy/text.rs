//! Rules about lines of text.

use super::Complaints;
use super::tree::Tree;

/// Maximum width of a line in characters.
pub const WIDTH_MAX: usize = 120;

/// Words that must not be committed, and why. They are written in halves, so that this file keeps the rule.
const WORDS: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "fix it, or describe what is missing"),
    (concat!("XX", "X"), "describe the problem"),
    (concat!("/wo", "rk/"), "a path of a single machine"),
];

/// No line is wider than [`WIDTH_MAX`], except rows of Markdown tables and lines with a URL.
pub fn line_width(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.ours()) {
        let markdown = file.has_extension("md");
        for (number, line) in file.lines().filter(|(_, line)| is_too_wide(line, markdown)) {
            let width = line.chars().count();
            complaints.add(&file.path, number, format_args!("{width} characters, at most {WIDTH_MAX}"));
        }
    }
}

/// Whether a line is too wide.
pub fn is_too_wide(line: &str, markdown: bool) -> bool {
    let cannot_break = line.contains("://") || table_row(line, markdown);
    line.chars().count() > WIDTH_MAX && !cannot_break
}

/// Whether a line is a row of a Markdown table, in a document or in a doc comment.
fn table_row(line: &str, markdown: bool) -> bool {
    let text = line.trim_start();
    let text = text.strip_prefix("//!").or(text.strip_prefix("///")).map_or(text, str::trim_start);
    text.starts_with('|') && (markdown || text.len() < line.trim_start().len())
}

/// No tab, no trailing space, no carriage return, one newline at the end.
pub fn whitespace(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.ours()) {
        for (number, line) in file.lines() {
            if line.contains('\t') {
                complaints.add(&file.path, number, "a tab");
            }
            if line.contains('\r') {
                complaints.add(&file.path, number, "a carriage return");
            }
            if line.ends_with(' ') {
                complaints.add(&file.path, number, "a space at the end");
            }
        }
        let last = file.text.lines().count();
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            complaints.add(&file.path, last, "the file must end in one newline");
        }
    }
}

/// No file contains a word of [`WORDS`]; words of letters only count as whole words.
pub fn words(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.ours()) {
        for (number, line) in file.lines() {
            for (word, why) in WORDS {
                if has_word(line, word) {
                    complaints.add(&file.path, number, format_args!("`{word}`: {why}"));
                }
            }
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let is_name = word.chars().all(char::is_alphanumeric);
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (line.get(..start), line.get(start + word.len()..));
        let joined = letter(before.and_then(|text| text.chars().next_back()))
            || letter(after.and_then(|text| text.chars().next()));
        !(is_name && joined)
    })
}
