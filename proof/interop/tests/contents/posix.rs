//! Files of a directory through system calls: the kernel as a subject.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use block::AlignedBuf;
use model::contents::{FallocateMode, OpenFile, Subject};
use model::{Answer, Failure};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};

const ENXIO: i32 = 6;
const EBADE: i32 = 52;

/// A mounted volume.
pub struct Folder(pub PathBuf);

/// An open file: once for buffered and once for direct I/O.
pub struct PosixFile {
    path: PathBuf,
    file: File,
    direct: File,
}

fn failed(error: impl Into<io::Error>) -> Failure {
    let error = error.into();
    Failure { errno: error.raw_os_error().unwrap_or(0), message: error.to_string() }
}

impl Subject for Folder {
    type File = PosixFile;

    fn open(&self, name: &str) -> Answer<PosixFile> {
        let path = self.0.join(name);
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).custom_flags(flags.bits() as i32);
            options.open(&path).map_err(failed)
        };
        Ok(PosixFile { file: open(OFlags::empty())?, direct: open(OFlags::DIRECT)?, path })
    }

    fn sync(&self) -> Answer<()> {
        File::open(&self.0).and_then(|folder| Ok(rustix::fs::syncfs(folder)?)).map_err(failed)
    }
}

impl PosixFile {
    fn read_up_to(&self, file: &File, at: u64, into: &mut [u8]) -> Answer<usize> {
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], at + done as u64).map_err(failed)? {
                0 => break,
                // The end of the file: another read from here would not be aligned.
                more if !more.is_multiple_of(512) => return Ok(done + more),
                more => done += more,
            }
        }
        Ok(done)
    }
}

impl OpenFile for PosixFile {
    fn read(&self, at: u64, length: u64, direct: bool) -> Answer<Vec<u8>> {
        let length = length.min(self.size()?.saturating_sub(at).next_multiple_of(65536)) as usize;
        let mut aligned = AlignedBuf::zeroed(length);
        let done = self.read_up_to(if direct { &self.direct } else { &self.file }, at, &mut aligned)?;
        Ok(aligned[..done].to_vec())
    }

    fn write(&self, at: u64, bytes: &[u8], direct: bool) -> Answer<()> {
        if !direct {
            return self.file.write_all_at(bytes, at).map_err(failed);
        }
        let mut aligned = AlignedBuf::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        self.direct.write_all_at(&aligned, at).map_err(failed)
    }

    fn append(&self, bytes: &[u8]) -> Answer<()> {
        self.file.write_all_at(bytes, self.size()?).map_err(failed)
    }

    fn size(&self) -> Answer<u64> {
        Ok(self.file.metadata().map_err(failed)?.size())
    }

    fn set_size(&self, size: u64) -> Answer<()> {
        self.file.set_len(size).map_err(failed)
    }

    fn fallocate(&self, mode: FallocateMode, at: u64, length: u64, keep_size: bool) -> Answer<()> {
        let keep = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = match mode {
            FallocateMode::Allocate => keep,
            FallocateMode::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateMode::Zero => FallocateFlags::ZERO_RANGE | keep,
            FallocateMode::Collapse => FallocateFlags::COLLAPSE_RANGE,
            FallocateMode::Insert => FallocateFlags::INSERT_RANGE,
            FallocateMode::Unshare => FallocateFlags::UNSHARE_RANGE | keep,
        };
        fallocate(&self.file, flags, at, length).map_err(failed)
    }

    /// Runs `xfs_io`, and derives the errno from its message.
    fn share(&self, from: &Self, from_at: u64, to_at: u64, length: u64, dedupe: bool) -> Answer<()> {
        let verb = if dedupe { "dedupe" } else { "reflink" };
        let source = from.path.to_str().unwrap();
        let call = format!("{verb} {source} {from_at} {to_at} {length}");
        let output = needs::command("xfs_io").args(["-c", &call]).arg(&self.path).output().map_err(failed)?;
        let message = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        let fails = |errno, message: &str| Err(Failure { errno, message: message.to_owned() });
        match &*message {
            message if message.contains("Invalid argument") => fails(22, message),
            message if message.contains("Extents did not match") => fails(EBADE, message),
            message if message.contains("No space left") => fails(28, message),
            message if output.status.success() && !message.contains("XFS_IOC") => Ok(()),
            message => fails(0, message),
        }
    }

    fn seek(&self, at: u64, data: bool) -> Answer<Option<u64>> {
        match seek(&self.file, if data { SeekFrom::Data(at) } else { SeekFrom::Hole(at) }) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.raw_os_error() == ENXIO => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn sync(&self) -> Answer<()> {
        self.file.sync_all().map_err(failed)
    }
}
