use block::DeviceError;
use store::DirectoryStore;

use super::*;
use crate::error::ObjectError;
use crate::{DiskCache, volume_info};

const SIZE: usize = 40 << 20;

/// A volume beside its contents in memory.
struct Pair {
    device: ObjectDevice,
    bytes: Vec<u8>,
    random: Random,
}

impl Pair {
    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn range(&self) -> (usize, usize) {
        let longest = [700, 5000, 200_000, 6 << 20][self.below(4) as usize];
        let length = 1 + self.below(longest) as usize;
        let start = self.below((SIZE - length) as u64) as usize;
        match self.below(3) {
            0 => (start, length),
            _ => (start / BLOCK * BLOCK, length.div_ceil(BLOCK) * BLOCK.min(SIZE)),
        }
    }

    fn step(&mut self) {
        let (start, length) = self.range();
        let length = length.min(SIZE - start);
        match self.below(10) {
            0..5 => {
                let seed = self.random.next_u64();
                let text: Vec<u8> =
                    (0..length).map(|n| (seed >> (n % 7 * 8)) as u8 ^ (n >> 9) as u8).collect();
                self.device.write_at(start as u64, &text, Durability::Buffered).unwrap();
                self.bytes[start..start + length].copy_from_slice(&text);
            }
            5 => {
                assert!(self.device.discard(start as u64, length as u64).unwrap());
                self.bytes[start..start + length].fill(0);
            }
            6 => self.device.flush().unwrap(),
            7 if self.below(4) == 0 => self.device.checkpoint().unwrap(),
            _ => self.compare(start, length),
        }
    }

    fn compare(&self, start: usize, length: usize) {
        let mut found = vec![1; length];
        self.device.read_at(start as u64, &mut found).unwrap();
        assert!(found == self.bytes[start..start + length], "bytes from {start}, {length} of them");
    }
}

/// Random calls agree with bytes in memory, also after the volume was closed and opened again, and for a reader.
#[test]
fn a_volume_is_what_was_written() {
    for seed in 0..3 {
        let store = MemoryStore::default();
        let device = ObjectDevice::create(shared(&store), SIZE as u64, 512, small(seed)).unwrap();
        let random = Random::with_sequences(1, seed);
        let mut pair = Pair { device, bytes: vec![0; SIZE], random };
        for round in 0..4 {
            (0..60).for_each(|_| pair.step());
            pair.compare(0, SIZE);
            pair.device.close().unwrap();
            let options = small(seed * 10 + round);
            pair.device = ObjectDevice::open_read_only(shared(&store), None, options.clone()).unwrap();
            pair.compare(0, SIZE);
            pair.device = ObjectDevice::open(shared(&store), options).unwrap();
        }
        pair.compare(0, SIZE);
    }
}

#[test]
fn a_volume_in_a_directory_survives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(DirectoryStore::new(folder.path().join("vol"))) };
    let device = ObjectDevice::create(open(), 1 << 20, 4096, ObjectOptions::default()).unwrap();
    write(&device, 7, 42);
    device.close().unwrap();
    let device = ObjectDevice::open(open(), ObjectOptions::default()).unwrap();
    assert_eq!((read(&device, 7), read(&device, 8)), (42, 0));
    assert_eq!((device.size(), device.logical_sector_size()), (1 << 20, 4096));
}

#[test]
fn a_second_writer_is_refused_until_it_takes_over() {
    let store = MemoryStore::default();
    make(&store, 100, 1);
    let first = ObjectDevice::open(shared(&store), small(2)).unwrap();
    write(&first, 1, 11);
    first.flush().unwrap();
    write(&first, 2, 12);
    let refused = ObjectDevice::open(shared(&store), small(3)).err().unwrap();
    assert!(matches!(refused, ObjectError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("--take-over"), "{refused}");
    let second = ObjectDevice::open(shared(&store), ObjectOptions { take_over: true, ..small(4) }).unwrap();
    assert_eq!((read(&second, 1), read(&second, 2)), (11, 0));
    let fenced = first.flush().unwrap_err();
    assert!(fenced.to_string().contains("taken the volume over"), "{fenced}");
    assert!(first.write_at(0, &[1], Durability::Buffered).is_err());
    write(&second, 2, 22);
    second.close().unwrap();
    assert!(volume_info(shared(&store), &small(5)).unwrap().writer.is_none());
    assert!(first.close().is_err());
    assert_eq!(read(&ObjectDevice::open_read_only(shared(&store), None, small(6)).unwrap(), 2), 22);
}

#[test]
fn sizes_change_and_what_was_cut_off_is_gone() {
    let store = MemoryStore::default();
    make(&store, 100, 1);
    let device = ObjectDevice::open(shared(&store), small(2)).unwrap();
    write(&device, 50, 5);
    device.set_size(50 * BLOCK as u64).unwrap();
    assert!(matches!(device.read_at(50 * BLOCK as u64, &mut [0]), Err(DeviceError::PastEnd { .. })));
    device.set_size(200 * BLOCK as u64).unwrap();
    write(&device, 199, 9);
    assert_eq!((read(&device, 50), read(&device, 199)), (0, 9));
    device.close().unwrap();
    let device = ObjectDevice::open(shared(&store), small(3)).unwrap();
    assert_eq!((device.size(), read(&device, 199)), (200 * BLOCK as u64, 9));
    assert!(device.set_size(100).is_err());
}

/// The log contained blocks behind the new end, and the volume could not be opened after a crash.
#[test]
fn a_volume_that_was_truncated_opens_after_a_crash() {
    let store = MemoryStore::default();
    make(&store, 100, 1);
    let device = ObjectDevice::open(shared(&store), small(2)).unwrap();
    write(&device, 50, 5);
    write(&device, 7, 7);
    device.set_size(50 * BLOCK as u64).unwrap();
    drop(device);
    let device = ObjectDevice::open(shared(&store), ObjectOptions { take_over: true, ..small(3) }).unwrap();
    assert_eq!((device.size(), read(&device, 7)), (50 * BLOCK as u64, 7));
    device.set_size(100 * BLOCK as u64).unwrap();
    assert_eq!(read(&device, 50), 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let store = MemoryStore::default();
    let open = || ObjectDevice::open(shared(&store), small(1)).err().unwrap();
    assert!(matches!(open(), ObjectError::NoVolume { .. }));
    for (size, sector) in [(0, 512), (1 << 60, 512), (4096, 1024)] {
        assert!(ObjectDevice::create(shared(&store), size, sector, small(1)).is_err());
    }
    make(&store, 1, 1);
    let again = ObjectDevice::create(shared(&store), 4096, 512, small(2)).err().unwrap();
    assert!(matches!(again, ObjectError::Exists { .. }));
    let reader = ObjectDevice::open_read_only(shared(&store), None, small(3)).unwrap();
    assert!(matches!(reader.write_at(0, &[0], Durability::Buffered), Err(DeviceError::ReadOnly { .. })));
    assert!(reader.discard(0, 1).is_err() && reader.set_size(8192).is_err());
    reader.flush().unwrap();
    assert!(reader.checkpoint().is_err() && reader.clean().is_err());
    assert!(ObjectDevice::open_read_only(shared(&store), Some("none"), small(4)).is_err());
}

/// What the design asks for, counted: one request for each flush, one for a cold read of which the page of the map is
/// loaded, three for a cold open.
#[test]
fn requests_are_few() {
    let store = MemoryStore::default();
    let options = |seed| ObjectOptions { checkpoint_segments: 1000, map_pages: 100, ..small(seed) };
    let device = ObjectDevice::create(shared(&store), 1 << 30, 4096, options(1)).unwrap();
    let before = device.counts();
    for n in 0..100 {
        write(&device, n * 37 % 1000, n);
        device.flush().unwrap();
        device.flush().unwrap();
    }
    let after = device.counts();
    assert_eq!((after.puts - before.puts, after.gets), (100, before.gets));
    // A log writes on in a block that it has just flushed.
    for n in 0..8 {
        device.write_at((5 << 20) + n * 512, &[7; 512], Durability::Fua).unwrap();
    }
    assert_eq!(device.counts().gets, after.gets);
    device.close().unwrap();

    let counting = |take_over| ObjectOptions { take_over, ..options(2) };
    let device = ObjectDevice::open(shared(&store), counting(false)).unwrap();
    // The head was read and replaced by another client.
    let opened = device.counts();
    assert_eq!((opened.gets, opened.puts), (1, 0));
    read(&device, 37);
    let first = device.counts();
    read(&device, 74);
    let second = device.counts();
    assert_eq!((first.gets - opened.gets, second.gets - first.gets), (2, 1));

    // 64 MiB of bytes that cannot be compressed.
    let random = Random::with_sequences(1, 1);
    let bytes: Vec<u8> = (0..8 << 20).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    device.write_at(0, &bytes, Durability::Fua).unwrap();
    let written = device.counts();
    let sent = written.sent - second.sent;
    assert!(sent as f64 <= bytes.len() as f64 * 1.01, "{sent}");
    assert_eq!(written.puts - second.puts, 8);
}

/// What was read or written once is not fetched again, and a cache that lies is found out.
#[test]
fn a_cache_on_disk_saves_requests() {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let options = |seed| {
        let cache = DiskCache::open(folder.path(), 64 << 20).unwrap();
        ObjectOptions { cache: Some(Arc::new(cache)), ..small(seed) }
    };
    let device = ObjectDevice::create(shared(&store), 4000 * BLOCK as u64, 512, options(1)).unwrap();
    (0..1000).for_each(|n| write(&device, n * 3, n + 1));
    device.close().unwrap();
    let read_all = |seed| {
        let device = ObjectDevice::open_read_only(shared(&store), None, options(seed)).unwrap();
        (0..1000).for_each(|n| assert_eq!(read(&device, n * 3), n + 1));
        device.counts().gets
    };
    // The first time, the directory and the pages of the map are fetched.
    let (first, second) = (read_all(2), read_all(3));
    assert!(first > second && second <= 2, "{first} requests, then {second}");
    for volume in std::fs::read_dir(folder.path()).unwrap() {
        for file in std::fs::read_dir(volume.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
            std::fs::write(&path, bytes).unwrap();
        }
    }
    assert!(read_all(4) > second);
    assert_eq!(read_all(5), second);
}
