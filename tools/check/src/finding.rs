//! Findings: their severity, their order, and the interface that receives them.
//!
//! # Invariants
//! The order of findings depends on the volume only, not on threads: the findings of a phase are collected, sorted and
//! then reported. Their number is limited per kind (severity, structure and field): the first ones in that order are
//! kept, the rest is counted.
//!
//! # Locking
//! One mutex around the collected findings. It is not taken for healthy volumes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use format::{Damage, Place};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Damage.
    Error,
    /// Valid, but unusual: what the next mount corrects, or an old value in a copy.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One damaged or unusual field, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// AG, block or inode.
    pub place: Place,
    /// Structure, field, expected and found value.
    pub damage: Damage,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.place, self.damage)
    }
}

/// Findings of one kind that were counted and not reported, because there were too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// Severity.
    pub severity: Severity,
    /// Structure.
    pub structure: &'static str,
    /// Field.
    pub field: &'static str,
    /// Number of suppressed findings.
    pub count: u64,
}

/// Receives findings and progress, and can cancel the check.
pub trait Observer: Sync {
    /// Receives a finding. Called from one thread, in the same order for the same volume.
    fn finding(&self, finding: &Finding);
    /// Receives the number of findings beyond [`Options::findings_per_kind`](crate::Options::findings_per_kind) of one
    /// kind. Called after the findings of a phase.
    fn suppressed(&self, _suppressed: &Suppressed) {}
    /// Receives the progress of a phase. Called from any thread.
    fn progress(&self, _progress: &crate::Progress) {}
    /// Called repeatedly; `true` ends the check with [`CheckError::Cancelled`](crate::CheckError::Cancelled).
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Findings are counted and limited per kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FindingKind {
    severity: Severity,
    structure: &'static str,
    field: &'static str,
}

/// Place first, so that findings follow the layout of the volume; then the texts, to make the order total.
type SortKey = (Place, String, String);

#[derive(Default)]
struct FindingsOfKind {
    kept: BTreeMap<SortKey, Finding>,
    total: u64,
}

/// Collects the findings of one phase.
pub(crate) struct Findings {
    max_per_kind: usize,
    kinds: Mutex<BTreeMap<FindingKind, FindingsOfKind>>,
}

/// Number of findings by severity, including suppressed ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Errors.
    pub errors: u64,
    /// Warnings.
    pub warnings: u64,
}

impl Findings {
    pub fn new(max_per_kind: usize) -> Self {
        Self { max_per_kind: max_per_kind.max(1), kinds: Mutex::default() }
    }

    /// Adds an error.
    #[cold]
    pub fn error(&self, place: Place, damage: Damage) {
        self.add(Finding { severity: Severity::Error, place, damage });
    }

    /// Adds a warning.
    #[cold]
    pub fn warn(&self, place: Place, damage: Damage) {
        self.add(Finding { severity: Severity::Warning, place, damage });
    }

    fn add(&self, finding: Finding) {
        let damage = &finding.damage;
        let (structure, field) = (damage.structure(), damage.field());
        let kind = FindingKind { severity: finding.severity, structure, field };
        let key = (finding.place, damage.found().to_owned(), damage.expected().to_owned());
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = kinds.entry(kind).or_default();
        of_kind.total += 1;
        of_kind.kept.insert(key, finding);
        if of_kind.kept.len() > self.max_per_kind {
            of_kind.kept.pop_last();
        }
    }

    /// Passes the collected findings to the observer, ordered by place, and removes them.
    pub fn report(&self, observer: &dyn Observer, counts: &mut Counts) {
        let kinds = std::mem::take(&mut *self.kinds.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = Vec::new();
        let mut suppressed = Vec::new();
        for (kind, FindingsOfKind { kept, total }) in kinds {
            match kind.severity {
                Severity::Error => counts.errors += total,
                Severity::Warning => counts.warnings += total,
            }
            let count = total - kept.len() as u64;
            if count > 0 {
                let FindingKind { severity, structure, field } = kind;
                suppressed.push(Suppressed { severity, structure, field, count });
            }
            all.extend(kept.into_values().map(|finding| (kind, finding)));
        }
        // Stable: equal places and kinds keep the order of their texts.
        all.sort_by_key(|(kind, finding)| (finding.place, *kind));
        all.iter().for_each(|(_, finding)| observer.finding(finding));
        suppressed.iter().for_each(|kind| observer.suppressed(kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::AgNumber;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Observer for Recorder {
        fn finding(&self, finding: &Finding) {
            self.0.lock().unwrap().push(finding.to_string());
        }
        fn suppressed(&self, suppressed: &Suppressed) {
            self.0.lock().unwrap().push(format!("{} more", suppressed.count));
        }
    }

    #[test]
    fn the_first_places_are_kept_in_any_order_of_discovery() {
        let report = |order: &[u32]| {
            let findings = Findings::new(2);
            for ag in order {
                findings.error(Place::ag(AgNumber(*ag)), Damage::new("AGF", "length", 1, 2));
            }
            let (recorder, mut counts) = (Recorder::default(), Counts::default());
            findings.report(&recorder, &mut counts);
            assert_eq!(counts, Counts { errors: order.len() as u64, warnings: 0 });
            recorder.0.into_inner().unwrap()
        };
        let expected = [
            "error: AG 0: AGF: length is 2, expected 1",
            "error: AG 1: AGF: length is 2, expected 1",
            "2 more",
        ];
        assert_eq!(report(&[3, 1, 0, 2]), expected);
        assert_eq!(report(&[0, 1, 2, 3]), expected);
    }
}
