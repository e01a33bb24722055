//! Output of a walk over a whole tree: text and failures.

use std::io::{self, Write as _};

use crate::failure::Failure;
use crate::output::{Messages, Stdout};
use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};

/// Output of a walk: text or an error.
#[derive(Debug)]
pub enum WalkOutput {
    /// For standard output.
    Text(Vec<u8>),
    /// For standard error.
    Failure(Failure),
}

impl WalkOutput {
    /// Its size in memory, in bytes.
    pub fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.capacity(),
            Self::Failure(failure) => failure.text.capacity(),
        }
    }
}

/// Results and further tasks of a task of a walk.
pub trait WalkItems<T> {
    /// Adds text, unless it is empty.
    fn text(&mut self, text: Vec<u8>);

    /// Adds a failure at a path in the image.
    fn fail(&mut self, path: &[u8], error: impl Into<Failure>);

    /// Adds a task.
    fn task(&mut self, task: T);
}

impl<T, R: From<WalkOutput>> WalkItems<T> for Vec<PipelineItem<T, R>> {
    fn text(&mut self, text: Vec<u8>) {
        if !text.is_empty() {
            self.push(PipelineItem::Result(WalkOutput::Text(text).into()));
        }
    }

    fn fail(&mut self, path: &[u8], error: impl Into<Failure>) {
        self.push(PipelineItem::Result(WalkOutput::Failure(Failure::at(path, error)).into()));
    }

    fn task(&mut self, task: T) {
        self.push(PipelineItem::Task(task));
    }
}

/// Standard output, buffered.
#[derive(Debug)]
pub struct TextSink<'m> {
    out: Stdout,
    buffer: Vec<u8>,
    messages: &'m Messages,
    /// Bytes at the start of the output to leave out: a separator before the first element.
    skip: usize,
}

/// Size of the buffer in bytes.
const WRITE_BYTES: usize = 256 << 10;

impl<'m> TextSink<'m> {
    /// Standard output; the first `skip` bytes are left out.
    pub fn new(messages: &'m Messages, skip: usize) -> Self {
        Self { out: Stdout::raw(), buffer: Vec::with_capacity(WRITE_BYTES), messages, skip }
    }

    /// Writes text without skipping.
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

    /// Flushes the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes text, or reports a failure.
    pub fn write_output(&mut self, output: WalkOutput) -> io::Result<()> {
        match output {
            WalkOutput::Text(text) => {
                let skip = self.skip.min(text.len());
                self.skip -= skip;
                self.write(text.get(skip..).unwrap_or_default())
            }
            WalkOutput::Failure(failure) => {
                // The text before the failure is shown first.
                if Stdout::is_terminal() {
                    self.flush()?;
                }
                self.messages.fail(failure);
                Ok(())
            }
        }
    }
}

impl<W: PipelineWork<Result = WalkOutput>> PipelineSink<W> for TextSink<'_> {
    type Error = io::Error;

    fn take(&mut self, output: WalkOutput, _: &mut Vec<PipelineItemOf<W>>) -> io::Result<()> {
        self.write_output(output)
    }
}
