//! Extended attributes, by their Linux names.
//!
//! | name | stored |
//! |---|---|
//! | `user.NAME` | unchanged; only regular files and directories have them |
//! | `trusted.NAME`, `security.NAME` | unchanged |
//! | `system.posix_acl_access` | in the permission bits; converted to the on-disk form unless these are enough |
//! | `system.posix_acl_default` | converted to the on-disk form; only directories have it |
//!
//! On volumes with parent pointers, each name of a file is also an attribute. These are not visible here.

mod recover;

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use ag::Claim;
use base::{Ino, errno};
use format::attr::{MAX_VALUE, Namespace, acl, remote};
use format::features::version;
use format::inode::FileType;
use format::ondisk::{OnDisk, U16};
use format::superblock::RawSuperblock;
use inode::attr::{AttrKey, Attributes, NewAttrValue, PeekedAttributes, is_inline, remote as remote_value};
use inode::group_space::GroupSpace;
use inode::state::InodeTime;
use inode::{InodeRef, LockedInode};

use crate::checks::expect_changeable;
use crate::operation::{Operation, is_directory};
use crate::permissions::{Caller, READ, SET_GID, WRITE};
use crate::recover::damaged;
use crate::superblock::lock_superblock;
use crate::{Error, FileId, NewFile, Result, Volume};

/// Maximum length of a name in bytes, including its prefix.
const MAX_NAME: usize = 255;

/// Condition of [`Volume::set_attribute`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SetAttribute {
    /// Create or replace the attribute.
    #[default]
    Any,
    /// Fail if the attribute exists (`XATTR_CREATE`).
    Create,
    /// Fail if the attribute does not exist (`XATTR_REPLACE`).
    Replace,
}

/// The on-disk name of an attribute.
#[derive(Clone, Copy)]
pub(crate) struct AttributeName<'n> {
    pub key: AttrKey<'n>,
    /// Set for access control lists (ACLs), whose value has another form on disk.
    acl: Option<AclKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AclKind {
    Access,
    Default,
}

const NO_ATTRIBUTE: Error = Error::refused(errno::ENODATA, "there is no attribute of this name");

impl<'n> AttributeName<'n> {
    fn parse(name: &'n [u8]) -> Result<Self> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::refused(errno::ERANGE, "an attribute name has 1 to 255 bytes"));
        }
        let acl = |stored, kind| Ok(Self { key: AttrKey::new(Namespace::Trusted, stored), acl: Some(kind) });
        if name == acl::LINUX_ACCESS.as_bytes() {
            return acl(acl::ACCESS, AclKind::Access);
        }
        if name == acl::LINUX_DEFAULT.as_bytes() {
            return acl(acl::DEFAULT, AclKind::Default);
        }
        for namespace in [Namespace::User, Namespace::Trusted, Namespace::Security] {
            let rest = namespace.prefix().and_then(|prefix| name.strip_prefix(prefix.as_bytes()));
            match rest {
                Some(rest) if rest.is_empty() || rest.contains(&0) => {
                    let why = "an attribute name must have a part after its prefix, and no NUL";
                    return Err(Error::refused(errno::EINVAL, why));
                }
                Some(rest) => return Ok(Self { key: AttrKey::new(namespace, rest), acl: None }),
                None => {}
            }
        }
        let why = "an attribute name begins with user., trusted. or security., or is that of an access control list";
        Err(Error::refused(errno::EOPNOTSUPP, why))
    }

    /// Refuses an attribute that files of this type cannot have.
    fn expect_supported(&self, file_type: Option<FileType>) -> Result<()> {
        if self.key.namespace == Namespace::User
            && !matches!(file_type, Some(FileType::Regular | FileType::Directory))
        {
            let why = "only regular files and directories have user attributes";
            return Err(Error::refused(errno::EPERM, why));
        }
        match self.acl {
            Some(_) if file_type == Some(FileType::Symlink) => {
                Err(Error::refused(errno::EOPNOTSUPP, "symbolic links have no access control list"))
            }
            Some(AclKind::Default) if file_type != Some(FileType::Directory) => {
                Err(Error::refused(errno::EACCES, "only directories have a default access control list"))
            }
            _ => Ok(()),
        }
    }
}

/// The on-disk form of an attribute's value.
pub(crate) struct StoredValue<'v> {
    /// `None` if the attribute is removed: an access ACL that the permission bits represent.
    pub value: Option<Cow<'v, [u8]>>,
    /// Permission bits that an access ACL sets.
    pub permissions: Option<u16>,
}

/// An attribute that is requested for a new file.
pub(crate) struct NewAttribute<'a> {
    pub name: AttributeName<'a>,
    pub stored: StoredValue<'a>,
}

/// Checks and converts the attributes that are requested for a new file.
///
/// # Errors
/// As [`Volume::set_attribute`] for a file of its type.
pub(crate) fn requested_attributes<'a>(new: &NewFile<'a>) -> Result<Vec<NewAttribute<'a>>> {
    let convert = |(name, value): &(&'a [u8], &'a [u8])| {
        let name = AttributeName::parse(name)?;
        name.expect_supported(Some(new.inode_type()))?;
        Ok(NewAttribute { name, stored: StoredValue::of(&name, value)? })
    };
    new.attributes.iter().map(convert).collect()
}

/// Sets the read, write and execute bits of a file, if there are new ones.
pub(crate) fn set_permissions(state: &mut LockedInode, permissions: Option<u16>) {
    if let Some(permissions) = permissions {
        let mode = state.mode();
        state.set_mode(mode & !0o777 | permissions);
    }
}

impl<'v> StoredValue<'v> {
    fn of(name: &AttributeName<'_>, value: &'v [u8]) -> Result<Self> {
        if value.len() > MAX_VALUE as usize {
            return Err(Error::refused(errno::E2BIG, "the value of an attribute has at most 64 KiB"));
        }
        let Some(kind) = name.acl else { return Ok(Self { value: Some(value.into()), permissions: None }) };
        let acl = acl::from_linux(value)
            .map_err(|_| Error::refused(errno::EINVAL, "the value is not a valid access control list"))?;
        Ok(match kind {
            AclKind::Default => Self { value: Some(acl.value.into()), permissions: None },
            AclKind::Access => {
                Self { value: (!acl.is_mode).then(|| acl.value.into()), permissions: Some(acl.permissions) }
            }
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.value.as_deref().map_or(0, <[u8]>::len)
    }
}

impl Volume {
    /// Sets an attribute.
    ///
    /// # Errors
    /// `ESTALE`; `EEXIST` and `ENODATA` by `condition`; `EOPNOTSUPP` for a name with another prefix; `ERANGE` for a
    /// name that is too long, `E2BIG` for a value that is too long; `EPERM`, `EACCES` if files of this type have no
    /// such attribute; `EPERM` for an immutable or append-only file; `EINVAL` for an invalid access control list;
    /// `ENOSPC`.
    pub fn set_attribute(
        &self,
        file: FileId,
        name: &[u8],
        value: &[u8],
        condition: SetAttribute,
    ) -> Result<()> {
        self.set_attribute_of(Caller::PROGRAM, &self.inode(file)?, name, value, condition)
    }

    /// Sets an attribute for a caller.
    pub(crate) fn set_attribute_of(
        &self,
        caller: Caller<'_>,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        condition: SetAttribute,
    ) -> Result<()> {
        let name = AttributeName::parse(name)?;
        let stored = StoredValue::of(&name, value)?;
        self.note_attributes()?;
        self.retry_on_enospc(|| self.try_set_attribute(caller, inode, &name, &stored, condition))
    }

    pub(crate) fn try_set_attribute(
        &self,
        caller: Caller<'_>,
        inode: &InodeRef,
        name: &AttributeName<'_>,
        stored: &StoredValue<'_>,
        condition: SetAttribute,
    ) -> Result<()> {
        let mut operation =
            self.begin_attribute(inode.ino(), self.remote_value_len(&name.key, stored.len()))?;
        let mut state = inode.lock();
        expect_changeable(&state)?;
        operation.expect_attribute_permitted(caller, &mut state, name, WRITE)?;
        name.expect_supported(FileType::from_mode(state.mode()))?;
        if condition != SetAttribute::Any {
            let exists = operation.attributes(&mut state, |attributes| attributes.has(&name.key))?;
            match (condition, exists) {
                (SetAttribute::Create, true) => {
                    return Err(Error::refused(errno::EEXIST, "the attribute exists"));
                }
                (SetAttribute::Replace, false) => return Err(NO_ATTRIBUTE),
                _ => {}
            }
        }
        match &stored.value {
            None => drop(operation.attributes(&mut state, |attributes| attributes.remove(&name.key))?),
            Some(value) => operation.put_attribute(&mut state, &name.key, value)?,
        }
        set_permissions(&mut state, stored.permissions);
        if stored.permissions.is_some() && !caller.is_member_of_group(&state) {
            let mode = state.mode() & !SET_GID;
            state.set_mode(mode);
        }
        self.touch(&mut state, &[InodeTime::Change]);
        operation.commit(&mut [&mut state])
    }

    /// Length of a value that is stored in blocks of its own (a *remote* value); `None` if it is stored inline, with
    /// the name.
    pub(crate) fn remote_value_len(&self, key: &AttrKey<'_>, length: usize) -> Option<u32> {
        (!is_inline(key, length, &self.geometry)).then_some(length as u32) // at most 64 KiB
    }

    /// Begins an operation that sets an attribute. Claims the blocks of a remote value.
    pub(crate) fn begin_attribute(&self, ino: Ino, remote_len: Option<u32>) -> Result<Operation<'_>> {
        let tree_blocks = self.reservations.attribute_blocks;
        let Some(length) = remote_len else {
            return self.begin_freeing(self.reservations.attribute, tree_blocks);
        };
        let value_blocks = remote::block_count(length, &self.geometry);
        let blocks = self.groups.reserve_blocks(tree_blocks + value_blocks)?;
        let extents_max = self.reservations.value_extents_max;
        let claims = remote_value::claim(self.inode_cache.shared(), &self.groups, ino, length, extents_max)?;
        self.begin_reserved(self.reservations.attribute_with_value(claims.len()), blocks, claims)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `ENODATA` if it does not exist; as [`set_attribute`](Self::set_attribute).
    pub fn remove_attribute(&self, file: FileId, name: &[u8]) -> Result<()> {
        self.remove_attribute_of(Caller::PROGRAM, &self.inode(file)?, name)
    }

    /// Removes an attribute for a caller.
    pub(crate) fn remove_attribute_of(
        &self,
        caller: Caller<'_>,
        inode: &InodeRef,
        name: &[u8],
    ) -> Result<()> {
        let name = AttributeName::parse(name)?;
        self.retry_on_enospc(|| {
            let mut operation =
                self.begin_freeing(self.reservations.attribute, self.reservations.attribute_blocks)?;
            let mut state = inode.lock();
            expect_changeable(&state)?;
            let file_type = FileType::from_mode(state.mode());
            if name.acl == Some(AclKind::Default)
                && !matches!(file_type, Some(FileType::Directory | FileType::Symlink))
            {
                return Ok(()); // as in Linux: it has none
            }
            operation.expect_attribute_permitted(caller, &mut state, &name, WRITE)?;
            name.expect_supported(file_type)?;
            if !operation.attributes(&mut state, |attributes| attributes.remove(&name.key))? {
                return if name.acl.is_some() { Ok(()) } else { Err(NO_ATTRIBUTE) };
            }
            self.touch(&mut state, &[InodeTime::Change]);
            operation.commit(&mut [&mut state])
        })
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// `ESTALE`, `ENODATA` if it does not exist, `EOPNOTSUPP` for a name with another prefix; damage.
    pub fn get_attribute(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        self.get_attribute_of(Caller::PROGRAM, &self.inode(file)?, name)
    }

    /// Returns the value of an attribute to a caller.
    pub(crate) fn get_attribute_of(
        &self,
        caller: Caller<'_>,
        inode: &InodeRef,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let name = AttributeName::parse(name)?;
        let peeked = match caller.is_user() {
            true => None,
            false => self.peek_attributes(inode, |attributes| attributes.get(&name.key)),
        };
        let value = match peeked {
            Some(value) => value,
            None => {
                let mut reader = self.reader()?;
                let mut state = inode.lock();
                reader.expect_attribute_permitted(caller, &mut state, &name, READ)?;
                reader.attributes(&mut state, |attributes| attributes.get(&name.key))?
            }
        };
        let value = value.ok_or(NO_ATTRIBUTE)?;
        if name.acl.is_none() {
            return Ok(value);
        }
        acl::to_linux(&value).map_err(|damage| damaged(inode.ino(), damage))
    }

    /// Returns the names of a file's attributes, without parent pointers.
    ///
    /// # Errors
    /// `ESTALE`; damage.
    pub fn list_attributes(&self, file: FileId) -> Result<Vec<Vec<u8>>> {
        self.list_attributes_of(Caller::PROGRAM, &self.inode(file)?)
    }

    /// Returns the names of a file's attributes to a caller. Only root sees those of the namespace `trusted`.
    pub(crate) fn list_attributes_of(&self, caller: Caller<'_>, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let attributes = match self.peek_attributes(inode, |attributes| attributes.list()) {
            Some(attributes) => attributes,
            None => self.reader()?.attributes(&mut inode.lock(), |attributes| attributes.list())?,
        };
        let names = attributes.iter().filter_map(|attr| {
            if let Some(acl_name) = acl::linux_name(attr.namespace, &attr.name) {
                return Some(acl_name.as_bytes().to_vec());
            }
            let is_visible = attr.namespace != Namespace::Trusted || caller.is_privileged();
            is_visible.then_some([attr.namespace.prefix()?.as_bytes(), &attr.name].concat())
        });
        Ok(names.collect())
    }

    /// Reads attributes without a lock, if they are read often. `None` if the inode must be locked.
    fn peek_attributes<T>(
        &self,
        inode: &InodeRef,
        read: impl FnOnce(PeekedAttributes<'_>) -> Option<T>,
    ) -> Option<T> {
        self.inode_cache
            .shared()
            .peek(inode, |state, buffers| read(PeekedAttributes::new(&self.geometry, state, buffers)))
    }

    /// Sets the superblock's attribute flag, as Linux does for the first attribute of a volume.
    pub(crate) fn note_attributes(&self) -> Result<()> {
        if self.has_attributes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut operation = self.begin(self.reservations.superblock)?;
        let id = lock_superblock(&mut operation.tx, &self.geometry)?;
        let old = RawSuperblock::view(operation.tx.bytes(id)).map_or(0, |raw| raw.versionnum.get());
        if old != 0 && old & version::ATTR == 0 {
            let offset = std::mem::offset_of!(RawSuperblock, versionnum);
            let new = U16::new(old | version::ATTR);
            operation.tx.bytes_mut(id, offset..offset + 2).copy_from_slice(&new.to_bytes());
        }
        operation.commit(&mut [])?;
        self.has_attributes.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Operation<'_> {
    /// Refuses an attribute that the caller must not read, or write if `wanted` is [`WRITE`]. What is not permitted to
    /// be read does not exist for the caller.
    #[inline]
    fn expect_attribute_permitted(
        &mut self,
        caller: Caller<'_>,
        state: &mut LockedInode,
        name: &AttributeName<'_>,
        wanted: u16,
    ) -> Result<()> {
        if caller.is_user() {
            self.expect_user_attribute_permitted(caller, state, name, wanted)
        } else {
            Ok(())
        }
    }

    #[inline(never)]
    fn expect_user_attribute_permitted(
        &mut self,
        caller: Caller<'_>,
        state: &mut LockedInode,
        name: &AttributeName<'_>,
        wanted: u16,
    ) -> Result<()> {
        const ONLY_ROOT: Error =
            Error::refused(errno::EPERM, "only root changes attributes of this namespace");
        let (writes, file_type) = (wanted == WRITE, FileType::from_mode(state.mode()));
        match name.key.namespace {
            _ if name.acl.is_some() && writes => {
                name.expect_supported(file_type)?;
                caller.expect_owner(state)
            }
            _ if name.acl.is_some() && file_type == Some(FileType::Symlink) => {
                name.expect_supported(file_type)
            }
            _ if name.acl.is_some() => Ok(()),
            Namespace::User => {
                if !matches!(file_type, Some(FileType::Regular | FileType::Directory)) {
                    return if writes { name.expect_supported(None) } else { Err(NO_ATTRIBUTE) };
                }
                if writes && is_directory(state) {
                    caller.expect_not_sticky(state, state)?;
                }
                self.expect_permitted(caller, state, wanted)
            }
            Namespace::Trusted if !caller.is_privileged() => {
                Err(if writes { ONLY_ROOT } else { NO_ATTRIBUTE })
            }
            Namespace::Security if writes && !caller.is_privileged() => Err(ONLY_ROOT),
            _ => Ok(()),
        }
    }

    /// Runs `work` on the attributes of a locked inode.
    pub fn attributes<T>(
        &mut self,
        state: &mut LockedInode,
        work: impl FnOnce(&mut Attributes<'_>) -> std::result::Result<T, error::Error>,
    ) -> Result<T> {
        self.attributes_with_claims(Vec::new(), state, work)
    }

    /// Like [`attributes`](Self::attributes), with the claimed blocks of a remote value.
    fn attributes_with_claims<T>(
        &mut self,
        claims: Vec<Claim>,
        state: &mut LockedInode,
        work: impl FnOnce(&mut Attributes<'_>) -> std::result::Result<T, error::Error>,
    ) -> Result<T> {
        self.tx.expect_readable()?;
        let volume = self.volume;
        let tree_blocks = self.blocks.left().saturating_sub(claims.iter().map(Claim::count).sum());
        let mut space = GroupSpace::for_metadata(&volume.groups, &mut self.blocks).with_claims(claims);
        let shared = volume.inode_cache.shared();
        let attributes = Attributes::new(shared, &mut self.tx, &mut space, state, tree_blocks);
        let result = attributes.and_then(|mut attributes| work(&mut attributes));
        Ok(self.tx.settle(result, state)?)
    }

    /// Sets an attribute. A remote value is written to the blocks claimed for it.
    pub fn put_attribute(&mut self, state: &mut LockedInode, key: &AttrKey<'_>, value: &[u8]) -> Result<()> {
        if is_inline(key, value.len(), &self.volume.geometry) {
            return self.attributes(state, |attributes| attributes.set(key, &NewAttrValue::Inline(value)));
        }
        let claims = std::mem::take(&mut self.value_claims);
        let runs = remote_value::runs(&claims);
        remote_value::write(self.volume.inode_cache.shared(), &mut self.tx, state.ino(), &runs, value)?;
        let new = NewAttrValue::Remote { runs: &runs, length: value.len() as u32 }; // at most 64 KiB
        self.attributes_with_claims(claims, state, |attributes| attributes.set(key, &new))
    }
}
