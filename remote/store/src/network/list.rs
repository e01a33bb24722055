//! One page of a list, from names as the server sends them.
//!
//! # Invariants
//! - A page has valid names behind `after` only, in their order. If there may be more, it is full: a caller who asks
//!   for what is behind the last name comes to an end.
//! - A server that should list in order and does not, or repeats names, is an error: names would be missed.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{Error, ObjectMeta, Result};

use super::modified;
use crate::contract::{LIST_PAGE, ListPage, Listed, is_valid_key};

/// A page that is read.
pub struct Page {
    ordered: bool,
    /// Prefix of the store's names.
    store: String,
    /// Prefix of the names that are listed.
    prefix: String,
    after: Option<String>,
    found: BTreeMap<String, Listed>,
}

impl Page {
    /// A page without names.
    pub fn new(ordered: bool, store: String, prefix: String, after: Option<&str>) -> Self {
        Self { ordered, store, prefix, after: after.map(str::to_owned), found: BTreeMap::new() }
    }

    /// Reads names until the page is full; without order, all of them.
    pub async fn read(mut self, mut names: BoxStream<'static, Result<ObjectMeta>>) -> Result<ListPage> {
        let mut last = None;
        while let Some(meta) = names.next().await {
            let meta = meta?;
            let name = Some(meta.location.as_ref().to_owned());
            if self.ordered && name <= last {
                let source = "the server lists names out of order".into();
                return Err(Error::Generic { store: "list", source });
            }
            last = name;
            self.add(&meta);
            if self.found.len() <= LIST_PAGE {
                continue;
            }
            if self.ordered {
                break;
            }
            // One more than a page is kept, so that it is known that there is more.
            if self.found.len() > LIST_PAGE + 1 {
                self.found.pop_last();
            }
        }
        let more = self.found.len() > LIST_PAGE;
        Ok(ListPage { objects: self.found.into_values().take(LIST_PAGE).collect(), more })
    }

    fn add(&mut self, meta: &ObjectMeta) {
        let name = meta.location.as_ref();
        let key =
            name.strip_prefix(&self.store).filter(|key| name.starts_with(&self.prefix) && is_valid_key(key));
        if let Some(key) = key
            && self.after.as_deref().is_none_or(|after| key > after)
        {
            let listed = Listed { key: key.to_owned(), size: meta.size, modified: modified(meta) };
            self.found.insert(key.to_owned(), listed);
        }
    }
}
