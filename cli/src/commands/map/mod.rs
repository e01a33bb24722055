//! `xebec map`: shows where the space of a volume is, on the terminal, as HTML or as PNG.
//!
//! | part | subject |
//! |---|---|
//! | this file | arguments, JSON |
//! | [`scan`] | finds the use of all blocks, and figures about files |
//! | [`space`], [`histogram`], [`directories`] | what is kept of it, within a bound |
//! | [`text`] | figures in words |
//! | [`treemap`], [`sections`], [`canvas`] | drawing |
//! | [`page`], [`picture`], [`terminal`] | the three forms of output |

mod canvas;
mod directories;
mod histogram;
mod page;
mod picture;
mod scan;
mod sections;
mod space;
mod terminal;
mod text;
mod treemap;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base::pipeline;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::commands::usage::shared::SharedExtents;
use crate::image_operand::is_same_file;
use crate::json;
use crate::open::{self, Image};
use crate::output::{Stdout, terminal_width};
use crate::progress::TransferProgress;
use directories::Directory;
use histogram::{Group, Histogram};
use scan::{Files, Found, Scan, ScanTask};
use space::{BlockUse, Space, Uses};
use terminal::Terminal;

/// Arguments of `map`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Shows for each allocation group where data, metadata and free space are, how long the runs of \
    free space are, how large and how fragmented files are, and which directories have most of the space.\n\n\
    All inodes are read, and the tree is walked. Memory is needed for 65,536 cells of the bars, for each directory \
    and each file with several names (a few bytes), and for each shared extent (16 bytes); not for each file or \
    block.\n\n\
    The HTML file needs nothing else: no network, no scripts. It follows the light or dark setting of the reader.\n\n\
    Examples:\n  xebec map disk.xfs\n  xebec map --html disk.html disk.xfs\n  \
    xebec map --png disk.png disk.xfs\n  xebec map --json disk.xfs | jq .fragmentation\n\n\
    Exit codes: 0 success; 1 the image cannot be opened, or parts of it are damaged and missing in the map; 2 usage \
    error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Write an HTML file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a picture.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// TrueType font for the text of --png (default: one of the system).
    #[arg(long, value_name = "FILE", requires = "png")]
    font: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    overwrite: bool,
}

/// All figures of a volume.
pub struct MapData {
    image: String,
    block_bytes: u32,
    space: Space,
    files: Files,
    free_runs: Histogram,
    root: Directory,
}

/// Runs `map`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    for file in [&arguments.html, &arguments.png].into_iter().flatten() {
        check_target(file, arguments)?;
    }
    // Before the long part.
    if arguments.png.is_some() {
        canvas::font(arguments.font.as_deref())?;
    }
    let image = open::open(&arguments.image, global)?;
    let data = collect(&image, global)?;
    if let Some(file) = &arguments.html {
        write(file, page::page(&data)?.as_bytes(), arguments.overwrite)?;
    }
    if let Some(file) = &arguments.png {
        write(file, &picture::picture(&data, arguments.font.as_deref())?, arguments.overwrite)?;
    }
    if global.json {
        json::write("map", image.messages.image(), document(&data))?;
    } else if arguments.html.is_none() && arguments.png.is_none() {
        let terminal = Terminal {
            width: terminal_width(),
            coloured: Stdout::is_coloured(global),
            unicode: terminal::is_utf8(|name| std::env::var(name).ok()),
        };
        let mut out = Stdout::buffered();
        out.write_all(terminal.text(&data).as_bytes())?;
        out.flush()?;
    }
    Ok(image.messages.finish())
}

fn collect(image: &Image, global: &Global) -> anyhow::Result<MapData> {
    let volume = &image.volume;
    let progress = TransferProgress::new(global, &image.messages, "reading inodes");
    let shared = SharedExtents::of(volume)?;
    let mut found = Found::new(volume, &image.messages, &progress);
    let scan = Scan { volume, shared: &shared };
    let tasks = volume.geometry().ags().map(ScanTask::Ag).collect();
    let Ok(()) = pipeline::run(&scan, tasks, &mut found, global.thread_count());
    found.space.complete();
    let Found { space, files, free_runs, .. } = found;
    progress.clear();
    let block_bytes = volume.geometry().block_size;
    let uses = space.uses();
    let used = (uses.total() - uses.get(BlockUse::Free)) * u64::from(block_bytes);
    let progress = TransferProgress::new(global, &image.messages, "adding up directories");
    let root = directories::of_volume(volume, used, &image.messages, &progress, global.thread_count());
    progress.clear();
    let name = image.messages.image().to_owned();
    Ok(MapData { image: name, block_bytes, space, files, free_runs, root })
}

/// Refuses to replace a file by mistake.
fn check_target(file: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    if is_same_file(file, &arguments.image) {
        bail!("{}: is the image", file.display());
    }
    if !arguments.overwrite && file.symlink_metadata().is_ok() {
        bail!("{}: exists already (--overwrite replaces it)", file.display());
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8], overwrite: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    let opened =
        if overwrite { options.create(true).truncate(true) } else { options.create_new(true) }.open(file);
    let written = opened.and_then(|mut file| file.write_all(bytes));
    written.with_context(|| file.display().to_string())
}

/// The JSON payload, in the order of docs/json.md.
fn document(data: &MapData) -> impl Serialize {
    let block = u64::from(data.block_bytes);
    let uses = |uses: &Uses| {
        let bytes = |block_use: BlockUse| (block_use.key().to_owned(), (uses.get(block_use) * block).into());
        BlockUse::ALL.into_iter().map(bytes).collect::<Map<String, Value>>()
    };
    let ags = data.space.ags.iter().enumerate().map(|(ag, space)| {
        let mut object = Map::new();
        object.insert("ag".into(), ag.into());
        object.insert("bytes".into(), (u64::from(space.blocks()) * block).into());
        object.extend(uses(&space.uses()));
        Value::Object(object)
    });
    let free = |group: &Group| {
        let end = group.to.saturating_add(1).saturating_mul(block) - 1;
        json!({ "from": group.from * block, "to": end, "runs": group.count, "bytes": group.sum * block })
    };
    let size = |group: &Group| json!({ "from": group.from, "to": group.to, "files": group.count, "bytes": group.sum });
    let pieces = |group: &Group| json!({ "from": group.from, "to": group.to, "files": group.count });
    let list =
        |groups: Vec<Group>, show: &dyn Fn(&Group) -> Value| groups.iter().map(show).collect::<Value>();
    json!({
        "block_bytes": block,
        "uses": uses(&data.space.uses()),
        "ags": ags.collect::<Value>(),
        "inodes": data.files.inodes,
        "free_runs": list(data.free_runs.groups(1), &free),
        "files_by_size": list(data.files.by_size.groups(1), &size),
        "files_by_pieces": list(data.files.by_fragments.groups(1), &pieces),
        "fragmentation": {
            "files": data.files.by_fragments.count(),
            "pieces": data.files.fragments.count(),
            "bytes": data.files.fragments.sum(),
            "half_in_pieces_of": data.files.fragments.middle().unwrap_or(0),
            "text": text::fragmentation(data),
        },
        "directories": data.root.json(),
    })
}
