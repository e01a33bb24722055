//! One inode: its core against its type, its forks and the volume's features.

use format::inode::{Dinode, FileType, ForkKind, RawInode, flags, flags2};
use format::timestamp::Timestamp;
use format::{Damage, Geometry, ensure};

use crate::fork::ForkTotal;

const NAME: &str = "inode";

/// Longest symlink target.
pub(crate) const MOST_TARGET_BYTES: u64 = 1024;
/// Highest link count.
const MOST_LINKS: u32 = (1 << 31) - 1;
/// Longest extent size hint: that of the longest extent.
const MOST_HINT: u32 = (1 << 21) - 1;

const DIRECTORY_FLAGS: u16 = flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
const FILE_FLAGS: u16 = flags::REALTIME | flags::EXTSIZE;
const KNOWN_FLAGS: u16 = (1 << 15) - 1;
const KNOWN_FLAGS2: u64 = (1 << 6) - 1;

type Checked = Result<(), Damage>;

/// Every check of the core alone. All are made; each that fails is one damage.
pub(crate) fn check_core(inode: &Dinode<'_>, geometry: &Geometry, tell: &mut dyn FnMut(Damage)) {
    let checks: [fn(&Dinode<'_>, &Geometry) -> Checked; 11] = [
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
    checks.iter().filter_map(|check| check(inode, geometry).err()).for_each(tell);
}

fn check_mode(inode: &Dinode<'_>, _: &Geometry) -> Checked {
    let mode = inode.core.mode.get();
    ensure!(inode.file_type().is_some(), NAME, "mode", "a known file type", format_args!("{mode:#o}"));
    Ok(())
}

fn check_format(inode: &Dinode<'_>, _: &Geometry) -> Checked {
    let allowed: &[u8] = match inode.file_type() {
        Some(FileType::Regular) => &[2, 3],
        Some(FileType::Directory) => &[1, 2, 3],
        Some(FileType::Symlink) => &[1, 2],
        Some(_) => &[0],
        None => return Ok(()),
    };
    let format = inode.core.format;
    ensure!(
        allowed.contains(&format),
        NAME,
        "format",
        format_args!("one of {allowed:?} by its type"),
        format
    );
    let format = inode.core.aformat;
    ensure!((1..=3).contains(&format), NAME, "aformat", "1 to 3", format);
    let none = inode.core.forkoff == 0;
    ensure!(!none || format == 2, NAME, "aformat", "2, where there is no attribute fork", format);
    Ok(())
}

fn check_size(inode: &Dinode<'_>, geometry: &Geometry) -> Checked {
    let size = inode.core.size.get();
    ensure!(size >> 63 == 0, NAME, "size", "less than 2^63", size);
    match inode.file_type() {
        Some(FileType::Symlink) => {
            ensure!(
                (1..=MOST_TARGET_BYTES).contains(&size),
                NAME,
                "size",
                format_args!("1 to {MOST_TARGET_BYTES} bytes of a symlink"),
                size
            );
        }
        Some(FileType::Directory) => {
            let whole = inode.core.format == 1 || size.is_multiple_of(geometry.dir_block_size.into());
            ensure!(size > 0 && whole, NAME, "size", "whole directory blocks", size);
        }
        Some(FileType::Regular) | None => (),
        Some(_) => ensure!(size == 0, NAME, "size", "0 of a special file", size),
    }
    Ok(())
}

fn check_links(inode: &Dinode<'_>, _: &Geometry) -> Checked {
    let core = inode.core;
    ensure!(core.nlink.get() <= MOST_LINKS, NAME, "nlink", format_args!("at most {MOST_LINKS}"), core.nlink);
    let metadata = core.flags2.get() & flags2::METADATA != 0;
    ensure!(metadata || core.onlink.get() == 0, NAME, "onlink", 0, core.onlink);
    Ok(())
}

fn check_forks(inode: &Dinode<'_>, geometry: &Geometry) -> Checked {
    use FileType::{BlockDevice, CharDevice, Fifo, Socket};
    let core = inode.core;
    let room = (usize::from(geometry.inode_size as u16) - size_of::<RawInode>()) / 8;
    let forkoff = usize::from(core.forkoff);
    ensure!(forkoff < room, NAME, "forkoff", format_args!("less than {room}"), forkoff);
    if matches!(inode.file_type(), Some(BlockDevice | CharDevice | Fifo | Socket)) {
        ensure!(forkoff <= 1, NAME, "forkoff", "0 or 1 of a special file", forkoff);
    }
    let attr_extents = inode.extent_count(ForkKind::Attr);
    ensure!(
        forkoff != 0 || attr_extents == 0,
        NAME,
        "anextents",
        "0 without an attribute fork",
        attr_extents
    );
    for kind in [ForkKind::Data, ForkKind::Attr] {
        inode.fork(kind, geometry)?;
    }
    Ok(())
}

fn check_flags(inode: &Dinode<'_>, _: &Geometry) -> Checked {
    let flags = inode.core.flags.get();
    let shown = format_args!("{flags:#x}");
    ensure!(flags & !KNOWN_FLAGS == 0, NAME, "flags", "known flags", shown);
    // mkfs lets directories ask for realtime files even so.
    ensure!(flags & flags::REALTIME == 0, NAME, "flags", "no realtime flag without a realtime device", shown);
    let directory = inode.file_type() == Some(FileType::Directory);
    ensure!(directory || flags & DIRECTORY_FLAGS == 0, NAME, "flags", "no flags of directories", shown);
    let file = inode.file_type() == Some(FileType::Regular);
    ensure!(file || flags & FILE_FLAGS == 0, NAME, "flags", "no flags of regular files", shown);
    Ok(())
}

/// What holds for the realtime bitmap and its summary on a volume without a realtime device, and for no other inode.
pub(crate) fn check_realtime_files(inode: &Dinode<'_>, is_bitmap: bool, is_summary: bool) -> Checked {
    let flags = inode.core.flags.get();
    let marked = flags & flags::NEWRTBM != 0;
    let shown = format_args!("{flags:#x}");
    ensure!(!marked || is_bitmap, NAME, "flags", "the bitmap's flag in the bitmap's inode alone", shown);
    let size = inode.core.size.get();
    let empty = size == 0 || !(is_bitmap || is_summary);
    ensure!(empty, NAME, "size", "0 of a realtime file without a realtime device", size);
    Ok(())
}

fn check_flags2(inode: &Dinode<'_>, geometry: &Geometry) -> Checked {
    let flags2 = inode.core.flags2.get();
    let features = &geometry.features;
    let shown = format_args!("{flags2:#x}");
    ensure!(flags2 & !KNOWN_FLAGS2 == 0, NAME, "flags2", "known flags", shown);
    let file = inode.file_type() == Some(FileType::Regular);
    let directory = inode.file_type() == Some(FileType::Directory);
    for (flag, allowed, rule) in [
        (
            flags2::REFLINK,
            features.reflink() && file,
            "reflink only on regular files of a volume with the feature",
        ),
        (
            flags2::COWEXTSIZE,
            features.reflink() && (file || directory),
            "cowextsize only with the feature reflink",
        ),
        (flags2::DAX, file || directory, "dax only on regular files and directories"),
        (flags2::BIGTIME, features.bigtime(), "no bigtime without the volume's feature"),
        (flags2::NREXT64, features.nrext64(), "no nrext64 without the volume's feature"),
        (flags2::METADATA, features.metadir(), "no metadata flag without the feature metadir"),
    ] {
        ensure!(flags2 & flag == 0 || allowed, NAME, "flags2", rule, shown);
    }
    Ok(())
}

fn check_extent_hint(inode: &Dinode<'_>, geometry: &Geometry) -> Checked {
    let hinted = inode.core.flags.get() & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0;
    check_hint("extsize", hinted, inode.core.extsize.get(), geometry)
}

fn check_cow_hint(inode: &Dinode<'_>, geometry: &Geometry) -> Checked {
    let hinted = inode.core.flags2.get() & flags2::COWEXTSIZE != 0;
    check_hint("cowextsize", hinted, inode.core.cowextsize.get(), geometry)
}

fn check_hint(field: &'static str, hinted: bool, hint: u32, geometry: &Geometry) -> Checked {
    let most = most_hint(geometry);
    if hinted {
        ensure!(
            (1..=most).contains(&hint),
            NAME,
            field,
            format_args!("1 to {most}, as its flag is set"),
            hint
        );
    } else {
        ensure!(hint == 0, NAME, field, "0, as its flag is not set", hint);
    }
    Ok(())
}

fn check_times(inode: &Dinode<'_>, _: &Geometry) -> Checked {
    let core = inode.core;
    let times =
        [("atime", core.atime), ("mtime", core.mtime), ("ctime", core.ctime), ("crtime", core.crtime)];
    for (field, time) in times {
        let valid = Timestamp::is_valid(time, inode.bigtime());
        ensure!(valid, NAME, field, "less than 10^9 nanoseconds", format_args!("{:#x}", time));
    }
    Ok(())
}

fn check_padding(inode: &Dinode<'_>, geometry: &Geometry) -> Checked {
    let core = inode.core;
    ensure!(core.pad2 == [0; 12], NAME, "pad2", "zeros", format_args!("{:02x?}", core.pad2));
    if inode.wide_counts() {
        ensure!(core.anextents.get() == 0, NAME, "anextents", "0 beside wide counters", core.anextents);
    } else {
        // All of it: the last two bytes counted flushes in inodes of version 2 alone.
        ensure!(
            core.big_nextents.get() == 0,
            NAME,
            "big_nextents",
            "0 without wide counters",
            core.big_nextents
        );
    }
    let wide_project = core.projid_hi.get() != 0 && !geometry.features.projid32();
    ensure!(!wide_project, NAME, "projid_hi", "0 without 32-bit project ids", core.projid_hi);
    Ok(())
}

/// Compares the core's counters with what its forks amount to.
pub(crate) fn check_totals(
    inode: &Dinode<'_>,
    data: &ForkTotal,
    attr: &ForkTotal,
    tell: &mut dyn FnMut(Damage),
) {
    if data.complete && attr.complete {
        let (counted, stored) = (data.blocks + attr.blocks, inode.core.nblocks.get());
        if counted != stored {
            tell(Damage::new(NAME, "nblocks", counted, stored));
        }
    }
    for (kind, total, format, field) in [
        (ForkKind::Data, data, inode.core.format, "nextents"),
        (ForkKind::Attr, attr, inode.core.aformat, "anextents"),
    ] {
        let stored = inode.extent_count(kind);
        if total.complete && total.extents != stored {
            tell(Damage::new(NAME, field, total.extents, stored));
        }
        let exists = kind == ForkKind::Data || inode.core.forkoff != 0;
        let fits = (inode.fork_bytes(kind).len() / 16) as u64;
        if exists && format == 3 && total.complete && total.extents <= fits {
            let expected = format!("more than {fits}, since the fork is a tree");
            tell(Damage::new(NAME, field, expected, total.extents));
        }
    }
}

/// What holds for an inode that is free. The kernel leaves generation, times, extent size hints, and of an inline
/// symlink the size.
pub(crate) fn check_free(inode: &Dinode<'_>, geometry: &Geometry, tell: &mut dyn FnMut(Damage)) {
    let core = inode.core;
    // New chunks are zeros, freed inodes have the formats of empty forks.
    let empty_format = |format: u8| if format == 2 { 0 } else { u64::from(format) };
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
        ("format", empty_format(core.format)),
        ("aformat", empty_format(core.aformat)),
        ("nextents", inode.extent_count(ForkKind::Data)),
        ("anextents", inode.extent_count(ForkKind::Attr)),
        ("flags", core.flags.get().into()),
        ("flags2", core.flags2.get() & !kept),
        ("next_unlinked", core.next_unlinked.get().wrapping_add(1).into()),
    ] {
        if value != 0 {
            tell(Damage::new(NAME, field, "nothing in a free inode", format_args!("{value:#x}")));
        }
    }
    let most = most_hint(geometry);
    for (field, hint) in [("extsize", core.extsize.get()), ("cowextsize", core.cowextsize.get())] {
        if hint > most {
            tell(Damage::new(NAME, field, format_args!("at most {most}"), hint));
        }
    }
}

/// The largest hint in blocks: half an AG, or the longest extent.
fn most_hint(geometry: &Geometry) -> u32 {
    MOST_HINT.min(geometry.ag_blocks / 2)
}
