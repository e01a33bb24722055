//! A file that is not complete yet: `NAME.partial`. It is as long as the contents and a record behind them, which says
//! whose contents they are, and up to where they are complete and stable.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use block::{Device, DeviceError, Durability, FileDevice, Io, OpenError, OpenOptions, ReplacedFile};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Bytes of the record.
const RECORD: usize = 512;
const MAGIC: &str = "xebec pull 1";

/// A file that is not complete yet.
pub struct PartialFile {
    device: FileDevice,
    partial: PathBuf,
    target: PathBuf,
    replaced: Option<ReplacedFile>,
    size: u64,
    state: String,
}

fn failed(path: &Path, source: impl Into<io::Error>) -> OpenError {
    OpenError::Make { path: path.to_owned(), source: source.into() }
}

impl PartialFile {
    /// Opens the partial file of `target` for contents of `size` bytes, or creates it. `state` identifies the contents.
    /// Returns also up to where they are complete: nowhere, if the file is for others.
    ///
    /// # Errors
    /// [`OpenError`]: `target` exists and is not to be replaced, or one of both files is in use.
    pub fn open(
        target: &Path,
        size: u64,
        state: &str,
        (replaces, wait): (bool, Option<Duration>),
    ) -> Result<(Self, u64), OpenError> {
        if !replaces && target.symlink_metadata().is_ok() {
            return Err(failed(target, Errno::EXIST));
        }
        let replaced = replaces.then(|| ReplacedFile::lock(target, wait)).transpose()?;
        let mut name = target.file_name().ok_or_else(|| failed(target, Errno::INVAL))?.to_owned();
        name.push(".partial");
        let partial = target.with_file_name(name);
        // Not through a symbolic link: the file is truncated.
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let mut create = fs::OpenOptions::new();
        let created = create.write(true).create(true).truncate(false).custom_flags(flags).open(&partial);
        created.map_err(|error| failed(&partial, error))?;
        let options = OpenOptions { io: Io::Pread, writable: true, wait, ..OpenOptions::default() };
        let device = FileDevice::open(&partial, &options)?;
        let (target, state) = (target.to_owned(), state.to_owned());
        let file = Self { device, partial, target, replaced, size, state };
        if !file.is_partial() {
            let reason = "it is not an incomplete copy of a volume: rename or remove it";
            return Err(failed(&file.partial, io::Error::new(io::ErrorKind::AlreadyExists, reason)));
        }
        let done = file.recorded().unwrap_or(0);
        if done == 0 {
            file.clear().map_err(OpenError::Device)?;
        }
        Ok((file, done))
    }

    /// The device for the contents.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Whether the file is new, or was made by another pull.
    fn is_partial(&self) -> bool {
        let (mut start, size) = ([0; MAGIC.len()], self.device.size());
        let read = size.checked_sub(RECORD as u64).map(|record| self.device.read_at(record, &mut start));
        size == 0 || matches!(read, Some(Ok(()))) && start == *MAGIC.as_bytes()
    }

    /// Up to where the contents are complete; `None` if this is the file of others.
    fn recorded(&self) -> Option<u64> {
        let mut record = [0; RECORD];
        if self.device.size() != self.size + RECORD as u64 {
            return None;
        }
        self.device.read_at(self.size, &mut record).ok()?;
        let text = std::str::from_utf8(&record).ok()?;
        let mut lines = text.lines();
        let is_own = lines.next() == Some(MAGIC) && lines.next() == Some(&self.state);
        let done: u64 = lines.next()?.parse().ok()?;
        (is_own && lines.next() == Some("end") && done <= self.size).then_some(done)
    }

    /// Removes all contents.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn clear(&self) -> Result<(), DeviceError> {
        self.device.set_size(0)?;
        self.device.set_size(self.size + RECORD as u64)?;
        self.record(0)
    }

    /// Records up to where the contents are complete and stable.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn record(&self, done: u64) -> Result<(), DeviceError> {
        let text = format!("{MAGIC}\n{}\n{done}\nend\n", self.state);
        let mut record = text.into_bytes();
        // A state that does not fit is not recognized: the contents are then read again.
        record.resize(RECORD, 0);
        self.device.write_at(self.size, &record, Durability::Buffered)
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn finish(self) -> Result<(), OpenError> {
        let Self { device, partial, target, replaced, size, .. } = self;
        device.set_size(size)?;
        device.flush()?;
        match &replaced {
            Some(replaced) => {
                replaced.relock()?;
                fs::rename(&partial, &target).map_err(|error| failed(&target, error))?;
            }
            None => match renameat_with(CWD, &partial, CWD, &target, RenameFlags::NOREPLACE) {
                // Not with all file systems.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    fs::hard_link(&partial, &target).map_err(|error| failed(&target, error))?;
                    fs::remove_file(&partial).map_err(|error| failed(&partial, error))?;
                }
                renamed => renamed.map_err(|error| failed(&target, error))?,
            },
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The name is stable once its directory is flushed. If that is not possible, nothing more can be done.
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_file_is_continued_for_the_same_contents_only() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("image");
        let open = |state: &str| PartialFile::open(&target, 8192, state, (false, None)).unwrap();
        let (file, done) = open("one");
        assert_eq!(done, 0);
        file.device().write_at(0, b"text", Durability::Buffered).unwrap();
        file.record(4096).unwrap();
        assert!(PartialFile::open(&target, 8192, "one", (false, None)).is_err(), "it is locked");
        drop(file);
        assert_eq!(open("one").1, 4096);
        let (file, done) = open("two");
        assert_eq!(done, 0);
        let mut text = [1; 4];
        file.device().read_at(0, &mut text).unwrap();
        assert_eq!(text, [0; 4], "nothing of the other contents is left");
        file.record(8192).unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), vec![0; 8192]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(PartialFile::open(&target, 8192, "one", (false, None)).is_err(), "it exists");
        let (file, _) = PartialFile::open(&target, 4096, "one", (true, None)).unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), vec![0; 4096]);
    }

    #[test]
    fn files_of_others_are_not_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let (target, partial) = (folder.path().join("image"), folder.path().join("image.partial"));
        let open = || PartialFile::open(&target, 4096, "one", (false, None)).err().unwrap().to_string();
        for bytes in [vec![7; 100], vec![7; 4096 + RECORD]] {
            fs::write(&partial, &bytes).unwrap();
            assert!(open().contains("not an incomplete copy"));
            assert_eq!(fs::read(&partial).unwrap(), bytes);
        }
        let other = folder.path().join("other");
        fs::rename(&partial, &other).unwrap();
        std::os::unix::fs::symlink(&other, &partial).unwrap();
        open();
        assert_eq!(fs::metadata(&other).unwrap().len(), 4096 + RECORD as u64);
    }
}
