//! Owners under other numbers: those of the volume, and those of this machine.
//!
//! # Invariants
//! Every number has exactly one on the other side: what a range takes away from the others they get in exchange.

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

/// See the module. Of ranges that overlap the first holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Of users.
    pub users: Vec<Range>,
    /// Of groups.
    pub groups: Vec<Range>,
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
        let fits = |first: u32| first.checked_add(range.count - 1).is_some();
        if fits(range.volume) && fits(range.machine) { Ok(range) } else { Err(wrong()) }
    }
}

impl Range {
    /// The number on the other side; `None` for one that is in neither of the range's sides.
    fn map(&self, number: u32, to: To) -> Option<u32> {
        let (from, into) = match to {
            To::Machine => (self.volume, self.machine),
            To::Volume => (self.machine, self.volume),
        };
        let within = |first: u32, number: u32| number.checked_sub(first).filter(|by| *by < self.count);
        if let Some(by) = within(from, number) {
            return Some(into + by);
        }
        // It is taken by another, and gets what that one had; which, where both sides overlap, may be taken as well.
        let mut number = from + within(into, number)?;
        while let Some(by) = within(into, number) {
            number = from + by;
        }
        Some(number)
    }
}

impl Owners {
    /// Whether every number is its own.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// The number of a user on the other side.
    pub fn user(&self, number: u32, to: To) -> u32 {
        map(&self.users, number, to)
    }

    /// The number of a group on the other side.
    pub fn group(&self, number: u32, to: To) -> u32 {
        map(&self.groups, number, to)
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

fn map(ranges: &[Range], number: u32, to: To) -> u32 {
    ranges.iter().find_map(|range| range.map(number, to)).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(text: &str) -> Owners {
        Owners { users: text.parse().into_iter().collect(), groups: Vec::new() }
    }

    #[test]
    fn every_number_comes_back() {
        for text in ["0:1000", "0:100000:65536", "5:7:4", "7:5:4", "3:3:10"] {
            let owners = owners(text);
            let mut seen = std::collections::HashSet::new();
            for number in (0..20).chain(990..1010).chain(99_990..100_010).chain(165_530..165_540) {
                let there = owners.user(number, To::Machine);
                assert_eq!(owners.user(there, To::Volume), number, "{text}: {number}");
                assert!(seen.insert(there), "{text}: {there} twice");
            }
        }
        assert_eq!(owners("0:1000").user(0, To::Machine), 1000);
        assert_eq!(owners("0:1000").user(1000, To::Machine), 0);
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
        for text in ["", "1", "1:2:0", "1:2:3:4", "a:b", "4294967295:0:2", "-1:0"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }
}
