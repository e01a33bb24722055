//! What `make-images` calls inside its mount namespace.
#![forbid(unsafe_code)]

use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use interop::damage::{judge, record};
use interop::{attributes, bulk, compare, faulty, fill, runs, scale, stress, walk};

#[derive(Parser)]
#[command(about = "Fills, stresses and describes mounted volumes")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the manifest of the tree under DIR.
    Manifest {
        /// The root of the tree.
        dir: PathBuf,
    },
    /// Compare the manifests in two files, as far as one volume can be made of another.
    Compare {
        /// The manifest of the source.
        expected: PathBuf,
        /// The manifest of what was made of it.
        found: PathBuf,
    },
    /// Print where FILE has data, and their hashes.
    Runs {
        /// A regular file of any size.
        file: PathBuf,
    },
    /// Fill the empty volume mounted at DIR with every structure that files can have.
    Fill(fill::Options),
    /// Work on the volume mounted at DIR until it is shut down.
    Stress(stress::Options),
    /// Change extended attributes of the files in DIR.
    Attributes(attributes::Options),
    /// Make a large plain tree under DIR.
    Bulk(bulk::Options),
    /// Make a tree of which there is much of one thing.
    Scale(scale::Options),
    /// Mount a file as a device that fails by request.
    Faulty(faulty::Options),
    /// Damage small volumes a field at a time.
    #[command(subcommand)]
    Damage(Damage),
}

#[derive(Subcommand)]
enum Damage {
    /// Make the damage anew and record what xfs_repair says of it.
    Record(record::Options),
    /// Ask `xebec check` about all recorded damage and print where it and xfs_repair differ.
    Judge(judge::Options),
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Manifest { dir } => walk::write_manifest(&dir, BufWriter::new(std::io::stdout().lock())),
        Command::Compare { expected, found } => compare::manifests(&expected, &found),
        Command::Runs { file } => runs::write(&file, std::io::stdout().lock()),
        Command::Fill(options) => fill::run(&options),
        Command::Stress(options) => stress::run(&options),
        Command::Attributes(options) => attributes::run(&options),
        Command::Bulk(options) => bulk::run(&options),
        Command::Scale(options) => scale::run(&options),
        Command::Faulty(options) => faulty::run(&options),
        Command::Damage(Damage::Record(options)) => record::run(&options),
        Command::Damage(Damage::Judge(options)) => judge::run(&options),
    }
}
