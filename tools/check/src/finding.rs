//! What the checker says: one finding, how bad it is, and how findings reach the caller in a fixed order.
//!
//! # Invariants
//! The order of findings depends on the volume alone, not on threads: they are gathered per phase and handed over
//! sorted. A flood is cut per kind (severity, structure and field): the first ones in that order are kept, the rest
//! is counted.
//!
//! # Locking
//! One mutex around what was found. Healthy volumes never take it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use format::{Damage, Place};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something is damaged.
    Error,
    /// Legal, but not as it should be: what the next mount puts right, or a copy that lags behind.
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

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where it lies.
    pub place: Place,
    /// Structure, field, what was expected and what was found.
    pub damage: Damage,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.place, self.damage)
    }
}

/// Findings of one kind that were counted but not handed over, because there were too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// How bad they are.
    pub severity: Severity,
    /// Their structure.
    pub structure: &'static str,
    /// Their field.
    pub field: &'static str,
    /// How many.
    pub count: u64,
}

/// Who listens to a check.
pub trait Observer: Sync {
    /// A finding. Called from one thread, in the same order for the same volume.
    fn finding(&self, finding: &Finding);
    /// More of a kind than [`Options::findings_per_kind`](crate::Options::findings_per_kind): follows the ones handed
    /// over.
    fn suppressed(&self, _suppressed: &Suppressed) {}
    /// How far the check is. Called from any thread.
    fn progress(&self, _progress: &crate::Progress) {}
    /// Asked now and then; `true` ends the check with [`CheckError::Cancelled`](crate::CheckError::Cancelled).
    fn is_cancelled(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    severity: Severity,
    structure: &'static str,
    field: &'static str,
}

/// Place first, so that a reader walks the volume; then the texts, to make the order total.
type Key = (Place, String, String);

#[derive(Default)]
struct Bucket {
    kept: BTreeMap<Key, Finding>,
    total: u64,
}

/// Gathers the findings of one phase.
pub(crate) struct Findings {
    per_kind: usize,
    kinds: Mutex<BTreeMap<Kind, Bucket>>,
}

/// How many findings there were, the suppressed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Errors.
    pub errors: u64,
    /// Warnings.
    pub warnings: u64,
}

impl Findings {
    pub fn new(per_kind: usize) -> Self {
        Self { per_kind: per_kind.max(1), kinds: Mutex::default() }
    }

    /// Records damage.
    #[cold]
    pub fn error(&self, place: Place, damage: Damage) {
        self.add(Finding { severity: Severity::Error, place, damage });
    }

    /// Records what is only noteworthy.
    #[cold]
    pub fn warn(&self, place: Place, damage: Damage) {
        self.add(Finding { severity: Severity::Warning, place, damage });
    }

    fn add(&self, finding: Finding) {
        let damage = &finding.damage;
        let kind = Kind { severity: finding.severity, structure: damage.structure(), field: damage.field() };
        let key = (finding.place, damage.found().to_owned(), damage.expected().to_owned());
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = kinds.entry(kind).or_default();
        bucket.total += 1;
        bucket.kept.insert(key, finding);
        if bucket.kept.len() > self.per_kind {
            bucket.kept.pop_last();
        }
    }

    /// Hands over what was gathered, ordered by place, and forgets it.
    pub fn hand_over(&self, observer: &dyn Observer, counts: &mut Counts) {
        let kinds = std::mem::take(&mut *self.kinds.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = Vec::new();
        let mut suppressed = Vec::new();
        for (kind, bucket) in kinds {
            match kind.severity {
                Severity::Error => counts.errors += bucket.total,
                Severity::Warning => counts.warnings += bucket.total,
            }
            let rest = bucket.total - bucket.kept.len() as u64;
            if rest > 0 {
                let Kind { severity, structure, field } = kind;
                suppressed.push(Suppressed { severity, structure, field, count: rest });
            }
            all.extend(bucket.kept.into_values().map(|finding| (kind, finding)));
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
    struct Heard(Mutex<Vec<String>>);

    impl Observer for Heard {
        fn finding(&self, finding: &Finding) {
            self.0.lock().unwrap().push(finding.to_string());
        }
        fn suppressed(&self, suppressed: &Suppressed) {
            self.0.lock().unwrap().push(format!("{} more", suppressed.count));
        }
    }

    #[test]
    fn the_smallest_places_are_kept_whatever_the_order_of_discovery() {
        let hear = |order: &[u32]| {
            let findings = Findings::new(2);
            for ag in order {
                findings.error(Place::ag(AgNumber(*ag)), Damage::new("AGF", "length", 1, 2));
            }
            let (heard, mut counts) = (Heard::default(), Counts::default());
            findings.hand_over(&heard, &mut counts);
            assert_eq!(counts, Counts { errors: order.len() as u64, warnings: 0 });
            heard.0.into_inner().unwrap()
        };
        let expected = [
            "error: AG 0: AGF: length is 2, expected 1",
            "error: AG 1: AGF: length is 2, expected 1",
            "2 more",
        ];
        assert_eq!(hear(&[3, 1, 0, 2]), expected);
        assert_eq!(hear(&[0, 1, 2, 3]), expected);
    }
}
