//! A checkpoint reserves at least the log space that it takes, for every order of its commits.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use races::engine::context::{CilContext, CilSpace};
use races::engine::sizes::LogSizes;
use races::sync::atomic::{AtomicU64, Ordering::SeqCst};
use races::try_orders;
use shuttle::thread;

/// A commit of `bytes` on one CPU's shard; returns the space that it pays.
fn commit(sizes: &LogSizes, context: &CilContext, space: &CilSpace, unreported: &mut i64, bytes: u64) -> u64 {
    *unreported += bytes as i64;
    let is_over = space.with(unreported) >= sizes.hard_limit() as i64;
    bytes + context.charge_overhead(sizes, sizes.records(bytes), is_over)
}

fn commits_cover_their_checkpoint(batch: i64, commits: &'static [u64]) {
    try_orders(move || {
        // Commits are throttled at 64 KiB: the smallest log.
        let sizes = LogSizes::new(512 << 10, 0, None).unwrap();
        let shared =
            Arc::new((CilContext::new(&sizes, 2, batch, 1), CilSpace::new(batch), AtomicU64::new(0)));
        let committing = [0, 1].map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (context, space, left) = &*shared;
                let mut unreported = 0;
                for bytes in commits {
                    let paid = commit(&sizes, context, space, &mut unreported, *bytes);
                    left.fetch_add(paid, SeqCst);
                }
            })
        });
        for thread in committing {
            thread.join().unwrap();
        }
        let takes = sizes.checkpoint(2 * commits.iter().sum::<u64>());
        let left = shared.2.load(SeqCst);
        assert!(left >= takes, "{left} bytes are reserved for a checkpoint that takes {takes}");
    });
}

#[test]
fn a_few_commits_cover_their_checkpoint() {
    commits_cover_their_checkpoint(4096, &[100]);
}

/// A commit saw that the checkpoint was not too large yet. Two other commits then exceeded the largest checkpoint. They
/// paid, but were counted as part of the largest checkpoint; so the first commit found it covered, and paid nothing.
#[test]
fn commits_beyond_the_largest_checkpoint_cover_it() {
    commits_cover_their_checkpoint(4096, &[40_000, 60_000]);
}

#[test]
fn commits_reported_late_cover_their_checkpoint() {
    commits_cover_their_checkpoint(100_000, &[60_000, 60_000]);
}

#[test]
fn a_push_is_requested_once() {
    try_orders(|| {
        let sizes = LogSizes::new(512 << 10, 0, None).unwrap();
        let context = Arc::new(CilContext::new(&sizes, 2, 4096, 1));
        let threads = [0, 1].map(|_| {
            let context = Arc::clone(&context);
            thread::spawn(move || u32::from(context.request_push()))
        });
        assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>(), 1);
    });
}
