//! Golden values that were computed independently of this code, from the theorems:
//! `fixtures/README.md` says what they are.

use favor::{Family, Kernel, Matrix, Moments, diagnose::Estimator};
use serde_json::Value;

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn matrix(v: &Value) -> Matrix<f64> {
    let rows: Vec<Vec<f64>> = v.as_array().unwrap().iter().map(numbers).collect();
    let columns = rows[0].len();
    Matrix::new(rows.concat(), v.as_array().unwrap().len(), columns).unwrap()
}

fn assert_close(what: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let unit = theirs.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-8 * unit.max(1e-3), "{what}: {a} against {b}");
    }
}

#[test]
fn families_match_the_golden_values() {
    let golden: Value = serde_json::from_str(include_str!("fixtures/families.json")).unwrap();
    let stride = golden["stride"].as_u64().unwrap() as usize;
    let kept =
        |m: &Matrix<f64>| -> Vec<f64> { m.as_slice().iter().copied().step_by(stride).collect() };
    for (case, g) in golden["cases"].as_object().unwrap() {
        let (x, y) = (matrix(&g["x"]), matrix(&g["y"]));
        let (mx, my) = (Moments::of(x.view()).unwrap(), Moments::of(y.view()).unwrap());
        let logs = Kernel::softmax().log_matrix(x.view(), y.view()).unwrap();
        assert_close(case, &kept(&logs), &numbers(&g["log_kernel"]));
        assert_close(case, &[favor::objective_floor(&mx, &my)], &[g["floor"].as_f64().unwrap()]);
        for (name, f) in g["families"].as_object().unwrap() {
            let what = format!("{case} {name}");
            let family: Family = name.parse().unwrap();
            let fitted = family.fit(&mx, &my).unwrap();
            let estimator = Estimator::new(family, Kernel::softmax(), fitted.clone()).unwrap();
            let pairs = estimator.log_second_moments(x.view(), y.view()).unwrap();
            assert_close(&what, &kept(&pairs), &numbers(&f["log_second_moment"]));
            let objective = pairs.as_slice().iter().sum::<f64>() / pairs.as_slice().len() as f64;
            assert_close(&what, &[objective], &[f["objective"].as_f64().unwrap()]);
            let Some(p) = fitted else { continue };
            assert_close(&what, &[p.objective(&mx, &my).unwrap()], &[objective]);
            let mut a = p.quadratic().to_vec();
            a.sort_by(f64::total_cmp);
            assert_close(&what, &a, &numbers(&f["a_sorted"]));
            assert_close(&what, &[p.log_d()], &[f["log_d"].as_f64().unwrap()]);
            let (c1, c2) = p.c_matrices();
            assert_close(&what, &kept(&c1), &numbers(&f["c1"]));
            assert_close(&what, &kept(&c2), &numbers(&f["c2"]));
        }
    }
}
