//! Changes of the metadata of a file.

use std::borrow::Cow;

use format::attr::{Namespace, acl};
use format::inode::{FileType, flags};
use volume::settings::HINTS;
use volume::{FileId, Metadata, SetAttribute, SetMetadata, Settings, UncachedStat, Volume};

use crate::item::{EntryMetadata, KEPT_FLAGS, kept};
use crate::tree::exists;
use crate::writer::{DEFAULT_ACL, SET_GROUP};

/// Flags that new files of a directory inherit, and those that forbid changes.
const HANDS_DOWN: u32 = (flags::PROJINHERIT | flags::IMMUTABLE | flags::APPEND) as u32;

/// The changes of a file's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amend {
    owner: Option<(u32, u32)>,
    /// New values of attributes; `None` removes one.
    attributes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    permissions: Option<u16>,
    times: SetMetadata,
    /// Project ID, flags and hints.
    settings: Option<Settings>,
    /// Flags of the file forbid changes.
    is_locked: bool,
}

impl Amend {
    /// Compares a file with its source. Project ID and flags are compared if they are known.
    pub fn of(
        volume: &Volume,
        there: &UncachedStat,
        metadata: &EntryMetadata,
        with_settings: bool,
    ) -> volume::Result<Self> {
        let known = &there.metadata;
        let owner = (known.uid, known.gid) != (metadata.uid, metadata.gid);
        let attributes = attributes(volume, there, metadata)?;
        let mode = known.permissions != metadata.permissions;
        let times = metadata.modified.is_some_and(|time| time != known.modified);
        let settings = match with_settings {
            true => differing(volume, known, &metadata.settings)?,
            false => None,
        };
        let times = match times {
            true => SetMetadata {
                accessed: metadata.accessed,
                modified: metadata.modified,
                ..SetMetadata::default()
            },
            false => SetMetadata::default(),
        };
        Ok(Self {
            owner: owner.then_some((metadata.uid, metadata.gid)),
            // A change of the owner or of the ACL changes permission bits.
            permissions: (mode || owner || !attributes.is_empty()).then_some(metadata.permissions),
            attributes,
            times,
            settings,
            is_locked: known.flags & (flags::IMMUTABLE | flags::APPEND) != 0,
        })
    }

    /// Records the times of a directory, to be restored after changes in it.
    pub fn keeping_times(known: &Metadata) -> Self {
        let (accessed, modified) = (Some(known.accessed), Some(known.modified));
        let times = SetMetadata { accessed, modified, ..SetMetadata::default() };
        Self { times, ..Self::default() }
    }

    /// Prepares a directory for changes: until this is applied, new files do not inherit its default ACL, group or
    /// project.
    pub fn open_up(mut self, volume: &Volume, known: &Metadata) -> volume::Result<Self> {
        let mut settings = volume.settings(known.id())?;
        let before = kept(settings);
        if settings.xflags & HANDS_DOWN != 0 {
            settings.xflags &= !HANDS_DOWN;
            volume.set_settings(known.id(), &settings)?;
            self.settings.get_or_insert(before);
        }
        if known.permissions & SET_GROUP != 0 {
            let permissions = Some(known.permissions & !SET_GROUP);
            volume.set_metadata(known.id(), &SetMetadata { permissions, ..SetMetadata::default() })?;
            self.permissions.get_or_insert(known.permissions);
        }
        if volume.list_attributes(known.id())?.iter().any(|name| name == DEFAULT_ACL) {
            let list = volume.get_attribute(known.id(), DEFAULT_ACL)?;
            volume.remove_attribute(known.id(), DEFAULT_ACL)?;
            if !self.attributes.iter().any(|(name, _)| name == DEFAULT_ACL) {
                self.attributes.push((DEFAULT_ACL.into(), Some(list)));
            }
        }
        self.is_locked = false;
        Ok(self)
    }

    /// Sets the times even if they are equal, unless times to set are already known.
    pub fn with_times_of(self, known: &Metadata) -> Self {
        match self.times.modified {
            Some(_) => self,
            None => Self { times: Self::keeping_times(known).times, ..self },
        }
    }

    /// Replaces the changes of a directory that was [opened up](Self::open_up), except settings, and times if they are
    /// not given.
    pub fn instead_of(self, before: Self) -> Self {
        let times = if self.times.modified.is_some() { self.times } else { before.times };
        Self { times, settings: self.settings.or(before.settings), ..self }
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        *self == Self { is_locked: self.is_locked, ..Self::default() }
    }

    /// Applies the changes, unless the file was removed meanwhile.
    pub fn apply_if_there(&self, volume: &Volume, file: FileId) -> volume::Result<()> {
        if exists(volume, file)? { self.apply(volume, file) } else { Ok(()) }
    }

    /// Applies the changes.
    pub fn apply(&self, volume: &Volume, file: FileId) -> volume::Result<()> {
        let locked = u32::from(flags::IMMUTABLE | flags::APPEND);
        let mut settings = volume.settings(file)?;
        let wanted = self.settings.unwrap_or_else(|| kept(settings));
        if self.is_locked {
            settings.xflags &= !locked;
            volume.set_settings(file, &settings)?;
        }
        if let Some((uid, gid)) = self.owner {
            let set = SetMetadata { uid: Some(uid), gid: Some(gid), ..SetMetadata::default() };
            volume.set_metadata(file, &set)?;
        }
        for (name, value) in &self.attributes {
            match value {
                Some(value) => volume.set_attribute(file, name, value, SetAttribute::Any)?,
                None => volume.remove_attribute(file, name)?,
            }
        }
        let set = SetMetadata { permissions: self.permissions, ..self.times.clone() };
        if set != SetMetadata::default() {
            volume.set_metadata(file, &set)?;
        }
        if self.is_locked || self.settings.is_some() {
            let others = settings.xflags & !(KEPT_FLAGS | HINTS);
            settings = Settings { xflags: others | wanted.xflags, ..wanted };
            volume.set_settings(file, &settings)?;
        }
        Ok(())
    }
}

/// The settings to set, if they differ. A file with contents keeps its extent size hint, as Linux does not allow
/// changing it.
fn differing(volume: &Volume, known: &Metadata, wanted: &Settings) -> volume::Result<Option<Settings>> {
    let has_hints = (u32::from(known.flags) | wanted.xflags) & HINTS != 0;
    let has = match has_hints {
        true => kept(volume.settings(known.id())?),
        false => {
            let xflags = u32::from(known.flags) & KEPT_FLAGS;
            Settings { xflags, project: known.project, ..Settings::default() }
        }
    };
    let mut wanted = *wanted;
    if known.file_type == FileType::Regular && known.blocks > 0 && has.extsize != wanted.extsize {
        let extsize = u32::from(flags::EXTSIZE);
        wanted.extsize = has.extsize;
        wanted.xflags = wanted.xflags & !extsize | has.xflags & extsize;
    }
    Ok((has != wanted).then_some(wanted))
}

/// Whether it is an ACL in the format of XFS, which the host also shows in the format of Linux.
fn is_shown_twice(name: &[u8]) -> bool {
    name.strip_prefix(b"trusted.").is_some_and(|name| acl::linux_name(Namespace::Trusted, name).is_some())
}

/// New values of attributes by name; `None` removes one.
type Amended = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Returns the attributes that differ.
fn attributes(volume: &Volume, there: &UncachedStat, metadata: &EntryMetadata) -> volume::Result<Amended> {
    let wanted = &metadata.attributes;
    let there = match &there.attributes {
        Some(there) if there.is_empty() && wanted.is_empty() => return Ok(Amended::new()),
        Some(there) => Cow::Borrowed(there),
        None => {
            let file = there.metadata.id();
            let value = |name: Vec<u8>| volume.get_attribute(file, &name).map(|value| (name, value));
            let all = volume.list_attributes(file)?.into_iter().map(value);
            Cow::Owned(all.collect::<volume::Result<Vec<_>>>()?)
        }
    };
    let differ =
        wanted.iter().filter(|attribute| !is_shown_twice(&attribute.0) && !there.contains(attribute));
    let mut changes: Amended = differ.map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    let is_gone = |name: &[u8]| !wanted.iter().any(|(wanted, _)| wanted == name);
    let gone = there.iter().filter(|(name, _)| is_gone(name));
    changes.extend(gone.map(|(name, _)| (name.clone(), None)));
    Ok(changes)
}
