//! `xebec check`: verifies all metadata and cross-references of a volume.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use xebec::check::{Finding, Observer, Options, Phase, Progress, Summary, Suppressed, check_opened};
use xebec::image::LogStatus;
use xebec::{AgBlock, AgNumber, Daddr, FileBlock, Ino};

use crate::args::Global;
use crate::json;
use crate::memory;
use crate::names;
use crate::open;
use crate::output::{Coded, Messages, Stdout, counted, exit_code};
use crate::sizes;
use crate::urls::shown;

/// Arguments of `check`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The image is not changed. A dirty log is replayed in memory before the check; with --no-replay \
    the metadata on disk is checked as it is, which may be inconsistent after a crash.\n\n\
    Each finding is one line: severity, location, structure, field, found and expected value. Errors are damage; \
    warnings are valid states, such as counters that the next mount corrects.\n\n\
    Examples:\n  xebec check disk.xfs\n  xebec check --json disk.qcow2 | jq '.findings[] | select(.severity == \
    \"error\")'\n\n\
    Exit codes, as fsck: 0 clean; 4 errors found and not corrected; 8 operational error; 16 \
    usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Memory for lists of inodes and block owners; larger lists use a temporary file; suffixes k, m, g.
    #[arg(long, value_name = "BYTES", default_value = "64m", value_parser = sizes::parse)]
    memory: u64,
    /// Maximum number of findings to show per kind.
    #[arg(long, value_name = "N", default_value = "100")]
    per_kind: usize,
}

/// Runs `check`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    memory::restart_if_small(arguments.memory);
    check_image(arguments, global).map_err(|error| {
        // A closed pipe has its own exit code.
        if error.downcast_ref::<io::Error>().is_some() {
            return error;
        }
        Coded { code: exit_code::CHECK_OPERATIONAL, error }.into()
    })
}

fn check_image(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let messages = Messages::new(global, shown(&arguments.image));
    let opened = open::open_damaged(&arguments.image, global, &messages)?;
    if let LogStatus::Replayed(replay) = &opened.log {
        let unfinished = replay.left.len();
        if unfinished > 0 {
            messages.note(format_args!(
                "{unfinished} unfinished operations in the log, which a mount would finish: their intermediate \
                state is reported"
            ));
        }
    }
    let options = Options {
        threads: global.thread_count(),
        memory_budget: usize::try_from(arguments.memory).unwrap_or(usize::MAX),
        findings_per_kind: arguments.per_kind,
        ..Options::default()
    };
    let reporter = Reporter::new(global, messages.image())?;
    let summary = check_opened(&opened, !global.no_replay, &options, &reporter);
    reporter.bar.finish_and_clear();
    let summary = summary?;
    let is_clean = summary.is_clean();
    reporter.finish(&summary, is_clean, global, &messages)?;
    Ok(if is_clean { exit_code::OK } else { exit_code::CHECK_UNCORRECTED })
}

/// Writes findings and shows progress.
struct Reporter {
    out: Mutex<Output>,
    json: bool,
    bar: ProgressBar,
}

struct Output {
    out: io::BufWriter<Stdout>,
    has_findings: bool,
    /// The first error of standard output; the check continues.
    error: Option<io::Error>,
}

impl Output {
    fn write(&mut self, text: &[u8]) {
        if self.error.is_none() {
            self.error = self.out.write_all(text).err();
        }
    }
}

impl Reporter {
    fn new(global: &Global, image: &str) -> anyhow::Result<Self> {
        let bar = ProgressBar::new(0);
        bar.set_draw_target(if global.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        });
        bar.set_style(ProgressStyle::with_template("{msg:20} {bar:30} {percent} %")?);
        let mut out = Output { out: Stdout::buffered(), has_findings: false, error: None };
        if global.json {
            out.write(&json::begin("check", image, json!({}), "findings"));
        }
        Ok(Self { out: Mutex::new(out), json: global.json, bar })
    }

    fn write(&self, line: &[u8]) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if self.json && out.has_findings {
            out.write(json::SEPARATOR);
        }
        out.has_findings = true;
        self.bar.suspend(|| {
            out.write(line);
            if Stdout::is_terminal() && out.error.is_none() {
                out.error = out.out.flush().err();
            }
        });
    }

    fn finish(
        self,
        summary: &Summary,
        is_clean: bool,
        global: &Global,
        messages: &Messages,
    ) -> io::Result<()> {
        let mut out = self.out.into_inner().unwrap_or_else(PoisonError::into_inner);
        if self.json {
            out.write(&json::end(json!({ "summary": summary_json(summary, is_clean) })));
        } else if !global.quiet {
            let Summary { findings, ags, inodes, directories, entries, extents, .. } = summary;
            let verdict = if is_clean { "clean" } else { "damaged" };
            let text = format!(
                "{verdict}: {}, {}; {}, {}, {}, {}, {}\n",
                counted(findings.errors, "error"),
                counted(findings.warnings, "warning"),
                counted(*ags, "AG"),
                counted(*inodes, "inode"),
                counted(*directories, "directory"),
                counted(*entries, "entry"),
                counted(*extents, "extent"),
            );
            out.write(names::printable(messages.image().as_bytes()).as_bytes());
            out.write(b": ");
            out.write(text.as_bytes());
        }
        for (phase, time) in &summary.phases {
            messages.detail(format_args!("{phase}: {:.3} s", time.as_secs_f64()));
        }
        match out.error {
            Some(error) => Err(error),
            None => out.out.flush(),
        }
    }
}

impl Observer for Reporter {
    fn finding(&self, finding: &Finding) {
        if self.json {
            return self.write(json::object(&finding_json(finding)).as_bytes());
        }
        // Findings may contain names from the disk.
        self.write(format!("{}\n", names::printable(finding.to_string().as_bytes())).as_bytes());
    }

    fn suppressed(&self, suppressed: &Suppressed) {
        let Suppressed { severity, structure, field, count } = suppressed;
        if self.json {
            let json = json!({
                "severity": severity.to_string(), "structure": structure, "field": field, "more": count,
            });
            return self.write(json::object(&json).as_bytes());
        }
        self.write(
            format!("{severity}: {structure}: {field}: {count} more (--per-kind shows them)\n").as_bytes(),
        );
    }

    fn progress(&self, progress: &Progress) {
        if !self.bar.is_hidden() {
            self.bar.set_length(progress.total);
            self.bar.set_position(progress.done);
            self.bar.set_message(progress.phase.to_string());
        }
    }
}

fn finding_json(finding: &Finding) -> Value {
    let Finding { severity, place, damage } = finding;
    let mut fields = json::without_nulls(json!({
        "severity": severity.to_string(),
        "ag": place.ag.map(AgNumber::get),
        "block": place.block.map(AgBlock::get),
        "daddr": place.daddr.map(Daddr::get),
        "ino": place.ino.map(Ino::get),
        "file_block": place.file_block.map(FileBlock::get),
    }));
    fields["structure"] = damage.structure().into();
    fields["field"] = damage.field().into();
    fields["expected"] = damage.expected().into();
    fields["found"] = damage.found().into();
    fields
}

fn summary_json(summary: &Summary, clean: bool) -> Value {
    let seconds = |(phase, time): &(Phase, Duration)| (phase.to_string(), time.as_secs_f64());
    json!({
        "clean": clean,
        "errors": summary.findings.errors,
        "warnings": summary.findings.warnings,
        "ags": summary.ags,
        "inodes": summary.inodes,
        "directories": summary.directories,
        "entries": summary.entries,
        "extents": summary.extents,
        "seconds": summary.phases.iter().map(seconds).collect::<Vec<_>>(),
    })
}
