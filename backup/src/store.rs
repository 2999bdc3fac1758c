//! The store of a run, whatever its kind.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::backup::inputs::{Inputs, Place, Store as Settings};
use etcd_operator_core::backup::layout::Layout;
use etcd_operator_core::backup::manifest::Verification;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};

use crate::error::{Error, words};

/// The store answers a request, or sends the next bytes of an object, within this time. A part has to arrive in it, too.
const SILENCE: Duration = Duration::from_secs(120);
const CONNECT: Duration = Duration::from_secs(10);
const MAX_RETRIES: usize = 10;

pub struct Store {
    pub objects: Arc<dyn ObjectStore>,
    /// As users know it.
    pub location: String,
    path: String,
}

impl Store {
    pub fn open(inputs: &Inputs) -> Result<Self, Error> {
        let settings = &inputs.store;
        let location = settings.place.location();
        let failed = |error: object_store::Error| {
            let way_out = "check `store`; authorities can be given in store.caFile";
            Error::Configuration(format!("cannot open the store {location}: {}: {way_out}", words(&error)))
        };
        let credentials = credentials(settings)?;
        let retry = RetryConfig {
            max_retries: MAX_RETRIES,
            retry_timeout: Duration::from_secs(settings.retry_seconds),
            ..RetryConfig::default()
        };
        let objects: Arc<dyn ObjectStore> = match &settings.place {
            Place::S3 { bucket, region, endpoint, force_path_style } => {
                let path_style = force_path_style.unwrap_or(endpoint.is_some());
                let mut builder =
                    configured(AmazonS3Builder::from_env(), credentials, AmazonS3Builder::with_config)?
                        .with_bucket_name(bucket)
                        .with_virtual_hosted_style_request(!path_style)
                        .with_client_options(client(settings, endpoint.as_deref())?)
                        .with_retry(retry);
                if let Some(region) = region {
                    builder = builder.with_region(region);
                }
                if let Some(endpoint) = endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                if inputs.verification == Verification::Checksum {
                    builder = builder.with_checksum_algorithm(Checksum::SHA256);
                }
                Arc::new(builder.build().map_err(failed)?)
            }
            Place::Gcs { bucket, endpoint } => {
                let from_env = GoogleCloudStorageBuilder::from_env();
                let mut builder = configured(from_env, credentials, GoogleCloudStorageBuilder::with_config)?
                    .with_bucket_name(bucket)
                    .with_client_options(client(settings, endpoint.as_deref())?)
                    .with_retry(retry);
                if let Some(endpoint) = endpoint {
                    builder = builder.with_base_url(endpoint);
                }
                Arc::new(builder.build().map_err(failed)?)
            }
            Place::Azure { account, container, endpoint } => {
                let from_env = MicrosoftAzureBuilder::from_env();
                let mut builder = configured(from_env, credentials, MicrosoftAzureBuilder::with_config)?
                    .with_account(account)
                    .with_container_name(container)
                    .with_client_options(client(settings, endpoint.as_deref())?)
                    .with_retry(retry);
                if let Some(endpoint) = endpoint {
                    builder = builder.with_endpoint(endpoint.clone());
                }
                Arc::new(builder.build().map_err(failed)?)
            }
            Place::Local { directory } => {
                let local = LocalFileSystem::new_with_prefix(directory).map_err(failed)?;
                Arc::new(local.with_fsync(true))
            }
        };
        Ok(Self { objects, location, path: settings.path.trim_matches('/').to_owned() })
    }

    /// The objects of the cluster that the inputs name.
    pub fn layout(&self, inputs: &Inputs) -> Result<Layout, Error> {
        let missing =
            "clusterId is missing: give the cluster whose copies to use; `etcd-backup clusters` lists them";
        let cluster = inputs.cluster().ok_or_else(|| Error::Configuration(missing.into()))?;
        Ok(Layout::new(&self.path, cluster))
    }

    pub fn root(&self) -> Path {
        Path::from(self.path.as_str())
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}

/// What is not there counts as deleted.
pub async fn delete(objects: &Arc<dyn ObjectStore>, path: &Path) -> object_store::Result<()> {
    match objects.delete(path).await {
        Err(object_store::Error::NotFound { .. }) => Ok(()),
        deleted => deleted,
    }
}

/// Name and content of each file of the directory, if there is one.
fn credentials(settings: &Settings) -> Result<Vec<(String, String)>, Error> {
    let Some(directory) = &settings.credentials_directory else {
        return Ok(Vec::new());
    };
    let wrong =
        |error| Error::Configuration(format!("cannot read store.credentialsDirectory {directory}: {error}"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(wrong)?.flatten() {
        // The kubelet keeps previous contents in directories that begin with dots.
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            let content = std::fs::read_to_string(entry.path()).map_err(wrong)?;
            found.push((name, content.trim_end_matches('\n').to_owned()));
        }
    }
    Ok(found)
}

fn configured<B, K: std::str::FromStr>(
    builder: B,
    credentials: Vec<(String, String)>,
    with: impl Fn(B, K, String) -> B,
) -> Result<B, Error> {
    credentials.into_iter().try_fold(builder, |builder, (name, value)| {
        match name.to_ascii_lowercase().parse() {
            Ok(key) => Ok(with(builder, key, value)),
            Err(_) => Err(Error::Configuration(format!(
                "store.credentialsDirectory has a file {name}, which is no credential of this type of store: \
             name it like the environment variable, such as AWS_ACCESS_KEY_ID"
            ))),
        }
    })
}

fn client(settings: &Settings, endpoint: Option<&str>) -> Result<ClientOptions, Error> {
    // A whole object takes longer than any limit for one request.
    let mut options =
        ClientOptions::new().with_timeout_disabled().with_read_timeout(SILENCE).with_connect_timeout(CONNECT);
    if endpoint.is_some_and(|url| url.starts_with("http://")) {
        // An image without authorities is no obstacle then.
        options = options.with_allow_http(true).with_no_system_certificates(true);
    }
    for certificate in settings.ca_file.as_deref().map_or(Ok(Vec::new()), authorities)? {
        options = options.with_root_certificate(certificate);
    }
    Ok(options)
}

fn authorities(file: &str) -> Result<Vec<Certificate>, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::Configuration(format!("cannot read store.caFile {file}: {error}"))
    };
    let text = std::fs::read(FilePath::new(file)).map_err(|error| wrong(&error))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| wrong(&error))?;
    if found.is_empty() { Err(wrong(&"it has no certificate")) } else { Ok(found) }
}
