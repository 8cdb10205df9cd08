//! Input files, figures and experiments.
