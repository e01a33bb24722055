//! `xebec getfattr`: shows extended attributes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;
use read::{FinalSymlink, Inode};
use serde_json::json;

use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::json;
use crate::names;
use crate::open::{Files, Image};
use crate::output::Stdout;
use crate::values;

/// Arguments of `getfattr`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "By default, names of all namespaces are listed. Values that are not text are shown in base64, \
    prefixed with 0s.\n\n\
    Examples:\n  xebec getfattr disk.xfs -d /srv/file\n  xebec getfattr disk.xfs -n user.origin /srv/file\n  \
    xebec getfattr disk.xfs --only-values -n security.selinux /etc/passwd\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error."
)]
pub struct Arguments {
    /// Show the value of this attribute.
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<OsString>,
    /// Show values of all attributes.
    #[arg(short, long)]
    dump: bool,
    /// Show raw values only.
    #[arg(long)]
    only_values: bool,
    /// Show attributes of symbolic links instead of their targets.
    #[arg(long)]
    no_dereference: bool,
    #[command(flatten)]
    files: Files,
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let (mut out, mut files) = (Stdout::raw(), Vec::new());
        let last = if self.no_dereference { FinalSymlink::Keep } else { FinalSymlink::Follow };
        for (name, inode) in image.find_files(&self.files, last) {
            let (attributes, errors) = read_all(image, &inode, self);
            for error in errors {
                image.messages.fail(Failure::at(&name, error));
            }
            match global.json {
                true => {
                    let (key, path) = json::name("path", &name);
                    files.push(json!({ (key): path, "xattrs": json_attributes(&attributes) }));
                }
                false => show(&mut out, &name, &attributes, self)?,
            }
        }
        if global.json {
            json::write("getfattr", image.messages.image(), json!({ "files": files }))?;
        }
        Ok(out.flush()?)
    }
}

/// Attributes in the JSON of `stat` and `getfattr`: names to values in hexadecimal.
pub fn json_attributes(attributes: &[(Vec<u8>, Vec<u8>)]) -> BTreeMap<String, String> {
    let key = |name: &[u8]| {
        let text = std::str::from_utf8(name).map(str::to_owned);
        text.unwrap_or_else(|_| format!("hex:{}", names::hex(name)))
    };
    attributes.iter().map(|(name, value)| (key(name), names::hex(value))).collect()
}

/// Names and values.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

fn read_all(image: &Image, inode: &Inode, arguments: &Arguments) -> (Attributes, Vec<read::Error>) {
    if let Some(name) = &arguments.name {
        return match read::get_xattr(&image.volume, &inode.dinode(), name.as_bytes()) {
            Ok(value) => (vec![(name.as_bytes().to_vec(), value)], Vec::new()),
            Err(error) => (Vec::new(), vec![error]),
        };
    }
    let mut errors = Vec::new();
    let mut attributes = read::read_xattrs(&image.volume, &inode.dinode(), |error| errors.push(error));
    attributes.sort();
    (attributes, errors)
}

fn show(out: &mut Stdout, file: &[u8], attributes: &Attributes, arguments: &Arguments) -> io::Result<()> {
    if arguments.only_values {
        return attributes.iter().try_for_each(|(_, value)| out.write_all(value));
    }
    if attributes.is_empty() {
        return Ok(());
    }
    writeln!(out, "# file: {}", names::printable(file))?;
    for (name, value) in attributes {
        let name = names::printable(name);
        if arguments.dump || arguments.name.is_some() {
            writeln!(out, "{name}={}", values::encode(value))?;
        } else {
            writeln!(out, "{name}")?;
        }
    }
    writeln!(out)
}
