//! The four header sectors of an AG.

use base::AgNumber;
use format::agf::RawAgf;
use format::agfl::{Agfl, RawAgfl};
use format::agi::RawAgi;
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, RawSuperblock, Superblock};
use format::{Geometry, checksum};

use crate::fields::{self, Source};
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Array, Struct, Value};

/// The first field of the feature metadir.
const METADIR_FIELDS: &str = "metadirino";

/// A superblock. `bytes` contain at least its sector, whose size the superblock gives.
pub fn superblock(bytes: &[u8]) -> Structure {
    superblock_fields(bytes).with_check(Superblock::parse(bytes))
}

/// A copy of the superblock, which must have the same geometry.
pub fn secondary(bytes: &[u8], geometry: &Geometry) -> Structure {
    let mut structure = superblock_fields(bytes);
    structure.check(checksum::verify("superblock", sector_of(bytes), CRC_OFFSET));
    let copy = structure.check(Superblock::parse_unchecked(&with_primary_fields(bytes, geometry)));
    if copy.is_some_and(|copy| {
        copy.geometry.uuid != geometry.uuid || copy.geometry.blocks() != geometry.blocks()
    }) {
        structure.objections.push("superblock: the UUID or the size differs from the primary".into());
    }
    structure
}

/// A copy of the superblock with `inprogress` cleared and `rootino` set: `mkfs.xfs` leaves `inprogress` set in all
/// copies, and `rootino` null in most.
fn with_primary_fields(bytes: &[u8], geometry: &Geometry) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let range = |name| {
        let field = RawSuperblock::FIELDS.iter().find(|field| field.name == name)?;
        Some(field.offset..field.offset + field.size)
    };
    if let Some(inprogress) = range("inprogress").and_then(|range| bytes.get_mut(range)) {
        inprogress.fill(0);
    }
    if let Some(root) = range("rootino").and_then(|range| bytes.get_mut(range))
        && root.iter().all(|byte| *byte == 0xff)
    {
        root.copy_from_slice(&geometry.root.get().to_be_bytes());
    }
    bytes
}

/// The sector of a superblock.
fn sector_of(bytes: &[u8]) -> &[u8] {
    let sector = RawSuperblock::view(bytes).map_or(0, |raw| usize::from(raw.sectsize.get()));
    bytes.get(..sector.max(RawSuperblock::SIZE)).unwrap_or(bytes)
}

fn superblock_fields(bytes: &[u8]) -> Structure {
    let mut fields = fields::decode::<RawSuperblock>(Source::new(sector_of(bytes)));
    if !RawSuperblock::view(bytes).is_some_and(|raw| raw.features().metadir()) {
        let end = fields.0.iter().position(|(name, _)| name == METADIR_FIELDS);
        fields.0.truncate(end.unwrap_or(usize::MAX));
    }
    Structure::new(Type::Superblock, fields)
}

/// An AGF.
pub fn agf(bytes: &[u8], geometry: &Geometry, ag: AgNumber) -> Structure {
    let fields = fields::decode::<RawAgf>(Source::new(bytes));
    Structure::new(Type::Agf, fields).with_check(RawAgf::verify(bytes, geometry, ag))
}

/// An AGI.
pub fn agi(bytes: &[u8], geometry: &Geometry, ag: AgNumber) -> Structure {
    let fields = fields::decode::<RawAgi>(Source::new(bytes));
    Structure::new(Type::Agi, fields).with_check(RawAgi::verify(bytes, geometry, ag))
}

/// An AGFL with all slots, including unused ones.
pub fn agfl(bytes: &[u8], geometry: &Geometry, ag: AgNumber) -> Structure {
    let mut fields = fields::decode::<RawAgfl>(Source::new(bytes));
    let slots = bytes.get(RawAgfl::SIZE..).unwrap_or(&[]);
    fields.push("bno", numbers(slots, 4, 0));
    Structure::new(Type::Agfl, fields).with_check(Agfl::verify(bytes, geometry, ag))
}

/// Consecutive nullable numbers of `size` bytes, big-endian.
pub fn numbers(bytes: &[u8], size: usize, first: usize) -> Value {
    let number = |bytes: &[u8]| Value::nullable(fields::big_endian(bytes), size);
    Value::Array(Array { first, sparse: false, items: bytes.chunks_exact(size.max(1)).map(number).collect() })
}

/// Bytes of unknown type.
pub fn raw(bytes: &[u8]) -> Structure {
    Structure::new(Type::Raw, Struct::from([("data", Value::Bytes(bytes.to_vec()))]))
}
