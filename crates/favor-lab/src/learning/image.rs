//! Small pictures of numbers as PNG, inside a page.

use favor::Matrix;
use std::fmt::Write;

/// Colours from low to high.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ramp(&'static [[u8; 3]]);

/// From nothing to much: white to dark blue.
pub(super) const WEIGHTS: Ramp =
    Ramp(&[[255, 255, 255], [158, 202, 225], [0, 114, 178], [0, 32, 64]]);

/// From too little over right to too much: blue, white, orange.
pub(super) const DIFFERENCES: Ramp =
    Ramp(&[[0, 60, 110], [0, 114, 178], [255, 255, 255], [213, 94, 0], [122, 45, 0]]);

impl Ramp {
    /// The colour at a place from 0 to 1.
    fn at(&self, place: f64) -> [u8; 3] {
        let last = self.0.len() - 1;
        let place = place.clamp(0.0, 1.0) * last as f64;
        let below = (place as usize).min(last - 1);
        let share = place - below as f64;
        std::array::from_fn(|c| {
            let (low, high) = (f64::from(self.0[below][c]), f64::from(self.0[below + 1][c]));
            (low + share * (high - low)).round() as u8
        })
    }

    /// The ramp as a gradient of CSS.
    pub(super) fn css(&self) -> String {
        let colours = self.0.iter().map(|[r, g, b]| format!("#{r:02x}{g:02x}{b:02x}"));
        format!("linear-gradient(90deg, {})", colours.collect::<Vec<_>>().join(", "))
    }
}

/// An address that holds a PNG of a matrix, one pixel per entry; entries are places on the ramp.
pub(super) fn data_uri(places: &Matrix<f64>, ramp: Ramp) -> String {
    let place = |v: &f64| (255.0 * v.clamp(0.0, 1.0)).round() as u8;
    let pixels: Vec<u8> = places.as_slice().iter().map(place).collect();
    let bytes = png(places.columns(), &pixels, ramp);
    format!("data:image/png;base64,{}", base64(&bytes))
}

/// A PNG with 256 colours. Its bytes are not compressed: pictures are small, and no library is needed.
fn png(width: usize, pixels: &[u8], ramp: Ramp) -> Vec<u8> {
    let height = pixels.len() / width.max(1);
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = vec![];
    header.extend((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    // Eight bits per pixel, a palette, and the only methods that there are.
    header.extend([8, 3, 0, 0, 0]);
    chunk(&mut out, b"IHDR", &header);
    let palette: Vec<u8> = (0..=255).flat_map(|i| ramp.at(f64::from(i) / 255.0)).collect();
    chunk(&mut out, b"PLTE", &palette);
    // Each line begins with its filter: none.
    let lines = pixels.chunks(width.max(1)).flat_map(|line| [&[0], line].concat());
    chunk(&mut out, b"IDAT", &stored(&lines.collect::<Vec<u8>>()));
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    out.extend((data.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(kind);
    out.extend(data);
    let check = crc32(&out[start..]);
    out.extend(check.to_be_bytes());
}

/// A zlib stream of stored blocks.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let blocks = bytes.len().div_ceil(0xffff).max(1);
    for (i, block) in bytes.chunks(0xffff).enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(i + 1 == blocks));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    out.extend((b << 16 | a).to_be_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let group = (0..3).fold(0_u32, |g, i| g << 8 | u32::from(*part.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let letter = LETTERS[(group >> (18 - 6 * i) & 63) as usize] as char;
            let _ = out.write_char(if i <= part.len() { letter } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_and_letters_are_those_of_the_standards() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(base64(b"Man"), "TWFu");
        assert_eq!(base64(b"Ma"), "TWE=");
        assert_eq!(base64(b"M"), "TQ==");
        // Adler's sum of "Wikipedia".
        assert!(stored(b"Wikipedia").ends_with(&[0x11, 0xe6, 0x03, 0x98]));
        assert_eq!(stored(&vec![7; 0x1_0001]).len(), 2 + 2 * 5 + 0x1_0001 + 4);
    }

    #[test]
    fn ramps_end_in_their_colours() {
        assert_eq!(WEIGHTS.at(0.0), [255, 255, 255]);
        assert_eq!(WEIGHTS.at(1.0), [0, 32, 64]);
        assert_eq!(DIFFERENCES.at(0.5), [255, 255, 255]);
        assert_eq!(DIFFERENCES.at(f64::INFINITY), [122, 45, 0]);
        let uri = data_uri(&Matrix::from_fn(2, 3, |i, j| (i * 3 + j) as f64 / 5.0), WEIGHTS);
        assert!(uri.starts_with("data:image/png;base64,iVBORw0KGgo"));
    }
}
