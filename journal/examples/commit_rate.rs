//! How many transactions a second commit, each of which changes one item that was changed before.
//!
//! Every thread has a buffer of its own, in memory: what is measured is the reservation, the commit into the list, and
//! the pushes in the background. `cargo run --release -p xebec-journal --features synth --example commit_rate --
//! [SECONDS]`
#![expect(clippy::unwrap_used, reason = "a benchmark without a device cannot fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Daddr;
use base::lock::Rank;
use block::{Device, Durability, MemoryDevice};
use format::superblock::Superblock;
use xebec_journal::engine::{DiskExtent, Log, LogReservation, Options};

/// What one transaction may log: an inode's worth.
const RESERVATION: LogReservation = LogReservation { bytes: 1024, transactions: 1 };

fn volume() -> (Superblock, Arc<dyn Device>) {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let sector = xebec_journal::synth::superblock(4096, 2048, 0);
    device.write_at(0, &sector, Durability::Buffered).unwrap();
    (Superblock::parse(&sector).unwrap(), device)
}

/// Commits a second with so many threads and shards.
fn rate(threads: u64, shards: usize, duration: Duration) -> f64 {
    let (superblock, device) = volume();
    let options = Options { shards: Some(shards), ..Options::default() };
    let log = Log::open(&superblock, device, None, None, &options).unwrap();
    let total = AtomicU64::new(0);
    let start = Instant::now();
    base::stop::scope(|scope| {
        for thread in 0..threads {
            let (log, total) = (&log, &total);
            scope.spawn(move |stop| {
                let at = DiskExtent { daddr: Daddr(8 * (thread + 1)), bytes: 512 };
                let mut count = 0u64;
                while !stop.is_set() {
                    let mut tx = log.begin(RESERVATION).unwrap();
                    let id = tx.read(at, Rank::Buffer, |_| Ok(())).unwrap();
                    tx.bytes_mut(id, 0..8).copy_from_slice(&count.to_le_bytes());
                    tx.commit(&mut []).unwrap();
                    count += 1;
                }
                total.fetch_add(count, Ordering::Relaxed);
            });
        }
        std::thread::sleep(duration);
    });
    total.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let duration = Duration::from_secs_f64(seconds);
    println!("{:>8} {:>8} {:>16} {:>10}", "threads", "shards", "commits/s", "ratio");
    for shards in [1, 2] {
        let one = rate(1, shards, duration);
        println!("{:>8} {shards:>8} {one:>16.0} {:>10}", 1, "1.00");
        let two = rate(2, shards, duration);
        println!("{:>8} {shards:>8} {two:>16.0} {:>10.2}", 2, two / one);
    }
}
