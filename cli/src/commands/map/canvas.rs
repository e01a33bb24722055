//! Drawing: rectangles and text, as SVG with the colours of a style sheet, or as pixels.
//!
//! Colours of an SVG picture are CSS variables, so that it is readable on light and dark pages. The backend only writes
//! RGB, so each variable is drawn as a placeholder, which is replaced in the text.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, IntoFont as _, RGBColor, TextStyle, register_font};

use super::space::BlockUse;
use super::treemap::Area;

/// A colour by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Page,
    Text,
    Muted,
    Use(BlockUse),
    /// A directory, by its level.
    Level(usize),
    /// Files in a directory.
    Rest,
}

/// Number of colours of levels.
pub const LEVELS: usize = 4;

/// A colour in a light and in a dark page.
pub struct Colour {
    pub paint: Paint,
    light: u32,
    dark: u32,
}

const fn colour(paint: Paint, light: u32, dark: u32) -> Colour {
    Colour { paint, light, dark }
}

/// All colours.
pub const COLOURS: [Colour; 18] = [
    colour(Paint::Page, 0xff_ff_ff, 0x0d_11_17),
    colour(Paint::Text, 0x1c_21_28, 0xe6_ed_f3),
    colour(Paint::Muted, 0x57_60_6a, 0x9a_a4_ae),
    colour(Paint::Use(BlockUse::Data), 0x3b_6f_b6, 0x6e_a2_e6),
    colour(Paint::Use(BlockUse::Shared), 0x7a_4f_b5, 0xb0_8a_e8),
    colour(Paint::Use(BlockUse::Staging), 0xc2_56_9b, 0xe5_8a_c4),
    colour(Paint::Use(BlockUse::Directories), 0x1f_91_82, 0x5c_c7_b8),
    colour(Paint::Use(BlockUse::Inodes), 0xd0_8a_1d, 0xe5_b0_4f),
    colour(Paint::Use(BlockUse::Maps), 0xa3_56_22, 0xd9_8f_5c),
    colour(Paint::Use(BlockUse::Headers), 0x8a_8f_98, 0x7d_87_92),
    colour(Paint::Use(BlockUse::Log), 0x4a_51_5e, 0xb4_bc_c6),
    colour(Paint::Use(BlockUse::Other), 0xc0_39_2b, 0xf0_71_6a),
    colour(Paint::Use(BlockUse::Free), 0xe4_e8_ee, 0x26_2c_35),
    colour(Paint::Level(0), 0xdb_e7_f6, 0x1b_2b_40),
    colour(Paint::Level(1), 0xb9_d2_ee, 0x24_40_5f),
    colour(Paint::Level(2), 0x9c_c0_e6, 0x2e_55_80),
    colour(Paint::Level(3), 0x82_ae_de, 0x3b_6c_a3),
    colour(Paint::Rest, 0xee_f2_f7, 0x16_1d_27),
];

impl Paint {
    /// Name of the CSS variable.
    pub fn name(self) -> String {
        match self {
            Self::Page => "page".into(),
            Self::Text => "text".into(),
            Self::Muted => "muted".into(),
            Self::Use(block_use) => block_use.key().into(),
            Self::Level(level) => format!("level-{level}"),
            Self::Rest => "rest".into(),
        }
    }
}

/// The variables of a style sheet: `--name: #rrggbb;`.
pub fn variables(is_dark: bool) -> String {
    let mut text = String::new();
    for colour in &COLOURS {
        let value = if is_dark { colour.dark } else { colour.light };
        // Writing to a string cannot fail.
        let _ = write!(text, "--{}:#{value:06x};", colour.paint.name());
    }
    text
}

/// How colours are drawn.
#[derive(Clone, Copy)]
enum Palette {
    /// As numbers that are replaced by variables.
    Placeholders,
    Light,
}

/// Red and green of a placeholder; blue is the index in [`COLOURS`].
const PLACEHOLDER: u32 = 0xfe_01_00;

impl Palette {
    fn rgb(self, paint: Paint) -> RGBColor {
        let index = COLOURS.iter().position(|colour| colour.paint == paint).unwrap_or(0);
        let value = match self {
            Self::Placeholders => PLACEHOLDER + index as u32,
            Self::Light => COLOURS.get(index).map_or(0, |colour| colour.light),
        };
        let [_, red, green, blue] = value.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// A drawing.
pub trait Draw {
    /// Fills a rectangle.
    fn fill(&mut self, area: Area, paint: Paint);

    /// Writes a line of text of this size in pixels, with its upper left or right corner at a place.
    fn text(&mut self, text: &str, place: (f64, f64), size: f64, paint: Paint, align: Align);
}

/// Side of a text that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The largest number of characters of this size that surely fit.
pub fn fitting(width: f64, size: f64) -> usize {
    (width / (size * 0.6)).max(0.0) as usize
}

/// A text, cut off if it has more characters.
pub fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() {
        count if count <= most => text.to_owned(),
        _ if most < 3 => String::new(),
        _ => text.chars().take(most - 1).chain(['\u{2026}']).collect(),
    }
}

struct Canvas<D: DrawingBackend> {
    backend: D,
    palette: Palette,
    /// The first error.
    error: Option<String>,
}

impl<D: DrawingBackend> Canvas<D> {
    fn note<E: std::fmt::Display>(&mut self, result: Result<(), E>) {
        if let Err(error) = result
            && self.error.is_none()
        {
            self.error = Some(error.to_string());
        }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let presented = self.backend.present();
        self.note(presented);
        self.error.map_or(Ok(()), |error| Err(anyhow!("cannot draw: {error}")))
    }
}

/// A coordinate in pixels.
fn pixel(at: f64) -> i32 {
    at.round().clamp(0.0, 1e6) as i32
}

impl<D: DrawingBackend> Draw for Canvas<D> {
    fn fill(&mut self, area: Area, paint: Paint) {
        let (left, top) = (pixel(area.left), pixel(area.top));
        let (right, bottom) = (pixel(area.left + area.width), pixel(area.top + area.height));
        if left >= right || top >= bottom {
            return;
        }
        let colour = self.palette.rgb(paint);
        // The lower right corner is part of a rectangle of pixels, and not of one in SVG.
        let last = match self.palette {
            Palette::Placeholders => (right, bottom),
            Palette::Light => (right - 1, bottom - 1),
        };
        let drawn = self.backend.draw_rect((left, top), last, &colour, true);
        self.note(drawn);
    }

    fn text(&mut self, text: &str, (x, y): (f64, f64), size: f64, paint: Paint, align: Align) {
        if text.is_empty() {
            return;
        }
        let horizontal = if align == Align::Left { HPos::Left } else { HPos::Right };
        let colour = self.palette.rgb(paint);
        // The backends take the height of a line.
        let style = TextStyle::from((FONT, size * 1.24).into_font())
            .color(&colour)
            .pos(Pos::new(horizontal, VPos::Top));
        let drawn = self.backend.draw_text(text, &style, (pixel(x), pixel(y)));
        self.note(drawn);
    }
}

/// Family of fonts.
const FONT: &str = "sans-serif";

/// Draws an SVG element.
pub fn svg(width: u32, height: u32, draw: impl FnOnce(&mut dyn Draw)) -> anyhow::Result<String> {
    let mut text = String::new();
    let backend = SVGBackend::with_string(&mut text, (width, height));
    let mut canvas = Canvas { backend, palette: Palette::Placeholders, error: None };
    draw(&mut canvas);
    canvas.finish()?;
    for (index, colour) in COLOURS.iter().enumerate() {
        let placeholder = format!("\"#{:06X}\"", PLACEHOLDER + index as u32);
        text = text.replace(&placeholder, &format!("\"var(--{})\"", colour.paint.name()));
    }
    Ok(text)
}

/// Draws a PNG file. `font` is a TrueType font.
pub fn png(
    width: u32,
    height: u32,
    font: Vec<u8>,
    draw: impl FnOnce(&mut dyn Draw),
) -> anyhow::Result<Vec<u8>> {
    // Fonts are registered for the life of the program, which draws once.
    let font: &'static [u8] = Box::leak(font.into_boxed_slice());
    register_font(FONT, FontStyle::Normal, font).map_err(|_| anyhow!("not a TrueType font"))?;
    let mut pixels = vec![0xff; width as usize * height as usize * 3];
    let backend = BitMapBackend::with_buffer(&mut pixels, (width, height));
    let mut canvas = Canvas { backend, palette: Palette::Light, error: None };
    draw(&mut canvas);
    canvas.finish()?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.context("cannot encode the picture")?;
    Ok(file)
}

/// Where distributions have a font without serifs.
const FONTS: &[&str] = &[
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
    "/usr/share/fonts/liberation-sans/LiberationSans-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
    "/usr/share/fonts/noto/NotoSans-Regular.ttf",
];

/// Reads a font: the one that was named, or one of the system.
pub fn font(path: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    if let Some(path) = path {
        return std::fs::read(path).with_context(|| path.display().to_string());
    }
    FONTS.iter().find_map(|path| std::fs::read(path).ok()).context(
        "no font was found for the text in the picture: install DejaVu Sans, or name a TrueType font with --font",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_variables() {
        let area = Area { left: 1.0, top: 2.0, width: 30.0, height: 4.0 };
        let text = svg(100, 50, |canvas| {
            canvas.fill(area, Paint::Use(BlockUse::Free));
            canvas.text("a < b", (5.0, 6.0), 13.0, Paint::Text, Align::Right);
            canvas.fill(Area { width: 0.2, ..area }, Paint::Page);
        });
        let text = text.unwrap();
        assert!(text.contains("fill=\"var(--free)\"") && text.contains("fill=\"var(--text)\""), "{text}");
        assert!(text.contains("viewBox=\"0 0 100 50\"") && text.contains("a &lt; b"), "{text}");
        assert!(!text.contains('#') && !text.contains("--page"), "{text}");
        for block_use in BlockUse::ALL {
            assert!(COLOURS.iter().any(|colour| colour.paint == Paint::Use(block_use)));
        }
    }

    #[test]
    fn long_texts_are_cut_off() {
        assert_eq!(shortened("directory", 9), "directory");
        assert_eq!(shortened("directory", 5), "dire\u{2026}");
        assert_eq!(shortened("directory", 2), "");
    }
}
