//! Watching directories for changes of their names, as `inotify` does.
//!
//! | part | subject |
//! |---|---|
//! | [`Watch`] | receives the events of the directories that it watches |
//! | [`WatchEvent`] | what changed |
//! | `watches` | the watched directories of a volume, and the queues of their watches |
//!
//! An operation that changes the entries of a watched directory collects events. `Operation::commit` adds them to the
//! queues when the transaction is committed, while the directories are still locked.
//!
//! # Invariants
//! - The events of a directory are in the order of its changes, and there is one for each change of a name.
//! - An operation that fails has no events.
//! - A flag in the state of the inode says that a directory may be watched. It is set while the directory is locked. It
//!   is cleared by the first change that finds no watch, so that ending a watch does not wait for the directory.
//!
//! # Locking
//! The map of watched directories has rank `Cache`. Each queue has rank `Leaf`; a thread that receives takes only that
//! lock.

mod event;
mod watches;

use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use base::errno;
pub(crate) use event::{Events, id_of};
pub use event::{WatchEvent, WatchedName};
use inode::{InodeState, LockedInode};
use watches::Queue;
pub(crate) use watches::Watches;

use crate::operation::{Operation, expect_directory};
use crate::permissions::READ;
use crate::{Dir, Error, FileId};

/// Options of a [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Maximum number of events that wait to be received. When there are more, the watch reports
    /// [`WatchEvent::Overflow`], and loses events until some are received. With 0, it reports only that something
    /// changed. The default is 16,384, as for `inotify`.
    pub events_max: usize,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { events_max: 16_384 }
    }
}

/// Receives events of changes in directories, through all handles and mounts of the volume. Dropping it ends it.
///
/// Methods and errors are those of [`std::sync::mpsc::Receiver`]. A watch is disconnected when it has no directory any
/// more: when all of them were removed, or the volume was unmounted or dropped. Events before that are received first.
///
/// A watch keeps its directories in memory, and follows them when they are moved. A removed directory is not freed as
/// long as a [`Handle`](crate::Handle) refers to it, but its watches end.
///
/// When a call that changes a directory returns, its events are in the queue. An operation that fails has none.
///
/// To follow the names of a directory, a program watches it first, then lists it, and then applies each event to the
/// list: sets or removes the name, also if the listing already shows the change. After an
/// [`Overflow`](WatchEvent::Overflow) it lists the directory again, and continues in the same way.
///
/// Threads may share a watch: each event is received by one of them.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{Dir, Options, Volume, WatchEvent};
///
/// let volume = Volume::open(device, Options::default())?;
/// let root = Dir::root(&volume)?;
/// let watch = root.watch()?;
/// root.write("motd", "Welcome\n")?;
/// root.rename("motd", &root, "issue")?;
/// for event in watch.try_iter() {
///     match event {
///         WatchEvent::Created(name) => assert_eq!(name.name, b"motd"),
///         WatchEvent::MovedFrom { name, .. } => assert_eq!(name.name, b"motd"),
///         WatchEvent::MovedTo { name, .. } => assert_eq!(name.name, b"issue"),
///         other => panic!("{other:?}"),
///     }
/// }
/// # drop(root);
/// volume.unmount()?;
/// assert!(watch.recv().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    watches: Arc<Watches>,
    queue: Arc<Queue>,
}

impl Dir<'_> {
    /// Watches this directory for changes of its names, as `inotify` does. Not of those below its subdirectories.
    ///
    /// # Errors
    /// `EACCES` without permission to read the directory; `ENOENT` if it was removed.
    pub fn watch(&self) -> crate::Result<Watch> {
        self.watch_with(&WatchOptions::default())
    }

    /// Watches this directory, with options.
    ///
    /// # Errors
    /// `EACCES` without permission to read the directory; `ENOENT` if it was removed.
    pub fn watch_with(&self, options: &WatchOptions) -> crate::Result<Watch> {
        let watches = Arc::clone(&self.volume().watches);
        let watch = Watch { watches, queue: Arc::new(Queue::new(options.events_max)) };
        watch.add(self)?;
        Ok(watch)
    }
}

impl Watch {
    /// Watches another directory, too. The events of all directories are in one order: an event of a change that
    /// happened before another change comes before its event. Does nothing if the directory is watched.
    ///
    /// # Errors
    /// `EXDEV` for a directory of another volume; as [`Dir::watch`].
    pub fn add(&self, dir: &Dir<'_>) -> crate::Result<()> {
        let volume = dir.volume();
        if !Arc::ptr_eq(&self.watches, &volume.watches) {
            return Err(Error::refused(errno::EXDEV, "the directory is in another volume"));
        }
        let inode = dir.handle().inode();
        volume.expect_permitted(dir.caller(), inode, READ)?;
        let mut state = inode.lock();
        expect_directory(&state)?;
        self.watches.add(inode, &self.queue);
        state.set_watched(true);
        Ok(())
    }

    /// Ends watching a directory. Events that are in the queue are still received. Returns whether it was watched.
    pub fn remove(&self, dir: FileId) -> bool {
        self.watches.remove(dir.ino, dir.generation, &self.queue)
    }

    /// Returns the next event, without waiting.
    ///
    /// # Errors
    /// `Empty` if there is none yet, `Disconnected` if none will come.
    pub fn try_recv(&self) -> Result<WatchEvent, TryRecvError> {
        let mut state = self.queue.state.lock();
        match state.events.pop_front() {
            Some(event) => Ok(event),
            None if state.dirs.is_empty() => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// No event will come.
    pub fn recv(&self) -> Result<WatchEvent, RecvError> {
        self.wait_until(None).map_err(|_| RecvError)
    }

    /// Waits for the next event, at most for this time.
    ///
    /// # Errors
    /// `Timeout`, or `Disconnected` if no event will come.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<WatchEvent, RecvTimeoutError> {
        // A time that cannot be represented does not come.
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// The events, with waiting for the next one. Ends when no more will come.
    pub fn iter(&self) -> impl Iterator<Item = WatchEvent> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// The events that can be received without waiting.
    pub fn try_iter(&self) -> impl Iterator<Item = WatchEvent> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<WatchEvent, RecvTimeoutError> {
        let mut state = self.queue.state.lock();
        let mut is_late = false;
        loop {
            if let Some(event) = state.events.pop_front() {
                return Ok(event);
            }
            if state.dirs.is_empty() {
                return Err(RecvTimeoutError::Disconnected);
            }
            if is_late {
                return Err(RecvTimeoutError::Timeout);
            }
            match deadline {
                None => self.queue.changed.wait(&mut state),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    is_late = !self.queue.changed.wait_for(&mut state, left);
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.remove_all(&self.queue);
    }
}

impl Operation<'_> {
    /// Reports a change of a name in a locked directory to its watches, if it has any, when the operation is committed.
    #[inline]
    pub(crate) fn report(
        &mut self,
        dir: &mut LockedInode,
        name: &[u8],
        file: &InodeState,
        event: fn(WatchedName) -> WatchEvent,
    ) {
        if dir.is_watched() {
            self.report_watched(dir, name, file, event);
        }
    }

    #[cold]
    fn report_watched(
        &mut self,
        dir: &mut LockedInode,
        name: &[u8],
        file: &InodeState,
        event: fn(WatchedName) -> WatchEvent,
    ) {
        if self.is_watched(dir) {
            self.events.push(event(WatchedName::new(dir, name, file)));
        }
    }

    /// Reports that a locked directory was removed.
    #[inline]
    pub(crate) fn report_removed(&mut self, dir: &mut LockedInode) {
        if self.is_watched(dir) {
            self.events.push(WatchEvent::DirRemoved { dir: id_of(dir) });
        }
    }

    /// Whether a locked directory is watched.
    #[inline]
    pub(crate) fn is_watched(&self, dir: &mut LockedInode) -> bool {
        dir.is_watched() && self.has_watch(dir)
    }

    #[cold]
    fn has_watch(&self, dir: &mut LockedInode) -> bool {
        let is_watched = self.volume.watches.has(dir.ino());
        dir.set_watched(is_watched);
        is_watched
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Dir, NewFile, Options, Volume};

    /// The first change after a watch has ended finds the flag set. Later ones must not look for watches any more.
    #[test]
    fn a_change_without_a_watch_clears_the_flag() {
        let device = Arc::new(block::MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let root = Dir::root(&volume).unwrap();
        let is_watched = || root.handle().inode().read().is_watched();
        assert!(!is_watched());
        let watch = root.watch().unwrap();
        assert!(is_watched());
        root.create_with("a", &NewFile::regular()).unwrap();
        assert!(is_watched());
        drop(watch);
        root.create_with("b", &NewFile::regular()).unwrap();
        assert!(!is_watched());
        let watch = root.watch().unwrap();
        assert!(watch.remove(root.handle().id()));
        root.rename("b", &root, "c").unwrap();
        assert!(!is_watched());
        drop(root);
        volume.unmount().unwrap();
    }
}
