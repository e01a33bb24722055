//! Reads and changes a qcow2 image in place.
//!
//! Data is written to the file at once: to the cluster that it is mapped to, or to a new cluster, which is mapped in
//! memory after the write. Mapping tables and refcounts are written by a commit ([`Writer::flush`]), in the order that
//! `metadata` describes.
//!
//! # Locking
//! `remapping -> transfers -> metadata`, and `commit -> transfers -> metadata`. No thread holds `remapping` while it
//! commits.
//!
//! | lock | held |
//! |---|---|
//! | `remapping` | on clusters of the disk while they are mapped to other clusters of the file |
//! | `transfers`, shared | during transfers of data |
//! | `transfers`, exclusive | by a commit, for a moment: waits for transfers that still use freed clusters |
//! | `metadata` | while tables and refcounts are read or changed; never during a transfer |
//! | `commit` | during a commit |

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;

use super::header::Header;
use super::l2_tables::{COPIED, L2Entry, ZERO};
use super::load::load;
use super::metadata::{Commit, FileWrite, Metadata};
use super::range_lock::RangeLock;
use crate::device::{Device, Durability};
use crate::error::{DeviceError, Operation};

/// Maximum bytes of clusters that are allocated at once.
const ALLOCATION_MAX: u64 = 4 << 20;

/// The location of a range of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    /// Not allocated: zeros.
    Zeros,
    /// Compressed, or in the backing image.
    Imago,
    /// At an offset of the file.
    File(u64),
}

/// Reads compressed clusters and the backing image through `imago`.
pub type ReadImago<'r> = &'r dyn Fn(u64, &mut [u8]) -> io::Result<()>;

/// Clusters of the file for new data.
struct NewClusters {
    clusters: Range<u64>,
    /// The file had no data there: they read as zeros.
    is_hole: bool,
}

/// The disk in a writable qcow2 file.
pub struct Writer {
    file: Arc<dyn Device>,
    header: Header,
    /// Whether the file can be extended.
    can_grow: bool,
    metadata: RwLock<Metadata>,
    transfers: RwLock<()>,
    remapping: RangeLock,
    commit: Mutex<()>,
    /// The first error of a flush.
    failure: OnceLock<DeviceError>,
}

impl Writer {
    /// Loads and verifies the metadata.
    ///
    /// # Errors
    /// Errors of the device; the image cannot be changed.
    pub fn open(file: Arc<dyn Device>, header: Header) -> io::Result<Self> {
        header.check_writable()?;
        let unit = file.logical_sector_size().max(512) as usize;
        if header.cluster_size() < unit as u64 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its clusters are smaller than a sector of the device (open it without direct I/O)",
            ));
        }
        // A block device cannot be resized.
        let can_grow = file.set_size(file.size()).is_ok();
        let capacity = (!can_grow).then_some(file.size() >> header.cluster_bits);
        let (tables, refcounts) = load(&*file, &header, unit, capacity)?;
        let mut header_bytes = vec![0; unit];
        let length = usize::try_from(file.size()).unwrap_or(unit).min(unit);
        file.read_at(0, header_bytes.get_mut(..length).unwrap_or_default()).map_err(io::Error::other)?;
        let mut metadata = Metadata::new(header.clone(), unit, header_bytes, tables, refcounts);
        if header.has_autoclear() {
            let FileWrite { offset, bytes } = metadata.clear_autoclear();
            file.write_at(offset, &bytes, Durability::Buffered).map_err(io::Error::other)?;
            file.flush().map_err(io::Error::other)?;
        }
        Ok(Self {
            file,
            header,
            can_grow,
            metadata: RwLock::new(metadata),
            transfers: RwLock::default(),
            remapping: RangeLock::default(),
            commit: Mutex::default(),
            failure: OnceLock::new(),
        })
    }

    fn metadata(&self) -> RwLockReadGuard<'_, Metadata> {
        self.metadata.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn metadata_mut(&self) -> RwLockWriteGuard<'_, Metadata> {
        self.metadata.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_transfer(&self) -> RwLockReadGuard<'_, ()> {
        self.transfers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses changes after a failed flush: it is unknown which of its writes are in the file, and so which order of
    /// further writes is safe.
    fn check_failure(&self) -> Result<(), DeviceError> {
        self.failure.get().map_or(Ok(()), |first| Err(self.copy_error(first)))
    }

    /// Records an error after which writes of a flush may be lost.
    fn record_failure(&self, error: &DeviceError) {
        // The first one is kept.
        let _ = self.failure.set(self.copy_error(error));
    }

    fn copy_error(&self, error: &DeviceError) -> DeviceError {
        DeviceError::Io {
            device: self.file.describe().into(),
            operation: error.operation(),
            offset: error.offset(),
            length: error.length(),
            source: io::Error::from_raw_os_error(error.errno()),
        }
    }

    /// Fills `buf` from the disk.
    ///
    /// # Errors
    /// Errors of the file and of `read_imago`.
    pub fn read(&self, offset: u64, buf: &mut [u8], read_imago: ReadImago<'_>) -> io::Result<()> {
        let _transfer = self.begin_transfer();
        self.read_in_transfer(offset, buf, read_imago)
    }

    fn read_in_transfer(&self, offset: u64, buf: &mut [u8], read_imago: ReadImago<'_>) -> io::Result<()> {
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (location, length) = self.locate(&self.metadata(), offset, rest.len() as u64);
            let (piece, tail) = rest.split_at_mut(length as usize);
            match location {
                Location::Zeros => piece.fill(0),
                Location::Imago => read_imago(offset, piece)?,
                Location::File(offset) => self.read_file(offset, piece)?,
            }
            (offset, rest) = (offset + length, tail);
        }
        Ok(())
    }

    /// Reads the file, whose last cluster may be incomplete.
    fn read_file(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let length = self.file.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let (existing, missing) = buf.split_at_mut(length);
        missing.fill(0);
        if existing.is_empty() {
            return Ok(());
        }
        self.file.read_at(offset, existing).map_err(io::Error::other)
    }

    /// The location of an offset of the disk, and the number of contiguous bytes there, at most `max`.
    fn locate(&self, metadata: &Metadata, offset: u64, max: u64) -> (Location, u64) {
        let size = self.header.cluster_size();
        let cluster_location = |cluster: u64| match metadata.tables.get(cluster) {
            L2Entry::Unallocated if self.header.has_backing => Location::Imago,
            L2Entry::Unallocated | L2Entry::Zeros(_) => Location::Zeros,
            L2Entry::Compressed { .. } => Location::Imago,
            L2Entry::Data(offset) => Location::File(offset),
        };
        let (first, within) = (offset / size, offset % size);
        let location = cluster_location(first);
        let mut clusters = 1;
        while clusters * size - within < max {
            let continues = match (location, cluster_location(first + clusters)) {
                (Location::File(offset), Location::File(next)) => offset + clusters * size == next,
                (location, next) => location == next,
            };
            if !continues {
                break;
            }
            clusters += 1;
        }
        let location = match location {
            Location::File(offset) => Location::File(offset + within),
            location => location,
        };
        (location, max.min(clusters * size - within))
    }

    /// Writes `buf` to the disk.
    ///
    /// # Errors
    /// Errors of the file and of `read_imago`.
    pub fn write(
        &self,
        offset: u64,
        buf: &[u8],
        durability: Durability,
        read_imago: ReadImago<'_>,
    ) -> io::Result<()> {
        self.check_failure().map_err(io::Error::other)?;
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        let mut clusters = offset >> self.header.cluster_bits..end.div_ceil(self.header.cluster_size());
        if !self.write_in_place(offset, buf, durability)? {
            let _remapping = self.remapping.lock(clusters.clone());
            let _transfer = self.begin_transfer();
            self.write_allocating(offset, buf, durability, read_imago)?;
        }
        let is_stable = durability == Durability::Buffered || {
            let metadata = self.metadata();
            clusters.all(|cluster| metadata.tables.is_stable(cluster))
        };
        if is_stable { Ok(()) } else { self.flush().map_err(io::Error::other) }
    }

    /// Writes a range if all of it is allocated, and returns `false` otherwise.
    fn write_in_place(&self, offset: u64, buf: &[u8], durability: Durability) -> io::Result<bool> {
        let _transfer = self.begin_transfer();
        let mut pieces = Vec::new();
        {
            let metadata = self.metadata();
            let (mut offset, mut rest) = (offset, buf);
            while !rest.is_empty() {
                let (location, length) = self.locate(&metadata, offset, rest.len() as u64);
                let Location::File(file_offset) = location else { return Ok(false) };
                let (piece, tail) = rest.split_at(length as usize);
                pieces.push((file_offset, piece));
                (offset, rest) = (offset + length, tail);
            }
        }
        for (file_offset, piece) in pieces {
            self.write_file(file_offset, piece, durability)?;
        }
        Ok(true)
    }

    fn write_file(&self, offset: u64, bytes: &[u8], durability: Durability) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.file.size() {
            self.extend_file(&mut self.metadata_mut(), end)?;
        }
        let written = self.file.write_at(offset, bytes, durability);
        if durability == Durability::Fua
            && let Err(error) = &written
        {
            // The system reports a lost write only once: possibly here, although it belongs to a flush.
            self.record_failure(error);
        }
        written.map_err(io::Error::other)
    }

    /// Extends the file to at least `end`. The caller must hold the lock.
    fn extend_file(&self, _metadata: &mut Metadata, end: u64) -> io::Result<()> {
        match end > self.file.size() {
            false => Ok(()),
            true if self.can_grow => self.file.set_size(end).map_err(io::Error::other),
            true => Err(Errno::NOSPC.into()),
        }
    }

    /// Writes a range, and allocates clusters where it is not mapped to data. The caller must hold `remapping` on it.
    fn write_allocating(
        &self,
        offset: u64,
        buf: &[u8],
        durability: Durability,
        read_imago: ReadImago<'_>,
    ) -> io::Result<()> {
        let size = self.header.cluster_size();
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (location, length) = self.locate(&self.metadata(), offset, rest.len() as u64);
            let length = match location {
                Location::File(file_offset) => {
                    let piece = rest.get(..length as usize).unwrap_or_default();
                    self.write_file(file_offset, piece, durability)?;
                    length
                }
                _ if offset.is_multiple_of(size) && length >= size => {
                    let max = length.min(ALLOCATION_MAX.max(size)) / size;
                    let NewClusters { clusters, .. } = self.allocate(offset / size, max)?;
                    let length = (clusters.end - clusters.start) * size;
                    let piece = rest.get(..length as usize).unwrap_or_default();
                    self.fill_and_map(offset / size, clusters, |file_offset| {
                        self.write_file(file_offset, piece, durability)
                    })?;
                    length
                }
                location => {
                    let length = length.min(size - offset % size);
                    let piece = rest.get(..length as usize).unwrap_or_default();
                    self.write_partial_cluster(offset, piece, location, durability, read_imago)?;
                    length
                }
            };
            (offset, rest) = (offset + length, rest.get(length as usize..).unwrap_or_default());
        }
        Ok(())
    }

    /// Writes a part of a cluster of the disk to a new cluster, together with the rest of its old contents.
    fn write_partial_cluster(
        &self,
        offset: u64,
        piece: &[u8],
        location: Location,
        durability: Durability,
        read_imago: ReadImago<'_>,
    ) -> io::Result<()> {
        let size = self.header.cluster_size();
        let (cluster, within) = (offset / size, (offset % size) as usize);
        let NewClusters { clusters, is_hole } = self.allocate(cluster, 1)?;
        self.fill_and_map(cluster, clusters, |file_offset| {
            if is_hole && location == Location::Zeros {
                return self.write_file(file_offset + within as u64, piece, durability);
            }
            let mut bytes = vec![0; size as usize];
            let length = (self.header.size - cluster * size).min(size) as usize;
            let existing = bytes.get_mut(..length).unwrap_or_default();
            self.read_in_transfer(cluster * size, existing, read_imago)?;
            if let Some(target) = bytes.get_mut(within..within + piece.len()) {
                target.copy_from_slice(piece);
            }
            self.write_file(file_offset, &bytes, durability)
        })
    }

    /// Allocates at least one cluster and at most `max`, for clusters of the disk from `cluster` on.
    fn allocate(&self, cluster: u64, max: u64) -> io::Result<NewClusters> {
        let mut metadata = self.metadata_mut();
        metadata.add_table(cluster)?;
        let max = max.min(metadata.tables.end_of_table(cluster) - cluster);
        let clusters = metadata.refcounts.allocate(max)?;
        let is_hole = self.can_grow && clusters.start << self.header.cluster_bits >= self.file.size();
        if let Err(error) = self.extend_file(&mut metadata, clusters.end << self.header.cluster_bits) {
            metadata.free_unused(clusters);
            return Err(error);
        }
        Ok(NewClusters { clusters, is_hole })
    }

    /// Fills new clusters of the file, then maps clusters of the disk from `cluster` on to them.
    fn fill_and_map(
        &self,
        cluster: u64,
        new: Range<u64>,
        fill: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let filled = fill(new.start << self.header.cluster_bits);
        let mut metadata = self.metadata_mut();
        if filled.is_err() {
            metadata.free_unused(new);
            return filled;
        }
        for (cluster, new) in (cluster..).zip(new) {
            metadata.set_entry(cluster, new << self.header.cluster_bits | COPIED);
        }
        Ok(())
    }

    /// Makes whole clusters of a range read as zeros and frees their clusters of the file. Returns the rest of the
    /// range at both ends.
    ///
    /// # Errors
    /// `ENOSPC`, as an L2 table may be needed; the error of an earlier flush.
    pub fn zero_clusters(&self, offset: u64, length: u64) -> io::Result<[Range<u64>; 2]> {
        self.check_failure().map_err(io::Error::other)?;
        let size = self.header.cluster_size();
        let end = offset + length;
        let first = offset.div_ceil(size);
        // The part of the last cluster that is past the end of the disk is unused.
        let last = if end == self.header.size { end.div_ceil(size) } else { end / size };
        // Version 2 has no entries for zeros that hide data of a backing image.
        if first >= last || (self.header.has_backing && self.header.version == 2) {
            return Ok([offset..end, end..end]);
        }
        let _remapping = self.remapping.lock(first..last);
        let mut cluster = first;
        while cluster < last {
            // The lock is released after each table, for other threads.
            let mut metadata = self.metadata_mut();
            let table_end = metadata.tables.end_of_table(cluster).min(last);
            if self.header.has_backing {
                metadata.add_table(cluster)?;
            }
            if metadata.tables.has_table(cluster) {
                self.zero_entries(&mut metadata, cluster..table_end);
            }
            cluster = table_end;
        }
        Ok([offset..first * size, (last * size).min(end)..end])
    }

    fn zero_entries(&self, metadata: &mut Metadata, clusters: Range<u64>) {
        let raw = if self.header.has_backing { ZERO } else { 0 };
        for cluster in clusters {
            match metadata.tables.get(cluster) {
                L2Entry::Zeros(None) => {}
                L2Entry::Unallocated if !self.header.has_backing => {}
                _ => metadata.set_entry(cluster, raw),
            }
        }
    }

    /// Whether a range reads as zeros and has no data clusters.
    pub fn is_zero(&self, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        length == 0 || self.locate(&self.metadata(), range.start, length) == (Location::Zeros, length)
    }

    /// Commits: makes all earlier writes stable.
    ///
    /// # Errors
    /// Errors of the file. All later changes and flushes fail with the same error.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let _commit = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_failure()?;
        self.commit().inspect_err(|error| self.record_failure(error))
    }

    fn commit(&self) -> Result<(), DeviceError> {
        let commit = self.metadata_mut().begin_commit();
        self.write_steps(&commit)?;
        if commit.frees_clusters() {
            // Wait for transfers that began before clusters were remapped.
            drop(self.transfers.write().unwrap_or_else(PoisonError::into_inner));
            let freed = self.metadata().freed_runs(&commit);
            self.punch_holes(&freed)?;
        }
        let decreased_refcounts = self.metadata_mut().finish_commit(commit);
        self.write_all(&decreased_refcounts)
    }

    /// Deallocates clusters that the file no longer refers to. They cannot be allocated again yet.
    fn punch_holes(&self, runs: &[Range<u64>]) -> Result<(), DeviceError> {
        let bits = self.header.cluster_bits;
        for run in runs {
            let (start, end) = (run.start << bits, (run.end << bits).min(self.file.size()));
            if start < end {
                self.file.discard(start, end - start)?;
            }
        }
        Ok(())
    }

    fn write_steps(&self, commit: &Commit) -> Result<(), DeviceError> {
        let [first, second, third] = &commit.steps;
        self.write_all(first)?;
        // Also makes data stable, so that it is needed even if there are no changed refcounts.
        self.file.flush()?;
        for step in [second, third] {
            if !step.is_empty() {
                self.write_all(step)?;
                self.file.flush()?;
            }
        }
        Ok(())
    }

    fn write_all(&self, writes: &[FileWrite]) -> Result<(), DeviceError> {
        for FileWrite { offset, bytes } in writes {
            self.write_file(*offset, bytes, Durability::Buffered).map_err(|error| {
                error.downcast().unwrap_or_else(|source| DeviceError::Io {
                    device: self.file.describe().into(),
                    operation: Operation::Write,
                    offset: *offset,
                    length: bytes.len() as u64,
                    source,
                })
            })?;
        }
        Ok(())
    }
}
