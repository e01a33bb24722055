//! Names of users and groups, from `/etc/passwd` and `/etc/group` of the image, not of the host.

use std::str::FromStr;

use anyhow::Context as _;

/// Maximum length of a name.
const NAME_MAX: usize = 32;
/// Maximum size of `passwd` or `group`, in bytes.
pub const BYTES_MAX: u64 = 4 << 20;

/// Names by ID, sorted: for the few of them, a binary search is faster than a hash table.
#[derive(Clone, Debug, Default)]
pub struct NamesById(Vec<(u32, Box<[u8]>)>);

impl NamesById {
    /// Parses `passwd` or `group`: the name is the first field, the ID the third. The first name of an ID is used;
    /// invalid lines, and names that `useradd` would refuse, are ignored.
    pub fn parse(text: &[u8]) -> Self {
        let mut names: Vec<_> = accounts(text).map(|(name, id)| (id, Box::from(name))).collect();
        // A stable sort keeps the first of several names first.
        names.sort_by_key(|(id, _)| *id);
        names.dedup_by_key(|(id, _)| *id);
        Self(names)
    }

    /// Name of an ID.
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        let index = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0.get(index).map(|(_, name)| &**name)
    }

    /// Width of an ID's name, or of the ID.
    pub fn width(&self, id: u32) -> usize {
        self.get(id).map_or_else(|| crate::sizes::digits(id.into()), <[u8]>::len)
    }

    /// Appends the name of an ID, or the ID, padded to `width`: names left-aligned, IDs right-aligned, as in `ls`.
    pub fn push(&self, out: &mut Vec<u8>, id: u32, width: usize) {
        match self.get(id) {
            Some(name) => {
                out.extend_from_slice(name);
                out.resize(out.len() + width.saturating_sub(name.len()), b' ');
            }
            None => crate::sizes::push_number(out, id.into(), width),
        }
    }
}

/// Names and IDs, in the order of the file.
fn accounts(text: &[u8]) -> impl Iterator<Item = (&[u8], u32)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        let id = std::str::from_utf8(id).ok()?.parse().ok()?;
        is_valid_name(name).then_some((name, id))
    })
}

fn is_valid_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-$".contains(byte))
}

/// IDs by name, sorted.
#[derive(Clone, Debug, Default)]
pub struct IdsByName(Vec<(Box<[u8]>, u32)>);

impl IdsByName {
    /// Parses `passwd` or `group`; see [`NamesById::parse`]. The first ID of a name is used.
    pub fn parse(text: &[u8]) -> Self {
        let mut ids: Vec<(Box<[u8]>, u32)> = accounts(text).map(|(name, id)| (name.into(), id)).collect();
        ids.sort_by(|(left, _), (right, _)| left.cmp(right));
        ids.dedup_by(|(later, _), (earlier, _)| later == earlier);
        Self(ids)
    }

    /// Parses a file of a volume; empty if it cannot be read.
    pub fn of(volume: &xebec::Volume, path: &[u8]) -> Self {
        Self::parse(&text_of(volume, path))
    }

    /// ID of a name.
    pub fn get(&self, name: &str) -> Option<u32> {
        let index = self.0.binary_search_by(|(entry, _)| (**entry).cmp(name.as_bytes())).ok()?;
        self.0.get(index).map(|(_, id)| *id)
    }
}

/// Contents of a file of a volume; empty if it cannot be read.
fn text_of(volume: &xebec::Volume, path: &[u8]) -> Vec<u8> {
    let file = xebec::OpenOptions::new().read(true).open(volume, path);
    let Ok(file) = file else { return Vec::new() };
    let mut text = vec![0; file.len().min(BYTES_MAX) as usize];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    text.truncate(length);
    text
}

/// A user or group on the command line, by ID or by a name in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOrId {
    /// By ID.
    Id(u32),
    /// By name.
    Name(String),
}

impl FromStr for NameOrId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) if is_valid_name(text.as_bytes()) && !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Self::Name(text.into()))
            }
            Err(_) => Err(format!("{text:?} is neither a numeric ID nor a name")),
        }
    }
}

impl NameOrId {
    /// Looks up a user ID.
    pub fn user(&self, volume: &xebec::Volume) -> anyhow::Result<u32> {
        self.resolve(volume, "/etc/passwd", "user")
    }

    /// Looks up a group ID.
    pub fn group(&self, volume: &xebec::Volume) -> anyhow::Result<u32> {
        self.resolve(volume, "/etc/group", "group")
    }

    fn resolve(&self, volume: &xebec::Volume, path: &str, kind: &str) -> anyhow::Result<u32> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Name(name) => IdsByName::of(volume, path.as_bytes())
                .get(name)
                .with_context(|| format!("no {kind} \"{name}\" in {path} of the volume (use a numeric ID)")),
        }
    }
}

/// Login group of a user: the fourth field of `/etc/passwd`.
pub fn login_group(volume: &xebec::Volume, uid: u32) -> anyhow::Result<u32> {
    let text = text_of(volume, b"/etc/passwd");
    let mut lines = text.split(|byte| *byte == b'\n');
    let group = lines.find_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split(':').skip(2);
        let id: u32 = fields.next()?.parse().ok()?;
        (id == uid).then(|| fields.next()?.parse().ok()).flatten()
    });
    group.with_context(|| format!("no user {uid} with a login group in /etc/passwd of the volume"))
}

/// Names of users and groups.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// User names.
    pub users: NamesById,
    /// Group names.
    pub groups: NamesById,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_the_first_valid_name_of_an_id_and_the_first_id_of_a_name() {
        let names = NamesById::parse(
            b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0\n\x1b[31m:x:1:\n:x:2:\nhalf\nbig:x:99999999999:\nwww-data:x:33:33",
        );
        assert_eq!(names.get(0), Some(&b"root"[..]));
        assert_eq!(names.get(33), Some(&b"www-data"[..]));
        assert_eq!((names.get(1), names.get(2)), (None, None));
        let mut out = Vec::new();
        names.push(&mut out, 0, 6);
        names.push(&mut out, 7, 3);
        assert_eq!(out, b"root    7");
        assert_eq!((names.width(0), names.width(1000)), (4, 4));
        let ids = IdsByName::parse(b"root:x:0:0::/root:/bin/sh\nwww-data:x:33:33\nroot:x:7:\n:x:2:");
        assert_eq!((ids.get("root"), ids.get("www-data")), (Some(0), Some(33)));
        assert_eq!((ids.get(""), ids.get("joe")), (None, None));
    }
}
