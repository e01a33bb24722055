//! The threads that write iclogs, and completion of the records.

use std::panic::{AssertUnwindSafe, catch_unwind};

use block::Durability;

use super::buffer::{Iclog, RecordPosition};
use super::{IclogCallbacks, Iclogs, RecordState, State};
use crate::engine::shutdown::Shutdown;

const PANICKED: &str = "writing a record of the log panicked (this is a bug; the panic's message says where)";
const NOT_COMPLETED: &str =
    "completing a checkpoint panicked (this is a bug; the panic's message says where)";

/// A record that a thread has taken to write.
struct RecordWrite {
    position: u64,
    previous: u32,
    length: usize,
    durable: bool,
    /// Fail it without writing.
    closed: bool,
}

impl Iclogs {
    /// The main loop of a writing thread; returns when the threads are stopped.
    pub fn write_loop(&self, callbacks: &dyn IclogCallbacks) {
        while let Some(job) = self.next_job() {
            self.run(job, callbacks);
        }
    }

    /// Writes the waiting records until there are none.
    pub fn write_waiting(&self, callbacks: &dyn IclogCallbacks) {
        loop {
            let job = Self::take_job(&mut self.state.lock());
            let Some(job) = job else { return };
            self.run(job, callbacks);
        }
    }

    fn run(&self, (job, mut buffer): (RecordWrite, Iclog), callbacks: &dyn IclogCallbacks) {
        // A panic must not leave the record in flight for ever.
        let write = AssertUnwindSafe(|| self.write(&job, &mut buffer, callbacks));
        let result = match job.closed {
            true => Err(Shutdown::Already),
            false => catch_unwind(write).unwrap_or_else(|_| Err(Shutdown::Because(PANICKED.into()))),
        };
        buffer.clear();
        let ok = result.is_ok();
        if let Err(error) = result
            && !job.closed
        {
            callbacks.failed(error);
        }
        self.end_write(job.position, buffer, ok);
        self.complete_checkpoints(callbacks);
    }

    /// Waits for a record that can be written now; `None` when the thread must end.
    fn next_job(&self) -> Option<(RecordWrite, Iclog)> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = Self::take_job(&mut state) {
                return Some(job);
            }
            if state.stopping && state.inflight.is_empty() {
                return None;
            }
            self.work.wait(&mut state);
        }
    }

    fn take_job(state: &mut State) -> Option<(RecordWrite, Iclog)> {
        let closed = state.closed;
        let mut inflight = state.inflight.iter_mut().enumerate();
        let (_, record) = inflight.find(|(index, record)| {
            record.stage == RecordState::Ready && (closed || !record.durable || *index == 0)
        })?;
        record.stage = RecordState::Writing;
        let buffer = record.buffer.take()?;
        let (position, previous, length) = (record.position, record.previous, record.length);
        Some((RecordWrite { position, previous, length, durable: record.durable, closed }, buffer))
    }

    fn write(
        &self,
        job: &RecordWrite,
        buffer: &mut Iclog,
        callbacks: &dyn IclogCallbacks,
    ) -> Result<(), Shutdown> {
        if job.durable {
            self.flush(callbacks)?;
        }
        let end = job.position + job.length as u64;
        let reach = |state: &State| self.log_device.position(state.stable_tail) + self.log_device.bytes();
        let mut tail = {
            let state = self.state.lock();
            (end <= reach(&state)).then_some(state.stable_tail)
        };
        if tail.is_none() {
            // The space ahead was freed by metadata writeback that is not flushed yet.
            self.flush(callbacks)?;
            let state = self.state.lock();
            tail = (end <= reach(&state)).then_some(state.stable_tail);
        }
        let Some(tail) = tail else {
            return Err(Shutdown::Because(
                "the head of the log reached its tail: a record was written without a reservation (this is a \
                bug)".into(),
            ));
        };
        let to_end = self.log_device.blocks_to_end(job.position);
        let place =
            RecordPosition { lsn: self.log_device.lsn(job.position), tail, previous: job.previous, to_end };
        let bytes = buffer.seal(&self.sizes, self.uuid, place)?;
        let how = if job.durable { Durability::Fua } else { Durability::Buffered };
        let earlier = (job.durable && self.is_ordered()).then(|| callbacks.last_unlogged_write());
        self.log_device.write(job.position, bytes, how)?;
        if let Some(last) = earlier {
            callbacks.unlogged_writes_stable(last);
        }
        let mut state = self.state.lock();
        state.data_records += u64::from(!job.durable);
        state.written.records += 1;
        state.written.bytes += job.length as u64;
        Ok(())
    }

    /// Whether a record becomes stable after all that was written before it: metadata, data and records.
    fn is_ordered(&self) -> bool {
        !self.has_own_device && self.log_device.keeps_order()
    }

    /// Makes stable, unless they are: the records written so far, and the metadata written back before the tail moved
    /// to its present position. Where the device keeps the order of writes, the next record does that by itself.
    fn flush(&self, callbacks: &dyn IclogCallbacks) -> Result<(), Shutdown> {
        let tail = callbacks.tail();
        if self.is_ordered() {
            let mut state = self.state.lock();
            state.data_records_flushed = state.data_records;
            state.stable_tail = state.stable_tail.max(tail);
            return Ok(());
        }
        let (data_records, records, moved) = {
            let state = self.state.lock();
            (state.data_records, state.data_records > state.data_records_flushed, tail > state.stable_tail)
        };
        let always = (records && !self.has_own_device) || callbacks.has_unlogged_writes();
        let flushed_data = (moved || always) && callbacks.flush_data(always)?;
        if records && self.has_own_device {
            self.log_device.flush()?;
        }
        let mut state = self.state.lock();
        // Only now: a commit record whose data another thread is still flushing flushes for itself.
        state.data_records_flushed = state.data_records_flushed.max(data_records);
        state.stable_tail = state.stable_tail.max(tail);
        state.written.flushes += u64::from(flushed_data) + u64::from(records && self.has_own_device);
        Ok(())
    }

    /// Records the end of a write, and removes the completed records at the front.
    fn end_write(&self, position: u64, buffer: Iclog, ok: bool) {
        let mut state = self.state.lock();
        if let Some(record) = state.inflight.iter_mut().find(|record| record.position == position) {
            record.stage = if ok { RecordState::Done } else { RecordState::Failed };
            record.buffer = Some(buffer);
        }
        while state
            .inflight
            .front()
            .is_some_and(|front| matches!(front.stage, RecordState::Done | RecordState::Failed))
            && let Some(record) = state.inflight.pop_front()
        {
            // After a failure no later record counts.
            state.broken |= record.stage == RecordState::Failed;
            let ok = !state.broken;
            state.spare.extend(record.buffer);
            state.finished.extend(record.checkpoint.map(|checkpoint| (checkpoint, ok)));
        }
        drop(state);
        self.completed_io.notify_all();
        self.work.notify_all();
    }

    /// Completes checkpoints in log order. If another thread is doing so, it completes these too.
    fn complete_checkpoints(&self, callbacks: &dyn IclogCallbacks) {
        let mut state = self.state.lock();
        if state.finishing {
            return;
        }
        while let Some((checkpoint, ok)) = state.finished.pop_front() {
            state.finishing = true;
            drop(state);
            // A panic must not leave `finishing` set for ever.
            let complete = AssertUnwindSafe(|| callbacks.completed(checkpoint, ok));
            if catch_unwind(complete).is_err() {
                callbacks.failed(Shutdown::Because(NOT_COMPLETED.into()));
            }
            state = self.state.lock();
        }
        state.finishing = false;
        drop(state);
        self.completed_io.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use base::Lsn;
    use base::memory::Share;
    use block::{Device, DeviceError, MemoryDevice, Operation};
    use devices::PauseDevice;
    use format::superblock::Superblock;

    use super::*;
    use crate::engine::cil::Checkpoint;
    use crate::engine::iclog::{IclogOptions, checkpoint_writer};
    use crate::engine::log::LogBounds;
    use crate::engine::log_device::LogDevice;
    use crate::engine::sizes::LogSizes;
    use crate::tests::volume::superblock;

    /// A journal whose metadata writes are all flushed.
    struct Idle {
        device: Arc<PauseDevice>,
        tail: Lsn,
        /// Completed flushes.
        flushes: AtomicU64,
        /// Number of the last write outside the log that is stable.
        stable: AtomicU64,
    }

    impl Idle {
        fn new(device: Arc<PauseDevice>) -> Self {
            let [flushes, stable] = [0, 0].map(AtomicU64::new);
            Self { device, tail: Lsn::new(1, 100), flushes, stable }
        }
    }

    impl IclogCallbacks for Idle {
        fn tail(&self) -> Lsn {
            self.tail
        }

        fn flush_data(&self, always: bool) -> Result<bool, Shutdown> {
            if always {
                self.device.flush()?;
                self.flushes.fetch_add(1, SeqCst);
            }
            Ok(always)
        }

        fn has_unlogged_writes(&self) -> bool {
            false
        }

        fn last_unlogged_write(&self) -> u64 {
            7
        }

        fn unlogged_writes_stable(&self, last: u64) {
            self.stable.store(last, SeqCst);
        }

        fn completed(&self, _: Checkpoint, _: bool) {}

        fn failed(&self, why: Shutdown) {
            panic!("{why}");
        }
    }

    fn submit(iclogs: &Iclogs, durable: bool) {
        let mut buffer = iclogs.acquire().unwrap();
        checkpoint_writer::unmount(&mut buffer);
        iclogs.submit(buffer, durable, None);
    }

    fn take(iclogs: &Iclogs) -> (RecordWrite, Iclog) {
        Iclogs::take_job(&mut iclogs.state.lock()).unwrap()
    }

    /// A log in which two records fit before the tail.
    fn two_records_before_the_tail() -> (Arc<PauseDevice>, Iclogs) {
        let device = Arc::new(PauseDevice::new(Arc::new(MemoryDevice::new(16 << 20))));
        let iclogs = two_records_on(device.clone());
        (device, iclogs)
    }

    fn two_records_on(data: Arc<dyn Device>) -> Iclogs {
        let sector = superblock(4096, 256, 0);
        let superblock = Superblock::parse(&sector).unwrap();
        let (tail, head) = (Lsn::new(1, 10), Lsn::new(2, 6));
        let log_device =
            LogDevice::new(&superblock.geometry, &data, None, &LogBounds { head, tail, needed: tail })
                .unwrap();
        let sizes = LogSizes::new(log_device.bytes(), 0, None).unwrap();
        let next = log_device.position(head);
        let options = IclogOptions {
            uuid: [0; 16],
            has_own_device: false,
            stable_tail: tail,
            next,
            count: 8,
            memory: Share::alone(64 << 20),
        };
        Iclogs::new(log_device, sizes, options)
    }

    /// A device that keeps the order of writes.
    struct OrderedDevice(MemoryDevice);

    impl Device for OrderedDevice {
        block::forward!(0: size, logical_sector_size, is_read_only, read_at, write_at);

        fn keeps_order(&self) -> bool {
            true
        }

        fn flush(&self) -> Result<(), DeviceError> {
            panic!("a flush is a request to a store");
        }

        fn describe(&self) -> String {
            "a device that keeps order".into()
        }
    }

    /// Neither a commit record nor the space of a moved tail needs a flush there, nor data that was written before a
    /// commit record: an fsync that flushed it again was a second request to a store.
    #[test]
    fn a_device_that_keeps_order_is_not_flushed() {
        let device = Arc::new(OrderedDevice(MemoryDevice::new(16 << 20)));
        let iclogs = two_records_on(device);
        let paused = Arc::new(PauseDevice::new(Arc::new(MemoryDevice::new(1))));
        let callbacks = Idle::new(paused);
        for (durable, stable) in [(false, 0), (true, 7), (false, 7)] {
            submit(&iclogs, durable);
            iclogs.run(take(&iclogs), &callbacks);
            assert_eq!(callbacks.stable.load(SeqCst), stable);
        }
        assert_eq!((iclogs.written().records, iclogs.written().flushes), (3, 0));
        assert_eq!(callbacks.flushes.load(SeqCst), 0);
    }

    /// A data record that needed the tail flushed the device, and thereby cleared the note that another one had been
    /// written. The commit record after that one took it for stable while the flush was still running, and was written
    /// with FUA: after a power cut there was a commit without its data.
    #[test]
    fn a_commit_record_waits_for_a_flush_that_covers_its_data() {
        let (device, iclogs) = two_records_before_the_tail();
        let callbacks = Idle::new(device.clone());
        // Data and commit of one checkpoint. The next one has no space yet.
        submit(&iclogs, false);
        submit(&iclogs, true);
        submit(&iclogs, false);
        let (job, mut buffer) = take(&iclogs);
        iclogs.write(&job, &mut buffer, &callbacks).unwrap();
        std::thread::scope(|scope| {
            let pause = device.pause(Operation::Flush, &[], 1);
            let next = scope.spawn(|| iclogs.run(take(&iclogs), &callbacks));
            pause.wait_for(1);
            // It was written; now its write completes.
            iclogs.end_write(job.position, buffer, true);
            let commit = take(&iclogs);
            assert!(commit.0.durable);
            iclogs.run(commit, &callbacks);
            assert_eq!(
                callbacks.flushes.load(SeqCst),
                1,
                "the data was flushed before the commit was written"
            );
            drop(pause);
            next.join().unwrap();
        });
        assert_eq!((iclogs.written().records, callbacks.flushes.load(SeqCst)), (3, 2));
        assert_eq!(callbacks.stable.load(SeqCst), 0);
    }
    /// A journal whose checkpoints cannot be completed.
    #[derive(Default)]
    struct Panics {
        failed: AtomicU64,
    }

    impl IclogCallbacks for Panics {
        fn tail(&self) -> Lsn {
            Lsn::new(1, 10)
        }

        fn flush_data(&self, always: bool) -> Result<bool, Shutdown> {
            Ok(always)
        }

        fn has_unlogged_writes(&self) -> bool {
            false
        }

        fn last_unlogged_write(&self) -> u64 {
            0
        }

        fn unlogged_writes_stable(&self, _: u64) {}

        fn completed(&self, _: Checkpoint, _: bool) {
            panic!("a checkpoint");
        }

        fn failed(&self, _: Shutdown) {
            self.failed.fetch_add(1, SeqCst);
        }
    }

    /// A panic while a checkpoint was completed ended the thread and left `finishing` set: the next checkpoints were
    /// never completed, and the unmount waited for them for ever.
    #[test]
    fn a_panic_in_a_completion_shuts_down_and_does_not_hang() {
        let (_, iclogs) = two_records_before_the_tail();
        let callbacks = Panics::default();
        for sequence in 1..=2 {
            let mut buffer = iclogs.acquire().unwrap();
            checkpoint_writer::unmount(&mut buffer);
            let checkpoint =
                Checkpoint { sequence, items: vec![], busy: vec![], start: None, commit: 0, memory: 0 };
            iclogs.submit(buffer, true, Some(checkpoint));
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| iclogs.write_waiting(&callbacks))).is_err();
        assert!(!panicked, "the thread goes on");
        iclogs.drain();
        assert_eq!(callbacks.failed.load(SeqCst), 2);
    }
}
