//! The intent to change an extended attribute or parent pointer: a format, then name and value, and for a replaced
//! parent pointer the new name and value.

use base::Ino;

use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk};

const NAME: &str = "attribute intent";
/// Maximum length of an attribute name.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum length of a value.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

crate::ondisk! {
    /// The first region.
    pub struct RawAttrIntent("attribute intent", 40) {
        /// `0x1246`.
        kind as "type": LeU16 = Hex,
        /// Number of regions.
        size: LeU16 = Uint,
        /// Generation of the inode, for parent pointers.
        igen: LeU32 = Uint,
        /// Id that links the done item to its intent.
        id: LeU64 = Hex,
        /// Inode number.
        ino: LeU64 = Uint,
        /// Operation.
        op_flags: LeU32 = Hex,
        /// Length of the name; for a replaced parent pointer two 16-bit lengths, the old name's first.
        name_len: LeU32 = Uint,
        /// Length of the value, or of each of both values.
        value_len: LeU32 = Uint,
        /// The attribute's namespace.
        attr_filter: LeU32 = Hex,
    }
}

/// The operation of an attribute intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttrOperation {
    /// Create.
    Set,
    /// Remove.
    Remove,
    /// Replace the value.
    Replace,
    /// Create a parent pointer.
    ParentSet,
    /// Remove a parent pointer.
    ParentRemove,
    /// Replace a parent pointer; its name may change.
    ParentReplace,
}

impl AttrOperation {
    fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Set,
            2 => Self::Remove,
            3 => Self::Replace,
            4 => Self::ParentSet,
            5 => Self::ParentRemove,
            6 => Self::ParentReplace,
            _ => return None,
        })
    }

    /// Description for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::ParentSet => "set parent pointer",
            Self::ParentRemove => "remove parent pointer",
            Self::ParentReplace => "replace parent pointer",
        }
    }

    /// Whether the operation changes a parent pointer.
    pub fn is_parent(self) -> bool {
        matches!(self, Self::ParentSet | Self::ParentRemove | Self::ParentReplace)
    }
}

/// A decoded attribute intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrIntent<'a> {
    /// Id that links the done item to its intent.
    pub id: u64,
    /// Inode number.
    pub ino: Ino,
    /// Generation of the inode, for parent pointers.
    pub generation: u32,
    /// Operation.
    pub operation: AttrOperation,
    /// Namespace bits, as in attribute entries.
    pub namespace: u32,
    /// The name as stored, without the prefix of the namespace.
    pub name: &'a [u8],
    /// The value; may be empty.
    pub value: &'a [u8],
    /// The new name of a replaced parent pointer.
    pub new_name: Option<&'a [u8]>,
    /// The new value of a replaced parent pointer.
    pub new_value: Option<&'a [u8]>,
}

impl<'a> AttrIntent<'a> {
    /// Decodes an item from all its regions.
    pub fn parse(mut regions: impl Iterator<Item = &'a [u8]>) -> Result<Self, Damage> {
        let first = regions.next().unwrap_or(&[]);
        let raw = RawAttrIntent::view(first)
            .ok_or_else(|| Damage::short(NAME, RawAttrIntent::SIZE, first.len()))?;
        let code = raw.op_flags.get() & 0xff;
        let operation = AttrOperation::from_code(code)
            .ok_or_else(|| Damage::new(NAME, "op_flags", "an operation from 1 to 6", code))?;
        let lengths = raw.name_len.get();
        let replaces = operation == AttrOperation::ParentReplace;
        let (old, new) = if replaces { (lengths & 0xffff, lengths >> 16) } else { (lengths, 0) };
        let value_len = raw.value_len.get() as usize;
        ensure!(old > 0, NAME, "name_len", "at least 1", old);
        let name = take(&mut regions, "name_len", old as usize, MAX_NAME_BYTES)?;
        let new_name =
            replaces.then(|| take(&mut regions, "new_name_len", new as usize, MAX_NAME_BYTES)).transpose()?;
        let has_value = value_len > 0;
        let value =
            if has_value { take(&mut regions, "value_len", value_len, MAX_VALUE_BYTES)? } else { &[] };
        let new_value = (replaces && has_value)
            .then(|| take(&mut regions, "value_len", value_len, MAX_VALUE_BYTES))
            .transpose()?;
        Ok(Self {
            id: raw.id.get(),
            ino: Ino(raw.ino.get()),
            generation: raw.igen.get(),
            operation,
            namespace: raw.attr_filter.get(),
            name,
            value,
            new_name,
            new_value,
        })
    }
}

/// The first `len` bytes of the next region (regions are padded to four bytes).
fn take<'a>(
    regions: &mut impl Iterator<Item = &'a [u8]>,
    field: &'static str,
    len: usize,
    most: usize,
) -> Result<&'a [u8], Damage> {
    ensure!(len <= most, NAME, field, format_args!("at most {most}"), len);
    let region = regions.next().unwrap_or(&[]);
    region.get(..len).ok_or_else(|| Damage::new(NAME, field, format_args!("at most {}", region.len()), len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn raw(operation: u32, name_len: u32, value_len: u32) -> Vec<u8> {
        let mut raw = RawAttrIntent::new_zeroed();
        raw.ino.set(131);
        raw.op_flags.set(operation);
        raw.name_len.set(name_len);
        raw.value_len.set(value_len);
        raw.as_bytes().to_vec()
    }

    fn parse<'a>(regions: &'a [&'a [u8]]) -> Result<AttrIntent<'a>, Damage> {
        AttrIntent::parse(regions.iter().copied())
    }

    #[test]
    fn a_replaced_parent_pointer_has_two_names_and_two_values() {
        let head = raw(6, (5 << 16) | 3, 12);
        let regions = [&head[..], b"old\0", b"newer\0\0\0", b"aaaaaaaaaaaa", b"bbbbbbbbbbbb"];
        let intent = parse(&regions).unwrap();
        assert_eq!((intent.name, intent.new_name), (&b"old"[..], Some(&b"newer"[..])));
        assert_eq!(intent.new_value, Some(&b"bbbbbbbbbbbb"[..]));
        assert_eq!(parse(&regions[..3]).unwrap_err().field(), "value_len");
    }

    #[test]
    fn lengths_that_the_regions_do_not_hold_are_refused() {
        let head = raw(1, 9, 0);
        assert_eq!(parse(&[&head, b"short"]).unwrap_err().field(), "name_len");
        let head = raw(1, u32::MAX, 0);
        assert_eq!(parse(&[&head, b"short"]).unwrap_err().field(), "name_len");
        let head = raw(9, 1, 0);
        assert_eq!(parse(&[&head, b"a"]).unwrap_err().field(), "op_flags");
        let head = raw(2, 4, 0);
        assert_eq!(parse(&[&head, b"name"]).unwrap().value, b"");
    }
}
