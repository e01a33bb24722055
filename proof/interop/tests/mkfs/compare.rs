//! Comparison of two sparse files, and the bytes that may differ.

use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use format::inode::RawInode;
use format::superblock::Superblock;
use rustix::fs::{SeekFrom, seek};

/// Bytes of the first inodes that depend on the clock or are random: three times, the generation (random in
/// `mkfs.xfs`), the checksum, and the creation time. `xfs_repair` verifies the checksums.
pub const VARYING: &[Range<usize>] = &[
    offset_of!(RawInode, atime)..offset_of!(RawInode, size),
    offset_of!(RawInode, generation)..offset_of!(RawInode, next_unlinked),
    offset_of!(RawInode, crc)..offset_of!(RawInode, changecount),
    offset_of!(RawInode, crtime)..offset_of!(RawInode, ino),
];

const CHUNK: usize = 1 << 20;

/// Returns the data ranges of a file.
fn extents(file: &File) -> Vec<Range<u64>> {
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(data) = seek(file, SeekFrom::Data(at)) {
        let hole = seek(file, SeekFrom::Hole(data)).unwrap();
        found.push(data..hole);
        at = hole;
    }
    found
}

/// Location and size of the first inodes.
struct Inodes {
    range: Range<u64>,
    size: u64,
}

impl Inodes {
    /// Finds the first inodes of a volume; an external log has none.
    fn of(file: &File) -> Self {
        let mut sector = [0; 4096];
        let superblock =
            file.read_exact_at(&mut sector, 0).ok().and_then(|()| Superblock::parse_unchecked(&sector).ok());
        let Some(superblock) = superblock else { return Self { range: 0..0, size: 1 } };
        let geometry = superblock.geometry;
        let size = u64::from(geometry.inode_size);
        // In the first AG, an inode number is the index of its slot.
        let start = geometry.root.get() * size;
        Self { range: start..start + superblock.raw.icount.get() * size, size }
    }

    fn varies(&self, at: u64) -> bool {
        let within = (at.wrapping_sub(self.range.start) % self.size) as usize;
        self.range.contains(&at) && VARYING.iter().any(|field| field.contains(&within))
    }
}

/// Returns the first difference of two files, and the number of differing bytes; `None` if they are equal.
pub fn difference(ours: &Path, theirs: &Path) -> Option<String> {
    let (ours, theirs) = (File::open(ours).unwrap(), File::open(theirs).unwrap());
    let sizes = (ours.metadata().unwrap().len(), theirs.metadata().unwrap().len());
    if sizes.0 != sizes.1 {
        return Some(format!("sizes {sizes:?}"));
    }
    let inodes = Inodes::of(&theirs);
    let mut ranges = [extents(&ours), extents(&theirs)].concat();
    ranges.sort_by_key(|range| range.start);
    let (mut done, mut count, mut first) = (0, 0u64, None);
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    for range in ranges {
        let mut at = range.start.max(done);
        while at < range.end {
            let length = (range.end - at).min(CHUNK as u64) as usize;
            ours.read_exact_at(&mut a[..length], at).unwrap();
            theirs.read_exact_at(&mut b[..length], at).unwrap();
            if a[..length] != b[..length] {
                for n in 0..length {
                    let place = at + n as u64;
                    if a[n] != b[n] && !inodes.varies(place) {
                        count += 1;
                        first.get_or_insert_with(|| format!("{place:#x}: {:#04x} and {:#04x}", a[n], b[n]));
                    }
                }
            }
            at += length as u64;
        }
        done = done.max(range.end);
    }
    first.map(|first| format!("{count} bytes differ, the first at {first}"))
}

#[test]
fn single_byte_is_found_unless_it_may_vary() {
    let folder = tempfile::tempdir().unwrap();
    let image = |name: &str, at: u64, byte: u8| {
        let path = folder.path().join(name);
        let device = block::MemoryDevice::new(16 << 20);
        mkfs::format(&device, &mkfs::Options::default()).unwrap();
        let mut bytes = vec![0; 16 << 20];
        block::Device::read_at(&device, 0, &mut bytes).unwrap();
        bytes[at as usize] ^= byte;
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let plain = image("plain", 0, 0);
    assert_eq!(difference(&plain, &image("same", 0, 0)), None);
    assert!(difference(&plain, &image("agf", 0x234, 1)).is_some_and(|text| text.contains("0x234")));
    let root = Superblock::parse(&std::fs::read(&plain).unwrap()[..512]).unwrap().geometry.root.get() * 512;
    let offset = |field: usize| root + field as u64;
    assert_eq!(difference(&plain, &image("time", offset(offset_of!(RawInode, mtime)), 1)), None);
    assert!(difference(&plain, &image("mode", offset(offset_of!(RawInode, mode)), 1)).is_some());
}
