//! Changes a qcow2 image in place.
//!
//! Data goes to the file at once: to the cluster that it has, or to a new one, which the maps in memory name when the
//! data is in the file. The maps and the refcounts go to the file in a commit ([`Writer::flush`]), in the order that
//! `state` explains.
//!
//! # Locking
//! `claims -> gate -> state`, and `commit -> gate -> state`; nobody has a claim and commits.
//!
//! | lock | held |
//! |---|---|
//! | `claims` | on clusters of the disk while they get other places in the file |
//! | `gate`, shared | while data moves; alone, for a moment, before clusters that were let go of are punched and free |
//! | `state` | while maps and refcounts are looked at or changed; never over a transfer |
//! | `commit` | by the one commit at a time |

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;

use super::claims::Claims;
use super::header::Header;
use super::load::load;
use super::maps::{COPIED, Entry, ZERO};
use super::state::{Plan, State, Write};
use crate::device::{Device, Durability};
use crate::error::{DeviceError, Operation};

/// Bytes that get new places at once.
const RUN_MAX: u64 = 4 << 20;

/// Where bytes of the disk lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nowhere: they are zeros.
    Zeros,
    /// Compressed, or in the backing image.
    Elsewhere,
    /// At an offset of the file.
    File(u64),
}

/// Reads what is compressed or lies in the backing image.
pub type Elsewhere<'e> = &'e dyn Fn(u64, &mut [u8]) -> io::Result<()>;

/// The disk in a qcow2 file, to be changed.
pub struct Writer {
    file: Arc<dyn Device>,
    header: Header,
    /// Whether the file becomes longer where it must.
    grows: bool,
    state: RwLock<State>,
    gate: RwLock<()>,
    claims: Claims,
    commit: Mutex<()>,
    /// The first flush that failed.
    failure: OnceLock<DeviceError>,
}

impl Writer {
    /// Reads and judges the metadata.
    ///
    /// # Errors
    /// What the device reports, and why the image cannot be changed.
    pub fn open(file: Arc<dyn Device>, header: Header) -> io::Result<Self> {
        header.refuse_for_writing()?;
        let unit = file.logical_sector_size().max(512) as usize;
        if header.cluster_size() < unit as u64 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its clusters are smaller than a sector of the device (open it without direct I/O)",
            ));
        }
        // A block device has the size that it has.
        let grows = file.set_size(file.size()).is_ok();
        let capacity = (!grows).then_some(file.size() >> header.cluster_bits);
        let (maps, refcounts) = load(&file, &header, unit, capacity)?;
        let mut start = vec![0; unit];
        let known = usize::try_from(file.size()).unwrap_or(unit).min(unit);
        file.read_at(0, start.get_mut(..known).unwrap_or_default()).map_err(io::Error::other)?;
        let mut state = State::new(header.clone(), unit, start, maps, refcounts);
        if header.must_clear() {
            let (offset, bytes) = state.clear_autoclear();
            file.write_at(offset, &bytes, Durability::Buffered).map_err(io::Error::other)?;
            file.flush().map_err(io::Error::other)?;
        }
        let state = RwLock::new(state);
        let (gate, claims, commit) = (RwLock::default(), Claims::default(), Mutex::default());
        Ok(Self { file, header, grows, state, gate, claims, commit, failure: OnceLock::new() })
    }

    fn look(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses all changes after a flush that failed: nobody knows what of it is in the file, and so neither which
    /// order of further writes is safe.
    fn refuse_after_failure(&self) -> Result<(), DeviceError> {
        self.failure.get().map_or(Ok(()), |first| Err(self.copy_of(first)))
    }

    /// Remembers an error that may have cost writes of a flush.
    fn remember(&self, error: &DeviceError) {
        // The first one stays.
        let _ = self.failure.set(self.copy_of(error));
    }

    fn copy_of(&self, error: &DeviceError) -> DeviceError {
        DeviceError::Io {
            device: self.file.describe().into(),
            what: error.what(),
            offset: error.offset(),
            length: error.length(),
            source: io::Error::from_raw_os_error(error.errno()),
        }
    }

    /// Fills `buf` from the disk.
    ///
    /// # Errors
    /// What the file or `elsewhere` reports.
    pub fn read(&self, offset: u64, buf: &mut [u8], elsewhere: Elsewhere<'_>) -> io::Result<()> {
        let _inside = self.enter();
        self.read_inside(offset, buf, elsewhere)
    }

    fn read_inside(&self, offset: u64, buf: &mut [u8], elsewhere: Elsewhere<'_>) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (place, length) = self.place(&self.look(), at, rest.len() as u64);
            let (piece, behind) = rest.split_at_mut(length as usize);
            match place {
                Place::Zeros => piece.fill(0),
                Place::Elsewhere => elsewhere(at, piece)?,
                Place::File(offset) => self.read_file(offset, piece)?,
            }
            (at, rest) = (at + length, behind);
        }
        Ok(())
    }

    /// Reads the file, whose last cluster may be there in part.
    fn read_file(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let known = self.file.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let (known, missing) = buf.split_at_mut(known);
        missing.fill(0);
        if known.is_empty() { Ok(()) } else { self.file.read_at(offset, known).map_err(io::Error::other) }
    }

    /// Where the bytes from an offset of the disk on lie, and how many of them follow each other there.
    fn place(&self, state: &State, offset: u64, most: u64) -> (Place, u64) {
        let size = self.header.cluster_size();
        let one = |cluster: u64| match state.maps.get(cluster) {
            Entry::Nothing if self.header.has_backing => Place::Elsewhere,
            Entry::Nothing | Entry::Zeros(_) => Place::Zeros,
            Entry::Compressed(..) => Place::Elsewhere,
            Entry::Data(at) => Place::File(at),
        };
        let (first, within) = (offset / size, offset % size);
        let place = one(first);
        let mut clusters = 1;
        while clusters * size - within < most {
            let continues = match (place, one(first + clusters)) {
                (Place::File(at), Place::File(next)) => at + clusters * size == next,
                (place, next) => place == next,
            };
            if !continues {
                break;
            }
            clusters += 1;
        }
        let place = match place {
            Place::File(at) => Place::File(at + within),
            place => place,
        };
        (place, most.min(clusters * size - within))
    }

    /// Writes `buf` to the disk.
    ///
    /// # Errors
    /// What the file or `elsewhere` reports.
    pub fn write(
        &self,
        offset: u64,
        buf: &[u8],
        how: Durability,
        elsewhere: Elsewhere<'_>,
    ) -> io::Result<()> {
        self.refuse_after_failure().map_err(io::Error::other)?;
        if buf.is_empty() {
            return Ok(());
        }
        let clusters = self.clusters(offset, buf.len() as u64);
        if !self.write_in_place(offset, buf, how)? {
            let _claim = self.claims.take(clusters.clone());
            let _inside = self.enter();
            self.write_anew(offset, buf, how, elsewhere)?;
        }
        let is_stable = how == Durability::Buffered || {
            let state = self.look();
            clusters.clone().all(|cluster| state.maps.is_stable(cluster))
        };
        if is_stable { Ok(()) } else { self.flush().map_err(io::Error::other) }
    }

    /// The clusters that a range touches.
    fn clusters(&self, offset: u64, length: u64) -> Range<u64> {
        offset >> self.header.cluster_bits..(offset + length).div_ceil(self.header.cluster_size())
    }

    /// Writes where all of the range has its place in the file; whether it has.
    fn write_in_place(&self, offset: u64, buf: &[u8], how: Durability) -> io::Result<bool> {
        let _inside = self.enter();
        let mut pieces = Vec::new();
        let mut done = 0;
        {
            let state = self.look();
            while done < buf.len() as u64 {
                let (place, length) = self.place(&state, offset + done, buf.len() as u64 - done);
                let Place::File(at) = place else { return Ok(false) };
                pieces.push((at, done as usize..(done + length) as usize));
                done += length;
            }
        }
        for (at, range) in pieces {
            self.write_file(at, buf.get(range).unwrap_or_default(), how)?;
        }
        Ok(true)
    }

    fn write_file(&self, offset: u64, bytes: &[u8], how: Durability) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.file.size() {
            self.reach(&mut self.change(), end)?;
        }
        let written = self.file.write_at(offset, bytes, how);
        if how == Durability::Fua {
            // The system reports a lost write once: here, even if it was one of a flush.
            written.as_ref().err().into_iter().for_each(|error| self.remember(error));
        }
        written.map_err(io::Error::other)
    }

    /// Makes the file long enough. The lock is that of whoever does so.
    fn reach(&self, _state: &mut State, end: u64) -> io::Result<()> {
        match end > self.file.size() {
            false => Ok(()),
            true if self.grows => self.file.set_size(end).map_err(io::Error::other),
            true => Err(Errno::NOSPC.into()),
        }
    }

    /// Writes a range that is claimed, of which some has no place in the file, or one that is not written in place.
    fn write_anew(
        &self,
        offset: u64,
        buf: &[u8],
        how: Durability,
        elsewhere: Elsewhere<'_>,
    ) -> io::Result<()> {
        let size = self.header.cluster_size();
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (place, length) = self.place(&self.look(), at, rest.len() as u64);
            let length = match place {
                Place::File(to) => {
                    self.write_file(to, rest.get(..length as usize).unwrap_or_default(), how)?;
                    length
                }
                _ if at.is_multiple_of(size) && length >= size => {
                    let most = length.min(RUN_MAX.max(size)) / size;
                    let (first, count, _) = self.allocate(at / size, most)?;
                    let piece = rest.get(..(count * size) as usize).unwrap_or_default();
                    self.put(at / size, first, count, |to| self.write_file(to, piece, how))?;
                    count * size
                }
                place => {
                    let length = length.min(size - at % size);
                    let piece = rest.get(..length as usize).unwrap_or_default();
                    self.write_part(at, piece, place, how, elsewhere)?;
                    length
                }
            };
            (at, rest) = (at + length, rest.get(length as usize..).unwrap_or_default());
        }
        Ok(())
    }

    /// Writes a part of one cluster that gets a place in the file, with what the rest of it has.
    fn write_part(
        &self,
        at: u64,
        piece: &[u8],
        place: Place,
        how: Durability,
        elsewhere: Elsewhere<'_>,
    ) -> io::Result<()> {
        let size = self.header.cluster_size();
        let (cluster, within) = (at / size, (at % size) as usize);
        let (first, count, is_hole) = self.allocate(cluster, 1)?;
        self.put(cluster, first, count, |to| {
            if is_hole && place == Place::Zeros {
                return self.write_file(to + within as u64, piece, how);
            }
            let mut whole = vec![0; size as usize];
            let there = (self.header.size - cluster * size).min(size) as usize;
            self.read_inside(cluster * size, whole.get_mut(..there).unwrap_or_default(), elsewhere)?;
            if let Some(part) = whole.get_mut(within..within + piece.len()) {
                part.copy_from_slice(piece);
            }
            self.write_file(to, &whole, how)
        })
    }

    /// New clusters for those of the disk from one on: the first, how many, and whether they are a hole of the file.
    fn allocate(&self, cluster: u64, most: u64) -> io::Result<(u64, u64, bool)> {
        let mut state = self.change();
        state.add_table(cluster)?;
        let most = most.min(state.maps.end_of_table(cluster) - cluster);
        let (first, count) = state.refcounts.allocate(most)?;
        let is_hole = self.grows && first << self.header.cluster_bits >= self.file.size();
        if let Err(error) = self.reach(&mut state, (first + count) << self.header.cluster_bits) {
            state.give_back(first, count);
            return Err(error);
        }
        Ok((first, count, is_hole))
    }

    /// Fills new clusters, then makes them those of the disk.
    fn put(
        &self,
        cluster: u64,
        first: u64,
        count: u64,
        fill: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let filled = fill(first << self.header.cluster_bits);
        let mut state = self.change();
        if filled.is_err() {
            state.give_back(first, count);
            return filled;
        }
        for step in 0..count {
            state.set(cluster + step, (first + step) << self.header.cluster_bits | COPIED);
        }
        Ok(())
    }

    /// Makes whole clusters of a range read as zeros and frees their places; what of the range remains at both ends.
    ///
    /// # Errors
    /// `ENOSPC`, as an L2 table may be needed; that of a flush that failed.
    pub fn zero_clusters(&self, offset: u64, length: u64) -> io::Result<[Range<u64>; 2]> {
        self.refuse_after_failure().map_err(io::Error::other)?;
        let size = self.header.cluster_size();
        let end = offset + length;
        let first = offset.div_ceil(size);
        // What follows the end of the disk in its last cluster is nobody's.
        let last = if end == self.header.size { end.div_ceil(size) } else { end / size };
        // Version 2 cannot say that zeros hide what the backing image has.
        if first >= last || (self.header.has_backing && self.header.version == 2) {
            return Ok([offset..end, end..end]);
        }
        let _claim = self.claims.take(first..last);
        let mut cluster = first;
        while cluster < last {
            // A table at a time, as others want the lock.
            let mut state = self.change();
            let until = state.maps.end_of_table(cluster).min(last);
            if self.header.has_backing {
                state.add_table(cluster)?;
            }
            if state.maps.has_table(cluster) {
                self.clear(&mut state, cluster..until);
            }
            cluster = until;
        }
        Ok([offset..first * size, (last * size).min(end)..end])
    }

    fn clear(&self, state: &mut State, clusters: Range<u64>) {
        let raw = if self.header.has_backing { ZERO } else { 0 };
        for cluster in clusters {
            match state.maps.get(cluster) {
                Entry::Zeros(None) => {}
                Entry::Nothing if !self.header.has_backing => {}
                _ => state.set(cluster, raw),
            }
        }
    }

    /// Whether a range reads as zeros without having a place.
    pub fn is_zero(&self, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        length == 0 || self.place(&self.look(), range.start, length) == (Place::Zeros, length)
    }

    /// Makes everything stable that was written: a commit.
    ///
    /// # Errors
    /// What the file reports. Every later change and flush then fails with the same error.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let _one = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
        self.refuse_after_failure()?;
        self.commit().inspect_err(|error| self.remember(error))
    }

    fn commit(&self) -> Result<(), DeviceError> {
        let plan = self.change().take();
        self.write_plan(&plan)?;
        if plan.frees() {
            // Whoever moves data where it lay before is done after this.
            drop(self.gate.write().unwrap_or_else(PoisonError::into_inner));
            let unused = self.look().unused(&plan);
            self.punch(&unused)?;
        }
        let last = self.change().finish(plan);
        self.write_all(&last)
    }

    /// Gives the room of clusters back, to which the file refers no more and which are not free for others yet.
    fn punch(&self, runs: &[Range<u64>]) -> Result<(), DeviceError> {
        let bits = self.header.cluster_bits;
        for run in runs {
            let (start, end) = (run.start << bits, (run.end << bits).min(self.file.size()));
            if start < end {
                self.file.discard(start, end - start)?;
            }
        }
        Ok(())
    }

    fn write_plan(&self, plan: &Plan) -> Result<(), DeviceError> {
        let [first, second, third] = &plan.steps;
        self.write_all(first)?;
        self.file.flush()?;
        for step in [second, third] {
            if !step.is_empty() {
                self.write_all(step)?;
                self.file.flush()?;
            }
        }
        Ok(())
    }

    fn write_all(&self, writes: &[Write]) -> Result<(), DeviceError> {
        for (offset, bytes) in writes {
            self.write_file(*offset, bytes, Durability::Buffered).map_err(|error| {
                error.downcast().unwrap_or_else(|source| DeviceError::Io {
                    device: self.file.describe().into(),
                    what: Operation::Write,
                    offset: *offset,
                    length: bytes.len() as u64,
                    source,
                })
            })?;
        }
        Ok(())
    }
}
