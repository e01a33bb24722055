//! Copies file contents, and handles sources that cannot be read completely.

use format::inode::FileType;

use super::{Copier, Pair, Result};
use crate::copy::ends::{Contents, SourceEnd, TargetEnd};
use crate::copy::error::{Failure, read};

/// Buffer size in bytes.
pub const BUFFER_BYTES: usize = 1 << 20;

impl<'c, S: SourceEnd, T: TargetEnd> Copier<'c, S, T> {
    /// Removes a new file that is incomplete because its source is unreadable or the copy was cancelled. Other names of
    /// the source are not linked to it then.
    pub(super) fn remove_incomplete(
        &mut self,
        copied: Result<()>,
        pair: &Pair<'_, S, T>,
        is_new: bool,
    ) -> Result<()> {
        let is_removed = match &copied {
            Ok(()) => false,
            Err(Failure::Cancelled) => is_new,
            Err(failure) => is_new && failure.is_unreadable() && self.rules().ignore_unreadable,
        };
        if is_removed {
            self.copied.remove(&pair.stat.id);
            self.to.unlink(pair.target)?;
        }
        copied
    }

    /// With [`ignore_unreadable`](crate::CopyRules::ignore_unreadable), reads all that is copied of a file before an
    /// existing target is changed. Pipes and devices of the host are only opened: they cannot be read twice.
    pub(super) fn expect_readable(&mut self, pair: &Pair<'_, S, T>) -> Result<()> {
        let Pair { source, stat, follow, .. } = *pair;
        if !self.rules().ignore_unreadable {
            return Ok(());
        }
        // Events are reported when the file is copied.
        let events = &mut |_| ();
        if stat.kind == FileType::Regular {
            let mut contents = read(self.from.open(source, follow, stat, events))?;
            self.expect_readable_contents(&mut *contents)?;
        }
        if self.preserves_attributes() {
            read(self.from.attributes(source, follow, events))?;
        }
        Ok(())
    }

    fn expect_not_cancelled(&self) -> Result<()> {
        if self.options.cancel.is_cancelled() { Err(Failure::Cancelled) } else { Ok(()) }
    }

    /// Reads all of a file.
    fn expect_readable_contents(&mut self, contents: &mut dyn Contents) -> Result<()> {
        let Some(size) = contents.size() else {
            while read(contents.read(0, &mut self.buffer))? > 0 {
                self.expect_not_cancelled()?;
            }
            return Ok(());
        };
        let mut offset = 0;
        while offset < size
            && let Some(run) = read(contents.next_run(offset))?
        {
            offset = run.start;
            while offset < run.end.min(size) {
                self.expect_not_cancelled()?;
                match read(contents.read(offset, &mut self.buffer))? {
                    0 => return Ok(()),
                    read => offset += read as u64,
                }
            }
            offset = run.end;
        }
        Ok(())
    }

    /// Copies the data of a file, preserving holes. A file that replaces another one is completed even if the copy is
    /// cancelled.
    pub(super) fn contents(
        &mut self,
        contents: &mut dyn Contents,
        node: &T::Node<'c>,
        replaces: bool,
    ) -> Result<()> {
        let Some(size) = contents.size() else {
            let mut offset = 0;
            loop {
                match self.piece(contents, node, offset, BUFFER_BYTES, replaces)? {
                    0 => return Ok(()),
                    length => offset += length,
                }
            }
        };
        let mut offset = 0;
        while offset < size
            && let Some(run) = read(contents.next_run(offset))?
        {
            offset = run.start;
            let end = run.end.min(size);
            while offset < end {
                let length_max = usize::try_from(end - offset).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
                match self.piece(contents, node, offset, length_max, replaces)? {
                    0 => break,
                    length => offset += length,
                }
            }
            offset = run.end;
        }
        // A source that became shorter has no hole where its end was.
        Ok(self.to.set_len(node, contents.size().map_or(size, |now| now.min(size)))?)
    }

    /// Copies at most a buffer, and returns the length; 0 at EOF.
    fn piece(
        &mut self,
        contents: &mut dyn Contents,
        node: &T::Node<'c>,
        offset: u64,
        length_max: usize,
        replaces: bool,
    ) -> Result<u64> {
        if !replaces {
            self.expect_not_cancelled()?;
        }
        let buffer = self.buffer.get_mut(..length_max).unwrap_or_default();
        let length = read(contents.read(offset, buffer))?;
        if length > 0 {
            self.to.write(node, offset, buffer.get(..length).unwrap_or_default())?;
            self.count(0, length as u64);
        }
        Ok(length as u64)
    }
}
