//! Keys that arrive in pieces, on several workers, with one map shared by all.

use favor::diagnose::relative_error;
use favor::draw::Stream;
use favor::{Family, FeatureMap, FeatureSpec, Kernel, KeySums, Matrix, Moments, Result};

const DIM: usize = 6;

fn main() -> Result<()> {
    let kernel = Kernel::gaussian();
    let pieces: Vec<Matrix<f64>> = (0..4).map(|s| points(10 + s, 500)).collect();
    let queries = points(1, 100);

    // First pass: each worker measures its piece, the moments are merged, one map is fitted.
    let mut moments = Moments::new(DIM);
    for piece in &pieces {
        moments.merge(&Moments::of(piece.view())?)?;
    }
    let spec = FeatureSpec::new(Family::Balanced, 512).kernel(kernel).seed(1);
    let map = spec.fit(&Moments::of(queries.view())?, &moments)?;

    // The map travels as bytes.
    let bytes = map.to_bytes()?;
    let map = FeatureMap::from_bytes(&bytes)?;
    println!("{} keys, map of {} features", moments.count(), map.features());

    // Second pass: each worker sums its piece, the sums are merged.
    let mut total = KeySums::new(&map, 1);
    for piece in &pieces {
        let ones = Matrix::from_fn(piece.rows(), 1, |_, _| 1.0);
        let mut own = KeySums::new(&map, 1);
        own.add(&map, piece.view(), ones.view())?;
        total.merge(&own)?;
    }
    let merged = total.apply(&map, queries.view())?.to_matrix()?;

    // The same in one call, and exactly.
    let all: Vec<f64> = pieces.iter().flat_map(|p| p.as_slice().to_vec()).collect();
    let all = Matrix::new(all, 2000, DIM)?;
    let ones = Matrix::from_fn(2000, 1, |_, _| 1.0);
    let whole =
        favor::kernel_product(&map, queries.view(), all.view(), ones.view())?.to_matrix()?;
    let exact = kernel.product(queries.view(), all.view(), ones.view())?.to_matrix()?;
    println!("pieces and one call agree to 1e-12: {}", { relative_error(&merged, &whole) < 1e-12 });
    println!("against the exact sums:  {:.1}% off", 100.0 * relative_error(&merged, &exact));
    Ok(())
}

fn points(seed: u64, rows: usize) -> Matrix<f64> {
    let mut stream = Stream::new(seed, 0);
    Matrix::from_fn(rows, DIM, |_, l| 1.0 + 0.7_f64.powi(l as i32) * stream.normal())
}
