//! Names of objects.

/// The only object that is replaced.
pub const HEAD: &str = "head";

/// A segment of the log, or a fence in its place. Names sort as numbers do.
pub fn segment(epoch: u64, seq: u64) -> String {
    format!("log/{epoch:016x}/{seq:016x}")
}

/// An object with pages of the map and their directory.
pub fn map(epoch: u64, number: u64) -> String {
    format!("map/{epoch:016x}/{number:016x}")
}

/// An object that shows whether the store keeps conditions.
pub fn probe(nonce: u128) -> String {
    format!("probe/{nonce:032x}")
}

/// Whether this is the name of such an object.
pub fn is_probe(key: &str) -> bool {
    let nonce = key.strip_prefix("probe/").and_then(|nonce| u128::from_str_radix(nonce, 16).ok());
    nonce.is_some_and(|nonce| probe(nonce) == key)
}

/// The kind and the numbers of a name.
pub fn parse(key: &str) -> Option<(Kind, u64, u64)> {
    let mut parts = key.split('/');
    let kind = match parts.next()? {
        "log" => Kind::Segment,
        "map" => Kind::Map,
        _ => return None,
    };
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let (epoch, number) = (number()?, number()?);
    (name(kind, epoch, number) == key).then_some((kind, epoch, number))
}

/// A kind of numbered objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A segment of the log.
    Segment,
    /// Pages of the map.
    Map,
}

/// What the names of all objects of an epoch begin with.
pub fn folder(kind: Kind, epoch: u64) -> String {
    let kind = if kind == Kind::Segment { "log" } else { "map" };
    format!("{kind}/{epoch:016x}/")
}

/// The name of a numbered object.
pub fn name(kind: Kind, epoch: u64, number: u64) -> String {
    match kind {
        Kind::Segment => segment(epoch, number),
        Kind::Map => map(epoch, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_nothing_else_is() {
        for (kind, epoch, number) in [(Kind::Segment, 0, 7), (Kind::Map, u64::MAX, 1)] {
            assert_eq!(parse(&name(kind, epoch, number)), Some((kind, epoch, number)));
        }
        for key in ["head", "log/1/2", "log/0000000000000001", "map/0000000000000001/000000000000000g"] {
            assert_eq!(parse(key), None);
        }
    }
}
