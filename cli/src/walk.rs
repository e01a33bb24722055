//! What walks over a whole tree have in common: where text and failures go, and that every walk ends.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use base::Ino;

use crate::failure::Failure;
use crate::output::{Messages, Stdout};
use base::pipeline::{PipelineItemOf, PipelineSink, PipelineWork};

/// How deep directories may be nested. A deeper one is named and left out: its path alone would be longer than what
/// any program can open.
pub const DEPTH_MAX: usize = 4096;

/// The directories that a walk has been in, so that a damaged tree, which may bend back on itself, still ends.
#[derive(Debug, Default)]
pub struct Visited(Mutex<HashSet<Ino>>);

impl Visited {
    /// Enters a directory; refuses one that was entered before, or that lies too deep.
    pub fn enter(&self, ino: Ino, depth: usize) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err("directories are nested too deep here; look at this one by its own path");
        }
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(ino) {
            true => Ok(()),
            false => Err(
                "this directory has been listed under another name already: the tree is damaged; run \"xebec check\"",
            ),
        }
    }
}

/// A path and a name below it.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() && path.last() != Some(&b'/') {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

/// What a walk that only shows gives out.
#[derive(Debug)]
pub enum Shown {
    /// For standard output.
    Text(Vec<u8>),
    /// For standard error.
    Failure(Failure),
}

impl Shown {
    /// A failure at a path in the image.
    pub fn failure(path: &[u8], error: impl Into<Failure>) -> Self {
        Self::Failure(Failure::at(path, error))
    }

    /// How many bytes wait with it.
    pub fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.capacity(),
            Self::Failure(failure) => failure.text.capacity(),
        }
    }
}

/// Gathers text into big writes to standard output.
#[derive(Debug)]
pub struct TextSink<'m> {
    out: Stdout,
    buffer: Vec<u8>,
    messages: &'m Messages,
    /// Bytes at the start of the whole output that separate an element from one before it, and so are left out.
    skip: usize,
}

/// Text is written when so much of it has come together.
const WRITE_BYTES: usize = 256 << 10;

impl<'m> TextSink<'m> {
    /// Standard output, from which the first `skip` bytes of all text are left out.
    pub fn new(messages: &'m Messages, skip: usize) -> Self {
        Self { out: Stdout::raw(), buffer: Vec::with_capacity(WRITE_BYTES), messages, skip }
    }

    /// Writes text as it is, and skips nothing.
    pub fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.buffer.len() + text.len() > WRITE_BYTES {
            self.flush()?;
        }
        if text.len() >= WRITE_BYTES {
            return self.out.write_all(text);
        }
        self.buffer.extend_from_slice(text);
        Ok(())
    }

    /// Writes what has come together.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Takes one thing that a walk gives out.
    pub fn show(&mut self, shown: Shown) -> io::Result<()> {
        match shown {
            Shown::Text(text) => {
                let skip = self.skip.min(text.len());
                self.skip -= skip;
                self.write(text.get(skip..).unwrap_or_default())
            }
            Shown::Failure(failure) => {
                // What stands before the failure is shown before it.
                if Stdout::is_terminal() {
                    self.flush()?;
                }
                self.messages.fail(failure);
                Ok(())
            }
        }
    }
}

impl<W: PipelineWork<Result = Shown>> PipelineSink<W> for TextSink<'_> {
    type Error = io::Error;

    fn take(&mut self, shown: Shown, _: &mut Vec<PipelineItemOf<W>>) -> io::Result<()> {
        self.show(shown)
    }
}
