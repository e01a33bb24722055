//! Squarified treemaps (Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000): rectangles with given areas that
//! fill another one, as square as possible.

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    /// Without a margin on all sides and a line at the top.
    pub fn inner(self, margin: f64, line: f64) -> Self {
        Self {
            left: self.left + margin,
            top: self.top + line + margin,
            width: (self.width - 2.0 * margin).max(0.0),
            height: (self.height - line - 2.0 * margin).max(0.0),
        }
    }
}

/// Divides an area in proportion to sizes in descending order. Sizes of zero get no area.
pub fn squarify(area: Area, sizes: &[u64]) -> Vec<Area> {
    let total: f64 = sizes.iter().map(|size| *size as f64).sum();
    let scale = if total > 0.0 { area.width * area.height / total } else { 0.0 };
    let areas: Vec<f64> = sizes.iter().map(|size| *size as f64 * scale).collect();
    let (mut rest, mut free, mut placed) = (areas.as_slice(), area, Vec::with_capacity(sizes.len()));
    while !rest.is_empty() {
        let side = free.width.min(free.height);
        // A row takes areas as long as that makes its rectangles more square.
        let mut count = 1;
        while count < rest.len() && worst(rest, count + 1, side) <= worst(rest, count, side) {
            count += 1;
        }
        let (row, next) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        free = place(row, free, &mut placed);
        rest = next;
    }
    placed
}

/// The largest ratio of the sides of the first `count` areas, if they form a row along a side of this length.
fn worst(areas: &[f64], count: usize, side: f64) -> f64 {
    let row = areas.get(..count).unwrap_or_default();
    let sum: f64 = row.iter().sum();
    let (first, last) = (row.first().copied().unwrap_or(0.0), row.last().copied().unwrap_or(0.0));
    if sum <= 0.0 || last <= 0.0 || side <= 0.0 {
        return f64::INFINITY;
    }
    (side * side * first / (sum * sum)).max(sum * sum / (side * side * last))
}

/// Places a row along the shorter side, and returns what is left.
fn place(row: &[f64], free: Area, placed: &mut Vec<Area>) -> Area {
    let sum: f64 = row.iter().sum();
    let is_wide = free.width >= free.height;
    let side = if is_wide { free.height } else { free.width };
    let depth = if side > 0.0 { sum / side } else { 0.0 };
    let mut at = 0.0;
    for area in row {
        let length = if depth > 0.0 { area / depth } else { 0.0 };
        placed.push(match is_wide {
            true => Area { left: free.left, top: free.top + at, width: depth, height: length },
            false => Area { left: free.left + at, top: free.top, width: length, height: depth },
        });
        at += length;
    }
    match is_wide {
        true => Area { left: free.left + depth, width: (free.width - depth).max(0.0), ..free },
        false => Area { top: free.top + depth, height: (free.height - depth).max(0.0), ..free },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper.
    #[test]
    fn rectangles_are_nearly_square_and_fill_the_area() {
        let area = Area { left: 0.0, top: 0.0, width: 6.0, height: 4.0 };
        let placed = squarify(area, &[6, 6, 4, 3, 2, 2, 1]);
        assert_eq!(placed[0], Area { left: 0.0, top: 0.0, width: 3.0, height: 2.0 });
        assert_eq!(placed[1], Area { left: 0.0, top: 2.0, width: 3.0, height: 2.0 });
        let sum: f64 = placed.iter().map(|area| area.width * area.height).sum();
        assert!((sum - 24.0).abs() < 1e-9);
        assert!(
            placed.iter().all(|one| one.left + one.width <= 6.0 + 1e-9 && one.top + one.height <= 4.0 + 1e-9)
        );
    }

    #[test]
    fn nothing_and_zeros_are_placed() {
        let area = Area { left: 0.0, top: 0.0, width: 10.0, height: 10.0 };
        assert!(squarify(area, &[]).is_empty());
        assert_eq!(squarify(area, &[0, 0]).len(), 2);
        assert_eq!(squarify(area, &[5, 0]).len(), 2);
        assert_eq!(squarify(Area { width: 0.0, ..area }, &[5, 1]).len(), 2);
    }
}
