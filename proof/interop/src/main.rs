//! Commands that `make-images` and tests run on mounted volumes.
#![forbid(unsafe_code)]

use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use interop::damage::{judge, record};
use interop::{attributes, bulk, compare, faulty, fill, runs, scale, stress, walk};

#[derive(Parser)]
#[command(about = "Fill, stress and describe mounted volumes")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the manifest of the tree below DIR.
    Manifest {
        /// Root of the tree.
        dir: PathBuf,
    },
    /// Compare the manifests of a volume and of its copy.
    Compare {
        /// Manifest of the source.
        expected: PathBuf,
        /// Manifest of the copy.
        found: PathBuf,
    },
    /// Print the data ranges of FILE with their hashes.
    Runs {
        /// A regular file of any size.
        file: PathBuf,
    },
    /// Fill the empty volume mounted at DIR with all structures of files and directories.
    Fill(fill::Options),
    /// Keep the volume mounted at DIR busy until it is shut down.
    Stress(stress::Options),
    /// Change extended attributes of the files in DIR at random.
    Attributes(attributes::Options),
    /// Create a large plain tree below DIR.
    Bulk(bulk::Options),
    /// Create a tree with extreme numbers of one thing.
    Scale(scale::Options),
    /// Mount a file as a device that fails on request.
    Faulty(faulty::Options),
    /// Damage small volumes, one field at a time.
    #[command(subcommand)]
    Damage(Damage),
}

#[derive(Subcommand)]
enum Damage {
    /// Recreate all damage, and record the verdicts of xfs_repair.
    Record(record::Options),
    /// Run `xebec check` on all recorded damage, and print where it differs from xfs_repair.
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
