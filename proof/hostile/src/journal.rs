//! Targets for the log: a record with its operations, and every kind of log item.

use base::Lsn;
use format::inode::{Dinode, ForkKind, RawInode};
use format::log::attr::AttrIntent;
use format::log::buffer::BufferFormat;
use format::log::exchange::ExchangeIntent;
use format::log::icreate::InodeCreate;
use format::log::inode::{InodeFormat, RawLogInode, root_to_disk};
use format::log::operation::LogOperations;
use format::log::quota::{self, DquotFormat};
use format::log::record::{self, RecordHeader};
use format::log::{BLOCK_BYTES, intent, item};
use format::ondisk::OnDisk;

use crate::input::Input;
use crate::shape;
use crate::stamp;

/// A record: headers, cycle words, operations and their data.
pub fn log_record(data: &[u8]) {
    let mut input = Input::new(data);
    let (at, wraps_after) = (u32::from(input.u16()), u32::from(input.u16()));
    let mut bytes = input.rest().to_vec();
    bytes.resize(bytes.len().max(2).div_ceil(BLOCK_BYTES) * BLOCK_BYTES, 0);
    // Magic, cycle 1, version 2, and the LSN.
    let lsn = Lsn(1 << 32 | u64::from(at)).get().to_be_bytes();
    for (offset, field) in
        [(0, &record::MAGIC.to_be_bytes()[..]), (4, &[0, 0, 0, 1]), (8, &[0, 0, 0, 2]), (16, &lsn)]
    {
        stamp::put(&mut bytes, offset, field);
    }
    record::block_cycle(&bytes);
    let Ok(header) = RecordHeader::parse(&bytes, at) else { return };
    assert!(header.blocks() <= record::MAX_BLOCKS);
    let _ = header.verify_writer(&shape::UUID);
    bytes.resize(header.blocks() as usize * BLOCK_BYTES, 0);
    let _ = header.verify_checksum(&bytes);
    if record::seal(&mut bytes, &header, wraps_after) {
        // A sealed record must verify. The parsed header has an older checksum.
        let sealed = RecordHeader::parse(&bytes, at);
        assert!(sealed.is_ok_and(|sealed| sealed.verify_checksum(&bytes).is_ok()));
    }
    let _ = header.restore_data(&mut bytes);
    let payload = bytes.get(header.header_blocks as usize * BLOCK_BYTES..).unwrap_or(&[]);
    let payload = payload.get(..header.len as usize).unwrap_or(payload);
    let operations = LogOperations::new(payload, header.operations);
    let count = operations.inspect(|operation| operation.iter().for_each(|one| region(one.data))).count();
    // An operation takes at least twelve bytes, and one error ends the walk.
    assert!(count <= payload.len() / 12 + 1);
}

/// A log item of any kind. The input chooses the lengths of its regions.
pub fn log_item(data: &[u8]) {
    let mut input = Input::new(data);
    let mut regions = Vec::new();
    while !input.is_empty() && regions.len() < 8 {
        let length = usize::from(input.u16() % 2048);
        regions.push(input.bytes(length));
    }
    for bytes in &regions {
        region(bytes);
    }
    let _ = AttrIntent::parse(regions.iter().copied());
    logged_inode(&regions);
}

/// Runs every decoder of a single region. The first bytes, which no checksum protects, decide which one applies.
fn region(bytes: &[u8]) {
    let _ = item::head(bytes).map(|(kind, _)| (kind.answers(), kind.words()));
    let _ = intent::parse_done(bytes);
    let _ = intent::parse_free(bytes).map(|(_, targets)| assert!(targets.len() <= bytes.len()));
    if let Ok((_, targets)) = intent::parse_maps(bytes) {
        targets.iter().for_each(|target| {
            intent::rmap::operation(target.operation());
        });
    }
    if let Ok((_, targets)) = intent::parse_counts(bytes) {
        targets.iter().for_each(|target| {
            intent::refcount::operation(target.operation());
        });
    }
    if let Ok(buffer) = BufferFormat::parse(bytes) {
        assert!(buffer.runs().all(|run| run.end() <= buffer.bytes()));
        let _ = (buffer.kind().words(), buffer.is_cancel(), buffer.is_inode_buffer(), buffer.is_quota());
    }
    let _ = ExchangeIntent::parse(bytes);
    let _ = DquotFormat::parse(bytes);
    let _ = quota::parse_off(bytes);
    if let Ok(create) = InodeCreate::parse(bytes)
        && let Some(geometry) = shape::geometry(&mut Input::new(bytes))
    {
        let _ = create.verify(&geometry);
    }
}

/// An inode item: format, core and forks, as recovery writes them.
fn logged_inode(regions: &[&[u8]]) {
    let Some(Ok(format)) = regions.first().map(|first| InodeFormat::parse(first)) else { return };
    let Some(geometry) = shape::geometry(&mut Input::new(regions.last().unwrap_or(&&[][..]))) else { return };
    let mut slot = vec![0; geometry.inode_size as usize];
    let old = RawInode::view(&slot).copied();
    if let (Some(old), Some(logged)) = (old, regions.get(1).and_then(|bytes| RawLogInode::view(bytes))) {
        let core = logged.to_disk(&old, Lsn(1 << 32));
        assert_eq!(core.ino.get(), logged.ino.get());
    }
    for (kind, index) in [(ForkKind::Data, format.data_region()), (ForkKind::Attr, format.attr_region())] {
        let Some(logged) = index.and_then(|index| regions.get(index)) else { continue };
        let split = if kind == ForkKind::Data { RawInode::SIZE } else { slot.len() / 2 };
        if let Some(fork) = slot.get_mut(split..) {
            let _ = root_to_disk(logged, fork);
        }
    }
    let _ = Dinode::verify(&slot, &geometry, geometry.root);
}
