//! The map on a terminal: blocks of Unicode or letters, with colours or without.

use std::fmt::Write as _;

use super::directories::Directory;
use super::page::{explanation, title_of};
use super::picture::lines;
use super::sections::{Section, bar_columns, bar_name, groups, row};
use super::space::{BlockUse, Uses};
use super::{MapData, text};
use crate::names::printable;
use crate::sizes::with_unit;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    pub width: usize,
    pub coloured: bool,
    pub unicode: bool,
}

/// Largest number of bars of AGs.
const BARS_MAX: usize = 32;
/// Largest number of directories.
const DIRECTORIES_MAX: usize = 24;
/// A directory is listed if it has at least this part of the space of the one above it.
const PART_MIN: u64 = 50;
/// Width of the widest text.
const TEXT_MAX: usize = 100;

impl Terminal {
    /// The map.
    pub fn text(&self, data: &MapData) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out, data);
        out
    }

    fn write(&self, out: &mut String, data: &MapData) -> std::fmt::Result {
        self.write_lines(out, &text::summary(data))?;
        writeln!(out)?;
        for (block_use, bytes, share) in text::uses(data, &data.space.uses()) {
            let sample = self.cell(block_use).repeat(2);
            writeln!(out, "{sample} {:<22} {bytes:>12} {share:>8}", block_use.title())?;
        }
        for section in Section::ALL {
            writeln!(out, "\n{}", self.bold(title_of(section)))?;
            if section == Section::Bars {
                self.write_bars(out, data)?;
                continue;
            }
            if section != Section::Directories {
                self.write_lines(out, &explanation(section, data))?;
                self.write_histogram(out, section, data)?;
                continue;
            }
            let mut left = DIRECTORIES_MAX;
            self.write_directory(out, &data.root, data.root.usage.allocated, 0, &mut left)?;
        }
        Ok(())
    }

    fn write_lines(&self, out: &mut String, text: &str) -> std::fmt::Result {
        lines(text, self.width.min(TEXT_MAX)).iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    fn bold(&self, text: &str) -> String {
        if self.coloured { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// One character for a use. Without colours, the most frequent uses are shades.
    fn cell(&self, block_use: BlockUse) -> String {
        let letter = match block_use {
            BlockUse::Data => '#',
            BlockUse::Shared => 'S',
            BlockUse::Staging => 'C',
            BlockUse::Directories => 'D',
            BlockUse::Inodes => 'I',
            BlockUse::Maps => 'M',
            BlockUse::Headers => 'H',
            BlockUse::Log => 'L',
            BlockUse::Other => '?',
            BlockUse::Free => '.',
        };
        let glyph = match block_use {
            _ if !self.unicode => letter,
            BlockUse::Free => '\u{2591}',
            _ if self.coloured => '\u{2588}',
            BlockUse::Data => '\u{2588}',
            BlockUse::Shared => '\u{2593}',
            _ => letter,
        };
        // Colours of the 256 that all terminals with colours have.
        let colour = match block_use {
            BlockUse::Data => 67,
            BlockUse::Shared => 97,
            BlockUse::Staging => 169,
            BlockUse::Directories => 36,
            BlockUse::Inodes => 178,
            BlockUse::Maps => 130,
            BlockUse::Headers => 245,
            BlockUse::Log => 240,
            BlockUse::Other => 160,
            BlockUse::Free => 250,
        };
        if self.coloured { format!("\x1b[38;5;{colour}m{glyph}\x1b[0m") } else { glyph.to_string() }
    }

    /// A bar of equal cells.
    fn bar(&self, length: u64, most: u64, width: usize) -> String {
        let eighths = (u128::from(length) * width as u128 * 8).div_ceil(u128::from(most.max(1))) as usize;
        if !self.unicode {
            return "#".repeat(eighths.div_ceil(8));
        }
        let rest = ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];
        "\u{2588}".repeat(eighths / 8) + rest.get(eighths % 8).copied().unwrap_or_default()
    }

    fn write_bars(&self, out: &mut String, data: &MapData) -> std::fmt::Result {
        let per_bar = data.space.ags.len().div_ceil(BARS_MAX).max(1);
        let label = bar_name(data.space.ags.len().saturating_sub(per_bar), per_bar).len() + 1;
        let columns = self.width.saturating_sub(label).clamp(10, 200);
        let longest = data.space.longest();
        for (bar, ags) in data.space.ags.chunks(per_bar).enumerate() {
            write!(out, "{:<label$}", bar_name(bar * per_bar, ags.len()))?;
            for uses in bar_columns(ags, columns, longest) {
                out.push_str(&largest(&uses).map_or_else(String::new, |block_use| self.cell(block_use)));
            }
            writeln!(out)?;
        }
        writeln!(out, "Each character is what most blocks of that part of the AG are used for.")
    }

    fn write_histogram(&self, out: &mut String, section: Section, data: &MapData) -> std::fmt::Result {
        let rows: Vec<_> = groups(section, data).iter().map(|group| row(section, data, group)).collect();
        let most = rows.iter().map(|(_, length, _)| *length).max().unwrap_or(0);
        let behind = rows.iter().map(|(.., text)| text.chars().count()).max().unwrap_or(0);
        let width = self.width.saturating_sub(18 + behind).clamp(8, 60);
        for (name, length, behind) in rows {
            writeln!(out, "{name:>15} {} {behind}", self.bar(length, most, width))?;
        }
        Ok(())
    }

    /// The largest directories as a tree. Recursive: the tree is not deep.
    fn write_directory(
        &self,
        out: &mut String,
        directory: &Directory,
        all: u64,
        level: usize,
        left: &mut usize,
    ) -> std::fmt::Result {
        let bytes = directory.usage.allocated;
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        let bar = self.bar(bytes, all, 16);
        let padding = " ".repeat(16usize.saturating_sub(bar.chars().count()));
        let (size, name) = (with_unit(bytes), printable(&directory.name));
        let share = text::share(bytes, all);
        writeln!(out, "{bar}{padding} {size:>11} {share:>8} {}{name}", "  ".repeat(level))?;
        let is_large = |inner: &&Directory| inner.usage.allocated >= all / PART_MIN;
        for inner in directory.contents.iter().filter(is_large) {
            self.write_directory(out, inner, all, level + 1, left)?;
        }
        Ok(())
    }
}

/// The use of most blocks.
fn largest(uses: &Uses) -> Option<BlockUse> {
    let used = BlockUse::ALL.into_iter().filter(|block_use| uses.get(*block_use) > 0);
    used.max_by_key(|block_use| uses.get(*block_use))
}

/// Whether the locale uses UTF-8, by the variables in the order in which they count.
pub fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    set.is_some_and(|value| {
        let value = value.to_ascii_lowercase();
        value.ends_with("utf-8") || value.ends_with("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_decides_about_unicode() {
        let with = |set: &'static [(&str, &str)]| {
            is_utf8(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("LANG", "en_US.UTF-8")]) && with(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(!with(&[]) && !with(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
    }

    #[test]
    fn bars_have_eighths_or_letters() {
        let terminal = |unicode| Terminal { width: 80, coloured: false, unicode };
        assert_eq!(terminal(true).bar(3, 4, 2), "\u{2588}\u{258c}");
        assert_eq!(terminal(false).bar(3, 4, 2), "##");
        assert_eq!(terminal(true).bar(0, 0, 8), "");
    }
}
