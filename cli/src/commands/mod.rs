//! The commands: one file each, with its arguments. [`table`] lists them.

mod bench;
pub mod cat;
pub mod check;
pub mod create;
pub mod diff;
pub mod dump;
pub mod edit;
pub mod extract;
pub mod filefrag;
pub mod find;
pub mod generate;
pub mod getfacl;
pub mod getfattr;
pub mod info;
pub mod life;
pub mod log;
pub mod ls;
pub mod lsattr;
pub mod manifest;
pub mod map;
pub mod mkfs;
pub mod mount;
pub mod remote;
pub mod stat;
pub mod table;
pub mod tree;
pub mod usage;

use std::path::PathBuf;

use clap::Args;

use crate::args::Global;
use crate::open::{self, Image};

/// The image, and the arguments of a command on it.
#[derive(Clone, Debug, Args)]
pub struct WithImage<T: Args> {
    /// The image.
    pub image: PathBuf,
    /// Arguments of the command.
    #[command(flatten)]
    pub command: T,
}

/// A command that shows files: of an image, or in a session that changes it.
pub trait Show {
    /// Writes to standard output. Files that cannot be read are counted as failures in the image's messages.
    ///
    /// # Errors
    /// Those of standard output.
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()>;
}

/// Runs a command that shows files.
fn show<T: Show + Args>(on: &WithImage<T>, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&on.image, global)?;
    on.command.show(&image, global)?;
    Ok(image.messages.finish())
}
