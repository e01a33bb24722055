//! Events of renames.

use super::RenameInodes;
use crate::operation::Operation;
use crate::watch::{WatchEvent, WatchedName, id_of};

impl Operation<'_> {
    /// Reports a moved file, and the whiteout in its place.
    #[inline]
    pub(super) fn report_move(&mut self, inodes: &mut RenameInodes, from_name: &[u8], to_name: &[u8]) {
        if inodes.is_any_watched() {
            self.report_watched_move(inodes, from_name, to_name);
        }
    }

    #[cold]
    fn report_watched_move(&mut self, inodes: &mut RenameInodes, from_name: &[u8], to_name: &[u8]) {
        let RenameInodes { from, to, source, target, whiteout } = inodes;
        let cookie = self.volume.watches.next_cookie();
        let replaced = target.as_ref().map(|target| id_of(target));
        if self.is_watched(from) {
            self.events
                .push(WatchEvent::MovedFrom { name: WatchedName::new(from, from_name, source), cookie });
        }
        let to = to.as_mut().unwrap_or(from);
        if self.is_watched(to) {
            let name = WatchedName::new(to, to_name, source);
            self.events.push(WatchEvent::MovedTo { name, cookie, replaced });
        }
        if let Some(whiteout) = whiteout {
            self.report(from, from_name, whiteout, WatchEvent::Created);
        }
    }

    /// Reports names that were exchanged.
    #[inline]
    pub(super) fn report_exchange(&mut self, inodes: &mut RenameInodes, from_name: &[u8], to_name: &[u8]) {
        if inodes.is_any_watched() {
            self.report_watched_exchange(inodes, from_name, to_name);
        }
    }

    #[cold]
    fn report_watched_exchange(&mut self, inodes: &mut RenameInodes, from_name: &[u8], to_name: &[u8]) {
        let RenameInodes { from, to, source, target: Some(target), whiteout: _ } = inodes else { return };
        let cookie = self.volume.watches.next_cookie();
        if self.is_watched(from) {
            self.events
                .push(WatchEvent::Exchanged { name: WatchedName::new(from, from_name, target), cookie });
        }
        let to = to.as_mut().unwrap_or(from);
        if self.is_watched(to) {
            self.events.push(WatchEvent::Exchanged { name: WatchedName::new(to, to_name, source), cookie });
        }
    }
}

impl RenameInodes {
    /// Whether one of the directories may be watched.
    #[inline]
    fn is_any_watched(&self) -> bool {
        self.from.is_watched() || self.to.as_ref().is_some_and(|to| to.is_watched())
    }
}
