//! URLs of images: `rbd://POOL/[NAMESPACE/]IMAGE[@SNAPSHOT][?OPTION=VALUE&...]`.
//!
//! The options `id`, `name`, `cluster` and `conf` are those of the command `rbd`; all others are options of Ceph, such
//! as `keyring` and `mon_host`. Special characters are written as `%XX`.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::error::RbdError;

/// The start of the URLs.
pub const SCHEME: &str = "rbd://";

/// An image in a cluster, or a snapshot of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RbdUrl {
    /// The pool.
    pub pool: String,
    /// The namespace within the pool; empty for the default one.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// The snapshot.
    pub snapshot: Option<String>,
    /// Options, in the order of the URL.
    pub options: Vec<(String, String)>,
}

impl RbdUrl {
    /// A text that may be a URL, for messages: without its options, which may contain keys.
    pub fn shown(text: &str) -> &str {
        text.split_once('?').map_or(text, |(url, _)| url)
    }

    /// The same image without a snapshot.
    #[must_use]
    pub fn without_snapshot(&self) -> Self {
        Self { snapshot: None, ..self.clone() }
    }
}

impl FromStr for RbdUrl {
    type Err = RbdError;

    fn from_str(url: &str) -> Result<Self, RbdError> {
        parse(url).map_err(|reason| RbdError::Url { url: Self::shown(url).to_owned(), reason })
    }
}

fn parse(url: &str) -> Result<RbdUrl, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("not the URL of an image")?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (path, snapshot) = match path.split_once('@') {
        Some((path, snapshot)) => (path, Some(part("the snapshot", snapshot)?)),
        None => (path, None),
    };
    let parts: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (pool, None, image),
        [pool, namespace, image] => (pool, Some(namespace), image),
        _ => return Err("a pool and an image must be named".to_owned()),
    };
    let options = query.split('&').filter(|option| !option.is_empty()).map(|option| {
        let (name, value) = option.split_once('=').ok_or("an option has no value")?;
        let name = part("the name of an option", name)?;
        let value = decode(value).map_err(|wrong| format!("the value of {name} {wrong}"))?;
        Ok((name, value))
    });
    Ok(RbdUrl {
        pool: part("the pool", pool)?,
        namespace: namespace.map_or(Ok(String::new()), |namespace| part("the namespace", namespace))?,
        image: part("the image", image)?,
        snapshot,
        options: options.collect::<Result<_, String>>()?,
    })
}

/// A part that may not be empty.
fn part(name: &str, text: &str) -> Result<String, String> {
    match decode(text).map_err(|wrong| format!("{name} {wrong}"))? {
        empty if empty.is_empty() => Err(format!("{name} is empty")),
        text => Ok(text),
    }
}

fn decode(text: &str) -> Result<String, &'static str> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| "is not UTF-8")?;
    // C strings end there.
    if text.contains('\0') { Err("contains a NUL character") } else { Ok(text.into_owned()) }
}

/// Without options: they may contain keys.
impl fmt::Display for RbdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, namespace, image, snapshot, .. } = self;
        write!(f, "{SCHEME}{pool}/")?;
        if !namespace.is_empty() {
            write!(f, "{namespace}/")?;
        }
        f.write_str(image)?;
        match snapshot {
            Some(snapshot) => write!(f, "@{snapshot}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> RbdUrl {
        text.parse().unwrap()
    }

    #[test]
    fn the_parts_of_a_url() {
        let found = url("rbd://pool/image");
        assert_eq!(
            (found.pool.as_str(), found.namespace.as_str(), found.image.as_str()),
            ("pool", "", "image")
        );
        assert_eq!((&found.snapshot, found.options.len()), (&None, 0));
        let found =
            url("rbd://a%20pool/space/im%40ge@daily?id=me&conf=/etc/ceph/x.conf&mon_host=[v2:1.2.3.4:3300]");
        assert_eq!((found.pool.as_str(), found.namespace.as_str()), ("a pool", "space"));
        assert_eq!((found.image.as_str(), found.snapshot.as_deref()), ("im@ge", Some("daily")));
        let options: Vec<_> =
            found.options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(options, [("id", "me"), ("conf", "/etc/ceph/x.conf"), ("mon_host", "[v2:1.2.3.4:3300]")]);
    }

    /// A key in a URL must not get into messages.
    #[test]
    fn options_are_not_displayed() {
        let text = url("rbd://pool/space/image@daily?key=secret").to_string();
        assert_eq!(text, "rbd://pool/space/image@daily");
    }

    #[test]
    fn wrong_urls_are_refused_with_the_reason() {
        for (wrong, reason) in [
            ("rbd://image", "a pool and an image must be named"),
            ("rbd://a/b/c/d", "a pool and an image must be named"),
            ("rbd:///image", "the pool is empty"),
            ("rbd://pool/", "the image is empty"),
            ("rbd://pool//image", "the namespace is empty"),
            ("rbd://pool/image@", "the snapshot is empty"),
            ("rbd://pool/image?secret", "rbd://pool/image: an option has no value"),
            ("rbd://pool/image?key=secret%00", "rbd://pool/image: the value of key contains a NUL character"),
            ("rbd://pool/image?key=secret%ff", "rbd://pool/image: the value of key is not UTF-8"),
            ("rbd://image?key=secret", "rbd://image: a pool and an image must be named"),
            ("rbd://pool/image%00", "the image contains a NUL character"),
            ("rbd://pool/%ff", "the image is not UTF-8"),
            ("rbd:pool/image", "not the URL of an image"),
        ] {
            let error = wrong.parse::<RbdUrl>().unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
            assert_eq!(error.errno(), base::errno::EINVAL);
        }
    }
}
