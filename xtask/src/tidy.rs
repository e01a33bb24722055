//! The repository rules, for every file that git tracks or would track.
//!
//! | module | rules |
//! |---|---|
//! | [`text`] | lines: width, tabs, trailing space, words that must not be committed |
//! | [`length`] | length of files and functions |
//! | [`calls`] | calls that are banned, everywhere or in some crates |
//! | [`crates`] | manifests: the layering, arguments for dependencies, `forbid(unsafe_code)` |
//! | [`dead`] | Rust files that no crate compiles |
//! | [`links`] | broken links in Markdown |
//! | [`figures`] | figures in documents that are not those of the kept runs |
//! | [`patches`] | patches that do not apply |
//! | [`mod@wrap`] | breaks comments and text that are too wide |
//! | [`tree`], [`rust`] | input of the rules: files, and parsed Rust files |
//! | [`words`] | words that are not used, and their replacements |
//! | [`exceptions`] | the files that may break a rule, each with its reason |
//!
//! A rule is a function that reads the tree and adds complaints, and one line in [`RULES`]. Exceptions from a rule are
//! in [`exceptions`], each with its reason; an exception that is no longer needed is a complaint.

mod calls;
mod crates;
mod dead;
mod exceptions;
mod figures;
mod length;
mod links;
mod patches;
mod rust;
mod text;
mod tree;
mod words;
mod wrap;

use std::path::Path;

use anyhow::Context as _;
use tree::Tree;

type Rule = fn(&Tree, &mut Complaints);

/// All rules, in the order of their output.
const RULES: &[(&str, Rule)] = &[
    ("line-width", text::line_width),
    ("whitespace", text::whitespace),
    ("words", text::words),
    ("vocabulary", words::vocabulary),
    ("file-length", length::files),
    ("function-length", length::functions),
    ("calls", calls::banned),
    ("parses", calls::parses),
    ("layering", crates::layering),
    ("offline-tools", crates::offline_tools),
    ("dependency-reason", crates::reasons),
    ("unsafe", crates::forbid_unsafe),
    ("members", crates::members),
    ("dead-file", dead::files),
    ("link", links::resolve),
    ("patch", patches::apply),
    ("figures", figures::are_those_of_runs),
];

/// Findings of the rules, as lines `path:line: [rule] message`.
#[derive(Default)]
pub struct Complaints {
    rule: &'static str,
    lines: Vec<String>,
}

impl Complaints {
    fn add(&mut self, path: &str, line: usize, message: impl std::fmt::Display) {
        self.lines.push(format!("{path}:{line}: [{}] {message}", self.rule));
    }
}

/// Applies every rule to the checkout at `root`.
pub fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(check(&Tree::of_checkout(root)?))
}

/// Breaks comments and text of the checkout at `root` that are too wide, and prints the names of changed files.
pub fn wrap(root: &Path) -> anyhow::Result<()> {
    for file in Tree::of_checkout(root)?.files().filter(|file| file.ours()) {
        let markdown = file.has_extension("md");
        if !markdown && !file.has_extension("rs") {
            continue;
        }
        if let Some(text) = wrap::wrap(&file.text, markdown) {
            std::fs::write(root.join(&file.path), text)?;
            println!("{}", file.path);
        }
    }
    Ok(())
}

/// Writes the figures of kept runs into the documents of the checkout at `root`, and prints the names of changed files.
pub fn write_figures(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::of_checkout(root)?;
    let runs = figures::runs(&tree)?;
    for file in tree.files().filter(|file| file.has_extension("md")) {
        let text = report::figures::fill(&file.text, &runs).with_context(|| file.path.clone())?;
        if text != file.text {
            std::fs::write(root.join(&file.path), text)?;
            println!("{}", file.path);
        }
    }
    Ok(())
}

fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Complaints::default();
    for (name, rule) in RULES {
        complaints.rule = name;
        rule(tree, &mut complaints);
    }
    complaints.lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without git there is no list of files, and the test is skipped.
    #[test]
    fn repository_is_tidy() {
        let root = crate::root();
        if !root.join(".git").exists() {
            return needs::skip(&format!("{} is not a git checkout: run git clone", root.display()));
        }
        let Some(()) = needs::met(needs::tools(&["git"])) else { return };
        let complaints = run(root).expect("the checkout can be listed");
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    /// Each rule reports a file that breaks it.
    #[test]
    fn each_rule_fires() {
        let manifest =
            "[package]\nname = \"xebec-base\"\n\n[dependencies]\njournal.workspace = true\nserde = \"1\"\n";
        let root = "[workspace]\nmembers = [\n    \"base\",\n    \"journal\",\n    \"gone\",\n    \"tools/check\",\n]\n\
            [workspace.dependencies]\njournal = { package = \"xebec-journal\", path = \"journal\" }\n";
        let checker = "[package]\nname = \"xebec-check\"\n\n[dependencies]\njournal.workspace = true\n";
        let long_function = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(80));
        let tree = Tree::of_files([
            ("Cargo.toml", root.to_string()),
            ("base/Cargo.toml", manifest.to_string()),
            (
                "base/src/lib.rs",
                format!("//! A {}.\nfn f() {{ x.{}() }}\n{long_function}", concat!("look", "out"), "unwrap"),
            ),
            ("base/src/dead.rs", "fn f( {\n".to_string()),
            ("base/src/long.rs", "// line\n".repeat(700)),
            ("journal/Cargo.toml", "[package]\nname = \"xebec-journal\"\n".to_string()),
            ("journal/src/lib.rs", format!("//! Log. {}\n{} \n", concat!("FIX", "ME"), "x".repeat(130))),
            ("tools/check/Cargo.toml", checker.to_string()),
            ("README.md", "[gone](docs/gone.md)\n".to_string()),
            ("figures.md", format!("{}s: gone -->\nold\n<!-- end -->\n", "<!-- figure")),
            (
                "defect.patch",
                "--- a/README.md\n+++ b/README.md\n@@ -1,1 +1,1 @@\n-[went](x)\n+y\n".to_string(),
            ),
        ]);
        let complaints = check(&tree);
        for (rule, _) in RULES {
            let tag = format!("[{rule}]");
            assert!(
                complaints.iter().any(|line| line.contains(&tag)),
                "{rule} reported nothing: {complaints:#?}"
            );
        }
    }

    /// No rule reports the same tree without the faults.
    #[test]
    fn no_rule_fires_on_a_clean_tree() {
        let root = "[workspace]\nmembers = [\n    \"base\", # a\n    \"journal\", # b\n]\n\
            [workspace.dependencies]\nbase = { package = \"xebec-base\", path = \"base\" }\nserde = \"1\"\n";
        let log = "[package]\nname = \"xebec-journal\"\n\n[dependencies]\nbase.workspace = true\n\
            # Reports are JSON.\nserde.workspace = true\n";
        let tree = Tree::of_files([
            ("Cargo.toml", root.to_string()),
            ("base/Cargo.toml", "[package]\nname = \"xebec-base\"\n".to_string()),
            ("base/src/lib.rs", "//! Base.\n#![forbid(unsafe_code)]\nmod part;\n".to_string()),
            ("base/src/part.rs", "#[cfg(test)]\nmod tests;\n".to_string()),
            ("base/src/part/tests.rs", format!("#[test]\nfn t() {{ x.{}() }}\n", "unwrap")),
            ("journal/Cargo.toml", log.to_string()),
            ("journal/src/lib.rs", "//! Log.\n#![forbid(unsafe_code)]\n".to_string()),
            (
                "README.md",
                "# A b\n\n[log](journal/src/lib.rs), [here](#a-b), [there](https://example.org)\n"
                    .to_string(),
            ),
        ]);
        assert_eq!(check(&tree), Vec::<String>::new());
    }

    /// Complaints about a patch of a file of five lines, of which the third is blank.
    fn complaints_about(patch: &str) -> Vec<String> {
        let tree = Tree::of_files([
            ("some.txt", "one\ntwo\n\n-- four\nfive\n".to_string()),
            ("some.patch", patch.to_string()),
        ]);
        let mut complaints = Complaints { rule: "patch", ..Complaints::default() };
        patches::apply(&tree, &mut complaints);
        complaints.lines
    }

    const HEADER: &str = "diff --git a/some.txt b/some.txt\n--- a/some.txt\n+++ b/some.txt\n";

    /// A patch applies wherever its old lines are, also if the space of a blank line was removed, and if a removed line
    /// looks like a header.
    #[test]
    fn a_patch_applies_anywhere() {
        let hunks = "@@ -10,4 +10,3 @@ fn of()\n two\n\n--- four\n five\n@@ -1 +1,2 @@\n-one\n+1\n+more\n";
        assert_eq!(complaints_about(&format!("{HEADER}{hunks}")), Vec::<String>::new());
        let new = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+one\n";
        assert_eq!(complaints_about(new), Vec::<String>::new());
    }

    /// Old lines that do not follow one another are reported, with the line of their hunk.
    #[test]
    fn a_patch_that_does_not_apply_is_reported() {
        let hunks = "@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -4,2 +4,1 @@\n two\n--- four\n";
        let complaints = complaints_about(&format!("{HEADER}{hunks}"));
        assert!(
            matches!(&complaints[..], [one] if one.starts_with("some.patch:8: [patch] ")),
            "{complaints:?}"
        );
        let gone = complaints_about("--- a/gone.txt\n+++ b/gone.txt\n@@ -1,1 +1,1 @@\n-x\n+y\n");
        assert!(matches!(&gone[..], [one] if one.contains("`gone.txt` does not exist")), "{gone:?}");
        assert_eq!(complaints_about("").len(), 1);
    }
}
