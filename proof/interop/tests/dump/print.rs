//! `xfs_db`'s output taken apart, and when two values are the same.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Stdio;

use crate::tour::Stop;

/// Between the structures in the output of one run.
const MARK: &str = "@@@@";

/// What `xfs_db` prints of each stop.
pub fn run(image: &Path, log: Option<&Path>, stops: &[Stop]) -> Vec<String> {
    let mut script = String::new();
    for stop in stops {
        writeln!(script, "echo {MARK}\n{}", stop.commands.join("\n")).unwrap();
    }
    let name = image.file_stem().unwrap().to_string_lossy();
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dump-{name}-{}.script", std::process::id()));
    std::fs::write(&path, script).unwrap();
    let mut command = needs::newest("xfs_db").unwrap();
    if let Some(log) = log {
        command.arg("-l").arg(log);
    }
    // Dates in UTC, as ours are. A dirty log makes it complain, and print all the same.
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
    assert_eq!(parts.len(), stops.len(), "{name}: xfs_db stopped before its end");
    parts
}

/// The names and values of a print. Rows of a table are part of its value.
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

/// The first value of theirs that ours lacks or that differs.
pub fn difference(ours: &str, theirs: &str) -> Option<String> {
    let (ours, theirs) = (parse(ours), parse(theirs));
    if theirs.is_empty() {
        return Some("xfs_db printed nothing".into());
    }
    theirs.iter().find(|(name, value)| !is_meant(name, value, &theirs) && !is_same(name, value, &ours)).map(
        |(name, value)| {
            let short = |text: &str| text.chars().take(300).collect::<String>();
            format!(
                "{name}: {} is {}",
                ours.get(name).map_or("nothing".into(), |own| short(own)),
                short(value)
            )
        },
    )
}

/// What they print and we do not, on purpose.
fn is_meant(name: &str, value: &str, theirs: &BTreeMap<String, String>) -> bool {
    // Padding that is zero.
    let padding = name == "pad" && value == "0";
    // The type byte of an unused region of a directory: it has none, and what they print lies elsewhere.
    let unused =
        name.strip_suffix(".filetype").is_some_and(|of| theirs.contains_key(&format!("{of}.freetag")));
    // They take the first block of a symbolic link's target for all of it: the checksum covers the whole run.
    let run = name == "crc" && theirs.contains_key("data") && value.ends_with("(bad)");
    padding || unused || run
}

fn is_same(name: &str, theirs: &str, ours: &BTreeMap<String, String>) -> bool {
    let Some(ours) = ours.get(name) else { return false };
    if theirs.starts_with('"') {
        let (theirs, ours) = (unquote(theirs), unquote(ours));
        // The label: they show what is behind its end too.
        // Of a symbolic link's target they show the first block.
        let (label, target) = (name == "fname", name == "data");
        return theirs == ours || label && theirs.starts_with(&ours) || target && ours.starts_with(&theirs);
    }
    // Ours goes on with what the checksum should be.
    let bad = theirs.strip_suffix(')').filter(|theirs| theirs.ends_with("(bad"));
    if let (Some(theirs), Some(ours)) = (columns(theirs), columns(ours)) {
        // An older one knows fewer columns.
        return theirs.iter().all(|(name, values)| ours.get(name) == Some(values));
    }
    theirs == ours
        || bad.is_some_and(|bad| ours.starts_with(bad))
        || without_zeros(theirs) == without_zeros(ours)
}

/// The columns of a table, each with its values; `None` for what is no table.
fn columns(value: &str) -> Option<BTreeMap<&str, Vec<&str>>> {
    let mut rows = value.split('[').skip(1).map(|row| row.split(']').next().unwrap_or("").split(','));
    let mut table: Vec<_> = rows.next()?.map(|name| (name, Vec::new())).collect();
    for row in rows {
        table.iter_mut().zip(row).for_each(|((_, values), value)| values.push(value));
    }
    Some(table.into_iter().collect())
}

/// A number, or numbers in a row with their indexes, without those that are zero: they leave out some of these.
fn without_zeros(value: &str) -> Vec<&str> {
    value.split(' ').filter(|item| !matches!(item.rsplit(':').next(), Some("" | "0"))).collect()
}

/// The bytes of a string in quotes, in either form: theirs escapes the seventh to the thirteenth control character by a
/// letter, and quotes nothing.
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
