//! Buffers: logged bytes are copied to their place, then the block gets its LSN and checksum.

use base::Daddr;
use format::Damage;
use format::damage::Place;
use format::inode::{CRC_OFFSET, MAGIC as INODE_MAGIC, RawInode};
use format::log::buffer::{BufferFormat, BufferKind};
use format::metadata_header::HeaderLayout;
use format::ondisk::{OnDisk, U16};
use format::superblock::Superblock;

use super::lsn_check::DiskState;
use super::order;
use super::replay::{
    AtPlace, FirstPass, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome, ReplayResult, ReplayTarget,
};
use super::split;
use crate::assemble::RawLogItem;

const NAME: &str = "buffer log item";

/// Replay of a buffer.
pub struct BufferReplay;

impl ReplayItem for BufferReplay {
    fn order(&self, item: &RawLogItem<'_>) -> order::ReplayOrder {
        // An item that cannot be decoded fails in any order.
        let flags = BufferFormat::parse(item.region(0)).map_or(0, |format| format.flags);
        order::order_of(item.kind, flags)
    }

    fn first_pass(&self, item: &RawLogItem<'_>, state: &mut FirstPass) -> Result<(), ReplayFailure> {
        let format = BufferFormat::parse(item.region(0))?;
        if format.is_cancel() {
            state.cancelled.add(format.daddr, format.sectors);
        }
        Ok(())
    }

    fn second_pass(&self, item: &RawLogItem<'_>, context: &mut ReplayContext<'_>) -> ReplayResult {
        let format = BufferFormat::parse(item.region(0))?;
        if format.is_cancel() {
            context.cancelled.pass(format.daddr, format.sectors);
            return Ok(ReplayOutcome::Replayed);
        }
        if context.cancelled.contains(format.daddr, format.sectors) {
            return Ok(ReplayOutcome::Cancelled);
        }
        if format.is_quota() {
            return Ok(ReplayOutcome::Quota);
        }
        let place = Place::daddr(format.daddr);
        if format.sectors == 0 {
            return Err(ReplayFailure::Damage(place, Damage::new(NAME, "len", "at least 1 sector", 0)));
        }
        if format.is_inode_buffer() {
            return unlinked_links(item, &format, context).map(|()| ReplayOutcome::Replayed);
        }
        replay(item, &format, context)
    }
}

/// Replays a complete buffer.
fn replay(item: &RawLogItem<'_>, format: &BufferFormat<'_>, context: &mut ReplayContext<'_>) -> ReplayResult {
    let (daddr, place) = (format.daddr, Place::daddr(format.daddr));
    // The header of a piece describes the whole block: the piece alone cannot be compared.
    if !split::is_piece(format.kind(), format.bytes(), &context.geometry) {
        let found = DiskState::block(context.buffers.get(daddr, format.bytes())?, &context.geometry, daddr);
        if !context.judge(ReplayTarget::Buffer(daddr), found).is_replayed() {
            return Ok(ReplayOutcome::Newer);
        }
    }
    let mut bytes = context.buffers.get(daddr, format.bytes())?.to_vec();
    for_each_piece(item, format, |at, piece| {
        let end = at + piece.len();
        if let Some(target) = bytes.get_mut(at..end) {
            target.copy_from_slice(piece); // within the buffer: the format's bits were checked against its length
        }
    })
    .at(place)?;
    seal(&mut bytes, format, context).at(place)?;
    context.buffers.get_mut(daddr, format.bytes())?.copy_from_slice(&bytes);
    if format.kind() == BufferKind::Superblock && daddr == Daddr(0) {
        superblock(&bytes, context).at(place)?;
    }
    Ok(ReplayOutcome::Replayed)
}

/// Calls `copy` with the logged bytes of each region and their offset in the buffer.
///
/// A run of changed chunks is one region, or several if it crossed separate pages of the writer.
fn for_each_piece<'a>(
    item: &RawLogItem<'a>,
    format: &BufferFormat<'_>,
    mut copy: impl FnMut(usize, &'a [u8]),
) -> Result<(), Damage> {
    let mut regions = item.regions().skip(1);
    for run in format.runs() {
        let mut at = run.start;
        while at < run.end() {
            let region = regions.next().unwrap_or(&[]);
            let whole = region.len() - region.len() % format::log::buffer::CHUNK_BYTES;
            let piece = region.get(..whole.min(run.end() - at)).unwrap_or(&[]);
            if piece.is_empty() {
                let expected = format_args!("{} bytes for the chunks at {at}", run.end() - at).to_string();
                return Err(Damage::new(NAME, "regions", expected, format_args!("{} bytes", region.len())));
            }
            copy(at, piece);
            at += piece.len();
        }
    }
    Ok(())
}

/// Sets the LSN and checksum of a block.
fn seal(bytes: &mut [u8], format: &BufferFormat<'_>, context: &mut ReplayContext<'_>) -> Result<(), Damage> {
    use BufferKind::{AttrRemote, Inodes, Unknown};
    let (kind, lsn) = (format.kind(), context.lsn);
    match kind {
        Inodes => return seal_inodes(bytes, context.geometry.inode_size as usize),
        AttrRemote => {
            // Each block of an attribute value has its own header.
            let sealed = bytes.chunks_mut(context.geometry.block_size as usize).all(|block| {
                HeaderLayout::of(block).is_some_and(|stamp| stamp.kind == kind && stamp.seal(block, lsn))
            });
            return if sealed { Ok(()) } else { Err(wrong_magic(kind)) };
        }
        _ if split::is_piece(kind, bytes.len(), &context.geometry) => {
            context.split.add_piece(format.daddr, format.sectors, lsn);
            return Ok(());
        }
        _ => {}
    }
    match HeaderLayout::of(bytes) {
        Some(stamp) if kind == Unknown || stamp.kind == kind => {
            stamp.seal(bytes, lsn);
            Ok(())
        }
        None if kind == Unknown || matches!(kind, BufferKind::Other(_)) => Ok(()),
        _ => Err(wrong_magic(kind)),
    }
}

fn wrong_magic(kind: BufferKind) -> Damage {
    Damage::new(NAME, "magic", format_args!("that of a {}", kind.words()), "another, after replay")
}

/// Seals a buffer of new inodes, which old writers logged completely: each inode has its own checksum.
fn seal_inodes(bytes: &mut [u8], size: usize) -> Result<(), Damage> {
    for slot in bytes.chunks_exact_mut(size) {
        if U16::view(slot).is_some_and(|magic| magic.get() == INODE_MAGIC) {
            format::checksum::store(slot, CRC_OFFSET);
        }
    }
    Ok(())
}

/// The volume may have been grown: takes over the new geometry.
fn superblock(bytes: &[u8], context: &mut ReplayContext<'_>) -> Result<(), Damage> {
    context.report.superblock_replayed = true;
    match Superblock::parse(bytes) {
        Ok(superblock) => {
            context.geometry = superblock.geometry;
            Ok(())
        }
        Err(refusal) => Err(Damage::new("superblock", "contents", "a superblock after replay", refusal)),
    }
}

/// Replays unlinked-list pointers: everything else of an inode is logged by the inode item.
fn unlinked_links(
    item: &RawLogItem<'_>,
    format: &BufferFormat<'_>,
    context: &mut ReplayContext<'_>,
) -> Result<(), ReplayFailure> {
    const LINK: usize = std::mem::offset_of!(RawInode, next_unlinked);
    let size = context.geometry.inode_size as usize;
    let place = Place::daddr(format.daddr);
    let mut links = Vec::new();
    for_each_piece(item, format, |at, piece| {
        // The inodes in these bytes; a pointer never crosses a chunk of 128 bytes.
        for slot in at / size..=(at + piece.len()) / size {
            let link = (slot * size + LINK).checked_sub(at).and_then(|from| piece.get(from..from + 4));
            links.extend(link.map(|link| (slot * size, link)));
        }
    })
    .at(place)?;
    let bytes = context.buffers.get_mut(format.daddr, format.bytes())?;
    for (start, link) in links {
        if link == [0; 4] {
            let damage = Damage::new(NAME, "next_unlinked", "an inode or all ones", 0);
            return Err(ReplayFailure::Damage(place, damage));
        }
        let Some(slot) = bytes.get_mut(start..start + size) else { continue };
        // A wrong checksum stays wrong: the pointer must not make a damaged inode look intact.
        let was_whole = format::checksum::verify("inode", slot, CRC_OFFSET).is_ok();
        if let Some(field) = slot.get_mut(LINK..LINK + 4) {
            field.copy_from_slice(link);
        }
        if was_whole {
            format::checksum::store(slot, CRC_OFFSET);
        }
    }
    Ok(())
}
