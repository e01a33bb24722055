//! Access control lists. On disk they are attributes of the namespace `trusted` with names of their own; Linux programs
//! know them as `system.posix_acl_access` and `system.posix_acl_default`, in another binary form
//! (`linux/posix_acl_xattr.h`).

use super::Namespace;
use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{OnDisk, U16, U32};

/// The name on disk of the list that governs access.
pub const ACCESS: &[u8] = b"SGI_ACL_FILE";
/// The name on disk of the list that new files of a directory inherit.
pub const DEFAULT: &[u8] = b"SGI_ACL_DEFAULT";
/// The name for Linux programs of the list that governs access.
pub const LINUX_ACCESS: &str = "system.posix_acl_access";
/// The name for Linux programs of the list that new files inherit.
pub const LINUX_DEFAULT: &str = "system.posix_acl_default";
const NAME: &str = "access control list";
/// Version of the form for Linux programs.
const LINUX_VERSION: u32 = 2;
/// What that form has for the id of entries that name nobody.
const NO_ID: u32 = u32::MAX;

crate::ondisk! {
    /// What a list begins with; entries follow.
    pub struct AclHeader("access control list", 4) {
        /// Entries.
        acl_cnt: U32 = Uint,
    }

    /// An entry of a list.
    pub struct AclEntry("access control list entry", 12) {
        /// Whom it is for: see [`tag`].
        ae_tag: U32 = Hex,
        /// User or group, where the tag names one.
        ae_id: U32 = Uint,
        /// Read 4, write 2, execute 1.
        ae_perm: U16 = Octal,
        /// Zero.
        ae_pad: U16 = Padding,
    }
}

/// Whom an entry is for.
pub mod tag {
    /// The owner.
    pub const USER_OBJ: u32 = 0x01;
    /// A user.
    pub const USER: u32 = 0x02;
    /// The owning group.
    pub const GROUP_OBJ: u32 = 0x04;
    /// A group.
    pub const GROUP: u32 = 0x08;
    /// The most that users and groups named here, and the owning group, may do.
    pub const MASK: u32 = 0x10;
    /// Everybody else.
    pub const OTHER: u32 = 0x20;
}

/// The name for Linux programs of an attribute that is a list.
pub fn linux_name(namespace: Namespace, name: &[u8]) -> Option<&'static str> {
    match (namespace, name) {
        (Namespace::Trusted, ACCESS) => Some(LINUX_ACCESS),
        (Namespace::Trusted, DEFAULT) => Some(LINUX_DEFAULT),
        _ => None,
    }
}

/// Verified entries of a list, from the value of its attribute.
pub fn entries(value: &[u8]) -> Result<&[AclEntry], Damage> {
    let header = AclHeader::view(value).ok_or_else(|| Damage::short(NAME, AclHeader::SIZE, value.len()))?;
    let rest = value.get(AclHeader::SIZE..).unwrap_or(&[]);
    let (count, found) = (rest.len() / AclEntry::SIZE, header.acl_cnt.get());
    ensure!(
        found as usize == count && rest.len().is_multiple_of(AclEntry::SIZE),
        NAME,
        "acl_cnt",
        format_args!("as many as {} bytes hold", value.len()),
        found
    );
    let entries = AclEntry::view_array(rest, count).ok_or_else(|| Damage::short(NAME, 0, rest.len()))?;
    for entry in entries {
        let (tag, perm) = (entry.ae_tag.get(), entry.ae_perm.get());
        let known = tag.is_power_of_two() && tag <= tag::OTHER;
        ensure!(known, NAME, "ae_tag", "a known tag", format_args!("{tag:#x}"));
        ensure!(perm <= 7, NAME, "ae_perm", "0 to 7", perm);
    }
    Ok(entries)
}

/// The form for Linux programs, from the value on disk.
pub fn to_linux(value: &[u8]) -> Result<Vec<u8>, Damage> {
    let entries = entries(value)?;
    let mut linux = Vec::with_capacity(4 + entries.len() * 8);
    linux.extend_from_slice(&LINUX_VERSION.to_le_bytes());
    for entry in entries {
        let tag = entry.ae_tag.get();
        let id = if matches!(tag, tag::USER | tag::GROUP) { entry.ae_id.get() } else { NO_ID };
        linux.extend_from_slice(&(tag as u16).to_le_bytes());
        linux.extend_from_slice(&entry.ae_perm.get().to_le_bytes());
        linux.extend_from_slice(&id.to_le_bytes());
    }
    Ok(linux)
}
