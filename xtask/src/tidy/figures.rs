//! Figures in documents.

use anyhow::Context as _;
use report::figures::{Runs, fill};

use super::Complaints;
use super::tree::Tree;

/// The directory of the kept runs, files of `xebec bench --results`.
const RUNS: &str = "docs/runs/";

/// The kept runs.
pub fn runs(tree: &Tree) -> anyhow::Result<Runs> {
    let mut runs = Runs::default();
    for file in tree.files().filter(|file| file.path.starts_with(RUNS) && file.has_extension("json")) {
        runs.add(&file.path, &file.text).with_context(|| file.path.clone())?;
    }
    Ok(runs)
}

/// Figures between markers are those of the kept runs.
pub fn are_those_of_runs(tree: &Tree, complaints: &mut Complaints) {
    let runs = match runs(tree) {
        Ok(runs) => runs,
        Err(error) => return complaints.add(RUNS, 1, format_args!("{error:#}")),
    };
    for file in tree.files().filter(|file| file.has_extension("md")) {
        match fill(&file.text, &runs) {
            Ok(text) if text == file.text => {}
            Ok(text) => {
                let differ = text.lines().zip(file.text.lines()).position(|(new, old)| new != old);
                let line = differ.map_or(1, |index| index + 1);
                complaints.add(&file.path, line, "not the figure of the kept run (`cargo xtask figures`)");
            }
            Err(error) => complaints.add(&file.path, 1, format_args!("{error:#}")),
        }
    }
}
