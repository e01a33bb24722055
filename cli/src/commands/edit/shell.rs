//! `xebec sh`: runs commands in a session.

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use xebec::Volume;

use super::unmount;
use crate::args::{Global, rewrite_setfattr_value, usage_line};
use crate::commands::Show;
use crate::commands::table::{SessionCommand, session_names};
use crate::failure::Failure;
use crate::open::{self, Image, Writable};

/// Arguments of `sh`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = format!("Each line is a command without `xebec` and without the image. Commands that change files: \
    {}. Commands that show files, including changes made so far: {}. `sync` writes all changes to stable storage; \
    `exit` ends the session. Words are split and quoted as in a shell; # starts a comment. Patterns in paths are \
    expanded as on the command line, quoted or not; '\\*' is a literal star.\n\n\
    Examples:\n  xebec sh disk.xfs -c 'mkdir /etc' -c 'touch /etc/motd'\n  xebec sh disk.xfs < commands.txt\n\n\
    Exit codes: 0 success; 1 a command failed; 2 usage error.", session_names(false), session_names(true))
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Run this command instead of reading standard input; may be repeated.
    #[arg(short, long, value_name = "COMMAND")]
    command: Vec<String>,
    /// Exit at the first command that fails.
    #[arg(short = 'e', long)]
    stop: bool,
}

/// A line of a session.
#[derive(Parser)]
#[command(name = "", no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    FromTable(SessionCommand),
    /// Write all changes to stable storage.
    Sync,
    /// End the session.
    #[command(alias = "quit")]
    Exit,
}

/// Runs `sh`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let opened = open::writable(&arguments.image, global)?;
    let reader = Reader { image: opened.image(global)?, global };
    let mut session = Session { opened, reader, ended: false };
    let result = session.run_lines(arguments);
    let failed = session.opened.messages.finish().max(session.reader.image.messages.finish());
    unmount(session.opened.volume)?;
    result?;
    Ok(failed)
}

struct Session<'g> {
    opened: Writable,
    reader: Reader<'g>,
    ended: bool,
}

impl Session<'_> {
    fn run_lines(&mut self, arguments: &Arguments) -> io::Result<()> {
        if !arguments.command.is_empty() {
            for line in &arguments.command {
                let succeeded = self.run_line(line, None)?;
                if self.ended || (!succeeded && arguments.stop) {
                    break;
                }
            }
            return Ok(());
        }
        let terminal = io::stdin().is_terminal();
        let mut lines = io::stdin().lock().lines();
        for number in 1u64.. {
            if terminal {
                io::stderr().write_all(b"xebec> ")?;
            }
            let Some(line) = lines.next() else { break };
            let succeeded = self.run_line(&line?, (!terminal).then_some(number))?;
            if self.ended || (!succeeded && arguments.stop) {
                break;
            }
        }
        Ok(())
    }

    /// Runs one line and returns whether it succeeded. Fails if standard output does.
    fn run_line(&mut self, line: &str, number: Option<u64>) -> io::Result<bool> {
        let Self { opened, reader, ended } = self;
        let failures = reader.image.messages.failures();
        let mut succeeded = true;
        let mut report = |error: anyhow::Error| {
            succeeded = false;
            match number {
                Some(number) => {
                    let failure = Failure::from(&error);
                    let text = format!("line {number}: {}", failure.text);
                    opened.messages.fail(failure.with_text(text));
                }
                None => opened.messages.fail(&error),
            }
        };
        let words = match shell_words::split(line) {
            Ok(words) => words,
            Err(error) => {
                report(error.into());
                return Ok(false);
            }
        };
        let words = words.into_iter().take_while(|word| !word.starts_with('#')).map(OsString::from);
        let words = rewrite_setfattr_value(words.collect());
        if words.is_empty() {
            return Ok(true);
        }
        let volume = &opened.volume;
        match Line::try_parse_from(&words).map(|line| line.command) {
            Ok(Command::FromTable(SessionCommand::Show(command))) => {
                reader.show(volume, &*command, &mut report)?
            }
            Ok(Command::FromTable(SessionCommand::Edit(command))) => match command.reads_standard_input() {
                true => report(anyhow::anyhow!("standard input is not available in a session: name a file")),
                false => command.perform(volume, &mut report).unwrap_or_else(&mut report),
            },
            Ok(Command::Sync) => volume.sync().unwrap_or_else(|error| report(error.into())),
            Ok(Command::Exit) => *ended = true,
            Err(error) if !error.use_stderr() => error.print()?,
            Err(error) => report(anyhow::anyhow!("{}", usage_line(&error))),
        }
        Ok(succeeded && reader.image.messages.failures() == failures)
    }
}

/// The volume of a session, for commands that show files.
struct Reader<'g> {
    image: Image,
    global: &'g Global,
}

impl Reader<'_> {
    /// Writes metadata back, so that the reader sees all changes, and runs the command. Fails if standard output does.
    fn show(
        &self,
        volume: &Volume,
        command: &dyn Show,
        report: &mut dyn FnMut(anyhow::Error),
    ) -> io::Result<()> {
        if let Err(error) = volume.write_back_all() {
            report(error.into());
            return Ok(());
        }
        match command.show(&self.image, self.global).map_err(anyhow::Error::downcast) {
            Err(Ok(error)) => Err(error),
            Err(Err(error)) => {
                report(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
