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
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver as Channel, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::digest::{Expected, Verified};
use crate::item::{Data, Entry, EntryKind, Item, Loss, Receiver};
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
#[derive(Debug)]
pub struct Archive {
    name: PathBuf,
    input: Input,
    whiteouts: bool,
    excludes: Arc<Excludes>,
    expected: Option<Expected>,
}

enum Input {
    File(PathBuf),
    Kept(File),
    Once(Mutex<Option<Box<dyn Read + Send>>>),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Kept(file) => f.debug_tuple("Kept").field(file).finish(),
            Self::Once(_) => f.write_str("Once"),
        }
    }
}

impl Archive {
    /// The archive at `path`.
    pub fn new(path: &Path) -> Self {
        Self::of(path, Input::File(path.into()))
    }

    /// An archive that can be read once; `name` is for messages.
    pub fn once(name: &Path, input: Box<dyn Read + Send>) -> Self {
        Self::of(name, Input::Once(Mutex::new(Some(input))))
    }

    /// An archive in an open file; `name` is for messages.
    pub fn kept(name: &Path, file: File) -> Self {
        Self::of(name, Input::Kept(file))
    }

    fn of(name: &Path, input: Input) -> Self {
        Self { name: name.into(), input, whiteouts: false, excludes: Arc::default(), expected: None }
    }

    /// Skips members that match patterns. A hard link to one of them is an error, as its contents are skipped.
    #[must_use]
    pub fn excludes(mut self, excludes: &Arc<Excludes>) -> Self {
        self.excludes = Arc::clone(excludes);
        self
    }

    /// Interprets names that begin with `.wh.` as whiteouts of OCI layers: they remove files of lower layers. The
    /// archive is then read twice.
    #[must_use]
    pub fn whiteouts(mut self, whiteouts: bool) -> Self {
        self.whiteouts = whiteouts;
        self
    }

    /// Verifies size and digest of a descriptor; the layer may be empty.
    #[must_use]
    pub(crate) fn verified(mut self, expected: Expected) -> Self {
        self.expected = Some(expected);
        self
    }

    fn open(&self) -> Result<Raw> {
        let raw = self.open_unverified()?;
        Ok(match &self.expected {
            Some(expected) => Raw::Other(Box::new(Verified::new(raw, expected.clone()))),
            None => raw,
        })
    }

    fn open_unverified(&self) -> Result<Raw> {
        match &self.input {
            Input::File(path) => match File::open(path) {
                Ok(file) => Ok(Raw::File(file)),
                Err(error) => Err(self.failed("open it", error)),
            },
            Input::Kept(file) => {
                let mut file = file.try_clone().map_err(|error| self.failed("open it", error))?;
                file.rewind().map_err(|error| self.failed("read it", error))?;
                Ok(Raw::File(file))
            }
            Input::Once(input) => match input.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(input) => Ok(Raw::Other(input)),
                None => Err(Error::Bad { path: self.name.clone(), why: "it can be read only once".into() }),
            },
        }
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> Error {
        Error::Source { path: self.name.clone(), doing, source }
    }

    /// Reads all members on another thread, and passes them to the receiver on this one.
    fn pass(&self, give: Give, receiver: &mut dyn Receiver) -> Result<()> {
        let (input, may_be_empty, excludes) = (self.open()?, self.expected.is_some(), &*self.excludes);
        let (sender, channel) = sync_channel(BATCHES);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut batch = Batch { sender, turns: Vec::new(), bytes: 0 };
                let read = unpack::unpacked(input)
                    .and_then(|input| read_members(input, (give, excludes), may_be_empty, &mut batch));
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
            self.pass(Give::Whiteouts, receiver)?;
        }
        self.pass(Give::Members { contents, whiteouts: self.whiteouts }, receiver)
    }
}

/// The options of a pass.
#[derive(Clone, Copy, Debug)]
enum Give {
    Whiteouts,
    Members { contents: bool, whiteouts: bool },
}

enum Turn {
    Item(Item),
    Lost(Loss),
}

/// Counts queued items.
fn receive(channel: Channel<Vec<Turn>>, receiver: &mut dyn Receiver) -> Result<u64> {
    let mut items = 0;
    for turn in channel.into_iter().flatten() {
        match turn {
            Turn::Item(item) => {
                receiver.take(item)?;
                items += 1;
            }
            Turn::Lost(lost) => receiver.lose(lost),
        }
    }
    Ok(items)
}

struct Batch {
    sender: SyncSender<Vec<Turn>>,
    turns: Vec<Turn>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, turn: Turn) -> io::Result<()> {
        if let Turn::Item(item) = &turn {
            self.bytes += item.weight();
        }
        self.turns.push(turn);
        match self.turns.len() >= BATCH || self.bytes as u64 >= PIECE {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        // A large item counts as several batches.
        let places = (std::mem::take(&mut self.bytes) as u64 / PIECE).min(BATCHES as u64);
        for _ in 1..places {
            self.sender.send(Vec::new()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        self.sender.send(std::mem::take(&mut self.turns)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn read_members(
    input: impl Stream,
    (give, excludes): (Give, &Excludes),
    may_be_empty: bool,
    batch: &mut Batch,
) -> io::Result<()> {
    let mut members = Members::new(input);
    while let Some(member) = members.next_member()? {
        if leaves_out(excludes, &member)? {
            continue;
        }
        let whiteout = match give {
            Give::Whiteouts | Give::Members { whiteouts: true, .. } => member.whiteout()?,
            Give::Members { whiteouts: false, .. } => None,
        };
        match (give, whiteout) {
            (Give::Whiteouts, Some(removed)) => batch.push(Turn::Item(removed))?,
            (Give::Members { contents, .. }, None) => give_member(&mut members, member, contents, batch)?,
            _ => {}
        }
    }
    members.finish(may_be_empty)
}

/// Whether patterns exclude a member.
fn leaves_out(excludes: &Excludes, member: &Member) -> io::Result<bool> {
    if excludes.matches_within(&member.path, member.kind == EntryKind::Directory) {
        return Ok(true);
    }
    match &member.kind {
        EntryKind::Link(target) if excludes.matches_within(target, false) => {
            let [link, target] = [&member.path, target].map(|path| String::from_utf8_lossy(path));
            Err(io::Error::other(format!(
                "{link} is a hard link to {target}, which is left out: leave out both, or none"
            )))
        }
        _ => Ok(false),
    }
}

fn give_member<R: Stream>(
    members: &mut Members<R>,
    member: Member,
    contents: bool,
    batch: &mut Batch,
) -> io::Result<()> {
    for lost in member.lost() {
        batch.push(Turn::Lost(lost))?;
    }
    let Member { path, kind, metadata, runs, .. } = member;
    if !contents || runs.is_empty() {
        return batch.push(Turn::Item(Item::Entry(Entry { path, kind, metadata })));
    }
    let mut entry = Some((path, kind, metadata));
    let count = runs.len();
    for (index, run) in runs.into_iter().enumerate() {
        let mut offset = run.start;
        loop {
            let length = PIECE.min(run.end - offset);
            let more = index + 1 < count || offset + length < run.end;
            let data = Data { offset, bytes: members.read_data(length)?, more };
            let item = match entry.take() {
                Some((path, EntryKind::File { size, .. }, metadata)) => {
                    Item::Entry(Entry { path, kind: EntryKind::File { size, data }, metadata })
                }
                _ => Item::Data(data),
            };
            batch.push(Turn::Item(item))?;
            offset += length;
            if offset >= run.end {
                break;
            }
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
        let mut batch = Batch { sender, turns: Vec::new(), bytes: 0 };
        for _ in 0..3 {
            let attributes = vec![(b"user.large".to_vec(), vec![0; 5 * PIECE as usize])];
            let metadata = EntryMetadata { attributes, ..EntryMetadata::default() };
            batch
                .push(Turn::Item(Item::Entry(Entry {
                    path: b"file".to_vec(),
                    kind: EntryKind::Fifo,
                    metadata,
                })))
                .unwrap();
        }
        drop(batch);
        let batches: Vec<_> = channel.into_iter().map(|turns| turns.len()).collect();
        assert_eq!(batches.len(), 15, "of {BATCHES} places");
        assert_eq!(batches.iter().sum::<usize>(), 3);
    }
}
