//! What two volumes must have in common when one was made of the other: their manifests without what belongs to a
//! volume.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, Result, bail};
use read::manifest::{Kind, Record};

/// A record without what belongs to the volume: numbers of inodes, times that nobody can set, sizes of directories, and
/// flags that tell an allocator where to put a file or that only say how a file is stored.
///
/// # Errors
/// A line that is no record.
pub fn portable(line: &str) -> Result<Record> {
    let mut record = Record::from_line(line).with_context(|| format!("no record: {line}"))?;
    (record.ino, record.ctime, record.btime) = (0, String::new(), String::new());
    record.xflags = record.xflags.map(|flags| flags & transfer::item::KEPT_FLAGS);
    if record.kind == Kind::Dir {
        // Reading a directory, which the kernel's side has done to both, may change its time.
        (record.size, record.atime) = (0, String::new());
    }
    Ok(record)
}

/// Compares the manifests in two files, a line at a time: they may tell of millions of files.
///
/// # Errors
/// The first difference; what cannot be read.
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
