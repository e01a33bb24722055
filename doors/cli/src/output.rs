//! Standard output in big writes, messages on standard error, exit codes.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::args::{Global, When};
use crate::names;

/// What the process returns.
pub mod exit_code {
    /// Done.
    pub const OK: u8 = 0;
    /// Something failed, or part of it.
    pub const FAILED: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// `check`: errors were found and left as they are.
    pub const CHECK_UNCORRECTED: u8 = 4;
    /// `check`: it could not do its work.
    pub const CHECK_OPERATIONAL: u8 = 8;
    /// `check`: wrong usage.
    pub const CHECK_USAGE: u8 = 16;
    /// The reader of standard output went away: what a shell reports of a program that SIGPIPE ended.
    pub const CLOSED_PIPE: u8 = 141;
}

/// A failure that has its own exit code.
#[derive(Debug)]
pub struct Coded {
    /// The exit code.
    pub code: u8,
    /// The failure itself.
    pub error: anyhow::Error,
}

impl Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(&self.error))
    }
}

impl std::error::Error for Coded {}

/// Ends a command: says what failed with which image, unless it was that nobody listens any more.
pub fn exit(result: anyhow::Result<u8>, image: Option<&str>) -> ExitCode {
    let error = match result {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::from(exit_code::CLOSED_PIPE);
    }
    let text = match error.downcast_ref::<io::Error>() {
        // The image's own errors come as those of the crates below.
        Some(error) if error.raw_os_error().is_some() => format!("cannot write the output: {error}"),
        _ => chain(&error),
    };
    say(about(image.unwrap_or_default(), &text));
    ExitCode::from(error.downcast_ref::<Coded>().map_or(exit_code::FAILED, |coded| coded.code))
}

/// A message about an image. Errors of a device or a refused volume begin with the image's name already.
fn about(image: &str, text: &str) -> String {
    if text.starts_with(image) { text.into() } else { format!("{image}: {text}") }
}

/// An error and its causes in one line. Errors of the libraries below quote their causes already: those are left out.
pub fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let coded = error.downcast_ref::<Coded>().map(|coded| &coded.error);
    coded
        .unwrap_or(error)
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// One line on standard error. Control characters, which may come from an image, are escaped.
/// Says something on standard error.
pub fn say(message: impl Display) {
    let message = message.to_string();
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "xebec: {}", names::printable(message.as_bytes()));
}

/// What a command has to say beside its output. Shared by its threads.
#[derive(Debug)]
pub struct Messages {
    quiet: bool,
    verbose: bool,
    image: String,
    failures: AtomicU64,
}

/// After so many failures the rest are only counted.
const FAILURES_SHOWN_MAX: u64 = 100;

impl Messages {
    /// Messages about an image, by the name that the user gave.
    pub fn new(global: &Global, image: impl Into<String>) -> Self {
        Self {
            quiet: global.quiet,
            verbose: global.verbose,
            image: image.into(),
            failures: AtomicU64::new(0),
        }
    }

    /// The image, by the name that the user gave.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// A note, unless the user wants none.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            say(format_args!("{}: {text}", self.image));
        }
    }

    /// A note for a user who wants more.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            say(format_args!("{}: {text}", self.image));
        }
    }

    /// A warning: shown even to a user who wants no notes.
    pub fn warn(&self, text: impl Display) {
        say(format_args!("{}: warning: {text}", self.image));
    }

    /// A part that failed while the rest goes on. Counted; the first hundred are shown.
    pub fn fail(&self, text: impl Display) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before < FAILURES_SHOWN_MAX || self.verbose {
            say(about(&self.image, &text.to_string()));
        }
    }

    /// How many parts failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The exit code after the work: says how many failures were not shown.
    pub fn finish(&self) -> u8 {
        let failures = self.failures();
        if failures > FAILURES_SHOWN_MAX && !self.verbose {
            let hidden = failures - FAILURES_SHOWN_MAX;
            say(format_args!("{}: {hidden} more failures (all of them with --verbose)", self.image));
        }
        if failures == 0 { exit_code::OK } else { exit_code::FAILED }
    }
}

/// Standard output, unbuffered: whoever writes to it writes much at a time.
#[derive(Debug)]
pub struct Stdout(());

/// Buffer of commands that write a little at a time.
const BUFFER: usize = 1 << 16;
/// What a pipe is asked to hold, so that writer and reader change places less often.
const PIPE: usize = 1 << 20;

impl Stdout {
    /// Standard output for big writes; a pipe is made as large as an ordinary user may.
    pub fn raw() -> Self {
        // Not a pipe, or not allowed: then it stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(rustix::stdio::stdout(), PIPE);
        Self(())
    }

    /// Standard output for small writes. Whoever is done flushes it.
    pub fn buffered() -> io::BufWriter<Self> {
        io::BufWriter::with_capacity(BUFFER, Self(()))
    }

    /// Whether a person is looking.
    pub fn is_terminal() -> bool {
        io::stdout().is_terminal()
    }

    /// Whether to colour.
    pub fn is_coloured(global: &Global) -> bool {
        match global.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                Self::is_terminal() && !refused && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
            }
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A number and what it counts: `1 record`, `2 records`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// The version of every JSON document: it changes when a field changes its meaning or goes away.
pub const JSON_VERSION: u32 = 1;

/// Writes one JSON document, indented, and a line's end.
pub fn write_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = Stdout::buffered();
    serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}
