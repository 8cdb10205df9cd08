//! Where tables are: files that every process sees under the same path, and buckets with the
//! feature `s3`.

use datafusion::common::Result;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use std::path::Path;
use std::sync::Arc;

/// A runtime of the query engine that knows the stores; what does not fit into memory is spilled to
/// `scratch`.
pub(crate) fn runtime(scratch: Option<&Path>) -> Result<Arc<RuntimeEnv>> {
    let mut builder = RuntimeEnvBuilder::new();
    if let Some(scratch) = scratch {
        builder = builder.with_temp_file_path(scratch);
    }
    #[cfg(feature = "s3")]
    {
        builder = builder.with_object_store_registry(Arc::new(s3::Stores::default()));
    }
    builder.build_arc()
}

#[cfg(feature = "s3")]
mod s3 {
    use datafusion::common::{DataFusionError, Result};
    use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
    use object_store::ObjectStore;
    use object_store::aws::AmazonS3Builder;
    use std::sync::Arc;
    use url::Url;

    /// Creates the store of a bucket when it is first named, from the environment of this process
    /// (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT` and so on). Credentials therefore never travel in a
    /// plan.
    #[derive(Debug, Default)]
    pub(super) struct Stores {
        made: DefaultObjectStoreRegistry,
    }

    impl ObjectStoreRegistry for Stores {
        fn register_store(
            &self,
            url: &Url,
            store: Arc<dyn ObjectStore>,
        ) -> Option<Arc<dyn ObjectStore>> {
            self.made.register_store(url, store)
        }

        fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
            match (self.made.get_store(url), url.scheme(), url.host_str()) {
                (Ok(store), ..) => Ok(store),
                (Err(_), "s3", Some(bucket)) => {
                    let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
                    let store = store.map_err(|e| DataFusionError::ObjectStore(Box::new(e)))?;
                    let store: Arc<dyn ObjectStore> = Arc::new(store);
                    self.made.register_store(url, store.clone());
                    Ok(store)
                }
                (Err(error), ..) => Err(error),
            }
        }
    }
}
