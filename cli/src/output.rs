//! Standard output in big writes, messages on standard error, exit codes.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::args::{Global, When};
use crate::excludes::{count_left_out, left_out};
use crate::failure::Failure;
use crate::json;
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
pub fn exit(result: anyhow::Result<u8>, image: Option<&Path>) -> ExitCode {
    let error = match result {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::from(exit_code::CLOSED_PIPE);
    }
    let image = image.map(|image| image.display().to_string()).unwrap_or_default();
    say(Level::Error, &image, Failure::from(&error).with_text(chain(&error)));
    ExitCode::from(error.downcast_ref::<Coded>().map_or(exit_code::FAILED, |coded| coded.code))
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

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something may not be as it seems.
    Warning,
    /// For information.
    Note,
}

/// Whether messages are objects of JSON. It is one for the process, as standard error is.
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on messages are objects of JSON, one a line.
pub fn say_in_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Whether messages, and what is shown while work goes on, are objects of JSON.
pub fn says_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// One line on standard error, about an image where it has a name. Control characters, which may come from an image,
/// are escaped. Errors of a device or a refused volume begin with the image's name already.
pub fn say(level: Level, image: &str, what: impl Into<Failure>) {
    let failure = what.into();
    let line = if says_json() {
        json::message(level, image, &failure)
    } else {
        let text = failure.text;
        // What is quoted may begin with the image's name, too.
        let names_image = image.is_empty() || text.strip_prefix('\'').unwrap_or(&text).starts_with(image);
        let about = if names_image { String::new() } else { format!("{image}: ") };
        let mark = if level == Level::Warning { "warning: " } else { "" };
        format!("xebec: {}", names::printable(format!("{about}{mark}{text}").as_bytes()))
    };
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// What a command has to say beside its output. Shared by its threads.
#[derive(Debug)]
pub struct Messages {
    quiet: bool,
    verbose: bool,
    image: String,
    failures: AtomicU64,
    /// What cannot be read is left out, and is no failure.
    ignores_unreadable: bool,
    unreadable: AtomicU64,
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
            ignores_unreadable: false,
            unreadable: AtomicU64::new(0),
        }
    }

    /// What cannot be read is left out from now on, with a warning, and is no failure.
    pub fn ignore_unreadable(&mut self, ignores: bool) {
        self.ignores_unreadable = ignores;
    }

    /// Whether it is.
    pub fn ignores_unreadable(&self) -> bool {
        self.ignores_unreadable
    }

    /// Something could not be read. It is a failure, unless it is left out.
    pub fn unreadable(&self, what: impl Into<Failure>) {
        match self.ignores_unreadable {
            true => self.leave_out(what),
            false => self.fail(what),
        }
    }

    /// Something cannot be read, and is left out. Counted, and shown as a warning.
    pub fn leave_out(&self, what: impl Into<Failure>) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        let failure = what.into();
        let text = left_out(&failure.text);
        self.say(Level::Warning, failure.with_text(text));
    }

    /// How many files were left out because they could not be read.
    pub fn left_out(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// The image, by the name that the user gave.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// A note, unless the user wants none.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.say(Level::Note, text.to_string());
        }
    }

    /// A note for a user who wants more.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            self.say(Level::Note, text.to_string());
        }
    }

    /// A warning: shown even to a user who wants no notes.
    pub fn warn(&self, text: impl Display) {
        self.say(Level::Warning, text.to_string());
    }

    /// A part that failed while the rest goes on. Counted; the first hundred are shown.
    pub fn fail(&self, what: impl Into<Failure>) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before < FAILURES_SHOWN_MAX || self.verbose {
            self.say(Level::Error, what);
        }
    }

    fn say(&self, level: Level, what: impl Into<Failure>) {
        say(level, &self.image, what);
    }

    /// How many parts failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The exit code after the work: says how many failures were not shown.
    pub fn finish(&self) -> u8 {
        if self.left_out() > 0 {
            self.warn(count_left_out(self.left_out()));
        }
        let failures = self.failures();
        if failures > FAILURES_SHOWN_MAX && !self.verbose {
            let hidden = failures - FAILURES_SHOWN_MAX;
            self.say(Level::Error, format_args!("{hidden} more failures (all of them with --verbose)"));
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

/// Standard output cannot be written. Other errors of the system belong to files, and say so themselves.
#[derive(Debug)]
struct OutputError(io::Error);

impl Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write the output: {}", self.0)
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
                // Tried again by `write_all`.
                io::ErrorKind::Interrupted => error,
                kind => io::Error::new(kind, OutputError(error)),
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A number and what it counts: `1 record`, `2 records`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}
