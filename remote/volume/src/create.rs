//! New volumes.

use std::sync::Arc;

use store::{Bytes, ErrorKind, Store};

use crate::claim::begin_new;
use crate::client::Client;
use crate::error::{ObjectError, Result};
use crate::head::{Checkpoint, Head, SIZE_MAX};
use crate::map::Map;
use crate::names;
use crate::options::ObjectOptions;
use crate::publish::read_head;
use crate::state::Core;

/// Begins a volume. It exists when it is closed or a checkpoint is made: until then nobody finds it.
pub fn create(store: Arc<dyn Store>, size: u64, sector: u32, options: ObjectOptions) -> Result<Core> {
    let client = Client::new(Arc::clone(&store), options.timeout);
    if !matches!(sector, 512 | 4096) || size == 0 || size > SIZE_MAX {
        let reason = format!("a volume cannot have {size} bytes in sectors of {sector}").into();
        return Err(ObjectError::Refused { volume: client.name(), reason });
    }
    probe(&client, &options)?;
    if read_head(&client)?.is_some() {
        return Err(ObjectError::Exists { volume: client.name() });
    }
    let head = new_head(size, sector, &options);
    begin_new(store, head, |_| Ok(Map::default()), options)
}

/// The head of an empty volume that is open.
pub fn new_head(size: u64, sector: u32, options: &ObjectOptions) -> Head {
    // What an attempt to make the same volume has left has another epoch.
    let epoch = 1 + u64::from(options.random.next_u32());
    Head {
        uuid: options.nonce().to_le_bytes(),
        size,
        sector,
        epoch,
        nonce: options.nonce(),
        change: 0,
        writer: Some(options.writer.clone()),
        checkpoint: Checkpoint { epoch, seq: 0, root: None },
        snapshots: Vec::new(),
        pins: Vec::new(),
        parents: Vec::new(),
        retired: Vec::new(),
    }
}

/// Finds out whether the store keeps conditions, by an object of its own.
pub fn probe(client: &Client, options: &ObjectOptions) -> Result<()> {
    if client.store.is_read_only() {
        let reason = "this kind of store can only be read".into();
        return Err(ObjectError::Refused { volume: client.name(), reason });
    }
    let key = names::probe(options.nonce());
    let [first, second] = [&b"first"[..], b"second"].map(Bytes::from_static);
    client.put_own(&key, &first)?;
    let version = client.get(&key, 64)?.version;
    // Each must be refused, however often it is tried. What it leaves shows whether it was.
    let _ = client.put_if_absent(&key, second.clone());
    let other = store::Version { etag: Some("\"0\"".into()), generation: Some("0".into()) };
    let _ = client.put_if_match(&key, second.clone(), &other);
    let unchanged = client.get(&key, 64)?;
    let replaced = client.put_if_match(&key, second.clone(), &version);
    let kept = unchanged.bytes == first && client.get(&key, 64)?.bytes == second;
    // A reply that is not clear is no proof of anything.
    let is_unclear = replaced.is_err_and(|error| error.kind == ErrorKind::Unclear);
    client.delete(&key)?;
    match kept || is_unclear && unchanged.bytes == first {
        true => Ok(()),
        false => Err(ObjectError::NoConditions { volume: client.name() }),
    }
}
