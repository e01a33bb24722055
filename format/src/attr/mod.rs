//! Extended attributes. (Format document, "Extended Attributes".)
//!
//! | part | subject |
//! |---|---|
//! | [`shortform`] | shortform attributes, inside the inode |
//! | [`leaf`] | leaf blocks; [`crate::dabtree`] has the nodes above them |
//! | [`remote`] | remote values, in blocks of their own |
//! | [`parent`] | parent pointers: attributes that are invisible to users |
//! | [`edit`] | changes of leaf blocks and shortform attributes |
//! | [`acl`] | conversion of access control lists between disk and xattr format |

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

/// Maximum length of a value (`XATTR_SIZE_MAX`).
pub const MAX_VALUE: u32 = 65536;

/// Bits of an attribute's flags (`xfs_da_format.h`).
pub mod flags {
    /// The value is stored with the name. Leaf blocks only.
    pub const LOCAL: u8 = 1 << 0;
    /// Namespace `trusted`.
    pub const ROOT: u8 = 1 << 1;
    /// Namespace `security`.
    pub const SECURE: u8 = 1 << 2;
    /// A parent pointer.
    pub const PARENT: u8 = 1 << 3;
    /// Being created or removed: invisible to users. Leaf blocks only.
    pub const INCOMPLETE: u8 = 1 << 7;
    /// The namespace bits; at most one is set.
    pub const NAMESPACES: u8 = ROOT | SECURE | PARENT;
}

/// The namespace of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespace {
    /// `user` (no flag).
    User,
    /// `trusted` (flag `ROOT`).
    Trusted,
    /// `security` (flag `SECURE`).
    Security,
    /// Parent pointers, internal to the file system (flag `PARENT`).
    Parent,
}

impl Namespace {
    /// Decodes an attribute's flags; `None` if more than one namespace bit is set.
    pub fn from_flags(bits: u8) -> Option<Self> {
        match bits & flags::NAMESPACES {
            0 => Some(Self::User),
            flags::ROOT => Some(Self::Trusted),
            flags::SECURE => Some(Self::Security),
            flags::PARENT => Some(Self::Parent),
            _ => None,
        }
    }

    /// The namespace bit.
    pub fn bits(self) -> u8 {
        match self {
            Self::User => 0,
            Self::Trusted => flags::ROOT,
            Self::Security => flags::SECURE,
            Self::Parent => flags::PARENT,
        }
    }

    /// The prefix of its names in Linux; `None` for parent pointers.
    pub fn prefix(self) -> Option<&'static str> {
        match self {
            Self::User => Some("user."),
            Self::Trusted => Some("trusted."),
            Self::Security => Some("security."),
            Self::Parent => None,
        }
    }
}

/// A verified attribute of any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The namespace.
    pub namespace: Namespace,
    /// Being created or removed.
    pub incomplete: bool,
    /// 1 to 255 bytes without NUL and without the prefix of the namespace; for a parent pointer the name of the
    /// directory entry.
    pub name: &'a [u8],
    /// The value.
    pub value: AttrValue<'a>,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrValue<'a> {
    /// Stored with the name.
    Inline(&'a [u8]),
    /// Stored in blocks of its own.
    Remote {
        /// First logical block in the attribute fork.
        block: FileBlock,
        /// Length in bytes: at most [`MAX_VALUE`].
        length: u32,
    },
}

impl AttrValue<'_> {
    /// Length of the value in bytes.
    pub fn length(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Remote { length, .. } => *length as usize,
        }
    }
}

impl Attr<'_> {
    /// The hash of the attribute in leaf blocks.
    pub fn hash(&self, geometry: &Geometry) -> u32 {
        match (self.namespace, self.value) {
            (Namespace::Parent, AttrValue::Inline(value)) => {
                let parent = parent::ParentRecord::view_value(value).map_or(0, |record| record.ino.get());
                hash::parent(self.name, Ino(parent), geometry)
            }
            _ => hash::name(self.name),
        }
    }

    /// Verifies what holds in every format.
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

/// Decodes the namespace bits.
fn verify_namespace(structure: &'static str, bits: u8) -> Result<Namespace, Damage> {
    Namespace::from_flags(bits)
        .ok_or_else(|| Damage::new(structure, "flags", "at most one namespace", format_args!("{bits:#x}")))
}
