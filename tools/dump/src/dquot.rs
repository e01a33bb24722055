//! Quota records. A quota inode is an array of them, by id.

use base::{FileBlock, Ino, errno};
use format::Geometry;
use format::dquot::{self, RawDquot};
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use read::{Error, Result, Volume, lookup};

use crate::dump::Dumped;
use crate::fields::{self, Source};
use crate::locate;
use crate::request::QuotaKind;
use crate::shown::Shown;
use crate::types::Type;
use crate::value::{Struct, Value};

impl QuotaKind {
    /// The type that its records carry.
    fn flag(self) -> u8 {
        match self {
            Self::User => dquot::flags::USER,
            Self::Group => dquot::flags::GROUP,
            Self::Project => dquot::flags::PROJECT,
        }
    }

    /// Its inode as the superblock has it; on volumes with metadata directories, by its path there.
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
                let folder = lookup(volume, &volume.inode(root)?.dinode(), b"quota")?;
                match folder {
                    Some(folder) => lookup(volume, &volume.inode(folder.ino)?.dinode(), name.as_bytes())?,
                    None => None,
                }
                .map(|entry| entry.ino)
            }
        };
        found.ok_or_else(|| Error::unfit(errno::ENOENT, format!("this volume keeps no {name} quota")))
    }
}

/// Shows the record of an id.
pub fn show(volume: &Volume, kind: QuotaKind, id: u32) -> Result<Dumped> {
    let geometry = volume.geometry();
    let ino = kind.inode(volume)?;
    let per_block = dquot::per_block(geometry) as u32;
    let (block, index) = (id / per_block, (id % per_block) as usize);
    let part = locate::fork_blocks(volume, ino, ForkKind::Data, FileBlock(block.into()), 1)?;
    let record = part.located.bytes.get(index * RawDquot::SIZE..).unwrap_or(&[]);
    let shown = record_of(record).verified(dquot::verify(record, geometry, id, kind.flag()));
    Ok(part.located.show(shown))
}

/// A block of records that was found by its address: its own words for id and type are taken.
pub fn block(bytes: &[u8], geometry: &Geometry) -> Shown {
    let mut shown = Shown::new(Type::Dquot, Struct::new());
    let mut list = Vec::new();
    for record in bytes.chunks_exact(RawDquot::SIZE).take(dquot::per_block(geometry)) {
        if let Some(raw) = RawDquot::view(record) {
            let kind = raw.flags & dquot::flags::TYPES;
            shown.object(dquot::verify(record, geometry, raw.id.get(), kind));
        }
        list.push(record_of(record).fields.into());
    }
    shown.fields.push("dquots", Value::List(list));
    shown
}

/// The fields that records without checksums had too are nested once more.
fn record_of(record: &[u8]) -> Shown {
    let whole = record.get(..RawDquot::SIZE).unwrap_or(record);
    let mut all = fields::structure::<RawDquot>(Source::new(whole));
    let inner = all.0.iter().take_while(|(name, _)| name != "crc").count();
    let rest = all.0.split_off(inner);
    let mut fields = Struct::from([("diskdq", all.into())]);
    fields.append(Struct(rest));
    Shown::new(Type::Dquot, fields)
}
