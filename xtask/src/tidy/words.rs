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
    ("write home", "metadata writeback"),
    ("writes home", "writes metadata back"),
    ("written home", "written back"),
    ("goes home", "is written back"),
    ("drop rights", "remove privileges"),
    ("table of room", "reservation"),
    ("crew", "worker pool"),
    ("bell", "wakeup, or notification"),
    ("glance", "uncached stat, or survey"),
    ("bequeath", "inherit"),
    ("in vain", "without progress"),
    ("rung", "rank, or level"),
    ("ladder", "order, or levels"),
    ("front door", "entry point, or public interface"),
    ("chore", "task"),
];

/// Names of types that say nothing outside their file.
const TYPES: &[(&str, &str)] = &[
    ("Filling", "after what is written: BulkWriter"),
    ("Look", "after what is examined"),
    ("Told", "after what is reported"),
    ("Choice", "after what is chosen"),
    ("Went", "after the call: CallResult"),
    ("Left", "after what is left: ActorResult"),
    ("Site", "after the structure: MetadataBlock"),
];

/// First words of comments.
const COMMENT_STARTS: &[(&str, &str)] = &[
    ("As told", "say what it does"),
    ("Its number", "name the number: inode number, AG number"),
    ("Whoever", "name the caller, the thread or the program"),
];

/// The file with the lists.
const LIST: &str = "xtask/src/tidy/words.rs";

/// No file uses a word of [`VOCABULARY`], declares a type of [`TYPES`], or begins a comment line as [`COMMENT_STARTS`].
pub fn vocabulary(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.ours() && file.path != LIST) {
        let words = words(file);
        for start in 0..words.len() {
            let rest = words.get(start..).unwrap_or_default();
            for (phrase, instead) in VOCABULARY.iter().filter(|(phrase, _)| begins_with(rest, phrase)) {
                let line = rest.first().map_or(0, |word| word.line);
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

/// A word of a file.
struct Word {
    line: usize,
    /// In lower case.
    text: String,
    /// Whether no punctuation separates it from the word before, so that both may belong to a phrase.
    follows: bool,
}

/// Whether the words begin with a phrase, whose last word may have a plural `s`.
fn begins_with(words: &[Word], phrase: &str) -> bool {
    let mut expected = phrase.split(' ').enumerate().peekable();
    let mut words = words.iter();
    while let Some((index, part)) = expected.next() {
        let Some(word) = words.next() else { return false };
        let is_plural = expected.peek().is_none() && word.text.strip_suffix('s') == Some(part);
        if word.text != part && !is_plural || index > 0 && !word.follows {
            return false;
        }
    }
    true
}

/// The words of a file. An identifier is split into its words.
fn words(file: &File) -> Vec<Word> {
    let mut words = Vec::new();
    let mut follows = true;
    for (line, text) in file.lines() {
        let mut word = String::new();
        let mut previous_is_lower = false;
        for letter in text.chars().chain([' ']) {
            let begins_word = previous_is_lower && letter.is_ascii_uppercase();
            if (begins_word || !letter.is_ascii_alphabetic()) && !word.is_empty() {
                words.push(Word { line, text: std::mem::take(&mut word), follows });
                follows = true;
            }
            if letter.is_ascii_alphabetic() {
                word.push(letter.to_ascii_lowercase());
            } else {
                follows &= matches!(letter, ' ' | '_' | '-' | '/' | '!' | '#' | '*');
            }
            previous_is_lower = letter.is_ascii_lowercase();
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
    fn a_phrase_may_span_lines_but_not_punctuation() {
        let found = |text: &str, phrase: &str| {
            let tree = Tree::of_files([("a.rs", text.to_string())]);
            let file = tree.file("a.rs").expect("it was added");
            let words = words(file);
            (0..words.len()).any(|start| begins_with(&words[start..], phrase))
        };
        assert!(found("/// drop\n/// rights\n", "drop rights"));
        assert!(found("fn drop_rights() {}", "drop rights"));
        assert!(!found("drop(rights)", "drop rights"));
        assert!(!found("drop", "drop rights"));
    }
}
