//! Markdown links between files of the repository.

use super::Complaints;
use super::tree::{File, Tree, join};

/// Every relative link in a Markdown file names a file or directory of the tree, and its anchor a heading there.
pub fn resolve(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.has_extension("md") && file.ours()) {
        for (number, line) in prose(file) {
            for target in targets(line) {
                if let Some(message) = broken(tree, file, target) {
                    complaints.add(&file.path, number, message);
                }
            }
        }
    }
}

/// The lines outside fenced code.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Targets of links: the text in `](...)` outside code spans.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let text = line.split('`').step_by(2);
    text.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split([')', ' ']).next())
}

fn broken(tree: &Tree, from: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() { Some(from.path.clone()) } else { join(&from.path, path) };
    let Some(path) = path.filter(|path| tree.has(path)) else {
        return Some(format!("link to `{target}`: no such file"));
    };
    let document = tree.file(&path).filter(|file| file.has_extension("md"));
    let missing = match (anchor, document) {
        (Some(anchor), Some(document)) => {
            !prose(document).any(|(_, line)| heading(line) == Some(slug(anchor)))
        }
        _ => false,
    };
    missing.then(|| format!("link to `{target}`: no such heading"))
}

fn heading(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len() && text.starts_with(' ')).then(|| slug(text.trim()))
}

/// The anchor of a heading: lower case, spaces as hyphens, no other punctuation.
fn slug(heading: &str) -> String {
    let keep = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(keep).collect()
}
