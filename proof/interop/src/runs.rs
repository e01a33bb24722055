//! Data ranges of a file with their hashes, for files that are too large for the hash of a manifest.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write};
use std::path::Path;

use anyhow::{Context, Result};
use read::manifest;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// Writes the file's size, and the offset, length and hash of each data range.
///
/// # Errors
/// The file cannot be read.
pub fn write(path: &Path, mut out: impl Write) -> Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let size = file.metadata()?.len();
    writeln!(out, "size {size}")?;
    let mut at = 0;
    loop {
        let begin = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(()),
            begin => begin?,
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(begin))?;
        file.seek(std::io::SeekFrom::Start(begin))?;
        let mut hasher = Sha256::new();
        let mut left = (&mut file).take(at - begin);
        let mut buffer = vec![0; 1 << 20];
        loop {
            match left.read(&mut buffer)? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            }
        }
        writeln!(out, "{begin} {} {}", at - begin, manifest::hex(&hasher.finalize()))?;
    }
}
