//! Text output of `ls`: long listing, lines and columns, as in GNU `ls`.

use format::inode::FileType;
use read::{ListingItem, Metadata};

use super::file::{FileInfo, Mark};
use super::{Options, OutputFormat};
use crate::names;
use crate::owners::Owners;
use crate::sizes::{self, digits, push_number};
use crate::times::TimeFormatter;

/// A line of output.
#[derive(Clone, Copy)]
pub struct Line<'l> {
    /// Name, or path of an operand.
    pub name: &'l [u8],
    /// Directory entry.
    pub entry: &'l ListingItem,
    /// Metadata.
    pub file: &'l FileInfo,
}

/// Widths of the columns of a long listing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths {
    inode: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
    major: usize,
    minor: usize,
    marked: bool,
    /// Sum of 512-byte units, for the total of a directory.
    sectors: u64,
}

impl Widths {
    /// Widens the columns for a line.
    pub fn include(&mut self, entry: &ListingItem, file: &FileInfo, owners: &Owners, options: &Options) {
        if options.inode {
            self.inode = self.inode.max(digits(entry.ino.get()));
        }
        let Some(metadata) = &file.metadata else { return };
        self.links = self.links.max(digits(metadata.links.into()));
        self.user = self.user.max(owners.users.width(metadata.uid));
        self.group = self.group.max(owners.groups.width(metadata.gid));
        if is_device(metadata) {
            self.major = self.major.max(digits(metadata.device.0.into()));
            self.minor = self.minor.max(digits(metadata.device.1.into()));
        } else {
            let width = if options.human { sizes::human(metadata.size).len() } else { digits(metadata.size) };
            self.size = self.size.max(width);
        }
        self.marked |= file.mark != Mark::None;
        self.sectors = self.sectors.saturating_add(metadata.sectors);
    }

    /// Merges the widths of two parts of a listing.
    pub fn join(&mut self, other: &Self) {
        self.inode = self.inode.max(other.inode);
        self.links = self.links.max(other.links);
        self.user = self.user.max(other.user);
        self.group = self.group.max(other.group);
        self.size = self.size.max(other.size);
        self.major = self.major.max(other.major);
        self.minor = self.minor.max(other.minor);
        self.marked |= other.marked;
        self.sectors = self.sectors.saturating_add(other.sectors);
    }

    fn has_devices(&self) -> bool {
        self.major > 0
    }

    /// Width of the size column, which also shows device numbers as `major, minor`.
    fn size_or_device(&self) -> usize {
        if self.has_devices() { self.size.max(self.major + 2 + self.minor) } else { self.size }
    }

    /// Appends the header of a directory.
    pub fn push_total(&self, out: &mut Vec<u8>, options: &Options) {
        out.extend_from_slice(b"total ");
        if options.human {
            out.extend_from_slice(sizes::human(self.sectors.saturating_mul(512)).as_bytes());
        } else {
            push_number(out, self.sectors.div_ceil(2), 0);
        }
        out.push(b'\n');
    }
}

fn is_device(metadata: &Metadata) -> bool {
    matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice)
}

/// Appends long lines.
pub fn push_long(
    out: &mut Vec<u8>,
    line: Line<'_>,
    widths: &Widths,
    options: &Options,
    owners: &Owners,
    times: &mut TimeFormatter,
) {
    if options.inode {
        push_number(out, line.entry.ino.get(), widths.inode);
        out.push(b' ');
    }
    match &line.file.metadata {
        Some(metadata) => {
            out.extend_from_slice(&mode_text(metadata.file_type, metadata.permissions));
            push_mark(out, line.file.mark, widths.marked);
            push_number(out, metadata.links.into(), widths.links);
            out.push(b' ');
            owners.users.push(out, metadata.uid, widths.user);
            out.push(b' ');
            owners.groups.push(out, metadata.gid, widths.group);
            out.push(b' ');
            push_size(out, metadata, widths, options);
            out.push(b' ');
            times.push(out, metadata.times.modify, &options.time_style);
        }
        None => push_unknown(out, line.entry.file_type, widths),
    }
    out.push(b' ');
    push_name(out, line, options);
    if let Some(target) = &line.file.target {
        out.extend_from_slice(b" -> ");
        options.quoting.push(out, target);
    }
    out.push(b'\n');
}

fn push_mark(out: &mut Vec<u8>, mark: Mark, marked: bool) {
    match mark {
        Mark::Acl => out.push(b'+'),
        Mark::Label => out.push(b'.'),
        Mark::None if marked => out.push(b' '),
        Mark::None => {}
    }
    out.push(b' ');
}

fn push_size(out: &mut Vec<u8>, metadata: &Metadata, widths: &Widths, options: &Options) {
    let width = widths.size_or_device();
    if is_device(metadata) {
        let major = width.saturating_sub(widths.minor + 2);
        push_number(out, metadata.device.0.into(), major);
        out.extend_from_slice(b", ");
        push_number(out, metadata.device.1.into(), widths.minor);
    } else if options.human {
        let text = sizes::human(metadata.size);
        out.resize(out.len() + width.saturating_sub(text.len()), b' ');
        out.extend_from_slice(text.as_bytes());
    } else {
        push_number(out, metadata.size, width);
    }
}

/// A file with an unreadable inode, in the format of GNU `ls`.
fn push_unknown(out: &mut Vec<u8>, file_type: Option<FileType>, widths: &Widths) {
    out.push(file_type.map_or(b'?', type_letter));
    out.extend_from_slice(b"?????????");
    push_mark(out, Mark::None, widths.marked);
    // The last is the time, in the width of the default style.
    for width in [widths.links, widths.user, widths.group, widths.size_or_device(), 12] {
        out.resize(out.len() + width.saturating_sub(1), b' ');
        out.extend_from_slice(b"? ");
    }
    out.pop();
}

/// The letter of a file type in a mode.
pub fn type_letter(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => b'-',
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        FileType::CharDevice => b'c',
        FileType::BlockDevice => b'b',
        FileType::Fifo => b'p',
        FileType::Socket => b's',
    }
}

/// A mode in ten letters: `drwxr-sr-t`.
pub fn mode_text(file_type: FileType, permissions: u16) -> [u8; 10] {
    let bit = |mask: u16, letter: u8| if permissions & mask != 0 { letter } else { b'-' };
    // Set-user-ID, set-group-ID and sticky replace an execute bit: lowercase if that is set, too.
    let execute_or_special =
        |special: u16, execute: u16, letter: u8| match (permissions & special, permissions & execute) {
            (0, _) => bit(execute, b'x'),
            (_, 0) => letter.to_ascii_uppercase(),
            _ => letter,
        };
    [
        type_letter(file_type),
        bit(0o400, b'r'),
        bit(0o200, b'w'),
        execute_or_special(0o4000, 0o100, b's'),
        bit(0o040, b'r'),
        bit(0o020, b'w'),
        execute_or_special(0o2000, 0o010, b's'),
        bit(0o004, b'r'),
        bit(0o002, b'w'),
        execute_or_special(0o1000, 0o001, b't'),
    ]
}

fn push_name(out: &mut Vec<u8>, line: Line<'_>, options: &Options) {
    let colour = if options.coloured { colour(line) } else { None };
    if let Some(colour) = colour {
        out.extend_from_slice(b"\x1b[");
        out.extend_from_slice(colour.as_bytes());
        out.push(b'm');
    }
    options.quoting.push(out, line.name);
    if colour.is_some() {
        out.extend_from_slice(b"\x1b[0m");
    }
}

/// Default colours of `ls`.
fn colour(line: Line<'_>) -> Option<&'static str> {
    let permissions = line.file.metadata.map_or(0, |metadata| metadata.permissions);
    let file_type = line.file.file_type().or(line.entry.file_type)?;
    Some(match file_type {
        FileType::Directory if permissions & 0o1002 == 0o1002 => "30;42",
        FileType::Directory if permissions & 0o0002 != 0 => "34;42",
        FileType::Directory if permissions & 0o1000 != 0 => "37;44",
        FileType::Directory => "01;34",
        FileType::Symlink => "01;36",
        FileType::Fifo => "40;33",
        FileType::Socket => "01;35",
        FileType::BlockDevice | FileType::CharDevice => "40;33;01",
        FileType::Regular if permissions & 0o4000 != 0 => "37;41",
        FileType::Regular if permissions & 0o2000 != 0 => "30;43",
        FileType::Regular if permissions & 0o0111 != 0 => "01;32",
        FileType::Regular => return None,
    })
}

/// Appends short lines, or columns.
pub fn push_short<'l>(out: &mut Vec<u8>, lines: impl Iterator<Item = Line<'l>>, options: &Options) {
    match options.format {
        OutputFormat::Columns(width) => push_columns(out, &lines.collect::<Vec<_>>(), width, options),
        _ => {
            let mut inode = 0;
            let lines: Vec<_> =
                lines.inspect(|line| inode = inode.max(digits(line.entry.ino.get()))).collect();
            for line in lines {
                push_cell(out, line, inode, options);
                out.push(b'\n');
            }
        }
    }
}

fn push_cell(out: &mut Vec<u8>, line: Line<'_>, inode: usize, options: &Options) {
    if options.inode {
        push_number(out, line.entry.ino.get(), inode);
        out.push(b' ');
    }
    push_name(out, line, options);
}

/// As many columns as fit, filled from top to bottom.
fn push_columns(out: &mut Vec<u8>, lines: &[Line<'_>], width: usize, options: &Options) {
    let Some(inode) = lines.iter().map(|line| digits(line.entry.ino.get())).max() else { return };
    let extra = if options.inode { inode + 1 } else { 0 };
    let cells: Vec<usize> =
        lines.iter().map(|line| names::quoted(line.name).chars().count() + extra).collect();
    let fits = |columns: usize| {
        let rows = cells.len().div_ceil(columns);
        cells.chunks(rows).map(|column| column.iter().max().unwrap_or(&0) + 2).sum::<usize>() <= width + 2
    };
    // A column has a width of at least three.
    let columns_max = (width / 3).clamp(1, cells.len());
    let columns = (1..=columns_max).rev().find(|columns| fits(*columns)).unwrap_or(1);
    let rows = cells.len().div_ceil(columns);
    let column_widths: Vec<usize> =
        cells.chunks(rows).map(|column| column.iter().max().unwrap_or(&0) + 2).collect();
    for row in 0..rows {
        for (column, column_width) in column_widths.iter().enumerate() {
            let index = column * rows + row;
            let (Some(line), Some(cell)) = (lines.get(index), cells.get(index)) else { break };
            push_cell(out, *line, inode, options);
            if index + rows < lines.len() {
                out.resize(out.len() + column_width.saturating_sub(*cell), b' ');
            }
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_special_mode_bits() {
        assert_eq!(&mode_text(FileType::Directory, 0o1777), b"drwxrwxrwt");
        assert_eq!(&mode_text(FileType::Regular, 0o6644), b"-rwSr-Sr--");
        assert_eq!(&mode_text(FileType::Fifo, 0o4711), b"prws--x--x");
        assert_eq!(&mode_text(FileType::Socket, 0o1000), b"s--------T");
    }
}
