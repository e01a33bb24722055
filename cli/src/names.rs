//! Output of names from an image: raw to files and pipes, quoted as in GNU `ls` on a terminal.
//!
//! A name consists of any bytes except `/` and NUL: it may contain escape sequences, newlines, or invalid UTF-8.

use std::fmt::Write as _;

pub use read::manifest::hex;

/// Quoting of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// Raw.
    Raw,
    /// Quoted for a shell if necessary.
    Shell,
}

impl Quoting {
    /// Quoted on a terminal, raw otherwise.
    pub fn for_stdout() -> Self {
        if crate::output::Stdout::is_terminal() { Self::Shell } else { Self::Raw }
    }

    /// Appends a name.
    pub fn push(self, out: &mut Vec<u8>, name: &[u8]) {
        match self {
            Self::Raw => out.extend_from_slice(name),
            Self::Shell => push_shell(out, name),
        }
    }
}

/// Bytes that need no quotes.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"%+,-./:@_]{}".contains(&byte)
}

/// Whether a character is safe on a terminal: no control characters, no bidirectional formatting.
fn is_safe(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn push_shell(out: &mut Vec<u8>, name: &[u8]) {
    if !name.is_empty() && name.iter().all(|byte| is_plain(*byte)) {
        return out.extend_from_slice(name);
    }
    match std::str::from_utf8(name) {
        Ok(text) if text.chars().all(is_safe) => {
            let plain = |c: char| !c.is_ascii() || is_plain(c as u8) || c == '~' || c == '#';
            let leading = text.starts_with(['~', '#']);
            if !text.is_empty() && !leading && text.chars().all(plain) {
                out.extend_from_slice(name);
            } else if text.contains('\'') && !text.contains(['"', '$', '`', '\\', '!']) {
                out.push(b'"');
                out.extend_from_slice(name);
                out.push(b'"');
            } else {
                push_quoted(out, name);
            }
        }
        _ => push_quoted(out, name),
    }
}

/// Single quotes around safe characters, `$'\n'` around others.
fn push_quoted(out: &mut Vec<u8>, name: &[u8]) {
    let mut escaping = false;
    out.push(b'\'');
    let mut enter = |out: &mut Vec<u8>, escape: bool| {
        if escape != escaping {
            out.extend_from_slice(if escape { b"'$'" } else { b"''" });
            escaping = escape;
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\'' {
                enter(out, false);
                out.extend_from_slice(b"'\\''");
            } else if is_safe(c) {
                enter(out, false);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                enter(out, true);
                push_escapes(out, c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if !chunk.invalid().is_empty() {
            enter(out, true);
            push_escapes(out, chunk.invalid());
        }
    }
    out.push(b'\'');
}

fn push_escapes(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        let letter = match byte {
            0x07 => b'a',
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0b => b'v',
            0x0c => b'f',
            b'\r' => b'r',
            _ => {
                out.push(b'\\');
                out.extend([byte >> 6, byte >> 3 & 7, byte & 7].map(|digit| b'0' + digit));
                continue;
            }
        };
        out.extend([b'\\', letter]);
    }
}

/// A name or path for a message, quoted if necessary.
pub fn quoted(name: &[u8]) -> String {
    let mut out = Vec::with_capacity(name.len() + 2);
    push_shell(&mut out, name);
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes characters of a text that are unsafe on a terminal.
pub fn printable(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_safe(c) {
                out.push(c);
            } else {
                // Writing to a string cannot fail.
                let _ = write!(out, "{}", c.escape_default());
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A name in the format of `getfacl`: unsafe characters and backslashes as octal bytes.
pub fn octal(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    let escape = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\{byte:03o}");
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_safe(c) && c != '\\' {
                true => out.push(c),
                false => escape(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape(&mut out, chunk.invalid());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts are the output of `ls --quoting-style=shell-escape` of coreutils 9.1.
    #[test]
    fn quotes_names_as_ls_does() {
        for (name, text) in [
            (&b"plain-1.2_x"[..], "plain-1.2_x"),
            (b"two words", "'two words'"),
            (b"it's", "\"it's\""),
            (b"it's $1", "'it'\\''s $1'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"\x1b[31m", "''$'\\033''[31m'"),
            (b"\xff", "''$'\\377'"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"a~", "a~"),
            (b"~a", "'~a'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(name), text);
        }
    }

    #[test]
    fn escapes_control_and_bidirectional_characters() {
        assert_eq!(printable(b"a\x1b[2Jb\xfe"), "a\\u{1b}[2Jb\\xfe");
        assert_eq!(printable("\u{202e}x".as_bytes()), "\\u{202e}x");
    }
}
