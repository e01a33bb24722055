//! URLs of volumes: `s3://bucket/path[@snapshot]`, `gs://`, `az://`, `https://`, `file:///path`.

use std::fmt;
use std::str::FromStr;

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Amazon S3, and stores with the same protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A web server, read-only.
    Https,
    /// The same without TLS.
    Http,
    /// A directory of the host.
    File,
}

const SCHEMES: [(&str, Scheme); 6] = [
    ("s3", Scheme::S3),
    ("gs", Scheme::Gcs),
    ("az", Scheme::Azure),
    ("https", Scheme::Https),
    ("http", Scheme::Http),
    ("file", Scheme::File),
];

impl Scheme {
    /// The name in URLs.
    pub fn name(self) -> &'static str {
        SCHEMES.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }
}

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The kind of the store.
    pub scheme: Scheme,
    /// Bucket, container or server; empty for a directory.
    pub authority: String,
    /// Prefix of the volume's objects, without slashes at the ends; of a directory, its absolute path.
    pub path: String,
    /// The snapshot.
    pub snapshot: Option<String>,
}

/// A text that is not the URL of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationError {
    text: String,
    reason: &'static str,
}

impl LocationError {
    /// What is wrong with it.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, reason } = self;
        write!(
            f,
            "{text}: {reason} (the form is s3://BUCKET/PATH[@SNAPSHOT]; also gs://, az://, https://, file:///)"
        )
    }
}

impl std::error::Error for LocationError {}

impl Location {
    /// Whether a text is a URL of one of these schemes, so that it does not name a file.
    pub fn is_url(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.iter().any(|(name, _)| *name == scheme))
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let refuse = |reason| LocationError { text: Self::shown(text), reason };
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| refuse("it has no scheme, such as s3://"))?;
        let scheme = SCHEMES.iter().find(|(name, _)| *name == scheme).map(|(_, scheme)| *scheme);
        let scheme = scheme.ok_or_else(|| refuse("the schemes are s3, gs, az, https, http and file"))?;
        if rest.contains('?') {
            return Err(refuse(
                "a URL has no options (`?...`): set keys, region and endpoint in the environment",
            ));
        }
        let (rest, snapshot) = match rest.rsplit_once('@') {
            Some((rest, name)) if !name.contains('/') => (rest, Some(name.to_owned())),
            _ => (rest, None),
        };
        if snapshot.as_ref().is_some_and(String::is_empty) {
            return Err(refuse("the name of the snapshot behind @ is missing"));
        }
        let (authority, path) = match scheme {
            Scheme::File if !rest.starts_with('/') => {
                return Err(refuse("a directory is written file:///path, with three slashes"));
            }
            Scheme::File => ("", rest.trim_end_matches('/')),
            _ => rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path.trim_matches('/'))),
        };
        if authority.is_empty() && scheme != Scheme::File {
            return Err(refuse("the bucket is missing"));
        }
        if authority.contains('@') {
            return Err(refuse("a user name or password does not belong in it, but in the environment"));
        }
        if !is_authority(authority) {
            return Err(refuse("the bucket or server is not valid"));
        }
        if path.is_empty() {
            return Err(refuse("the path of the volume is missing"));
        }
        if path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(refuse("its path has . or .. in it"));
        }
        Ok(Self { scheme, authority: authority.into(), path: path.into(), snapshot })
    }

    /// A text that may be a URL, for messages: without what may be a key, which is all before an `@` that may end a
    /// password, and all behind a `?`.
    pub fn shown(text: &str) -> String {
        let text = text.split('?').next().unwrap_or_default();
        let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
        match rest.rsplit_once('@') {
            Some((user, rest)) if user.contains(':') || rest.contains('/') => {
                format!("{scheme}://...@{rest}")
            }
            _ => text.into(),
        }
    }

    /// The volume without a snapshot.
    pub fn volume(&self) -> Self {
        Self { snapshot: None, ..self.clone() }
    }
}

/// A bucket, or `host`, `host:port`, `[address]:port`.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    inner.unwrap_or(host).bytes().all(|byte| is_valid(byte) || inner.is_some() && byte == b':')
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        Self::parse(text)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, authority, path, snapshot } = self;
        let separator = if *scheme == Scheme::File { "" } else { "/" };
        write!(f, "{}://{authority}{separator}{path}", scheme.name())?;
        match snapshot {
            Some(name) => write!(f, "@{name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_written_alike() {
        for url in [
            "s3://bucket/vol",
            "gs://b/a/b@snap",
            "file:///srv/vol",
            "https://host:8080/x@1",
            "http://[::1]:80/v",
        ] {
            assert!(Location::is_url(url));
            assert_eq!(Location::parse(url).unwrap().to_string(), url);
        }
        let location = Location::parse("s3://bucket/a/vol@monday").unwrap();
        assert_eq!((location.authority.as_str(), location.path.as_str()), ("bucket", "a/vol"));
        assert_eq!(location.snapshot.as_deref(), Some("monday"));
        assert_eq!(location.volume().to_string(), "s3://bucket/a/vol");
    }

    #[test]
    fn what_is_no_url_is_refused_with_a_reason() {
        for url in [
            "vol",
            "ftp://host/vol",
            "s3://bucket",
            "s3:///vol",
            "file://dir/vol",
            "s3://b/v@",
            "s3://b/../v",
        ] {
            assert!(Location::parse(url).is_err(), "{url}");
        }
        assert!(!Location::is_url("disk.img") && !Location::is_url("ftp://host/disk"));
        let error = Location::parse("file://dir/vol").unwrap_err().to_string();
        assert!(error.contains("three slashes"), "{error}");
    }

    #[test]
    fn a_password_is_refused_and_not_shown() {
        for url in [
            "https://user:hunter2@host/vol",
            "https://hunter2@host/vol",
            "https://user:hunter2@host/vol@snap",
            "https://user:hunter2@host",
            "https://user:hunter2@vol",
            "https://user:hun@ter2@host/vol",
            "https://user:hunter2/x@host/vol",
            "s3://key:hunter2@bucket/vol",
            "ftp://user:hunter2@host/vol",
            // These were parts of names of objects and servers.
            "https://host/vol?signature=hunter2",
            "s3://bucket?key=hunter2",
            "s3://bucket/vol@snap?key=hunter2",
            "s3://bucket/vol?key=hun@ter2",
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            for text in [error, Location::shown(url)] {
                assert!(!text.contains("hunter2") && !text.contains("ter2"), "{text}");
            }
        }
        // A snapshot is no password.
        for url in ["s3://bucket/vol@snap", "file:///srv/vol@snap", "http://[::1]:80/vol"] {
            assert_eq!(Location::shown(url), url);
        }
    }
}
