//! Compares the manifests of a volume and of its copy, without properties that cannot be copied.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, Result, bail};
use read::manifest::{EntryType, Record};

/// Parses a record and clears what cannot be copied: inode numbers, ctime and creation time, sizes of directories, and
/// flags about allocation.
///
/// # Errors
/// A line that is not a record.
pub fn portable(line: &str) -> Result<Record> {
    let mut record = Record::from_line(line).with_context(|| format!("not a record: {line}"))?;
    (record.ino, record.ctime, record.btime) = (0, String::new(), String::new());
    record.xflags = record.xflags.map(|flags| flags & transfer::item::KEPT_FLAGS);
    if record.kind == EntryType::Dir {
        // Listing a directory for the manifest may change its atime.
        (record.size, record.atime) = (0, String::new());
    }
    Ok(record)
}

/// Returns true if two records differ at most in ctime: Linux updates it when recovery finishes a change of attributes.
///
/// # Errors
/// A line that is not a record.
pub fn equal_except_ctime(one: &str, other: &str) -> Result<bool> {
    let (one, other) = (Record::from_line(one)?, Record::from_line(other)?);
    Ok(Record { ctime: other.ctime.clone(), ..one } == other)
}

/// Compares two manifests line by line: they may have millions of lines.
///
/// # Errors
/// The first difference, or a file that cannot be read.
pub fn manifests(expected: &Path, found: &Path) -> Result<()> {
    let open = |path: &Path| {
        std::fs::File::open(path).map(std::io::BufReader::new).with_context(|| path.display().to_string())
    };
    let (mut expected, mut found) = (open(expected)?.lines(), open(found)?.lines());
    for number in 1.. {
        match (expected.next().transpose()?, found.next().transpose()?) {
            (None, None) => break,
            (Some(expected), Some(found)) => {
                let (expected, found) = (portable(&expected)?, portable(&found)?);
                if expected != found {
                    bail!("line {number}: expected {expected:?}\nfound {found:?}");
                }
            }
            (expected, found) => bail!("line {number}: expected {expected:?}\nfound {found:?}"),
        }
    }
    Ok(())
}
