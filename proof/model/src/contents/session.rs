//! Runs calls on files of a volume and on the model, and compares.

use super::{Call, CallGenerator, FallocateMode, Files, Outcome, fill};
use crate::{Answer, ENOSPC, Failure, Tolerance};

/// An open file of a volume under test.
pub trait OpenFile {
    /// Reads up to `length` bytes, fewer only at the end; with direct I/O if `direct`.
    fn read(&self, at: u64, length: u64, direct: bool) -> Answer<Vec<u8>>;
    /// Writes all bytes.
    fn write(&self, at: u64, bytes: &[u8], direct: bool) -> Answer<()>;
    /// Writes at the end.
    fn append(&self, bytes: &[u8]) -> Answer<()>;
    /// Returns the size in bytes.
    fn size(&self) -> Answer<u64>;
    /// Truncates or extends the file.
    fn set_size(&self, size: u64) -> Answer<()>;
    /// `fallocate`.
    fn fallocate(&self, mode: FallocateMode, at: u64, length: u64, keep_size: bool) -> Answer<()>;
    /// Shares blocks of another file; if `dedupe`, only if both ranges hold the same bytes.
    fn share(&self, from: &Self, from_at: u64, to_at: u64, length: u64, dedupe: bool) -> Answer<()>;
    /// Returns the first offset from `at` on with data, or with a hole if not `data`; `None` if there is none.
    fn seek(&self, at: u64, data: bool) -> Answer<Option<u64>>;
    /// Makes the contents durable.
    fn sync(&self) -> Answer<()>;
}

/// A volume under test.
pub trait Subject {
    /// Open files of the volume.
    type File: OpenFile;
    /// Opens a file, and creates it if it does not exist.
    fn open(&self, name: &str) -> Answer<Self::File>;
    /// Makes the whole volume durable.
    fn sync(&self) -> Answer<()>;
}

/// Runs calls on files and on the model.
pub struct Session<'s, S: Subject> {
    subject: &'s S,
    name: String,
    open: Vec<S::File>,
    model: Files,
    tolerance: Tolerance,
}

impl<'s, S: Subject> Session<'s, S> {
    /// Creates `count` empty files whose names begin with `name`.
    ///
    /// # Errors
    /// Those of the subject.
    pub fn new(subject: &'s S, name: &str, count: usize, block: u64, tolerance: Tolerance) -> Answer<Self> {
        Self::resume(subject, name, Files::new(count, block), tolerance)
    }

    /// Continues with files that match a model.
    ///
    /// # Errors
    /// Those of the subject.
    pub fn resume(subject: &'s S, name: &str, model: Files, tolerance: Tolerance) -> Answer<Self> {
        let open = (0..model.len()).map(|n| subject.open(&format!("{name}{n}"))).collect::<Answer<_>>()?;
        Ok(Self { subject, name: name.into(), open, model, tolerance })
    }

    /// Returns the model.
    pub fn model(&self) -> &Files {
        &self.model
    }

    /// Runs random calls.
    ///
    /// # Errors
    /// The first call with an unexpected result.
    pub fn run(&mut self, calls: &mut CallGenerator, count: usize) -> Result<(), String> {
        (0..count).try_for_each(|_| {
            let call = calls.next(&self.model);
            self.step(&call).map_err(|why| format!("{call:?}: {why}"))
        })
    }

    /// Runs one call and compares.
    ///
    /// # Errors
    /// The unexpected result.
    pub fn step(&mut self, call: &Call) -> Result<(), String> {
        let before = self.model.clone();
        let expected = self.model.apply(call);
        match (self.call_subject(call), expected) {
            (Err(CallError::Failure(found)), Outcome::Refused(errno)) if found.errno == errno => Ok(()),
            (Err(CallError::Failure(found)), _) if self.tolerance.tolerates(&found) => {
                self.model = before;
                self.adopt(call, &found)
            }
            (Err(found), expected) => Err(format!("{found}, expected {}", brief(&expected))),
            (Ok(_), Outcome::Refused(errno)) => Err(format!("succeeds, expected errno {errno}")),
            (Ok(Some(found)), Outcome::Read(expected)) => compare(&found, &expected),
            (Ok(_), _) => self.compare_sizes(call),
        }
    }

    /// Compares all files.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare_all(&mut self) -> Result<(), String> {
        (0..self.open.len()).try_for_each(|file| {
            self.step(&Call::Read { file, at: 0, length: u64::MAX, direct: false })
                .map_err(|why| format!("file {file} at the end: {why}"))
        })
    }

    fn call_subject(&mut self, call: &Call) -> Result<Option<Vec<u8>>, CallError> {
        let open = |file: usize| &self.open[file];
        match *call {
            Call::Read { file, at, length, direct } => {
                return Ok(Some(open(file).read(at, length, direct)?));
            }
            Call::Write { file, at, length, seed, direct } => {
                open(file).write(at, &fill(seed, at, length), direct)?;
            }
            Call::Append { file, length, seed } => {
                // The model has appended already.
                let at = self.model.get(file).size() - length;
                open(file).append(&fill(seed, at, length))?;
            }
            Call::SetSize { file, size } => open(file).set_size(size)?,
            Call::Fallocate { file, mode, at, length, keep_size } => {
                open(file).fallocate(mode, at, length, keep_size)?
            }
            Call::Clone { from, from_at, to, to_at, length } => {
                open(to).share(open(from), from_at, to_at, length, false)?;
            }
            Call::Dedupe { from, from_at, to, to_at, length } => {
                open(to).share(open(from), from_at, to_at, length, true)?;
            }
            Call::Seek { file, at } => self.seek(file, at)?,
            Call::Sync { file } => open(file).sync()?,
            Call::Reopen { file } => self.open[file] = self.subject.open(&format!("{}{file}", self.name))?,
            Call::SyncAll => self.subject.sync()?,
        }
        Ok(None)
    }

    /// Checks `seek`: bytes that are not zero are never in a hole, and all bytes before the first data are zero.
    fn seek(&self, file: usize, at: u64) -> Result<(), CallError> {
        let (open, bytes) = (&self.open[file], self.model.get(file));
        let (data, hole) = (open.seek(at, true)?, open.seek(at, false)?);
        let size = bytes.size();
        if at >= size {
            return match (data, hole) {
                (None, None) => Ok(()),
                found => Err(CallError::Mismatch(format!("from {at} of {size} on: {found:?}"))),
            };
        }
        let skipped = data.unwrap_or(size);
        if skipped < at || bytes.has_data(at, skipped) {
            return Err(CallError::Mismatch(format!("the first data from {at} on is not at {data:?}")));
        }
        match hole {
            Some(hole) if (at..=size).contains(&hole) => {
                let next = open.seek(hole, true)?.unwrap_or(size);
                if bytes.has_data(hole, next) {
                    return Err(CallError::Mismatch(format!("there is data between {hole} and {next}")));
                }
                Ok(())
            }
            found => Err(CallError::Mismatch(format!("the first hole from {at} of {size} on is {found:?}"))),
        }
    }

    fn compare_sizes(&self, call: &Call) -> Result<(), String> {
        let file = match *call {
            Call::Write { file, .. }
            | Call::Append { file, .. }
            | Call::SetSize { file, .. }
            | Call::Fallocate { file, .. } => file,
            Call::Clone { to, .. } => to,
            _ => return Ok(()),
        };
        let (found, expected) = (self.open[file].size()?, self.model.get(file).size());
        if found == expected { Ok(()) } else { Err(format!("the size is {found}, expected {expected}")) }
    }

    /// Reads a range, and tries again after failures that are tolerated.
    fn read_with_retries(&self, file: usize, at: u64, length: u64) -> Answer<Vec<u8>> {
        let read = || self.open[file].read(at, length, false);
        let mut tries = (0..100).map(|_| read());
        let good = tries.find(|read| !read.as_ref().is_err_and(|failure| self.tolerance.tolerates(failure)));
        good.unwrap_or_else(read)
    }

    /// A call with a tolerated failure may have done a part of its work: the model takes over the contents, if each
    /// byte is that from before or after the call.
    fn adopt(&mut self, call: &Call, why: &Failure) -> Result<(), String> {
        let (file, at, length) = match *call {
            Call::Write { file, at, length, .. } | Call::Fallocate { file, at, length, .. } => {
                (file, at, length)
            }
            Call::Append { file, length, .. } => (file, self.model.get(file).size(), length),
            Call::Clone { to, to_at, length, .. } => (to, to_at, length),
            _ => return Ok(()),
        };
        if let Call::Fallocate { mode: FallocateMode::Collapse | FallocateMode::Insert, .. } = call {
            return match why.errno {
                // It is returned before any mapping is moved.
                ENOSPC => self.compare_all(),
                _ => Err("failed half way; the contents are unknown".into()),
            };
        }
        let size = self.open[file].size()?;
        let found = self.read_with_retries(file, at, length)?;
        let mut after = self.model.clone();
        after.apply(call);
        let (old, new) = (self.model.get(file).read(at, length), after.get(file).read(at, length));
        for (n, byte) in found.iter().enumerate() {
            if ![old.get(n).copied().unwrap_or(0), new.get(n).copied().unwrap_or(0)].contains(byte) {
                return Err(format!("byte {} is neither old nor new after a failure", at + n as u64));
            }
        }
        self.model.adopt(file, at, &found, size);
        Ok(())
    }
}

/// Error of a call on the subject.
enum CallError {
    Failure(Failure),
    Mismatch(String),
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failure(failure) => write!(f, "fails: {failure}"),
            Self::Mismatch(why) => f.write_str(why),
        }
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Read(bytes) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}

fn compare(found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} bytes were read, expected {}", found.len(), expected.len()));
    }
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    differs.map_or(Ok(()), |at| {
        let differing =
            found.iter().zip(expected).skip(at).take_while(|(found, expected)| found != expected).count();
        Err(format!("byte {at} of the read is {}, expected {} ({differing} differ)", found[at], expected[at]))
    })
}
