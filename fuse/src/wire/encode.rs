//! What is known of files, in the protocol's forms.

use base::time::Time;
use fuse_abi::linux::{
    fuse_attr, fuse_attr_out, fuse_entry_out, fuse_kstatfs, fuse_statx, fuse_statx_out, fuse_sx_time,
};

use crate::operations::{Attributes, Found, Space};

/// How long the kernel may keep what it was told, in seconds: nobody else changes the volume.
const KEEP: u64 = 1 << 30;

/// The type, permissions, link count, owners, times, inode number, size and blocks, and the time of birth (`statx(2)`).
const STATX_ALL: u32 = 0xfff;

/// A device's numbers as the kernel packs them (`new_encode_dev`).
fn packed((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// The reverse.
pub fn unpacked(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & !0xff)
}

/// What is known of a file.
pub fn attributes(known: &Attributes) -> fuse_attr {
    fuse_attr {
        ino: known.ino,
        size: known.size,
        blocks: known.sectors,
        // The protocol's seconds are those of `time_t`.
        atime: known.accessed.seconds as u64,
        mtime: known.modified.seconds as u64,
        ctime: known.changed.seconds as u64,
        atimensec: known.accessed.nanos,
        mtimensec: known.modified.nanos,
        ctimensec: known.changed.nanos,
        mode: known.mode,
        nlink: known.nlink,
        uid: known.uid,
        gid: known.gid,
        rdev: packed(known.device),
        blksize: known.block_size,
        flags: 0,
    }
}

/// The answer to a question for them.
pub fn attributes_out(known: &Attributes) -> fuse_attr_out {
    fuse_attr_out { attr_valid: KEEP, attr_valid_nsec: 0, dummy: 0, attr: attributes(known) }
}

/// A file that was found.
pub fn entry_out(found: &Found) -> fuse_entry_out {
    fuse_entry_out {
        nodeid: found.node.0,
        generation: found.generation,
        entry_valid: KEEP,
        attr_valid: KEEP,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: attributes(&found.attributes),
    }
}

/// A name that stands for nothing, which the kernel may remember.
pub fn no_entry_out() -> fuse_entry_out {
    fuse_entry_out { entry_valid: KEEP, ..fuse_entry_out::default() }
}

/// What is known of a file, with the time of its birth.
pub fn statx_out(known: &Attributes) -> fuse_statx_out {
    let time = |time: Time| fuse_sx_time { tv_sec: time.seconds, tv_nsec: time.nanos, __reserved: 0 };
    let stat = fuse_statx {
        mask: STATX_ALL,
        blksize: known.block_size,
        nlink: known.nlink,
        uid: known.uid,
        gid: known.gid,
        mode: known.mode as u16, // sixteen bits of it are used
        ino: known.ino,
        size: known.size,
        blocks: known.sectors,
        atime: time(known.accessed),
        btime: time(known.created),
        ctime: time(known.changed),
        mtime: time(known.modified),
        rdev_major: known.device.0,
        rdev_minor: known.device.1,
        ..fuse_statx::default()
    };
    fuse_statx_out { attr_valid: KEEP, attr_valid_nsec: 0, flags: 0, spare: [0; 2], stat }
}

/// How much space there is.
pub fn space_out(space: &Space) -> fuse_kstatfs {
    fuse_kstatfs {
        blocks: space.blocks,
        bfree: space.blocks_free,
        bavail: space.blocks_free,
        files: space.files,
        ffree: space.files_free,
        bsize: space.block_size,
        namelen: 255,
        frsize: space.block_size,
        ..fuse_kstatfs::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_packed_as_linux_does() {
        for device in [(0, 0), (1, 3), (8, 17), (4095, 1_048_575), (259, 300)] {
            assert_eq!(unpacked(packed(device)), device);
        }
        assert_eq!(packed((8, 17)), 0x811);
    }
}
