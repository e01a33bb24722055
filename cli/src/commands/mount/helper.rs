//! Called by mount(8) as `mount.xebec` (`-t xebec`) or `mount.fuse.xebec` (`-t fuse.xebec`), or from `/etc/fstab`:
//! `SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`. Exit codes are mount(8)'s.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser as _;
use fuse::mount::MountConfig;
use rustix::fs::StatVfsMountFlags;

use crate::args::Cli;
use crate::output;
use fuse::options::{self, MountOptions};

/// Names of the helper program.
const NAMES: [&str; 2] = ["mount.xebec", "mount.fuse.xebec"];

/// Exit codes for a usage error and a failed mount.
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// Translates the arguments of mount(8); `None` if this is not the helper.
pub fn translate(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?;
    NAMES.iter().any(|known| name == *known).then(|| translated(program, rest))
}

fn translated(program: &OsStr, rest: &[OsString]) -> Vec<OsString> {
    let mut translated = vec![program.to_owned(), "mount".into()];
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // Namespace and type are those of this process already.
            Some("-N" | "-t") => drop(rest.next()),
            Some("-o") => translated.extend(["-o".into(), rest.next().cloned().unwrap_or_default()]),
            // Sloppy, fake, no mtab, verbose: ignored.
            Some(flags)
                if flags.len() > 1
                    && flags.strip_prefix('-').is_some_and(|f| f.chars().all(|c| "sfnv".contains(c))) => {}
            _ => translated.push(argument.clone()),
        }
    }
    translated
}

/// Options of a remount that the kernel handles; `None` if it is not a remount. Options of the server cannot be
/// changed.
fn remounted(arguments: &[OsString]) -> Option<MountConfig> {
    let [_, _, _image, directory, rest @ ..] = arguments else { return None };
    let given: Vec<_> =
        rest.iter().filter_map(|options| options.to_str()).flat_map(|options| options.split(',')).collect();
    let valid: Vec<_> = given.iter().filter(|option| options::validate(option).is_ok()).collect();
    let mut config = MountConfig { directory: directory.into(), ..MountOptions::new(&valid).ok()?.mount };
    // Restrictions may be implied (`idmap` implies nosuid): only their own option lifts them.
    let now = rustix::fs::statvfs(&config.directory).map(|mount| mount.f_flag);
    let has = |flag| now.is_ok_and(|flags| flags.contains(flag));
    config.no_suid |= has(StatVfsMountFlags::NOSUID) && !given.contains(&"suid");
    config.no_dev |= has(StatVfsMountFlags::NODEV) && !given.contains(&"dev");
    given.contains(&"remount").then_some(config)
}

/// Mounts or remounts.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    if let Some(config) = remounted(&arguments) {
        let result = fuse::mount::remount(&config).map(|()| 0);
        return exit(result.map_err(|error| anyhow!("{}: {error}", config.directory.display())), None);
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Standard error may be closed.
            let _ = error.print();
            return ExitCode::from(USAGE);
        }
    };
    let Cli { command, global } = cli;
    exit((command.run)(&global), command.image.as_deref())
}

fn exit(result: anyhow::Result<u8>, image: Option<&Path>) -> ExitCode {
    let mounted = matches!(result, Ok(0));
    output::exit(result, image);
    if mounted { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn translates_the_arguments_of_mount() {
        let arguments = words("/sbin/mount.xebec /srv/a.xfs /mnt -sv -o rw,nosuid -t fuse.xebec");
        let translated = translate(&arguments).unwrap_or_default();
        assert_eq!(translated[1..], words("mount /srv/a.xfs /mnt -o rw,nosuid"));
        assert!(Cli::try_parse_from(&translated).is_ok());
        assert!(translate(&words("/usr/bin/xebec mount a b")).is_none());
        assert_eq!(remounted(&translated), None);
    }

    #[test]
    fn parses_the_options_of_a_remount() {
        let arguments = words(
            "/sbin/mount.fuse.xebec a.xfs /mnt -o rw,suid,noexec,relatime,user_id=0,allow_other,remount,ro",
        );
        let config = translate(&arguments).and_then(|translated| remounted(&translated)).unwrap_or_default();
        assert!(config.read_only && config.no_exec && !config.no_suid, "{config:?}");
        assert_eq!(config.directory, Path::new("/mnt"));
    }
}
