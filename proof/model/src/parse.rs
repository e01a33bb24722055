//! Parses operations from the text that [`Operation`] displays.

use std::str::{FromStr, SplitWhitespace};

use base::time::Time;

use crate::operation::{FileKind, Id, Name, NewFile, Operation, RenameMode, SetAttr};

/// The words of one line.
struct Words<'a> {
    line: &'a str,
    rest: SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.rest.next().ok_or_else(|| format!("`{}` ends too soon", self.line))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        number(self.next()?)
    }

    fn id(&mut self) -> Result<Id, String> {
        self.number().map(Id)
    }

    fn name(&mut self) -> Result<Name, String> {
        unword(self.next()?)
    }

    fn read_new(&mut self) -> Result<NewFile, String> {
        Ok(NewFile {
            kind: kind(self.next()?)?,
            mode: octal(self.next()?)?,
            uid: self.number()?,
            gid: self.number()?,
        })
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

fn octal(word: &str) -> Result<u16, String> {
    u16::from_str_radix(word, 8).map_err(|_| format!("`{word}` is not an octal number"))
}

/// The reverse of [`crate::operation::word`].
fn unword(word: &str) -> Result<Name, String> {
    let wrong = || format!("`{word}` is not a name");
    let mut bytes = word.strip_prefix('=').ok_or_else(wrong)?.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        out.push((high * 16 + low) as u8);
    }
    Ok(out)
}

fn kind(word: &str) -> Result<FileKind, String> {
    let (what, rest) = word.split_once(':').unwrap_or((word, ""));
    let pair = || {
        let (major, minor) = rest.split_once(':').ok_or_else(|| format!("`{word}` lacks a minor number"))?;
        Ok::<_, String>((number(major)?, number(minor)?))
    };
    Ok(match what {
        "file" => FileKind::File,
        "dir" => FileKind::Directory,
        "symlink" => FileKind::Symlink(unword(rest)?),
        "char" => pair().map(|(major, minor)| FileKind::CharDevice(major, minor))?,
        "block" => pair().map(|(major, minor)| FileKind::BlockDevice(major, minor))?,
        "fifo" => FileKind::Fifo,
        "socket" => FileKind::Socket,
        _ => return Err(format!("`{word}` is not a file type")),
    })
}

fn mode(word: &str) -> Result<RenameMode, String> {
    Ok(match word.split_once(':').unwrap_or((word, "")) {
        ("replace", _) => RenameMode::Replace,
        ("noreplace", _) => RenameMode::NoReplace,
        ("exchange", _) => RenameMode::Exchange,
        ("whiteout", id) => RenameMode::Whiteout(Id(number(id)?)),
        _ => return Err(format!("`{word}` is not a rename mode")),
    })
}

fn change(words: SplitWhitespace<'_>) -> Result<SetAttr, String> {
    let mut change = SetAttr::default();
    for word in words {
        let (what, value) =
            word.split_once(':').ok_or_else(|| format!("`{word}` is not a metadata change"))?;
        let time = || {
            let (seconds, nanos) = value.split_once(':').ok_or_else(|| format!("`{word}` is not a time"))?;
            Ok::<_, String>(Time { seconds: number(seconds)?, nanos: number(nanos)? })
        };
        match what {
            "mode" => change.mode = Some(octal(value)?),
            "uid" => change.uid = Some(number(value)?),
            "gid" => change.gid = Some(number(value)?),
            "atime" => change.accessed = Some(time()?),
            "mtime" => change.modified = Some(time()?),
            _ => return Err(format!("`{word}` is not a metadata change")),
        }
    }
    Ok(change)
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words { line, rest: line.split_whitespace() };
        Ok(match words.next()? {
            "create" => Self::Create {
                dir: words.id()?,
                name: words.name()?,
                new: words.read_new()?,
                id: words.id()?,
            },
            "link" => Self::Link { id: words.id()?, dir: words.id()?, name: words.name()? },
            "unlink" => Self::Unlink { dir: words.id()?, name: words.name()? },
            "rmdir" => Self::Rmdir { dir: words.id()?, name: words.name()? },
            "rename" => Self::Rename {
                from: words.id()?,
                name: words.name()?,
                to: words.id()?,
                to_name: words.name()?,
                mode: mode(words.next()?)?,
            },
            "anonymous" => Self::Anonymous { dir: words.id()?, new: words.read_new()?, id: words.id()? },
            "open" => Self::Open { id: words.id()? },
            "close" => Self::Close { id: words.id()? },
            "set" => Self::Set { id: words.id()?, change: change(words.rest.clone())? },
            "lookup" => Self::Lookup { dir: words.id()?, name: words.name()? },
            "stat" => Self::Stat { id: words.id()? },
            "list" => Self::List { dir: words.id()? },
            "sync" => Self::Sync,
            other => return Err(format!("`{other}` is not an operation")),
        })
    }
}
