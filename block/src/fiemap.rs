//! Where the host's file system keeps what a file holds (`FS_IOC_FIEMAP`), to see which files share blocks.
//!
//! It lives here because an `ioctl` needs `unsafe`, and this layer is where that is at home.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// A run of a file's blocks that other files have, too. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExtent {
    /// Where in the file.
    pub offset: u64,
    /// Where on its device; the same for all files that share it.
    pub physical: u64,
    /// How much.
    pub length: u64,
}

/// `struct fiemap` of `linux/fiemap.h`, without the extents behind it.
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

/// Extents that one call tells of.
const AT_ONCE: usize = 64;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Call {
    header: Header,
    extents: [Extent; AT_ONCE],
}

const FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);
/// The last of the file.
const LAST: u32 = 0x1;
/// The place is not known, is not to be relied on, or holds something encoded, or not at block boundaries.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;
/// Space is allocated, but was not written.
const UNWRITTEN: u32 = 0x800;
/// Other files have it, too.
const SHARED: u32 = 0x2000;

/// Shared runs of an open file in their order, of its first `most` extents.
///
/// # Errors
/// `EOPNOTSUPP` and others where the host's file system does not know the call.
pub fn shared(file: impl AsFd, most: usize) -> io::Result<Vec<SharedExtent>> {
    let mut found = Vec::new();
    let (mut start, mut seen) = (0, 0);
    while seen < most {
        let nothing =
            Extent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
        let header = Header {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: AT_ONCE as u32,
            reserved: 0,
        };
        let mut call = Call { header, extents: [nothing; AT_ONCE] };
        // SAFETY: the opcode encodes the size of the header, after which the kernel writes at most `extent_count`
        // extents; that many lie there, plain integers laid out as the kernel's.
        unsafe { ioctl(&file, Updater::<FIEMAP, Call>::new(&mut call)) }?;
        let mapped = (call.header.mapped_extents as usize).min(AT_ONCE);
        let Some(extents) = call.extents.get(..mapped) else { break };
        let Some(last) = extents.last() else { break };
        found.extend(extents.iter().filter(|extent| extent.flags & SHARED != 0).filter_map(|extent| {
            let is_placed = extent.flags & (NO_PLACE | UNWRITTEN) == 0;
            let Extent { logical: offset, physical, length, .. } = *extent;
            is_placed.then_some(SharedExtent { offset, physical, length })
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
    fn layout_is_the_kernels() {
        assert_eq!(std::mem::size_of::<Header>(), 32);
        assert_eq!(std::mem::size_of::<Extent>(), 56);
        assert_eq!(std::mem::size_of::<Call>(), 32 + 56 * AT_ONCE);
    }

    /// Whatever file system tests run on, it says that nobody shares a new file, or that it does not know.
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
