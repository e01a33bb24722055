//! Sub-options such as `-d agcount=4,su=64k`: those supported, and messages for those that are not.

use std::collections::BTreeMap;

/// Support of a sub-option.
enum Support {
    /// Supported.
    Supported,
    /// Accepted for compatibility, with this value only.
    Always(&'static str),
    /// A sub-option of `mkfs.xfs` that is not supported, with the reason.
    Refused(&'static str),
}

use Support::{Always, Refused, Supported};

const REALTIME: &str = "realtime devices are not supported";
const HINTS: &str = "inherited flags are not supported: use xebec chattr, extsize or project";
const QUOTA: &str = "quota is not supported: use quota mount options";
const CONCURRENCY: &str = "not supported: use -d agcount=N, -l size=NUM";

/// All sub-options of `mkfs.xfs` 6.13.
const KNOWN: &[(char, &str, Support)] = &[
    ('b', "size", Supported),
    ('d', "agcount", Supported),
    ('d', "agsize", Supported),
    ('d', "concurrency", Refused(CONCURRENCY)),
    ('d', "cowextsize", Refused(HINTS)),
    ('d', "daxinherit", Refused(HINTS)),
    ('d', "extszinherit", Refused(HINTS)),
    ('d', "file", Supported),
    ('d', "name", Supported),
    ('d', "noalign", Supported),
    ('d', "projinherit", Refused(HINTS)),
    ('d', "rtinherit", Refused(REALTIME)),
    ('d', "sectsize", Supported),
    ('d', "size", Supported),
    ('d', "su", Supported),
    ('d', "sunit", Supported),
    ('d', "sw", Supported),
    ('d', "swidth", Supported),
    ('i', "align", Always("1")),
    ('i', "attr", Always("2")),
    ('i', "exchange", Supported),
    ('i', "maxpct", Supported),
    ('i', "nrext64", Supported),
    ('i', "perblock", Supported),
    ('i', "projid32bit", Always("1")),
    ('i', "size", Supported),
    ('i', "sparse", Supported),
    ('l', "agnum", Supported),
    ('l', "concurrency", Refused(CONCURRENCY)),
    ('l', "file", Supported),
    ('l', "internal", Supported),
    ('l', "lazy-count", Always("1")),
    ('l', "logdev", Supported),
    ('l', "sectsize", Supported),
    ('l', "size", Supported),
    ('l', "su", Supported),
    ('l', "sunit", Supported),
    ('l', "version", Always("2")),
    ('m', "autofsck", Refused("not supported: use xebec project on the root directory")),
    ('m', "bigtime", Supported),
    ('m', "crc", Always("1")),
    ('m', "finobt", Supported),
    ('m', "gqnoenforce", Refused(QUOTA)),
    ('m', "gquota", Refused(QUOTA)),
    ('m', "inobtcount", Supported),
    ('m', "metadir", Always("0")),
    ('m', "pqnoenforce", Refused(QUOTA)),
    ('m', "pquota", Refused(QUOTA)),
    ('m', "reflink", Supported),
    ('m', "rmapbt", Supported),
    ('m', "uqnoenforce", Refused(QUOTA)),
    ('m', "uquota", Refused(QUOTA)),
    ('m', "uuid", Supported),
    ('n', "ftype", Always("1")),
    ('n', "parent", Supported),
    ('n', "size", Supported),
    ('n', "version", Supported),
    ('s', "sectsize", Supported),
    ('s', "size", Supported),
];

/// Conflicting pairs.
const CONFLICTS: &[(char, &str, &str)] = &[
    ('d', "su", "sunit"),
    ('d', "su", "swidth"),
    ('d', "sw", "sunit"),
    ('d', "sw", "swidth"),
    ('d', "su", "noalign"),
    ('d', "sunit", "noalign"),
    ('d', "agcount", "agsize"),
    ('i', "size", "perblock"),
    ('l', "su", "sunit"),
    ('l', "agnum", "logdev"),
    ('l', "internal", "logdev"),
    ('s', "size", "sectsize"),
];

/// The given sub-options: letter, name, and optional value.
#[derive(Debug, Default)]
pub struct SubOptions(BTreeMap<(char, &'static str), Option<String>>);

impl SubOptions {
    /// Parses the lists of all letters.
    pub fn parse(lists: &[(char, &Vec<String>)]) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (letter, lists) in lists {
            for word in lists.iter().flat_map(|list| list.split(',')) {
                parsed.insert(*letter, word)?;
            }
        }
        for (letter, one, other) in CONFLICTS {
            if parsed.0.contains_key(&(*letter, one)) && parsed.0.contains_key(&(*letter, other)) {
                return Err(format!("-{letter} {one} and -{letter} {other} cannot be given together"));
            }
        }
        Ok(parsed)
    }

    fn insert(&mut self, letter: char, word: &str) -> Result<(), String> {
        if letter == 'r' {
            return Err(format!("-r {word}: {REALTIME}"));
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let Some((_, name, support)) = KNOWN.iter().find(|(l, known, _)| *l == letter && *known == name)
        else {
            return Err(format!("-{letter} {name}: unknown sub-option; expected one of {}", names(letter)));
        };
        match support {
            Supported => {}
            Always(only) if value.unwrap_or("1") == *only => return Ok(()),
            Always(only) => {
                return Err(format!("-{letter} {word}: only {name}={only} is supported"));
            }
            Refused(reason) => return Err(format!("-{letter} {name}: {reason}")),
        }
        if self.0.insert((letter, name), value.map(str::to_owned)).is_some() {
            return Err(format!("-{letter} {name} given twice"));
        }
        Ok(())
    }

    /// A required value.
    pub fn value(&self, letter: char, name: &'static str) -> Result<Option<&str>, String> {
        match self.0.get(&(letter, name)) {
            None => Ok(None),
            Some(Some(value)) if !value.is_empty() => Ok(Some(value)),
            Some(_) => Err(format!("-{letter} {name}: missing value: {name}=...")),
        }
    }

    /// A boolean; without a value it is true.
    pub fn switch(&self, letter: char, name: &'static str) -> Result<Option<bool>, String> {
        match self.0.get(&(letter, name)).map(Option::as_deref) {
            None => Ok(None),
            Some(None | Some("1")) => Ok(Some(true)),
            Some(Some("0")) => Ok(Some(false)),
            Some(Some(other)) => Err(format!("-{letter} {name}={other}: must be 0 or 1")),
        }
    }

    /// A number.
    pub fn number(&self, letter: char, name: &'static str) -> Result<Option<u64>, String> {
        let Some(text) = self.value(letter, name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("-{letter} {name}={text}: not a number"))
    }

    /// A number of bytes with an optional suffix, in units of this volume's sectors and blocks.
    pub fn bytes(&self, letter: char, name: &'static str, units: Units) -> Result<Option<u64>, String> {
        let Some(text) = self.value(letter, name)? else { return Ok(None) };
        units.parse(text).map(Some).map_err(|problem| format!("-{letter} {name}={text}: {problem}"))
    }
}

fn names(letter: char) -> String {
    let supported = KNOWN.iter().filter(|(l, _, support)| *l == letter && matches!(support, Supported));
    supported.map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Units of the suffixes s and b, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    pub sector: u64,
    pub block: u64,
}

impl Units {
    /// Parses a size.
    pub fn parse(self, text: &str) -> Result<u64, String> {
        let unit = match text.chars().next_back().unwrap_or(' ').to_ascii_lowercase() {
            's' => self.sector,
            'b' => self.block,
            'k' => 1 << 10,
            'm' => 1 << 20,
            'g' => 1 << 30,
            't' => 1 << 40,
            'p' => 1 << 50,
            'e' => 1 << 60,
            _ => 0,
        };
        let digits = if unit > 0 { text.get(..text.len() - 1).unwrap_or("") } else { text };
        let number: u64 = digits.parse().map_err(|_| {
            "not a number with an optional suffix s, b, k, m, g, t, p (KiB, MiB, ...)".to_owned()
        })?;
        number.checked_mul(unit.max(1)).ok_or_else(|| "too large".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(letter: char, list: &str) -> Result<SubOptions, String> {
        SubOptions::parse(&[(letter, &vec![list.to_owned()])])
    }

    #[test]
    fn parses_sub_options_and_refuses_invalid_ones() {
        let parsed = read('d', "agcount=4,noalign").unwrap();
        assert_eq!(parsed.number('d', "agcount"), Ok(Some(4)));
        assert_eq!(parsed.switch('d', "noalign"), Ok(Some(true)));
        assert!(read('d', "agcount=4,agcount=4").unwrap_err().contains("twice"));
        assert!(read('d', "colour=red").unwrap_err().contains("agcount"));
        assert!(read('d', "su=64k,sunit=8").unwrap_err().contains("together"));
        assert!(read('m', "crc=0").unwrap_err().contains("crc=1"));
        assert!(read('m', "crc=1").is_ok() && read('m', "metadir=0").is_ok());
        assert!(read('m', "metadir=1").is_err() && read('m', "metadir").is_err());
        assert!(read('r', "size=1g").unwrap_err().contains("realtime"));
        assert!(read('m', "rmapbt=2").unwrap().switch('m', "rmapbt").is_err());
        assert!(read('d', "agsize").unwrap().value('d', "agsize").is_err());
    }

    #[test]
    fn parses_suffixes_of_sizes() {
        let units = Units { sector: 512, block: 4096 };
        for (text, bytes) in [("7", 7), ("2s", 1024), ("3b", 12288), ("1k", 1024), ("1G", 1 << 30)] {
            assert_eq!(units.parse(text), Ok(bytes));
        }
        for text in ["", "k", "1kb", "-1", "99999999p", "1.5g"] {
            assert!(units.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn known_sub_options_are_sorted_and_unique() {
        let keys: Vec<_> = KNOWN.iter().map(|(letter, name, _)| (*letter, *name)).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair.first() != pair.last()));
    }
}
