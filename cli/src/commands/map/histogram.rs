//! Histograms by powers of two.

use serde::Serialize;

/// Values, counted by their power of two.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u64; 65],
    sums: [u64; 65],
}

/// A group of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Smallest value.
    pub from: u64,
    /// Largest value.
    pub to: u64,
    /// Number of values.
    pub count: u64,
    /// Sum of what was added with them.
    pub sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; 65], sums: [0; 65] }
    }
}

/// The group of a value: 0, 1, 2 to 3, 4 to 7 and so on.
fn group(value: u64) -> usize {
    value.checked_ilog2().map_or(0, |power| power as usize + 1)
}

impl Histogram {
    /// Adds a value, and to the sum of its group `weight`.
    pub fn add(&mut self, value: u64, weight: u64) {
        let group = group(value);
        if let (Some(count), Some(sum)) = (self.counts.get_mut(group), self.sums.get_mut(group)) {
            *count += 1;
            *sum = sum.saturating_add(weight);
        }
    }

    /// Adds all values of another one.
    pub fn add_all(&mut self, other: &Self) {
        let pairs = self.counts.iter_mut().zip(&other.counts).chain(self.sums.iter_mut().zip(&other.sums));
        pairs.for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of what was added.
    pub fn sum(&self) -> u64 {
        self.sums.iter().fold(0, |all, sum| all.saturating_add(*sum))
    }

    /// The groups from the first to the last one that is not empty, `powers` powers of two in each.
    pub fn groups(&self, powers: usize) -> Vec<Group> {
        let pairs: Vec<_> = self.counts.iter().zip(&self.sums).enumerate().collect();
        let mut groups: Vec<Group> = Vec::new();
        // Zero is a group of its own.
        let (zero, rest) = pairs.split_at_checked(1).unwrap_or_default();
        for chunk in [zero].into_iter().chain(rest.chunks(powers.max(1))) {
            let (Some((first, _)), Some((last, _))) = (chunk.first(), chunk.last()) else { continue };
            let from = if *first == 0 { 0 } else { 1 << (first - 1) };
            let to = if *last == 0 { 0 } else { u64::MAX >> (64 - last) };
            let count = chunk.iter().map(|(_, (count, _))| **count).sum();
            let sum = chunk.iter().fold(0u64, |all, (_, (_, sum))| all.saturating_add(**sum));
            groups.push(Group { from, to, count, sum });
        }
        let is_used = |group: &Group| group.count > 0;
        let end = groups.iter().rposition(is_used).map_or(0, |last| last + 1);
        groups.truncate(end);
        let start = groups.iter().position(is_used).unwrap_or(0);
        groups.drain(..start);
        groups
    }

    /// The smallest value of the group that holds the middle of all sums: half of them belongs to values of at least
    /// this size. `None` without values.
    pub fn middle(&self) -> Option<u64> {
        let half = self.sum() / 2;
        let mut above = 0u64;
        for (group, sum) in self.sums.iter().enumerate().rev() {
            above = above.saturating_add(*sum);
            if above > half {
                return Some(if group == 0 { 0 } else { 1 << (group - 1) });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_grouped_by_powers_of_two() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1000, u64::MAX] {
            histogram.add(value, 10);
        }
        let groups = histogram.groups(1);
        assert_eq!(groups.len(), 65);
        assert_eq!(
            groups[..3].iter().map(|group| (group.from, group.to, group.count)).collect::<Vec<_>>(),
            [(0, 0, 1), (1, 1, 1), (2, 3, 2)]
        );
        assert_eq!(groups[64], Group { from: 1 << 63, to: u64::MAX, count: 1, sum: 10 });
        let wide = histogram.groups(4);
        assert_eq!((wide[1].from, wide[1].to, wide[1].count), (1, 15, 4));
        assert_eq!(histogram.count(), 7);
        assert!(Histogram::default().groups(1).is_empty());
    }

    #[test]
    fn half_of_the_sum_belongs_to_values_of_at_least_the_middle() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.middle(), None);
        (0..90).for_each(|_| histogram.add(1, 1));
        histogram.add(1000, 1000);
        assert_eq!(histogram.middle(), Some(512));
    }
}
