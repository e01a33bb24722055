//! Inode flags in the notation of chattr and lsattr.

use std::str::FromStr;

use format::inode::flags;
use xebec::settings::xflags;

/// Letter, bit, and long name of `lsattr -l`. Letters are those of chattr; for the last two, those of xfs_io.
const TABLE: &[(char, u32, &str)] = &[
    ('S', flags::SYNC as u32, "Synchronous_Updates"),
    ('i', flags::IMMUTABLE as u32, "Immutable"),
    ('a', flags::APPEND as u32, "Append_Only"),
    ('d', flags::NODUMP as u32, "No_Dump"),
    ('A', flags::NOATIME as u32, "No_Atime"),
    ('x', xflags::DAX, "DAX"),
    ('P', flags::PROJINHERIT as u32, "Project_Hierarchy"),
    ('n', flags::NOSYMLINKS as u32, "No_Symlinks"),
    ('f', flags::NODEFRAG as u32, "No_Defragmentation"),
];

/// Flags as letters, with a dash for each unset flag.
pub fn letters(xflags: u32) -> String {
    TABLE.iter().map(|(letter, bit, _)| if xflags & bit != 0 { *letter } else { '-' }).collect()
}

/// Long names of the set flags.
pub fn long_names(xflags: u32) -> Vec<&'static str> {
    TABLE.iter().filter(|(_, bit, _)| xflags & bit != 0).map(|(_, _, name)| *name).collect()
}

/// An operand of `chattr`: `+i`, `-a`, `=dA`, or several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagChange(Vec<(char, u32)>);

impl FlagChange {
    /// Applies it to flags.
    pub fn apply(&self, xflags: u32) -> u32 {
        let all = TABLE.iter().fold(0, |all, (_, bit, _)| all | bit);
        self.0.iter().fold(xflags, |xflags, (sign, bits)| match sign {
            '+' => xflags | bits,
            '-' => xflags & !bits,
            _ => xflags & !all | bits,
        })
    }
}

impl FromStr for FlagChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut changes: Vec<(char, u32)> = Vec::new();
        for letter in text.chars() {
            if matches!(letter, '+' | '-' | '=') {
                changes.push((letter, 0));
                continue;
            }
            let letters: String = TABLE.iter().map(|(letter, _, _)| *letter).collect();
            let (Some((_, bits)), Some((_, bit, _))) =
                (changes.last_mut(), TABLE.iter().find(|(flag, _, _)| *flag == letter))
            else {
                return Err(format!("invalid flags {text:?}: expected +, - or =, and letters of {letters}"));
            };
            *bits |= bit;
        }
        if changes.is_empty() { Err("flags must start with +, - or =".into()) } else { Ok(Self(changes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_applies_flag_changes_of_chattr() {
        let change = |text: &str, before: &str| {
            let FlagChange(changes) = format!("={before}").parse().unwrap();
            let before = changes.first().map_or(0, |(_, bits)| *bits) | u32::from(flags::EXTSIZE);
            let after = text.parse::<FlagChange>().map(|change| change.apply(before));
            after.map(|after| (letters(after), after & u32::from(flags::EXTSIZE) != 0))
        };
        assert_eq!(change("+i", "d"), Ok(("-i-d-----".into(), true)));
        assert_eq!(change("-d+aS", "d"), Ok(("S-a------".into(), true)));
        assert_eq!(change("=A", "iaPx"), Ok(("----A----".into(), true)));
        assert_eq!(change("=", "ia"), Ok(("---------".into(), true)));
        assert_eq!(change("+nfPx", ""), Ok(("-----xPnf".into(), true)));
        for bad in ["", "i", "+q", "i+"] {
            assert!(change(bad, "").is_err(), "{bad}");
        }
        assert_eq!(long_names(u32::from(flags::APPEND | flags::NODUMP)), ["Append_Only", "No_Dump"]);
    }
}
