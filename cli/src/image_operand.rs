//! Operands `IMAGE:PATH` of commands that take an image and paths in it: the image becomes the first operand.
//!
//! Values of options are not changed, nor is anything if the first operand is an image already.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory as _};
use remote::RemoteUrl;

use crate::args::Cli;
use crate::commands::table::takes_paths;
use crate::open::image_and_path;
use crate::urls::shown;

/// Rewrites `IMAGE:PATH ...` to `IMAGE PATH ...`.
///
/// # Errors
/// Operands of several images.
pub fn move_image_first(mut words: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    if !words.iter().skip(1).any(|word| image_and_path(word).is_some()) {
        return Ok(words);
    }
    let mut root = Cli::command();
    root.build();
    let Some((command, operands)) = operands(&root, &words) else { return Ok(words) };
    let word = |index: &usize| words.get(*index).map(OsString::as_os_str).unwrap_or_default();
    let is_file = |index: &usize| {
        let path = Path::new(word(index));
        path.metadata().is_ok_and(|file| !file.is_dir())
            || RemoteUrl::new(path).is_some() && image_and_path(word(index)).is_none()
    };
    if operands.first().is_some_and(is_file) {
        return Ok(words);
    }
    let in_image = |index: &usize| {
        let (image, path) = image_and_path(word(index))?;
        Some((*index, image.to_owned(), path.to_owned()))
    };
    let in_images: Vec<_> = operands.iter().filter_map(in_image).collect();
    let Some((_, image, _)) = in_images.first().cloned() else { return Ok(words) };
    if let Some((_, other, _)) = in_images.iter().find(|(_, other, _)| !is_same_file(other, &image)) {
        let (image, other) = (shown(&image), shown(other));
        let text = format!(
            "{image} and {other} are different images: run the command for each of them, or copy with cp"
        );
        return Err(root.error(ErrorKind::ArgumentConflict, text));
    }
    for (index, _, path) in in_images {
        if let Some(word) = words.get_mut(index) {
            *word = path;
        }
    }
    words.insert(command + 1, image.into_os_string());
    Ok(words)
}

/// Whether two paths name the same file, or two URLs the same volume.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    if let (Some(one), Some(other)) = (RemoteUrl::new(one), RemoteUrl::new(other)) {
        return one.is_same(&other);
    }
    let id = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    one == other || id(one).is_some_and(|file| Some(file) == id(other))
}

/// Indices of the command and its operands. `None` for commands that do not take paths in an image.
fn operands(root: &Command, words: &[OsString]) -> Option<(usize, Vec<usize>)> {
    let (mut subcommand, mut operands) = (None, Vec::new());
    let mut rest = words.iter().enumerate().skip(1);
    while let Some((index, word)) = rest.next() {
        if word == "--" {
            operands.extend(rest.by_ref().map(|(index, _)| index));
        } else if is_option(word) {
            if takes_next(subcommand.map_or(root, |(_, command)| command), word) {
                rest.next();
            }
        } else if subcommand.is_some() {
            operands.push(index);
        } else {
            let command = root.find_subcommand(word).filter(|command| takes_paths(command.get_name()))?;
            subcommand = Some((index, command));
        }
    }
    subcommand.map(|(index, _)| (index, operands))
}

fn is_option(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-") && word != "-"
}

/// Whether the value of an option is the next word.
fn takes_next(command: &Command, word: &OsStr) -> bool {
    let takes = |arg: &Arg| {
        arg.get_action().takes_values() && arg.get_num_args().is_none_or(|count| count.min_values() > 0)
    };
    let find = |matches: &dyn Fn(&Arg) -> bool| command.get_arguments().find(|arg| matches(arg));
    let Some(text) = word.to_str() else { return false };
    if let Some(long) = text.strip_prefix("--") {
        let has_name = |arg: &Arg| {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long))
        };
        return find(&has_name).is_some_and(takes);
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
