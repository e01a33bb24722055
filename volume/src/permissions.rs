//! Users, and the permissions that files give them.
//!
//! A [`Volume`] is a library object: it checks no permissions, as a program that opens an image owns all of it. A
//! [`Dir`](crate::Dir) with [`Credentials`] acts for a user. Its calls check what Linux checks, in the same order,
//! while the files are locked: no change of permissions comes between a check and what it allows.

use std::sync::Arc;

use base::errno;
use format::attr::Namespace;
use format::attr::acl::{self, AclEntry, tag};
use format::inode::FileType;
use inode::attr::AttrKey;
use inode::state::InodeState;
use inode::{Inode, InodeRef, InodeStat, LockedInode};

use crate::new_file::{DeviceNumber, NewFile, NewFileType};
use crate::operation::{Operation, is_directory};
use crate::recover::damaged;
use crate::{Error, Result, SetMetadata, Volume};

/// Permission to read, a bit of the mode.
pub(crate) const READ: u16 = 4;
/// Permission to write.
pub(crate) const WRITE: u16 = 2;
/// Permission to execute a file, or to look names up in a directory.
pub(crate) const EXECUTE: u16 = 1;

const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;
/// The permissions of the group class. They limit all entries of an ACL but those of the owner and others.
const GROUP_CLASS: u16 = 0o070;

/// The attribute that holds the access control list (ACL).
pub(crate) const ACCESS_ACL: AttrKey<'static> = AttrKey::new(Namespace::Trusted, acl::ACCESS);

/// A user, whose permissions are checked.
///
/// User 0 has all capabilities of root, every other user none.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{Credentials, Dir, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let root = Dir::open(&volume, "/")?;
/// root.create_dir("home")?;
/// let alice = root.clone().with_credentials(Credentials::new(1000, 1000).groups([27]));
/// assert_eq!(alice.write("home/file", "text").unwrap_err().errno(), base::errno::EACCES);
/// # drop((alice, root));
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    umask: u16,
}

impl Credentials {
    /// A user and the user's primary group, without other groups, with the umask 022.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new(), umask: 0o022 }
    }

    /// Other groups that the user is a member of.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = u32>) -> Self {
        self.groups = groups.into_iter().collect();
        self
    }

    /// Permission bits that new files do not get.
    #[must_use]
    pub fn umask(mut self, umask: u16) -> Self {
        self.umask = umask & 0o777;
        self
    }

    /// User ID.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// ID of the primary group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Whether the user has root's capabilities.
    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn is_member(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether the mode of a file gives the user all `wanted` permissions, without regard to an ACL and to
    /// capabilities.
    fn permitted_by_mode(&self, file: &InodeStat, wanted: u16) -> bool {
        let shift = match () {
            () if file.uid == self.uid => 6,
            () if self.is_member(file.gid) => 3,
            () => 0,
        };
        file.mode >> shift & wanted == wanted
    }

    /// Whether the user may look names up in a directory; `false` if its published metadata do not say so.
    pub(crate) fn may_search(&self, dir: &Inode) -> bool {
        dir.published_stat().is_some_and(|stat| self.permitted(&stat, EXECUTE) == Some(true))
    }

    /// Whether the entries of an ACL give the user all `wanted` permissions. The user is not the file's owner.
    fn by_acl(&self, entries: &[AclEntry], file_group: u32, wanted: u16) -> bool {
        let permissions = |entry: &AclEntry| entry.ae_perm.get();
        let find = |tag| entries.iter().find(|entry| entry.ae_tag.get() == tag);
        let mask = find(tag::MASK).map_or(0o7, permissions);
        let is = |entry: &&AclEntry, tag, id| entry.ae_tag.get() == tag && entry.ae_id.get() == id;
        if let Some(user) = entries.iter().find(|entry| is(entry, tag::USER, self.uid)) {
            return permissions(user) & mask & wanted == wanted;
        }
        let of_groups = |entry: &&AclEntry| match entry.ae_tag.get() {
            tag::GROUP_OBJ => self.is_member(file_group),
            tag::GROUP => self.is_member(entry.ae_id.get()),
            _ => false,
        };
        let mut groups = entries.iter().filter(of_groups).map(permissions).peekable();
        if groups.peek().is_some() {
            // One group must give all of them.
            return groups.any(|group| group & mask & wanted == wanted);
        }
        find(tag::OTHER).is_some_and(|other| permissions(other) & wanted == wanted)
    }

    /// Whether root's capabilities give permissions that the file with this mode does not.
    fn overrides(&self, mode: u16, wanted: u16) -> bool {
        let is_directory = FileType::from_mode(mode) == Some(FileType::Directory);
        self.is_root() && (is_directory || wanted & EXECUTE == 0 || mode & 0o111 != 0)
    }

    /// Whether a file gives the user all `wanted` permissions; `None` if an ACL may decide that.
    ///
    /// An ACL decides nothing about the owner, and nothing if the mode gives the group class nothing: that class has
    /// all entries but those of the owner and of others.
    fn permitted(&self, file: &InodeStat, wanted: u16) -> Option<bool> {
        match self.overrides(file.mode, wanted) {
            true => Some(true),
            false if file.may_have_attributes && file.uid != self.uid && file.mode & GROUP_CLASS != 0 => None,
            false => Some(self.permitted_by_mode(file, wanted)),
        }
    }

    fn owns(&self, state: &InodeState) -> bool {
        self.is_root() || state.core().uid.get() == self.uid
    }
}

/// Who makes a call: a user, or the program itself, to which everything is permitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'c>(Option<&'c Arc<Credentials>>);

impl<'c> Caller<'c> {
    /// The program.
    pub const PROGRAM: Self = Self(None);

    pub fn new(credentials: Option<&'c Arc<Credentials>>) -> Self {
        Self(credentials)
    }

    /// The user, if permissions are checked.
    pub fn user(self) -> Option<&'c Arc<Credentials>> {
        self.0
    }

    /// Whether permissions must be checked.
    pub fn is_user(self) -> bool {
        self.0.is_some()
    }

    /// Whether the caller is root or the program.
    pub fn is_privileged(self) -> bool {
        self.0.is_none_or(|user| user.is_root())
    }

    /// Whether the caller is a member of a file's group, or privileged.
    pub fn is_member_of_group(self, state: &InodeState) -> bool {
        self.0.is_none_or(|user| user.is_root() || user.is_member(state.core().gid.get()))
    }

    /// Refuses a change that only root may make.
    pub fn expect_privileged(self) -> Result<()> {
        match self.is_privileged() {
            true => Ok(()),
            false => Err(Error::refused(errno::EPERM, "only root may do this")),
        }
    }

    /// Refuses a change that only the owner of a file may make.
    pub fn expect_owner(self, state: &InodeState) -> Result<()> {
        match self.0 {
            Some(user) if !user.owns(state) => Err(NOT_OWNER),
            _ => Ok(()),
        }
    }

    /// Refuses to remove a file from a directory with the sticky bit, unless the caller owns one of both.
    pub fn expect_not_sticky(self, dir: &InodeState, child: &InodeState) -> Result<()> {
        match self.0 {
            Some(user) if dir.mode() & STICKY != 0 && !user.owns(child) && !user.owns(dir) => {
                Err(Error::refused(errno::EPERM, "the directory has the sticky bit, and another user's file"))
            }
            _ => Ok(()),
        }
    }

    /// A new file as the caller may create it: it belongs to the user.
    pub fn owned<'n>(self, new: &NewFile<'n>) -> Result<NewFile<'n>> {
        let Some(user) = self.0 else { return Ok(new.clone()) };
        let is_users = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"system.");
        if !user.is_root() && !new.attributes.iter().all(|(name, _)| is_users(name)) {
            return Err(Error::refused(errno::EPERM, "only root sets attributes of this namespace"));
        }
        Ok(NewFile { uid: user.uid, gid: user.gid, umask: user.umask, ..new.clone() })
    }

    /// Refuses device files that a user creates, except whiteouts.
    #[inline]
    pub fn expect_type_allowed(self, new: &NewFile<'_>) -> Result<()> {
        const WHITEOUT: DeviceNumber = DeviceNumber { major: 0, minor: 0 };
        match new.file_type {
            NewFileType::CharDevice(WHITEOUT) => Ok(()),
            NewFileType::CharDevice(_) | NewFileType::BlockDevice(_) if !self.is_privileged() => {
                Err(Error::refused(errno::EPERM, "only root creates device files"))
            }
            _ => Ok(()),
        }
    }

    /// The set-ID bits that a file loses when the caller writes to it or gives it to another owner. A set-group-ID bit
    /// without permission to execute has no effect, but for a user who is not a member of the group it goes, too.
    pub fn set_id_to_remove(self, state: &InodeState) -> u16 {
        let mode = state.mode();
        let set_gid = if mode & GROUP_EXECUTE != 0 || !self.is_member_of_group(state) { SET_GID } else { 0 };
        mode & (SET_UID | set_gid)
    }

    /// Removes the set-group-ID bit from the mode of a new program that gets its group from its directory, unless the
    /// caller is a member of the group: the program would run with rights that the caller does not have.
    #[inline]
    pub fn restrict_mode(self, dir: &InodeState, file: &mut LockedInode) {
        const PROGRAM: u16 = SET_GID | GROUP_EXECUTE;
        if !self.is_user() {
            return;
        }
        let (mode, inherits_group) = (file.mode(), dir.mode() & SET_GID != 0);
        if mode & PROGRAM == PROGRAM && inherits_group && !self.is_member_of_group(dir) && !is_directory(file)
        {
            file.set_mode(mode & !SET_GID);
        }
    }

    /// Refuses changes of metadata that the caller may not make. Returns the permission bits to set.
    pub fn expect_settable(self, state: &InodeState, set: &SetMetadata) -> Result<Option<u16>> {
        let Some(user) = self.0 else { return Ok(set.permissions) };
        if set.changed.is_some() {
            return Err(Error::refused(errno::EPERM, "users cannot set the change time"));
        }
        if user.is_root() {
            return Ok(set.permissions);
        }
        let (owner, group) = (state.core().uid.get(), state.core().gid.get());
        if set.uid.is_some_and(|new| user.uid != owner || new != owner) {
            return Err(Error::refused(errno::EPERM, "only root gives a file to another user"));
        }
        if set.gid.is_some_and(|new| user.uid != owner || (new != group && !user.is_member(new))) {
            let why = "only the owner changes the group of a file, to a group that the owner is a member of";
            return Err(Error::refused(errno::EPERM, why));
        }
        if (set.permissions.is_some() || set.accessed.is_some() || set.modified.is_some())
            && user.uid != owner
        {
            return Err(NOT_OWNER);
        }
        let is_member = user.is_member(set.gid.unwrap_or(group));
        Ok(set.permissions.map(|bits| if is_member { bits } else { bits & !SET_GID }))
    }
}

const NOT_OWNER: Error = Error::refused(errno::EPERM, "only the owner of the file may do this");
const DENIED: Error = Error::refused(errno::EACCES, "permission denied");

impl Operation<'_> {
    /// Refuses what the permissions of a locked file do not give the caller. Its buffers are released.
    #[inline]
    pub fn expect_permitted(
        &mut self,
        caller: Caller<'_>,
        state: &mut LockedInode,
        wanted: u16,
    ) -> Result<()> {
        caller.0.map_or(Ok(()), |user| self.expect_user_permitted(user, state, wanted))
    }

    /// Not inlined: the program's own calls check nothing, and are the ones that must be fast.
    #[inline(never)]
    fn expect_user_permitted(
        &mut self,
        user: &Credentials,
        state: &mut LockedInode,
        wanted: u16,
    ) -> Result<()> {
        let stat = InodeStat::of(&state.dinode());
        let permitted = match user.permitted(&stat, wanted) {
            Some(permitted) => permitted,
            None => match self.access_acl(state)? {
                Some(value) => {
                    let entries = acl::entries(&value).map_err(|damage| damaged(state.ino(), damage))?;
                    user.by_acl(entries, stat.gid, wanted)
                }
                None => user.permitted_by_mode(&stat, wanted),
            },
        };
        if permitted { Ok(()) } else { Err(DENIED) }
    }

    /// The ACL of a file, if it has one.
    fn access_acl(&mut self, state: &mut LockedInode) -> Result<Option<Vec<u8>>> {
        // The caller may have an entry's blocks locked, which are looked up again when they are used.
        self.tx.release_clean();
        let value = self.attributes(state, |attributes| attributes.get(&ACCESS_ACL))?;
        self.tx.release_clean();
        Ok(value)
    }
}

impl Volume {
    /// Refuses what the permissions of a file do not give the caller.
    pub(crate) fn expect_permitted(&self, caller: Caller<'_>, file: &InodeRef, wanted: u16) -> Result<()> {
        let Some(user) = caller.0 else { return Ok(()) };
        match user.permitted(&file.stat(), wanted) {
            Some(true) => Ok(()),
            Some(false) => Err(DENIED),
            None => self.reader()?.expect_permitted(caller, &mut file.lock(), wanted),
        }
    }
}
