//! Writes `moons.csv` and `moons-test.csv` to the current folder: points on two half circles.

use std::f64::consts::PI;

fn main() -> std::io::Result<()> {
    for (name, start, count) in [("moons.csv", 0, 2000), ("moons-test.csv", 2000, 500)] {
        let mut text = String::from("x,y,hue,moon\n");
        for i in start..start + count {
            let upper = i % 2 == 0;
            let angle = PI * fraction(i, 0.618_034);
            let (noise, turn) = (0.35 * fraction(i, 0.754_878), 2.0 * PI * fraction(i, 0.569_84));
            let (x, y) = if upper {
                (angle.cos(), angle.sin())
            } else {
                (1.0 - angle.cos(), 0.5 - angle.sin())
            };
            let hue = ["amber", "blue", "white"][i * 7 % 11 % 3];
            let moon = if upper { "upper" } else { "lower" };
            let (x, y) = (x + noise * turn.cos(), y + noise * turn.sin());
            text.push_str(&format!("{x:.4},{y:.4},{hue},{moon}\n"));
        }
        std::fs::write(name, text)?;
        println!("wrote {name}, {count} rows");
    }
    Ok(())
}

/// Numbers between 0 and 1 that fill the range evenly.
fn fraction(i: usize, step: f64) -> f64 {
    (i as f64 * step).fract()
}
