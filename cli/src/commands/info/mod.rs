//! `xebec info`: shows geometry, features, usage and log state.

mod storage;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use format::compatibility::{self, MinimumVersion, OldestVersions, Program};
use format::features;
use format::superblock::RawSuperblock;
use format::uuid::UuidText;
use journal::Dirty;
use read::Volume;
use remote::RemoteUrl;
use serde::Serialize;
use serde_json::Value;
use xebec::check::log_problem;
use xebec::image::LogStatus;
use xebec::{Ino, Lsn};

use crate::args::Global;
use crate::geometry;
use crate::json::{self, JsonName};
use crate::names;
use crate::open::{self, Image};
use crate::output::{Stdout, counted};
use crate::sizes::with_unit;
use crate::urls::shown;
use storage::Storage;

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_help = "The first part has the format of xfs_info.\n\n\
    Examples:\n  xebec info disk.xfs\n  xebec info --json disk.qcow2 | jq .usage.free_bytes\n  \
    xebec info s3://bucket/home         # also what is stored, snapshots, clones\n\n\
    Exit codes: 0 success; 1 the image cannot be opened or read; 2 usage error.")]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
}

/// Runs `info`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&arguments.image, global)?;
    let name = shown(&arguments.image);
    let url = RemoteUrl::new(&arguments.image);
    let stored = url.map(|url| url.stored_volume(&global.remote(false))).transpose()?.flatten();
    let document = Document { storage: stored.map(Storage::of), ..Document::of(&image)? };
    if global.json {
        json::write("info", &name, document)?;
    } else {
        let mut out = Stdout::buffered();
        out.write_all(geometry::text(image.volume.superblock(), &name).as_bytes())?;
        out.write_all(summary_text(&document).as_bytes())?;
        out.flush()?;
    }
    Ok(image.messages.finish())
}

/// The JSON payload, in the order of docs/json.md.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    label: JsonName<'a>,
    uuid: String,
    meta_uuid: String,
    geometry: Value,
    features: Vec<String>,
    usage: Usage,
    log: LogState,
    readers: Vec<ReaderVersions>,
    writing: Writing,
    /// Of a volume on object storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Storage>,
}

/// Versions of a program that support the features of the volume.
#[derive(Debug, Serialize)]
struct ReaderVersions {
    program: &'static str,
    reads: Option<OldestVersion>,
    writes: Option<OldestVersion>,
}

/// The oldest version, and the features that require it.
#[derive(Debug, Serialize)]
struct OldestVersion {
    since: String,
    because: Vec<String>,
}

/// Programs in the order of the output.
const PROGRAMS: [Program; 2] = [Program::Linux, Program::Grub];

impl ReaderVersions {
    fn of(program: Program, oldest: OldestVersions) -> Self {
        let version = |MinimumVersion { version, because }| OldestVersion {
            since: program.version_text(version),
            because,
        };
        Self {
            program: program.name(),
            reads: oldest.reading.map(version),
            writes: oldest.writing.map(version),
        }
    }

    /// Text such as `Linux from 4.2 (sparse), for writing from 5.10 (inobtcount)`.
    fn text(&self, program: Program) -> String {
        let name = program.title();
        let since = |OldestVersion { since, because }: &OldestVersion| match because.is_empty() {
            true => format!("from {since}"),
            false => format!("from {since} ({})", because.join(", ")),
        };
        match (&self.reads, &self.writes) {
            (None, _) => format!("{name}: unknown"),
            (Some(reads), Some(writes)) if reads.since != writes.since => {
                format!("{name} {}, for writing {}", since(reads), since(writes))
            }
            (Some(_), Some(both)) => format!("{name} {}", since(both)),
            (Some(reads), None) => format!("{name} {}", since(reads)),
        }
    }
}

/// State of the log. Fields that do not apply are omitted.
#[derive(Debug, Default, Serialize)]
struct LogState {
    /// `clean`, `replayed`, `ignored` or `unread`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    dirty: Option<DirtyLog>,
    /// Inodes whose contents or attributes unfinished operations may still change.
    unfinished_files: Vec<u64>,
    /// Unfinished operations that were finished in memory.
    finished_operations: usize,
    unfinished_operations: usize,
    items_not_replayed: u64,
}

/// The active part of the log, from tail to head.
#[derive(Debug, Serialize)]
struct DirtyLog {
    head: String,
    tail: String,
    records: u32,
    operations: u64,
    transactions: u32,
    bytes: u64,
}

impl LogState {
    fn of(log: &LogStatus) -> Self {
        match log {
            LogStatus::Clean | LogStatus::NotExamined => Self { state: "clean", ..Self::default() },
            LogStatus::Unreadable(error) => {
                Self { state: "unread", reason: Some(log_problem(error)), ..Self::default() }
            }
            LogStatus::Ignored(dirty) => {
                Self { state: "ignored", dirty: Some(DirtyLog::of(dirty)), ..Self::default() }
            }
            LogStatus::Replayed(replay) => Self {
                state: "replayed",
                reason: replay.failure.clone(),
                dirty: Some(DirtyLog::of(&replay.dirty)),
                unfinished_files: log.files_unfinished().into_iter().map(Ino::get).collect(),
                finished_operations: replay.finished,
                unfinished_operations: replay.left.len(),
                items_not_replayed: replay.report.problems_total,
            },
        }
    }

    fn text(&self) -> String {
        let dirty = self.dirty.as_ref().map(|dirty| {
            let DirtyLog { head, tail, records, transactions, bytes, .. } = dirty;
            let records = counted((*records).into(), "record");
            let transactions = counted((*transactions).into(), "transaction");
            format!("{records} with {transactions} from {tail} to {head}, {}", with_unit(*bytes))
        });
        let dirty = dirty.unwrap_or_default();
        match self.state {
            "clean" => "clean".into(),
            "unread" => format!("not read: {}", self.reason.as_deref().unwrap_or_default()),
            "ignored" => format!("dirty, not replayed: {dirty}"),
            _ => format!("dirty, replayed in memory: {dirty}"),
        }
    }
}

impl DirtyLog {
    fn of(dirty: &Dirty) -> Self {
        let lsn = |lsn: Lsn| format!("{}:{}", lsn.cycle(), lsn.block());
        Self {
            head: lsn(dirty.head),
            tail: lsn(dirty.tail),
            records: dirty.records,
            operations: dirty.operations,
            transactions: dirty.transactions,
            bytes: u64::from(dirty.blocks) * 512,
        }
    }
}

/// Usage of the volume. The size excludes an internal log, as in `df`.
#[derive(Clone, Copy, Debug, Serialize)]
struct Usage {
    size_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    inodes_allocated: u64,
    inodes_used: u64,
    inodes_free: u64,
}

/// Whether Xebec can write the volume.
#[derive(Debug, Serialize)]
struct Writing {
    supported: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl<'a> Document<'a> {
    fn of(image: &'a Image) -> anyhow::Result<Self> {
        let volume = &image.volume;
        let raw = &volume.superblock().raw;
        Ok(Self {
            label: JsonName("label", raw.label()),
            uuid: raw.uuid_text().to_string(),
            meta_uuid: UuidText(raw.stamp_uuid()).to_string(),
            geometry: geometry::json(volume.superblock()),
            features: geometry::feature_names(raw),
            usage: usage(image)?,
            log: LogState::of(&image.log),
            readers: PROGRAMS.map(|program| ReaderVersions::of(program, oldest(volume, program))).into(),
            writing: Writing::of(raw),
            storage: None,
        })
    }
}

fn oldest(volume: &Volume, program: Program) -> OldestVersions {
    compatibility::oldest(program, &volume.superblock().raw.features(), volume.geometry().block_size)
}

impl Writing {
    /// Whether the features allow writing; the image itself may be read-only.
    fn of(raw: &RawSuperblock) -> Self {
        let features = raw.features();
        let unknown = features.ro_compat & !features::RO_COMPAT_KNOWN;
        let names = features::names(unknown, features::ro_compat::ALL);
        let reason = (!names.is_empty()).then(|| format!("features that are supported read-only: {names}"));
        Self { supported: reason.is_none(), reason }
    }
}

/// After a clean unmount, the counters of the superblock are exact; after a crash, the AG headers are summed up.
fn usage(image: &Image) -> anyhow::Result<Usage> {
    let volume = &image.volume;
    let (raw, geometry) = (&volume.superblock().raw, volume.geometry());
    let totals = match &image.log {
        LogStatus::Replayed(..) => Totals::of_ags(volume)?,
        _ => {
            Totals { free_blocks: raw.fdblocks.get(), inodes: raw.icount.get(), free_inodes: raw.ifree.get() }
        }
    };
    let log = if geometry.log_start.is_some() { u64::from(geometry.log_blocks) } else { 0 };
    let size = geometry.blocks().saturating_sub(log);
    let free = totals.free_blocks.min(size);
    Ok(Usage {
        size_bytes: size << geometry.block_log,
        used_bytes: (size - free) << geometry.block_log,
        free_bytes: free << geometry.block_log,
        inodes_allocated: totals.inodes,
        inodes_used: totals.inodes.saturating_sub(totals.free_inodes),
        inodes_free: totals.free_inodes,
    })
}

/// Counters of the volume.
struct Totals {
    free_blocks: u64,
    inodes: u64,
    free_inodes: u64,
}

impl Totals {
    /// Sums up the AG headers, as a mount does after recovery, since superblock counters are updated lazily.
    fn of_ags(volume: &Volume) -> anyhow::Result<Self> {
        let geometry = volume.geometry();
        let mut totals = Self { free_blocks: 0, inodes: 0, free_inodes: 0 };
        for ag in geometry.ags() {
            let (agf, agi) = (volume.agf(ag)?, volume.agi(ag)?);
            let counters = [agf.freeblks, agf.flcount, agf.btreeblks];
            totals.free_blocks += counters.iter().map(|count| u64::from(count.get())).sum::<u64>();
            totals.inodes += u64::from(agi.count.get());
            totals.free_inodes += u64::from(agi.freecount.get());
        }
        Ok(totals)
    }
}

fn summary_text(info: &Document<'_>) -> String {
    let mut out = String::new();
    let mut line = |key: &str, text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{key:<9}={text}");
    };
    let label = info.label.1;
    let label = if label.is_empty() { "(none)".into() } else { names::quoted(label) };
    line("label", format_args!("{label}"));
    line("uuid", format_args!("{}", info.uuid));
    if info.meta_uuid != info.uuid {
        line("meta-uuid", format_args!("{}", info.meta_uuid));
    }
    let usage = &info.usage;
    let percent = usage.used_bytes as f64 * 100.0 / usage.size_bytes.max(1) as f64;
    line(
        "usage",
        format_args!(
            "{} of {} used ({percent:.1} %), {} free",
            with_unit(usage.used_bytes),
            with_unit(usage.size_bytes),
            with_unit(usage.free_bytes)
        ),
    );
    line("inodes", format_args!("{} used, {} allocated", usage.inodes_used, usage.inodes_allocated));
    line("log", format_args!("{}", info.log.text()));
    if !info.log.unfinished_files.is_empty() {
        let files: Vec<String> = info.log.unfinished_files.iter().map(u64::to_string).collect();
        line("pending", format_args!("operations on inodes {}", files.join(", ")));
    }
    let readers = PROGRAMS.iter().zip(&info.readers).map(|(program, reader)| reader.text(*program));
    line("readers", format_args!("{}", readers.collect::<Vec<_>>().join("; ")));
    let writing = info.writing.reason.as_ref().map_or("yes".into(), |reason| format!("no: {reason}"));
    line("writing", format_args!("{writing}"));
    if let Some(storage) = &info.storage {
        out.push_str(&storage.text());
    }
    out
}
