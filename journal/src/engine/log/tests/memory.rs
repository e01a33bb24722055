//! The memory of log vectors is counted, and limited.

use base::memory::Share;

use super::*;

const BLOCKS: u64 = 2000;

/// Log vectors were not counted. One of a buffer takes its whole size, so that a checkpoint of a few megabytes could
/// hold a hundred.
#[test]
fn log_vectors_are_counted_until_they_are_written() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, BLOCKS);
    let memory = Share::alone(64 << 20);
    let log = volume.open(&Options { memory: Arc::clone(&memory), ..options(2) });
    let change_all = || {
        for n in 1..=BLOCKS {
            bump(&log, n);
        }
    };
    change_all();
    log.push_all().unwrap();
    let buffers = log.buffers().bytes();
    assert!(buffers > BLOCKS * u64::from(BYTES));
    // Except for spare pages of the pools of buffers, at most a thirty-second of the memory.
    let is_as_before = || log.buffers().bytes().abs_diff(buffers) <= (64 << 20) / 32;
    let pushes = log.statistics().pushes;
    change_all();
    let vectors = log.buffers().bytes() - buffers;
    assert_eq!(log.statistics().pushes, pushes, "what was committed is small");
    // Each shard has not reported its last megabyte.
    let least = BLOCKS * u64::from(BYTES) - (2 << 20);
    assert!(vectors > least && vectors < BLOCKS * 5000, "{vectors}");
    log.push_all().unwrap();
    assert!(is_as_before());
    change_all();
    log.abandon();
    assert!(is_as_before());
}

/// Little is logged of each buffer: the checkpoint is pushed because of its memory, and threads wait for that.
#[test]
fn a_checkpoint_is_pushed_when_it_takes_much_memory() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, BLOCKS);
    let memory = Share::alone(8 << 20);
    let log = volume.open(&Options { memory: Arc::clone(&memory), ..options(1) });
    for n in 1..=BLOCKS {
        bump(&log, n);
        // The checkpoint and the one before it are at most twice a quarter, and what a shard has not reported.
        let buffers = n * (u64::from(BYTES) + 512) + (1 << 20);
        let vectors = memory.exact().saturating_sub(buffers);
        assert!(vectors <= (8 << 20) + (1 << 20), "{vectors}");
    }
    assert!(log.statistics().pushes > 0);
    log.unmount().unwrap();
}
