//! Shared extents of a file of the host (`FS_IOC_FIEMAP`). It is in this layer because an `ioctl` needs `unsafe`.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// An extent that several files share, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExtent {
    /// Offset in the file.
    pub offset: u64,
    /// Offset on the device: the same for all files that share the extent.
    pub physical: u64,
    /// Length.
    pub length: u64,
}

/// `struct fiemap` of `linux/fiemap.h`, without the extents that follow it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// Extents per call.
const BATCH: usize = 64;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Call {
    header: Header,
    extents: [Extent; BATCH],
}

const FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 0x1;
/// The physical offset is unknown or may change, or the data is encoded or not aligned to blocks.
const UNUSABLE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;
/// `FIEMAP_EXTENT_UNWRITTEN`.
const UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_SHARED`.
const SHARED: u32 = 0x2000;

/// The shared extents among the first `max` extents of an open file, in order.
///
/// # Errors
/// `EOPNOTSUPP` and others if the file system does not support the call.
pub fn shared(file: impl AsFd, max: usize) -> io::Result<Vec<SharedExtent>> {
    let mut found = Vec::new();
    let (mut start, mut seen) = (0, 0);
    while seen < max {
        let empty =
            Extent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
        let header = Header {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: BATCH as u32,
            reserved: 0,
        };
        let mut call = Call { header, extents: [empty; BATCH] };
        // SAFETY: the opcode encodes the size of the header, after which the kernel writes at most `extent_count`
        // extents; that many follow it, integers in the kernel's layout.
        unsafe { ioctl(&file, Updater::<FIEMAP, Call>::new(&mut call)) }?;
        let mapped = (call.header.mapped_extents as usize).min(BATCH);
        let Some(extents) = call.extents.get(..mapped) else { break };
        let Some(last) = extents.last() else { break };
        found.extend(extents.iter().filter(|extent| extent.flags & SHARED != 0).filter_map(|extent| {
            let is_usable = extent.flags & (UNUSABLE | UNWRITTEN) == 0;
            let Extent { logical: offset, physical, length, .. } = *extent;
            is_usable.then_some(SharedExtent { offset, physical, length })
        }));
        let end = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || end <= start {
            break;
        }
        (start, seen) = (end, seen + mapped);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_kernel() {
        assert_eq!(std::mem::size_of::<Header>(), 32);
        assert_eq!(std::mem::size_of::<Extent>(), 56);
        assert_eq!(std::mem::size_of::<Call>(), 32 + 56 * BATCH);
    }

    /// Also on file systems that do not support the call.
    #[test]
    fn a_new_file_shares_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[1; 100_000]).unwrap();
        match shared(&file, 10) {
            Ok(shared) => assert_eq!(shared, []),
            Err(error) => assert!(error.raw_os_error().is_some()),
        }
    }
}
