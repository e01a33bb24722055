//! Encodes attributes, entries and statistics.

use base::time::Time;
use fuse_abi::linux::{
    fuse_attr, fuse_attr_out, fuse_entry_out, fuse_kstatfs, fuse_statx, fuse_statx_out, fuse_sx_time,
};

use crate::operations::{Attributes, Entry, StatFs};

/// How long the kernel may cache entries and attributes, in seconds: no one else changes the volume.
const VALID_SECONDS: u64 = 1 << 30;

/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_ALL: u32 = 0xfff;

/// Encodes a device number (`new_encode_dev`).
fn encode_device((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Decodes a device number (`new_decode_dev`).
pub fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & !0xff)
}

/// Attributes.
pub fn attr(attributes: &Attributes) -> fuse_attr {
    fuse_attr {
        ino: attributes.ino,
        size: attributes.size,
        blocks: attributes.sectors,
        // The protocol's seconds are `time_t`, cast.
        atime: attributes.accessed.seconds as u64,
        mtime: attributes.modified.seconds as u64,
        ctime: attributes.changed.seconds as u64,
        atimensec: attributes.accessed.nanos,
        mtimensec: attributes.modified.nanos,
        ctimensec: attributes.changed.nanos,
        mode: attributes.mode,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: encode_device(attributes.device),
        blksize: attributes.block_size,
        flags: 0,
    }
}

/// Reply with attributes.
pub fn attributes_out(attributes: &Attributes) -> fuse_attr_out {
    fuse_attr_out { attr_valid: VALID_SECONDS, attr_valid_nsec: 0, dummy: 0, attr: attr(attributes) }
}

/// Reply with an entry.
pub fn entry_out(entry: &Entry) -> fuse_entry_out {
    fuse_entry_out {
        nodeid: entry.node.0,
        generation: entry.generation,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: attr(&entry.attributes),
    }
}

/// Reply with a negative entry, which the kernel may cache.
pub fn no_entry_out() -> fuse_entry_out {
    fuse_entry_out { entry_valid: VALID_SECONDS, ..fuse_entry_out::default() }
}

/// Reply to `FUSE_STATX`.
pub fn statx_out(attributes: &Attributes) -> fuse_statx_out {
    let time = |time: Time| fuse_sx_time { tv_sec: time.seconds, tv_nsec: time.nanos, __reserved: 0 };
    let stat = fuse_statx {
        mask: STATX_ALL,
        blksize: attributes.block_size,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: attributes.mode as u16, // it has 16 bits
        ino: attributes.ino,
        size: attributes.size,
        blocks: attributes.sectors,
        atime: time(attributes.accessed),
        btime: time(attributes.created),
        ctime: time(attributes.changed),
        mtime: time(attributes.modified),
        rdev_major: attributes.device.0,
        rdev_minor: attributes.device.1,
        ..fuse_statx::default()
    };
    fuse_statx_out { attr_valid: VALID_SECONDS, attr_valid_nsec: 0, flags: 0, spare: [0; 2], stat }
}

/// Reply to `FUSE_STATFS`.
pub fn statfs_out(statfs: &StatFs) -> fuse_kstatfs {
    fuse_kstatfs {
        blocks: statfs.blocks,
        bfree: statfs.blocks_free,
        bavail: statfs.blocks_free,
        files: statfs.files,
        ffree: statfs.files_free,
        bsize: statfs.block_size,
        namelen: 255,
        frsize: statfs.block_size,
        ..fuse_kstatfs::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_encoded_like_linux() {
        for device in [(0, 0), (1, 3), (8, 17), (4095, 1_048_575), (259, 300)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device((8, 17)), 0x811);
    }
}
