//! Copies file contents, and handles sources that cannot be read completely.

use anyhow::Result;

use super::super::side::{At, Contents, Side, Target};
use super::{AT_ONCE, Copier};

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
        let refused = error.chain().any(|cause| {
            cause.is::<rustix::io::Errno>() || cause.is::<read::Error>() || cause.is::<xebec::Error>()
        });
        if refused { Unreadable(error).into() } else { error }
    })
}

impl<'c, S: Side, T: Target> Copier<'c, S, T> {
    /// Removes a new file that is incomplete because its source is unreadable.
    pub(super) fn unmake(&self, copied: Result<()>, target: &At<T::Dir>, is_new: bool) -> Result<()> {
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
        let mut at = 0;
        while at < size
            && let Some(run) = read(contents.next_run(at))?
        {
            at = run.start;
            while at < run.end.min(size) {
                match read(contents.read(at, &mut self.buffer))? {
                    0 => return Ok(()),
                    read => at += read as u64,
                }
            }
            at = run.end;
        }
        Ok(())
    }

    /// Copies the data of a file, preserving holes.
    pub(super) fn contents(&mut self, contents: &mut dyn Contents, node: &T::Node<'c>) -> Result<()> {
        let Some(size) = contents.size() else {
            let mut at = 0;
            loop {
                let read = read(contents.read(at, &mut self.buffer))?;
                if read == 0 {
                    return Ok(());
                }
                self.to.write(node, at, self.buffer.get(..read).unwrap_or_default())?;
                at += read as u64;
            }
        };
        let mut at = 0;
        while at < size
            && let Some(run) = read(contents.next_run(at))?
        {
            at = run.start;
            let end = run.end.min(size);
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(AT_ONCE).min(AT_ONCE);
                let buffer = self.buffer.get_mut(..most).unwrap_or_default();
                let read = read(contents.read(at, buffer))?;
                if read == 0 {
                    break;
                }
                self.to.write(node, at, buffer.get(..read).unwrap_or_default())?;
                at += read as u64;
            }
            at = run.end;
        }
        self.to.set_len(node, size)
    }
}
