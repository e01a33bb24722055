//! Names of all lengths and bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use model::Rng;

/// Maximum length of a name.
const NAME_MAX: usize = 255;

/// Characters in several encodings, each repeated up to the maximum length: a reader that truncates a character, or
/// mistakes its encoding, changes the name.
const CHARACTERS: [&[u8]; 20] = [
    "é".as_bytes(),
    "e\u{301}".as_bytes(),
    "漢".as_bytes(),
    "𝄞".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    "\u{10ffff}".as_bytes(),
    // Invalid UTF-8: overlong, a surrogate, five bytes, truncated.
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xe6\xbc",
    // Latin-1, UTF-16 in both byte orders, Shift-JIS with a backslash byte, GB 18030, Big5, EUC-JP, ISO-2022-JP.
    b"\xe9\xff",
    b"\x01\x6f",
    b"\x6f\x01",
    b"\x83\x5c",
    b"\x81\x30\x81\x30",
    b"\xa4\x7c",
    b"\x8f\xa2\xaf",
    b"\x1b$B\x34\x41\x1b(B",
    // Special to terminals and shells.
    b"\x1b[31m\r\n\t'\"$(rm) ",
];

/// Names that are special to programs.
const ODD: [&[u8]; 12] =
    [b"...", b"-rf", b"--", b" ", b"\n", b"\\", b"\\n", b"*", b"~", b"#", b"a\nb", b".wh..wh..opq"];

/// Creates files, directories and symlinks with all these names, and with `count` random names.
pub fn make(dir: &Path, count: u64) -> Result<()> {
    let bytes = (1..=u8::MAX).filter(|byte| *byte != b'/');
    let mut names: Vec<Vec<u8>> = bytes.clone().map(|byte| vec![byte; NAME_MAX]).collect();
    names.extend(bytes.clone().filter(|byte| *byte != b'.').map(|byte| vec![byte]));
    names.push(bytes.collect());
    names.extend(
        CHARACTERS.iter().map(|character| character.iter().copied().cycle().take(NAME_MAX).collect()),
    );
    names.extend(ODD.iter().map(|name| name.to_vec()));
    let mut rng = Rng::new(count);
    names.extend((0..count).map(|number| random(&mut rng, number)));
    names.sort_unstable();
    names.dedup();

    let files = super::folder(dir.join("files"))?;
    let folders = super::folder(dir.join("folders"))?;
    let links = super::folder(dir.join("links"))?;
    for name in &names {
        let shown = || name.escape_ascii().to_string();
        let name = OsStr::from_bytes(name);
        super::file(&files.join(name), name.as_bytes())?;
        let folder = super::folder(folders.join(name))?;
        std::fs::hard_link(files.join(name), folder.join(name)).with_context(shown)?;
        std::os::unix::fs::symlink(name, links.join(name)).with_context(shown)?;
    }
    deep(&super::folder(dir.join("deep"))?, &names)
}

/// Returns a random name; lengths are used in turn, and a number makes each name unique.
fn random(rng: &mut Rng, number: u64) -> Vec<u8> {
    let length = (number as usize % NAME_MAX).max(12);
    let mut name = format!("{number:x}-").into_bytes();
    name.extend(rng.bytes(length - name.len()).iter().map(|byte| match byte {
        0 | b'/' => b'!',
        byte => *byte,
    }));
    name
}

/// Creates nested directories with names of maximum length, up to `PATH_MAX`.
fn deep(dir: &Path, names: &[Vec<u8>]) -> Result<()> {
    let mut at = dir.to_path_buf();
    for name in names.iter().filter(|name| name.len() == NAME_MAX).take(14) {
        at.push(OsStr::from_bytes(name));
        std::fs::create_dir(&at).with_context(|| at.display().to_string())?;
    }
    super::file(&at.join("bottom"), b"here")
}
