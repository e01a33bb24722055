//! Cost of inode allocation among many inodes, with and without the finobt: `cargo run --release -p xebec-ag --example
//! refill -- [INODES [HOLES]]`.
//!
//! One AG in memory is filled with INODES inodes, HOLES of them are freed at scattered positions, and as many are
//! allocated again near one parent: the experiment of the finobt's first announcement, without files and without a
//! journal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Ino;
use base::memory::Share;
use block::MemoryDevice;
use error::Error;
use journal::engine::NoJournal;
use journal::engine::{BufferCache, CommitTarget, LogReservation, Transaction, TransactionContext};
use xebec_ag::{AgLogCosts, Groups, InodeAllocRequest, InodeOptions};

struct MemoryVolume {
    groups: Arc<Groups>,
    cache: Arc<BufferCache>,
    target: Arc<dyn CommitTarget>,
    reservation: LogReservation,
}

impl MemoryVolume {
    fn new(inodes: u64, finobt: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let device = Arc::new(MemoryDevice::new((inodes * 512).next_multiple_of(1 << 20) * 2 + (256 << 20)));
        let options =
            mkfs::Options { ag_count: Some(1), finobt, inobtcount: finobt, ..mkfs::Options::default() };
        let geometry = mkfs::format(&*device, &options)?;
        let cache = BufferCache::new(device, Share::alone(u64::MAX));
        let nowhere: Arc<dyn CommitTarget> = Arc::new(NoJournal::new(None));
        let mut reader = Transaction::reader(&TransactionContext::new(&nowhere, &cache));
        let groups = Arc::new(Groups::open(&mut reader, &geometry, &InodeOptions::default())?);
        drop(reader);
        let target = Arc::new(NoJournal::new(Some(groups.clone())));
        let reservation = LogReservation { bytes: AgLogCosts::derive(&geometry).largest(), transactions: 2 };
        Ok(Self { groups, cache, target, reservation })
    }

    fn alloc(&self, parent: Ino) -> Result<Ino, Error> {
        let mut blocks = self.groups.reserve_blocks(self.groups.blocks_for_inode())?;
        let mut tx =
            Transaction::begin(&TransactionContext::new(&self.target, &self.cache), self.reservation)?;
        let ino = self.groups.alloc_inode(
            &mut tx,
            &mut blocks,
            InodeAllocRequest { parent, is_dir: false, blocks: 0 },
        )?;
        tx.commit(&mut [])?;
        Ok(ino)
    }

    fn free(&self, ino: Ino) -> Result<(), Error> {
        let mut tx =
            Transaction::begin(&TransactionContext::new(&self.target, &self.cache), self.reservation)?;
        self.groups.free_inodes(&mut tx, &[ino])?;
        tx.commit(&mut [])
    }
}

fn per(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count.max(1) as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let inodes = args.next().transpose()?.unwrap_or(100_000);
    let holes = args.next().transpose()?.unwrap_or(inodes / 100);
    println!("finobt | fill, ns per inode | free, ns per inode | refill, ns per inode");
    for finobt in [true, false] {
        let volume = MemoryVolume::new(inodes as u64, finobt)?;
        let root = volume.groups.geometry().root;
        let begun = Instant::now();
        let all = (0..inodes).map(|_| volume.alloc(root)).collect::<Result<Vec<_>, _>>()?;
        let filled = begun.elapsed();
        // A permutation of the inodes: the step is coprime to their number.
        let step = (inodes * 618 / 1000..).find(|step| gcd(*step, inodes) == 1).unwrap_or(1);
        let begun = Instant::now();
        for n in 0..holes {
            if let Some(ino) = all.get(n * step % inodes) {
                volume.free(*ino)?;
            }
        }
        let freed = begun.elapsed();
        let parent = all.last().copied().unwrap_or(root);
        let begun = Instant::now();
        for _ in 0..holes {
            volume.alloc(parent)?;
        }
        let refilled = begun.elapsed();
        println!(
            "{finobt:6} | {:18.0} | {:18.0} | {:20.0}",
            per(filled, inodes),
            per(freed, holes),
            per(refilled, holes)
        );
    }
    Ok(())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
