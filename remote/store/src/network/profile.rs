//! Profiles of the AWS configuration files, which `object_store` does not read.
//!
//! Static keys, the region and the endpoint of a profile are used, unless the environment has them. A profile whose
//! keys another program must obtain is refused with what to do.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use object_store::aws::AmazonS3ConfigKey as Key;

use super::build::Environment;

/// Settings of a profile that are used.
const SETTINGS: [(&str, Key); 5] = [
    ("aws_access_key_id", Key::AccessKeyId),
    ("aws_secret_access_key", Key::SecretAccessKey),
    ("aws_session_token", Key::Token),
    ("region", Key::Region),
    ("endpoint_url", Key::Endpoint),
];

/// Settings whose keys another program must obtain.
const INDIRECT: [&str; 6] =
    ["sso_session", "sso_start_url", "credential_process", "role_arn", "credential_source", "login_session"];

/// The settings of the profile that `AWS_PROFILE` names, or of `default`.
pub fn settings(environment: &Environment) -> Result<Vec<(Key, String)>, Box<dyn Error + Send + Sync>> {
    let var = |name: &str| environment.get(name).cloned();
    let named = var("AWS_PROFILE").filter(|name| !name.is_empty());
    let profile = named.clone().unwrap_or_else(|| "default".into());
    let file = |variable: &str, name: &str| {
        let path = var(variable).map(PathBuf::from);
        let home = || var("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
        path.or_else(home).and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    };
    let config = file("AWS_CONFIG_FILE", "config");
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let has_keys = var("AWS_ACCESS_KEY_ID").is_some() || var("AWS_WEB_IDENTITY_TOKEN_FILE").is_some();
    let found = select(&profile, &config, &credentials);
    if found.is_empty() && named.is_some() {
        return Err(format!("there is no profile `{profile}` in ~/.aws/config or ~/.aws/credentials").into());
    }
    let indirect = INDIRECT.iter().find(|name| found.contains_key(**name));
    if let Some(indirect) = indirect.filter(|_| !has_keys && !found.contains_key("aws_access_key_id")) {
        return Err(format!(
            "profile `{profile}` gets its keys by {indirect}, which is not supported: run \
             `eval \"$(aws configure export-credentials --profile {profile} --format env)\"` first"
        )
        .into());
    }
    let lone = ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"].into_iter().find(|name| var(name).is_some());
    if let Some(lone) = lone.filter(|_| !has_keys && found.contains_key("aws_access_key_id")) {
        return Err(format!(
            "{lone} is set without AWS_ACCESS_KEY_ID, and does not belong to the keys of profile `{profile}`: \
             set all of them, or unset {lone}"
        )
        .into());
    }
    let is_key = |key: &Key| matches!(key, Key::AccessKeyId | Key::SecretAccessKey | Key::Token);
    // Keys of the environment and of a file must not be mixed.
    let used = SETTINGS.iter().filter(|(_, key)| !(has_keys && is_key(key)));
    Ok(used.filter_map(|(name, key)| Some((*key, found.get(*name)?.clone()))).collect())
}

/// The settings of a profile. `config` has its section as `[profile NAME]`, except for the default one.
fn select(profile: &str, config: &str, credentials: &str) -> BTreeMap<String, String> {
    let titled = format!("profile {profile}");
    let mut found = BTreeMap::new();
    for (text, is_config) in [(config, true), (credentials, false)] {
        let mut inside = false;
        for line in text.lines() {
            let trimmed = line.trim();
            if let Some(title) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
                inside =
                    is_config && title == titled || title == profile && (!is_config || profile == "default");
            } else if inside
                && !trimmed.starts_with(['#', ';'])
                // An indented line belongs to a nested setting.
                && !line.starts_with([' ', '\t'])
                && let Some((name, value)) = trimmed.split_once('=')
            {
                found.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_its_settings_from_both_files() {
        let config = "[default]\nregion = us-east-1\n[profile lab]\nregion=eu-central-1\n\
            # a comment\nendpoint_url = http://127.0.0.1:9000\ns3 =\n  addressing_style = path\n";
        let credentials = "[lab]\naws_access_key_id = AKIA\naws_secret_access_key = a=b\n[other]\nx = y\n";
        let lab = select("lab", config, credentials);
        let value = |name: &str| lab.get(name).map(String::as_str);
        assert_eq!(value("region"), Some("eu-central-1"));
        assert_eq!(value("endpoint_url"), Some("http://127.0.0.1:9000"));
        assert_eq!(value("aws_secret_access_key"), Some("a=b"));
        assert_eq!((value("x"), value("addressing_style")), (None, None));
        assert_eq!(select("default", config, credentials).len(), 1);
        assert!(select("absent", config, credentials).is_empty());
    }

    #[test]
    fn keys_of_the_environment_and_of_a_profile_are_not_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        let keys = "[default]\naws_access_key_id = FILE\naws_secret_access_key = s\nregion = r\n";
        std::fs::write(&file, keys).unwrap();
        let with = |names: &[&str]| {
            let mut environment: Environment =
                names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
            environment.insert("AWS_SHARED_CREDENTIALS_FILE".into(), file.display().to_string());
            settings(&environment).map(|found| found.len()).map_err(|error| error.to_string())
        };
        assert_eq!(with(&[]), Ok(3));
        assert_eq!(with(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]), Ok(1));
        for lone in ["AWS_SESSION_TOKEN", "AWS_SECRET_ACCESS_KEY"] {
            assert!(with(&[lone]).unwrap_err().starts_with(lone));
        }
    }
}
