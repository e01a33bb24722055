//! Parent pointers. Each link of a file has an attribute whose name is the name of the directory entry and whose value
//! identifies the directory. (`xfs_parent_rec` in `xfs_da_format.h`.)

use base::Ino;

use super::{Attr, AttrValue, Namespace};
use crate::damage::Damage;
use crate::dir;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U32, U64};

const NAME: &str = "parent pointer";

crate::ondisk! {
    /// The value of a parent pointer.
    pub struct ParentRecord("parent pointer", 12) {
        /// Inode number of the directory.
        ino as "inumber": U64 = Uint,
        /// Generation of the directory.
        generation as "gen": U32 = Uint,
    }
}

impl ParentRecord {
    /// Views a value, which must have exactly the size of a record.
    pub fn view_value(value: &[u8]) -> Option<&Self> {
        Self::view(value).filter(|_| value.len() == Self::SIZE)
    }
}

/// A verified parent pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentPointer<'a> {
    /// Inode number of the directory.
    pub ino: Ino,
    /// Generation of the directory.
    pub generation: u32,
    /// Name of the directory entry.
    pub name: &'a [u8],
}

impl<'a> ParentPointer<'a> {
    /// Verifies an attribute of namespace [`Namespace::Parent`]: an inode of the volume, and a valid name of a
    /// directory entry.
    pub fn verify(attr: &Attr<'a>, geometry: &Geometry) -> Result<Self, Damage> {
        ensure!(attr.namespace == Namespace::Parent, NAME, "flags", "a parent pointer", "another namespace");
        let record = match attr.value {
            AttrValue::Inline(value) => ParentRecord::view_value(value),
            AttrValue::Remote { .. } => None,
        };
        let record = record.ok_or_else(|| {
            let found = format_args!("{} bytes", attr.value.length()).to_string();
            Damage::new(NAME, "value", format_args!("{} bytes beside the name", ParentRecord::SIZE), found)
        })?;
        dir::verify_name(NAME, attr.name)?;
        let ino = Ino(record.ino.get());
        ensure!(geometry.ino_is_valid(ino), NAME, "ino", "an inode within the volume", ino);
        Ok(Self { ino, generation: record.generation.get(), name: attr.name })
    }
}
