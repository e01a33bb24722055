//! One inode: its core compared with its file type, its forks and the features of the volume.

use format::inode::{Dinode, FileType, ForkKind, RawInode, flags, flags2};
use format::symlink::MAX_TARGET;
use format::timestamp::Timestamp;
use format::{Damage, Geometry, ensure};

use crate::fork::ForkSize;

const NAME: &str = "inode";

/// Maximum link count.
const MAX_LINKS: u32 = (1 << 31) - 1;
/// Maximum extent size hint in blocks: the length of the longest extent.
const MAX_HINT: u32 = (1 << 21) - 1;

const DIRECTORY_FLAGS: u16 = flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
const FILE_FLAGS: u16 = flags::REALTIME | flags::EXTSIZE;
const KNOWN_FLAGS: u16 = (1 << 15) - 1;
const KNOWN_FLAGS2: u64 = (1 << 6) - 1;

type CheckResult = Result<(), Damage>;

/// Runs all checks of the core and reports each that fails.
pub(crate) fn check_core(inode: &Dinode<'_>, geometry: &Geometry, report: &mut dyn FnMut(Damage)) {
    let checks: [fn(&Dinode<'_>, &Geometry) -> CheckResult; 11] = [
        check_mode,
        check_format,
        check_size,
        check_links,
        check_forks,
        check_flags,
        check_flags2,
        check_extent_hint,
        check_cow_hint,
        check_times,
        check_padding,
    ];
    checks.iter().filter_map(|check| check(inode, geometry).err()).for_each(report);
}

fn check_mode(inode: &Dinode<'_>, _: &Geometry) -> CheckResult {
    let mode = inode.core.mode.get();
    ensure!(inode.file_type().is_some(), NAME, "mode", "a known file type", format_args!("{mode:#o}"));
    Ok(())
}

fn check_format(inode: &Dinode<'_>, _: &Geometry) -> CheckResult {
    let allowed: &[u8] = match inode.file_type() {
        Some(FileType::Regular) => &[2, 3],
        Some(FileType::Directory) => &[1, 2, 3],
        Some(FileType::Symlink) => &[1, 2],
        Some(_) => &[0],
        None => return Ok(()),
    };
    let format = inode.core.format;
    let expected = format_args!("one of {allowed:?} for this file type");
    ensure!(allowed.contains(&format), NAME, "format", expected, format);
    let format = inode.core.aformat;
    ensure!((1..=3).contains(&format), NAME, "aformat", "1 to 3", format);
    let no_fork = inode.core.forkoff == 0;
    ensure!(!no_fork || format == 2, NAME, "aformat", "2 (there is no attribute fork)", format);
    Ok(())
}

fn check_size(inode: &Dinode<'_>, geometry: &Geometry) -> CheckResult {
    let size = inode.core.size.get();
    ensure!(size >> 63 == 0, NAME, "size", "less than 2^63", size);
    match inode.file_type() {
        Some(FileType::Symlink) => {
            let expected = format_args!("1 to {MAX_TARGET} for a symlink");
            ensure!((1..=u64::from(MAX_TARGET)).contains(&size), NAME, "size", expected, size);
        }
        Some(FileType::Directory) => {
            let whole = inode.core.format == 1 || size.is_multiple_of(geometry.dir_block_size.into());
            ensure!(size > 0 && whole, NAME, "size", "whole directory blocks", size);
        }
        Some(FileType::Regular) | None => (),
        Some(_) => ensure!(size == 0, NAME, "size", "0 for a special file", size),
    }
    Ok(())
}

fn check_links(inode: &Dinode<'_>, _: &Geometry) -> CheckResult {
    let core = inode.core;
    ensure!(core.nlink.get() <= MAX_LINKS, NAME, "nlink", format_args!("at most {MAX_LINKS}"), core.nlink);
    let metadata = core.flags2.get() & flags2::METADATA != 0;
    ensure!(metadata || core.onlink.get() == 0, NAME, "onlink", 0, core.onlink);
    Ok(())
}

fn check_forks(inode: &Dinode<'_>, geometry: &Geometry) -> CheckResult {
    use FileType::{BlockDevice, CharDevice, Fifo, Socket};
    let core = inode.core;
    let literal_area = (usize::from(geometry.inode_size as u16) - size_of::<RawInode>()) / 8;
    let forkoff = usize::from(core.forkoff);
    ensure!(forkoff < literal_area, NAME, "forkoff", format_args!("less than {literal_area}"), forkoff);
    if matches!(inode.file_type(), Some(BlockDevice | CharDevice | Fifo | Socket)) {
        ensure!(forkoff <= 1, NAME, "forkoff", "0 or 1 for a special file", forkoff);
    }
    let extents = inode.extent_count(ForkKind::Attr);
    let valid = forkoff != 0 || extents == 0;
    ensure!(valid, NAME, "anextents", "0 without an attribute fork", extents);
    for kind in [ForkKind::Data, ForkKind::Attr] {
        inode.fork(kind, geometry)?;
    }
    Ok(())
}

fn check_flags(inode: &Dinode<'_>, _: &Geometry) -> CheckResult {
    let flags = inode.core.flags.get();
    let found = format_args!("{flags:#x}");
    ensure!(flags & !KNOWN_FLAGS == 0, NAME, "flags", "known flags", found);
    // RTINHERIT of directories is allowed: mkfs.xfs can set it without a realtime device.
    ensure!(flags & flags::REALTIME == 0, NAME, "flags", "no realtime flag without a realtime device", found);
    let directory = inode.file_type() == Some(FileType::Directory);
    ensure!(directory || flags & DIRECTORY_FLAGS == 0, NAME, "flags", "no flags of directories", found);
    let file = inode.file_type() == Some(FileType::Regular);
    ensure!(file || flags & FILE_FLAGS == 0, NAME, "flags", "no flags of regular files", found);
    Ok(())
}

/// Checks the inodes of the realtime bitmap and summary, which must be empty without a realtime device.
pub(crate) fn check_realtime_files(inode: &Dinode<'_>, is_bitmap: bool, is_summary: bool) -> CheckResult {
    let flags = inode.core.flags.get();
    let newrtbm = flags & flags::NEWRTBM != 0;
    let found = format_args!("{flags:#x}");
    ensure!(!newrtbm || is_bitmap, NAME, "flags", "NEWRTBM only in the realtime bitmap", found);
    let size = inode.core.size.get();
    let empty = size == 0 || !(is_bitmap || is_summary);
    ensure!(empty, NAME, "size", "0 for a realtime file without a realtime device", size);
    Ok(())
}

fn check_flags2(inode: &Dinode<'_>, geometry: &Geometry) -> CheckResult {
    let flags2 = inode.core.flags2.get();
    let features = &geometry.features;
    let found = format_args!("{flags2:#x}");
    ensure!(flags2 & !KNOWN_FLAGS2 == 0, NAME, "flags2", "known flags", found);
    let file = inode.file_type() == Some(FileType::Regular);
    let directory = inode.file_type() == Some(FileType::Directory);
    for (flag, allowed, rule) in [
        (flags2::REFLINK, features.reflink() && file, "reflink only on regular files, with the feature"),
        (flags2::COWEXTSIZE, features.reflink() && (file || directory), "cowextsize only with reflink"),
        (flags2::DAX, file || directory, "dax only on regular files and directories"),
        (flags2::BIGTIME, features.bigtime(), "no bigtime without the volume's feature"),
        (flags2::NREXT64, features.nrext64(), "no nrext64 without the volume's feature"),
        (flags2::METADATA, features.metadir(), "no metadata flag without the feature metadir"),
    ] {
        ensure!(flags2 & flag == 0 || allowed, NAME, "flags2", rule, found);
    }
    Ok(())
}

fn check_extent_hint(inode: &Dinode<'_>, geometry: &Geometry) -> CheckResult {
    let hinted = inode.core.flags.get() & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0;
    check_hint("extsize", hinted, inode.core.extsize.get(), geometry)
}

fn check_cow_hint(inode: &Dinode<'_>, geometry: &Geometry) -> CheckResult {
    let hinted = inode.core.flags2.get() & flags2::COWEXTSIZE != 0;
    check_hint("cowextsize", hinted, inode.core.cowextsize.get(), geometry)
}

fn check_hint(field: &'static str, hinted: bool, hint: u32, geometry: &Geometry) -> CheckResult {
    let max = max_hint(geometry);
    if hinted {
        ensure!((1..=max).contains(&hint), NAME, field, format_args!("1 to {max} (its flag is set)"), hint);
    } else {
        ensure!(hint == 0, NAME, field, "0 (its flag is not set)", hint);
    }
    Ok(())
}

fn check_times(inode: &Dinode<'_>, _: &Geometry) -> CheckResult {
    let core = inode.core;
    let times =
        [("atime", core.atime), ("mtime", core.mtime), ("ctime", core.ctime), ("crtime", core.crtime)];
    for (field, time) in times {
        let valid = Timestamp::is_valid(time, inode.bigtime());
        ensure!(valid, NAME, field, "less than 10^9 nanoseconds", format_args!("{:#x}", time));
    }
    Ok(())
}

fn check_padding(inode: &Dinode<'_>, geometry: &Geometry) -> CheckResult {
    let core = inode.core;
    ensure!(core.pad2 == [0; 12], NAME, "pad2", "zeros", format_args!("{:02x?}", core.pad2));
    if inode.wide_counts() {
        ensure!(core.anextents.get() == 0, NAME, "anextents", "0 with nrext64", core.anextents);
    } else {
        // Includes di_flushiter, which only inodes of version 2 use.
        let valid = core.big_nextents.get() == 0;
        ensure!(valid, NAME, "big_nextents", "0 without nrext64", core.big_nextents);
    }
    let wide_project = core.projid_hi.get() != 0 && !geometry.features.projid32();
    ensure!(!wide_project, NAME, "projid_hi", "0 without 32-bit project IDs", core.projid_hi);
    Ok(())
}

/// Compares the counters of the core with the size of the forks.
pub(crate) fn check_fork_sizes(
    inode: &Dinode<'_>,
    data: &ForkSize,
    attr: &ForkSize,
    report: &mut dyn FnMut(Damage),
) {
    if data.complete && attr.complete {
        let (counted, stored) = (data.blocks + attr.blocks, inode.core.nblocks.get());
        if counted != stored {
            report(Damage::new(NAME, "nblocks", counted, stored));
        }
    }
    for (kind, size, format, field) in [
        (ForkKind::Data, data, inode.core.format, "nextents"),
        (ForkKind::Attr, attr, inode.core.aformat, "anextents"),
    ] {
        let stored = inode.extent_count(kind);
        if size.complete && size.extents != stored {
            report(Damage::new(NAME, field, size.extents, stored));
        }
        let exists = kind == ForkKind::Data || inode.core.forkoff != 0;
        let max_inline = (inode.fork_bytes(kind).len() / 16) as u64;
        if exists && format == 3 && size.complete && size.extents <= max_inline {
            let expected = format!("more than {max_inline} for a fork in btree format");
            report(Damage::new(NAME, field, expected, size.extents));
        }
    }
}

/// Checks a free inode. The kernel does not clear the generation, the times, the extent size hints, and the size of an
/// inline symlink.
pub(crate) fn check_free(inode: &Dinode<'_>, geometry: &Geometry, report: &mut dyn FnMut(Damage)) {
    let core = inode.core;
    // The format is 0 in new chunks, and that of an empty fork (2) in freed inodes.
    let nonempty_format = |format: u8| if format == 2 { 0 } else { u64::from(format) };
    let features = &geometry.features;
    let mut kept = flags2::DAX;
    for (has, flag) in [(features.bigtime(), flags2::BIGTIME), (features.nrext64(), flags2::NREXT64)] {
        kept |= if has { flag } else { 0 };
    }
    for (field, value) in [
        ("nblocks", core.nblocks.get()),
        ("nlink", core.nlink.get().into()),
        ("onlink", core.onlink.get().into()),
        ("forkoff", core.forkoff.into()),
        ("format", nonempty_format(core.format)),
        ("aformat", nonempty_format(core.aformat)),
        ("nextents", inode.extent_count(ForkKind::Data)),
        ("anextents", inode.extent_count(ForkKind::Attr)),
        ("flags", core.flags.get().into()),
        ("flags2", core.flags2.get() & !kept),
        ("next_unlinked", core.next_unlinked.get().wrapping_add(1).into()),
    ] {
        if value != 0 {
            report(Damage::new(NAME, field, "the value of a free inode", format_args!("{value:#x}")));
        }
    }
    let max = max_hint(geometry);
    for (field, hint) in [("extsize", core.extsize.get()), ("cowextsize", core.cowextsize.get())] {
        if hint > max {
            report(Damage::new(NAME, field, format_args!("at most {max}"), hint));
        }
    }
}

/// Maximum extent size hint in blocks: half an AG, or the longest extent.
fn max_hint(geometry: &Geometry) -> u32 {
    MAX_HINT.min(geometry.ag_blocks / 2)
}
