//! The number formats that data may come in.

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A number format of the caller's data: `f32` or `f64`.
pub trait Element:
    sealed::Sealed + Copy + Default + Send + Sync + PartialEq + std::fmt::Debug + 'static
{
    /// The name used in messages.
    const NAME: &'static str;
    /// The nearest `f64`, exactly.
    fn to_f64(self) -> f64;
    /// The nearest number of this format.
    fn from_f64(value: f64) -> Self;
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool;
}

impl Element for f32 {
    const NAME: &'static str = "f32";
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Element for f64 {
    const NAME: &'static str = "f64";
    fn to_f64(self) -> f64 {
        self
    }
    fn from_f64(value: f64) -> Self {
        value
    }
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}
