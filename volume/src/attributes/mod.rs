//! Extended attributes, by the names that Linux programs know.
//!
//! | name | stored |
//! |---|---|
//! | `user.NAME` | as it is; regular files and directories alone have such |
//! | `trusted.NAME`, `security.NAME` | as it is |
//! | `system.posix_acl_access` | in the disk's form, and in the permission bits; only there, where these say it all |
//! | `system.posix_acl_default` | in the disk's form; directories alone have it |
//!
//! On volumes with parent pointers each name of a file is an attribute, too, which is not shown here.

mod recover;

use std::sync::atomic::Ordering;

use ag::Claim;
use base::{Ino, errno};
use format::attr::{MAX_VALUE, Namespace, acl, remote};
use format::features::version;
use format::inode::FileType;
use format::ondisk::{OnDisk, U16};
use format::superblock::RawSuperblock;
use inode::InodeRef;
use inode::attr::{AttrKey, Attributes, NewAttrValue, is_inline, remote as values};
use inode::group_space::GroupSpace;
use inode::state::InodeTime;

use crate::checks::expect_changeable;
use crate::operation::{Locked, Operation};
use crate::superblock::lock_superblock;
use crate::{Error, NewFile, Result, Volume};

/// Longest name, its prefix included.
const MAX_NAME: usize = 255;

/// What happens where the attribute exists, and where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SetAttribute {
    /// It is set in either case.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// What a name stands for on disk.
#[derive(Clone, Copy)]
pub(crate) struct Name<'n> {
    pub key: AttrKey<'n>,
    /// An access control list, in Linux's form.
    list: Option<List>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Access,
    Default,
}

const NO_SUCH: Error = Error::refused(errno::ENODATA, "there is no attribute of this name");

impl<'n> Name<'n> {
    fn parse(name: &'n [u8]) -> Result<Self> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::refused(errno::ERANGE, "an attribute's name has 1 to 255 bytes"));
        }
        let list =
            |stored, list| Ok(Self { key: AttrKey::new(Namespace::Trusted, stored), list: Some(list) });
        if name == acl::LINUX_ACCESS.as_bytes() {
            return list(acl::ACCESS, List::Access);
        }
        if name == acl::LINUX_DEFAULT.as_bytes() {
            return list(acl::DEFAULT, List::Default);
        }
        for namespace in [Namespace::User, Namespace::Trusted, Namespace::Security] {
            let rest = namespace.prefix().and_then(|prefix| name.strip_prefix(prefix.as_bytes()));
            match rest {
                Some(rest) if rest.is_empty() || rest.contains(&0) => {
                    let why = "an attribute's name goes on behind its prefix, and has no NUL";
                    return Err(Error::refused(errno::EINVAL, why));
                }
                Some(rest) => return Ok(Self { key: AttrKey::new(namespace, rest), list: None }),
                None => {}
            }
        }
        let why = "an attribute's name begins with user., trusted. or security., or is that of an access control list";
        Err(Error::refused(errno::EOPNOTSUPP, why))
    }

    /// Refuses what a file of this kind does not have.
    fn expect_fits(&self, kind: Option<FileType>) -> Result<()> {
        if self.key.namespace == Namespace::User
            && !matches!(kind, Some(FileType::Regular | FileType::Directory))
        {
            return Err(Error::refused(errno::EPERM, "only files and directories have attributes of users"));
        }
        match self.list {
            Some(List::Default) if kind != Some(FileType::Directory) => {
                Err(Error::refused(errno::EACCES, "only directories have a list for new files"))
            }
            Some(_) if kind == Some(FileType::Symlink) => {
                Err(Error::refused(errno::EOPNOTSUPP, "symbolic links have no access control list"))
            }
            _ => Ok(()),
        }
    }
}

/// What is to be set: a value as the disk has it, or nothing, and permission bits that go with it.
pub(crate) struct Wanted<'v> {
    pub value: Option<std::borrow::Cow<'v, [u8]>>,
    pub permissions: Option<u16>,
}

/// An attribute that a new file shall have.
pub(crate) type Given<'g> = (Name<'g>, Wanted<'g>);

/// The attributes that are asked for of a new file.
///
/// # Errors
/// As [`Volume::set_attribute`] for a file of its kind.
pub(crate) fn given<'g>(new: &NewFile<'g>) -> Result<Vec<Given<'g>>> {
    let one = |(name, value): &(&'g [u8], &'g [u8])| {
        let name = Name::parse(name)?;
        name.expect_fits(Some(new.inode_type()))?;
        Ok((name, Wanted::of(&name, value)?))
    };
    new.attributes.iter().map(one).collect()
}

impl<'v> Wanted<'v> {
    fn of(name: &Name<'_>, value: &'v [u8]) -> Result<Self> {
        if value.len() > MAX_VALUE as usize {
            return Err(Error::refused(errno::E2BIG, "an attribute's value has at most 64 KiB"));
        }
        let Some(list) = name.list else { return Ok(Self { value: Some(value.into()), permissions: None }) };
        let bad =
            |_| Error::refused(errno::EINVAL, "the value is no access control list in the form of Linux");
        let read = acl::from_linux(value).map_err(bad)?;
        Ok(match list {
            List::Default => Self { value: Some(read.value.into()), permissions: None },
            List::Access => Self {
                value: (!read.is_mode).then(|| read.value.into()),
                permissions: Some(read.permissions),
            },
        })
    }
}

impl Volume {
    /// Sets an attribute.
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` as `how` says; `EOPNOTSUPP` for a name with another prefix, `ERANGE` for one that is too
    /// long, `E2BIG` for such a value; `EPERM`, `EACCES` where a file of this kind has no such attribute; `EPERM` for
    /// a file that is immutable or may only be appended to; `EINVAL` for what is no access control list; `ENOSPC`.
    pub fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], how: SetAttribute) -> Result<()> {
        let name = Name::parse(name)?;
        let wanted = Wanted::of(&name, value)?;
        let inode = self.inode(ino)?;
        self.note_attributes()?;
        self.retry_on_enospc(|| self.try_set(&inode, &name, &wanted, how))
    }

    pub(crate) fn try_set(
        &self,
        inode: &InodeRef,
        name: &Name<'_>,
        wanted: &Wanted<'_>,
        how: SetAttribute,
    ) -> Result<()> {
        let length = wanted.value.as_deref().map_or(0, <[u8]>::len);
        let change = self.begin_attribute(inode.ino(), self.value_bytes(&name.key, length))?;
        self.set_within(change, inode, (name, wanted), how)
    }

    fn set_within(
        &self,
        mut change: Operation<'_>,
        inode: &InodeRef,
        (name, wanted): (&Name<'_>, &Wanted<'_>),
        how: SetAttribute,
    ) -> Result<()> {
        let value = wanted.value.as_deref();
        let mut state = inode.lock();
        expect_changeable(&state)?;
        name.expect_fits(FileType::from_mode(state.mode()))?;
        if how != SetAttribute::Any {
            let exists = change.attributes(&mut state, |attributes| attributes.has(&name.key))?;
            match (how, exists) {
                (SetAttribute::Create, true) => {
                    return Err(Error::refused(errno::EEXIST, "the attribute exists"));
                }
                (SetAttribute::Replace, false) => return Err(NO_SUCH),
                _ => {}
            }
        }
        match value {
            None => drop(change.attributes(&mut state, |attributes| attributes.remove(&name.key))?),
            Some(value) => change.put_attribute(&mut state, &name.key, value)?,
        }
        if let Some(permissions) = wanted.permissions {
            let mode = state.mode();
            state.set_mode(mode & !0o777 | permissions);
        }
        self.touch(&mut state, &[InodeTime::Change]);
        change.commit(&mut [&mut state])
    }

    /// Bytes of a value that takes blocks of its own; `None` of one that lies beside its name.
    pub(crate) fn value_bytes(&self, key: &AttrKey<'_>, length: usize) -> Option<u32> {
        (!is_inline(key, length, &self.geometry)).then_some(length as u32) // at most 64 KiB
    }

    /// Begins a change of an attribute. Where its value takes blocks of its own, they are claimed.
    pub(crate) fn begin_attribute(&self, ino: Ino, value: Option<u32>) -> Result<Operation<'_>> {
        let need = self.reservations.attribute_blocks;
        let Some(length) = value else { return self.begin_freeing(self.reservations.attribute, need) };
        let blocks = self.groups.reserve_blocks(need + remote::block_count(length, &self.geometry))?;
        let most = self.reservations.most_pieces;
        let claims = values::claim(self.inode_cache.shared(), &self.groups, ino, length, most)?;
        self.begin_reserved(self.reservations.attribute_in_pieces(claims.len()), blocks, claims)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `ENODATA` where there is none; as [`set_attribute`](Self::set_attribute).
    pub fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let name = Name::parse(name)?;
        let inode = self.inode(ino)?;
        self.retry_on_enospc(|| {
            let mut change =
                self.begin_freeing(self.reservations.attribute, self.reservations.attribute_blocks)?;
            let mut state = inode.lock();
            expect_changeable(&state)?;
            name.expect_fits(FileType::from_mode(state.mode()))?;
            if !change.attributes(&mut state, |attributes| attributes.remove(&name.key))? {
                return Err(NO_SUCH);
            }
            self.touch(&mut state, &[InodeTime::Change]);
            change.commit(&mut [&mut state])
        })
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA` where there is none, `EOPNOTSUPP` for a name with another prefix; damage.
    pub fn get_attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let name = Name::parse(name)?;
        let inode = self.inode(ino)?;
        let mut reader = self.reader()?;
        let mut state = inode.lock();
        let found = reader.attributes(&mut state, |attributes| attributes.get(&name.key))?.ok_or(NO_SUCH)?;
        if name.list.is_none() {
            return Ok(found);
        }
        acl::to_linux(&found).map_err(|damage| error::Error::damaged(format::Place::ino(ino), damage).into())
    }

    /// The names of a file's attributes: access control lists under Linux's names, parent pointers not at all.
    ///
    /// # Errors
    /// Damage.
    pub fn list_attributes(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        if inode.read().attr_offset() == 0 {
            return Ok(Vec::new());
        }
        let mut reader = self.reader()?;
        let all = reader.attributes(&mut inode.lock(), |attributes| attributes.list())?;
        let shown = all.iter().filter_map(|attr| {
            if let Some(list) = acl::linux_name(attr.namespace, &attr.name) {
                return Some(list.as_bytes().to_vec());
            }
            Some([attr.namespace.prefix()?.as_bytes(), &attr.name].concat())
        });
        Ok(shown.collect())
    }

    /// Notes in the superblock that the volume has attributes, as Linux does with the first.
    pub(crate) fn note_attributes(&self) -> Result<()> {
        if self.has_attributes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut change = self.begin(self.reservations.superblock)?;
        let id = lock_superblock(&mut change.tx, &self.geometry)?;
        let found = RawSuperblock::view(change.tx.bytes(id)).map_or(0, |raw| raw.versionnum.get());
        if found != 0 && found & version::ATTR == 0 {
            let field = std::mem::offset_of!(RawSuperblock, versionnum);
            let new = U16::new(found | version::ATTR);
            change.tx.bytes_mut(id, field..field + 2).copy_from_slice(&new.to_bytes());
        }
        change.commit(&mut [])?;
        self.has_attributes.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Operation<'_> {
    /// Works on the attributes of a locked inode.
    pub fn attributes<T>(
        &mut self,
        state: &mut Locked,
        work: impl FnOnce(&mut Attributes<'_>) -> std::result::Result<T, error::Error>,
    ) -> Result<T> {
        self.attributes_with(Vec::new(), state, work)
    }

    /// The same with blocks that are claimed for a value.
    fn attributes_with<T>(
        &mut self,
        claims: Vec<Claim>,
        state: &mut Locked,
        work: impl FnOnce(&mut Attributes<'_>) -> std::result::Result<T, error::Error>,
    ) -> Result<T> {
        let volume = self.volume;
        let room = self.blocks.left().saturating_sub(claims.iter().map(Claim::count).sum());
        let mut space = GroupSpace::for_metadata(&volume.groups, &mut self.blocks).with_claims(claims);
        let attributes = Attributes::new(volume.inode_cache.shared(), &mut self.tx, &mut space, state, room);
        let done = attributes.and_then(|mut attributes| work(&mut attributes));
        Ok(self.tx.settle(done, state)?)
    }

    /// Sets an attribute. A value that takes blocks of its own is written to those that are claimed for it.
    pub fn put_attribute(&mut self, state: &mut Locked, key: &AttrKey<'_>, value: &[u8]) -> Result<()> {
        if is_inline(key, value.len(), &self.volume.geometry) {
            return self.attributes(state, |attributes| attributes.set(key, &NewAttrValue::Inline(value)));
        }
        let claims = std::mem::take(&mut self.value);
        let runs = values::runs(&claims);
        values::write(self.volume.inode_cache.shared(), &mut self.tx, state.ino(), &runs, value)?;
        let new = NewAttrValue::Remote { runs: &runs, length: value.len() as u32 }; // at most 64 KiB
        self.attributes_with(claims, state, |attributes| attributes.set(key, &new))
    }
}
