//! Copies file contents, and handles sources that cannot be read completely.

use anyhow::Result;

use super::super::traits::{Contents, CopySource, CopyTarget, Location};
use super::{BUFFER_BYTES, Copier};

/// An error of reading a source.
#[derive(Debug)]
pub(super) struct Unreadable(anyhow::Error);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::output::chain(&self.0))
    }
}

/// The text includes all causes.
impl std::error::Error for Unreadable {}

/// Result of reading a source: separates errors of the system from refusals.
pub(super) fn read<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| {
        let is_system_error = error.chain().any(|cause| {
            cause.is::<rustix::io::Errno>() || cause.is::<read::Error>() || cause.is::<xebec::Error>()
        });
        if is_system_error { Unreadable(error).into() } else { error }
    })
}

impl<'c, S: CopySource, T: CopyTarget> Copier<'c, S, T> {
    /// Removes a new file that is incomplete because its source is unreadable.
    pub(super) fn remove_incomplete(
        &self,
        copied: Result<()>,
        target: &Location<T::Dir>,
        is_new: bool,
    ) -> Result<()> {
        let is_unreadable = copied.as_ref().is_err_and(|error| error.is::<Unreadable>());
        if is_new && is_unreadable && self.rules.ignore_unreadable {
            self.to.unlink(target)?;
        }
        copied
    }

    /// Reads all of a file.
    pub(super) fn expect_readable(&mut self, contents: &mut dyn Contents) -> Result<()> {
        let Some(size) = contents.size() else {
            while read(contents.read(0, &mut self.buffer))? > 0 {}
            return Ok(());
        };
        let mut offset = 0;
        while offset < size
            && let Some(run) = read(contents.next_run(offset))?
        {
            offset = run.start;
            while offset < run.end.min(size) {
                match read(contents.read(offset, &mut self.buffer))? {
                    0 => return Ok(()),
                    read => offset += read as u64,
                }
            }
            offset = run.end;
        }
        Ok(())
    }

    /// Copies the data of a file, preserving holes.
    pub(super) fn contents(&mut self, contents: &mut dyn Contents, node: &T::Node<'c>) -> Result<()> {
        let Some(size) = contents.size() else {
            let mut offset = 0;
            loop {
                let read = read(contents.read(offset, &mut self.buffer))?;
                if read == 0 {
                    return Ok(());
                }
                self.to.write(node, offset, self.buffer.get(..read).unwrap_or_default())?;
                offset += read as u64;
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
                let buffer = self.buffer.get_mut(..length_max).unwrap_or_default();
                let read = read(contents.read(offset, buffer))?;
                if read == 0 {
                    break;
                }
                self.to.write(node, offset, buffer.get(..read).unwrap_or_default())?;
                offset += read as u64;
            }
            offset = run.end;
        }
        self.to.set_len(node, size)
    }
}
