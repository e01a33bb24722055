//! Extended attributes. (Format document, "Extended Attributes".)
//!
//! | part | subject |
//! |---|---|
//! | [`shortform`] | attributes within the inode |
//! | [`leaf`] | blocks of attributes; [`crate::dabtree`] has the nodes above many |
//! | [`remote`] | values that have blocks of their own |
//! | [`parent`] | parent pointers, which are attributes that no user sees |
//! | [`edit`] | changes of leaves and of attributes within the inode, as bytes |
//! | [`acl`] | access control lists: from the form on disk to the form that Linux programs know |

pub mod acl;
pub mod edit;
pub mod leaf;
pub mod parent;
pub mod remote;
pub mod shortform;

#[cfg(test)]
mod tests;

use base::{FileBlock, Ino};

use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::hash;

/// Most bytes of a value (`XATTR_SIZE_MAX`).
pub const MAX_VALUE: u32 = 65536;

/// Bits of an attribute's flags (`xfs_da_format.h`).
pub mod flags {
    /// The value lies beside the name. Only in leaves.
    pub const LOCAL: u8 = 1 << 0;
    /// Namespace `trusted`.
    pub const ROOT: u8 = 1 << 1;
    /// Namespace `security`.
    pub const SECURE: u8 = 1 << 2;
    /// A parent pointer.
    pub const PARENT: u8 = 1 << 3;
    /// Half written or half removed: not there for users. Only in leaves.
    pub const INCOMPLETE: u8 = 1 << 7;
    /// At most one of these is set.
    pub const NAMESPACES: u8 = ROOT | SECURE | PARENT;
}

/// Whose an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespace {
    /// Users'. (No flag.)
    User,
    /// The administrator's. (Flag `ROOT`.)
    Trusted,
    /// Security modules'. (Flag `SECURE`.)
    Security,
    /// The file system's own: parent pointers.
    Parent,
}

impl Namespace {
    /// From an attribute's flags; `None` where more than one is named.
    pub fn from_flags(bits: u8) -> Option<Self> {
        match bits & flags::NAMESPACES {
            0 => Some(Self::User),
            flags::ROOT => Some(Self::Trusted),
            flags::SECURE => Some(Self::Security),
            flags::PARENT => Some(Self::Parent),
            _ => None,
        }
    }

    /// The bit of an attribute's flags.
    pub fn bits(self) -> u8 {
        match self {
            Self::User => 0,
            Self::Trusted => flags::ROOT,
            Self::Security => flags::SECURE,
            Self::Parent => flags::PARENT,
        }
    }

    /// What Linux puts in front of its names; parent pointers have no name there.
    pub fn prefix(self) -> Option<&'static str> {
        match self {
            Self::User => Some("user."),
            Self::Trusted => Some("trusted."),
            Self::Security => Some("security."),
            Self::Parent => None,
        }
    }
}

/// A verified attribute, whatever its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Whose it is.
    pub namespace: Namespace,
    /// Half written or half removed.
    pub incomplete: bool,
    /// 1 to 255 bytes without NUL, without the namespace's prefix; of a parent pointer, the entry's name.
    pub name: &'a [u8],
    /// Its value.
    pub value: AttrValue<'a>,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrValue<'a> {
    /// Beside the name.
    Inline(&'a [u8]),
    /// In blocks of its own.
    Remote {
        /// First logical block of the attribute fork.
        block: FileBlock,
        /// Bytes: at most [`MAX_VALUE`].
        length: u32,
    },
}

impl AttrValue<'_> {
    /// Bytes of the value.
    pub fn length(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Remote { length, .. } => *length as usize,
        }
    }
}

impl Attr<'_> {
    /// The hash under which leaves sort the attribute.
    pub fn hash(&self, geometry: &Geometry) -> u32 {
        match (self.namespace, self.value) {
            (Namespace::Parent, AttrValue::Inline(value)) => {
                let parent = parent::ParentRecord::view_value(value).map_or(0, |record| record.ino.get());
                hash::parent(self.name, Ino(parent), geometry)
            }
            _ => hash::name(self.name),
        }
    }

    /// What holds for attributes of each form.
    fn verify(&self, structure: &'static str, geometry: &Geometry) -> Result<(), Damage> {
        ensure!(!self.name.is_empty(), structure, "namelen", "1 to 255", 0);
        if self.namespace == Namespace::Parent {
            return parent::ParentPointer::verify(self, geometry).map(|_| ());
        }
        ensure!(
            !self.name.contains(&0),
            structure,
            "name",
            "a name without NUL",
            format_args!("\"{}\"", self.name.escape_ascii())
        );
        Ok(())
    }
}

/// The namespace that flags name.
fn verify_namespace(structure: &'static str, bits: u8) -> Result<Namespace, Damage> {
    Namespace::from_flags(bits)
        .ok_or_else(|| Damage::new(structure, "flags", "at most one namespace", format_args!("{bits:#x}")))
}
