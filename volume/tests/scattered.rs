//! Writes into the holes of a fragmented file on a full volume.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::errno;
use block::MemoryDevice;
use xebec_volume::{OpenOptions, Options, Volume};

use common::judge;

const BLOCK: u64 = 1024;
/// Number of blocks of the file, each an extent.
const EXTENTS: u64 = 12_000;

/// The reservation for an extent map assumed that new records are adjacent. Single blocks far apart each split a full
/// leaf: writeback ran out of blocks, `fsync` failed, and the volume was shut down and lost acknowledged data.
#[test]
fn scattered_writes_are_refused_before_writeback_runs_out_of_space() {
    for free in [30, 70, 100] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = mkfs::Options { block_size: BLOCK as u32, ..mkfs::Options::default() };
        mkfs::format(&*device, &options).unwrap();
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        let create =
            |path: &[u8]| OpenOptions::new().read(true).write(true).create(true).open(&volume, path).unwrap();
        let (file, filler) = (create(b"/file"), create(b"/filler"));
        for n in 0..EXTENTS {
            file.write_at(&[1; BLOCK as usize], 2 * n * BLOCK).unwrap();
        }
        file.sync_all().unwrap();
        // Returns the blocks claimed ahead of an append.
        drop(file);
        let (mut size, mut end) = (32 << 20, 0);
        while size >= BLOCK {
            match filler.allocate(end, size, true) {
                Ok(()) => end += size,
                Err(_) => size /= 2,
            }
        }
        filler.punch_hole(0, free * BLOCK).unwrap();
        volume.sync().unwrap();
        let file = create(b"/file");
        let (mut written, mut refused) = (Vec::new(), 0);
        for n in 0..free {
            // Each in another leaf, whose neighbours are full.
            let at = (2 * (n * 3 * 59 % EXTENTS) + 1) * BLOCK;
            match file.write_at(&[n as u8; BLOCK as usize], at) {
                Ok(_) => written.push((at, n as u8)),
                Err(error) => {
                    assert_eq!(error.errno(), errno::ENOSPC, "{error}");
                    refused += 1;
                }
            }
        }
        file.sync_all().unwrap();
        assert!(written.len() as u64 >= free / 3 && refused > 0, "{free}: {} and {refused}", written.len());
        for (at, byte) in written {
            let mut found = [0; BLOCK as usize];
            file.read_at(&mut found, at).unwrap();
            assert_eq!(found, [byte; BLOCK as usize]);
        }
        drop((file, filler));
        volume.unmount().unwrap();
        judge(&device);
    }
}
