//! Figures of a map in words.

use super::MapData;
use super::space::{BlockUse, Uses};
use crate::sizes::{human, with_unit};

pub use crate::output::counted;

/// A range of sizes: from the first to just below the second.
pub fn size_range(from: u64, end: u64) -> String {
    let short = |bytes| human(bytes).replace(".0", "");
    match end {
        u64::MAX => format!("from {}", short(from)),
        0..1024 => format!("{from} to {end} bytes"),
        _ => format!("{} to {}", short(from), short(end)),
    }
}

/// A share in percent.
pub fn share(part: u64, whole: u64) -> String {
    match part as f64 * 100.0 / whole.max(1) as f64 {
        0.0 => "0 %".into(),
        share if share < 0.1 => "< 0.1 %".into(),
        share if share >= 99.95 && part < whole => "> 99.9 %".into(),
        share => format!("{share:.1} %"),
    }
}

/// One line for each use: bytes and share. Uses without blocks are left out.
pub fn uses(data: &MapData, uses: &Uses) -> Vec<(BlockUse, String, String)> {
    let total = uses.total();
    let used = BlockUse::ALL.into_iter().filter(|block_use| uses.get(*block_use) > 0);
    let line = |block_use| {
        let blocks = uses.get(block_use);
        (block_use, with_unit(blocks * u64::from(data.block_bytes)), share(blocks, total))
    };
    used.map(line).collect()
}

/// The volume in one sentence.
pub fn summary(data: &MapData) -> String {
    let uses = data.space.uses();
    let block = u64::from(data.block_bytes);
    format!(
        "{}, of which {} ({}) are free, in {}. {} in use.",
        with_unit(uses.total() * block),
        with_unit(uses.get(BlockUse::Free) * block),
        share(uses.get(BlockUse::Free), uses.total()),
        counted(data.space.ags.len() as u64, "allocation group"),
        counted(data.files.inodes, "inode"),
    )
}

/// Free space in words.
pub fn free_runs(data: &MapData) -> String {
    let block = u64::from(data.block_bytes);
    match data.free_runs.middle() {
        None => "There is no free space.".into(),
        Some(middle) => format!(
            "Free space is in {}. Half of it is in runs of at least {}: a new file of that size can be in one piece.",
            counted(data.free_runs.count(), "run"),
            with_unit(middle * block)
        ),
    }
}

/// Fragmentation in words.
pub fn fragmentation(data: &MapData) -> String {
    let files = data.files.by_fragments.count();
    let Some(middle) = data.files.fragments.middle() else { return "No file has data.".into() };
    let whole =
        data.files.by_fragments.groups(1).first().filter(|group| group.to == 1).map_or(0, |one| one.count);
    let pieces = data.files.fragments.count();
    let average = pieces as f64 / files.max(1) as f64;
    let verdict = match average {
        average if average < 1.1 => "Files are hardly fragmented",
        average if average < 2.0 => "Few files are fragmented",
        average if average < 10.0 => "Files are fragmented",
        _ => "Files are heavily fragmented",
    };
    format!(
        "{verdict}: of {} with data, {} ({}) are in one piece, and there are {average:.2} pieces for each file on \
        average. Half of all data is in pieces of at least {}. Holes also divide a file into pieces.",
        counted(files, "file"),
        whole,
        share(whole, files),
        with_unit(middle)
    )
}

/// Sizes in words.
pub fn sizes(data: &MapData) -> String {
    let (count, bytes) = (data.files.by_size.count(), data.files.by_size.sum());
    format!(
        "{}, {} together as `ls -l` counts them: holes are included, and shared data counts for each file.",
        counted(count, "regular file"),
        with_unit(bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_shares_are_short() {
        assert_eq!(size_range(4096, 16384), "4K to 16K");
        assert_eq!(size_range(1 << 63, u64::MAX), "from 8E");
        assert_eq!([share(0, 5), share(1, 100_000), share(1, 3)], ["0 %", "< 0.1 %", "33.3 %"]);
        assert_eq!([share(99_999, 100_000), share(5, 5)], ["> 99.9 %", "100.0 %"]);
        assert_eq!(size_range(16, 64), "16 to 64 bytes");
    }
}
