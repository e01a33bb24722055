//! Words that this repository does not use, each with the term of XFS, Linux or Rust to use instead.
//!
//! A word is a word of prose or a part of an identifier, in any case: `write_home` and `WriteHome` contain
//! "write home". Its plural with `s` counts, too. Phrases may span lines.

use super::Complaints;
use super::tree::{File, Tree};

/// Words and phrases, in lower case.
const VOCABULARY: &[(&str, &str)] = &[
    ("lookout", "watchdog"),
    ("vacancy", "insert slot"),
    ("vacancies", "insert slots"),
    ("home write", "metadata writeback"),
    ("rung", "rank, or level"),
    ("ladder", "order, or levels"),
    ("front door", "entry point, or public interface"),
];

/// Names of types that say nothing outside their file.
const TYPES: &[(&str, &str)] = &[];

/// First words of comments.
const COMMENT_STARTS: &[(&str, &str)] = &[];

/// The file with the lists.
const LIST: &str = "xtask/src/tidy/words.rs";

/// No file uses a word of [`VOCABULARY`], declares a type of [`TYPES`], or begins a comment line as [`COMMENT_STARTS`].
pub fn vocabulary(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.ours() && file.path != LIST) {
        let words = words(file);
        for start in 0..words.len() {
            let rest = words.get(start..).unwrap_or_default();
            for (phrase, instead) in VOCABULARY.iter().filter(|(phrase, _)| begins_with(rest, phrase)) {
                let line = rest.first().map_or(0, |(line, _)| *line);
                complaints.add(&file.path, line, format_args!("`{phrase}`: write {instead}"));
            }
        }
        let Some(rust) = &file.rust else { continue };
        for (name, line) in &rust.types {
            if let Some((_, instead)) = TYPES.iter().find(|(banned, _)| name == banned) {
                complaints.add(&file.path, *line, format_args!("type `{name}`: name it {instead}"));
            }
        }
        for (number, line) in file.lines() {
            let comment =
                line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!', ' ']));
            let Some(comment) = comment else { continue };
            for (start, instead) in COMMENT_STARTS.iter().filter(|(start, _)| comment.starts_with(start)) {
                complaints.add(&file.path, number, format_args!("`{start} ...`: {instead}"));
            }
        }
    }
}

/// Whether the words begin with a phrase, whose last word may have a plural `s`.
fn begins_with(words: &[(usize, String)], phrase: &str) -> bool {
    let mut expected = phrase.split(' ').peekable();
    let mut words = words.iter();
    while let Some(part) = expected.next() {
        let Some((_, word)) = words.next() else { return false };
        let is_plural = expected.peek().is_none() && word.strip_suffix('s') == Some(part);
        if word != part && !is_plural {
            return false;
        }
    }
    true
}

/// The words of a file in lower case, with their lines. An identifier is split into its words.
fn words(file: &File) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (number, line) in file.lines() {
        let mut word = String::new();
        let mut previous_is_lower = false;
        for letter in line.chars() {
            let begins_word = previous_is_lower && letter.is_ascii_uppercase();
            if (begins_word || !letter.is_ascii_alphabetic()) && !word.is_empty() {
                words.push((number, std::mem::take(&mut word)));
            }
            if letter.is_ascii_alphabetic() {
                word.push(letter.to_ascii_lowercase());
            }
            previous_is_lower = letter.is_ascii_lowercase();
        }
        if !word.is_empty() {
            words.push((number, word));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_prose_and_identifiers() {
        let text =
            "// The Lookout; look out\nlet x = LOOKOUT_TICK + TheLookout::new(\n/// lookouts)\n".to_string();
        let tree = Tree::of_files([("a.rs", text)]);
        let mut complaints = Complaints::default();
        vocabulary(&tree, &mut complaints);
        let lines: Vec<_> =
            complaints.lines.iter().map(|line| line.split(':').nth(1).unwrap_or("")).collect();
        assert_eq!(lines, ["1", "2", "2", "3"]);
    }

    #[test]
    fn a_phrase_may_span_lines() {
        let words = [(1, "write".to_string()), (2, "home".to_string())];
        assert!(begins_with(&words, "write home"));
        assert!(!begins_with(&words, "write home again"));
    }
}
