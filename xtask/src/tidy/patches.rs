//! Patches of this repository, which must apply to it.

use super::Complaints;
use super::tree::{File, Tree};

/// The old lines of each hunk of a patch, context and removed ones, occur one after another in the file that it names.
/// Line numbers of hunks do not matter, as `git apply` looks for the lines.
pub fn apply(tree: &Tree, complaints: &mut Complaints) {
    for patch in tree.files().filter(|file| file.has_extension("patch") && file.ours()) {
        let hunks = hunks(patch);
        if hunks.is_empty() {
            complaints.add(&patch.path, 1, "patch without hunks");
        }
        for hunk in hunks {
            if let Some(message) = mismatch(tree, &hunk) {
                complaints.add(&patch.path, hunk.line, message);
            }
        }
    }
}

/// One hunk of a patch.
struct Hunk<'p> {
    /// Line of the patch with its header.
    line: usize,
    /// Path of the file that it changes; empty for a new file.
    target: &'p str,
    /// Context and removed lines.
    old: Vec<&'p str>,
}

fn hunks(patch: &File) -> Vec<Hunk<'_>> {
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let mut target = "";
    // Old lines of the hunk that are still to come, and new ones.
    let mut rest = (0, 0);
    for (number, line) in patch.lines() {
        if rest == (0, 0) {
            if let Some(path) = line.strip_prefix("--- ") {
                target = path.strip_prefix("a/").unwrap_or_default();
            } else if let Some(lengths) = lengths(line) {
                rest = lengths;
                hunks.push(Hunk { line: number, target, old: Vec::new() });
            }
            continue;
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        match line.split_at_checked(1) {
            Some(("+", _)) => rest.1 = usize::saturating_sub(rest.1, 1),
            Some(("-", text)) => {
                rest.0 = usize::saturating_sub(rest.0, 1);
                hunk.old.push(text);
            }
            // "No newline at end of file".
            Some(("\\", _)) => {}
            // An empty line is a blank line of context whose space was removed.
            context => {
                rest = (usize::saturating_sub(rest.0, 1), usize::saturating_sub(rest.1, 1));
                hunk.old.push(context.map_or("", |(_, text)| text));
            }
        }
    }
    hunks
}

/// The numbers of old and new lines in the header of a hunk, `@@ -FIRST[,LINES] +FIRST[,LINES] @@`.
fn lengths(header: &str) -> Option<(usize, usize)> {
    let mut ranges = header.strip_prefix("@@ ")?.split(' ');
    let mut length = |sign| {
        let range = ranges.next()?.strip_prefix(sign)?;
        range.split_once(',').map_or(Some(1), |(_, lines)| lines.parse().ok())
    };
    Some((length('-')?, length('+')?))
}

fn mismatch(tree: &Tree, hunk: &Hunk<'_>) -> Option<String> {
    if hunk.target.is_empty() {
        return None;
    }
    let Some(file) = tree.file(hunk.target) else {
        return Some(format!("`{}` does not exist", hunk.target));
    };
    let lines: Vec<&str> = file.text.lines().collect();
    let occurs = hunk.old.is_empty() || lines.windows(hunk.old.len()).any(|window| window == hunk.old);
    (!occurs).then(|| format!("the hunk does not apply to `{}`: update the patch", hunk.target))
}
