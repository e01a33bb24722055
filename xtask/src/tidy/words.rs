//! The vocabulary: words that this repository does not use, each with the field's term for what it meant.
//!
//! A word counts as a word of prose and as a part of an identifier, in any case: `WRITE_HOME` and `writeHome` hold
//! "write home". Phrases may span lines.

use super::Complaints;
use super::tree::{File, Tree};

/// Words and phrases, in lower case, and what to write instead.
const VOCABULARY: &[(&str, &str)] = &[("lookout", "watchdog")];

/// This file lists the words.
const LIST: &str = "xtask/src/tidy/words.rs";

/// No file uses a word of [`VOCABULARY`].
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
    }
}

fn begins_with(words: &[(usize, String)], phrase: &str) -> bool {
    let mut words = words.iter();
    phrase.split(' ').all(|expected| words.next().is_some_and(|(_, word)| word == expected))
}

/// The words of a file in lower case, with their lines. An identifier counts as the words it is joined of.
fn words(file: &File) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (number, line) in file.lines() {
        let mut word = String::new();
        let mut previous_is_lower = false;
        for letter in line.chars() {
            let begins_hump = previous_is_lower && letter.is_ascii_uppercase();
            if (begins_hump || !letter.is_ascii_alphabetic()) && !word.is_empty() {
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
        assert_eq!(lines, ["1", "2", "2"]);
    }

    #[test]
    fn a_phrase_may_span_lines() {
        let words = [(1, "write".to_string()), (2, "home".to_string())];
        assert!(begins_with(&words, "write home"));
        assert!(!begins_with(&words, "write home again"));
    }
}
