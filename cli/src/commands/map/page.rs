//! The map as one HTML file, without anything that must be fetched.
//!
//! Each picture is drawn for two widths, so that its text has the same size on a screen and on a phone.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::canvas::{svg, variables};
use super::sections::Section;
use super::{MapData, text};
use crate::names::printable;

/// Widths of pictures in pixels, with the class that shows them.
const WIDTHS: [(u32, &str); 2] = [(900, "wide"), (360, "narrow")];

/// The style sheet, after the colours.
const STYLE: &str = "
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:932px;margin:0 auto;padding:16px}
h1{font-size:1.5rem;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .25rem}
p{margin:.25rem 0 .75rem;max-width:44rem}
.muted{color:var(--muted)}
svg{display:block;width:100%;height:auto}
rect{shape-rendering:crispEdges}
.narrow{display:none}
table{border-collapse:collapse;width:100%}
td{padding:.2rem .6rem .2rem 0;vertical-align:top}
td.number{text-align:right}
td.number,td.use{white-space:nowrap}
i.colour{display:inline-block;width:.9em;height:.9em;margin-right:.5em;vertical-align:-.08em;border-radius:2px}
@media(max-width:640px){.wide{display:none}.narrow{display:block}td.meaning{display:none}main{padding:12px}}
@media print{body{font-size:12px}}
";

/// The file.
pub fn page(data: &MapData) -> anyhow::Result<String> {
    let mut sections = Vec::new();
    for section in Section::ALL {
        let mut pictures = Vec::new();
        for (width, class) in WIDTHS {
            let height = section.height(data, width.into()).ceil() as u32;
            let picture = svg(width, height.max(1), |canvas| {
                section.draw(data, canvas, (0.0, 0.0), width.into());
            })?;
            pictures.push((class, picture));
        }
        sections.push((section, pictures));
    }
    let style = format!(
        ":root{{color-scheme:light dark;{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}{STYLE}",
        variables(false),
        variables(true)
    );
    let title = format!("Map of {}", printable(data.image.as_bytes()));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body {
                main {
                    h1 { (title) }
                    p { (text::summary(data)) }
                    (legend(data))
                    @for (section, pictures) in &sections {
                        h2 { (title_of(*section)) }
                        p { (explanation(*section, data)) }
                        @for (class, picture) in pictures {
                            div class=(class) role="img" aria-label=(title_of(*section)) { (PreEscaped(picture)) }
                        }
                    }
                    p.muted {
                        "Made by xebec " (env!("CARGO_PKG_VERSION"))
                        " map. 1 KiB, or 1K, is 1024 bytes; 1M is 1024K, and 1G is 1024M."
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

/// Uses, with their colours.
fn legend(data: &MapData) -> Markup {
    html! {
        table {
            @for (block_use, bytes, share) in text::uses(data, &data.space.uses()) {
                tr {
                    td.use {
                        i.colour style=(format!("background:var(--{})", block_use.key())) {}
                        (block_use.title())
                    }
                    td.number { (bytes) }
                    td.number { (share) }
                    td.meaning.muted { (block_use.meaning()) }
                }
            }
        }
    }
}

/// Title of a picture.
pub fn title_of(section: Section) -> &'static str {
    match section {
        Section::Bars => "Where the space is",
        Section::FreeRuns => "Free space by the length of its runs",
        Section::Sizes => "Files by size",
        Section::Fragments => "Files by number of pieces",
        Section::Directories => "Directories by space",
    }
}

/// What a picture shows.
pub fn explanation(section: Section, data: &MapData) -> String {
    match section {
        Section::Bars => "One bar for each allocation group (AG), from its first block on the left to its last one. \
            The height of a colour is its share of that part; anything that is there is at least one pixel high."
            .into(),
        Section::FreeRuns => text::free_runs(data),
        Section::Sizes => text::sizes(data),
        Section::Fragments => text::fragmentation(data),
        Section::Directories => "The area of a directory is the space of everything in it. Files and small directories \
            in it are the part without a name. A file with several names counts with the first."
            .into(),
    }
}
