//! A volume as a device, and its threads.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use base::lock::{Mutex, Rank};
use base::thread::{self, JoinHandle};
use block::{Device, DeviceError, Durability, Operation, ReadRequest};
use store::Store;

use crate::checkpoint::Occasion;
use crate::client::{Client, RequestCounts};
use crate::error::{ObjectError, Result};
use crate::head::{Parent, SIZE_MAX, Snapshot};
use crate::names::{self, Kind};
use crate::options::ObjectOptions;
use crate::publish::read_head;
use crate::segment::BLOCK;
use crate::state::{Core, Failure};
use crate::usage::bytes_of;
use crate::{claim, create};

const PANICKED: &str = "a thread of the volume panicked (this is a bug; the panic's message says where)";

/// Pause after a checkpoint that failed.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(10);

/// A volume on a store.
///
/// [`close`](Self::close) makes everything durable and lets other writers open the volume. Without, dropping it is like
/// a crash: what was not flushed is lost, and the next writer must take over.
pub struct ObjectDevice {
    core: Arc<Core>,
    close_on_drop: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the head of a volume says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Identifies the volume.
    pub uuid: [u8; 16],
    /// Size in bytes.
    pub size: u64,
    /// Logical sector size.
    pub sector: u32,
    /// Epoch of the last writer.
    pub epoch: u64,
    /// The writer that has it open.
    pub writer: Option<String>,
    /// Snapshots.
    pub snapshots: Vec<Snapshot>,
    /// States that clones use, by the clones' URLs.
    pub pins: Vec<Snapshot>,
    /// Volumes whose objects this one uses.
    pub parents: Vec<Parent>,
}

/// Reads what the head of a volume says.
///
/// # Errors
/// There is no volume, or the store's errors.
pub fn volume_info(store: Arc<dyn Store>, options: &ObjectOptions) -> Result<VolumeInfo> {
    let client = Client::new(store, options.timeout);
    let found = read_head(&client)?.ok_or_else(|| ObjectError::NoVolume { volume: client.name() })?;
    let head = found.head;
    Ok(VolumeInfo {
        uuid: head.uuid,
        size: head.size,
        sector: head.sector,
        epoch: head.epoch,
        writer: head.writer,
        snapshots: head.snapshots,
        pins: head.pins,
        parents: head.parents,
    })
}

impl ObjectDevice {
    /// Opens a snapshot, or without a name what is durable now, for reading.
    ///
    /// # Errors
    /// There is no such volume or snapshot; damage; the store's errors.
    pub fn open_read_only(
        store: Arc<dyn Store>,
        snapshot: Option<&str>,
        options: ObjectOptions,
    ) -> Result<Self> {
        claim::open_for_reading(store, snapshot, options).and_then(Self::start)
    }

    /// Opens a volume for writing: its only writer.
    ///
    /// # Errors
    /// Another writer has it open; damage; the store's errors.
    pub fn open(store: Arc<dyn Store>, options: ObjectOptions) -> Result<Self> {
        claim::open_for_writing(store, options).and_then(Self::start)
    }

    /// Begins a volume, which exists when it is [closed](Self::close), or from its first checkpoint on.
    ///
    /// # Errors
    /// There is one already; the store ignores conditions; the store's errors.
    pub fn create(store: Arc<dyn Store>, size: u64, sector: u32, options: ObjectOptions) -> Result<Self> {
        create::create(store, size, sector, options).and_then(Self::start)
    }

    /// Starts the threads of a volume.
    pub(crate) fn start(core: Core) -> Result<Self> {
        let device =
            Self { core: Arc::new(core), close_on_drop: false, threads: Mutex::new(Rank::Leaf, Vec::new()) };
        if device.core.read_only {
            return Ok(device);
        }
        let start = |name: &str, body: fn(&Core)| {
            let core = Arc::clone(&device.core);
            let run = move || {
                // Without the thread, others would wait for what it had begun.
                if catch_unwind(AssertUnwindSafe(|| body(&core))).is_err() {
                    core.fail(Failure::Refused(PANICKED.into()));
                }
            };
            thread::spawn(name, run).map_err(|error| ObjectError::Refused {
                volume: device.core.name.clone(),
                reason: format!("cannot start a thread: {error}").into(),
            })
        };
        let mut threads = Vec::new();
        for _ in 0..device.core.options.uploads.max(1) {
            threads.push(start("remote-store", Core::store_segments)?);
        }
        threads.push(start("remote-map", Core::checkpoint_when_due)?);
        device.threads.lock().extend(threads);
        Ok(device)
    }

    /// Stores the map, so that the next open has less to read.
    ///
    /// # Errors
    /// Another writer has taken over; the store's errors.
    pub fn checkpoint(&self) -> Result<()> {
        self.core.refuse_read_only()?;
        self.core.flush()?;
        self.core.checkpoint(Occasion::Request)
    }

    /// Makes everything durable, and lets other writers open the volume. Later writes through this device fail.
    ///
    /// # Errors
    /// Another writer has taken over; the store's errors.
    pub fn close(&self) -> Result<()> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.flush()?;
        self.core.checkpoint(Occasion::Close)?;
        self.core.fail(Failure::Closed);
        Ok(())
    }

    /// Removes what was stored of a new volume that does not exist yet. A request that is still on its way may leave an
    /// object; another volume at this place does not meet it.
    ///
    /// # Errors
    /// The volume exists; the store's errors.
    pub fn abandon(&self) -> Result<()> {
        let core = &self.core;
        if core.read_only || core.publisher.lock().version.is_some() {
            let reason = "it exists, and cannot be abandoned".into();
            return Err(ObjectError::Refused { volume: core.name.clone(), reason });
        }
        self.stop();
        let client = Arc::new(Client::new(Arc::clone(&core.client()?.store), core.options.timeout));
        let folders = [Kind::Segment, Kind::Map].map(|kind| names::folder(kind, core.epoch));
        let mut keys = Vec::new();
        client.for_each_listed(&folders, |listed| {
            keys.push(listed.key.clone());
            Ok(())
        })?;
        client.delete_all(keys).into_iter().collect()
    }

    /// Ends the threads. Nothing can be written any more.
    fn stop(&self) {
        self.core.origins.iter().for_each(|origin| origin.client.stop());
        self.core.fail(Failure::Closed);
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// [Closes](Self::close) the volume when it is dropped, for owners that know it as a [`Device`] only. Errors are
    /// lost then, but nothing that was flushed is: the next writer must take over.
    #[must_use]
    pub fn close_on_drop(mut self) -> Self {
        self.close_on_drop = true;
        self
    }

    /// The writer that had the volume open when it was opened for reading.
    pub fn writer(&self) -> Option<String> {
        let publisher = self.core.publisher.lock();
        publisher.head.writer.clone().filter(|_| self.core.read_only)
    }

    /// Moves live blocks out of segments that are mostly garbage. Returns the number of these.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub fn clean(&self) -> Result<usize> {
        self.core.refuse_read_only()?;
        self.core.clean()
    }

    /// Requests to this volume's own store.
    pub fn counts(&self) -> RequestCounts {
        self.core.origins.first().map(|origin| origin.client.counts()).unwrap_or_default()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    fn error(&self, operation: Operation, offset: u64, length: u64) -> impl Fn(ObjectError) -> DeviceError {
        move |error| error.into_device(&self.core.name, operation, offset, length)
    }

    fn check(&self, operation: Operation, offset: u64, length: u64) -> std::result::Result<(), DeviceError> {
        let size = self.size();
        if operation != Operation::Read && self.core.read_only {
            return Err(DeviceError::ReadOnly { device: self.core.name.clone(), offset, length });
        }
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => {
                Err(DeviceError::PastEnd { device: self.core.name.clone(), operation, offset, length, size })
            }
        }
    }
}

impl Core {
    /// The work of the thread that makes checkpoints.
    fn checkpoint_when_due(&self) {
        let mut not_before = Duration::ZERO;
        loop {
            let mut state = self.state.lock();
            loop {
                if state.failed.is_some() {
                    return;
                }
                let (segments, bytes) = state.unsaved;
                let is_due =
                    segments >= self.options.checkpoint_segments || bytes >= self.options.checkpoint_bytes;
                let rest = not_before.saturating_sub(thread::elapsed());
                match (is_due, rest.is_zero()) {
                    (true, true) => break,
                    (true, false) => {
                        self.changed.wait_for(&mut state, rest);
                    }
                    (false, _) => self.changed.wait(&mut state),
                }
            }
            drop(state);
            // A failure that stays is recorded where it happens. After another one, the log is only longer.
            if self.checkpoint(Occasion::LongLog).and_then(|()| self.clean()).is_err() {
                not_before = thread::elapsed() + CHECKPOINT_PAUSE;
            }
        }
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        if self.close_on_drop {
            let _ = self.close();
        }
        self.stop();
    }
}

impl Device for ObjectDevice {
    fn size(&self) -> u64 {
        self.core.size.load(SeqCst)
    }

    fn logical_sector_size(&self) -> u32 {
        self.core.sector
    }

    fn is_read_only(&self) -> bool {
        self.core.read_only
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), DeviceError> {
        self.check(Operation::Read, offset, buf.len() as u64)?;
        self.core.read(offset, buf).map_err(self.error(Operation::Read, offset, buf.len() as u64))
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> std::result::Result<(), DeviceError> {
        for read in reads.iter() {
            self.check(Operation::Read, read.offset, read.buf.len() as u64)?;
        }
        let first = reads.first().map_or(0, |read| read.offset);
        let length = reads.iter().map(|read| read.buf.len() as u64).sum();
        let reads = reads.iter_mut().map(|read| (read.offset, &mut *read.buf));
        self.core.read_many(reads).map_err(self.error(Operation::Read, first, length))
    }

    fn write_at(
        &self,
        offset: u64,
        buf: &[u8],
        durability: Durability,
    ) -> std::result::Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        let written = self.core.write(offset, buf);
        written.map_err(self.error(Operation::Write, offset, buf.len() as u64))?;
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Fua => self.flush(),
        }
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.flush().map_err(self.error(Operation::Flush, 0, 0))
    }

    /// Grows the volume, or truncates it. Durable when it returns.
    fn set_size(&self, size: u64) -> std::result::Result<(), DeviceError> {
        self.check(Operation::Resize, 0, 0)?;
        self.core.set_size(size).map_err(self.error(Operation::Resize, 0, size))
    }

    fn zero(&self, offset: u64, length: u64) -> std::result::Result<(), DeviceError> {
        self.check(Operation::Write, offset, length)?;
        self.core.zero(offset, length).map_err(self.error(Operation::Write, offset, length))
    }

    fn discard(&self, offset: u64, length: u64) -> std::result::Result<bool, DeviceError> {
        self.check(Operation::Write, offset, length)?;
        self.core.zero(offset, length).map_err(self.error(Operation::Discard, offset, length))?;
        Ok(true)
    }

    fn next_data(&self, offset: u64) -> std::result::Result<Option<Range<u64>>, DeviceError> {
        let (size, block) = (self.size(), offset / BLOCK as u64);
        if offset >= size {
            return Ok(None);
        }
        let found = self.core.next_data(block).map_err(self.error(Operation::Read, offset, size - offset))?;
        let found = found.map(|blocks| bytes_of(&blocks, size));
        Ok(found.map(|found| found.start.max(offset)..found.end).filter(|found| !found.is_empty()))
    }

    fn describe(&self) -> String {
        self.core.name.to_string()
    }
}

impl Core {
    /// Makes a range read as zeros: holes of whole blocks, and zeros at the ends.
    fn zero(&self, offset: u64, length: u64) -> Result<()> {
        let (end, unit) = (offset + length, BLOCK as u64);
        let (first, last) = (offset.div_ceil(unit), end / unit);
        if first > last {
            return self.write(offset, &[0; BLOCK][..length as usize]);
        }
        let zeros = [0; BLOCK];
        let part = |from: u64, to: u64| zeros.get(..(to - from) as usize).unwrap_or_default();
        self.write(offset, part(offset, first * unit))?;
        if first < last {
            self.discard(first, last)?;
        }
        self.write(last * unit, part(last * unit, end))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let old = self.size.load(SeqCst);
        let refuse = |reason: &str| ObjectError::Refused { volume: self.name.clone(), reason: reason.into() };
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(u64::from(self.sector)) {
            return Err(refuse("this is no possible size of a volume"));
        }
        if size < old {
            // What is behind the end must not come back when the volume grows again.
            self.zero(size, old - size)?;
        }
        self.flush()?;
        let mut publisher = self.publisher.lock();
        self.publish(&mut publisher, false, |_, _, head| {
            head.size = size;
            Ok(())
        })?;
        self.size.store(size, SeqCst);
        Ok(())
    }
}
