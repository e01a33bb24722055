//! Running `git` apart from the user's repositories and configuration.

use std::path::Path;
use std::process::{Command, Stdio};

/// A command `git` in a directory. Variables such as `GIT_DIR` and `GIT_INDEX_FILE`, which a hook inherits, would name
/// another repository, and the user's configuration may have hooks, a monitor of files, or signatures.
pub fn command(folder: &Path, words: &[&str]) -> Command {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            git.env_remove(name);
        }
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    for setting in [
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "commit.gpgsign=false",
        "gc.auto=0",
        "safe.directory=*",
        "user.name=xebec",
        "user.email=xebec@localhost",
    ] {
        git.args(["-c", setting]);
    }
    git.args(words).current_dir(folder).stdin(Stdio::null());
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit of a measurement went into the repository that `GIT_DIR` named. A process cannot change its own
    /// variables, so this test starts itself again.
    #[test]
    fn a_repository_of_the_environment_is_not_used() {
        const AGAIN: &str = "XEBEC_TEST_GIT";
        let Some(()) = needs::met(needs::tools(&["git"])) else { return };
        if let Some(folder) = std::env::var_os(AGAIN) {
            let folder = Path::new(&folder);
            for words in [&["init", "-q", "--template="][..], &["commit", "-q", "--allow-empty", "-m", "x"]] {
                assert!(command(folder, words).status().expect("git").success());
            }
            return;
        }
        let (users, own) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let user_git = users.path().join("git");
        let is_made = command(users.path(), &["init", "-q", "--bare", "git"]).status();
        assert!(is_made.expect("git").success());
        std::fs::write(
            users.path().join("config"),
            "[user]\n\tname = somebody\n[commit]\n\tgpgsign = true\n",
        )
        .expect("a configuration");
        let mut again = needs::own(std::env::current_exe().expect("this program"));
        again.args(["--exact", "git::tests::a_repository_of_the_environment_is_not_used"]);
        again.env(AGAIN, own.path()).env("GIT_DIR", &user_git).env("GIT_WORK_TREE", users.path());
        again.env("GIT_INDEX_FILE", users.path().join("index"));
        again.env("GIT_CONFIG_GLOBAL", users.path().join("config"));
        let output = again.output().expect("this program");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let head = |folder: &Path| {
            let output = command(folder, &["log", "--format=%an", "-1"]).output().expect("git");
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert_eq!(head(own.path()).as_deref(), Some("xebec\n"), "the commit is in its own repository");
        assert_eq!(head(&user_git), None, "the user's repository has none");
        assert!(!users.path().join("index").exists());
    }
}
