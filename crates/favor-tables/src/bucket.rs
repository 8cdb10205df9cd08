//! Globs and folders in object stores, as the files that they stand for.

use crate::source::{format_of, is_address};
use crate::{Error, Result};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::object_store::ObjectStore;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

/// Paths with those addresses replaced that are globs or folders.
pub(crate) async fn expand(session: &SessionContext, paths: &[String]) -> Result<Vec<String>> {
    let mut out = vec![];
    for path in paths {
        if is_address(path) && (path.contains(['*', '?', '[']) || path.ends_with('/')) {
            out.extend(list(session, path).await?);
        } else {
            out.push(path.clone());
        }
    }
    Ok(out)
}

async fn list(session: &SessionContext, address: &str) -> Result<Vec<String>> {
    let bad = |reason: String| Error::source(address, reason);
    // The folder above the first part with a sign of a glob is listed, and the rest compared.
    let end = address.find(['*', '?', '[']).unwrap_or(address.len());
    let folder = &address[..address[..end].rfind('/').map_or(0, |slash| slash + 1)];
    let pattern = if address.ends_with('/') {
        format!("{}**/*", glob::Pattern::escape(address))
    } else {
        format!("{}{}", glob::Pattern::escape(folder), &address[folder.len()..])
    };
    let pattern = glob::Pattern::new(&pattern).map_err(|e| bad(e.to_string()))?;
    let url = ListingTableUrl::parse(folder).map_err(|e| bad(Error::from(e).to_string()))?;
    let store = session.runtime_env().object_store(&url);
    let store = store.map_err(|e| bad(Error::from(e).to_string()))?;
    let found: Vec<_> =
        store.list(Some(url.prefix())).try_collect().await.map_err(|e| bad(e.to_string()))?;
    let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
    let root = url.object_store();
    let mut files: Vec<String> = found
        .into_iter()
        .filter(|object| object.size > 0)
        .map(|object| format!("{}{}", root.as_str(), object.location))
        .filter(|file| pattern.matches_with(file, options) && format_of(file).is_some())
        .collect();
    files.sort();
    if files.is_empty() { Err(bad("no file matches".into())) } else { Ok(files) }
}
