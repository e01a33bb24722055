//! `xebec ls`: lists directories as GNU `ls` does.
//!
//! | part | subject |
//! |---|---|
//! | this file | arguments, selection and order |
//! | [`list`] | parallel listing of directories |
//! | [`file`] | metadata of a file |
//! | [`lines`] | output formats |

mod file;
mod lines;
mod list;

pub use lines::mode_text;

use std::cmp::Reverse;
use std::ffi::OsString;

use clap::Args;
use format::inode::FileType;
use read::{FinalSymlink, Metadata, resolve};

use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::names::Quoting;
use crate::open::Image;
use crate::output::{Stdout, terminal_width};
use crate::owners::Owners;
use crate::times::TimeStyle;
use file::FileInfo;

/// Arguments of `ls`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Names are sorted by their bytes. On a terminal they are quoted if needed and shown in columns; \
    otherwise they are written unquoted, one per line.\n\n\
    Examples:\n  xebec ls -l disk.xfs /etc\n  xebec ls -lR disk.xfs\n  xebec ls -R --json disk.xfs | jq -r \
    '.entries[].path'\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error."
)]
pub struct Arguments {
    /// Files and directories to list.
    #[arg(default_value = "/")]
    paths: Vec<OsString>,
    /// Long listing: mode, links, owner, group, size, time.
    #[arg(short)]
    long: bool,
    /// Include names that start with a dot.
    #[arg(short, long)]
    all: bool,
    /// Like -a, without . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// List directories themselves, not their contents.
    #[arg(short, long)]
    directory: bool,
    /// List subdirectories recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show inode numbers.
    #[arg(short, long)]
    inode: bool,
    /// Show numeric user and group IDs instead of names in the image.
    #[arg(short, long, visible_alias = "numeric-uid-gid")]
    numeric: bool,
    /// Show sizes with suffixes K, M, G.
    #[arg(short, long)]
    human_readable: bool,
    /// List one file per line.
    #[arg(short = '1')]
    one: bool,
    /// Sort by modification time, newest first.
    #[arg(short = 't')]
    by_time: bool,
    /// Sort by size, largest first.
    #[arg(short = 'S', conflicts_with = "by_time")]
    by_size: bool,
    /// Reverse the order.
    #[arg(short, long)]
    reverse: bool,
    /// Format of times: full-iso, long-iso, iso, locale, or +FORMAT as in date(1).
    #[arg(long, value_name = "STYLE", default_value = "locale", value_parser = TimeStyle::parse)]
    time_style: TimeStyle,
}

/// Options of a listing.
#[derive(Clone, Debug)]
struct Options {
    hidden: Hidden,
    recursive: bool,
    inode: bool,
    human: bool,
    order: Order,
    reverse: bool,
    format: OutputFormat,
    time_style: TimeStyle,
    quoting: Quoting,
    coloured: bool,
}

/// Which names that start with a dot are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    None,
    AllButDots,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Name,
    Time,
    Size,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputFormat {
    Lines,
    /// Columns in a terminal of this width.
    Columns(usize),
    Long,
    Json,
}

impl Options {
    fn of(arguments: &Arguments, global: &Global) -> Self {
        let format = if global.json {
            OutputFormat::Json
        } else if arguments.long {
            OutputFormat::Long
        } else if arguments.one || !Stdout::is_terminal() {
            OutputFormat::Lines
        } else {
            OutputFormat::Columns(terminal_width())
        };
        Self {
            hidden: match (arguments.all, arguments.almost_all) {
                (true, _) => Hidden::All,
                (false, true) => Hidden::AllButDots,
                (false, false) => Hidden::None,
            },
            recursive: arguments.recursive,
            inode: arguments.inode,
            human: arguments.human_readable,
            order: match (arguments.by_time, arguments.by_size) {
                (true, _) => Order::Time,
                (_, true) => Order::Size,
                _ => Order::Name,
            },
            reverse: arguments.reverse,
            format,
            time_style: arguments.time_style.clone(),
            quoting: Quoting::for_stdout(),
            coloured: Stdout::is_coloured(global),
        }
    }

    /// Sorts files that are already ordered by name.
    fn sort<T>(&self, files: &mut [T], metadata: impl Fn(&T) -> Option<Metadata>) {
        match self.order {
            Order::Name => {}
            Order::Time => {
                files.sort_by_key(|file| Reverse(metadata(file).map(|metadata| metadata.times.modify)))
            }
            Order::Size => files.sort_by_key(|file| Reverse(metadata(file).map(|metadata| metadata.size))),
        }
        if self.reverse {
            files.reverse();
        }
    }

    /// Whether inodes must be read.
    fn needs_inodes(&self) -> bool {
        matches!(self.format, OutputFormat::Long | OutputFormat::Json)
            || self.order != Order::Name
            || self.coloured
    }
}

/// Operands: files first, then directories, both sorted.
#[derive(Default)]
struct Operands {
    files: Vec<list::Operand>,
    directories: Vec<list::Operand>,
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let options = Options::of(self, global);
        let paths = image.paths(&self.paths);
        let has_headers = options.recursive || self.paths.len() > 1 || paths.len() > 1;
        let operands = operands(image, paths, self, &options);
        let numeric = self.numeric || options.format == OutputFormat::Json;
        let owners = if numeric { Owners::default() } else { image.owners() };
        list::list(image, &options, &owners, operands, has_headers, global.thread_count())?;
        Ok(())
    }
}

fn operands(image: &Image, paths: Vec<Vec<u8>>, arguments: &Arguments, options: &Options) -> Operands {
    let last = if arguments.long || arguments.directory { FinalSymlink::Keep } else { FinalSymlink::Follow };
    let mut all = Vec::new();
    for path in paths {
        let found = resolve(&image.volume, &path, last).and_then(|inode| {
            let file = FileInfo::of(&image.volume, &inode.dinode(), options)?;
            Ok(list::Operand { path: path.as_slice().into(), ino: inode.ino(), file })
        });
        match found {
            Ok(operand) => all.push(operand),
            Err(error) => image.messages.fail(Failure::naming(&path, &error)),
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    options.sort(&mut all, |operand| operand.file.metadata);
    let is_file = |operand: &list::Operand| {
        arguments.directory || operand.file.file_type() != Some(FileType::Directory)
    };
    let (files, directories) = all.into_iter().partition(is_file);
    Operands { files, directories }
}
