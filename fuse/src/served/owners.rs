//! Owners under other numbers: those of the volume, and those of this machine.
//!
//! # Invariants
//! Every number has exactly one on the other side. Ranges do not overlap on either side; the numbers that a range takes
//! on this machine go to owners whose own numbers became free.

use std::fmt;
use std::str::FromStr;

/// Numbers of the volume, and the numbers that they have on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first, in the volume.
    pub volume: u32,
    /// The first, on this machine.
    pub machine: u32,
    /// How many there are.
    pub count: u32,
}

/// One kind of owners: which number is which on the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permutation(Vec<Range>);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Of users.
    pub users: Permutation,
    /// Of groups.
    pub groups: Permutation,
}

/// Which number is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// That of the volume.
    Volume,
    /// That of this machine.
    Machine,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not VOLUME:MACHINE[:COUNT]");
        let numbers: Vec<u32> =
            text.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let range = match *numbers.as_slice() {
            [volume, machine] => Self { volume, machine, count: 1 },
            [volume, machine, count] if count > 0 => Self { volume, machine, count },
            _ => return Err(wrong()),
        };
        // The highest number stands for none.
        let fits = |first: u32| first.checked_add(range.count).is_some();
        if fits(range.volume) && fits(range.machine) { Ok(range) } else { Err(wrong()) }
    }
}

impl Range {
    /// Its first number where a mapping to a side begins, and where it ends.
    fn sides(&self, to: To) -> (u32, u32) {
        match to {
            To::Machine => (self.volume, self.machine),
            To::Volume => (self.machine, self.volume),
        }
    }

    /// Whether it has numbers of another one, on one side.
    fn overlaps(&self, other: &Self) -> bool {
        let meet = |one: u32, two: u32| one < two + other.count && two < one + self.count;
        meet(self.volume, other.volume) || meet(self.machine, other.machine)
    }
}

impl Permutation {
    /// Maps another range.
    ///
    /// # Errors
    /// In words, where a number would get two on the other side.
    pub fn add(&mut self, range: Range) -> Result<(), String> {
        if self.0.contains(&range) {
            return Ok(());
        }
        if let Some(other) = self.0.iter().find(|other| other.overlaps(&range)) {
            return Err(format!(
                "{range} and {other} overlap: an owner would have two numbers (leave one out)"
            ));
        }
        self.0.push(range);
        Ok(())
    }

    /// All ranges.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// The number on the other side.
    pub fn map(&self, number: u32, to: To) -> u32 {
        let within =
            |first: u32, range: &Range, number: u32| number.checked_sub(first).filter(|by| *by < range.count);
        let mapped = self.0.iter().find_map(|range| {
            let (from, into) = range.sides(to);
            within(from, range, number).map(|by| into + by)
        });
        if let Some(mapped) = mapped {
            return mapped;
        }
        // A range may have taken it. Then it gets the number that the one had which took it; if that is taken as well,
        // the next in turn. In one range it moves by the same distance each time.
        let mut number = number;
        loop {
            let taken = self.0.iter().find_map(|range| {
                let (from, into) = range.sides(to);
                within(into, range, number).map(|by| (from, into, range.count, by))
            });
            let Some((from, into, count, by)) = taken else { return number };
            let distance = from.abs_diff(into);
            number = match from < into {
                true => number - distance * (by / distance + 1),
                false => number + distance * ((count - 1 - by) / distance + 1),
            };
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.volume, self.machine, self.count)
    }
}

impl Owners {
    /// Whether every number is its own.
    pub fn is_empty(&self) -> bool {
        self.users.0.is_empty() && self.groups.0.is_empty()
    }

    /// The number of a user on the other side.
    pub fn user(&self, number: u32, to: To) -> u32 {
        self.users.map(number, to)
    }

    /// The number of a group on the other side.
    pub fn group(&self, number: u32, to: To) -> u32 {
        self.groups.map(number, to)
    }

    /// An access control list in Linux's form (`linux/posix_acl_xattr.h`), with the numbers of the other side.
    pub fn list(&self, list: &[u8], to: To) -> Vec<u8> {
        /// Version; then, of each entry, tag, permissions and number.
        const HEADER: usize = 4;
        const ENTRY: usize = 8;
        const USER: u16 = 0x02;
        const GROUP: u16 = 0x08;
        let mut list = list.to_vec();
        let entries = list.get_mut(HEADER..).unwrap_or_default();
        for entry in entries.chunks_exact_mut(ENTRY) {
            let [t0, t1, _, _, n0, n1, n2, n3] = *entry else { continue };
            let number = u32::from_le_bytes([n0, n1, n2, n3]);
            let mapped = match u16::from_le_bytes([t0, t1]) {
                USER => self.user(number, to),
                GROUP => self.group(number, to),
                _ => continue,
            };
            if let Some(place) = entry.get_mut(4..) {
                place.copy_from_slice(&mapped.to_le_bytes());
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(text: &str) -> Owners {
        let mut users = Permutation::default();
        text.split(' ').for_each(|range| users.add(range.parse().unwrap()).unwrap());
        Owners { users, groups: Permutation::default() }
    }

    /// With several ranges, what one had taken was given to two: a file of user 1000 and one of user 101000 had the
    /// same owner, and one could make programs that ran as root.
    #[test]
    fn every_number_comes_back() {
        let several =
            ["0:1000 1000:0", "0:100000:1000 100000:5000:1000", "5:7:4 9:11:4 13:5:2", "0:1:15 16:0"];
        let one =
            ["0:1000", "0:100000:65536", "5:7:4", "7:5:4", "3:3:10", "0:1:4000000000", "1:0:4000000000"];
        for text in one.into_iter().chain(several) {
            let owners = owners(text);
            let mut seen = std::collections::HashSet::new();
            for number in (0..20).chain(990..1010).chain(99_990..100_010).chain(165_530..165_540) {
                let there = owners.user(number, To::Machine);
                assert_eq!(owners.user(there, To::Volume), number, "{text}: {number}");
                assert!(seen.insert(there), "{text}: {there} twice");
            }
        }
        assert_eq!(owners("0:1:4000000000").user(4_000_000_000, To::Machine), 0);
        assert_eq!(owners("0:1000").user(0, To::Machine), 1000);
        assert_eq!(owners("0:1000").user(1000, To::Machine), 0);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        for (one, two) in
            [("0:1000", "0:2000"), ("0:1000", "5:1000"), ("0:100:10", "9:500"), ("0:100:10", "50:109:3")]
        {
            let mut users = Permutation::default();
            users.add(one.parse().unwrap()).unwrap();
            users.add(one.parse().unwrap()).unwrap();
            let said = users.add(two.parse().unwrap()).unwrap_err();
            assert!(said.contains("overlap"), "{said}");
        }
    }

    #[test]
    fn numbers_in_lists_follow() {
        let owners = owners("0:1000");
        let entry = |tag: u16, number: u32| [&tag.to_le_bytes()[..], &[7, 0], &number.to_le_bytes()].concat();
        let list = [vec![2, 0, 0, 0], entry(1, u32::MAX), entry(2, 0), entry(8, 0)].concat();
        let there = owners.list(&list, To::Machine);
        assert_eq!(there, [vec![2, 0, 0, 0], entry(1, u32::MAX), entry(2, 1000), entry(8, 0)].concat());
        assert_eq!(owners.list(&there, To::Volume), list);
        assert_eq!(owners.list(&[1, 2], To::Volume), [1, 2]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "1", "1:2:0", "1:2:3:4", "a:b", "4294967294:0:2", "0:4294967295", "-1:0"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }
}
