//! The table of commands, from which the command line, its help, dispatch, the commands of `sh`, completions and manual
//! pages are made.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Subcommand};

use super::edit::{
    self, Chattr, Chmod, Chown, Copy, Cowextsize, Cp, Edit, Extsize, Fallocate, Ln, Mkdir, Mknod, Mv,
    Project, Reflink, Rm, Rmdir, Setfacl, Setfattr, TarIn, Touch, Truncate, Write, replay, shell,
};
use super::life::{clone, identity, size, sync, trim};
use super::mount::{self, status, umount};
use super::remote::{images, objects, snapshot};
use super::usage::{df, du};
use super::{
    Show, WithImage, cat, check, create, diff, dump, extract, filefrag, find, generate, getfacl, getfattr,
    info, log, ls, lsattr, manifest, map, mkfs, stat, tree,
};
use crate::args::Global;

/// Commands of one purpose, under a heading of the help.
struct Group {
    title: &'static str,
    commands: &'static [Entry],
}

/// A command of the table.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    about: &'static str,
    augment: fn(clap::Command) -> clap::Command,
    parse: fn(&ArgMatches) -> Result<Command, clap::Error>,
    /// Whether operands may be written `IMAGE:PATH`: see [`crate::image_operand`].
    takes_paths: bool,
    session: Option<SessionEntry>,
}

/// How a session of `sh` parses a command.
#[derive(Clone, Copy)]
struct SessionEntry {
    augment: fn(clap::Command) -> clap::Command,
    parse: fn(&ArgMatches) -> Result<SessionCommand, clap::Error>,
}

/// A command with its arguments, ready to run.
pub struct Command {
    /// The image or the directory that messages name.
    pub image: Option<PathBuf>,
    /// Runs it and returns the exit code.
    pub run: Run,
}

type Run = Box<dyn FnOnce(&Global) -> anyhow::Result<u8>>;

/// A command in a session of `sh`.
pub enum SessionCommand {
    /// One that shows files.
    Show(Box<dyn Show>),
    /// One that changes the volume.
    Edit(Box<dyn Edit>),
}

/// A command that opens its image itself: its arguments, the field with the image, and its function.
macro_rules! own {
    ($name:literal, $about:literal, $type:ty, $($field:ident).+, $run:expr) => {
        own::<$type>($name, $about, |matches| {
            command(matches, |arguments: &$type| Some(arguments.$($field).+.as_path()), $run)
        })
    };
    ($name:literal, $about:literal, $type:ty, $run:expr) => {
        own::<$type>($name, $about, |matches| command::<$type>(matches, |_| None, $run))
    };
}

/// A command with subcommands, of which each names the image in its own field.
macro_rules! nested {
    ($name:literal, $about:literal, $module:ident) => {
        own::<$module::Arguments>($name, $about, |matches| {
            command(matches, |arguments: &$module::Arguments| Some(arguments.image()), $module::run)
        })
    };
}

static GROUPS: &[Group] = &[
    Group {
        title: "Create images",
        commands: &[
            own!(
                "create",
                "Create an image from directories and archives",
                create::Arguments,
                image,
                create::run
            ),
            own!("mkfs", "Create an empty volume, as mkfs.xfs does", mkfs::Arguments, image, mkfs::run),
            own!("clone", "Copy an image and give the copy a new UUID", clone::Clone, image, clone::run),
        ],
    },
    Group {
        title: "Inspect and check volumes",
        commands: &[
            own!("info", "Show geometry, features, usage and log state", info::Arguments, image, info::run),
            own!("df", "Show size and usage", df::Arguments, image, df::run),
            own!("map", "Show where the space of a volume is", map::Arguments, image, map::run),
            own!("diff", "Show what differs between two trees", diff::Arguments, diff::run),
            own!("check", "Check a volume for damage", check::Arguments, image, check::run),
            own!("log", "Show the log: records, transactions, items", log::Arguments, image, log::run),
            own!("dump", "Show on-disk structures field by field", dump::Arguments, image, dump::run),
            own!("manifest", "Write one line of JSON per file", manifest::Arguments, image, manifest::run),
        ],
    },
    Group {
        title: "Show files",
        commands: &[
            show::<ls::Arguments>("ls", "List directory contents"),
            own!("tree", "List a directory as a tree", tree::Arguments, image, tree::run).with_paths(),
            show::<stat::Arguments>("stat", "Show file metadata"),
            show::<cat::Arguments>("cat", "Write file contents to standard output"),
            own!("find", "Search for files in a directory hierarchy", find::Arguments, image, find::run)
                .with_paths(),
            show::<du::Arguments>("du", "Show the space of files and directories"),
            show::<filefrag::Arguments>("filefrag", "Show the extents of files"),
            show::<getfacl::Arguments>("getfacl", "Show access control lists"),
            show::<getfattr::Arguments>("getfattr", "Show extended attributes"),
            show::<lsattr::Arguments>("lsattr", "Show inode flags, project IDs and extent size hints"),
        ],
    },
    Group {
        title: "Change files",
        commands: &[
            edit::<Mkdir>("mkdir", "Create directories"),
            edit::<Touch>("touch", "Create files or change their timestamps"),
            edit::<Ln>("ln", "Create hard and symbolic links"),
            edit::<Mv>("mv", "Move or rename files"),
            edit::<Rm>("rm", "Remove files and directories"),
            edit::<Rmdir>("rmdir", "Remove empty directories"),
            edit::<Chmod>("chmod", "Change file mode bits"),
            edit::<Chown>("chown", "Change file owner and group"),
            edit::<Write>("write", "Write data to a file"),
            edit::<Truncate>("truncate", "Change the size of files"),
            edit::<Fallocate>("fallocate", "Preallocate space, punch holes, shift ranges"),
            edit::<Reflink>("reflink", "Share the blocks of one file with another"),
            edit::<Setfacl>("setfacl", "Change access control lists"),
            edit::<Setfattr>("setfattr", "Set and remove extended attributes"),
            edit::<Chattr>("chattr", "Change inode flags"),
            edit::<Project>("project", "Set the project ID of files"),
            edit::<Extsize>("extsize", "Set the extent size hint"),
            edit::<Cowextsize>("cowextsize", "Set the copy-on-write extent size hint"),
            edit::<Mknod>("mknod", "Create device nodes, named pipes and sockets"),
            own!("sh", "Run several of these commands in one session", shell::Arguments, image, shell::run),
        ],
    },
    Group {
        title: "Copy files in and out",
        commands: &[
            // Messages of `cp` name the image themselves, as it may copy between two.
            own!("cp", "Copy files into, out of, within or between images", Copy, edit::copy::run)
                .in_session::<Cp>(),
            own!(
                "extract",
                "Extract files to a directory or a tar archive",
                extract::Arguments,
                image,
                extract::run
            )
            .with_paths(),
            edit::<TarIn>("tar-in", "Extract a tar archive into a volume"),
            own!(
                "tar-out",
                "Write a directory as a tar archive",
                extract::TarOut,
                image,
                |arguments, global| { extract::run(&arguments.clone().into(), global) }
            )
            .with_paths(),
            own!(
                "sync",
                "Synchronize a directory to an image, writing differences only",
                sync::Arguments,
                target.image,
                sync::run
            ),
        ],
    },
    Group {
        title: "Administer volumes",
        commands: &[
            own!("replay", "Replay a dirty log in place", replay::Arguments, image, replay::run),
            own!("grow", "Grow a volume", size::Grow, image, size::grow),
            own!("shrink", "Shrink a volume by the free space at its end", size::Shrink, image, size::shrink),
            own!("minimize", "Shrink a volume to its minimum size", size::Minimize, image, size::minimize),
            own!("trim", "Discard free space", trim::Trim, image, trim::run),
            own!("label", "Show or set the label", identity::Label, image, identity::label),
            own!("uuid", "Show or set the UUID", identity::Uuid, image, identity::uuid),
            own!("features", "Show or add features", identity::Features, image, identity::features),
        ],
    },
    Group {
        title: "Volumes on object storage and in a Ceph cluster",
        commands: &[
            own!("push", "Copy an image to a volume that a URL names", images::Push, image, images::push),
            own!("pull", "Copy a volume that a URL names to a file", images::Pull, url, images::pull),
            nested!("snapshot", "Make, list and remove snapshots", snapshot),
            nested!("objects", "Examine and clean the objects of a volume", objects),
        ],
    },
    Group {
        title: "Mount volumes",
        commands: &[
            own!("mount", "Mount a volume through FUSE", mount::Arguments, image, mount::run),
            own!("umount", "Unmount a volume", umount::Arguments, directory, |arguments, _| {
                umount::run(arguments)
            }),
            own!("status", "Show statistics of a mount", status::Arguments, directory, status::run),
        ],
    },
    Group {
        title: "Measure",
        commands: &[own!(
            "bench",
            "Measure Xebec beside other file systems",
            ::bench::Arguments,
            super::bench::run
        )],
    },
    Group {
        title: "Install",
        commands: &[
            own!("completions", "Generate shell completions", generate::Completions, |arguments, _| {
                generate::completions(arguments)
            }),
            own!("man", "Generate manual pages", generate::Man, |arguments, _| generate::man(arguments)),
        ],
    },
];

const fn own<T: Args>(
    name: &'static str,
    about: &'static str,
    parse: fn(&ArgMatches) -> Result<Command, clap::Error>,
) -> Entry {
    Entry { name, about, augment: T::augment_args, parse, takes_paths: false, session: None }
}

const fn show<T: Args + Show + 'static>(name: &'static str, about: &'static str) -> Entry {
    let session = SessionEntry {
        augment: T::augment_args,
        parse: |matches| Ok(SessionCommand::Show(Box::new(T::from_arg_matches(matches)?))),
    };
    Entry {
        session: Some(session),
        ..own::<WithImage<T>>(name, about, |matches| {
            command(matches, |on: &WithImage<T>| Some(&on.image), super::show::<T>)
        })
    }
    .with_paths()
}

const fn edit<T: Args + Edit + 'static>(name: &'static str, about: &'static str) -> Entry {
    own::<WithImage<T>>(name, about, |matches| {
        command(matches, |on: &WithImage<T>| Some(&on.image), edit::run::<T>)
    })
    .in_session::<T>()
    .with_paths()
}

impl Entry {
    const fn with_paths(self) -> Self {
        Self { takes_paths: true, ..self }
    }

    const fn in_session<T: Args + Edit + 'static>(self) -> Self {
        let session = SessionEntry {
            augment: T::augment_args,
            parse: |matches| Ok(SessionCommand::Edit(Box::new(T::from_arg_matches(matches)?))),
        };
        Self { session: Some(session), ..self }
    }
}

fn command<T: FromArgMatches + 'static>(
    matches: &ArgMatches,
    image: fn(&T) -> Option<&Path>,
    run: fn(&T, &Global) -> anyhow::Result<u8>,
) -> Result<Command, clap::Error> {
    let arguments = T::from_arg_matches(matches)?;
    let image = image(&arguments).map(Path::to_owned);
    Ok(Command { image, run: Box::new(move |global| run(&arguments, global)) })
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|group| group.commands)
}

fn find_entry(name: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.name == name)
}

/// Whether operands of a command may be written `IMAGE:PATH`.
pub fn takes_paths(name: &str) -> bool {
    find_entry(name).is_some_and(|entry| entry.takes_paths)
}

/// Names of the commands that show files in a session, or of those that change them.
pub fn session_names(shows: bool) -> String {
    let is_wanted = |group: &&Group| (group.title == "Show files") == shows;
    let commands = GROUPS.iter().filter(is_wanted).flat_map(|group| group.commands);
    let names: Vec<_> = commands.filter(|entry| entry.session.is_some()).map(|entry| entry.name).collect();
    names.join(", ")
}

/// The template of the program's help: commands under the headings of their groups.
pub fn help_template() -> String {
    let style = clap::builder::Styles::styled();
    let (heading, literal) = (style.get_header(), style.get_literal());
    let width = entries().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for group in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{heading}{}:{heading:#}", group.title);
        for Entry { name, about, .. } in group.commands {
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{heading}Options of all commands:{heading:#}\n{{options}}{{after-help}}");
    text
}

/// `-h` is an option of some commands, as in `ls` and `chown`: they print help for `--help` only.
fn with_long_help(command: clap::Command) -> clap::Command {
    if command.get_arguments().all(|arg| arg.get_short() != Some('h')) {
        return command;
    }
    let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
    command.disable_help_flag(true).arg(help)
}

/// Only `bench` takes several numbers of threads.
fn expect_one_number_of_threads(command: &str, matches: &ArgMatches) -> Result<(), clap::Error> {
    let threads = matches.try_get_many::<std::num::NonZeroUsize>("threads").ok().flatten();
    if command == "bench" || threads.is_none_or(|threads| threads.len() <= 1) {
        return Ok(());
    }
    let text = "--threads takes one number here; `bench` takes several\n";
    Err(clap::Error::raw(clap::error::ErrorKind::TooManyValues, text))
}

/// Implements the traits of clap's subcommands for the entries for which `$definition` returns a definition.
macro_rules! subcommand {
    ($type:ty, $definition:expr) => {
        impl FromArgMatches for $type {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                let unknown = || clap::Error::new(clap::error::ErrorKind::InvalidSubcommand);
                let (name, matches) = matches.subcommand().ok_or_else(unknown)?;
                expect_one_number_of_threads(name, matches)?;
                let definition = find_entry(name).and_then($definition).ok_or_else(unknown)?;
                (definition.parse)(matches)
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Subcommand for $type {
            fn augment_subcommands(program: clap::Command) -> clap::Command {
                program.subcommands(entries().filter_map(|entry| {
                    let command = ($definition(entry)?.augment)(clap::Command::new(entry.name));
                    Some(with_long_help(command.about(entry.about)))
                }))
            }

            fn augment_subcommands_for_update(program: clap::Command) -> clap::Command {
                Self::augment_subcommands(program)
            }

            fn has_subcommand(name: &str) -> bool {
                find_entry(name).and_then($definition).is_some()
            }
        }
    };
}

subcommand!(Command, Some);
subcommand!(SessionCommand, |entry: &'static Entry| entry.session);
