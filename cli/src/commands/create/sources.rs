//! What `--from` names.

use std::ffi::{OsStr, OsString};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use transfer::{Archive, Directory, Excludes, Receiver, Source, Survey};

use super::{Arguments, Whiteouts};

/// Sources in their order.
pub struct Sources(Vec<Box<dyn Source>>);

impl Sources {
    /// These.
    #[cfg(test)]
    pub fn of(sources: Vec<Box<dyn Source>>) -> Self {
        Self(sources)
    }

    /// Opens them. Standard input is kept in a nameless file beside the image, if it has to be read `twice`.
    pub fn open(arguments: &Arguments, twice: bool) -> anyhow::Result<Self> {
        if arguments.from.iter().filter(|from| *from == "-").count() > 1 {
            bail!("--from -: standard input can be given only once");
        }
        let excludes = &arguments.exclude.patterns()?;
        let one = |from: &OsString| {
            open(from, (arguments, excludes), twice)
                .map_err(|error| anyhow!("--from {}: {error}", from.display()))
        };
        let sources = arguments
            .from
            .iter()
            .map(one)
            .collect::<anyhow::Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        Ok(Self(sources))
    }

    /// Counts what all of them have.
    pub fn look(&self, how: Look, threads: usize, survey: &mut Survey) -> transfer::Result<()> {
        self.0.iter().try_for_each(|source| match how {
            Look::Brief => source.look(threads, survey),
            Look::Thorough => source.read(false, threads, survey),
        })
    }

    /// Gives all of them, one after the other.
    pub fn read(&self, threads: usize, receiver: &mut dyn Receiver) -> transfer::Result<()> {
        self.0.iter().try_for_each(|source| source.read(true, threads, receiver))
    }
}

/// What is known of the sources before they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Names and sizes, and attributes of some files.
    Brief,
    /// All but the contents.
    Thorough,
}

/// What the command line says of all sources, and what is left out of them.
type How<'h> = (&'h Arguments, &'h Arc<Excludes>);

/// What one `--from` stands for: layers of an image are several sources.
fn open(from: &OsStr, how: How<'_>, twice: bool) -> anyhow::Result<Vec<Box<dyn Source>>> {
    if let Some(layout) = from.as_bytes().strip_prefix(b"oci:") {
        // As skopeo and others write it: oci:DIR or oci:DIR:NAME.
        let layout = OsStr::from_bytes(layout);
        let named = layout.to_str().and_then(|text| text.rsplit_once(':'));
        let (path, name) = match named {
            Some((path, name)) if !Path::new(layout).exists() => (Path::new(path), Some(name)),
            _ => (Path::new(layout), None),
        };
        let layers = transfer::oci::layers(path, name)?.into_iter();
        return Ok(layers.map(|layer| Box::new(layer.excludes(how.1)) as Box<dyn Source>).collect());
    }
    open_one(from, how, twice).map(|source| vec![source])
}

fn open_one(from: &OsStr, how: How<'_>, twice: bool) -> anyhow::Result<Box<dyn Source>> {
    let (arguments, excludes) = how;
    let whiteouts = arguments.whiteouts == Some(Whiteouts::Oci);
    if from == "-" {
        return standard_input(how, twice || whiteouts, whiteouts);
    }
    let path = Path::new(from);
    if std::fs::metadata(path)?.is_dir() {
        // The same files may share their blocks in another way on another machine.
        let shares = !arguments.is_reproducible();
        let source = Directory::new(path).one_file_system(arguments.one_file_system).shares(shares);
        let source = source.excludes(excludes);
        // An image that is replaced is no part of the new one.
        return Ok(Box::new(match std::fs::metadata(&arguments.image) {
            Ok(image) => source.without(image.dev(), image.ino()),
            Err(_) => source,
        }));
    }
    Ok(Box::new(Archive::new(path).whiteouts(whiteouts).excludes(excludes)))
}

fn standard_input(
    (arguments, excludes): How<'_>,
    twice: bool,
    whiteouts: bool,
) -> anyhow::Result<Box<dyn Source>> {
    let name = Path::new("standard input");
    if !twice {
        return Ok(Box::new(Archive::once(name, Box::new(io::stdin())).excludes(excludes)));
    }
    let folder = arguments.image.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut kept = tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map_err(|error| {
        anyhow!(
            "cannot be stored in a temporary file beside the image (not needed with --size): \
        {error}"
        )
    })?;
    io::copy(&mut io::stdin().lock(), &mut kept).map_err(|error| {
        anyhow!(
            "cannot be stored in a temporary file beside the image (not needed with --size): \
        {error}"
        )
    })?;
    kept.rewind()?;
    Ok(Box::new(Archive::kept(name, kept).whiteouts(whiteouts).excludes(excludes)))
}
