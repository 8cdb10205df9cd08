//! linfa's traits against the models of `favor::learn`.

use favor::Matrix;
use favor::learn::{FitOptions, HeadModel, HeadOptions, Known};
use favor_linfa::{
    Error, KernelClassifier, KernelDensity, KernelRegressor, KernelRidge, RandomFeatures,
    RidgeClassifier, Search,
};
use linfa::ParamGuard;
use linfa::prelude::*;
use ndarray::{Array1, Array2, array, s};

/// Three classes of points in the plane.
fn records(start: usize, count: usize) -> Array2<f64> {
    let mut stream = favor::draw::Stream::new(start as u64, 0);
    let centre = |class: usize, l: usize| [[0.0, 0.0], [30.0, 0.0], [0.0, 3.0]][class][l];
    let scale = [10.0, 1.0];
    Array2::from_shape_fn((count, 2), |(i, l)| centre(i % 3, l) + scale[l] * stream.normal())
}

fn labels(count: usize) -> Array1<usize> {
    (0..count).map(|i| 10 * (i % 3)).collect()
}

fn numbers(records: &Array2<f64>) -> Array1<f64> {
    records.outer_iter().map(|r| (0.1 * r[0]).sin() + r[1]).collect()
}

fn rows(records: &Array2<f64>) -> Matrix<f64> {
    Matrix::new(records.iter().copied().collect(), records.nrows(), records.ncols()).unwrap()
}

fn options() -> FitOptions {
    FitOptions::default().features(64).seed(4).bandwidth(0.5)
}

#[test]
fn traits_give_what_the_models_give() {
    let (train, test) = (records(1, 600), records(2, 90));
    let (plain, queries) = (rows(&train), rows(&test));

    let data = Dataset::new(train.clone(), labels(600));
    let params = KernelClassifier::params().features(64).seed(4).bandwidth(0.5);
    let model = params.fit(&data).unwrap();
    let of = labels(600).to_vec();
    let wanted = favor::learn::KernelClassifier::fit(&options(), plain.view(), &of, None).unwrap();
    assert_eq!(*model.model(), wanted);
    let found = model.predict(&test);
    assert_eq!(found.to_vec(), wanted.predict(queries.view()).unwrap());
    let right = found.iter().zip(&labels(90)).filter(|(f, t)| f == t).count();
    assert!(right > 70, "{right} of 90");
    let proba = model.predict_proba(&test).unwrap();
    assert!(proba.sum_axis(ndarray::Axis(1)).iter().all(|total| (total - 1.0).abs() < 1e-12));

    let targets = numbers(&train);
    let data = Dataset::new(train.clone(), targets.clone());
    let params = KernelRegressor::params().features(64).seed(4).bandwidth(0.5);
    let found = params.fit(&data).unwrap().predict(&test);
    let targets = Matrix::new(targets.to_vec(), 600, 1).unwrap();
    let fit = favor::learn::KernelRegressor::fit;
    let wanted = fit(&options(), plain.view(), targets.view(), None).unwrap();
    assert_eq!(found.to_vec(), wanted.predict(queries.view()).unwrap().into_vec());

    let data = Dataset::from(train);
    let params = KernelDensity::params().features(64).seed(4).bandwidth(0.5);
    let found = params.fit(&data).unwrap().predict(&test);
    let wanted = favor::learn::KernelDensity::fit(&options(), plain.view(), None).unwrap();
    assert_eq!(found.to_vec(), wanted.log_density(queries.view()).unwrap());

    let params = RandomFeatures::params().features(64).seed(4).bandwidth(0.5);
    let found = params.fit(&data).unwrap().transform(test);
    let wanted = favor::learn::RandomFeatures::fit(&options(), plain.view(), None).unwrap();
    assert_eq!(
        found.into_raw_vec_and_offset().0,
        wanted.transform(queries.view()).unwrap().into_vec()
    );
}

/// 32-bit records, any layout of them, and weights.
#[test]
fn records_come_as_they_are() {
    let train = records(1, 300);
    let params = || KernelRegressor::params().features(64).seed(4).bandwidth(0.5);
    let whole = params().fit(&Dataset::new(train.clone(), numbers(&train))).unwrap();
    let column_major = train.t().as_standard_layout().into_owned().reversed_axes();
    let turned = params().fit(&Dataset::new(column_major, numbers(&train))).unwrap();
    assert_eq!(whole, turned);

    let single = train.mapv(|v| v as f32);
    let data = Dataset::new(single.clone(), numbers(&train).mapv(|v| v as f32));
    let params_single = KernelRegressor::params().features(64).seed(4).bandwidth(0.5);
    let found = params_single.fit(&data).unwrap().predict(&single);
    for (f, w) in found.iter().zip(&whole.predict(&train)) {
        assert!((f64::from(*f) - w).abs() < 1e-4, "{f} against {w}");
    }

    // A record of weight 0 is none.
    let weights = Array1::from_shape_fn(300, |i| f32::from(u8::from(i < 200)));
    let data = Dataset::new(train.clone(), numbers(&train)).with_weights(weights);
    let some = train.slice(s![..200, ..]).to_owned();
    let wanted = params().fit(&Dataset::new(some.clone(), numbers(&some))).unwrap();
    let found = params().fit(&data).unwrap();
    for (f, w) in found.predict(&train).iter().zip(&wanted.predict(&train)) {
        assert!((f - w).abs() < 1e-9, "{f} against {w}");
    }
}

#[test]
fn records_are_added_later() {
    let (train, more) = (records(1, 300), records(2, 120));
    let params = KernelClassifier::params().features(32).bandwidth(0.5);
    let first = params.fit(&Dataset::new(train.clone(), labels(300))).unwrap();
    let later = Dataset::new(more.clone(), labels(120));
    let both = params.fit_with(Some(first.clone()), &later).unwrap();
    let mut wanted = first.model().clone();
    wanted.partial_fit(rows(&more).view(), &labels(120).to_vec(), None).unwrap();
    assert_eq!(*both.model(), wanted);
    let begun = params.fit_with(None, &Dataset::new(train, labels(300))).unwrap();
    assert_eq!(begun, first);
}

#[test]
fn parameters_and_records_are_checked() {
    let data = Dataset::new(records(1, 60), labels(60));
    let params = KernelClassifier::<f64, usize>::params;
    for bad in [
        params().features(0),
        params().bandwidth(-1.0),
        params().bandwidth(f64::NAN),
        params().bandwidth(Search::CrossValidation { folds: 1 }),
    ] {
        assert!(matches!(bad.check_ref(), Err(Error::Favor(_))));
        assert!(bad.clone().fit(&data).is_err());
        assert!(bad.check().is_err());
    }
    assert_eq!(params().features(8).check().unwrap().options().features, 8);
    let model = params().features(8).bandwidth(1.0).fit(&data).unwrap();
    assert!(model.try_predict(&Array2::zeros((3, 5))).is_err());
    assert!(model.try_predict(&array![[1.0, f64::NAN]]).is_err());
    let few = Dataset::new(records(1, 5), labels(5));
    assert!(params().fit(&few).unwrap_err().to_string().contains("too few"));
}

#[test]
fn heads_give_what_the_models_give() {
    let (train, test) = (records(1, 600), records(2, 90));
    let (plain, queries) = (rows(&train), rows(&test));
    let options = HeadOptions::default().features(64).seed(4);

    let targets = numbers(&train);
    let data = Dataset::new(train.clone(), targets.clone());
    let params = KernelRidge::params().features(64).seed(4);
    let model = params.clone().fit(&data).unwrap();
    let targets = Matrix::new(targets.to_vec(), 600, 1).unwrap();
    let known = Known::Numbers(targets.view());
    let wanted = HeadModel::fit(&options, plain.view(), known, None, None).unwrap();
    assert_eq!(model.predict(&test).to_vec(), wanted.predict(queries.view()).unwrap().into_vec());
    // Added in two pieces, the design of the first.
    let half = |start: usize, end: usize| {
        let x = train.slice(s![start..end, ..]).to_owned();
        Dataset::new(x.clone(), numbers(&x))
    };
    let narrow = params.clone().bandwidth(2.0);
    let both = narrow.fit_with(None, &half(0, 300)).unwrap();
    let both = narrow.fit_with(Some(both), &half(300, 600)).unwrap();
    assert_eq!(both.model().sums().rows(), 600);
    let error = params.fit(&data).unwrap().predict_with_deviation(&test);
    assert!(error.unwrap_err().to_string().contains("fit a Gaussian process"));

    let data = Dataset::new(train, labels(600));
    for params in [RidgeClassifier::params(), RidgeClassifier::logistic()] {
        let model = params.features(64).seed(4).fit(&data).unwrap();
        assert_eq!(model.labels(), [0, 10, 20]);
        let right = model.predict(&test).iter().zip(&labels(90)).filter(|(f, t)| f == t).count();
        assert!(right > 70, "{right} of 90");
        let proba = model.predict_proba(&test).unwrap();
        assert!(proba.sum_axis(ndarray::Axis(1)).iter().all(|total| (total - 1.0).abs() < 1e-12));
    }
    let params = RidgeClassifier::<f64, usize>::params;
    assert!(params().bandwidth(-1.0).check().is_err() && params().penalty(-1.0).check().is_err());
    assert!(params().penalty(0.0).check().is_ok() && params().folds(0).check().is_err());
    assert!(params().bandwidth(-1.0).bandwidth(None).check().is_ok());
}
