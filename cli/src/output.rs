//! Standard output, messages on standard error, exit codes.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::args::{ColorChoice, Global};
use crate::excludes::skipped;
use crate::failure::Failure;
use crate::json;
use crate::names;
use crate::urls::shown;

/// Exit codes.
pub mod exit_code {
    /// Success.
    pub const OK: u8 = 0;
    /// Failure, also partial failure.
    pub const FAILED: u8 = 1;
    /// Usage error.
    pub const USAGE: u8 = 2;
    /// `check`: errors found and not corrected.
    pub const CHECK_UNCORRECTED: u8 = 4;
    /// `check`: operational error.
    pub const CHECK_OPERATIONAL: u8 = 8;
    /// `check`: usage error.
    pub const CHECK_USAGE: u8 = 16;
    /// Closed pipe: as a shell reports SIGPIPE.
    pub const CLOSED_PIPE: u8 = 141;
}

/// An error with its own exit code.
#[derive(Debug)]
pub struct Coded {
    /// The exit code.
    pub code: u8,
    /// The error.
    pub error: anyhow::Error,
}

impl Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(&self.error))
    }
}

impl std::error::Error for Coded {}

/// Prints the error of a command, except a closed pipe, and returns the exit code.
pub fn exit(result: anyhow::Result<u8>, image: Option<&Path>) -> ExitCode {
    let error = match result {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::from(exit_code::CLOSED_PIPE);
    }
    let image = image.map(shown).unwrap_or_default();
    print_message(Level::Error, &image, Failure::from(&error).with_text(chain(&error)));
    ExitCode::from(error.downcast_ref::<Coded>().map_or(exit_code::FAILED, |coded| coded.code))
}

/// An error and its causes in one line, without causes that are contained in the text already.
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

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A failure.
    Error,
    /// A warning.
    Warning,
    /// Information.
    Note,
}

/// Whether messages are JSON objects. Global, as standard error is.
static JSON: AtomicBool = AtomicBool::new(false);

/// Switches messages to JSON objects, one per line.
pub fn use_json_messages() {
    JSON.store(true, Ordering::Relaxed);
}

/// Whether messages are JSON objects.
pub fn uses_json_messages() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Prints a line to standard error, prefixed with the image's name unless the text starts with it. Control characters,
/// which may come from an image, are escaped.
pub fn print_message(level: Level, image: &str, failure: impl Into<Failure>) {
    let failure = failure.into();
    let line = if uses_json_messages() {
        json::message(level, image, &failure)
    } else {
        let text = failure.text;
        // A quoted path may start with the image's name, too.
        let names_image = image.is_empty() || text.strip_prefix('\'').unwrap_or(&text).starts_with(image);
        let image = if names_image { String::new() } else { format!("{image}: ") };
        let level = if level == Level::Warning { "warning: " } else { "" };
        format!("xebec: {}", names::printable(format!("{image}{level}{text}").as_bytes()))
    };
    // Standard error may be closed.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Messages of a command. Shared by its threads.
#[derive(Debug)]
pub struct Messages {
    quiet: bool,
    verbose: bool,
    image: String,
    failures: AtomicU64,
    /// Unreadable files are skipped with a warning.
    ignores_unreadable: bool,
    unreadable: AtomicU64,
}

/// Maximum number of failures to print.
const FAILURES_SHOWN_MAX: u64 = 100;

impl Messages {
    /// Messages about an image, named as on the command line.
    pub fn new(global: &Global, image: impl Into<String>) -> Self {
        Self {
            quiet: global.quiet,
            verbose: global.verbose,
            image: image.into(),
            failures: AtomicU64::new(0),
            ignores_unreadable: false,
            unreadable: AtomicU64::new(0),
        }
    }

    /// Sets whether unreadable files are skipped with a warning instead of being failures.
    pub fn ignore_unreadable(&mut self, ignores: bool) {
        self.ignores_unreadable = ignores;
    }

    /// Reports an unreadable file, as a failure or as skipped.
    pub fn unreadable(&self, failure: impl Into<Failure>) {
        match self.ignores_unreadable {
            true => self.skip(failure),
            false => self.fail(failure),
        }
    }

    /// Counts and reports a skipped file.
    pub fn skip(&self, failure: impl Into<Failure>) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        let failure = failure.into();
        let text = skipped(&failure.text);
        self.print(Level::Warning, failure.with_text(text));
    }

    /// Number of skipped files.
    pub fn skipped(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// The image, named as on the command line.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Prints a note unless `--quiet` is given.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.print(Level::Note, text.to_string());
        }
    }

    /// Prints a note if `--verbose` is given.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            self.print(Level::Note, text.to_string());
        }
    }

    /// Prints a warning.
    pub fn warn(&self, text: impl Display) {
        self.print(Level::Warning, text.to_string());
    }

    /// Counts a failure, and prints the first hundred.
    pub fn fail(&self, failure: impl Into<Failure>) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before < FAILURES_SHOWN_MAX || self.verbose {
            self.print(Level::Error, failure);
        }
    }

    fn print(&self, level: Level, failure: impl Into<Failure>) {
        print_message(level, &self.image, failure);
    }

    /// Number of failures.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Prints the numbers of skipped files and hidden failures, and returns the exit code.
    pub fn finish(&self) -> u8 {
        match self.skipped() {
            0 => {}
            1 => self.warn("1 file could not be read and was skipped"),
            count => self.warn(format_args!("{count} files could not be read and were skipped")),
        }
        let failures = self.failures();
        if failures > FAILURES_SHOWN_MAX && !self.verbose {
            let hidden = failures - FAILURES_SHOWN_MAX;
            self.print(Level::Error, format_args!("{hidden} more failures (--verbose shows all)"));
        }
        if failures == 0 { exit_code::OK } else { exit_code::FAILED }
    }
}

/// Standard output, unbuffered.
#[derive(Debug)]
pub struct Stdout(());

/// Buffer size for small writes.
const BUFFER: usize = 1 << 16;
/// Requested size of a pipe: larger ones need fewer context switches.
const PIPE: usize = 1 << 20;

impl Stdout {
    /// Standard output for large writes; enlarges a pipe.
    pub fn raw() -> Self {
        // Fails if it is not a pipe, or not permitted.
        let _ = rustix::pipe::fcntl_setpipe_size(rustix::stdio::stdout(), PIPE);
        Self(())
    }

    /// Standard output for small writes. The caller flushes it.
    pub fn buffered() -> io::BufWriter<Self> {
        io::BufWriter::with_capacity(BUFFER, Self(()))
    }

    /// Whether it is a terminal.
    pub fn is_terminal() -> bool {
        io::stdout().is_terminal()
    }

    /// Whether to colorize.
    pub fn is_coloured(global: &Global) -> bool {
        match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                Self::is_terminal()
                    && !no_color
                    && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
            }
        }
    }
}

/// An error of writing to standard output, to distinguish it from errors of files.
#[derive(Debug)]
struct OutputError(io::Error);

impl Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustix::io::write(rustix::stdio::stdout(), bytes).map_err(|errno| {
            let error = io::Error::from(errno);
            match error.kind() {
                // Retried by `write_all`.
                io::ErrorKind::Interrupted => error,
                kind => io::Error::new(kind, OutputError(error)),
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Width of the terminal in characters: COLUMNS, else what the terminal says, else 80.
pub fn terminal_width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal =
        || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col.into());
    columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(80)
}

/// A number with its noun: `1 record`, `2 records`.
pub fn counted(count: u64, singular: &str) -> String {
    match singular.strip_suffix('y') {
        _ if count == 1 => format!("1 {singular}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {singular}s"),
    }
}
