//! `xebec df`: shows the size and usage of a volume as GNU `df` does.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use read::Volume;
use serde::Serialize;
use serde_json::{Value, json};
use xebec::Usage;

use super::percent;
use crate::args::Global;
use crate::json;
use crate::open;
use crate::output::Stdout;
use crate::sizes;

/// Arguments of `df`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Shows what `xebec mount` of the volume would show: the log is not included in the size, and \
    space that the file system reserves for its trees is used. The kernel keeps up to 8192 blocks more for itself. \
    A dirty log is replayed in memory. With --ags, the free \
    space of an AG includes what is reserved, so that the AGs together have more of it than the volume.\n\n\
    Examples:\n  xebec df -h disk.xfs\n  xebec df -i disk.xfs\n  xebec df -h --ags disk.xfs\n  \
    xebec df --json disk.xfs | jq .available_bytes\n\n\
    Exit codes: 0 success; 1 the image cannot be opened or read; 2 usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Show sizes with suffixes K, M, G.
    #[arg(short, long)]
    human_readable: bool,
    /// Show numbers of inodes instead of sizes.
    #[arg(short, long)]
    inodes: bool,
    /// Show sizes in units of this many bytes, rounded up (default: 1024).
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = sizes::parse, conflicts_with = "human_readable")]
    block_size: Option<u64>,
    /// Add one line for each allocation group.
    #[arg(long)]
    ags: bool,
}

/// A line.
#[derive(Clone, Copy, Debug, Serialize)]
struct Line {
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
}

/// Runs `df`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let opened = open::in_memory(&arguments.image, global)?;
    let whole = Line::of_volume(&opened.volume.usage());
    // The reader sees what was recovered.
    opened.volume.write_back_all()?;
    let image = opened.image(global)?;
    let ags = if arguments.ags { of_ags(&image.volume)? } else { Vec::new() };
    let name = opened.messages.image();
    if global.json {
        let mut document = serde_json::to_value(whole)?;
        if let (true, Value::Object(fields)) = (arguments.ags, &mut document) {
            let ags = ags.iter().enumerate().map(|(ag, line)| {
                let mut line = serde_json::to_value(line)?;
                if let Value::Object(fields) = &mut line {
                    fields.shift_insert(0, "ag".into(), json!(ag));
                }
                Ok(line)
            });
            fields.insert("ags".into(), ags.collect::<serde_json::Result<Value>>()?);
        }
        json::write("df", name, document)?;
        return Ok(image.messages.finish());
    }
    let mut rows = vec![arguments.head(), arguments.row(name.to_owned(), &whole)];
    rows.extend(ags.iter().enumerate().map(|(ag, line)| arguments.row(format!("AG {ag}"), line)));
    let mut out = Stdout::buffered();
    write_rows(&mut out, &rows)?;
    out.flush()?;
    Ok(image.messages.finish())
}

impl Line {
    fn of_volume(usage: &Usage) -> Self {
        let block = u64::from(usage.block_size);
        Self {
            size_bytes: usage.blocks * block,
            used_bytes: usage.blocks.saturating_sub(usage.blocks_available) * block,
            available_bytes: usage.blocks_available * block,
            inodes: usage.files,
            inodes_used: usage.files.saturating_sub(usage.files_free),
            inodes_free: usage.files_free,
        }
    }
}

/// The lines of the AGs. Only allocated inodes are counted.
fn of_ags(volume: &Volume) -> read::Result<Vec<Line>> {
    let geometry = volume.geometry();
    let log_ag = geometry.log_start.and_then(|start| geometry.split_fs_block(start)).map(|(ag, _)| ag);
    let of_ag = |ag| {
        let (agf, agi) = (volume.agf(ag)?, volume.agi(ag)?);
        let log = if log_ag == Some(ag) { geometry.log_blocks } else { 0 };
        let size = u64::from(geometry.ag_length(ag).saturating_sub(log));
        let free = [agf.freeblks, agf.flcount, agf.btreeblks].map(|count| u64::from(count.get()));
        let free = free.iter().sum::<u64>().min(size);
        let bytes = |blocks: u64| blocks << geometry.block_log;
        Ok(Line {
            size_bytes: bytes(size),
            used_bytes: bytes(size - free),
            available_bytes: bytes(free),
            inodes: agi.count.get().into(),
            inodes_used: agi.count.get().saturating_sub(agi.freecount.get()).into(),
            inodes_free: agi.freecount.get().into(),
        })
    };
    geometry.ags().map(of_ag).collect()
}

/// The cells of a line of the table.
type Row = [String; 5];

impl Arguments {
    fn head(&self) -> Row {
        const KIB: u64 = 1 << 10;
        let name = "Filesystem".to_owned();
        let used = |all: String, free: &str, percent: &str| {
            [
                name.clone(),
                all,
                if self.inodes { "IUsed" } else { "Used" }.into(),
                free.into(),
                percent.into(),
            ]
        };
        match (self.inodes, self.human_readable, self.block_size.unwrap_or(KIB).max(1)) {
            (true, ..) => used("Inodes".into(), "IFree", "IUse%"),
            (_, true, _) => used("Size".into(), "Avail", "Use%"),
            (.., unit) => used(format!("{}-blocks", unit_name(unit)), "Available", "Use%"),
        }
    }

    fn row(&self, name: String, line: &Line) -> Row {
        let show = |bytes: u64| match (self.human_readable, self.block_size.unwrap_or(1 << 10)) {
            (true, _) => sizes::human(bytes),
            (_, unit) => bytes.div_ceil(unit.max(1)).to_string(),
        };
        let counts = [line.inodes, line.inodes_used, line.inodes_free];
        let bytes = [line.size_bytes, line.used_bytes, line.available_bytes];
        let [_, used, free] = if self.inodes { counts } else { bytes };
        let percent = percent(used, free).map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"));
        let [all, used, free] = match (self.inodes, self.human_readable) {
            (true, false) => counts.map(|count| count.to_string()),
            (true, true) => counts.map(sizes::human),
            (false, _) => bytes.map(show),
        };
        [name, all, used, free, percent]
    }
}

/// `1K` for 1024, as in the head of df(1).
fn unit_name(unit: u64) -> String {
    let name = sizes::human(unit);
    name.replace(".0", "")
}

/// Writes a table: the first column is aligned to the left, the others to the right.
fn write_rows(out: &mut impl io::Write, rows: &[Row]) -> io::Result<()> {
    let mut widths = [14, 5, 5, 5, 4];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let [name_width, rest @ ..] = widths;
    for [name, cells @ ..] in rows {
        write!(out, "{name:name_width$}")?;
        for (cell, width) in cells.iter().zip(rest) {
            write!(out, " {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
