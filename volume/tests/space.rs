//! Aged volumes: nearly full, with fragmented free space, and with the smallest possible AGs.
//!
//! An acknowledged write is not lost: `ENOSPC` is returned by the call that needs blocks, never by `fsync` or unmount,
//! and it never shuts the volume down.
//!
//! Each run depends only on its seed: `XEBEC_SPACE_SEED=7 XEBEC_SPACE_WALKS=100 cargo test -p xebec-volume --test
//! space`.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::errno;
use block::MemoryDevice;
use xebec_volume::{File, OpenOptions, Options, Result, Volume};

use common::judge;

fn open<'v>(volume: &'v Volume, name: &str) -> Result<File<'v>> {
    OpenOptions::new().read(true).write(true).create(true).open(volume, name.as_bytes())
}

fn format(bytes: u64, options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs::format(&*device, options).unwrap();
    device
}

fn mount(device: &Arc<MemoryDevice>, seed: u64) -> Volume {
    Volume::open(device.clone(), Options { seed: Some(seed), ..Options::default() }).unwrap()
}

/// Whether there was space. Panics on other errors.
#[track_caller]
fn had_space<T>(done: Result<T>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            assert_eq!(error.errno(), errno::ENOSPC, "{error}");
            None
        }
    }
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Fills the volume with one file, then punches every second block out of a part of it.
fn age(volume: &Volume, block: u64, share: u64) {
    let file = open(volume, "old").unwrap();
    let (mut piece, mut at) = (vec![7; 1 << 20], 0);
    while piece.len() as u64 >= block {
        match had_space(file.write_at(&piece, at)) {
            Some(written) => at += written as u64,
            None => piece.truncate(piece.len() / 2),
        }
    }
    file.sync_all().unwrap();
    for n in 0..at / block * share / 100 / 2 {
        // A punch that splits an extent may fail for want of blocks for the extent map, until other punches have freed
        // some.
        if had_space(file.punch_hole((2 * n + 1) * block, block)).is_none() {
            break;
        }
    }
    volume.sync().unwrap();
}

/// The tag of each block of a file: 0 for a hole.
type Contents = BTreeMap<u64, u64>;

struct Walk {
    seed: u64,
    block: u64,
    numbers: Numbers,
    files: BTreeMap<String, Contents>,
    device: Arc<MemoryDevice>,
}

impl Walk {
    fn of(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let block_size = [1024, 4096, 16384, 65536][seed as usize % 4];
        // One AG must have space for the log, which is larger with large blocks.
        let (bytes, ag_count) = match block_size {
            1024 | 4096 => [(24 << 20, 1), (48 << 20, 3), (64 << 20, 2)][numbers.below(3) as usize],
            16384 => [(128 << 20, 1), (192 << 20, 2)][numbers.below(2) as usize],
            _ => [(384 << 20, 1), (512 << 20, 2)][numbers.below(2) as usize],
        };
        let options = mkfs::Options {
            block_size,
            ag_count: Some(ag_count),
            rmapbt: numbers.below(2) == 0,
            reflink: numbers.below(2) == 0,
            finobt: numbers.below(4) > 0,
            inobtcount: false,
            ..mkfs::Options::default()
        };
        let device = format(bytes, &options);
        Self { seed, block: block_size.into(), numbers, files: BTreeMap::new(), device }
    }

    fn name(&mut self) -> String {
        format!("file{}", self.numbers.below(12))
    }

    fn filled(&self, tag: u64) -> Vec<u8> {
        tag.to_le_bytes().repeat(self.block as usize / 8)
    }

    fn write(&mut self, volume: &Volume, tag: u64) {
        let name = self.name();
        let Some(file) = had_space(open(volume, &name)) else { return };
        let blocks = self.files.entry(name).or_default();
        // Near each other, or scattered.
        let range = if self.numbers.below(2) == 0 { 40 } else { 20_000 };
        for _ in 0..1 + self.numbers.below(30) {
            let at = self.numbers.below(range);
            let bytes = tag.to_le_bytes().repeat(self.block as usize / 8);
            if had_space(file.write_at(&bytes, at * self.block)).is_some() {
                blocks.insert(at, tag);
            }
        }
        if self.numbers.below(3) == 0 {
            file.sync_all().unwrap();
        }
    }

    fn shrink(&mut self, volume: &Volume) {
        let name = self.name();
        let Some(blocks) = self.files.get_mut(&name) else { return };
        let file = open(volume, &name).unwrap();
        let (at, count) = (self.numbers.below(40), 1 + self.numbers.below(20));
        if self.numbers.below(3) == 0 {
            file.set_len(at * self.block).unwrap();
            blocks.retain(|block, _| *block < at);
        } else if had_space(file.punch_hole(at * self.block, count * self.block)).is_some() {
            blocks.retain(|block, _| !(at..at + count).contains(block));
        }
    }

    fn step(&mut self, volume: &Volume, tag: u64) {
        match self.numbers.below(20) {
            0..12 => self.write(volume, tag),
            12..15 => self.shrink(volume),
            15 => {
                let name = self.name();
                if self.files.remove(&name).is_some() {
                    had_space(volume.unlink(volume.root(), name.as_bytes()));
                    assert!(
                        volume.lookup(volume.root(), name.as_bytes()).is_err(),
                        "{name} cannot be removed"
                    );
                }
            }
            16 => {
                // More fragmented free space.
                let (old, at) = (open(volume, "old").unwrap(), self.numbers.below(10_000));
                had_space(old.punch_hole(at * self.block, 3 * self.block));
            }
            17 => {
                let old = open(volume, "old").unwrap();
                let (at, bytes) = (self.numbers.below(10_000), vec![8; self.block as usize]);
                had_space(old.write_at(&bytes, at * self.block));
            }
            18 => volume.sync().unwrap(),
            _ => self.compare(volume),
        }
        let shut_down = volume.statistics().shut_down;
        assert_eq!(shut_down, None, "at {tag}");
    }

    fn compare(&self, volume: &Volume) {
        let mut bytes = vec![0; self.block as usize];
        for (name, blocks) in &self.files {
            let file = open(volume, name).unwrap();
            for (at, tag) in blocks {
                file.read_at(&mut bytes, at * self.block).unwrap();
                assert!(bytes == self.filled(*tag), "block {at} of {name} is not what was written");
            }
        }
    }

    fn run(mut self, steps: u64) {
        let volume = mount(&self.device, self.seed);
        age(&volume, self.block, [100, 60, 20][self.numbers.below(3) as usize]);
        for tag in 1..=steps {
            self.step(&volume, tag);
        }
        self.compare(&volume);
        volume.unmount().unwrap();
        judge(&self.device);
        let volume = mount(&self.device, self.seed);
        self.compare(&volume);
        volume.unmount().unwrap();
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

#[test]
fn old_volumes_tell_of_no_space_in_time() {
    let first = number("XEBEC_SPACE_SEED", 0);
    for seed in first..first + number("XEBEC_SPACE_WALKS", 8) {
        let walk = std::panic::catch_unwind(|| Walk::of(seed).run(150));
        assert!(walk.is_ok(), "the walk of seed {seed} failed");
    }
}

/// Each owner of a shared block has a record in the rmapbt. One block had so many owners that the rmapbt filled its AG,
/// and the volume was shut down although most of it was free.
#[test]
fn a_block_has_as_many_owners_as_there_is_room_for() {
    let options = mkfs::Options {
        block_size: 1024,
        ag_count: Some(2),
        rmapbt: true,
        reflink: true,
        ..mkfs::Options::default()
    };
    let device = format(32 << 20, &options);
    let volume = mount(&device, 1);
    let file = open(&volume, "often").unwrap();
    file.write_at(&[5; 1024], 0).unwrap();
    file.sync_all().unwrap();
    let mut owners = 0u64;
    // Not adjacent: that would be one record.
    while had_space(file.clone_range(&file, 0, 2 * 1024 * (owners + 1), 1024)).is_some() {
        owners += 1;
        assert!(owners < 100_000, "the tree grows without end");
    }
    assert!(owners > 4000, "{owners}");
    let statistics = volume.statistics();
    assert_eq!(statistics.shut_down, None);
    assert!(statistics.blocks_available > statistics.blocks / 2);
    // All other operations work, also on the owners of the block.
    let other = open(&volume, "other").unwrap();
    other.write_at(&[6; 100_000], 0).unwrap();
    for owner in (1..100).map(|n| n * owners / 100) {
        file.write_at(&[9; 1024], 2 * 1024 * owner).unwrap();
    }
    file.sync_all().unwrap();
    file.set_len(1024).unwrap();
    file.clone_range(&file, 0, 2048, 1024).unwrap();
    drop((file, other));
    volume.unmount().unwrap();
    judge(&device);
}

/// The AG of the first block of a file, and the ranges of the file that are in other AGs.
fn places(volume: &Volume, file: &File<'_>) -> (u64, Vec<(u64, u64, u64)>) {
    let group_bytes = u64::from(volume.geometry().ag_blocks) * u64::from(volume.geometry().block_size);
    let mut ranges = Vec::new();
    let mut take = |range: cache::MappedRange| {
        ranges.push((range.offset, range.length, range.place.unwrap() / group_bytes));
        true
    };
    file.ranges(&mut take).unwrap();
    (ranges.first().unwrap().2, ranges)
}

/// Allocates all free space as unwritten blocks.
fn fill(file: &File<'_>) {
    let (mut size, mut end) = (32 << 20, 0);
    while size >= 1024 {
        match had_space(file.allocate(end, size, true)) {
            Some(()) => end += size,
            None => size /= 2,
        }
    }
}

/// Each CoW write by one of many owners of an extent splits an rmapbt record of its AG, and allocates its blocks in
/// another AG. The growth of the rmapbt was not reserved: the AG ran out of blocks, a write could not be completed, and
/// the volume was shut down. Writes to unwritten extents split records too; with a large rmapbt, only `fsync` reported
/// `ENOSPC`, and acknowledged data could be lost. Now the write is refused.
#[test]
fn copies_on_write_are_refused_before_the_records_of_owners_fill_a_group() {
    const BLOCK: u64 = 1024;
    const COUNT: u64 = 2000;
    const OWNERS: u64 = 90;
    let options = mkfs::Options { block_size: BLOCK as u32, ag_count: Some(9), ..mkfs::Options::default() };
    let device = format(144 << 20, &options);
    let volume = mount(&device, 1);
    let source = open(&volume, "source").unwrap();
    source.write_at(&[1; (BLOCK * COUNT) as usize], 0).unwrap();
    source.sync_all().unwrap();
    let owners: Vec<_> = (0..OWNERS).map(|n| open(&volume, &format!("owner{n}")).unwrap()).collect();
    for owner in &owners {
        owner.clone_range(&source, 0, 0, BLOCK * COUNT).unwrap();
    }
    let (group, _) = places(&volume, &source);
    let filler = open(&volume, "filler").unwrap();
    fill(&filler);
    for (offset, length, place) in places(&volume, &filler).1 {
        if place != group {
            filler.punch_hole(offset, length).unwrap();
        }
    }
    volume.sync().unwrap();
    let mut kept = Vec::new();
    for owner in &owners {
        let write = |n: &u64| had_space(owner.write_at(&[2; BLOCK as usize], 2 * n * BLOCK)).is_some();
        kept.push((0..COUNT / 2).take_while(write).count());
        owner.sync_all().unwrap();
    }
    assert_eq!(volume.statistics().shut_down, None);
    let refused = kept.iter().filter(|count| (**count as u64) < COUNT / 2).count() as u64;
    assert!((1..OWNERS).contains(&refused), "{refused} of {OWNERS}");
    // Unwritten blocks are one record, until every second one is written.
    let reserved = places(&volume, &filler).1;
    for (offset, length, _) in &reserved {
        for n in (0..length / BLOCK).step_by(2).take(8000) {
            had_space(filler.write_at(&[3; BLOCK as usize], offset + n * BLOCK));
        }
    }
    filler.sync_all().unwrap();
    assert_eq!(volume.statistics().shut_down, None);
    drop((source, filler, owners));
    volume.unmount().unwrap();
    judge(&device);
    // All acknowledged data is there.
    let volume = mount(&device, 2);
    for (n, kept) in kept.into_iter().enumerate() {
        let owner = open(&volume, &format!("owner{n}")).unwrap();
        let mut found = vec![0; (BLOCK * COUNT) as usize];
        owner.read_at(&mut found, 0).unwrap();
        for (at, block) in found.chunks(BLOCK as usize).enumerate() {
            let wanted = if at % 2 == 0 && at / 2 < kept { 2 } else { 1 };
            assert!(block.iter().all(|byte| *byte == wanted), "block {at} of owner {n}, {kept} kept");
        }
    }
}

/// On a full volume with large blocks, removed files were not freed: the finobt reserved more blocks than it could
/// need.
#[test]
fn files_of_a_full_volume_can_be_removed() {
    for block_size in [16384, 65536] {
        let options = mkfs::Options { block_size, ag_count: Some(2), ..mkfs::Options::default() };
        let device = format(512 << 20, &options);
        let volume = mount(&device, 2);
        let names: Vec<String> = (0..400).map(|n| format!("empty{n}")).collect();
        for name in &names {
            open(&volume, name).unwrap();
        }
        let full = open(&volume, "full").unwrap();
        let (mut piece, mut at) = (vec![7; 1 << 20], 0);
        while piece.len() >= block_size as usize {
            match had_space(full.write_at(&piece, at)) {
                Some(written) => at += written as u64,
                None => piece.truncate(piece.len() / 2),
            }
        }
        full.sync_all().unwrap();
        for name in names.iter().step_by(5) {
            volume.unlink(volume.root(), name.as_bytes()).unwrap();
        }
        volume.sync().unwrap();
        drop(full);
        volume.unmount().unwrap();
        judge(&device);
        mount(&device, 2).unmount().unwrap();
    }
}

/// An open file kept the blocks that were preallocated for its next append, although nothing of it was dirty: calls
/// that reserve blocks without the cache returned `ENOSPC` while some megabytes were free.
#[test]
fn preallocated_blocks_of_a_clean_file_can_be_allocated() {
    const PIECE: u64 = 256 << 10;
    let device = format(128 << 20, &mkfs::Options::default());
    let options = Options { seed: Some(3), background: false, ..Options::default() };
    let volume = Volume::open(device.clone(), options).unwrap();
    let log = open(&volume, "log").unwrap();
    log.append(&vec![1; 16 << 20]).unwrap();
    log.sync_all().unwrap();
    let preallocated_until = log.len();
    let other = open(&volume, "other").unwrap();
    let free = volume.statistics().blocks_available * 4096;
    let mut allocated = 0;
    while had_space(other.allocate(allocated, PIECE, false)).is_some() {
        allocated += PIECE;
    }
    // The preallocation is as long as the file.
    assert!(allocated > free + preallocated_until / 2, "{allocated} bytes of {free}, and the preallocation");
    drop((log, other));
    volume.unmount().unwrap();
    judge(&device);
}
