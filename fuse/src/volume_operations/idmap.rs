//! Mapping of user and group ids between the volume and the host.
//!
//! # Invariants
//! The mapping is bijective. Ranges do not overlap on either side; ids that a range displaces are mapped to ids that it
//! leaves unused.

use std::fmt;
use std::str::FromStr;

/// A range of ids of the volume, and the ids of the host that they are mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id in the volume.
    pub volume: u32,
    /// First id on the host.
    pub host: u32,
    /// Number of ids.
    pub count: u32,
}

/// A mapping of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

/// The mappings of users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMaps {
    /// Users.
    pub users: IdMap,
    /// Groups.
    pub groups: IdMap,
}

/// Direction of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapTo {
    /// To ids of the volume.
    Volume,
    /// To ids of the host.
    Host,
}

impl FromStr for IdRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not VOLUME:HOST[:COUNT]");
        let numbers: Vec<u32> =
            text.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let range = match *numbers.as_slice() {
            [volume, host] => Self { volume, host, count: 1 },
            [volume, host, count] if count > 0 => Self { volume, host, count },
            _ => return Err(wrong()),
        };
        // The highest number is no valid id.
        let fits = |first: u32| first.checked_add(range.count).is_some();
        if fits(range.volume) && fits(range.host) { Ok(range) } else { Err(wrong()) }
    }
}

impl IdRange {
    /// The first ids of the source and of the target.
    fn sides(&self, to: MapTo) -> (u32, u32) {
        match to {
            MapTo::Host => (self.volume, self.host),
            MapTo::Volume => (self.host, self.volume),
        }
    }

    /// Whether it overlaps another one on either side.
    fn overlaps(&self, other: &Self) -> bool {
        let meet = |one: u32, two: u32| one < two + other.count && two < one + self.count;
        meet(self.volume, other.volume) || meet(self.host, other.host)
    }
}

impl IdMap {
    /// Adds a range.
    ///
    /// # Errors
    /// The range overlaps another one.
    pub fn add(&mut self, range: IdRange) -> Result<(), String> {
        if self.0.contains(&range) {
            return Ok(());
        }
        if let Some(other) = self.0.iter().find(|other| other.overlaps(&range)) {
            return Err(format!("{range} and {other} overlap: an id would be mapped twice (omit one)"));
        }
        self.0.push(range);
        Ok(())
    }

    /// The ranges.
    pub fn ranges(&self) -> &[IdRange] {
        &self.0
    }

    /// Maps an id.
    pub fn map(&self, number: u32, to: MapTo) -> u32 {
        let within = |first: u32, range: &IdRange, number: u32| {
            number.checked_sub(first).filter(|by| *by < range.count)
        };
        let mapped = self.0.iter().find_map(|range| {
            let (from, into) = range.sides(to);
            within(from, range, number).map(|by| into + by)
        });
        if let Some(mapped) = mapped {
            return mapped;
        }
        // A range may have displaced the id. Then it is mapped to the id that was mapped to it; if that is displaced as
        // well, the search continues. Within one range, each step has the same distance.
        let mut number = number;
        loop {
            let displaced = self.0.iter().find_map(|range| {
                let (from, into) = range.sides(to);
                within(into, range, number).map(|by| (from, into, range.count, by))
            });
            let Some((from, into, count, by)) = displaced else { return number };
            let distance = from.abs_diff(into);
            number = match from < into {
                true => number - distance * (by / distance + 1),
                false => number + distance * ((count - 1 - by) / distance + 1),
            };
        }
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.volume, self.host, self.count)
    }
}

impl IdMaps {
    /// Whether no id is mapped.
    pub fn is_empty(&self) -> bool {
        self.users.0.is_empty() && self.groups.0.is_empty()
    }

    /// Maps a user id.
    pub fn user(&self, number: u32, to: MapTo) -> u32 {
        self.users.map(number, to)
    }

    /// Maps a group id.
    pub fn group(&self, number: u32, to: MapTo) -> u32 {
        self.groups.map(number, to)
    }

    /// Maps the ids of an ACL (`linux/posix_acl_xattr.h`).
    pub fn map_acl(&self, mut acl: Vec<u8>, to: MapTo) -> Vec<u8> {
        /// The version. An entry has tag, permissions and id.
        const HEADER: usize = 4;
        const ENTRY: usize = 8;
        const USER: u16 = 0x02;
        const GROUP: u16 = 0x08;
        let entries = acl.get_mut(HEADER..).unwrap_or_default();
        for entry in entries.chunks_exact_mut(ENTRY) {
            let [t0, t1, _, _, n0, n1, n2, n3] = *entry else { continue };
            let number = u32::from_le_bytes([n0, n1, n2, n3]);
            let mapped = match u16::from_le_bytes([t0, t1]) {
                USER => self.user(number, to),
                GROUP => self.group(number, to),
                _ => continue,
            };
            if let Some(id) = entry.get_mut(4..) {
                id.copy_from_slice(&mapped.to_le_bytes());
            }
        }
        acl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_maps(text: &str) -> IdMaps {
        let mut users = IdMap::default();
        text.split(' ').for_each(|range| users.add(range.parse().unwrap()).unwrap());
        IdMaps { users, groups: IdMap::default() }
    }

    /// With several ranges, two ids were mapped to a displaced one: files of user 1000 and of user 101000 had the same
    /// owner, and a user could create programs that ran as root.
    #[test]
    fn mappings_are_bijective() {
        let several =
            ["0:1000 1000:0", "0:100000:1000 100000:5000:1000", "5:7:4 9:11:4 13:5:2", "0:1:15 16:0"];
        let one =
            ["0:1000", "0:100000:65536", "5:7:4", "7:5:4", "3:3:10", "0:1:4000000000", "1:0:4000000000"];
        for text in one.into_iter().chain(several) {
            let id_maps = id_maps(text);
            let mut seen = std::collections::HashSet::new();
            for number in (0..20).chain(990..1010).chain(99_990..100_010).chain(165_530..165_540) {
                let mapped = id_maps.user(number, MapTo::Host);
                assert_eq!(id_maps.user(mapped, MapTo::Volume), number, "{text}: {number}");
                assert!(seen.insert(mapped), "{text}: {mapped} twice");
            }
        }
        assert_eq!(id_maps("0:1:4000000000").user(4_000_000_000, MapTo::Host), 0);
        assert_eq!(id_maps("0:1000").user(0, MapTo::Host), 1000);
        assert_eq!(id_maps("0:1000").user(1000, MapTo::Host), 0);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        for (one, two) in
            [("0:1000", "0:2000"), ("0:1000", "5:1000"), ("0:100:10", "9:500"), ("0:100:10", "50:109:3")]
        {
            let mut users = IdMap::default();
            users.add(one.parse().unwrap()).unwrap();
            users.add(one.parse().unwrap()).unwrap();
            let message = users.add(two.parse().unwrap()).unwrap_err();
            assert!(message.contains("overlap"), "{message}");
        }
    }

    #[test]
    fn ids_in_acls_are_mapped() {
        let id_maps = id_maps("0:1000");
        let entry = |tag: u16, number: u32| [&tag.to_le_bytes()[..], &[7, 0], &number.to_le_bytes()].concat();
        let list = [vec![2, 0, 0, 0], entry(1, u32::MAX), entry(2, 0), entry(8, 0)].concat();
        let mapped = id_maps.map_acl(list.clone(), MapTo::Host);
        assert_eq!(mapped, [vec![2, 0, 0, 0], entry(1, u32::MAX), entry(2, 1000), entry(8, 0)].concat());
        assert_eq!(id_maps.map_acl(mapped, MapTo::Volume), list);
        assert_eq!(id_maps.map_acl(vec![1, 2], MapTo::Volume), [1, 2]);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for text in ["", "1", "1:2:0", "1:2:3:4", "a:b", "4294967294:0:2", "0:4294967295", "-1:0"] {
            assert!(text.parse::<IdRange>().is_err(), "{text}");
        }
    }
}
