//! What to change of a file that stays.

use std::borrow::Cow;

use base::Ino;
use format::attr::{Namespace, acl};
use format::inode::{FileType, flags};
use volume::settings::HINTS;
use volume::{Metadata, SetAttribute, SetMetadata, Settings, UncachedStat, Volume};

use crate::file_id::FileId;
use crate::item::{Facts, KEPT_FLAGS, kept};
use crate::writer::{HANDED_DOWN, SET_GROUP};

/// Flags that tell a directory to hand something down, and those that keep it as it is.
const HANDS_DOWN: u32 = (flags::PROJINHERIT | flags::IMMUTABLE | flags::APPEND) as u32;

/// What to change of a file that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amend {
    owner: Option<(u32, u32)>,
    /// By name: other values, or none any more.
    attributes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    permissions: Option<u16>,
    times: SetMetadata,
    /// Project, flags and hints.
    settings: Option<Settings>,
    /// As it is, nothing can be changed of it.
    is_locked: bool,
}

impl Amend {
    /// What a file lacks to be as the facts tell. Project and flags are looked at where they are known.
    pub fn of(
        volume: &Volume,
        there: &UncachedStat,
        facts: &Facts,
        with_settings: bool,
    ) -> volume::Result<Self> {
        let known = &there.metadata;
        let owner = (known.uid, known.gid) != (facts.uid, facts.gid);
        let attributes = attributes(volume, there, facts)?;
        let mode = known.permissions != facts.permissions;
        let times = facts.modified.is_some_and(|time| time != known.modified);
        let settings = match with_settings {
            true => differing(volume, known, &facts.settings)?,
            false => None,
        };
        let times = match times {
            true => {
                SetMetadata { accessed: facts.accessed, modified: facts.modified, ..SetMetadata::default() }
            }
            false => SetMetadata::default(),
        };
        Ok(Self {
            owner: owner.then_some((facts.uid, facts.gid)),
            // Another owner takes bits away, and so does another list.
            permissions: (mode || owner || !attributes.is_empty()).then_some(facts.permissions),
            attributes,
            times,
            settings,
            is_locked: known.flags & (flags::IMMUTABLE | flags::APPEND) != 0,
        })
    }

    /// The times that a directory has now, to be given back when all in it is changed.
    pub fn keeping_times(known: &Metadata) -> Self {
        let (accessed, modified) = (Some(known.accessed), Some(known.modified));
        let times = SetMetadata { accessed, modified, ..SetMetadata::default() };
        Self { times, ..Self::default() }
    }

    /// Files are about to be made in this directory, or taken out of it: until this is applied it hands nothing down to
    /// them, neither a list, nor its group, nor its project.
    pub fn open_up(mut self, volume: &Volume, known: &Metadata) -> volume::Result<Self> {
        let mut settings = volume.settings(known.ino)?;
        let before = kept(settings);
        if settings.xflags & HANDS_DOWN != 0 {
            settings.xflags &= !HANDS_DOWN;
            volume.set_settings(known.ino, &settings)?;
            self.settings.get_or_insert(before);
        }
        if known.permissions & SET_GROUP != 0 {
            let permissions = Some(known.permissions & !SET_GROUP);
            volume.set_metadata(known.ino, &SetMetadata { permissions, ..SetMetadata::default() })?;
            self.permissions.get_or_insert(known.permissions);
        }
        if volume.list_attributes(known.ino)?.iter().any(|name| name == HANDED_DOWN) {
            let list = volume.get_attribute(known.ino, HANDED_DOWN)?;
            volume.remove_attribute(known.ino, HANDED_DOWN)?;
            if !self.attributes.iter().any(|(name, _)| name == HANDED_DOWN) {
                self.attributes.push((HANDED_DOWN.into(), Some(list)));
            }
        }
        self.is_locked = false;
        Ok(self)
    }

    /// The same, with times to be set whether they differ or not.
    pub fn with_times_of(self, known: &Metadata) -> Self {
        match self.times.modified {
            Some(_) => self,
            None => Self { times: Self::keeping_times(known).times, ..self },
        }
    }

    /// In place of what was to be done to a directory that was [opened up](Self::open_up), of which this one knows all
    /// but its settings, and maybe its times.
    pub fn instead_of(self, before: Self) -> Self {
        let times = if self.times.modified.is_some() { self.times } else { before.times };
        Self { times, settings: self.settings.or(before.settings), ..self }
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        *self == Self { is_locked: self.is_locked, ..Self::default() }
    }

    /// Changes the file, unless it was removed meanwhile.
    pub fn apply_if_there(&self, volume: &Volume, id: FileId) -> volume::Result<()> {
        if id.exists(volume)? { self.apply(volume, id.ino) } else { Ok(()) }
    }

    /// Changes the file.
    pub fn apply(&self, volume: &Volume, ino: Ino) -> volume::Result<()> {
        let locked = u32::from(flags::IMMUTABLE | flags::APPEND);
        let mut settings = volume.settings(ino)?;
        let wanted = self.settings.unwrap_or_else(|| kept(settings));
        if self.is_locked {
            settings.xflags &= !locked;
            volume.set_settings(ino, &settings)?;
        }
        if let Some((uid, gid)) = self.owner {
            let set = SetMetadata { uid: Some(uid), gid: Some(gid), ..SetMetadata::default() };
            volume.set_metadata(ino, &set)?;
        }
        for (name, value) in &self.attributes {
            match value {
                Some(value) => volume.set_attribute(ino, name, value, SetAttribute::Any)?,
                None => volume.remove_attribute(ino, name)?,
            }
        }
        let set = SetMetadata { permissions: self.permissions, ..self.times.clone() };
        if set != SetMetadata::default() {
            volume.set_metadata(ino, &set)?;
        }
        if self.is_locked || self.settings.is_some() {
            let others = settings.xflags & !(KEPT_FLAGS | HINTS);
            settings = Settings { xflags: others | wanted.xflags, ..wanted };
            volume.set_settings(ino, &settings)?;
        }
        Ok(())
    }
}

/// The settings that a file is to have, if they are not those that it has. A file with contents keeps its hint for the
/// size of extents, as Linux allows no other.
fn differing(volume: &Volume, known: &Metadata, wanted: &Settings) -> volume::Result<Option<Settings>> {
    let has_hints = (u32::from(known.flags) | wanted.xflags) & HINTS != 0;
    let has = match has_hints {
        true => kept(volume.settings(known.ino)?),
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

/// Whether it is an access control list as XFS keeps it, which the host shows under Linux's name, too.
fn is_shown_twice(name: &[u8]) -> bool {
    name.strip_prefix(b"trusted.").is_some_and(|name| acl::linux_name(Namespace::Trusted, name).is_some())
}

/// Attributes by name, each with the value that it gets; without one it goes.
type Amended = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Attributes that have another value than the facts tell, or that only one of both has.
fn attributes(volume: &Volume, there: &UncachedStat, facts: &Facts) -> volume::Result<Amended> {
    let wanted = &facts.attributes;
    let there = match &there.attributes {
        Some(there) if there.is_empty() && wanted.is_empty() => return Ok(Amended::new()),
        Some(there) => Cow::Borrowed(there),
        None => {
            let ino = there.metadata.ino;
            let value = |name: Vec<u8>| volume.get_attribute(ino, &name).map(|value| (name, value));
            let all = volume.list_attributes(ino)?.into_iter().map(value);
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
