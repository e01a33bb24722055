//! `ioctl`: flags, extent size hints and project ids (`ioctl_iflags(2)`, `ioctl_xfs_fsgetxattr(2)`), trimming
//! (`FITRIM`) and growing (`XFS_IOC_FSGROWFSDATA`).

use base::errno::{EINVAL, ENOTTY, EOPNOTSUPP, EPERM};
use format::inode::flags;
use xebec::{FileId, Settings};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::VolumeOperations;
use crate::operations::{Caller, EROFS, Errno, Result};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
const XFS_IOC_FSGROWFSDATA: u32 = 0x4010_586e;

/// Flags of `chattr(1)` and the corresponding inode flags.
const FLAGS: [(u32, u16); 5] = [
    (0x08, flags::SYNC),
    (0x10, flags::IMMUTABLE),
    (0x20, flags::APPEND),
    (0x40, flags::NODUMP),
    (0x80, flags::NOATIME),
];

/// `struct fsxattr`.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    extents: u32,
    project: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

/// `struct fstrim_range`.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    min_length: u64,
}

/// `struct xfs_growfs_data`.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct GrowData {
    blocks: u64,
    /// Maximum percentage of space for inodes; ignored.
    inodes: u32,
    pad: u32,
}

fn parse<T: FromBytes>(bytes: &[u8]) -> Result<T> {
    T::read_from_prefix(bytes).map(|(parsed, _)| parsed).map_err(|_| Errno(EINVAL))
}

impl VolumeOperations<'_> {
    /// See [`Operations::ioctl`](crate::Operations::ioctl). The kernel has checked the permission to set flags.
    pub(super) fn do_ioctl(
        &self,
        caller: Caller,
        file: FileId,
        command: u32,
        argument: &[u8],
    ) -> Result<Vec<u8>> {
        let modifying = [FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FITRIM, XFS_IOC_FSGROWFSDATA];
        if modifying.contains(&command) && self.options.read_only {
            return Err(EROFS);
        }
        match command {
            FS_IOC_GETFLAGS => {
                let xflags = self.volume.settings(file)?.xflags;
                let set = FLAGS.iter().filter(|(_, bit)| xflags & u32::from(*bit) != 0);
                Ok(set.fold(0, |all, (flag, _)| all | flag).to_ne_bytes().to_vec())
            }
            FS_IOC_SETFLAGS => self.set_flags(file, parse(argument)?),
            FS_IOC_FSGETXATTR => {
                let settings = self.volume.settings(file)?;
                let Settings { xflags, extsize, cowextsize, project } = settings;
                let extents = 0;
                Ok(FsXattr { xflags, extsize, extents, project, cowextsize, pad: [0; 8] }.as_bytes().to_vec())
            }
            FS_IOC_FSSETXATTR => {
                let FsXattr { xflags, extsize, project, cowextsize, .. } = parse(argument)?;
                self.volume.set_settings(file, &Settings { xflags, extsize, cowextsize, project })?;
                Ok(Vec::new())
            }
            FITRIM => self.trim(caller, &parse(argument)?),
            XFS_IOC_FSGROWFSDATA => {
                let GrowData { blocks, .. } = parse(argument)?;
                self.grow(caller, blocks)?;
                Ok(Vec::new())
            }
            _ => Err(Errno(ENOTTY)),
        }
    }

    fn set_flags(&self, file: FileId, requested: u32) -> Result<Vec<u8>> {
        let known = FLAGS.iter().fold(0, |all, (flag, _)| all | flag);
        if requested & !known != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        let mut settings = self.volume.settings(file)?;
        for (flag, bit) in FLAGS {
            let bit = u32::from(bit);
            settings.xflags = settings.xflags & !bit | if requested & flag != 0 { bit } else { 0 };
        }
        self.volume.set_settings(file, &settings)?;
        Ok(Vec::new())
    }

    /// Discards free space, for root and the user who runs the server. Validates the range like Linux, but trims all
    /// space.
    fn trim(&self, caller: Caller, range: &TrimRange) -> Result<Vec<u8>> {
        check_privileged(caller)?;
        let TrimRange { start, length, min_length } = *range;
        let geometry = self.volume.geometry();
        let bytes = |blocks: u64| blocks << geometry.block_log;
        if start >= bytes(geometry.blocks())
            || length < bytes(1)
            || min_length > bytes(geometry.ag_blocks.into())
        {
            return Err(Errno(EINVAL));
        }
        let trimmed = self.volume.trim(min_length)?;
        Ok(TrimRange { start, length: trimmed.free_bytes, min_length }.as_bytes().to_vec())
    }

    /// Grows the volume, for the same users.
    pub(super) fn grow(&self, caller: Caller, blocks: u64) -> Result<()> {
        check_privileged(caller)?;
        self.volume.grow(blocks)?;
        Ok(())
    }
}

/// Allows privileged operations for root and the user who runs the server.
fn check_privileged(caller: Caller) -> Result<()> {
    match caller.uid {
        0 => Ok(()),
        uid if uid == rustix::process::geteuid().as_raw() => Ok(()),
        _ => Err(Errno(EPERM)),
    }
}

/// Parses a number of blocks in decimal.
pub(super) fn parse_blocks(text: &[u8]) -> Result<u64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or(Errno(EINVAL))
}
