//! Operands `IMAGE:PATH` of commands that take an image and paths in it: the image becomes the first operand.
//!
//! Values of options are not changed, nor is anything if the first operand is an image already.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory as _};

use crate::args::Cli;
use crate::commands::table::takes_paths;
use crate::open::image_and_path;

/// Rewrites `IMAGE:PATH ...` to `IMAGE PATH ...`.
///
/// # Errors
/// Operands of several images.
pub fn with_image_first(mut words: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    if !words.iter().skip(1).any(|word| image_and_path(word).is_some()) {
        return Ok(words);
    }
    let mut root = Cli::command();
    root.build();
    let Some((command, operands)) = operands(&root, &words) else { return Ok(words) };
    let word = |at: &usize| words.get(*at).map(OsString::as_os_str).unwrap_or_default();
    let is_file = |at: &usize| Path::new(word(at)).metadata().is_ok_and(|file| !file.is_dir());
    if operands.first().is_some_and(is_file) {
        return Ok(words);
    }
    let named =
        operands.iter().filter_map(|at| image_and_path(word(at)).map(|(image, path)| (*at, image, path)));
    let named: Vec<_> = named.map(|(at, image, path)| (at, image.to_owned(), path.to_owned())).collect();
    let Some((_, image, _)) = named.first().cloned() else { return Ok(words) };
    if let Some((_, other, _)) = named.iter().find(|(_, other, _)| !is_one_file(other, &image)) {
        let (image, other) = (image.display(), other.display());
        let text = format!(
            "{image} and {other} are different images: run the command for each of them, or copy with cp"
        );
        return Err(root.error(ErrorKind::ArgumentConflict, text));
    }
    for (at, _, path) in named {
        if let Some(word) = words.get_mut(at) {
            *word = path;
        }
    }
    words.insert(command + 1, image.into_os_string());
    Ok(words)
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    one == other || place(one).is_some_and(|at| Some(at) == place(other))
}

/// Indices of the command and its operands. `None` for commands that do not take paths in an image.
fn operands(root: &Command, words: &[OsString]) -> Option<(usize, Vec<usize>)> {
    let (mut command, mut found) = (None, Vec::new());
    let mut rest = words.iter().enumerate().skip(1);
    while let Some((at, word)) = rest.next() {
        let known = command.map_or(root, |(_, known)| known);
        if word == "--" {
            found.extend(rest.by_ref().map(|(at, _)| at));
        } else if is_option(word) {
            if takes_next(known, word) {
                rest.next();
            }
        } else if command.is_some() {
            found.push(at);
        } else {
            let known = root.find_subcommand(word).filter(|known| takes_paths(known.get_name()))?;
            command = Some((at, known));
        }
    }
    command.map(|(at, _)| (at, found))
}

fn is_option(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-") && word != "-"
}

/// Whether the value of an option is the next word.
fn takes_next(command: &Command, word: &OsStr) -> bool {
    let takes = |arg: &Arg| {
        let least = arg.get_num_args().map_or(1, |count| count.min_values());
        arg.get_action().takes_values() && least > 0
    };
    let find = |is_it: &dyn Fn(&Arg) -> bool| command.get_arguments().find(|arg| is_it(arg));
    let Some(text) = word.to_str() else { return false };
    if let Some(long) = text.strip_prefix("--") {
        let is_it = |arg: &Arg| {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long))
        };
        return find(&is_it).is_some_and(takes);
    }
    // In `-abc VALUE`, the last option takes the next word; `-nVALUE` contains the value.
    let mut letters = text.strip_prefix('-').unwrap_or_default().chars();
    while let Some(letter) = letters.next() {
        if find(&|arg: &Arg| arg.get_short() == Some(letter)).is_some_and(takes) {
            return letters.as_str().is_empty();
        }
    }
    false
}
