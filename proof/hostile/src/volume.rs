//! Targets for whole volumes, which are damaged and then used.

use std::ops::ControlFlow;

use base::{AgNumber, FileBlock, Ino};
use dump::Request;
use dump::request::{AgBtree, FileSelector, QuotaType, Target, TreeBlock};
use format::inode::{FileType, ForkKind};
use journal::Journal;
use read::{AclNames, ExtentWalk, FinalSymlink, Metadata, Segments, Volume};
use volume::image::OpenedImage;
use volume::{Access, ImageOptions, open_image_on};

use crate::damage::{self, Damaged};
use crate::images;
use crate::input::Input;

/// Reads the root and every damaged inode.
pub fn volume_read(data: &[u8]) {
    let Some(damaged) = damage::apply(&mut Input::new(data), 0..images::COUNT, |image| &image.blocks) else {
        return;
    };
    let Ok(volume) = Volume::open(damaged.device.clone()) else { return };
    let _ = read::resolve(&volume, b"/dirs/leaf/../../symlinks/./short//", FinalSymlink::Follow);
    read_inode(&volume, volume.root());
    for ino in damaged.inodes.iter().take(16) {
        read_inode(&volume, *ino);
    }
}

fn read_inode(volume: &Volume, ino: Ino) {
    let Ok(inode) = volume.inode(ino) else { return };
    let inode = inode.dinode();
    let _ = Metadata::of(&inode, volume.geometry());
    for kind in [ForkKind::Data, ForkKind::Attr] {
        if let Ok(walk) = ExtentWalk::new(volume, &inode, kind, FileBlock(0)) {
            // Extents are in ascending order, so their number is limited by the blocks of the volume.
            let max = volume.geometry().blocks() * 2 + 16;
            assert!((walk.count() as u64) < max, "endless extents");
        }
    }
    match inode.file_type() {
        Some(FileType::Regular) => {
            let size = inode.core.size.get();
            if let Ok(segments) = Segments::new(volume, &inode, 0) {
                assert!((segments.count() as u64) < volume.geometry().blocks() * 4 + 16, "endless segments");
            }
            let mut buffer = vec![0; 8192];
            for offset in [0, size / 2, size.saturating_sub(100), size, u64::MAX - 1] {
                if let Ok(count) = read::read_at(volume, &inode, offset, &mut buffer) {
                    assert!(count <= buffer.len());
                }
            }
        }
        Some(FileType::Symlink) => {
            let _ = read::read_link(volume, &inode).map(|target| assert!(target.len() <= 1024));
        }
        Some(FileType::Directory) => {
            let entries = read::entries(volume, &inode).unwrap_or_default();
            for entry in entries.iter().take(32) {
                assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
                let _ = read::lookup(volume, &inode, &entry.name);
            }
            let _ = read::lookup(volume, &inode, b"missing");
        }
        _ => {}
    }
    let mut left = 4096;
    let _ = read::for_each_xattr(volume, &inode, AclNames::AsRoot, |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let _ = read::parents(volume, &inode);
}

/// Opens the log, describes its contents, replays it in memory, and reads the result.
pub fn volume_log(data: &[u8]) {
    let dirty = images::FIRST_DIRTY..images::COUNT;
    let Some(damaged) = damage::apply(&mut Input::new(data), dirty, |image| &image.records) else { return };
    let Ok(volume) = Volume::open(damaged.device.clone()) else { return };
    journal(&volume, &damaged);
    let opened = open_image_on(damaged.device, &ImageOptions::new(Access::ReadOnly));
    let Ok(OpenedImage { device, .. }) = opened else { return };
    let Ok(volume) = Volume::open(device) else { return };
    read_inode(&volume, volume.root());
    for block in damaged.image.blocks.iter().filter(|block| block.ino.is_some()).take(32) {
        block.ino.into_iter().for_each(|ino| read_inode(&volume, ino));
    }
}

fn journal(volume: &Volume, damaged: &Damaged) {
    let Ok(journal) = Journal::open(volume.superblock(), &*damaged.device, None) else { return };
    let max = journal.area().blocks() as usize;
    let mut records = 0;
    for record in journal.records().take(max + 1).flatten() {
        record.operations().for_each(drop);
        records += 1;
    }
    assert!(records <= max, "endless records");
    for transaction in journal.transactions().take(4 * max).flatten() {
        for item in transaction.items() {
            assert_eq!(item.regions().count(), item.len());
            let _ = journal::describe::item(&item, transaction.commit_lsn);
        }
    }
}

/// Checks the volume, which must end in time. `proof/interop` compares the findings with xfs_repair's.
pub fn volume_check(data: &[u8]) {
    let Some(damaged) = damage::apply(&mut Input::new(data), 0..images::COUNT, |image| &image.blocks) else {
        return;
    };
    let _ = check::check(&*damaged.device, &check_options(), &IgnoreFindings);
}

/// One thread, so that runs are reproducible, and a small memory budget, so that lists spill.
fn check_options() -> check::Options<'static> {
    check::Options { threads: 1, memory_budget: 1 << 20, ..check::Options::default() }
}

/// An observer that ignores findings.
struct IgnoreFindings;

impl check::Observer for IgnoreFindings {
    fn finding(&self, finding: &check::Finding) {
        // Formats the finding, which contains values from the disk.
        assert!(!finding.to_string().is_empty());
    }
}

/// Dumps every damaged structure as text and as JSON.
pub fn volume_dump(data: &[u8]) {
    let mut input = Input::new(data);
    let force = dump::types::ALL.get(usize::from(input.u8())).map(|info| info.kind);
    let Some(damaged) = damage::apply(&mut input, 0..images::COUNT, |image| &image.blocks) else { return };
    let ag = AgNumber(0);
    let mut targets = vec![
        Target::Superblock(ag),
        Target::Agf(ag),
        Target::Agi(ag),
        Target::Agfl(ag),
        Target::FreeSpace(None),
        Target::Log(u64::from(input.u16())),
        Target::Dquot(QuotaType::User, input.u32()),
    ];
    let trees = [
        AgBtree::Bnobt,
        AgBtree::Cntbt,
        AgBtree::Inobt,
        AgBtree::Finobt,
        AgBtree::Rmapbt,
        AgBtree::Refcountbt,
    ];
    targets.extend(trees.map(|tree| Target::Tree { tree, ag, block: TreeBlock::Path(vec![]) }));
    targets.extend(trees.map(|tree| Target::Tree { tree, ag, block: TreeBlock::Path(vec![1]) }));
    targets.extend(damaged.daddrs.iter().take(4).map(|daddr| Target::Daddr(*daddr)));
    for ino in damaged.inodes.iter().take(4) {
        let file = || FileSelector::Ino(*ino);
        targets.extend([Target::Inode(file()), Target::Dir(file(), None), Target::Attr(file(), None)]);
        targets.push(Target::Symlink(file(), FileBlock(0)));
        for fork in [ForkKind::Data, ForkKind::Attr] {
            targets.push(Target::Extents { file: file(), fork });
            targets.push(Target::Bmbt { file: file(), fork, children: vec![1] });
        }
    }
    for target in targets {
        let forced = matches!(target, Target::Daddr(_)).then_some(force).flatten();
        let request = Request { target, as_type: forced };
        if let Ok(dumped) = dump::dump_device(damaged.device.clone(), &request) {
            let _ = (dumped.to_text(), dumped.to_json());
        }
    }
}

#[cfg(test)]
mod tests {
    use volume::image::LogStatus;

    use super::*;

    /// Prints findings with the name of their image.
    struct PrintFindings(&'static str);

    impl check::Observer for PrintFindings {
        fn finding(&self, finding: &check::Finding) {
            eprintln!("{}: {finding}", self.0);
        }
    }

    /// Dirty volumes are replayed completely to clean ones.
    #[test]
    fn dirty_volumes_replay_to_clean_ones() {
        for image in (images::FIRST_DIRTY..images::COUNT).filter_map(images::image) {
            let opened = open_image_on(image.device.clone(), &ImageOptions::new(Access::ReadOnly));
            let opened = opened.expect("an image");
            let LogStatus::Replayed(_) = &opened.log else { panic!("{} is not dirty", image.name) };
            assert!(!opened.log.is_partial(), "{}", image.name);
            let options = check::Options { replayed: true, ..check_options() };
            let summary =
                check::check(&*opened.device, &options, &PrintFindings(image.name)).expect("a volume");
            assert!(summary.is_clean(), "{}: {summary:?}", image.name);
        }
    }

    /// A finding on an undamaged volume would appear for every input of the fuzzer.
    #[test]
    fn undamaged_volumes_are_clean() {
        for image in (0..images::FIRST_DIRTY).filter_map(images::image) {
            let summary =
                check::check(&*image.device, &check_options(), &PrintFindings(image.name)).expect("a volume");
            assert!(summary.is_clean() && summary.inodes > 100, "{}: {summary:?}", image.name);
        }
    }
}
