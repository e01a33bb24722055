//! The independent checker.
//!
//! [`check_path`] checks an image and collects the findings. [`check_opened`] passes them to an [`Observer`] while the
//! check runs. [`check`](fn@check) checks a device, without looking at the log.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ::check::Counts;
pub use ::check::{
    CheckError, Finding, Observer, Options, Phase, Progress, Severity, Summary, Suppressed, check,
};
use format::superblock::SuperblockError;
use format::{Damage, Place};
use volume::image::{LogStatus, OpenedImage, superblock};
use volume::{Access, ImageError, ImageOptions, open_image};

/// The result of [`check_path`].
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Errors and warnings: the first hundred of each kind.
    pub findings: Vec<Finding>,
    /// Totals.
    pub summary: Summary,
}

impl CheckReport {
    /// Whether no errors were found.
    pub fn is_clean(&self) -> bool {
        self.summary.is_clean()
    }
}

/// Why an image could not be checked.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckPathError {
    /// It cannot be opened.
    Open(ImageError),
    /// The check failed.
    Check(CheckError),
}

impl fmt::Display for CheckPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Check(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckPathError {}

/// Checks the volume in an image file or block device, on all CPUs. A dirty log is replayed in memory first.
///
/// # Errors
/// [`CheckPathError`] if the image cannot be opened or read. Damage is a finding.
pub fn check_path(path: impl AsRef<Path>) -> Result<CheckReport, CheckPathError> {
    let options = ImageOptions { damaged: true, ..ImageOptions::new(Access::ReadOnly) };
    let opened = open_image(path.as_ref(), &options, &mut |_| {}).map_err(CheckPathError::Open)?;
    let collector = Collector::default();
    let summary =
        check_opened(&opened, true, &Options::default(), &collector).map_err(CheckPathError::Check)?;
    Ok(CheckReport { findings: collector.0.into_inner().unwrap_or_else(PoisonError::into_inner), summary })
}

/// Collects findings.
#[derive(Default)]
struct Collector(Mutex<Vec<Finding>>);

impl Observer for Collector {
    fn finding(&self, finding: &Finding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(finding.clone());
    }
}

/// Checks the volume in an image that was opened with [`ImageOptions::damaged`], and, with `include_log`, its log. The
/// options about the log are set from the image.
///
/// # Errors
/// [`CheckError`]; a damaged superblock is a finding.
pub fn check_opened(
    opened: &OpenedImage,
    include_log: bool,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Summary, CheckError> {
    let options = Options {
        external_log: opened.log_device.as_deref(),
        replayed: matches!(opened.log, LogStatus::Replayed(..)),
        ..*options
    };
    let log_errors = match include_log {
        true => report_log(opened, options.findings_per_kind, observer),
        false => 0,
    };
    let mut summary = match check(&*opened.device, &options, observer) {
        Err(CheckError::Refused(SuperblockError::Damaged(damage))) => {
            observer.finding(&Finding { severity: Severity::Error, place: Place::default(), damage });
            Summary { findings: Counts { errors: 1, ..Counts::default() }, ..Summary::default() }
        }
        summary => summary?,
    };
    summary.findings.errors += log_errors;
    Ok(summary)
}

/// Why a log was not read.
pub fn log_problem(error: &ImageError) -> String {
    match error {
        ImageError::LogDeviceMissing => "it is on another device, which was not given".into(),
        ImageError::Log(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Reports damage of the log, for which Linux refuses the mount or loses changes, and returns the number of findings.
fn report_log(opened: &OpenedImage, per_kind: usize, observer: &dyn Observer) -> u64 {
    let report = |place, field, expected, found: String| {
        let damage = Damage::new("log", field, expected, found);
        observer.finding(&Finding { severity: Severity::Error, place, damage });
    };
    match &opened.log {
        // An unreadable superblock is reported by the check.
        LogStatus::Unreadable(error) if superblock(&opened.device).is_ok() => {
            report(Place::default(), "state", "a log that can be replayed", log_problem(error));
            1
        }
        LogStatus::Replayed(replay) => {
            let (problems, total) = (&replay.report.problems, replay.report.problems_total);
            let shown = problems.iter().take(per_kind);
            let before = shown.len() as u64;
            shown.for_each(|problem| report(problem.place, "items", "one to replay", problem.to_string()));
            if total > before {
                let (structure, field, count) = ("log", "items", total - before);
                observer.suppressed(&Suppressed { severity: Severity::Error, structure, field, count });
            }
            let failure = replay.failure.as_ref().filter(|_| !replay.left.is_empty());
            if let Some(failure) = failure {
                report(Place::default(), "intents", "operations to finish", failure.clone());
            }
            total + u64::from(failure.is_some())
        }
        _ => 0,
    }
}
