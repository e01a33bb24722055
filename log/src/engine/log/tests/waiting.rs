//! Who waits, and with which locks.

use std::sync::mpsc;

use block::{Call, HoldDevice};

use super::*;
use crate::engine::buffer::Segments;
use crate::engine::item::{Grown, ItemCore, LogItem, Moment};
use crate::engine::transaction::Loggable;
use crate::engine::{Error, Flush, WriteBatch};

/// A test that would hang fails instead.
const WATCHDOG: Duration = Duration::from_secs(120);

const HOME: std::ops::Range<u64> = 4096..8 << 20;
const LOG: std::ops::Range<u64> = 8 << 20..16 << 20;

fn change(log: &Arc<Log>, n: u64) {
    let mut tx = log.begin(RESERVATION).unwrap();
    let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
    tx.bytes_mut(id, 1024..4096).fill(n as u8);
    tx.commit(&mut []).unwrap();
}

/// Who committed into a checkpoint that was too large waited for its push within the commit, while the caller still had
/// its inodes locked: one slow log device, and everybody waited for these.
#[test]
fn a_change_waits_for_a_large_checkpoint_before_it_begins() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, 1500);
    let device = Arc::new(HoldDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(1));
    std::thread::scope(|scope| {
        let hold = device.hold(Call::Write, &[LOG], usize::MAX);
        let (mut begun, (tell, told)) = (log.begin(RESERVATION).unwrap(), mpsc::channel());
        let log = &log;
        let others = scope.spawn(move || {
            (2..=1500).for_each(|n| change(log, n));
            tell.send(()).unwrap();
        });
        while log.statistics().throttled == 0 {
            assert!(told.try_recv().is_err(), "a log that writes nothing takes no more");
            base::thread::sleep(Duration::from_millis(1));
        }
        // What has begun is not held back any more.
        let id = begun.read(place(1), Rank::Buffer, |_| Ok(())).unwrap();
        begun.bytes_mut(id, 1024..4096).fill(1);
        let waits = log.statistics().throttled;
        begun.commit(&mut []).unwrap();
        assert_eq!(log.statistics().throttled, waits);
        drop(hold);
        others.join().unwrap();
    });
    log.unmount().unwrap();
}

/// An item in a buffer that is not in memory, like an inode in its cluster.
#[derive(Debug)]
struct Guest {
    core: ItemCore,
    cache: Arc<crate::engine::BufferCache>,
    at: Extent,
}

impl LogItem for Guest {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    fn flush(self: Arc<Self>, batch: &mut WriteBatch<'_>) -> Flush {
        if self.core.is_pinned() {
            return Flush::Pinned;
        }
        let buffer = self.cache.get(&Segments::from(self.at), Rank::Buffer);
        batch.edit(&buffer, self.clone(), |bytes| {
            bytes[COUNTER..COUNTER + 8].copy_from_slice(&77u64.to_be_bytes());
            true
        })
    }

    fn read_home(&self) -> Result<bool, Error> {
        let segments = Segments::from(self.at);
        Ok(self.cache.try_lock_read(&segments, Rank::Buffer, |_| Ok(()))?.is_some())
    }

    fn written(&self, _: bool) {}
}

struct Visit(Arc<Guest>, bool);

impl Loggable for Visit {
    fn item(&self) -> Arc<dyn LogItem> {
        self.0.clone()
    }

    fn is_dirty(&self) -> bool {
        self.1
    }

    fn log(&mut self, at: Moment) -> Grown {
        self.1 = false;
        self.0.core.log_regions(at, |regions| regions.push(&[1; 64]))
    }

    fn any(&mut self) -> &mut dyn std::any::Any {
        unreachable!("nothing is deferred")
    }
}

/// The thread that writes home read a cluster while it had an inode and all buffers of its batch locked: whoever wanted
/// one of these waited for a slow read of something else.
#[test]
fn a_slow_read_of_one_place_keeps_no_other_locked() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 5);
    let device = Arc::new(HoldDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(1));
    bump(&log, 1);
    let guest = Arc::new(Guest { core: ItemCore::default(), cache: log.buffers().clone(), at: place(4) });
    let tx = log.begin(RESERVATION).unwrap();
    tx.commit(&mut [&mut Visit(guest, true)]).unwrap();
    log.force().unwrap();
    std::thread::scope(|scope| {
        let hold = device.hold(Call::Read, &[HOME], 1);
        let writeback = scope.spawn(|| log.push_all());
        hold.wait_for(1);
        let (tell, told) = mpsc::channel();
        scope.spawn(|| {
            let tell = tell;
            tell.send(bump(&log, 1)).unwrap();
        });
        assert_eq!(told.recv_timeout(WATCHDOG), Ok(2), "its lock is free");
        assert_eq!(on_disk(&*volume.device, 1), 1, "and it was written before");
        drop(hold);
        writeback.join().unwrap().unwrap();
    });
    log.unmount().unwrap();
    assert_eq!((on_disk(&*volume.device, 1), on_disk(&*volume.device, 4)), (2, 77));
}
