//! One file per command, its arguments in it.

pub mod cat;
pub mod check;
pub mod dump;
pub mod edit;
pub mod extract;
pub mod filefrag;
pub mod find;
pub mod generate;
pub mod getfattr;
pub mod info;
pub mod log;
pub mod ls;
pub mod manifest;
pub mod mkfs;
pub mod stat;
pub mod tree;

use crate::args::{Cli, Command};

/// Runs the command; returns its exit code.
pub fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { command, global } = cli;
    match command {
        Command::Info(arguments) => info::run(&arguments, &global),
        Command::Ls(arguments) => ls::run(&arguments, &global),
        Command::Tree(arguments) => tree::run(&arguments, &global),
        Command::Stat(arguments) => stat::run(&arguments, &global),
        Command::Cat(arguments) => cat::run(&arguments, &global),
        Command::Find(arguments) => find::run(&arguments, &global),
        Command::Extract(arguments) => extract::run(&arguments, &global),
        Command::Check(arguments) => check::run(&arguments, &global),
        Command::Log(arguments) => log::run(&arguments, &global),
        Command::Dump(arguments) => dump::run(&arguments, &global),
        Command::Filefrag(arguments) => filefrag::run(&arguments, &global),
        Command::Getfattr(arguments) => getfattr::run(&arguments, &global),
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
        Command::Cp(on) => edit::run(&on, &global),
        Command::Truncate(on) => edit::run(&on, &global),
        Command::Fallocate(on) => edit::run(&on, &global),
        Command::Reflink(on) => edit::run(&on, &global),
        Command::Setfattr(on) => edit::run(&on, &global),
        Command::Mknod(on) => edit::run(&on, &global),
        Command::Sh(arguments) => edit::shell::run(&arguments, &global),
        Command::Replay(arguments) => edit::replay::run(&arguments, &global),
        Command::Mkfs(arguments) => mkfs::run(&arguments, &global),
        Command::Completions(arguments) => generate::completions(&arguments),
        Command::Man(arguments) => generate::man(&arguments),
    }
}
