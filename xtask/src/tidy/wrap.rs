//! Breaks comments and Markdown text that are wider than the limit: the one complaint a program can mend.
//!
//! From the first line that is too wide, the words of the paragraph flow down to its end. Paragraphs end at an empty
//! line, a heading, a table, a code fence or an item of a list. Code, strings and scripts are left to their author.

use super::text::{WIDTH_MAX, is_too_wide};

/// The text with its wide paragraphs broken, `None` where nothing needs it.
pub fn wrap(text: &str, markdown: bool) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let (mut index, mut fenced, mut changed) = (0, false, false);
    while let Some(line) = lines.get(index) {
        fenced ^= body(line, markdown).is_some_and(|(_, words)| words.starts_with("```"));
        let paragraph = if fenced || !is_too_wide(line, markdown) { None } else { part(line, markdown) };
        let Some((prefix, first)) = paragraph else {
            out.push((*line).to_string());
            index += 1;
            continue;
        };
        // Further lines of an item stand below its words.
        let item = first.trim_start().starts_with("- ");
        let indent = first.len() - first.trim_start().len() + if item { 2 } else { 0 };
        let mut words: Vec<&str> = first.split_whitespace().collect();
        index += 1;
        while let Some((_, rest)) =
            lines.get(index).and_then(|next| part(next, markdown)).filter(|(next, rest)| {
                *next == prefix && !rest.trim_start().starts_with("- ") && !item_number(rest)
            })
        {
            words.extend(rest.split_whitespace());
            index += 1;
        }
        let lead = first.len() - first.trim_start().len();
        flow(
            &words,
            &format!("{prefix}{}", " ".repeat(lead)),
            &format!("{prefix}{}", " ".repeat(indent)),
            &mut out,
        );
        changed = true;
    }
    changed.then(|| out.join("\n") + "\n")
}

/// Comment mark with its indentation, and the words behind it. In Markdown every line is words.
fn body(line: &str, markdown: bool) -> Option<(&str, &str)> {
    if markdown {
        return Some(("", line));
    }
    let start = line.len() - line.trim_start().len();
    let mark = ["//! ", "/// ", "// "]
        .into_iter()
        .find(|mark| line.get(start..).is_some_and(|rest| rest.starts_with(mark)))?;
    line.split_at_checked(start + mark.len())
}

/// The same for a line that may be part of a paragraph.
fn part(line: &str, markdown: bool) -> Option<(&str, &str)> {
    let (prefix, words) = body(line, markdown)?;
    let text = words.trim_start();
    let ends = text.is_empty() || text.starts_with(['#', '|']) || text.starts_with("```");
    (!ends).then_some((prefix, words))
}

/// Whether the words begin as `1. ` does.
fn item_number(words: &str) -> bool {
    let rest = words.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < words.trim_start().len() && rest.starts_with(". ")
}

fn flow(words: &[&str], first: &str, further: &str, out: &mut Vec<String>) {
    let mut line = first.to_string();
    let mut empty = true;
    for word in words {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH_MAX {
            out.push(std::mem::replace(&mut line, further.to_string()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_comment_flows_into_the_next_line_and_code_stays() {
        let wide = "word ".repeat(30);
        let text = format!("    /// {wide}\n    /// tail.\n    ///\n    /// next\n    let x = \"{wide}\";\n");
        let wrapped = wrap(&text, false).expect("too wide");
        let expected = format!(
            "    /// {}\n    /// {}tail.\n    ///\n    /// next\n    let x = \"{wide}\";\n",
            "word ".repeat(22).trim_end(),
            "word ".repeat(8)
        );
        assert_eq!(wrapped, expected);
        let again = wrap(&wrapped, false);
        assert_eq!(again, None);
    }

    #[test]
    fn items_of_lists_hang() {
        let text = format!("- {}\n- other\n", "word ".repeat(30));
        let wrapped = wrap(&text, true).expect("too wide");
        let lines: Vec<&str> = wrapped.lines().collect();
        assert!(lines.len() == 3 && lines[1].starts_with("  word") && lines[2] == "- other", "{wrapped}");
    }
}
