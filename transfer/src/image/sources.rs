//! Opens the sources of an image.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::ImageBuilder;
use crate::item::Receiver;
use crate::survey::Survey;
use crate::{Archive, Directory, Error, Result, Source, oci};

/// A source as it was given.
pub enum ImageSource {
    Directory(PathBuf),
    Archive(PathBuf),
    Stream { name: PathBuf, stream: Box<dyn Read + Send> },
    Oci { layout: PathBuf, name: Option<String> },
    Other(Box<dyn Source>),
}

/// Open sources, in their order.
pub struct Sources(Vec<Box<dyn Source>>);

/// How closely sources are examined before they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyDepth {
    /// Names and sizes, and attributes of a sample.
    Sampled,
    /// Everything except contents.
    Full,
}

impl Sources {
    /// Opens the sources of an image. Streams are stored in a temporary file if they are read twice.
    pub fn open(builder: &mut ImageBuilder<'_>, read_twice: bool) -> Result<Self> {
        builder.sources.iter().try_for_each(expect_available)?;
        let mut open_sources = Vec::new();
        for source in std::mem::take(&mut builder.sources) {
            open(source, builder, read_twice, &mut open_sources)?;
        }
        Ok(Self(open_sources))
    }

    /// Counts the files of all sources.
    pub fn survey(&self, depth: SurveyDepth, threads: usize, survey: &mut Survey) -> Result<()> {
        self.0.iter().try_for_each(|source| match depth {
            SurveyDepth::Sampled => source.survey(threads, survey),
            SurveyDepth::Full => source.read(false, threads, survey),
        })
    }

    /// Passes all sources to a receiver, one after the other.
    pub fn read(&self, threads: usize, receiver: &mut dyn Receiver) -> Result<()> {
        self.0.iter().try_for_each(|source| source.read(true, threads, receiver))
    }
}

/// Fails if a source does not exist: before a stream is stored, and before a block device is written to.
fn expect_available(source: &ImageSource) -> Result<()> {
    match source {
        ImageSource::Directory(path) | ImageSource::Archive(path) => {
            let is_directory = std::fs::metadata(path).map(|metadata| metadata.is_dir());
            let is_directory = is_directory.map_err(|error| Error::source(path, "open it", error))?;
            match source {
                ImageSource::Directory(_) if !is_directory => {
                    Err(Error::source(path, "open it", Errno::NOTDIR))
                }
                ImageSource::Archive(_) if is_directory => Err(Error::source(path, "open it", Errno::ISDIR)),
                _ => Ok(()),
            }
        }
        ImageSource::Oci { layout, name } => oci::layers(layout, name.as_deref()).map(drop),
        ImageSource::Stream { .. } | ImageSource::Other(_) => Ok(()),
    }
}

/// Adds a source, or all layers of an image.
fn open(
    source: ImageSource,
    builder: &ImageBuilder<'_>,
    read_twice: bool,
    open_sources: &mut Vec<Box<dyn Source>>,
) -> Result<()> {
    let (excludes, whiteouts) = (|| builder.excludes.clone(), builder.whiteouts);
    open_sources.push(match source {
        ImageSource::Directory(path) => {
            // Which files share blocks may differ on another machine with the same files.
            let shares = !builder.is_reproducible();
            let source = Directory::new(path).one_file_system(builder.one_file_system).shares(shares);
            let source = source.excludes(excludes());
            // An image that is replaced is not imported.
            Box::new(match std::fs::metadata(&builder.image) {
                Ok(image) => source.without(image.dev(), image.ino()),
                Err(_) => source,
            })
        }
        ImageSource::Archive(path) => Box::new(Archive::new(path).whiteouts(whiteouts).excludes(excludes())),
        ImageSource::Stream { name, stream } if read_twice || whiteouts => {
            let folder = match &builder.device {
                Some(_) => std::env::temp_dir(),
                None => folder_of(&builder.image),
            };
            let file = store(stream, &folder).map_err(Error::Spool)?;
            Box::new(Archive::from_file(name, file).whiteouts(whiteouts).excludes(excludes()))
        }
        ImageSource::Stream { name, stream } => {
            Box::new(Archive::from_reader(name, stream).excludes(excludes()))
        }
        ImageSource::Oci { layout, name } => {
            for layer in oci::layers(&layout, name.as_deref())? {
                open_sources.push(Box::new(layer.excludes(excludes())));
            }
            return Ok(());
        }
        ImageSource::Other(source) => source,
    });
    Ok(())
}

fn folder_of(image: &Path) -> PathBuf {
    let folder = image.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// Stores a stream in a temporary file.
fn store(mut stream: Box<dyn Read + Send>, folder: &Path) -> io::Result<File> {
    let mut file = tempfile::tempfile_in(folder)?;
    io::copy(&mut stream, &mut file)?;
    file.rewind()?;
    Ok(file)
}
