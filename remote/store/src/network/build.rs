//! From a location and the environment to a client of `object_store`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Aws};
use object_store::azure::{AzureConfigKey as Azure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Google};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use super::guard::Guard;
use super::profile;
use crate::location::{Location, Scheme};
use crate::open::StoreOptions;

/// Variables of the environment.
pub type Environment = BTreeMap<String, String>;

/// A client, and how it lists.
pub struct Client {
    pub store: Arc<dyn ObjectStore>,
    /// Whether it lists names in their order.
    pub ordered: bool,
}

/// The client of a location. No request is sent.
pub fn client(
    location: &Location,
    options: &StoreOptions,
    environment: &Environment,
) -> Result<Client, Box<dyn Error + Send + Sync>> {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let bucket = location.authority.as_str();
    // Settings for the client in the environment, such as a proxy, remain.
    let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
    let timeout = milliseconds(options.request_timeout);
    let connect = milliseconds(Duration::from_secs(10).min(options.request_timeout));
    let timeouts = [(ClientConfigKey::Timeout, timeout), (ClientConfigKey::ConnectTimeout, connect)];
    let (store, ordered): (Arc<dyn ObjectStore>, _) = match location.scheme {
        Scheme::S3 => {
            let mut builder = amazon(environment)?;
            for (key, value) in timeouts {
                builder = builder.with_config(Aws::Client(key), value);
            }
            // Express One Zone has no order.
            let ordered = builder.get_config_value(&Aws::S3Express).as_deref() != Some("true");
            let builder = builder.with_retry(retry).with_http_connector(Guard);
            (Arc::new(builder.with_bucket_name(bucket).build()?), ordered)
        }
        Scheme::Gcs => {
            let mut builder = GoogleCloudStorageBuilder::from_env();
            for (key, value) in timeouts {
                builder = builder.with_config(Google::Client(key), value);
            }
            let builder = builder.with_retry(retry).with_http_connector(Guard);
            (Arc::new(builder.with_bucket_name(bucket).build()?), true)
        }
        Scheme::Azure => {
            let mut builder = MicrosoftAzureBuilder::from_env();
            for (key, value) in timeouts {
                builder = builder.with_config(Azure::Client(key), value);
            }
            let builder = builder.with_retry(retry).with_http_connector(Guard);
            (Arc::new(builder.with_container_name(bucket).build()?), true)
        }
        Scheme::Http | Scheme::Https => {
            let mut client = ClientOptions::new().with_allow_http(location.scheme == Scheme::Http);
            for (key, value) in timeouts {
                client = client.with_config(key, value);
            }
            let url = format!("{}://{bucket}", location.scheme.name());
            let builder = HttpBuilder::new().with_url(url).with_retry(retry).with_client_options(client);
            (Arc::new(builder.with_http_connector(Guard).build()?), false)
        }
        Scheme::File => return Err("a directory is no store behind a network".into()),
    };
    Ok(Client { store, ordered })
}

fn amazon(environment: &Environment) -> Result<AmazonS3Builder, Box<dyn Error + Send + Sync>> {
    let mut builder = AmazonS3Builder::new()
        // The reply to a bulk delete has its errors in the body.
        .with_config(Aws::DisableBulkDelete, "true");
    for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("AWS_")) {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    for (key, value) in profile::settings(environment)? {
        if builder.get_config_value(&key).is_none() {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = [Aws::S3Endpoint, Aws::Endpoint].iter().find_map(|key| builder.get_config_value(key));
    let Some(endpoint) = endpoint else { return Ok(builder) };
    let authority = endpoint.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err("the URL of the endpoint has a user name or password in it, which S3 does not use".into());
    }
    match endpoint.starts_with("http://") {
        // Named by the user: a local server, mostly.
        true => Ok(builder.with_config(Aws::Client(ClientConfigKey::AllowHttp), "true")),
        false => Ok(builder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(environment: &[(&str, &str)]) -> Result<AmazonS3Builder, Box<dyn Error + Send + Sync>> {
        let none = [("AWS_CONFIG_FILE", "/nonexistent"), ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")];
        let all = environment.iter().chain(&none);
        amazon(&all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn http_is_allowed_if_the_endpoint_that_is_used_has_it() {
        let allowed = |environment: &[_]| {
            let builder = builder(environment).unwrap();
            builder.get_config_value(&Aws::Client(ClientConfigKey::AllowHttp)).as_deref() == Some("true")
        };
        let (http, https) = ("http://127.0.0.1:9000", "https://host");
        assert!(!allowed(&[]) && allowed(&[("AWS_ENDPOINT_URL", http)]));
        assert!(allowed(&[("AWS_ENDPOINT_URL_S3", http)]));
        assert!(allowed(&[("AWS_ENDPOINT_URL_S3", http), ("AWS_ENDPOINT_URL", https)]));
        assert!(!allowed(&[("AWS_ENDPOINT_URL_S3", https), ("AWS_ENDPOINT_URL", http)]));
        assert!(allowed(&[("AWS_ALLOW_HTTP", "true")]));
    }

    #[test]
    fn a_proxy_of_the_environment_remains() {
        let builder = builder(&[("AWS_PROXY_URL", "http://proxy:3128")]).unwrap();
        let proxy = builder.get_config_value(&Aws::Client(ClientConfigKey::ProxyUrl));
        assert_eq!(proxy.as_deref(), Some("http://proxy:3128"));
    }

    #[test]
    fn a_password_in_the_endpoint_is_refused_and_not_shown() {
        let error = builder(&[("AWS_ENDPOINT_URL", "http://me:hunter2@host/")]).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
