//! Replay of each item type, and what stays as it is on disk.

use std::sync::Arc;

use base::{Daddr, FileBlock, FsBlock, Ino, Lsn};
use block::Device;
use format::btree::{BmBt, Btree, LongHeader};
use format::dir::DirHeader;
use format::dir::data::DATA_MAGIC;
use format::extent::Extent;
use format::inode::{Dinode, ForkKind, RawInode};
use format::log::buffer::{BufferKind, flags};
use format::log::inode::fields;
use format::log::item::ItemType;
use format::metadata_header::HeaderLayout;
use format::ondisk::{OnDisk, U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::items::{self, Item};
use super::volume::{TestVolume, UUID, superblock};
use crate::LogError;
use crate::recovery::{
    IntentOperation, OnDamage, Options, RecoveryReport, ReplayCounts, ReplayRegistry, recover,
};

/// Writes these transactions into the log.
fn logged(volume: &TestVolume, transactions: &[Vec<Item>]) -> Vec<Lsn> {
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    writer.tail = writer.head;
    transactions.iter().map(|items| writer.transaction(items).unwrap()).collect()
}

fn try_recover(volume: &TestVolume, on_damage: OnDamage) -> Result<RecoveryReport, LogError> {
    let journal = volume.open().unwrap();
    let options = Options { on_damage, ..Options::default() };
    recover(&journal, &volume.superblock, &volume.device, &ReplayRegistry::default(), &options)
}

/// Writes these transactions and replays them in place.
fn replayed(volume: &TestVolume, transactions: &[Vec<Item>]) -> (Vec<Lsn>, RecoveryReport) {
    let lsns = logged(volume, transactions);
    (lsns, try_recover(volume, OnDamage::Stop).unwrap())
}

fn tally(report: &RecoveryReport, kind: ItemType) -> ReplayCounts {
    report.items.get(&kind).copied().unwrap_or_default()
}

/// The fill byte of a block at a chunk, and its LSN. The block must be sealed.
fn look(volume: &TestVolume, daddr: u64, chunk: usize) -> (u8, Option<Lsn>) {
    let block = volume.read(daddr, 4096);
    let stamp = HeaderLayout::of(&block).unwrap();
    assert!(stamp.checksum_holds(&block), "block at {daddr} is not sealed");
    (block[chunk * 128 + 127], stamp.lsn(&block))
}

/// Writes the chunk of inodes 128 to 191, all free.
fn with_inodes(volume: &TestVolume, lsn: Lsn) {
    let chunk: Vec<u8> = (128..192).flat_map(|ino| items::free_slot(ino, lsn)).collect();
    volume.write(128, &chunk);
}

/// The bytes of an inode, which must be sealed and identify itself as this inode.
fn slot(volume: &TestVolume, ino: u64) -> Vec<u8> {
    let slot = volume.read(128 + (ino - 128), 512);
    Dinode::identify(&slot, &volume.superblock.geometry, Ino(ino)).unwrap();
    slot
}

fn core(volume: &TestVolume, ino: u64) -> RawInode {
    *RawInode::view(&slot(volume, ino)).unwrap()
}

#[test]
fn replayed_buffers_get_lsn_and_checksum() {
    let volume = TestVolume::new(1024);
    let chunk = |chunk, fill| vec![items::block_chunk(800, chunk, fill)];
    let (lsns, report) = replayed(&volume, &[vec![items::whole_block(800, 1)], chunk(5, 2), chunk(6, 3)]);
    assert_eq!(look(&volume, 800, 5), (2, Some(lsns[2])));
    assert_eq!(look(&volume, 800, 6).0, 3);
    assert_eq!(look(&volume, 800, 7).0, 1);
    assert_eq!(tally(&report, ItemType::Buffer).replayed, 3);
    assert_eq!((report.transactions, report.incomplete_transactions), (3, 0));
}

#[test]
fn a_run_may_be_split_over_regions() {
    let volume = TestVolume::new(1024);
    let mut item = items::whole_block(800, 1);
    let rest = item[1].split_off(1024);
    item.push(rest);
    item[0][2] = 3;
    replayed(&volume, &[vec![item]]);
    assert_eq!(look(&volume, 800, 31).0, 1);
}

#[test]
fn only_blocks_with_a_valid_newer_lsn_stay() {
    for (on_disk, spoilt_byte, keeps_position) in [
        (Lsn::new(1, 17), None, true),
        (Lsn::new(1, 1), None, false),
        (Lsn(0), None, false),
        (Lsn(u64::MAX), None, false),
        (Lsn::new(1, 1000), None, false),
        (Lsn::new(1, 17), Some(4000), false),
        (Lsn::new(1, 17), Some(33), false),
    ] {
        let volume = TestVolume::new(1024);
        let filler = vec![items::cancel(80, 8)];
        let change = vec![items::block_chunk(800, 5, 2)];
        let lsns = logged(
            &volume,
            &[
                vec![items::whole_block(800, 1)],
                change,
                filler.clone(),
                filler.clone(),
                filler.clone(),
                filler,
            ],
        );
        assert!(lsns[1] < Lsn::new(1, 17) && Lsn::new(1, 17) < lsns[5], "{lsns:?}");
        let mut block = items::block(800, 9, on_disk);
        if let Some(at) = spoilt_byte {
            block[at] ^= 0xff;
        }
        volume.write(800, &block);
        let report = try_recover(&volume, OnDamage::Stop).unwrap();
        let expected = if keeps_position { (9, Some(on_disk)) } else { (2, Some(lsns[1])) };
        assert_eq!(look(&volume, 800, 5), expected, "{on_disk:?} {spoilt_byte:?}");
        assert_eq!(tally(&report, ItemType::Buffer).newer, if keeps_position { 2 } else { 0 });
        assert_eq!(report.not_believed.len(), usize::from(spoilt_byte.is_some()));
    }
}

/// Two transactions that start in one record have the same LSN. A block written between them carries it, and must still
/// get the second change.
#[test]
fn a_block_with_the_transactions_own_lsn_is_replayed() {
    let volume = TestVolume::new(1024);
    let lsns = logged(&volume, &[vec![items::block_chunk(800, 5, 2)]]);
    volume.write(800, &items::block(800, 1, lsns[0]));
    try_recover(&volume, OnDamage::Stop).unwrap();
    assert_eq!(look(&volume, 800, 5), (2, Some(lsns[0])));
}

#[test]
fn changes_before_a_cancellation_are_not_replayed() {
    let volume = TestVolume::new(1024);
    let chunk = |fill| vec![items::block_chunk(800, 5, fill)];
    let free = vec![items::cancel(800, 8)];
    let (_, report) = replayed(&volume, &[vec![items::whole_block(800, 1)], chunk(2), free.clone(), free]);
    assert_eq!(volume.read(800, 4096), [0; 4096], "what a file may own by now");
    assert_eq!(tally(&report, ItemType::Buffer).cancelled, 2);

    let volume = TestVolume::new(1024);
    let free = vec![items::cancel(800, 8)];
    let (lsns, _) =
        replayed(&volume, &[chunk(9), free.clone(), free, vec![items::whole_block(800, 1)], chunk(2)]);
    assert_eq!(look(&volume, 800, 5), (2, Some(lsns[4])));
}

#[test]
fn a_cancellation_covers_its_whole_transaction() {
    let volume = TestVolume::new(1024);
    replayed(&volume, &[vec![items::cancel(800, 8), items::whole_block(800, 1)]]);
    assert_eq!(volume.read(800, 4096), [0; 4096]);
}

#[test]
fn inode_creation_inodes_and_unlinked_pointers_are_replayed_in_this_order() {
    let volume = TestVolume::new(1024);
    let mut link = vec![0xff; 128];
    link[96..100].copy_from_slice(&5u32.to_be_bytes());
    // In log order, each would destroy what the previous one did.
    let (lsns, _) = replayed(
        &volume,
        &[vec![
            items::buffer(128, 32, BufferKind::Inodes, flags::INODE_BUFFER, &[(3 * 4, link)]),
            items::inode(&items::log_core(131, 42), fields::DATA_EXTENTS, &[vec![7; 16]]),
            items::icreate(16, 64, 99),
        ]],
    );
    let inode = core(&volume, 131);
    assert_eq!((inode.size.get(), inode.next_unlinked.get(), inode.lsn.get()), (42, 5, lsns[0].get()));
    assert_eq!(slot(&volume, 131)[176..192], [7; 16]);
    let free = core(&volume, 190);
    assert_eq!((free.mode.get(), free.generation.get(), free.next_unlinked.get()), (0, 99, u32::MAX));
    assert_eq!(free.lsn.get(), 0);
}

#[test]
fn an_inode_keeps_its_unlinked_pointer_and_unlogged_forks() {
    let volume = TestVolume::new(1024);
    with_inodes(&volume, Lsn(0));
    let (lsns, _) = replayed(
        &volume,
        &[
            vec![items::inode(&items::log_core(140, 1), fields::DATA_EXTENTS, &[vec![3; 32]])],
            vec![items::inode(&items::log_core(140, 2), 0, &[])],
        ],
    );
    let inode = core(&volume, 140);
    assert_eq!((inode.size.get(), inode.lsn.get()), (2, lsns[1].get()));
    assert_eq!(inode.next_unlinked.get(), u32::MAX, "not what the log says");
    assert_eq!(slot(&volume, 140)[176..208], [3; 32]);
}

#[test]
fn a_newer_inode_stays_unless_its_checksum_is_wrong() {
    for spoilt in [false, true] {
        let volume = TestVolume::new(1024);
        let filler = vec![items::cancel(80, 8)];
        let change = vec![items::inode(&items::log_core(140, 2), 0, &[])];
        logged(&volume, &[change, filler.clone(), filler]);
        with_inodes(&volume, Lsn::new(1, 5));
        if spoilt {
            let mut slot = volume.read(140, 512);
            slot[300] ^= 1;
            volume.write(140, &slot);
        }
        let report = try_recover(&volume, OnDamage::Stop).unwrap();
        assert_eq!(tally(&report, ItemType::Inode).newer, u64::from(!spoilt));
        assert_eq!(core(&volume, 140).size.get(), if spoilt { 2 } else { 0 });
    }
}

/// An inode was freed with its chunk, the chunk created anew, and all of that written back: newer than the log's first
/// items. Replaying the chunk's creation reverts that, so all later items must be replayed.
#[test]
fn items_after_a_chunk_creation_are_always_replayed() {
    let volume = TestVolume::new(1024);
    let change = vec![items::inode(&items::log_core(140, 2), 0, &[])];
    let filler = vec![items::cancel(80, 8)];
    logged(&volume, &[change.clone(), vec![items::icreate(16, 64, 1)], change, filler.clone(), filler]);
    with_inodes(&volume, Lsn::new(1, 9));
    let report = try_recover(&volume, OnDamage::Stop).unwrap();
    assert_eq!(
        tally(&report, ItemType::Inode),
        ReplayCounts { replayed: 1, newer: 1, ..ReplayCounts::default() }
    );
    assert_eq!(core(&volume, 140).size.get(), 2);
}

#[test]
fn inodes_and_chunks_of_a_cancelled_buffer_are_not_replayed() {
    let volume = TestVolume::new(1024);
    let change = vec![items::inode(&items::log_core(140, 2), 0, &[])];
    let (_, report) =
        replayed(&volume, &[vec![items::icreate(16, 64, 1)], change, vec![items::cancel(128, 32)]]);
    assert_eq!(volume.read(128, 512), [0; 512]);
    assert_eq!(tally(&report, ItemType::InodeCreate).cancelled, 1);
    assert_eq!(tally(&report, ItemType::Inode).cancelled, 1);
}

#[test]
fn an_unlinked_pointer_does_not_reseal_a_damaged_inode() {
    let volume = TestVolume::new(1024);
    with_inodes(&volume, Lsn(0));
    volume.write(131, &[0x55; 7]);
    let mut link = vec![0xff; 128];
    link[96..100].copy_from_slice(&5u32.to_be_bytes());
    let item = items::buffer(
        128,
        32,
        BufferKind::Inodes,
        flags::INODE_BUFFER,
        &[(3 * 4, link.clone()), (4 * 4, link)],
    );
    replayed(&volume, &[vec![item]]);
    assert!(format::checksum::verify("inode", &volume.read(131, 512), 100).is_err());
    assert_eq!(core(&volume, 132).next_unlinked.get(), 5);
}

#[test]
fn a_tree_moved_to_another_inode_gets_its_new_owner() {
    let volume = TestVolume::new(1024);
    with_inodes(&volume, Lsn(0));
    let long = |level: u16, count: u16, daddr: u64| LongHeader {
        magic: U32::new(BmBt::MAGIC),
        level: U16::new(level),
        numrecs: U16::new(count),
        bno: U64::new(daddr),
        owner: U64::new(999),
        lsn: U64::new(77),
        uuid: UUID,
        ..LongHeader::new_zeroed()
    };
    let put = |daddr: u64, header: LongHeader, pointer: Option<u64>| {
        let mut block = header.as_bytes().to_vec();
        block.resize(4096, 0);
        if let Some(pointer) = pointer {
            let most = (4096 - 72) / 16;
            block[72 + most * 8..][..8].copy_from_slice(&pointer.to_be_bytes());
        }
        assert!(HeaderLayout::of(&block).unwrap().seal(&mut block, Lsn(77)));
        volume.write(daddr, &block);
    };
    put(8 * 300, long(1, 1, 8 * 300), Some(301));
    put(8 * 301, long(0, 1, 8 * 301), None);
    let mut logged_core = items::log_core(140, 1 << 20);
    (logged_core.format, logged_core.nblocks) = (3, format::ondisk::LeU64::new(9));
    let mut root = long(2, 1, 0).as_bytes().to_vec();
    root.extend(0u64.to_be_bytes());
    root.extend(300u64.to_be_bytes());
    replayed(&volume, &[vec![items::inode(&logged_core, fields::DATA_ROOT | fields::DATA_OWNER, &[root])]]);
    for daddr in [8 * 300, 8 * 301] {
        let block = volume.read(daddr, 4096);
        let header = LongHeader::view(&block).unwrap();
        assert_eq!((header.owner.get(), header.lsn.get()), (140, 77));
        assert!(HeaderLayout::of(&block).unwrap().checksum_holds(&block));
    }
    let slot = slot(&volume, 140);
    let inode = Dinode::verify(&slot, &volume.superblock.geometry, Ino(140)).unwrap();
    assert!(inode.fork(ForkKind::Data, &volume.superblock.geometry).is_ok());
}

/// Linux 6.18 takes each piece for a complete block, and then refuses to mount.
#[test]
fn a_directory_block_in_two_extents_is_sealed_as_one_block() {
    const DADDRS: [u64; 2] = [8 * 300, 8 * 310];
    for pieces in [&[0, 1][..], &[0], &[1]] {
        let volume = TestVolume::with_dir_blocks(1024, 1);
        with_inodes(&volume, Lsn(0));
        let mut block = vec![1u8; 8192];
        let header = DirHeader {
            magic: U32::new(DATA_MAGIC),
            blkno: U64::new(DADDRS[0]),
            owner: U64::new(140),
            uuid: UUID,
            ..DirHeader::new_zeroed()
        };
        block[..size_of::<DirHeader>()].copy_from_slice(header.as_bytes());
        assert!(HeaderLayout::of(&block).unwrap().seal(&mut block, Lsn(0)));
        volume.write(DADDRS[0], &block[..4096]);
        volume.write(DADDRS[1], &block[4096..]);

        let extents = [(0, 300), (1, 310)].map(|(offset, start)| {
            let extent =
                Extent { offset: FileBlock(offset), start: FsBlock(start), count: 1, unwritten: false };
            extent.encode().as_bytes().to_vec()
        });
        let mut directory = items::log_core(140, 8192);
        directory.mode = format::ondisk::LeU16::new(0o040_755);
        directory.nextents = format::ondisk::LeU32::new(2);
        let mut transaction = vec![items::inode(&directory, fields::DATA_EXTENTS, &[extents.concat()])];
        transaction.extend(
            pieces.iter().map(|n| items::buffer(DADDRS[*n], 8, BufferKind::DirData, 0, &[(5, vec![9; 128])])),
        );
        let (lsns, report) = replayed(&volume, &[transaction]);
        let whole = [volume.read(DADDRS[0], 4096), volume.read(DADDRS[1], 4096)].concat();
        let stamp = HeaderLayout::of(&whole).unwrap();
        assert!(stamp.checksum_holds(&whole), "{pieces:?}");
        assert_eq!(stamp.lsn(&whole), Some(lsns[0]));
        assert!(pieces.iter().all(|n| whole[n * 4096 + 640] == 9));
        assert!(report.unsealed.is_empty());
    }
}

#[test]
fn a_piece_of_an_unknown_directory_block_is_reported() {
    let volume = TestVolume::with_dir_blocks(1024, 1);
    let piece = items::buffer(8 * 300, 8, BufferKind::DirData, 0, &[(5, vec![9; 128])]);
    let (_, report) = replayed(&volume, &[vec![piece]]);
    assert_eq!(report.unsealed.into_iter().collect::<Vec<_>>(), [(Daddr(8 * 300), 8)]);
}

#[test]
fn later_items_use_the_geometry_of_a_replayed_superblock() {
    let volume = TestVolume::new(1024);
    let grown = superblock(4096 + 100, 128, 0);
    let image = items::buffer(0, 1, BufferKind::Superblock, 0, &[(0, grown.to_vec())]);
    let mut created = items::icreate(16, 64, 1);
    created[0][4..8].copy_from_slice(&1u32.to_be_bytes());
    // The new AG lies behind the end of this test's device: replay reaches the read.
    let lsns = logged(&volume, &[vec![image], vec![created]]);
    assert!(matches!(try_recover(&volume, OnDamage::Note), Err(LogError::Device(_))), "{lsns:?}");
    let volume = TestVolume::new(1024);
    let image = items::buffer(0, 1, BufferKind::Superblock, 0, &[(0, grown.to_vec())]);
    let (_, report) = replayed(&volume, &[vec![image]]);
    assert!(report.superblock_replayed);
}

#[test]
fn intents_without_a_done_item_are_listed_with_their_files() {
    let volume = TestVolume::new(1024);
    let extent = [500u64.to_le_bytes(), 4u64.to_le_bytes()].concat();
    let mapping = |owner: u64| items::mapping(owner, 500, 7, 4, 2);
    let (_, report) = replayed(
        &volume,
        &[
            vec![
                items::intent(ItemType::Efi, 1, std::slice::from_ref(&extent)),
                items::intent(ItemType::Bui, 2, &[mapping(131)]),
                items::intent(ItemType::Bui, 3, &[mapping(132)]),
                items::intent(ItemType::Rui, 2, &[mapping(133)]),
            ],
            vec![items::intent(ItemType::Bud, 3, &[]), items::intent(ItemType::Efd, 99, &[extent])],
        ],
    );
    let left: Vec<_> = report.unfinished.iter().map(|intent| (intent.kind, intent.id)).collect();
    // In log order, in which they must be finished.
    assert_eq!(left, [(ItemType::Efi, 1), (ItemType::Bui, 2), (ItemType::Rui, 2)]);
    assert_eq!(report.files_concerned().into_iter().collect::<Vec<_>>(), [Ino(131)]);
    assert!(matches!(&report.unfinished[1].body, IntentOperation::Bmap(maps) if maps[0].offset.get() == 7));
    assert_eq!(
        report.unfinished[1].to_string(),
        "type bui id 0x2 maps (operation unmap ino 131 start 0x1f4 offset 7 blocks 4 flags none)"
    );
}

#[test]
fn quota_is_skipped_and_realtime_is_unsupported() {
    let volume = TestVolume::new(1024);
    let mut dquot = ItemType::Dquot.code().to_le_bytes().to_vec();
    dquot.extend(1u16.to_le_bytes());
    dquot.resize(24, 0);
    let (_, report) = replayed(&volume, &[vec![vec![dquot], items::intent(ItemType::EfiRt, 1, &[])]]);
    assert_eq!(tally(&report, ItemType::Dquot).quota, 1);
    assert_eq!(tally(&report, ItemType::EfiRt).unsupported, 1);
}

#[test]
fn an_item_that_cannot_be_replayed_stops_recovery_or_is_reported() {
    let items = [vec![items::inode(&items::log_core(140, 2), 0, &[])], vec![items::whole_block(800, 1)]];
    let volume = TestVolume::new(1024);
    let lsns = logged(&volume, &items);
    match try_recover(&volume, OnDamage::Stop) {
        Err(LogError::Item { lsn, kind: ItemType::Inode, damage, .. }) => {
            assert_eq!((lsn, damage.field()), (lsns[0], "magic"));
        }
        other => panic!("{other:?}"),
    }
    let report = try_recover(&volume, OnDamage::Note).unwrap();
    assert_eq!((report.problems.len(), report.problems_total), (1, 1));
    assert_eq!(report.problems[0].place.ino, Some(Ino(140)));
    assert_eq!(look(&volume, 800, 5).0, 1);
}

#[test]
fn recovery_is_idempotent_and_an_overlay_leaves_its_base() {
    let build = || {
        let volume = TestVolume::new(1024);
        with_inodes(&volume, Lsn(0));
        let chunk = |chunk, fill| vec![items::block_chunk(800, chunk, fill)];
        let inode = vec![items::inode(&items::log_core(140, 2), 0, &[]), items::icreate(24, 64, 3)];
        logged(&volume, &[vec![items::whole_block(800, 1)], chunk(5, 2), inode, chunk(6, 3)]);
        volume
    };
    let whole = |device: &dyn Device| {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let (volume, untouched) = (build(), build());
    try_recover(&volume, OnDamage::Stop).unwrap();
    let once = whole(&volume.device);
    try_recover(&volume, OnDamage::Stop).unwrap();
    assert!(whole(&volume.device) == once, "a second recovery changed something");

    let superblock = untouched.superblock.clone();
    let before = whole(&untouched.device);
    let base: Arc<dyn Device> = Arc::new(untouched.device);
    let journal = crate::Journal::open(&superblock, &*base, None).unwrap();
    let (device, report) = crate::replay_in_memory(&journal, &superblock, base.clone()).unwrap();
    assert!(whole(&*device) == once, "the overlay differs from what was recovered in place");
    assert_eq!((report.transactions, report.items[&ItemType::Inode].replayed), (4, 1));
    assert!(whole(&*base) == before, "the base was written");
}

/// A second recovery starts where a first one was cut off: any selection of its blocks reached the disk.
#[test]
fn an_interrupted_recovery_can_be_repeated() {
    let build = || {
        let volume = TestVolume::new(1024);
        with_inodes(&volume, Lsn(0));
        let change = |n: u64, fill| vec![items::block_chunk(800 + 8 * n, 5, fill)];
        let first = (0..4).map(|n| items::whole_block(800 + 8 * n, 1)).collect();
        logged(&volume, &[first, change(0, 2), change(1, 3), change(0, 4), change(2, 5)]);
        volume
    };
    let (before, after) = (build(), build());
    try_recover(&after, OnDamage::Stop).unwrap();
    for written in 0..16u64 {
        let volume = build();
        for n in (0..4).filter(|n| written >> n & 1 != 0) {
            volume.write(800 + 8 * n, &after.read(800 + 8 * n, 4096));
        }
        try_recover(&volume, OnDamage::Stop).unwrap();
        for n in 0..4 {
            let daddr = 800 + 8 * n;
            assert!(volume.read(daddr, 4096) == after.read(daddr, 4096), "{written:#b} {n}");
            assert!(before.read(daddr, 4096) != after.read(daddr, 4096));
        }
    }
}
