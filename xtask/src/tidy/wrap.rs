//! Breaks comments and Markdown text that are too wide.
//!
//! A paragraph is wrapped again from the first line that is too wide to its end: an empty line, a heading, a table, a
//! code fence or a list item. Code, strings and scripts are not changed.

use super::text::{WIDTH_MAX, is_too_wide};

/// Returns the text with wide paragraphs wrapped, `None` if nothing is too wide.
pub fn wrap(text: &str, markdown: bool) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let (mut index, mut fenced, mut changed) = (0, false, false);
    while let Some(line) = lines.get(index) {
        fenced ^= body(line, markdown).is_some_and(|(_, words)| words.starts_with("```"));
        let paragraph =
            if fenced || !is_too_wide(line, markdown) { None } else { paragraph_line(line, markdown) };
        let Some((prefix, first)) = paragraph else {
            out.push((*line).to_string());
            index += 1;
            continue;
        };
        // Further lines of a list item are indented.
        let item = first.trim_start().starts_with("- ");
        let indent = first.len() - first.trim_start().len() + if item { 2 } else { 0 };
        let mut words: Vec<&str> = first.split_whitespace().collect();
        index += 1;
        while let Some((_, rest)) =
            lines.get(index).and_then(|next| paragraph_line(next, markdown)).filter(|(next, rest)| {
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

/// The comment marker with its indentation, and the text behind it. In Markdown the whole line is text.
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

/// Marker and text of a line that may belong to a paragraph.
fn paragraph_line(line: &str, markdown: bool) -> Option<(&str, &str)> {
    let (prefix, words) = body(line, markdown)?;
    let text = words.trim_start();
    let ends = text.is_empty() || text.starts_with(['#', '|']) || text.starts_with("```");
    (!ends).then_some((prefix, words))
}

/// Whether the text begins like `1. `.
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
    fn a_wide_comment_is_wrapped_and_code_is_not() {
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
    fn list_items_are_indented() {
        let text = format!("- {}\n- other\n", "word ".repeat(30));
        let wrapped = wrap(&text, true).expect("too wide");
        let lines: Vec<&str> = wrapped.lines().collect();
        assert!(lines.len() == 3 && lines[1].starts_with("  word") && lines[2] == "- other", "{wrapped}");
    }
}
