//! Quota records. A quota inode is an array of records, indexed by ID.

use base::{FileBlock, Ino, errno};
use format::Geometry;
use format::dquot::{self, RawDquot};
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use read::{Error, Result, Volume, lookup};

use crate::dump::Dump;
use crate::fields::{self, Source};
use crate::locate;
use crate::request::QuotaType;
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Struct, Value};

impl QuotaType {
    /// The type flag of its records.
    fn flag(self) -> u8 {
        match self {
            Self::User => dquot::flags::USER,
            Self::Group => dquot::flags::GROUP,
            Self::Project => dquot::flags::PROJECT,
        }
    }

    /// Its inode, from the superblock or from the metadata directory.
    fn inode(self, volume: &Volume) -> Result<Ino> {
        let raw = &volume.superblock().raw;
        let (number, name) = match self {
            Self::User => (raw.uquotino, "user"),
            Self::Group => (raw.gquotino, "group"),
            Self::Project => (raw.pquotino, "project"),
        };
        let found = match volume.geometry().metadata_root {
            None => Some(Ino(number.get())).filter(|ino| !matches!(ino.get(), 0 | u64::MAX)),
            Some(root) => {
                let quota = lookup(volume, &volume.inode(root)?.dinode(), b"quota")?;
                match quota {
                    Some(quota) => lookup(volume, &volume.inode(quota.ino)?.dinode(), name.as_bytes())?,
                    None => None,
                }
                .map(|entry| entry.ino)
            }
        };
        found.ok_or_else(|| Error::unfit(errno::ENOENT, format!("the volume has no {name} quota")))
    }
}

/// Decodes the record of an ID.
pub fn dump(volume: &Volume, kind: QuotaType, id: u32) -> Result<Dump> {
    let geometry = volume.geometry();
    let ino = kind.inode(volume)?;
    let per_block = dquot::per_block(geometry) as u32;
    let (block, index) = (id / per_block, (id % per_block) as usize);
    let located = locate::fork_blocks(volume, ino, ForkKind::Data, FileBlock(block.into()), 1)?.located;
    let record = located.bytes.get(index * RawDquot::SIZE..).unwrap_or(&[]);
    let structure = record_of(record).with_check(dquot::verify(record, geometry, id, kind.flag()));
    Ok(located.dump(structure))
}

/// A block of records that was selected by address: the records give their own ID and type.
pub fn block(bytes: &[u8], geometry: &Geometry) -> Structure {
    let mut structure = Structure::new(Type::Dquot, Struct::new());
    let mut list = Vec::new();
    for record in bytes.chunks_exact(RawDquot::SIZE).take(dquot::per_block(geometry)) {
        if let Some(raw) = RawDquot::view(record) {
            let kind = raw.flags & dquot::flags::TYPES;
            structure.check(dquot::verify(record, geometry, raw.id.get(), kind));
        }
        list.push(record_of(record).fields.into());
    }
    structure.fields.push("dquots", Value::List(list));
    structure
}

/// A record. `diskdq` contains the fields that version 4 also has, as in `xfs_db`.
fn record_of(record: &[u8]) -> Structure {
    let whole = record.get(..RawDquot::SIZE).unwrap_or(record);
    let fields = fields::decode::<RawDquot>(Source::new(whole)).nest_before("crc", "diskdq");
    Structure::new(Type::Dquot, fields)
}
