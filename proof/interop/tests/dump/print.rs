//! Parses the output of `xfs_db`, and compares values.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Stdio;

use crate::tour::Structure;

/// Separator of structures in the output.
const MARK: &str = "@@@@";

/// Returns the output of `xfs_db` for each structure.
pub fn run(image: &Path, log: Option<&Path>, structures: &[Structure]) -> Vec<String> {
    let mut script = String::new();
    for structure in structures {
        writeln!(script, "echo {MARK}\n{}", structure.commands.join("\n")).unwrap();
    }
    let name = image.file_stem().unwrap().to_string_lossy();
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dump-{name}-{}.script", std::process::id()));
    std::fs::write(&path, script).unwrap();
    let mut command = needs::newest("xfs_db").unwrap();
    if let Some(log) = log {
        command.arg("-l").arg(log);
    }
    // Dates in UTC, as ours. Messages about a dirty log are ignored.
    let output = command
        .env("TZ", "UTC")
        .args(["-r", "-c"])
        .arg(format!("source {}", path.display()))
        .arg(image)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let parts: Vec<String> = text.split(MARK).skip(1).map(str::to_string).collect();
    assert_eq!(parts.len(), structures.len(), "{name}: xfs_db ended early");
    parts
}

/// Parses names and values. Rows of a table belong to its value.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once(" = ").filter(|(name, _)| !name.is_empty()) {
            last = name.to_string();
            fields.insert(last.clone(), value.trim_end().to_string());
        } else if line.starts_with(|first: char| first.is_ascii_digit())
            && let Some(value) = fields.get_mut(&last)
        {
            value.push(' ');
            value.push_str(line.trim_end());
        }
    }
    fields
}

/// Returns the first value of `xfs_db` that is missing or different in ours.
pub fn difference(ours: &str, theirs: &str) -> Option<String> {
    let (ours, theirs) = (parse(ours), parse(theirs));
    if theirs.is_empty() {
        return Some("xfs_db printed nothing".into());
    }
    theirs
        .iter()
        .find(|(name, value)| !is_intended(name, value, &theirs) && !is_same(name, value, &ours))
        .map(|(name, value)| {
            let short = |text: &str| text.chars().take(300).collect::<String>();
            format!(
                "{name}: {} is {}",
                ours.get(name).map_or("nothing".into(), |own| short(own)),
                short(value)
            )
        })
}

/// Returns true for values that only `xfs_db` prints, on purpose.
fn is_intended(name: &str, value: &str, theirs: &BTreeMap<String, String>) -> bool {
    // Zero padding.
    let padding = name == "pad" && value == "0";
    // The file type of an unused directory region, which has none: xfs_db prints an unrelated byte.
    let unused =
        name.strip_suffix(".filetype").is_some_and(|of| theirs.contains_key(&format!("{of}.freetag")));
    // xfs_db verifies the checksum of a symlink target over its first block only.
    let run = name == "crc" && theirs.contains_key("data") && value.ends_with("(bad)");
    padding || unused || run
}

fn is_same(name: &str, theirs: &str, ours: &BTreeMap<String, String>) -> bool {
    let Some(ours) = ours.get(name) else { return false };
    if theirs.starts_with('"') {
        let (theirs, ours) = (unquote(theirs), unquote(ours));
        // xfs_db prints a label beyond its end, and only the first block of a symlink target.

        let (label, target) = (name == "fname", name == "data");
        return theirs == ours || label && theirs.starts_with(&ours) || target && ours.starts_with(&theirs);
    }
    // Ours also prints the expected checksum.
    let bad = theirs.strip_suffix(')').filter(|theirs| theirs.ends_with("(bad"));
    if let (Some(theirs), Some(ours)) = (columns(theirs), columns(ours)) {
        // Older versions have fewer columns.
        return theirs.iter().all(|(name, values)| ours.get(name) == Some(values));
    }
    theirs == ours
        || bad.is_some_and(|bad| ours.starts_with(bad))
        || without_zeros(theirs) == without_zeros(ours)
}

/// Returns the columns of a table with their values; `None` if it is not a table.
fn columns(value: &str) -> Option<BTreeMap<&str, Vec<&str>>> {
    let mut rows = value.split('[').skip(1).map(|row| row.split(']').next().unwrap_or("").split(','));
    let mut table: Vec<_> = rows.next()?.map(|name| (name, Vec::new())).collect();
    for row in rows {
        table.iter_mut().zip(row).for_each(|((_, values), value)| values.push(value));
    }
    Some(table.into_iter().collect())
}

/// Returns numbers with their indices, without zeros, some of which xfs_db leaves out.
fn without_zeros(value: &str) -> Vec<&str> {
    value.split(' ').filter(|item| !matches!(item.rsplit(':').next(), Some("" | "0"))).collect()
}

/// Returns the bytes of a quoted string in either format: xfs_db escapes the control characters 7 to 13 with a letter,
/// and does not escape quotes.
fn unquote(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).as_bytes();
    let mut bytes = Vec::new();
    let mut rest = inner;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let byte = match (first, tail) {
            (b'\\', [a @ b'0'..=b'7', b, c, after @ ..]) => {
                rest = after;
                [a, b, c].iter().fold(0u32, |number, digit| number * 8 + u32::from(*digit - b'0')) as u8
            }
            (b'\\', [letter @ b'a'..=b'g', after @ ..]) => {
                rest = after;
                letter - b'a' + 7
            }
            (b'\\', [character, after @ ..]) => {
                rest = after;
                *character
            }
            _ => *first,
        };
        bytes.push(byte);
    }
    bytes
}
