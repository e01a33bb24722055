//! The last record of a log.
//!
//! The bug: an idle mount ended on a busy machine with a dirty log, because of one superblock behind the unmount
//! record. The thread that covers an idle log had seen a commit, that of the superblock's counters, and covered it
//! while the unmount was about to stop the threads.

use super::*;

/// A slow device: a thread that waits for it lets others run.
struct Slow(Arc<dyn Device>);

impl Device for Slow {
    block::forward!(0: size, logical_sector_size, is_read_only, read_at, describe);

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), block::DeviceError> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.write_at(offset, buf, how)
    }

    fn flush(&self) -> Result<(), block::DeviceError> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.flush()
    }
}

#[test]
fn nothing_follows_an_unmount_record() {
    for round in 0..20 {
        let volume = Volume::new(2048);
        make_blocks(&*volume.device, 5);
        let device = Arc::new(Slow(volume.device.clone()));
        let log = volume.open_on(device, &Options { interval: Duration::from_millis(1), ..options(1) });
        for n in 1..=5 {
            bump(&log, n);
        }
        // Time for the thread to start, and to reach different steps of its loop.
        std::thread::sleep(Duration::from_millis(round));
        log.unmount().unwrap();
        drop(log);
        assert!(matches!(volume.state(), State::Clean { .. }), "round {round}: {:?}", volume.state());
    }
}
