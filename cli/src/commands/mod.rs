//! One file per command, its arguments in it.

pub mod cat;
pub mod check;
pub mod create;
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
pub mod mkfs;
pub mod mount;
pub mod stat;
pub mod tree;

use std::path::PathBuf;

use clap::Args;

use crate::args::{Cli, Command, Global};
use crate::open::{self, Image};

/// An image, and what to do with it.
#[derive(Clone, Debug, Args)]
pub struct On<T: Args> {
    /// The image.
    pub image: PathBuf,
    /// What to do.
    #[command(flatten)]
    pub what: T,
}

/// A command that shows files: of an image, or in a session that changes it.
pub trait Show {
    /// Writes it to standard output. What cannot be shown is counted by the image's messages, and the rest is shown all
    /// the same.
    ///
    /// # Errors
    /// Those of standard output.
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()>;
}

/// Runs one of them on an image.
fn show<T: Show + Args>(on: &On<T>, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&on.image, global)?;
    on.what.show(&image, global)?;
    Ok(image.messages.finish())
}

/// Runs the command; returns its exit code.
pub fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { command, global } = cli;
    match command {
        Command::Info(arguments) => info::run(&arguments, &global),
        Command::Ls(on) => show(&on, &global),
        Command::Tree(arguments) => tree::run(&arguments, &global),
        Command::Stat(on) => show(&on, &global),
        Command::Cat(on) => show(&on, &global),
        Command::Find(arguments) => find::run(&arguments, &global),
        Command::Extract(arguments) => extract::run(&arguments, &global),
        Command::Check(arguments) => check::run(&arguments, &global),
        Command::Log(arguments) => log::run(&arguments, &global),
        Command::Dump(arguments) => dump::run(&arguments, &global),
        Command::Filefrag(on) => show(&on, &global),
        Command::Getfacl(on) => show(&on, &global),
        Command::Getfattr(on) => show(&on, &global),
        Command::Lsattr(on) => show(&on, &global),
        Command::Manifest(arguments) => manifest::run(&arguments, &global),
        Command::Mkdir(on) => edit::run(&on, &global),
        Command::Touch(on) => edit::run(&on, &global),
        Command::Ln(on) => edit::run(&on, &global),
        Command::Mv(on) => edit::run(&on, &global),
        Command::Rm(on) => edit::run(&on, &global),
        Command::Rmdir(on) => edit::run(&on, &global),
        Command::Chmod(on) => edit::run(&on, &global),
        Command::Chown(on) => edit::run(&on, &global),
        Command::Write(on) => edit::run(&on, &global),
        Command::Cp(arguments) => edit::copy::run(&arguments, &global),
        Command::TarIn(on) => edit::run(&on, &global),
        Command::TarOut(arguments) => extract::run(&arguments.into(), &global),
        Command::Truncate(on) => edit::run(&on, &global),
        Command::Fallocate(on) => edit::run(&on, &global),
        Command::Reflink(on) => edit::run(&on, &global),
        Command::Setfacl(on) => edit::run(&*on, &global),
        Command::Setfattr(on) => edit::run(&on, &global),
        Command::Chattr(on) => edit::run(&on, &global),
        Command::Project(on) => edit::run(&on, &global),
        Command::Extsize(on) => edit::run(&on, &global),
        Command::Cowextsize(on) => edit::run(&on, &global),
        Command::Mknod(on) => edit::run(&on, &global),
        Command::Sh(arguments) => edit::shell::run(&arguments, &global),
        Command::Replay(arguments) => edit::replay::run(&arguments, &global),
        Command::Mount(arguments) => mount::run(&arguments, &global),
        Command::Umount(arguments) => mount::umount::run(&arguments),
        Command::Status(arguments) => mount::status::run(&arguments, &global),
        Command::Grow(arguments) => life::size::grow(&arguments, &global),
        Command::Shrink(arguments) => life::size::shrink(&arguments, &global),
        Command::Minimize(arguments) => life::size::minimize(&arguments, &global),
        Command::Trim(arguments) => life::trim::run(&arguments, &global),
        Command::Label(arguments) => life::identity::label(&arguments, &global),
        Command::Uuid(arguments) => life::identity::uuid(&arguments, &global),
        Command::Features(arguments) => life::identity::features(&arguments, &global),
        Command::Clone(arguments) => life::clone::run(&arguments, &global),
        Command::Sync(arguments) => life::sync::run(&arguments, &global),
        Command::Create(arguments) => create::run(&arguments, &global),
        Command::Mkfs(arguments) => mkfs::run(&arguments, &global),
        Command::Completions(arguments) => generate::completions(&arguments),
        Command::Man(arguments) => generate::man(&arguments),
    }
}
