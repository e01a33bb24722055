use block::Operation;
use devices::{Fault, FaultDevice, When};

use super::*;

/// Works until an operation fails; then no thread may hang, and what was forced before must be there.
fn fail_with(fault: impl Fn(u64) -> Fault, moments: std::ops::Range<u64>) {
    for moment in moments {
        let volume = Volume::new(2048);
        make_blocks(&*volume.device, 20);
        let device = Arc::new(FaultDevice::new(volume.device.clone(), []));
        let log = volume.open_on(device.clone(), &options(2));
        device.set_faults([fault(moment)]);
        let mut forced = [0; 21];
        let failed = std::thread::scope(|scope| {
            // Other threads wait for log space, forces and an empty AIL meanwhile.
            for thread in 0..3 {
                let log = &log;
                scope.spawn(move || work(log, 1 + thread * 5, &mut [0; 21]).is_err());
            }
            // One round may be too little: a thread that runs ahead of the others does not fill the log.
            (0..20).any(|_| work(&log, 16, &mut forced).is_err())
        });
        assert!(failed, "moment {moment}: the device fails for good");
        assert!(log.shut_down_cause().is_some());
        let cause = log.force().unwrap_err().to_string();
        assert!(cause.contains("shut down"), "{cause}");
        assert!(log.begin(RESERVATION).is_err() && log.unmount().is_err());
        drop(log);
        device.set_faults([]);
        replay(&volume.superblock, &*volume.device);
        for (n, at_least) in (0u64..).zip(forced) {
            assert!(n == 0 || on_disk(&*volume.device, n) >= at_least, "moment {moment}, block {n}");
        }
    }
}

/// A device that panics at writes within a range, once it is armed.
struct Panics {
    below: Arc<MemoryDevice>,
    range: std::ops::Range<u64>,
    armed: base::stop::StopFlag,
}

impl Device for Panics {
    block::forward!(below: size, logical_sector_size, is_read_only, read_at, flush);

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), block::DeviceError> {
        if self.armed.is_set() && self.range.contains(&offset) {
            // Without the message of a panic.
            std::panic::resume_unwind(Box::new(()));
        }
        self.below.write_at(offset, buf, how)
    }

    fn describe(&self) -> String {
        "a device that panics".into()
    }
}

/// When a thread of the journal panicked, all others waited for it: for a record to be written, for the log's tail to
/// move.
#[test]
fn a_thread_that_panics_shuts_the_volume_down() {
    let log_area = 8 << 20..9 << 20;
    for (range, background) in [(log_area.clone(), true), (0..log_area.start, true), (log_area, false)] {
        let volume = Volume::new(2048);
        make_blocks(&*volume.device, 20);
        let device =
            Arc::new(Panics { below: volume.device.clone(), range, armed: base::stop::StopFlag::default() });
        let log = volume.open_on(device.clone(), &Options { background, ..options(2) });
        bump(&log, 1);
        log.force().unwrap();
        device.armed.set();
        std::thread::scope(|scope| {
            let run = |first| {
                let log = &log;
                // Without threads, the thread that forces the log panics.
                move || {
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(log, first, &mut [0; 21])))
                }
            };
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(run(1 + thread * 5))).collect();
            for thread in threads {
                assert!(!matches!(thread.join().unwrap(), Ok(Ok(()))));
            }
        });
        assert!(log.shut_down_cause().is_some() && log.unmount().is_err());
    }
}

/// Changes five blocks again and again and forces each change; ends with the first error.
fn work(log: &Arc<Log>, first: u64, forced: &mut [u64; 21]) -> Result<(), error::Error> {
    for round in 0..400 {
        for n in first..first + 5 {
            let mut tx = log.begin(RESERVATION)?;
            let value = count_up(&mut tx, n)?;
            let id = tx.read(place(n), Rank::Buffer, |_| Ok(()))?;
            tx.bytes_mut(id, 1024..4096).fill(round as u8);
            tx.commit(&mut [])?;
            log.force()?;
            forced[n as usize] = value;
        }
    }
    Ok(())
}

#[test]
fn a_log_that_cannot_be_written_shuts_the_volume_down() {
    let log = 8 << 20..9 << 20;
    fail_with(|n| Fault::io_error(Operation::Write, When::From(n * 7)).within(log.clone()), 0..12);
}

#[test]
fn a_flush_that_fails_shuts_the_volume_down() {
    fail_with(|n| Fault::io_error(Operation::Flush, When::From(n * 3)), 0..8);
}

#[test]
fn failing_metadata_writeback_shuts_the_volume_down() {
    fail_with(|n| Fault::io_error(Operation::Write, When::From(n * 5)).within(0..8 << 20), 0..6);
}

#[test]
fn a_failed_write_is_retried() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 20);
    let device = Arc::new(FaultDevice::new(volume.device.clone(), []));
    let log = volume.open_on(device.clone(), &options(2));
    device.set_faults([Fault::io_error(Operation::Write, When::Nth(3)).within(0..8 << 20)]);
    work(&log, 1, &mut [0; 21]).unwrap();
    log.unmount().unwrap();
    assert_eq!(on_disk(&*volume.device, 5), 400);
}
