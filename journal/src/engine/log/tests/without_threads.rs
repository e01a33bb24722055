//! A journal without threads: the thread that waits does their work, and they start when a thread needs them that
//! cannot.

use super::*;

fn alone(shards: usize) -> Options {
    Options { background: false, ..options(shards) }
}

#[test]
fn a_short_mount_needs_no_thread() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 40);
    for round in 1..=5 {
        let log = volume.open(&alone(2));
        for n in 1..=40 {
            assert_eq!(bump(&log, n), round * 2 - 1);
        }
        log.force().unwrap();
        for n in 1..=40 {
            bump(&log, n);
        }
        // The unmount does the work of the background threads.
        log.unmount().unwrap();
        assert!(log.shared.runs_inline());
        assert!(matches!(volume.state(), State::Clean { discarded: None, .. }), "{:?}", volume.state());
        assert_eq!(on_disk(&*volume.device, 40), round * 2);
    }
}

#[test]
fn a_power_cut_preserves_forced_changes() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 3);
    let log = volume.open(&alone(1));
    bump(&log, 1);
    log.force().unwrap();
    bump(&log, 2);
    log.abandon();
    drop(log);
    replay(&volume.superblock, &*volume.device);
    assert_eq!([on_disk(&*volume.device, 1), on_disk(&*volume.device, 2)], [1, 0]);
}

/// A push without spare iclogs and transactions without log space cannot do the work themselves.
#[test]
fn a_full_log_starts_the_threads() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 200);
    let log = volume.open(&alone(2));
    assert!(log.shared.runs_inline());
    for round in 1..=10u64 {
        for n in 1..=200 {
            let mut tx = log.begin(RESERVATION).unwrap();
            assert_eq!(count_up(&mut tx, n).unwrap(), round);
            let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
            tx.bytes_mut(id, 1024..4096).fill(round as u8);
            tx.commit(&mut []).unwrap();
        }
    }
    assert!(!log.shared.runs_inline(), "ten laps of a full log");
    log.unmount().unwrap();
    assert_eq!(on_disk(&*volume.device, 200), 10);
}

#[test]
fn concurrent_forces_without_threads_complete() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&alone(4));
    std::thread::scope(|scope| {
        for n in 1..=4 {
            let log = &log;
            scope.spawn(move || {
                for round in 1..=200 {
                    assert_eq!(bump(log, n), round);
                    log.force().unwrap();
                }
            });
        }
    });
    log.unmount().unwrap();
    for n in 1..=4 {
        assert_eq!(on_disk(&*volume.device, n), 200);
    }
}
