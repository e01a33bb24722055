//! What was measured.
//!
//! | type | is |
//! |---|---|
//! | [`Measurement`] | values of one subject doing one task, one for each run |
//! | [`Comparison`] | two measurements, of which the first must reach something beside the second |
//! | [`Results`] | those of one experiment |
//!
//! A report is made of these alone, whether the run has just ended or was read from a file.

use crate::sharing::Sharing;
use serde::{Deserialize, Deserializer, Serialize};

/// Values of one subject doing one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was done, in words.
    pub task: String,
    /// Name of the file system or program that did the task, such as "Xebec, as a library".
    pub subject: String,
    /// Unit of the values, such as `files/s`.
    pub unit: String,
    /// Whether less is better.
    pub less_is_better: bool,
    /// Number of threads that did it, if the task is measured with several.
    pub threads: Option<u32>,
    /// One value for each run, in order.
    #[serde(deserialize_with = "numbers")]
    pub runs: Vec<f64>,
    /// How long single calls took, of all runs.
    pub latency: Option<Latency>,
}

/// Durations of calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the calls took at most so many microseconds.
    #[serde(deserialize_with = "number")]
    pub p50_us: f64,
    /// 99 of 100.
    #[serde(deserialize_with = "number")]
    pub p99_us: f64,
    /// 999 of 1000.
    #[serde(deserialize_with = "number")]
    pub p999_us: f64,
    /// Upper bounds in microseconds, and how many calls took at most that, but more than the one before.
    pub histogram: Vec<(f64, u64)>,
}

/// A claim about two measurements of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The task, as in [`Measurement::task`].
    pub task: String,
    /// The unit, as there: one task may have several.
    pub unit: String,
    /// The number of threads, as there.
    pub threads: Option<u32>,
    /// The subject that the claim is about.
    pub subject: String,
    /// The subject beside it; none if the claim is about the value alone.
    pub peer: Option<String>,
    /// What must hold.
    pub target: Option<Target>,
    /// The runs of both that were made in turns; none if those are all runs of their measurements. A subject that is
    /// measured beside several peers has other runs beside each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paired: Option<Paired>,
}

/// Runs of two subjects that were made in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Those of the subject.
    #[serde(deserialize_with = "numbers")]
    pub subject: Vec<f64>,
    /// Those of its peer.
    #[serde(deserialize_with = "numbers")]
    pub peer: Vec<f64>,
}

/// What must hold for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Minimum of the subject's median divided by the peer's.
    RatioAtLeast(f64),
    /// Maximum of that ratio.
    RatioAtMost(f64),
    /// Minimum of the subject's median.
    AtLeast(f64),
    /// Maximum of the subject's median.
    AtMost(f64),
}

/// Results of one experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name on the command line.
    pub experiment: String,
    /// What it measures, in a sentence.
    pub summary: String,
    /// The publication that it follows; empty if there is none.
    pub source: String,
    /// What that reports, and how it compares.
    pub published: Vec<Published>,
    /// In the order in which they ended.
    pub measurements: Vec<Measurement>,
    /// The claims.
    pub comparisons: Vec<Comparison>,
    /// What operations that commute share, if it was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Why something was not measured.
    pub notes: Vec<String>,
    /// How long it took in seconds.
    pub seconds: f64,
}

/// A figure of a publication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// What was measured there.
    pub what: String,
    /// The figures.
    pub figures: String,
    /// Which part of these figures can be compared with ours.
    pub comparable: String,
}

/// Outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The subject's median.
    pub value: f64,
    /// The peer's median.
    pub peer: Option<f64>,
    /// The first divided by the second.
    pub ratio: Option<f64>,
    /// Whether the target was reached; none without a target.
    pub reached: Option<bool>,
    /// Whether the subject is worse than its peer.
    pub lost: bool,
}

/// Reads a number. JSON has none for NaN and infinity, which are written as `null` and read as NaN.
///
/// # Errors
/// The value is neither a number nor `null`.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

impl Measurement {
    /// The median of the runs; NaN without runs.
    pub fn median(&self) -> f64 {
        median(self.runs.iter().copied())
    }

    /// The lowest and the highest run.
    pub fn spread(&self) -> (f64, f64) {
        self.runs
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), run| (low.min(*run), high.max(*run)))
    }
}

impl Results {
    /// Whether nothing was measured, and nothing is to be said about it.
    pub fn is_empty(&self) -> bool {
        self.measurements.is_empty() && self.sharing.is_none() && self.notes.is_empty()
    }

    /// The measurement of a subject.
    pub fn find(&self, task: &str, unit: &str, threads: Option<u32>, subject: &str) -> Option<&Measurement> {
        let is_it = |found: &&Measurement| {
            found.task == task && found.unit == unit && found.threads == threads && found.subject == subject
        };
        self.measurements.iter().find(is_it)
    }

    /// The measurements of the subject and its peer, with the runs that were made in turns; none if one of both was not
    /// measured.
    pub fn compared(&self, comparison: &Comparison) -> Option<(Measurement, Option<Measurement>)> {
        let Comparison { task, unit, threads, subject, peer, paired, .. } = comparison;
        let find = |subject| self.find(task, unit, *threads, subject).cloned();
        let mut ours = find(subject)?;
        let mut peer = match peer {
            Some(peer) => Some(find(peer)?),
            None => None,
        };
        if let Some(Paired { subject, peer: peers }) = paired {
            ours.runs.clone_from(subject);
            if let Some(peer) = &mut peer {
                peer.runs.clone_from(peers);
            }
        }
        Some((ours, peer))
    }

    /// How a comparison ended; none if one of both was not measured.
    pub fn outcome(&self, comparison: &Comparison) -> Option<Outcome> {
        let (ours, peer) = self.compared(comparison)?;
        let target = comparison.target;
        let peer = peer.map(|peer| peer.median());
        let value = ours.median();
        let ratio = peer.map(|peer| value / peer).filter(|ratio| !ratio.is_nan());
        let reached = target.map(|target| match target {
            Target::RatioAtLeast(min) => ratio.is_some_and(|ratio| ratio >= min),
            Target::RatioAtMost(max) => ratio.is_some_and(|ratio| ratio <= max),
            Target::AtLeast(min) => value >= min,
            Target::AtMost(max) => value <= max,
        });
        let lost = ratio.is_some_and(|ratio| if ours.less_is_better { ratio > 1.0 } else { ratio < 1.0 });
        Some(Outcome { value, peer, ratio, reached, lost })
    }
}

/// The median: of an even number, the mean of the two in the middle; NaN for no numbers.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let (low, high) = (at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2));
    if low == high { low } else { f64::midpoint(low, high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_one_in_the_middle_or_the_mean_of_two() {
        assert_eq!(median([2.0, 1.0]), 1.5);
        assert_eq!(median([9.0, 1.0, 4.0, 2.0]), 3.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([5.0]), 5.0);
        assert!(median([]).is_nan());
    }
}
