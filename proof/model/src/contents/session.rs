//! Files of a volume and their model in step.

use super::{Call, Calls, Files, Outcome, Reserve, fill};
use crate::{Answer, EIO, ENOSPC, Failure};

/// An open file of a volume under test.
pub trait OpenFile {
    /// Reads up to `length` bytes, fewer only at the end; past the cache if `direct`.
    fn read(&self, at: u64, length: u64, direct: bool) -> Answer<Vec<u8>>;
    /// Writes all of it.
    fn write(&self, at: u64, bytes: &[u8], direct: bool) -> Answer<()>;
    /// Writes behind the end.
    fn append(&self, bytes: &[u8]) -> Answer<()>;
    /// How many bytes there are.
    fn size(&self) -> Answer<u64>;
    /// Cuts off or grows.
    fn set_size(&self, size: u64) -> Answer<()>;
    /// `fallocate`.
    fn reserve(&self, what: Reserve, at: u64, length: u64, keep: bool) -> Answer<()>;
    /// Shares blocks of another file; `equal`: only where both ranges hold the same.
    fn share(&self, from: &Self, from_at: u64, to_at: u64, length: u64, equal: bool) -> Answer<()>;
    /// The first byte from `at` on that is not in a hole, and the first that is; `None` where there is none.
    fn seek(&self, at: u64, data: bool) -> Answer<Option<u64>>;
    /// Makes its contents stable.
    fn sync(&self) -> Answer<()>;
}

/// A volume under test.
pub trait Subject {
    /// Its files.
    type File: OpenFile;
    /// Opens a file, and makes it if there is none.
    fn open(&self, name: &str) -> Answer<Self::File>;
    /// Makes everything stable.
    fn sync(&self) -> Answer<()>;
}

/// What is more than the model knows of, and no mismatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excused {
    /// The volume may be full.
    pub full: bool,
    /// The device may fail.
    pub broken: bool,
}

impl Excused {
    fn excuses(self, failure: &Failure) -> bool {
        (self.full && failure.errno == ENOSPC) || (self.broken && failure.errno == EIO)
    }
}

/// Files and model.
pub struct Session<'s, S: Subject> {
    subject: &'s S,
    name: String,
    open: Vec<S::File>,
    model: Files,
    excused: Excused,
}

impl<'s, S: Subject> Session<'s, S> {
    /// Makes `count` empty files, whose names begin with `name`.
    ///
    /// # Errors
    /// What the subject gives.
    pub fn new(subject: &'s S, name: &str, count: usize, block: u64, excused: Excused) -> Answer<Self> {
        Self::resume(subject, name, Files::new(count, block), excused)
    }

    /// Goes on with files that are as a model has them.
    ///
    /// # Errors
    /// What the subject gives.
    pub fn resume(subject: &'s S, name: &str, model: Files, excused: Excused) -> Answer<Self> {
        let open = (0..model.len()).map(|n| subject.open(&format!("{name}{n}"))).collect::<Answer<_>>()?;
        Ok(Self { subject, name: name.into(), open, model, excused })
    }

    /// The model as it is.
    pub fn model(&self) -> &Files {
        &self.model
    }

    /// Makes random calls.
    ///
    /// # Errors
    /// The first call whose answer is not the model's, in words.
    pub fn run(&mut self, calls: &mut Calls, count: usize) -> Result<(), String> {
        (0..count).try_for_each(|_| {
            let call = calls.next(&self.model);
            self.step(&call).map_err(|why| format!("{call:?}: {why}"))
        })
    }

    /// Makes one call and compares.
    ///
    /// # Errors
    /// What is not the model's answer, in words.
    pub fn step(&mut self, call: &Call) -> Result<(), String> {
        let before = self.model.clone();
        let wanted = self.model.apply(call);
        match (self.ask(call), wanted) {
            (Err(Told::Failure(found)), Outcome::Refused(errno)) if found.errno == errno => Ok(()),
            (Err(Told::Failure(found)), _) if self.excused.excuses(&found) => {
                self.model = before;
                self.adopt(call, &found)
            }
            (Err(found), wanted) => Err(format!("{found}, but it should be {}", brief(&wanted))),
            (Ok(_), Outcome::Refused(errno)) => Err(format!("should give errno {errno}, but succeeds")),
            (Ok(Some(found)), Outcome::Read(wanted)) => compare(&found, &wanted),
            (Ok(_), _) => self.compare_sizes(call),
        }
    }

    /// Reads all files and compares.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn compare_all(&mut self) -> Result<(), String> {
        (0..self.open.len()).try_for_each(|file| {
            self.step(&Call::Read { file, at: 0, length: u64::MAX, direct: false })
                .map_err(|why| format!("file {file} at the end: {why}"))
        })
    }

    fn ask(&mut self, call: &Call) -> Result<Option<Vec<u8>>, Told> {
        let open = |file: usize| &self.open[file];
        match *call {
            Call::Read { file, at, length, direct } => {
                return Ok(Some(open(file).read(at, length, direct)?));
            }
            Call::Write { file, at, length, seed, direct } => {
                open(file).write(at, &fill(seed, at, length), direct)?;
            }
            Call::Append { file, length, seed } => {
                // The model has done it already.
                let at = self.model.get(file).size() - length;
                open(file).append(&fill(seed, at, length))?;
            }
            Call::SetSize { file, size } => open(file).set_size(size)?,
            Call::Reserve { file, what, at, length, keep } => open(file).reserve(what, at, length, keep)?,
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

    /// Bytes that are not zero are never in a hole; what is said to be data begins where the search ends.
    fn seek(&self, file: usize, at: u64) -> Result<(), Told> {
        let (open, bytes) = (&self.open[file], self.model.get(file));
        let (data, hole) = (open.seek(at, true)?, open.seek(at, false)?);
        let size = bytes.size();
        if at >= size {
            return match (data, hole) {
                (None, None) => Ok(()),
                found => Err(Told::Wrong(format!("from {at} of {size} on: {found:?}"))),
            };
        }
        let skipped = data.unwrap_or(size);
        if skipped < at || bytes.holds(at, skipped) {
            return Err(Told::Wrong(format!("the first data from {at} on is not at {data:?}")));
        }
        match hole {
            Some(hole) if (at..=size).contains(&hole) => {
                let next = open.seek(hole, true)?.unwrap_or(size);
                if bytes.holds(hole, next) {
                    return Err(Told::Wrong(format!("there is data between {hole} and {next}")));
                }
                Ok(())
            }
            found => Err(Told::Wrong(format!("the first hole from {at} of {size} on is {found:?}"))),
        }
    }

    fn compare_sizes(&self, call: &Call) -> Result<(), String> {
        let file = match *call {
            Call::Write { file, .. }
            | Call::Append { file, .. }
            | Call::SetSize { file, .. }
            | Call::Reserve { file, .. } => file,
            Call::Clone { to, .. } => to,
            _ => return Ok(()),
        };
        let (found, wanted) = (self.open[file].size()?, self.model.get(file).size());
        if found == wanted { Ok(()) } else { Err(format!("the size is {found}, and should be {wanted}")) }
    }

    /// Reads, again and again where that may fail now and then.
    fn read_anyhow(&self, file: usize, at: u64, length: u64) -> Answer<Vec<u8>> {
        let read = || self.open[file].read(at, length, false);
        let mut tries = (0..100).map(|_| read());
        let good = tries.find(|read| !read.as_ref().is_err_and(|failure| self.excused.excuses(failure)));
        good.unwrap_or_else(read)
    }

    /// A call that was excused may have done a part of its work: the model takes over what is there, where that is
    /// between before and after.
    fn adopt(&mut self, call: &Call, why: &Failure) -> Result<(), String> {
        let (file, at, length) = match *call {
            Call::Write { file, at, length, .. } | Call::Reserve { file, at, length, .. } => {
                (file, at, length)
            }
            Call::Append { file, length, .. } => (file, self.model.get(file).size(), length),
            Call::Clone { to, to_at, length, .. } => (to, to_at, length),
            _ => return Ok(()),
        };
        if let Call::Reserve { what: Reserve::Collapse | Reserve::Insert, .. } = call {
            return match why.errno {
                // It says so before anything moves.
                ENOSPC => self.compare_all(),
                _ => Err("gave up half way, which cannot be followed".into()),
            };
        }
        let size = self.open[file].size()?;
        let found = self.read_anyhow(file, at, length)?;
        let mut after = self.model.clone();
        after.apply(call);
        let (old, new) = (self.model.get(file).read(at, length), after.get(file).read(at, length));
        for (n, byte) in found.iter().enumerate() {
            if ![old.get(n).copied().unwrap_or(0), new.get(n).copied().unwrap_or(0)].contains(byte) {
                return Err(format!("byte {} is neither old nor new after a failure", at + n as u64));
            }
        }
        self.model.take_over(file, at, &found, size);
        Ok(())
    }
}

/// Why a call did not go as it should.
enum Told {
    Failure(Failure),
    Wrong(String),
}

impl From<Failure> for Told {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failure(failure) => write!(f, "gives {failure}"),
            Self::Wrong(why) => f.write_str(why),
        }
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Read(bytes) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}

fn compare(found: &[u8], wanted: &[u8]) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{} bytes were read, and should be {}", found.len(), wanted.len()));
    }
    let differs = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    differs.map_or(Ok(()), |at| {
        let same = found.iter().zip(wanted).skip(at).take_while(|(found, wanted)| found != wanted).count();
        Err(format!(
            "byte {at} of what was read is {}, and should be {} ({same} differ)",
            found[at], wanted[at]
        ))
    })
}
