//! What a watch reports.

use base::Ino;
use format::inode::FileType;
use inode::InodeState;

use crate::FileId;

/// A change of a watched directory, or the loss of events.
///
/// Changes of contents and metadata of the files in a directory are not reported: a file does not know its
/// directories, and every write would have to look for them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A name was created: of a new file, another one of an existing file, or that of a whiteout which a rename left
    /// behind.
    Created(WatchedName),
    /// A name was removed.
    Removed(WatchedName),
    /// A rename removed a name. If one [`Watch`](crate::Watch) watches both directories, its next event is the
    /// [`MovedTo`](Self::MovedTo) with the same cookie, or [`Overflow`](Self::Overflow). Otherwise the file went to a
    /// directory that it does not watch.
    MovedFrom {
        /// The old name.
        name: WatchedName,
        /// Number of the rename, unique in the volume.
        cookie: u64,
    },
    /// A rename created a name, or made an existing one refer to another file.
    MovedTo {
        /// The new name.
        name: WatchedName,
        /// Number of the rename. Watches of the old directory got it with [`MovedFrom`](Self::MovedFrom).
        cookie: u64,
        /// The file that the name referred to before.
        replaced: Option<FileId>,
    },
    /// A name was exchanged with another one (`RENAME_EXCHANGE`), and refers to that one's file now. Watches of the
    /// other name's directory get the same event for that name.
    Exchanged {
        /// The name, with the file that it refers to now.
        name: WatchedName,
        /// Number of the exchange: the same for both names.
        cookie: u64,
    },
    /// A watched directory was removed, and is no longer watched.
    DirRemoved {
        /// The directory.
        dir: FileId,
    },
    /// The queue of the watch was full, and events are missing here (`IN_Q_OVERFLOW`). A program that keeps what it
    /// knows of the directories must read them again. A directory whose removal is among the lost events is not watched
    /// any more.
    Overflow,
}

impl WatchEvent {
    /// The name that changed.
    pub fn name(&self) -> Option<&WatchedName> {
        match self {
            Self::Created(name)
            | Self::Removed(name)
            | Self::MovedFrom { name, .. }
            | Self::MovedTo { name, .. }
            | Self::Exchanged { name, .. } => Some(name),
            Self::DirRemoved { .. } | Self::Overflow => None,
        }
    }

    /// Inode number of the directory whose watches get the event.
    pub(super) fn dir(&self) -> Option<Ino> {
        match self {
            Self::DirRemoved { dir } => Some(dir.ino),
            event => event.name().map(|name| name.dir.ino),
        }
    }
}

/// A name in a watched directory, and the file that it refers to, or referred to until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedName {
    /// The directory.
    pub dir: FileId,
    /// Name, as the call had it that changed it: on a volume that ignores case (ascii-ci) the directory may spell it
    /// otherwise.
    pub name: Vec<u8>,
    /// The file. If the program opens it, another thread may have removed it: see
    /// [`Volume::open_id`](crate::Volume::open_id).
    pub file: FileId,
    /// Type of the file; `None` if its inode is damaged.
    pub file_type: Option<FileType>,
}

impl WatchedName {
    /// A name in a locked directory, and its locked file.
    pub(crate) fn new(dir: &InodeState, name: &[u8], file: &InodeState) -> Self {
        let file_type = FileType::from_mode(file.mode());
        Self { dir: id_of(dir), name: name.to_vec(), file: id_of(file), file_type }
    }
}

/// The identity of a locked inode.
pub(crate) fn id_of(state: &InodeState) -> FileId {
    FileId { ino: state.ino(), generation: state.core().generation.get() }
}

/// The events of an operation. Nearly all operations have none: then this is one word, because operations are moved.
#[derive(Debug, Default)]
pub(crate) struct Events(Option<Box<EventList>>);

#[derive(Debug, Default)]
struct EventList(Vec<WatchEvent>);

impl Events {
    pub fn push(&mut self, event: WatchEvent) {
        self.0.get_or_insert_default().0.push(event);
    }

    /// The events, if there are any.
    #[inline]
    pub fn get(&self) -> Option<&[WatchEvent]> {
        self.0.as_ref().map(|list| &list.0[..])
    }
}
