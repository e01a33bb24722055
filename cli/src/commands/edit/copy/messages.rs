//! Messages of `cp`.
//!
//! Paths in an image are shown with a label: the name of the image and a colon.

use std::io::Write as _;

use serde_json::json;
use xebec::{CopyError, CopyEvent, CopyReason, CopySide, TransferError};

use crate::args::Global;
use crate::failure::{AtPath, Described, Failure};
use crate::json;
use crate::names::quoted;
use crate::output::{self, Messages, Stdout, chain};

/// Labels of the paths of both sides.
pub struct Labels<'l> {
    pub from: &'l [u8],
    pub to: &'l [u8],
}

/// An event of a copy, with labelled paths.
pub enum CopyMessage {
    /// A file was not copied.
    Failed(anyhow::Error),
    /// An unreadable file was skipped.
    Skipped(anyhow::Error),
    /// A part of a file of the source image cannot be read.
    Unreadable(Failure),
    /// A warning about the source image.
    SourceWarning(String),
    /// A warning.
    Warning(String),
    /// A file is being copied.
    Copying { from: Vec<u8>, to: Vec<u8> },
}

impl Labels<'_> {
    /// A path with its label.
    pub fn path(&self, side: CopySide, path: &[u8]) -> Vec<u8> {
        let label = match side {
            CopySide::Source => self.from,
            CopySide::Target => self.to,
        };
        [label, path].concat()
    }

    /// The message for an event.
    pub fn message(&self, event: CopyEvent) -> CopyMessage {
        let source = |path: &[u8]| self.path(CopySide::Source, path);
        match event {
            CopyEvent::Copying { from, to } => {
                CopyMessage::Copying { from: source(&from), to: self.path(CopySide::Target, &to) }
            }
            CopyEvent::Failed(error) => CopyMessage::Failed(self.copy_error(&error)),
            CopyEvent::Skipped(error) => CopyMessage::Skipped(self.copy_error(&error)),
            CopyEvent::Repeated { path } => CopyMessage::Warning(format!(
                "{}: source directory specified more than once",
                quoted(&source(&path))
            )),
            CopyEvent::Damaged { path, error } => CopyMessage::Unreadable(Failure::at(&source(&path), error)),
            CopyEvent::InvalidName { path } => {
                CopyMessage::Unreadable(format!("{}: skipped an invalid name", quoted(&source(&path))).into())
            }
            CopyEvent::Unfinished { path } => CopyMessage::SourceWarning(format!(
                "{}: the log has an unfinished operation on this file; the copy may be inconsistent",
                quoted(&source(&path))
            )),
        }
    }

    /// The error of a whole copy.
    pub fn error(&self, error: TransferError) -> anyhow::Error {
        match error {
            TransferError::Copy(error) => self.copy_error(&error),
            error => error.into(),
        }
    }

    fn copy_error(&self, error: &CopyError) -> anyhow::Error {
        // Of unreadable sources, only the text is reported.
        let errno = error.errno().filter(|_| !error.is_unreadable()).map(xebec::Errno::get);
        let described = anyhow::Error::new(Described { text: self.reason(&error.reason), errno });
        let described = match &error.target {
            Some(target) => described.context(quoted(&self.path(CopySide::Target, target))),
            None => described,
        };
        described.context(AtPath(self.path(error.side, &error.path)))
    }

    /// The text of a reason, with the option or command that helps.
    fn reason(&self, reason: &CopyReason) -> String {
        let hint = match reason {
            CopyReason::SeveralSources => return "-T takes one source only".into(),
            CopyReason::IsDirectory | CopyReason::IsSocket | CopyReason::NoContents => " (-r not specified)",
            CopyReason::IsNamedPipe => " (-r not specified; to copy data from it: `xebec write` < PIPE)",
            CopyReason::NoParent => " (`xebec mkdir -p` creates it)",
            _ => "",
        };
        let text = reason.describe(&|side, name| match side {
            Some(side) => quoted(&self.path(side, name)),
            None => quoted(name),
        });
        text + hint
    }
}

/// Messages about an image and the host: paths in the image are prefixed with the image's name and a colon.
pub struct CopyMessages<'m> {
    image: &'m Messages,
    /// The image that is read without changing it, if there is one.
    source: Option<&'m Messages>,
    host: Messages,
    pub label: Vec<u8>,
    verbose: bool,
}

/// The label of an image.
pub fn label(image: &Messages) -> Vec<u8> {
    format!("{}:", image.image()).into_bytes()
}

impl<'m> CopyMessages<'m> {
    /// Messages about an image that is changed.
    pub fn new(image: &'m Messages, global: &Global) -> Self {
        let host = Messages::new(global, "");
        Self { image, source: None, host, label: label(image), verbose: global.verbose }
    }

    /// Messages about an image that is read, in addition.
    pub fn with_source(self, source: &'m Messages) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Prints a message.
    pub fn report(&self, message: CopyMessage) {
        let source = self.source.unwrap_or(self.image);
        match message {
            CopyMessage::Failed(error) => {
                let (messages, failure) = self.messages_of(Failure::from(&error));
                messages.fail(failure);
            }
            CopyMessage::Skipped(error) => {
                let (messages, failure) = self.messages_of(Failure::from(&error).with_text(chain(&error)));
                messages.skip(failure);
            }
            CopyMessage::Unreadable(failure) => source.unreadable(failure),
            CopyMessage::SourceWarning(text) => source.warn(text),
            CopyMessage::Warning(text) => self.image.warn(text),
            CopyMessage::Copying { from, to } if self.verbose => show(&from, &to),
            CopyMessage::Copying { .. } => {}
        }
    }

    /// The messages of the image or of the host, depending on the path of a failure.
    fn messages_of(&self, mut failure: Failure) -> (&Messages, Failure) {
        let inside = failure.path.as_ref().and_then(|path| path.strip_prefix(&self.label[..]));
        match inside.map(<[u8]>::to_vec) {
            Some(path) => {
                failure.path = Some(path);
                (self.image, failure)
            }
            None => (&self.host, failure),
        }
    }

    /// Prints the summaries, and returns the exit code.
    pub fn finish(&self) -> u8 {
        let source = self.source.map_or(0, Messages::finish);
        source.max(self.image.finish()).max(self.host.finish())
    }
}

/// Prints a file that is being copied.
pub fn show(from: &[u8], to: &[u8]) {
    let line = if output::uses_json_messages() {
        let ((from_key, from), (to_key, to)) = (json::name("from", from), json::name("to", to));
        json!({ (from_key): from, (to_key): to }).to_string()
    } else {
        format!("{} -> {}", quoted(from), quoted(to))
    };
    // The copy goes on if standard output is closed.
    let _ = writeln!(Stdout::raw(), "{line}");
}
