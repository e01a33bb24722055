//! `xebec sh`: many commands in one session.

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use xebec::Volume;

use super::{
    Chattr, Chmod, Chown, Cowextsize, Cp, Edit, Extsize, Fallocate, Ln, Mkdir, Mknod, Mv, Project, Reflink,
    Rm, Rmdir, Setfacl, Setfattr, TarIn, Touch, Truncate, Write,
};
use crate::args::{Global, usage_line, with_setfattr_spelling};
use crate::commands::{Show, cat, filefrag, getfacl, getfattr, ls, lsattr, stat};
use crate::failure::Failure;
use crate::open::{self, Image, Writable};

/// Arguments of `sh`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Each line is a command without `xebec` and without the image. Those that change: mkdir, touch, ln, \
    mv, rm, rmdir, chmod, chown, write, cp, tar-in, truncate, fallocate, reflink, setfacl, setfattr, chattr, project, \
    extsize, cowextsize, mknod. Those that show, what was done so far among it: ls, stat, cat, getfacl, getfattr, \
    lsattr, filefrag. And sync, exit. Words are split and quoted as a shell does; # begins a comment. \
    Patterns in paths are expanded as on the command line, with or without quotes; '\\*' is a star.\n\n\
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
    /// Take an archive in.
    TarIn(TarIn),
    /// Cut files off, or make them longer.
    Truncate(Truncate),
    /// Reserve blocks for files, take them away, shift what is behind.
    Fallocate(Fallocate),
    /// Make files share their blocks.
    Reflink(Reflink),
    /// Change access control lists.
    Setfacl(Box<Setfacl>),
    /// Set and remove extended attributes.
    Setfattr(Setfattr),
    /// Change flags.
    Chattr(Chattr),
    /// Give files a project.
    Project(Project),
    /// Set the unit in which space is allocated.
    Extsize(Extsize),
    /// The same for what is copied on write.
    Cowextsize(Cowextsize),
    /// Make device nodes, pipes and sockets.
    Mknod(Mknod),
    /// List directories.
    Ls(ls::Arguments),
    /// Show what is known of files.
    Stat(stat::Arguments),
    /// Write the contents of files to standard output.
    Cat(cat::Arguments),
    /// Show access control lists.
    Getfacl(getfacl::Arguments),
    /// Show extended attributes.
    Getfattr(getfattr::Arguments),
    /// Show flags and projects.
    Lsattr(lsattr::Arguments),
    /// Show where the blocks of files lie.
    Filefrag(filefrag::Arguments),
    /// Make everything so far survive a power cut.
    Sync,
    /// End the session.
    #[command(alias = "quit")]
    Exit,
}

/// Runs `sh`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let opened = open::writable(&arguments.image, global)?;
    let shows = Shows { image: opened.image(global)?, global };
    let mut session = Session { opened, shows, ended: false };
    let done = session.read(arguments);
    let failed = session.opened.messages.finish().max(session.shows.image.messages.finish());
    session.opened.volume.unmount().context("the last changes may not be on the disk")?;
    done?;
    Ok(failed)
}

struct Session<'g> {
    opened: Writable,
    shows: Shows<'g>,
    ended: bool,
}

impl Session<'_> {
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
        let Self { opened, shows, ended } = self;
        let failed = shows.image.messages.failures();
        let mut well = true;
        let mut tell = |error: anyhow::Error| {
            well = false;
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
            Ok(Command::TarIn(edit)) if edit.reads_standard_input() => {
                tell(anyhow::anyhow!("in a session `tar-in` takes an archive by its name"));
            }
            Ok(Command::TarIn(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Truncate(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Fallocate(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Reflink(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Setfacl(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Setfattr(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Chattr(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Project(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Extsize(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Cowextsize(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Mknod(edit)) => edit.perform(volume, &mut tell),
            Ok(Command::Ls(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Stat(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Cat(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Getfacl(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Getfattr(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Lsattr(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Filefrag(what)) => shows.show(volume, &what, &mut tell)?,
            Ok(Command::Sync) => volume.sync().unwrap_or_else(|error| tell(error.into())),
            Ok(Command::Exit) => *ended = true,
            Err(error) if !error.use_stderr() => error.print()?,
            Err(error) => tell(anyhow::anyhow!("{}", usage_line(&error))),
        }
        Ok(well && shows.image.messages.failures() == failed)
    }
}

/// The volume of a session, for the commands that show it.
struct Shows<'g> {
    image: Image,
    global: &'g Global,
}

impl Shows<'_> {
    /// Shows what was done so far. The outer error is the output's.
    fn show(&self, volume: &Volume, what: &dyn Show, tell: &mut dyn FnMut(anyhow::Error)) -> io::Result<()> {
        if let Err(error) = volume.write_home() {
            tell(error.into());
            return Ok(());
        }
        match what.show(&self.image, self.global).map_err(anyhow::Error::downcast) {
            Err(Ok(error)) => Err(error),
            Err(Err(error)) => {
                tell(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
