//! Sound: files, resampling, features and augmentation.

mod augment;
mod features;
mod file;
mod front;
mod mel;
mod resample;

pub use augment::Augment;
pub use features::Features;
pub use file::{Sound, read_sound};
pub use front::{FrontEnd, Recording};
pub use mel::LogMel;
pub use resample::resample;
