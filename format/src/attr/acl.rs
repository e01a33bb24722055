//! POSIX access control lists. On disk they are attributes of the namespace `trusted` with fixed names; Linux programs
//! access them as `system.posix_acl_access` and `system.posix_acl_default` in another binary format, called xattr
//! format here (`linux/posix_acl_xattr.h`).

use super::Namespace;
use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{OnDisk, U16, U32};
use zerocopy::IntoBytes;

/// On-disk name of the access ACL.
pub const ACCESS: &[u8] = b"SGI_ACL_FILE";
/// On-disk name of the default ACL, which new files of a directory inherit.
pub const DEFAULT: &[u8] = b"SGI_ACL_DEFAULT";
/// Xattr name of the access ACL.
pub const LINUX_ACCESS: &str = "system.posix_acl_access";
/// Xattr name of the default ACL.
pub const LINUX_DEFAULT: &str = "system.posix_acl_default";
const NAME: &str = "access control list";
/// Version of the xattr format.
const LINUX_VERSION: u32 = 2;
/// Maximum number of entries, which the maximum size of a value limits.
const MOST_ENTRIES: usize = (super::MAX_VALUE as usize - 4) / 12;
/// Id in the xattr format of entries without a user or group.
const NO_ID: u32 = u32::MAX;

crate::ondisk! {
    /// The header of a list; entries follow.
    pub struct AclHeader("access control list", 4) {
        /// Number of entries.
        acl_cnt: U32 = Uint,
    }

    /// An entry.
    pub struct AclEntry("access control list entry", 12) {
        /// Type of the entry: see [`tag`].
        ae_tag: U32 = Hex,
        /// User or group id, if the tag requires one.
        ae_id: U32 = Uint,
        /// Read 4, write 2, execute 1.
        ae_perm: U16 = Octal,
        /// Zero.
        ae_pad: U16 = Padding,
    }
}

/// Entry types.
pub mod tag {
    /// The owner.
    pub const USER_OBJ: u32 = 0x01;
    /// A user.
    pub const USER: u32 = 0x02;
    /// The owning group.
    pub const GROUP_OBJ: u32 = 0x04;
    /// A group.
    pub const GROUP: u32 = 0x08;
    /// The maximum permissions of named users, named groups and the owning group.
    pub const MASK: u32 = 0x10;
    /// Everyone else.
    pub const OTHER: u32 = 0x20;
}

/// Xattr name of an attribute that is an ACL.
pub fn linux_name(namespace: Namespace, name: &[u8]) -> Option<&'static str> {
    match (namespace, name) {
        (Namespace::Trusted, ACCESS) => Some(LINUX_ACCESS),
        (Namespace::Trusted, DEFAULT) => Some(LINUX_DEFAULT),
        _ => None,
    }
}

/// Verifies the value of an ACL attribute and returns its entries.
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

/// An entry in the xattr format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxEntry {
    /// Type of the entry: see [`tag`].
    pub tag: u32,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
    /// User or group id, if the tag requires one.
    pub id: u32,
}

impl LinuxEntry {
    /// Sort key: by tag, and by id for named users and groups.
    pub fn key(&self) -> (u32, u32) {
        (self.tag, if matches!(self.tag, tag::USER | tag::GROUP) { self.id } else { 0 })
    }
}

/// Encodes entries in the xattr format.
pub fn write_linux(entries: impl IntoIterator<Item = LinuxEntry>) -> Vec<u8> {
    let mut linux = LINUX_VERSION.to_le_bytes().to_vec();
    for LinuxEntry { tag, perm, id } in entries {
        let id = if matches!(tag, tag::USER | tag::GROUP) { id } else { NO_ID };
        linux.extend_from_slice(&(tag as u16).to_le_bytes());
        linux.extend_from_slice(&perm.to_le_bytes());
        linux.extend_from_slice(&id.to_le_bytes());
    }
    linux
}

/// Decodes a list in the xattr format without checking its semantics.
pub fn linux_entries(list: &[u8]) -> Result<Vec<LinuxEntry>, Damage> {
    let (head, rest) = list.split_first_chunk().ok_or_else(|| Damage::short(NAME, 4, list.len()))?;
    let version = u32::from_le_bytes(*head);
    ensure!(version == LINUX_VERSION, NAME, "version", LINUX_VERSION, version);
    let (entries, behind) = rest.as_chunks::<8>();
    ensure!(behind.is_empty(), NAME, "size", "4 bytes, and 8 for each entry", list.len());
    ensure!(
        entries.len() <= MOST_ENTRIES,
        NAME,
        "size",
        format_args!("at most {MOST_ENTRIES} entries"),
        entries.len()
    );
    let entry = |[a, b, c, d, e, f, g, h]: &[u8; 8]| {
        let (tag, perm) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        LinuxEntry { tag: tag.into(), perm, id: u32::from_le_bytes([*e, *f, *g, *h]) }
    };
    Ok(entries.iter().map(entry).collect())
}

/// Verifies a list: owner, group and others exactly once, a mask if users or groups are named, and each of these once.
fn verify_linux(entries: &[LinuxEntry]) -> Result<(), Damage> {
    for LinuxEntry { tag, perm, .. } in entries {
        let known = tag.is_power_of_two() && *tag <= tag::OTHER;
        ensure!(known, NAME, "tag", "a known tag", format_args!("{tag:#x}"));
        ensure!(*perm <= 7, NAME, "perm", "0 to 7", perm);
    }
    let count = |tag: u32| entries.iter().filter(|entry| entry.tag == tag).count();
    let once = [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER].iter().all(|tag| count(*tag) == 1);
    ensure!(once, NAME, "tag", "owner, group and others once each", "missing or duplicate entries");
    let (named, masks) = (count(tag::USER) + count(tag::GROUP), count(tag::MASK));
    ensure!(masks <= 1 && (masks == 1 || named == 0), NAME, "tag", "one mask beside named users", masks);
    // Entries are sorted by tag, then by id.
    let sorted = entries.windows(2).all(|pair| matches!(pair, [left, right] if left.key() < right.key()));
    ensure!(sorted, NAME, "tag", "entries in order of tag and id, each once", "another order");
    Ok(())
}

/// An access ACL to be stored on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAcl {
    /// The on-disk value.
    pub value: Vec<u8>,
    /// The equivalent nine permission bits.
    pub permissions: u16,
    /// The permission bits are fully equivalent: no ACL needs to be stored.
    pub is_mode: bool,
}

/// Converts from the xattr format. A list without entries requests removal; it has no owner entry and is refused here.
pub fn from_linux(list: &[u8]) -> Result<StoredAcl, Damage> {
    let entries = linux_entries(list)?;
    verify_linux(&entries)?;
    let mut value = AclHeader { acl_cnt: U32::new(entries.len() as u32) }.as_bytes().to_vec();
    for LinuxEntry { tag, perm, id } in &entries {
        let id = if matches!(*tag, tag::USER | tag::GROUP) { *id } else { NO_ID };
        let entry = AclEntry {
            ae_tag: U32::new(*tag),
            ae_id: U32::new(id),
            ae_perm: U16::new(*perm),
            ae_pad: U16::new(0),
        };
        value.extend_from_slice(entry.as_bytes());
    }
    let perm = |wanted: u32| entries.iter().find(|entry| entry.tag == wanted).map(|entry| entry.perm);
    let group = perm(tag::MASK).or(perm(tag::GROUP_OBJ)).unwrap_or(0);
    let (user, other) = (perm(tag::USER_OBJ).unwrap_or(0), perm(tag::OTHER).unwrap_or(0));
    Ok(StoredAcl { value, permissions: user << 6 | group << 3 | other, is_mode: entries.len() == 3 })
}

/// The access ACL of a new file in a directory with the default ACL `default` (an on-disk value): the intersection of
/// the list and the requested `permissions` (nine bits). A mask, if any, takes the place of the group.
pub fn inherited(default: &[u8], permissions: u16) -> Result<StoredAcl, Damage> {
    changed(default, |perm, asked| perm & asked, permissions)
}

/// Updates an access ACL (an on-disk value) after a mode change to `permissions`: the mask, or else the group entry,
/// gets the group bits.
pub fn with_permissions(list: &[u8], permissions: u16) -> Result<StoredAcl, Damage> {
    changed(list, |_, asked| asked, permissions)
}

/// Changes the entries that correspond to permission bits: `change` receives the entry's permissions and these bits.
fn changed(list: &[u8], change: impl Fn(u16, u16) -> u16, permissions: u16) -> Result<StoredAcl, Damage> {
    let mut list = entries(list)?.to_vec();
    let has_mask = list.iter().any(|entry| entry.ae_tag.get() == tag::MASK);
    let group = if has_mask { tag::MASK } else { tag::GROUP_OBJ };
    let mut granted = 0;
    for entry in &mut list {
        let shift = match entry.ae_tag.get() {
            tag::USER_OBJ => 6,
            tag::OTHER => 0,
            tag if tag == group => 3,
            _ => continue,
        };
        let perm = change(entry.ae_perm.get(), permissions >> shift & 7);
        entry.ae_perm = U16::new(perm);
        granted |= perm << shift;
    }
    let mut value = AclHeader { acl_cnt: U32::new(list.len() as u32) }.as_bytes().to_vec();
    value.extend_from_slice(list.as_bytes());
    Ok(StoredAcl { value, permissions: granted, is_mode: list.len() == 3 })
}

/// Converts an on-disk value to the xattr format.
pub fn to_linux(value: &[u8]) -> Result<Vec<u8>, Damage> {
    let entry = |entry: &AclEntry| LinuxEntry {
        tag: entry.ae_tag.get(),
        perm: entry.ae_perm.get(),
        id: entry.ae_id.get(),
    };
    Ok(write_linux(entries(value)?.iter().map(entry)))
}
