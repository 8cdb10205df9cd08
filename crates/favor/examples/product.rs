//! A Gaussian kernel product `K(X,Y)·C`, exact and by features.

use favor::diagnose::relative_error;
use favor::draw::Stream;
use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, Result, kernel_product};

fn main() -> Result<()> {
    let queries = points(1, 1000);
    let keys = points(2, 3000);
    let values = Matrix::from_fn(3000, 1, |_, _| 1.0_f32 / 3000.0);
    let (x, y, c) = (queries.view(), keys.view(), values.view());

    let kernel = Kernel::gaussian();
    let exact = kernel.product(x, y, c)?.to_matrix()?;

    println!("mean kernel value of 1000 queries with 3000 keys, relative error");
    println!("{:<22} {:>8} {:>8} {:>8}", "", "M = 64", "M = 256", "M = 1024");
    let (query_moments, key_moments) = (Moments::of(x)?, Moments::of(y)?);
    for family in [Family::TrigPair, Family::Pos, Family::Ge, Family::Sde, Family::Balanced] {
        print!("{:<22}", family.title());
        for features in [64, 256, 1024] {
            let spec = FeatureSpec::new(family, features).kernel(kernel).seed(1);
            let map = spec.fit(&query_moments, &key_moments)?;
            let estimate = kernel_product(&map, x, y, c)?.to_matrix()?;
            print!(" {:>7.2}%", 100.0 * relative_error(&estimate, &exact));
        }
        println!();
    }
    Ok(())
}

/// Points in 8 dimensions, wide in the first, narrow in the last, around a nonzero centre.
fn points(seed: u64, rows: usize) -> Matrix<f32> {
    let mut stream = Stream::new(seed, 0);
    Matrix::from_fn(rows, 8, |_, l| (0.3 + 0.7_f64.powi(l as i32) * stream.normal()) as f32)
}
