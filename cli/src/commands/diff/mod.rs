//! `xebec diff`: shows what differs between two trees, in images or on the host.
//!
//! | part | subject |
//! |---|---|
//! | this file | arguments, and opening the trees |
//! | [`lines`] | output |
//!
//! [`TreeDifference`] compares.

mod lines;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use xebec::difference::{ComparedTree, DifferenceEvent, FileProperty, TreeSide};
use xebec::{CopySource, TreeDifference};

use crate::args::Global;
use crate::failure::Failure;
use crate::json;
use crate::limits::allow_many_descriptors;
use crate::names::quoted;
use crate::open::{self, Image, image_and_path};
use crate::output::{Coded, Messages, Stdout, exit_code};
use crate::progress::TransferProgress;
use crate::urls::shown;
use lines::{Lines, OutputFormat};

/// Arguments of `diff`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Compares names, file types, contents, targets of symbolic links, device numbers, modes, owners, \
    extended attributes and ACLs; times with --mtime. Inode numbers, link counts and where data lies are not \
    compared.\n\n\
    A line has a letter and a path below the trees: A only in the second tree, D only in the first, T another file \
    type, M other contents or metadata, and what differs. With --brief, lines are those of `diff -rq`, and a \
    directory that only one tree has is one line.\n\n\
    --stat counts bytes as follows: an added file adds its size, a removed one removes its size, and a file with \
    other contents removes its old size and adds its new one.\n\n\
    An ordinary user cannot read all of a host directory: attributes `trusted.*` are compared for root only, and \
    --ignore owner is useful.\n\n\
    Examples:\n  xebec diff old.xfs new.xfs\n  xebec diff --stat yesterday.xfs:/home today.xfs:/home\n  \
    xebec diff --ignore owner,mode disk.xfs:/srv/www site/\n  \
    xebec diff --name-only a.xfs b.xfs | grep '^etc/'\n  \
    xebec diff --brief disk.xfs build/ || echo 'the image is out of date'\n\n\
    Exit codes, as those of diff: 0 equal; 1 different; 2 trouble, also a usage error or a file that could not be \
    read."
)]
pub struct Arguments {
    /// The first tree: an image, a path in it, or a directory.
    #[arg(value_name = "IMAGE[:PATH]")]
    old: OsString,
    /// The second tree.
    #[arg(value_name = "IMAGE[:PATH]|DIR")]
    new: OsString,
    /// Only whether files differ, in the format of `diff -rq`.
    #[arg(long, group = "format")]
    brief: bool,
    /// Only letters and paths, as `git diff --name-status` does.
    #[arg(long, group = "format")]
    name_status: bool,
    /// Only paths.
    #[arg(long, group = "format")]
    name_only: bool,
    /// Only totals.
    #[arg(long, group = "format")]
    stat: bool,
    /// Compare modification times, too.
    #[arg(long)]
    mtime: bool,
    /// Do not compare this; may be repeated or separated by commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Ignored>,
    /// End paths with NUL instead of a newline, and do not quote them.
    #[arg(short = '0', long, requires = "name_only")]
    null: bool,
}

/// What need not be compared.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ignored {
    /// Contents and sizes of files.
    Contents,
    /// Permissions, set-ID bits, sticky bit.
    Mode,
    /// User and group.
    Owner,
    /// Extended attributes and ACLs.
    Xattrs,
    /// Device numbers.
    Device,
    /// Targets of symbolic links.
    Target,
}

impl Arguments {
    fn compared(&self) -> BTreeSet<FileProperty> {
        let mut compared = BTreeSet::from(FileProperty::ALL);
        if !self.mtime {
            compared.remove(&FileProperty::Modified);
        }
        for ignored in &self.ignore {
            compared.remove(&match ignored {
                Ignored::Contents => FileProperty::Contents,
                Ignored::Mode => FileProperty::Mode,
                Ignored::Owner => FileProperty::Owner,
                Ignored::Xattrs => FileProperty::Attributes,
                Ignored::Device => FileProperty::Device,
                Ignored::Target => FileProperty::Target,
            });
        }
        compared
    }

    fn format(&self, global: &Global) -> OutputFormat {
        if global.json {
            OutputFormat::Json
        } else if self.brief {
            OutputFormat::Brief
        } else if self.name_status {
            OutputFormat::NameStatus
        } else if self.name_only {
            OutputFormat::NameOnly { null: self.null }
        } else if self.stat {
            OutputFormat::Totals
        } else {
            OutputFormat::Details
        }
    }
}

/// An operand.
enum Operand {
    /// A directory of the host.
    Directory(PathBuf),
    /// A tree in an image.
    Tree { image: Box<Image>, path: Vec<u8> },
}

impl Operand {
    fn open(text: &OsStr, global: &Global) -> anyhow::Result<Self> {
        let path = Path::new(text);
        if path.is_dir() {
            return Ok(Self::Directory(path.into()));
        }
        let (image, path) = image_and_path(text).unwrap_or((path, OsStr::new("/")));
        let image = open::open(image, global).map_err(|error| {
            // Not all errors of opening name the image, and there are two.
            let name = shown(image);
            if error.to_string().starts_with(&name) { error } else { error.context(name) }
        })?;
        Ok(Self::Tree { image: Box::new(image), path: path.as_bytes().to_vec() })
    }

    fn tree(&self) -> ComparedTree<'_> {
        match self {
            Self::Directory(path) => ComparedTree {
                source: CopySource::Host,
                path: path.as_os_str().as_bytes().to_vec(),
                unfinished: BTreeSet::new(),
            },
            Self::Tree { image, path } => ComparedTree {
                source: (&image.volume).into(),
                path: path.clone(),
                unfinished: image.log.files_unfinished(),
            },
        }
    }

    /// The path of a file for messages.
    fn shown(&self, path: &[u8]) -> Vec<u8> {
        match self {
            Self::Directory(directory) => read::join(directory.as_os_str().as_bytes(), path),
            Self::Tree { path: root, .. } => match path {
                b"" => root.clone(),
                path => read::join(root, path),
            },
        }
    }
}

/// The two trees, and messages about them.
struct Trees {
    old: Operand,
    new: Operand,
    host: Messages,
}

impl Trees {
    fn side(&self, side: TreeSide) -> (&Operand, &Messages) {
        let operand = match side {
            TreeSide::Old => &self.old,
            TreeSide::New => &self.new,
        };
        match operand {
            Operand::Directory(_) => (operand, &self.host),
            Operand::Tree { image, .. } => (operand, &image.messages),
        }
    }

    /// Reports what is not a difference.
    fn report(&self, event: &DifferenceEvent) {
        match event {
            DifferenceEvent::Failed { side, path, reason } => {
                let (operand, messages) = self.side(*side);
                let text = reason.describe(&|_, path| quoted(path));
                let errno = reason.errno().map(xebec::Errno::get);
                messages.fail(Failure::at(&operand.shown(path), Failure { text, path: None, errno }));
            }
            DifferenceEvent::Unfinished { side, path } => {
                let (operand, messages) = self.side(*side);
                messages.warn(format_args!(
                    "{}: the log has an unfinished operation on this file: its contents may be inconsistent",
                    quoted(&operand.shown(path))
                ));
            }
            DifferenceEvent::Different(_) => {}
        }
    }

    /// Prints summaries; whether something failed.
    fn finish(&self) -> bool {
        let mut failed = self.host.finish() != exit_code::OK;
        for operand in [&self.old, &self.new] {
            if let Operand::Tree { image, .. } = operand {
                image.expect_whole("compared");
                failed |= image.messages.finish() != exit_code::OK;
            }
        }
        failed
    }
}

/// Exit codes are those of diff.
mod diff_code {
    pub const DIFFERENT: u8 = 1;
    pub const TROUBLE: u8 = 2;
}

/// Runs `diff`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    compare(arguments, global).map_err(|error| Coded { code: diff_code::TROUBLE, error }.into())
}

fn compare(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let old = Operand::open(&arguments.old, global)?;
    let new = Operand::open(&arguments.new, global)?;
    if let (Operand::Directory(_), Operand::Directory(_)) = (&old, &new) {
        return Err(anyhow!("both are directories of the host: use `diff -rq`"));
    }
    let trees = Trees { old, new, host: Messages::new(global, "") };
    allow_many_descriptors();
    let format = arguments.format(global);
    let names = [&arguments.old, &arguments.new].map(|name| name.as_bytes().to_vec());
    let mut lines = Lines::new(format, names, Stdout::is_coloured(global));
    let mut out = Stdout::buffered();
    if format == OutputFormat::Json {
        let [(old_key, old), (new_key, new)] = [("old", &arguments.old), ("new", &arguments.new)]
            .map(|(key, name)| json::name(key, name.as_bytes()));
        let head = json!({ (old_key): old, (new_key): new });
        out.write_all(&json::begin("diff", "", head, "entries"))?;
    }
    // A bar would be between the lines.
    let is_quiet = global.quiet || Stdout::is_terminal() && format != OutputFormat::Totals;
    let bar = Global { quiet: is_quiet, ..global.clone() };
    let progress = TransferProgress::new(&bar, &trees.host, "comparing");
    let comparison = TreeDifference::new(trees.old.tree(), trees.new.tree());
    let mut written = Ok(());
    let report =
        comparison.compared(arguments.compared()).progress(&progress).run(&mut |event| match &event {
            DifferenceEvent::Different(difference) if written.is_ok() => {
                written = lines.write(&mut out, difference);
            }
            event => trees.report(event),
        });
    progress.clear();
    let report = report?;
    written?;
    lines.end(&mut out, &report)?;
    out.flush()?;
    let failed = trees.finish();
    Ok(match report.is_equal() {
        _ if failed => diff_code::TROUBLE,
        true => exit_code::OK,
        false => diff_code::DIFFERENT,
    })
}
