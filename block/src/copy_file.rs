//! Copies a file of the host to a new one.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;

use rustix::fs::ioctl_ficlone;

use crate::device::{Device, Durability};
use crate::error::{DeviceError, errno_of};
use crate::file::FileDevice;
use crate::sys::next_data;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Why a file could not be copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum CopyFileError {
    /// The source cannot be read, or became shorter.
    Read(io::Error),
    /// The copy cannot be written.
    Write(DeviceError),
    /// The permissions of the copy cannot be set.
    Permissions(io::Error),
    /// The callback stopped the copy.
    Stopped,
}

impl CopyFileError {
    /// The errno of the cause, if it has one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Read(error) | Self::Permissions(error) => Some(errno_of(error)),
            Self::Write(error) => Some(error.errno()),
            Self::Stopped => None,
        }
    }
}

impl fmt::Display for CopyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) | Self::Permissions(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
            Self::Stopped => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for CopyFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) | Self::Permissions(error) => Some(error),
            Self::Write(error) => Some(error),
            Self::Stopped => None,
        }
    }
}

/// Copies contents and permissions of a file to a new one, which has the same length and no data yet. Returns whether
/// both share their blocks, which some file systems can do (reflink); otherwise data is copied, and holes and zeros
/// become holes. `progress` gets the number of bytes that are done, before the first and after each piece.
///
/// # Errors
/// See [`CopyFileError`].
pub fn copy_file(
    source: &File,
    target: &FileDevice,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<bool, CopyFileError> {
    let metadata = source.metadata().map_err(CopyFileError::Read)?;
    report(progress, 0)?;
    let is_shared = ioctl_ficlone(target, source).is_ok();
    if !is_shared {
        copy_data(source, target, metadata.len(), progress)?;
    }
    target.file().set_permissions(metadata.permissions()).map_err(CopyFileError::Permissions)?;
    report(progress, metadata.len())?;
    Ok(is_shared)
}

fn report(progress: &mut dyn FnMut(u64) -> ControlFlow<()>, done: u64) -> Result<(), CopyFileError> {
    match progress(done) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(CopyFileError::Stopped),
    }
}

/// Copies data and leaves out zeros.
fn copy_data(
    source: &File,
    target: &FileDevice,
    length: u64,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), CopyFileError> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while let Some(data) = next_data(source, at, length).map_err(CopyFileError::Read)? {
        at = data.start;
        while at < data.end {
            let wanted = (data.end - at).min(PIECE as u64) as usize;
            let Some(bytes) = piece.get_mut(..wanted) else { break };
            source.read_exact_at(bytes, at).map_err(CopyFileError::Read)?;
            if bytes.iter().any(|byte| *byte != 0) {
                target.write_at(at, bytes, Durability::Buffered).map_err(CopyFileError::Write)?;
            }
            at += wanted as u64;
            report(progress, at)?;
        }
    }
    // To `next_data`, a missing end is a hole.
    match source.metadata().map_err(CopyFileError::Read)?.len() < length {
        true => Err(CopyFileError::Read(io::ErrorKind::UnexpectedEof.into())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use super::*;
    use crate::create::NewFile;
    use crate::open::OpenOptions;

    const LENGTH: u64 = 8 * PIECE as u64 + 77;

    /// A sparse file: data at the start, zeros, a hole, data up to the end.
    fn source(path: &Path) -> File {
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(LENGTH).unwrap();
        file.write_all_at(&vec![7; 10_000], 0).unwrap();
        file.write_all_at(&vec![0; 2 * PIECE], PIECE as u64).unwrap();
        file.write_all_at(&vec![9; 3 * PIECE], LENGTH - 3 * PIECE as u64).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o640)).unwrap();
        file
    }

    fn new_file(path: &Path) -> NewFile {
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        NewFile::create(path, LENGTH, &options).unwrap()
    }

    fn go_on(_: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn a_copy_has_contents_permissions_and_holes() {
        let folder = tempfile::tempdir().unwrap();
        let [from, whole, data] = ["from", "whole", "data"].map(|name| folder.path().join(name));
        let file = source(&from);
        let mut done = Vec::new();
        let new = new_file(&whole);
        copy_file(&file, new.device(), &mut |bytes| {
            done.push(bytes);
            ControlFlow::Continue(())
        })
        .unwrap();
        new.publish().unwrap();
        assert!(done.is_sorted() && done.first() == Some(&0) && done.last() == Some(&LENGTH), "{done:?}");
        assert_eq!(std::fs::metadata(&whole).unwrap().mode() & 0o7777, 0o640);
        // Where the file system shares blocks, `copy_file` does not copy data.
        let new = new_file(&data);
        copy_data(&file, new.device(), LENGTH, &mut go_on).unwrap();
        new.publish().unwrap();
        for copy in [whole, data] {
            assert!(std::fs::read(&copy).unwrap() == std::fs::read(&from).unwrap(), "{copy:?}");
            assert!(std::fs::metadata(&copy).unwrap().blocks() < 5 << 11, "{copy:?}: it is not sparse");
        }
    }

    #[test]
    fn a_copy_can_be_stopped_at_its_start_and_between_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let file = source(&folder.path().join("from"));
        let new = new_file(&folder.path().join("to"));
        let stopped = copy_file(&file, new.device(), &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(CopyFileError::Stopped)), "{stopped:?}");
        let mut pieces = 0;
        let stopped = copy_data(&file, new.device(), LENGTH, &mut |_| {
            pieces += 1;
            if pieces == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(CopyFileError::Stopped)) && pieces == 2, "{stopped:?} {pieces}");
    }

    #[test]
    fn a_source_that_becomes_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = source(&folder.path().join("from"));
        let new = new_file(&folder.path().join("to"));
        let failed = copy_data(&file, new.device(), LENGTH, &mut |_| {
            file.set_len(LENGTH - 1).unwrap();
            ControlFlow::Continue(())
        });
        assert!(matches!(failed, Err(CopyFileError::Read(_))), "{failed:?}");
    }

    #[test]
    fn data_is_found_behind_holes() {
        let folder = tempfile::tempdir().unwrap();
        let file = source(&folder.path().join("from"));
        let first = next_data(&file, 0, LENGTH).unwrap().unwrap();
        assert!(first.start == 0 && first.end >= 10_000, "{first:?}");
        let last = next_data(&file, LENGTH - 1, LENGTH).unwrap();
        assert_eq!(last, Some(LENGTH - 1..LENGTH));
        assert_eq!(next_data(&file, LENGTH, LENGTH).unwrap(), None);
        file.set_len(LENGTH * 2).unwrap();
        assert_eq!(next_data(&file, LENGTH + (1 << 16), LENGTH * 2).unwrap(), None);
    }
}
