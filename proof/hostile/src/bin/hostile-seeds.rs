//! `hostile-seeds FOLDER`: writes the seed corpus of every fuzz target to FOLDER/TARGET.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: hostile-seeds FOLDER");
        return ExitCode::FAILURE;
    };
    match hostile::seeds::all().write(Path::new(&folder)) {
        Ok(count) => println!("{count} seeds in {}", folder.display()),
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
