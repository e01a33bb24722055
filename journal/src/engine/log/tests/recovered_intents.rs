//! Finishing intents that recovery found, in a full log.

use super::*;
use crate::engine::log::LogBounds;
use base::Lsn;
use format::log::item::ItemType;

const BLOCKS: u32 = 8192;

/// A log that was filled once, whose records from `room` blocks ahead of the head on are still needed.
fn nearly_full(volume: &Volume, room: u32) -> (LogBounds, Arc<Log>) {
    let head = Journal::open(&volume.superblock, &*volume.device, None).unwrap().head();
    assert!(head.cycle() > 1);
    let needed = match head.block() + room {
        block if block < BLOCKS => Lsn::new(head.cycle() - 1, block),
        block => Lsn::new(head.cycle(), block - BLOCKS),
    };
    let ends = LogBounds { head, tail: head, needed };
    let log = Log::start(&volume.superblock, volume.device.clone(), None, ends, None, &options(1)).unwrap();
    (ends, log)
}

/// The thread that finished the oldest intent of a full log waited for the tail to move, which required that intent to
/// be finished: a volume that was cut off with a full log could not be opened.
#[test]
fn finishing_the_oldest_intent_of_a_full_log_never_waits() {
    let volume = Volume::new(BLOCKS);
    make_blocks(&*volume.device, 400);
    let log = volume.open(&options(1));
    // Once around the log.
    while log.statistics().bytes < u64::from(BLOCKS) * 512 * 9 / 8 {
        for n in 1..=400 {
            bump(&log, n);
        }
        log.force().unwrap();
    }
    log.unmount().unwrap();
    drop(log);
    let (mut intents_finished, mut refused) = (0, 0);
    for room in (64..BLOCKS / 4).step_by(128) {
        let (ends, log) = nearly_full(&volume, room);
        let intent = log.add_recovered_intent(ends.needed, 7);
        let mut tx = match log.begin(RESERVATION) {
            Ok(tx) => tx,
            Err(error) => {
                assert!(error.to_string().contains("Linux"), "{error}");
                assert_eq!(intents_finished, 0, "there was space before, with {room} blocks fewer");
                refused += 1;
                continue;
            }
        };
        intents_finished += 1;
        tx.log_done(intent, ItemType::Efd);
        count_up(&mut tx, 1).unwrap();
        tx.commit(&mut []).unwrap();
        log.intents_finished();
        // The tail has moved, so that these need not wait for ever either.
        for n in 1..=400 {
            bump(&log, n);
        }
        log.unmount().unwrap();
        assert!(matches!(volume.state(), State::Clean { .. }));
    }
    // In a running volume, no new transaction begins below an eighth of the log.
    assert!(refused > 0 && intents_finished > 10, "{refused} refused, {intents_finished} finished");
}
