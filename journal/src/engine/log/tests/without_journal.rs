//! A journal without log records: for a volume that is not used before it is complete.

use super::*;

fn without_journal() -> Options {
    Options { background: false, without_journal: true, ..options(1) }
}

/// Blocks change again and again, within a checkpoint, across checkpoints, and after they were written back.
#[test]
fn everything_is_written_back_and_the_log_is_clean() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 100);
    let log = volume.open(&without_journal());
    for round in 1..=50 {
        for n in 1..=100 {
            assert_eq!(bump(&log, n), round);
            if n % 30 == 0 {
                log.force().unwrap();
            }
        }
        if round % 10 == 0 {
            log.push_all().unwrap();
            assert!(log.shared.ail.is_empty());
            assert_eq!(on_disk(&*volume.device, 100), round);
        }
    }
    assert_eq!((log.statistics().records, log.reserved()), (0, 0));
    assert!(log.shared.runs_inline());
    log.unmount().unwrap();
    assert!(matches!(volume.state(), State::Clean { discarded: None, .. }), "{:?}", volume.state());
    assert_eq!(on_disk(&*volume.device, 100), 50);
    // The next journal continues from there.
    let log = volume.open(&options(2));
    assert_eq!(bump(&log, 1), 51);
    log.unmount().unwrap();
    assert_eq!(on_disk(&*volume.device, 1), 51);
}

/// Forty times the log's size, in checkpoints that no thread forces.
#[test]
fn changes_larger_than_the_log_are_written_back() {
    let volume = Volume::new(1024);
    make_blocks(&*volume.device, 200);
    let log = volume.open(&without_journal());
    for round in 1..=25u64 {
        for n in 1..=200 {
            let mut tx = log.begin(RESERVATION).unwrap();
            assert_eq!(count_up(&mut tx, n).unwrap(), round);
            let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
            tx.bytes_mut(id, 1024..4096).fill(round as u8);
            tx.commit(&mut []).unwrap();
        }
    }
    log.unmount().unwrap();
    assert_eq!(on_disk(&*volume.device, 200), 25);
    assert!(matches!(volume.state(), State::Clean { .. }));
}
