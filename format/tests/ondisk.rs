//! The layout of every on-disk structure in one table: its size, and the offset and name of each field.
//!
//! The table was generated from the declarations and then compared with the C structures of the format document; no
//! offset differs. Newer structures (`xfs_format.h`, `xfs_da_format.h`, `xfs_log_format.h`) have no such second source;
//! `proof/interop/tests/dump` compares them with the output of `xfs_db`. Since then the table detects fields that an
//! edit of a declaration moves.
//!
//! Names are those of the document without the structure's prefix, except where `xfs_db` prints another, as listed in
//! `docs/format.md`.
// Clippy allows panics in test functions only, not in functions that they call.
#![allow(clippy::unwrap_used)]

use format::ondisk::OnDisk;
use format::{
    agf, agfl, agi, attr, btree, dabtree, dir, dquot, extent, inode, log, remote_block, superblock,
};
use xebec_format as format;

/// One structure.
struct Row {
    /// Name of the type.
    declaration: &'static str,
    /// Name in the format document or in the kernel's headers.
    name: &'static str,
    /// The expected size, and offset and name of each field.
    expected: (usize, Vec<(usize, String)>),
    /// The declared size, and offset and name of each field.
    declared: (usize, Vec<(usize, String)>),
    /// End of the last field.
    end: usize,
}

fn row<T: OnDisk>(name: &'static str, size: usize, fields: &str) -> Row {
    let expected = fields.split(", ").map(|field| {
        let (offset, name) = field.split_once(' ').unwrap();
        (offset.parse().unwrap(), name.to_string())
    });
    let declared = T::FIELDS.iter().map(|field| (field.offset, field.name.to_string()));
    Row {
        declaration: std::any::type_name::<T>().rsplit("::").next().unwrap(),
        name,
        expected: (size, expected.collect()),
        declared: (T::SIZE, declared.collect()),
        end: T::FIELDS.last().map_or(0, |field| field.offset + field.size),
    }
}

/// Headers of the volume and of its AGs, and inodes.
#[rustfmt::skip]
fn headers() -> Vec<Row> {
    vec![
        row::<superblock::RawSuperblock>("xfs_dsb", 304,
            "0 magicnum, 4 blocksize, 8 dblocks, 16 rblocks, 24 rextents, 32 uuid, 48 logstart, 56 rootino, \
             64 rbmino, 72 rsumino, 80 rextsize, 84 agblocks, 88 agcount, 92 rbmblocks, 96 logblocks, \
             100 versionnum, 102 sectsize, 104 inodesize, 106 inopblock, 108 fname, 120 blocklog, 121 sectlog, \
             122 inodelog, 123 inopblog, 124 agblklog, 125 rextslog, 126 inprogress, 127 imax_pct, 128 icount, \
             136 ifree, 144 fdblocks, 152 frextents, 160 uquotino, 168 gquotino, 176 qflags, 178 flags, \
             179 shared_vn, 180 inoalignmt, 184 unit, 188 width, 192 dirblklog, 193 logsectlog, 194 logsectsize, \
             196 logsunit, 200 features2, 204 bad_features2, 208 features_compat, 212 features_ro_compat, \
             216 features_incompat, 220 features_log_incompat, 224 crc, 228 spino_align, 232 pquotino, 240 lsn, \
             248 meta_uuid, 264 metadirino, 272 rgcount, 276 rgextents, 280 rgblklog, 281 pad, 288 rtstart, \
             296 rtreserved"),
        row::<agf::RawAgf>("xfs_agf", 224,
            "0 magicnum, 4 versionnum, 8 seqno, 12 length, 16 bnoroot, 20 cntroot, 24 rmaproot, 28 bnolevel, \
             32 cntlevel, 36 rmaplevel, 40 flfirst, 44 fllast, 48 flcount, 52 freeblks, 56 longest, 60 btreeblks, \
             64 uuid, 80 rmapblocks, 84 refcntblocks, 88 refcntroot, 92 refcntlevel, 96 spare64, 208 lsn, 216 crc, \
             220 spare2"),
        row::<agi::RawAgi>("xfs_agi", 344,
            "0 magicnum, 4 versionnum, 8 seqno, 12 length, 16 count, 20 root, 24 level, 28 freecount, 32 newino, \
             36 dirino, 40 unlinked, 296 uuid, 312 crc, 316 pad32, 320 lsn, 328 free_root, 332 free_level, \
             336 ino_blocks, 340 fino_blocks"),
        row::<agfl::RawAgfl>("xfs_agfl", 36,
            "0 magicnum, 4 seqno, 8 uuid, 24 lsn, 32 crc"),
        row::<inode::RawInode>("xfs_dinode_core", 176,
            "0 magic, 2 mode, 4 version, 5 format, 6 onlink, 8 uid, 12 gid, 16 nlinkv2, 20 projid_lo, \
             22 projid_hi, 24 big_nextents, 32 atime, 40 mtime, 48 ctime, 56 size, 64 nblocks, 72 extsize, \
             76 nextents, 80 naextents, 82 forkoff, 83 aformat, 84 dmevmask, 88 dmstate, 90 flags, 92 gen, \
             96 next_unlinked, 100 crc, 104 change_count, 112 lsn, 120 flags2, 128 cowextsize, 132 pad2, \
             144 crtime, 152 inumber, 160 uuid"),
        row::<dquot::RawDquot>("xfs_dqblk", 136,
            "0 magic, 2 version, 3 type, 4 id, 8 blk_hardlimit, 16 blk_softlimit, 24 ino_hardlimit, \
             32 ino_softlimit, 40 bcount, 48 icount, 56 itimer, 60 btimer, 64 iwarns, 66 bwarns, 68 pad0, \
             72 rtb_hardlimit, 80 rtb_softlimit, 88 rtbcount, 96 rtbtimer, 100 rtbwarns, 102 pad, 104 fill, \
             108 crc, 112 lsn, 120 uuid"),
    ]
}

/// B+trees and extents.
#[rustfmt::skip]
fn trees() -> Vec<Row> {
    vec![
        row::<btree::ShortHeader>("xfs_btree_sblock", 56,
            "0 magic, 4 level, 6 numrecs, 8 leftsib, 12 rightsib, 16 bno, 24 lsn, 32 uuid, 48 owner, 52 crc"),
        row::<btree::LongHeader>("xfs_btree_lblock", 72,
            "0 magic, 4 level, 6 numrecs, 8 leftsib, 16 rightsib, 24 bno, 32 lsn, 40 uuid, 56 owner, 64 crc, \
             68 pad"),
        row::<btree::FreeExtent>("xfs_alloc_rec", 8,
            "0 startblock, 4 blockcount"),
        row::<btree::InodeChunk>("xfs_inobt_rec", 16,
            "0 startino, 4 holemask, 6 count, 7 freecount, 8 free"),
        row::<btree::InodeChunkKey>("xfs_inobt_key", 4,
            "0 startino"),
        row::<btree::Rmap>("xfs_rmap_rec", 24,
            "0 startblock, 4 blockcount, 8 owner, 16 offset"),
        row::<btree::RmapKeyHalf>("xfs_rmap_key", 20,
            "0 startblock, 4 owner, 12 offset"),
        row::<btree::RmapKey>("xfs_rmap_key, twice", 40,
            "0 startblock, 4 owner, 12 offset, 20 startblock_hi, 24 owner_hi, 32 offset_hi"),
        row::<btree::RefcountExtent>("xfs_refcount_rec", 12,
            "0 startblock, 4 blockcount, 8 refcount"),
        row::<btree::RefcountKey>("xfs_refcount_key", 4,
            "0 startblock"),
        row::<btree::BmapKey>("xfs_bmbt_key", 8,
            "0 startoff"),
        row::<btree::BmapRoot>("xfs_bmdr_block", 4,
            "0 level, 2 numrecs"),
        row::<extent::RawExtent>("xfs_bmbt_rec", 16,
            "0 l0, 8 l1"),
    ]
}

/// Directories, attributes, symbolic links.
#[rustfmt::skip]
fn names() -> Vec<Row> {
    vec![
        row::<dir::shortform::ShortformHeader>("xfs_dir2_sf_hdr, without parent", 2,
            "0 count, 1 i8count"),
        row::<dir::shortform::ShortformEntry>("xfs_dir2_sf_entry, up to name", 3,
            "0 namelen, 1 offset"),
        row::<dir::DirHeader>("xfs_dir3_blk_hdr", 48,
            "0 magic, 4 crc, 8 bno, 16 lsn, 24 uuid, 40 owner"),
        row::<dir::data::BestFreeTable>("xfs_dir3_data_hdr, behind hdr", 16,
            "0 bestfree[0].offset, 2 bestfree[0].length, 4 bestfree[1].offset, 6 bestfree[1].length, \
             8 bestfree[2].offset, 10 bestfree[2].length, 12 pad"),
        row::<dir::data::EntryHeader>("xfs_dir2_data_entry, up to name", 9,
            "0 inumber, 8 namelen"),
        row::<dir::data::UnusedHeader>("xfs_dir2_data_unused, up to tag", 4,
            "0 freetag, 2 length"),
        row::<dir::data::BlockTail>("xfs_dir2_block_tail", 8,
            "0 count, 4 stale"),
        row::<dir::leaf::LeafHeader>("xfs_dir3_leaf_hdr, behind info", 8,
            "0 count, 2 stale, 4 pad"),
        row::<dir::leaf::LeafEntry>("xfs_dir2_leaf_entry", 8,
            "0 hashval, 4 address"),
        row::<dir::leaf::LeafTail>("xfs_dir2_leaf_tail", 4,
            "0 bestcount"),
        row::<dir::free::FreeHeader>("xfs_dir3_free_hdr, behind hdr", 16,
            "0 firstdb, 4 nvalid, 8 nused, 12 pad"),
        row::<dabtree::BlkInfo>("xfs_da3_blkinfo", 56,
            "0 forw, 4 back, 8 magic, 10 pad, 12 crc, 16 bno, 24 lsn, 32 uuid, 48 owner"),
        row::<dabtree::NodeHeader>("xfs_da3_node_hdr, behind info", 8,
            "0 count, 2 level, 4 pad32"),
        row::<dabtree::NodeEntry>("xfs_da_node_entry", 8,
            "0 hashval, 4 before"),
        row::<attr::shortform::AttrShortformHeader>("xfs_attr_sf_hdr", 4,
            "0 totsize, 2 count, 3 padding"),
        row::<attr::shortform::AttrShortformEntry>("xfs_attr_sf_entry, up to nameval", 3,
            "0 namelen, 1 valuelen, 2 flags"),
        row::<attr::leaf::AttrLeafHeader>("xfs_attr3_leaf_hdr, behind info", 24,
            "0 count, 2 usedbytes, 4 firstused, 6 holes, 7 pad1, 8 freemap[0].base, 10 freemap[0].size, \
             12 freemap[1].base, 14 freemap[1].size, 16 freemap[2].base, 18 freemap[2].size, 20 pad2"),
        row::<attr::leaf::AttrLeafEntry>("xfs_attr_leaf_entry", 8,
            "0 hashval, 4 nameidx, 6 flags, 7 pad2"),
        row::<attr::leaf::LocalName>("xfs_attr_leaf_name_local, up to nameval", 3,
            "0 valuelen, 2 namelen"),
        row::<attr::leaf::RemoteName>("xfs_attr_leaf_name_remote, up to name", 9,
            "0 valueblk, 4 valuelen, 8 namelen"),
        row::<attr::parent::ParentRecord>("xfs_parent_rec", 12,
            "0 inumber, 8 gen"),
        row::<attr::acl::AclHeader>("xfs_acl", 4,
            "0 acl_cnt"),
        row::<attr::acl::AclEntry>("xfs_acl_entry", 12,
            "0 ae_tag, 4 ae_id, 8 ae_perm, 10 ae_pad"),
        row::<remote_block::RemoteBlockHeader>("xfs_attr3_rmt_hdr, xfs_dsymlink_hdr", 56,
            "0 magic, 4 offset, 8 bytes, 12 crc, 16 uuid, 32 owner, 40 bno, 48 lsn"),
    ]
}

/// The journal.
#[rustfmt::skip]
fn journal() -> Vec<Row> {
    vec![
        row::<log::record::RawRecordHeader>("xlog_rec_header", 512,
            "0 magicno, 4 cycle, 8 version, 12 len, 16 lsn, 24 tail_lsn, 32 crc, 36 prev_block, 40 num_logops, \
             44 cycle_data, 300 fmt, 304 fs_uuid, 320 size, 324 reserved"),
        row::<log::record::RawExtHeader>("xlog_rec_ext_header", 512,
            "0 cycle, 4 cycle_data, 260 reserved"),
        row::<log::operation::RawOperation>("xlog_op_header", 12,
            "0 tid, 4 len, 8 clientid, 9 flags, 10 res2"),
        row::<log::item::RawItemHead>("xfs_log_item", 4,
            "0 type, 2 size"),
        row::<log::item::RawTransactionHeader>("xfs_trans_header", 16,
            "0 magic, 4 type, 8 tid, 12 num_items"),
        row::<log::buffer::RawBufferFormat>("xfs_buf_log_format, up to blf_data_map", 20,
            "0 type, 2 size, 4 flags, 6 len, 8 blkno, 16 map_size"),
        row::<log::inode::RawInodeFormat>("xfs_inode_log_format_64", 56,
            "0 type, 2 size, 4 fields, 8 asize, 10 dsize, 12 pad, 16 ino, 24 rdev, 28 unused, 40 blkno, 48 len, \
             52 boffset"),
        row::<log::inode::RawInodeFormat32>("xfs_inode_log_format_32", 52,
            "0 type, 2 size, 4 fields, 8 asize, 10 dsize, 12 ino, 20 rdev, 24 unused, 36 blkno, 44 len, \
             48 boffset"),
        row::<log::inode::RawLogInode>("xfs_log_dinode", 176,
            "0 magic, 2 mode, 4 version, 5 format, 6 metatype, 8 uid, 12 gid, 16 nlink, 20 projid_lo, \
             22 projid_hi, 24 big_nextents, 32 atime, 40 mtime, 48 ctime, 56 size, 64 nblocks, 72 extsize, \
             76 nextents, 80 anextents, 82 forkoff, 83 aformat, 84 dmevmask, 88 dmstate, 90 flags, 92 gen, \
             96 next_unlinked, 100 crc, 104 changecount, 112 lsn, 120 flags2, 128 cowextsize, 132 pad2, \
             144 crtime, 152 ino, 160 uuid"),
        row::<log::icreate::RawInodeCreate>("xfs_icreate_log", 28,
            "0 type, 2 size, 4 ag, 8 agbno, 12 count, 16 isize, 20 length, 24 gen"),
        row::<log::intent::RawIntent>("xfs_efi_log_format and its like, up to the extents", 16,
            "0 type, 2 size, 4 nextents, 8 id"),
        row::<log::intent::RawDone>("xfs_efd_log_format and its like", 16,
            "0 type, 2 size, 4 nextents, 8 id"),
        row::<log::intent::RawFree>("xfs_extent_64", 16,
            "0 start, 8 len, 12 pad"),
        row::<log::intent::RawFree32>("xfs_extent_32", 12,
            "0 start, 8 len"),
        row::<log::intent::RawMap>("xfs_map_extent", 32,
            "0 owner, 8 startblock, 16 startoff, 24 len, 28 flags"),
        row::<log::intent::RawCount>("xfs_phys_extent", 16,
            "0 startblock, 8 len, 12 flags"),
        row::<log::attr::RawAttrIntent>("xfs_attri_log_format", 40,
            "0 type, 2 size, 4 igen, 8 id, 16 ino, 24 op_flags, 28 name_len, 32 value_len, 36 attr_filter"),
        row::<log::exchange::RawExchange>("xfs_xmi_log_format", 88,
            "0 type, 2 size, 4 pad, 8 id, 16 inode1, 24 inode2, 32 igen1, 36 igen2, 40 startoff1, 48 startoff2, \
             56 blockcount, 64 flags, 72 isize1, 80 isize2"),
        row::<log::quota::RawDquotFormat>("xfs_dq_logformat", 24,
            "0 type, 2 size, 4 id, 8 blkno, 16 len, 20 boffset"),
        row::<log::quota::RawQuotaOff>("xfs_qoff_logformat", 20,
            "0 type, 2 size, 4 flags, 8 pad"),
    ]
}

fn table() -> Vec<Row> {
    [headers(), trees(), names(), journal()].into_iter().flatten().collect()
}

#[test]
fn layouts_match_the_documented_offsets() {
    for row in table() {
        assert_eq!(row.declared, row.expected, "{}", row.name);
        assert_eq!(row.end, row.expected.0, "{}: fields and size", row.name);
    }
}

/// Collects the names of the structures declared in a source file.
fn declared_in(path: &std::path::Path, names: &mut Vec<String>) {
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| declared_in(&entry.unwrap().path(), names));
        return;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let declarations =
        text.lines().filter_map(|line| line.trim().strip_prefix("pub struct ")?.split_once("(\""));
    names.extend(declarations.map(|(name, _)| name.to_string()));
}

#[test]
fn the_table_is_complete() {
    let mut declared = Vec::new();
    declared_in(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut declared);
    assert!(declared.len() > 50, "the declarations were not found: {declared:?}");
    let table: Vec<_> = table().iter().map(|row| row.declaration).collect();
    let missing: Vec<_> = declared.iter().filter(|name| !table.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "add to the table: {missing:?}");
}
