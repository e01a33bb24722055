//! `xebec sh`: many commands in one session.

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use xebec::{Cookie, Volume};

use super::{
    Chmod, Chown, Cp, Edit, Fallocate, Ln, Mkdir, Mknod, Mv, Reflink, Rm, Rmdir, Setfattr, Touch, Truncate,
    Write,
};
use crate::args::{Global, with_setfattr_spelling};
use crate::names;
use crate::open::{self, Writable};

/// Arguments of `sh`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Each line is a command without `xebec` and without the image: mkdir, touch, ln, mv, rm, rmdir, \
    chmod, chown, write, cp, truncate, fallocate, reflink, setfattr, mknod, ls, sync, \
    exit. Words are split and quoted as a shell does; # begins a comment.\n\n\
    Examples:\n  xebec sh disk.xfs -c 'mkdir /etc' -c 'touch /etc/motd'\n  xebec sh disk.xfs < commands.txt\n\n\
    Exit codes: 0 all done; 1 something failed; 2 wrong usage."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// A command to run instead of those on standard input; may be given several times.
    #[arg(short, long, value_name = "COMMAND")]
    command: Vec<String>,
    /// Stop at the first command that fails.
    #[arg(short = 'e', long)]
    stop: bool,
}

/// A line of a session.
#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make directories.
    Mkdir(Mkdir),
    /// Make files, or stamp them.
    Touch(Touch),
    /// Make links.
    Ln(Ln),
    /// Move.
    Mv(Mv),
    /// Remove.
    Rm(Rm),
    /// Remove empty directories.
    Rmdir(Rmdir),
    /// Change permissions.
    Chmod(Chmod),
    /// Change owners.
    Chown(Chown),
    /// Write contents of a file.
    Write(Write),
    /// Copy files into the volume, or within it.
    Cp(Cp),
    /// Cut files off, or make them longer.
    Truncate(Truncate),
    /// Reserve blocks for files, take them away, shift what is behind.
    Fallocate(Fallocate),
    /// Make files share their blocks.
    Reflink(Reflink),
    /// Set and remove extended attributes.
    Setfattr(Setfattr),
    /// Make device nodes, pipes and sockets.
    Mknod(Mknod),
    /// List a directory.
    Ls {
        /// The directory.
        #[arg(default_value = "/")]
        path: std::ffi::OsString,
    },
    /// Make everything so far survive a power cut.
    Sync,
    /// End the session.
    #[command(alias = "quit")]
    Exit,
}

/// Runs `sh`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let mut session = Session { opened: open::writable(&arguments.image, global)?, ended: false };
    let done = session.read(arguments);
    let failed = session.opened.messages.finish();
    session.opened.volume.unmount().context("the last changes may not be on the disk")?;
    done?;
    Ok(failed)
}

struct Session {
    opened: Writable,
    ended: bool,
}

impl Session {
    fn read(&mut self, arguments: &Arguments) -> io::Result<()> {
        if !arguments.command.is_empty() {
            for line in &arguments.command {
                let well = self.line(line, None)?;
                if self.ended || (!well && arguments.stop) {
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
            let well = self.line(&line?, (!terminal).then_some(number))?;
            if self.ended || (!well && arguments.stop) {
                break;
            }
        }
        Ok(())
    }

    /// Runs one line; whether all went well. Fails where standard output does.
    fn line(&mut self, line: &str, number: Option<u64>) -> io::Result<bool> {
        let Self { opened, ended } = self;
        let mut well = true;
        let mut tell = |error: anyhow::Error| {
            well = false;
            match number {
                Some(number) => opened.messages.fail(format_args!("line {number}: {error:#}")),
                None => opened.messages.fail(format_args!("{error:#}")),
            }
        };
        let words = match shell_words::split(line) {
            Ok(words) => words,
            Err(error) => {
                tell(error.into());
                return Ok(false);
            }
        };
        let words = words.into_iter().take_while(|word| !word.starts_with('#')).map(OsString::from);
        let words = with_setfattr_spelling(words.collect());
        if words.is_empty() {
            return Ok(true);
        }
        let volume = &opened.volume;
        match Line::try_parse_from(&words).map(|line| line.command) {
            Ok(Command::Mkdir(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Touch(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Ln(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Mv(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Rm(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Rmdir(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Chmod(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Chown(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Write(edit)) if edit.reads_standard_input() => {
                tell(anyhow::anyhow!("in a session `write` takes contents from --text or --from"));
            }
            Ok(Command::Write(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Cp(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Truncate(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Fallocate(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Reflink(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Setfattr(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Mknod(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Ls { path }) => {
                if let Err(error) = list(volume, super::bytes(&path))? {
                    tell(error.into());
                }
            }
            Ok(Command::Sync) => volume.sync().unwrap_or_else(|error| tell(error.into())),
            Ok(Command::Exit) => *ended = true,
            Err(error) if !error.use_stderr() => error.print()?,
            Err(error) => tell(anyhow::anyhow!("{}", error.to_string().trim_end())),
        }
        Ok(well)
    }
}

/// Writes the names in a directory, one a line. The outer error is the output's.
fn list(volume: &Volume, path: &[u8]) -> io::Result<xebec::Result<()>> {
    let mut rows = Vec::new();
    let listed = volume.resolve(path, true).and_then(|ino| {
        volume.read_dir(ino, Cookie::default(), &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                rows.push(names::printable(entry.name).to_string());
            }
            true
        })
    });
    rows.sort_unstable();
    let mut out = io::stdout().lock();
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))?;
    Ok(listed)
}
