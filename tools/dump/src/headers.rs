//! The four header sectors of an AG.

use base::AgNumber;
use format::agf::RawAgf;
use format::agfl::{Agfl, RawAgfl};
use format::agi::RawAgi;
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, RawSuperblock, Superblock};
use format::{Geometry, checksum};

use crate::fields::{self, Source};
use crate::shown::Shown;
use crate::types::Type;
use crate::value::{Array, Struct, Value};

/// Where the fields begin that only volumes with metadata directories have.
const METADIR_FIELDS: &str = "metadirino";

/// A superblock. `bytes` hold its sector and may hold more; how long the sector is, is told by the superblock itself.
pub fn superblock(bytes: &[u8]) -> Shown {
    superblock_fields(bytes).verified(Superblock::parse(bytes))
}

/// The superblock at the start of an AG that is not the first: a copy, which must be of the same shape.
pub fn secondary(bytes: &[u8], geometry: &Geometry) -> Shown {
    let mut shown = superblock_fields(bytes);
    shown.object(checksum::verify("superblock", sector_of(bytes), CRC_OFFSET));
    let copy = shown.object(Superblock::parse_unchecked(&completed(bytes, geometry)));
    if copy.is_some_and(|copy| {
        copy.geometry.uuid != geometry.uuid || copy.geometry.blocks() != geometry.blocks()
    }) {
        shown.objections.push("superblock: it belongs to a volume of another UUID or size".into());
    }
    shown
}

/// A copy of the superblock with what only the first one has: `mkfs.xfs` leaves `inprogress` set in all others, and the
/// root directory's number out of most of them.
fn completed(bytes: &[u8], geometry: &Geometry) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let place = |name| {
        let field = RawSuperblock::FIELDS.iter().find(|field| field.name == name)?;
        Some(field.offset..field.offset + field.size)
    };
    if let Some(inprogress) = place("inprogress").and_then(|place| bytes.get_mut(place)) {
        inprogress.fill(0);
    }
    if let Some(root) = place("rootino").and_then(|place| bytes.get_mut(place))
        && root.iter().all(|byte| *byte == 0xff)
    {
        root.copy_from_slice(&geometry.root.get().to_be_bytes());
    }
    bytes
}

/// The bytes that a superblock says are its sector.
fn sector_of(bytes: &[u8]) -> &[u8] {
    let sector = RawSuperblock::view(bytes).map_or(0, |raw| usize::from(raw.sectsize.get()));
    bytes.get(..sector.max(RawSuperblock::SIZE)).unwrap_or(bytes)
}

fn superblock_fields(bytes: &[u8]) -> Shown {
    let mut fields = fields::structure::<RawSuperblock>(Source::new(sector_of(bytes)));
    if !RawSuperblock::view(bytes).is_some_and(|raw| raw.features().metadir()) {
        let end = fields.0.iter().position(|(name, _)| name == METADIR_FIELDS);
        fields.0.truncate(end.unwrap_or(usize::MAX));
    }
    Shown::new(Type::Superblock, fields)
}

/// An AGF.
pub fn agf(bytes: &[u8], geometry: &Geometry, ag: AgNumber) -> Shown {
    let fields = fields::structure::<RawAgf>(Source::new(bytes));
    Shown::new(Type::Agf, fields).verified(RawAgf::verify(bytes, geometry, ag))
}

/// An AGI.
pub fn agi(bytes: &[u8], geometry: &Geometry, ag: AgNumber) -> Shown {
    let fields = fields::structure::<RawAgi>(Source::new(bytes));
    Shown::new(Type::Agi, fields).verified(RawAgi::verify(bytes, geometry, ag))
}

/// An AGFL with every slot, used or not.
pub fn agfl(bytes: &[u8], geometry: &Geometry, ag: AgNumber) -> Shown {
    let mut fields = fields::structure::<RawAgfl>(Source::new(bytes));
    let slots = bytes.get(RawAgfl::SIZE..).unwrap_or(&[]);
    fields.push("bno", numbers(slots, 4, 0));
    Shown::new(Type::Agfl, fields).verified(Agfl::verify(bytes, geometry, ag))
}

/// Nullable big-endian numbers in a row, of `size` bytes each.
pub fn numbers(bytes: &[u8], size: usize, first: usize) -> Value {
    let number = |bytes: &[u8]| Value::nullable(fields::big_endian(bytes), size);
    Value::Array(Array { first, sparse: false, items: bytes.chunks_exact(size.max(1)).map(number).collect() })
}

/// Bytes that no type is known for.
pub fn raw(bytes: &[u8]) -> Shown {
    Shown::new(Type::Raw, Struct::from([("data", Value::Bytes(bytes.to_vec()))]))
}
