//! The map as one PNG picture, in light colours.

use std::path::Path;

use super::canvas::{self, Align, Draw, Paint};
use super::page::{explanation, title_of};
use super::sections::{Section, TEXT};
use super::treemap::Area;
use super::{MapData, text};
use crate::names::printable;

/// Width in pixels, and the margin in it.
const WIDTH: u32 = 1000;
const MARGIN: f64 = 24.0;
/// Height of a line of text.
const LINE: f64 = 20.0;
/// Size of titles.
const TITLE: f64 = 18.0;
/// Space above and below a title.
const ABOVE: f64 = 22.0;
const BELOW: f64 = 28.0;

/// The file.
pub fn picture(data: &MapData, font: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let font = canvas::font(font)?;
    let height = draw(data, &mut Nothing);
    canvas::png(WIDTH, height.ceil() as u32, font, |canvas| {
        draw(data, canvas);
    })
}

/// A drawing of nothing, to find the height.
struct Nothing;

impl Draw for Nothing {
    fn fill(&mut self, _: Area, _: Paint) {}

    fn text(&mut self, _: &str, _: (f64, f64), _: f64, _: Paint, _: Align) {}
}

/// Draws everything, and returns the height.
fn draw(data: &MapData, canvas: &mut dyn Draw) -> f64 {
    let width = f64::from(WIDTH) - 2.0 * MARGIN;
    let mut top = MARGIN;
    let title = format!("Map of {}", printable(data.image.as_bytes()));
    let title = canvas::shortened(&title, canvas::fitting(width, TITLE));
    canvas.text(&title, (MARGIN, top), TITLE, Paint::Text, Align::Left);
    top = paragraph(canvas, &text::summary(data), top + BELOW, width) + 6.0;
    for (block_use, bytes, share) in text::uses(data, &data.space.uses()) {
        let colour = Area { left: MARGIN, top: top + 1.0, width: 13.0, height: 13.0 };
        canvas.fill(colour, Paint::Use(block_use));
        for (text, left, paint, align) in [
            (block_use.title(), 22.0, Paint::Text, Align::Left),
            (bytes.as_str(), 260.0, Paint::Text, Align::Right),
            (share.as_str(), 330.0, Paint::Text, Align::Right),
            (block_use.meaning(), 350.0, Paint::Muted, Align::Left),
        ] {
            canvas.text(text, (MARGIN + left, top), TEXT, paint, align);
        }
        top += LINE;
    }
    for section in Section::ALL {
        top += ABOVE;
        canvas.text(title_of(section), (MARGIN, top), TITLE - 2.0, Paint::Text, Align::Left);
        top = paragraph(canvas, &explanation(section, data), top + BELOW, width) + 6.0;
        section.draw(data, canvas, (MARGIN, top), width);
        top += section.height(data, width);
    }
    top + MARGIN
}

/// Writes a paragraph, and returns where it ends.
fn paragraph(canvas: &mut dyn Draw, text: &str, mut top: f64, width: f64) -> f64 {
    for line in lines(text, canvas::fitting(width, TEXT)) {
        canvas.text(&line, (MARGIN, top), TEXT, Paint::Muted, Align::Left);
        top += LINE;
    }
    top
}

/// Breaks a text into lines of at most so many characters, unless a word is longer.
pub fn lines(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= most {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("longer than that", 3), ["longer", "than", "that"]);
    }
}
