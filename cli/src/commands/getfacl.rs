//! `xebec getfacl`: shows access control lists.

use std::io::{self, Write};

use anyhow::Context as _;
use clap::Args;
use format::attr::acl::{LINUX_ACCESS, LINUX_DEFAULT, LinuxEntry, tag};
use format::inode::FileType;
use read::{FinalSymlink, Inode, Metadata, Visited};
use serde_json::{Value, json};
use xebec::errno;

use crate::acl::{Acl, letters, tag_name};
use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::json;
use crate::names;
use crate::open::{Files, Image};
use crate::output::Stdout;
use crate::owners::{NamesById, Owners};

/// Arguments of `getfacl`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "For a file without an ACL, the permission bits are shown. Names of users and groups are those in \
    /etc/passwd and /etc/group of the image. `xebec setfacl --set-file` and `--restore` accept the output.\n\n\
    Examples:\n  xebec getfacl disk.xfs /srv/file\n  xebec getfacl -Rn disk.xfs /srv\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error."
)]
pub struct Arguments {
    #[command(flatten)]
    files: Files,
    /// Show the access ACL only.
    #[arg(short, long, conflicts_with = "default")]
    access: bool,
    /// Show the default ACL only.
    #[arg(short, long)]
    default: bool,
    /// Do not show the comment header.
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Show the effective rights of all entries.
    #[arg(short = 'e', long, conflicts_with = "no_effective")]
    all_effective: bool,
    /// Do not show effective rights.
    #[arg(short = 'E', long)]
    no_effective: bool,
    /// Skip files that have only base entries.
    #[arg(short, long)]
    skip_base: bool,
    /// Show directories and their contents recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show numeric user and group IDs.
    #[arg(short, long)]
    numeric: bool,
    /// Do not strip the leading slash of paths.
    #[arg(short = 'p', long)]
    absolute_names: bool,
}

/// A file and its ACLs.
struct File {
    name: Vec<u8>,
    metadata: Metadata,
    access: Acl,
    default: Acl,
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let owners = if self.numeric { Owners::default() } else { image.owners() };
        let mut out = Stdout::buffered();
        let mut files = Vec::new();
        for (name, inode) in image.find_files(&self.files, FinalSymlink::Follow) {
            visit(image, self.recursive, name, inode, &mut |file| {
                if self.skip_base && !file.access.is_extended() && file.default.is_empty() {
                    return Ok(());
                }
                match global.json {
                    true => files.push(file),
                    false => file.show(&mut out, self, &owners)?,
                }
                Ok(())
            })?;
        }
        if global.json {
            let files: Vec<_> = files.iter().map(|file| file.json(self, &owners)).collect();
            return json::write("getfacl", image.messages.image(), json!({ "files": files }));
        }
        Ok(out.flush()?)
    }
}

/// Visits a file and, if `recursive`, everything below it, sorted by name.
fn visit(
    image: &Image,
    recursive: bool,
    name: Vec<u8>,
    inode: Inode,
    act: &mut dyn FnMut(File) -> io::Result<()>,
) -> io::Result<()> {
    let visited = Visited::default();
    let mut remaining = vec![(name, inode, 0)];
    while let Some((name, inode, depth)) = remaining.pop() {
        let file = match File::of(image, name.clone(), &inode) {
            Ok(file) => file,
            Err(error) => {
                image.messages.fail(Failure::at(&name, &error));
                continue;
            }
        };
        let file_type = file.metadata.file_type;
        // Symbolic links have no ACL, and their permissions are not used.
        if file_type != FileType::Symlink {
            act(file)?;
        }
        if recursive && file_type == FileType::Directory {
            match visited.enter(inode.ino(), depth) {
                Ok(()) => {
                    let entries = image.read_dir(&name, &inode, |_| true).into_iter().rev();
                    remaining.extend(entries.map(|(path, inode)| (path, inode, depth + 1)));
                }
                Err(reason) => image.messages.fail(Failure::at(&name, reason)),
            }
        }
    }
    Ok(())
}

impl File {
    fn of(image: &Image, name: Vec<u8>, inode: &Inode) -> anyhow::Result<Self> {
        let dinode = inode.dinode();
        let metadata = Metadata::of(&dinode, image.volume.geometry())?;
        let read_acl = |name: &str| -> anyhow::Result<Option<Acl>> {
            match read::get_xattr(&image.volume, &dinode, name.as_bytes()) {
                Ok(value) => Ok(Some(Acl::of_linux(&value).with_context(|| name.to_owned())?)),
                Err(error) if error.errno() == errno::ENODATA => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        let access = read_acl(LINUX_ACCESS)?.unwrap_or_else(|| Acl::of_mode(metadata.permissions));
        Ok(Self { name, metadata, access, default: read_acl(LINUX_DEFAULT)?.unwrap_or_default() })
    }

    /// The path in the format of getfacl.
    fn path(&self, arguments: &Arguments) -> &[u8] {
        if arguments.absolute_names {
            return &self.name;
        }
        let start = self.name.iter().position(|byte| *byte != b'/').unwrap_or(self.name.len());
        match self.name.get(start..) {
            Some([]) | None => b".",
            Some(relative) => relative,
        }
    }

    fn show(&self, out: &mut impl Write, arguments: &Arguments, owners: &Owners) -> io::Result<()> {
        let Metadata { permissions, uid, gid, .. } = self.metadata;
        if !arguments.omit_header {
            writeln!(out, "# file: {}", names::octal(self.path(arguments)))?;
            writeln!(
                out,
                "# owner: {}\n# group: {}",
                name_or_id(&owners.users, uid),
                name_or_id(&owners.groups, gid)
            )?;
            if permissions & 0o7000 != 0 {
                writeln!(out, "# flags: {}", special_bits(permissions))?;
            }
        }
        for (prefix, acl) in self.selected(arguments) {
            for entry in acl.entries() {
                let subject = subject_name(entry, owners);
                write!(out, "{prefix}{}:{subject}:{}", tag_name(entry.tag), letters(entry.perm))?;
                let effective = acl.effective(entry);
                let masked = acl.perm(tag::MASK).is_some()
                    && matches!(entry.tag, tag::USER | tag::GROUP | tag::GROUP_OBJ);
                let is_shown = effective != entry.perm || (arguments.all_effective && masked);
                if is_shown && !arguments.no_effective {
                    write!(out, "\t#effective:{}", letters(effective))?;
                }
                writeln!(out)?;
            }
        }
        writeln!(out)
    }

    /// The selected ACLs.
    fn selected(&self, arguments: &Arguments) -> impl Iterator<Item = (&'static str, &Acl)> {
        // Shown alone, the default ACL needs no prefix.
        let prefix = if arguments.default { "" } else { "default:" };
        let access = (!arguments.default).then_some(("", &self.access));
        let default = (!arguments.access).then_some((prefix, &self.default));
        access.into_iter().chain(default)
    }

    fn json(&self, arguments: &Arguments, owners: &Owners) -> Value {
        let entries = |acl: &Acl| {
            let entry = |entry: &LinuxEntry| {
                let (id, names) = match entry.tag {
                    tag::USER => (Some(entry.id), Some(&owners.users)),
                    tag::GROUP => (Some(entry.id), Some(&owners.groups)),
                    _ => (None, None),
                };
                let name = id.and_then(|id| names.and_then(|names| names.get(id)));
                json::without_nulls(json!({
                    "for": tag_name(entry.tag),
                    "id": id,
                    "name": name.map(String::from_utf8_lossy),
                    "permissions": letters(entry.perm),
                    "effective": letters(acl.effective(entry)),
                }))
            };
            acl.entries().iter().map(entry).collect::<Vec<_>>()
        };
        let (key, path) = json::name("path", &self.name);
        json::without_nulls(json!({
            (key): path,
            "mode": format!("{:04o}", self.metadata.permissions),
            "uid": self.metadata.uid,
            "gid": self.metadata.gid,
            "access": (!arguments.default).then(|| entries(&self.access)),
            "default": (!arguments.access && !self.default.is_empty()).then(|| entries(&self.default)),
        }))
    }
}

fn name_or_id(names: &NamesById, id: u32) -> String {
    names.get(id).map_or_else(|| id.to_string(), |name| String::from_utf8_lossy(name).into_owned())
}

fn subject_name(entry: &LinuxEntry, owners: &Owners) -> String {
    match entry.tag {
        tag::USER => name_or_id(&owners.users, entry.id),
        tag::GROUP => name_or_id(&owners.groups, entry.id),
        _ => String::new(),
    }
}

/// Set-user-ID, set-group-ID, sticky.
fn special_bits(permissions: u16) -> String {
    let flag = |bit, letter| if permissions & bit != 0 { letter } else { '-' };
    [flag(0o4000, 's'), flag(0o2000, 's'), flag(0o1000, 't')].iter().collect()
}
