//! The number of threads changes no bit, and one map serves many of them.

use crate::common::{assert_same_bits, cast, moments, normal};
use favor::reference::{Mask, baseline_attention, exact_attention, feature_attention};
use favor::{Coupling, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Side, kernel_product};
use std::sync::Barrier;

/// All results of one pool, as matrices.
fn run(threads: usize) -> Vec<(String, Matrix<f64>)> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut out = vec![];
        // Longer than every internal block: 4096 rows of moments, 512 keys, 256 rows of features.
        let long = normal(1, 9000, 3, 1.0, 0.7);
        let m = moments(&long);
        out.push(("mean".into(), Matrix::new(m.mean().to_vec(), 1, 3).unwrap()));
        out.push(("covariance".into(), m.covariance()));
        let (q, k) = (normal(2, 700, 3, 0.0, 0.7), normal(3, 1300, 3, 0.1, 0.7));
        let v = normal(4, 1300, 2, 0.0, 1.0);
        let (q, k, v) = (q.view(), k.view(), v.view());
        let kernel = Kernel::attention(3);
        let product = Kernel::gaussian().product(q, k, v).unwrap();
        out.push(("exact product".into(), product.values));
        let none = Mask::none();
        out.push(("exact attention".into(), exact_attention(kernel, q, k, v, none).unwrap()));
        let elu = favor::reference::Baseline::Elu;
        out.push(("baseline".into(), baseline_attention(&elu, q, k, v, none).unwrap()));
        for (family, coupling) in Family::ALL.into_iter().zip(Coupling::ALL.into_iter().cycle()) {
            let spec = FeatureSpec::new(family, 40).kernel(kernel).coupling(coupling).seed(9);
            let map = spec.fit(&m, &m).unwrap();
            let mut add = |what: &str, m: Matrix<f64>| out.push((format!("{family} {what}"), m));
            add("ω", map.omega().unwrap().clone());
            add("features", map.features_of(Side::Query, q).unwrap().values);
            let product = kernel_product(&map, q, k, v).unwrap();
            let rows = product.log_scale.len();
            add("scales", Matrix::new(product.log_scale, rows, 1).unwrap());
            add("product", product.values);
            if family.is_positive() {
                add("attention", feature_attention(&map, q, k, v, none).unwrap());
                let (q, v) = (k.slice(0, 500), v.slice(0, 500));
                add("causal", feature_attention(&map, q, q, v, Mask::causal()).unwrap());
                let (q, v) = (cast::<f32>(&q.to_f64(1.0)), cast::<f32>(&v.to_f64(1.0)));
                let (q, v) = (q.view(), v.view());
                let narrow = feature_attention(&map, q, q, v, none).unwrap();
                add("f32 attention", narrow.view().to_f64(1.0));
            }
        }
        out
    })
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let one = run(1);
    assert!(one.len() > 50);
    for threads in [2, 3, 4] {
        for ((what, a), (_, b)) in one.iter().zip(run(threads)) {
            assert_same_bits(&format!("{what}, {threads} threads"), a, &b);
        }
    }
}

/// What a map makes of itself when it is first used is made once, whoever comes first.
#[test]
fn one_map_serves_many_threads_at_once() {
    let x = normal(5, 300, 4, 0.1, 0.8);
    let m = moments(&x);
    let (wide, narrow) = (x.clone(), cast::<f32>(&x));
    let all = |map: &FeatureMap| {
        let product = kernel_product(map, wide.view(), wide.view(), wide.view()).unwrap();
        let single = kernel_product(map, narrow.view(), narrow.view(), narrow.view()).unwrap();
        (product.values, single.values, map.features_of(Side::Key, wide.view()).unwrap().values)
    };
    for family in Family::ALL {
        let spec = FeatureSpec::new(family, 48).kernel(Kernel::gaussian()).seed(2);
        let wanted = all(&spec.fit(&m, &m).unwrap());
        let map = spec.fit(&m, &m).unwrap();
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            let one = || {
                start.wait();
                all(&map)
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), wanted, "{family}");
            }
        });
    }
}

/// The other levels of the processor, each in a process of its own: as right as the best one, and as free of
/// the number of threads.
#[test]
fn lower_levels_keep_what_the_best_one_keeps() {
    let tests = [
        "engine::threads_change_nothing",
        "engine::engine_equals_the_plain_way",
        "hybrid::threads_change_no_bit",
        "hybrid::the_engine_follows_the_definition",
        "hybrid::formats::narrow_gradients_follow_wide_ones",
        "hybrid::decode::decoding_is_causal_attention_however_it_is_cut",
    ];
    for level in ["AVX2", "portable"] {
        if level == "AVX2" && !has_avx2() {
            let reason = "this processor has no AVX2";
            favor_testing::skipped("threads::lower_levels_keep_what_the_best_one_keeps", reason);
            continue;
        }
        let mut run = std::process::Command::new(std::env::current_exe().unwrap());
        let out = run.arg("--exact").args(tests).env("FAVOR_SIMD", level).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{level}: {text}");
        assert!(text.contains(&format!("{} passed", tests.len())), "{level}: {text}");
    }
}

fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}
