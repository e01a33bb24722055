//! A tar stream as a source, in POSIX (pax), GNU and old formats; plain, or compressed with gzip, zstd, xz or bzip2,
//! which is detected by its first bytes.
//!
//! | part | subject |
//! |---|---|
//! | [`Archive`] | the source: one thread reads members, the caller's thread passes them on |
//! | [`member`] | headers of members |
//! | `records` | extended headers |
//! | `links` | hard links with a size |
//! | `access` | access control lists as text |
//! | `unpack` | compression |
//!
//! # Invariants
//! - Values of headers are verified before use. At most [`PIECE`] bytes are read at once, or the maximum of an extended
//!   header. Queued items are limited by their bytes.
//! - An archive that ends within a member is an error. Missing empty blocks at its end are not, as many writers omit
//!   them. An empty stream, or one of zeros, is not an archive.
//! - A compressed stream is read to its end, which verifies its checksums.

mod access;
mod links;
pub mod member;
mod records;
mod unpack;

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver as Channel, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::digest::{Expected, Verified};
use crate::item::{Data, Entry, EntryKind, Item, Loss, Receiver};
use crate::options::setters;
use crate::{Error, Excludes, Result, Source};
use member::{Member, Members};
use unpack::{Raw, Stream};

/// Number of bytes of contents that are read at once.
pub const PIECE: u64 = 1 << 20;
/// Number of items per batch, unless their contents are large.
const BATCH: usize = 128;
/// Maximum number of queued batches of about [`PIECE`] bytes each.
const BATCHES: usize = 16;

/// A tar archive.
pub struct Archive {
    name: PathBuf,
    input: Input,
    whiteouts: bool,
    excludes: Excludes,
    expected: Option<Expected>,
}

enum Input {
    Path(PathBuf),
    File(File),
    Once(Mutex<Option<Box<dyn Read + Send>>>),
}

impl Archive {
    /// The archive at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::of(path.clone(), Input::Path(path))
    }

    /// An archive that can be read once; `name` is for messages.
    pub fn from_reader(name: impl Into<PathBuf>, input: impl Read + Send + 'static) -> Self {
        Self::of(name.into(), Input::Once(Mutex::new(Some(Box::new(input)))))
    }

    /// An archive in an open file; `name` is for messages.
    pub fn from_file(name: impl Into<PathBuf>, file: File) -> Self {
        Self::of(name.into(), Input::File(file))
    }

    fn of(name: PathBuf, input: Input) -> Self {
        Self { name, input, whiteouts: false, excludes: Excludes::default(), expected: None }
    }

    setters! {
        /// Skips members that match patterns. A hard link to one of them is an error, as its contents are skipped.
        excludes: Excludes;
        /// Interprets names that begin with `.wh.` as whiteouts of OCI layers: they remove files of lower layers. The
        /// archive is then read twice.
        whiteouts: bool;
    }

    /// Verifies size and digest of a descriptor; the layer may be empty.
    #[must_use]
    pub(crate) fn verified(mut self, expected: Expected) -> Self {
        self.expected = Some(expected);
        self
    }

    fn open(&self) -> Result<Raw> {
        let raw = match &self.input {
            Input::Path(path) => Raw::File(File::open(path).map_err(|error| self.failed("open it", error))?),
            Input::File(file) => {
                let mut file = file.try_clone().map_err(|error| self.failed("open it", error))?;
                file.rewind().map_err(|error| self.failed("read it", error))?;
                Raw::File(file)
            }
            Input::Once(input) => match input.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(input) => Raw::Other(input),
                None => {
                    let problem = "it is a stream, which can be read only once".into();
                    return Err(Error::Invalid { path: self.name.clone(), problem });
                }
            },
        };
        Ok(match &self.expected {
            Some(expected) => Raw::Other(Box::new(Verified::new(raw, expected.clone()))),
            None => raw,
        })
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::source(self.name.clone(), action, source)
    }

    /// Reads all members on another thread, and passes them to the receiver on this one.
    fn stream(&self, pass: Pass, receiver: &mut dyn Receiver) -> Result<()> {
        let (input, may_be_empty, excludes) = (self.open()?, self.expected.is_some(), &self.excludes);
        let (sender, channel) = sync_channel(BATCHES);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut batch = Batch { sender, events: Vec::new(), bytes: 0 };
                let read = unpack::unpacked(input)
                    .and_then(|input| read_members(input, (pass, excludes), may_be_empty, &mut batch));
                // The channel is closed only if the receiver failed.
                let _ = batch.send();
                read
            });
            let received = receive(channel, receiver);
            let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let received = received?;
            let Err(error) = read else { return Ok(()) };
            let error = self.failed("read it", error);
            // A layer whose digest is correct may be empty.
            match error.is_unreadable() && received > 0 && self.expected.is_none() {
                true => receiver.unreadable(error),
                false => Err(error),
            }
        })
    }
}

impl Source for Archive {
    fn read(&self, contents: bool, _: usize, receiver: &mut dyn Receiver) -> Result<()> {
        if self.whiteouts && contents {
            // Whiteouts apply to lower layers, wherever they are in the layer.
            self.stream(Pass::Whiteouts, receiver)?;
        }
        self.stream(Pass::Members { contents, whiteouts: self.whiteouts }, receiver)
    }
}

/// What a pass over an archive yields.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Whiteouts,
    Members { contents: bool, whiteouts: bool },
}

enum ArchiveEvent {
    Item(Item),
    Lost(Loss),
}

/// Passes queued items to the receiver; returns their number.
fn receive(channel: Channel<Vec<ArchiveEvent>>, receiver: &mut dyn Receiver) -> Result<u64> {
    let mut items = 0;
    for event in channel.into_iter().flatten() {
        match event {
            ArchiveEvent::Item(item) => {
                receiver.take(item)?;
                items += 1;
            }
            ArchiveEvent::Lost(lost) => receiver.lose(lost),
        }
    }
    Ok(items)
}

struct Batch {
    sender: SyncSender<Vec<ArchiveEvent>>,
    events: Vec<ArchiveEvent>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, event: ArchiveEvent) -> io::Result<()> {
        if let ArchiveEvent::Item(item) = &event {
            self.bytes += item.weight();
        }
        self.events.push(event);
        match self.events.len() >= BATCH || self.bytes as u64 >= PIECE {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        // A large item counts as several batches.
        let slots = (std::mem::take(&mut self.bytes) as u64 / PIECE).min(BATCHES as u64);
        for _ in 1..slots {
            self.sender.send(Vec::new()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        self.sender.send(std::mem::take(&mut self.events)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn read_members(
    input: impl Stream,
    (pass, excludes): (Pass, &Excludes),
    may_be_empty: bool,
    batch: &mut Batch,
) -> io::Result<()> {
    let mut members = Members::new(input);
    while let Some(member) = members.next_member()? {
        if is_excluded(excludes, &member)? {
            continue;
        }
        let whiteout = match pass {
            Pass::Whiteouts | Pass::Members { whiteouts: true, .. } => member.whiteout()?,
            Pass::Members { whiteouts: false, .. } => None,
        };
        match (pass, whiteout) {
            (Pass::Whiteouts, Some(removed)) => batch.push(ArchiveEvent::Item(removed))?,
            (Pass::Members { contents, .. }, None) => push_member(&mut members, member, contents, batch)?,
            _ => {}
        }
    }
    members.finish(may_be_empty)
}

/// Whether patterns exclude a member.
fn is_excluded(excludes: &Excludes, member: &Member) -> io::Result<bool> {
    if excludes.matches_within(&member.path, member.kind == EntryKind::Directory) {
        return Ok(true);
    }
    match &member.kind {
        EntryKind::Link(target) if excludes.matches_within(target, false) => {
            let [link, target] = [&member.path, target].map(|path| String::from_utf8_lossy(path));
            Err(io::Error::other(format!(
                "{link} is a hard link to {target}, which is excluded: exclude both or neither"
            )))
        }
        _ => Ok(false),
    }
}

fn push_member<R: Stream>(
    members: &mut Members<R>,
    member: Member,
    contents: bool,
    batch: &mut Batch,
) -> io::Result<()> {
    let Member { path, kind, metadata, runs, lost } = member;
    for lost in lost {
        batch.push(ArchiveEvent::Lost(lost))?;
    }
    if !contents || runs.is_empty() {
        return batch.push(ArchiveEvent::Item(Item::Entry(Entry { path, kind, metadata })));
    }
    let mut entry = Some((path, kind, metadata));
    let end_of_data = runs.last().map_or(0, |run| run.end);
    for run in runs {
        let mut offset = run.start;
        while offset < run.end {
            let length = PIECE.min(run.end - offset);
            let more = offset + length < end_of_data;
            let data = Data { offset, bytes: members.read_data(length)?, more };
            let item = match entry.take() {
                Some((path, EntryKind::File { size, .. }, metadata)) => {
                    Item::Entry(Entry { path, kind: EntryKind::File { size, data }, metadata })
                }
                _ => Item::Data(data),
            };
            batch.push(ArchiveEvent::Item(item))?;
            offset += length;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::EntryMetadata;

    /// Batches were counted, not their bytes: sixteen items with attributes of 16 MiB each were queued.
    #[test]
    fn what_waits_is_bounded_by_its_bytes() {
        let (sender, channel) = sync_channel(BATCHES);
        let mut batch = Batch { sender, events: Vec::new(), bytes: 0 };
        for _ in 0..3 {
            let attributes = vec![(b"user.large".to_vec(), vec![0; 5 * PIECE as usize])];
            let metadata = EntryMetadata { attributes, ..EntryMetadata::default() };
            batch
                .push(ArchiveEvent::Item(Item::Entry(Entry {
                    path: b"file".to_vec(),
                    kind: EntryKind::Fifo,
                    metadata,
                })))
                .unwrap();
        }
        drop(batch);
        let batches: Vec<_> = channel.into_iter().map(|events| events.len()).collect();
        assert_eq!(batches.len(), 15, "of {BATCHES} places");
        assert_eq!(batches.iter().sum::<usize>(), 3);
    }
}
