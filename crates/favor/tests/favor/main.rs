//! The tests of the library, in one program: what they share is compiled once.

mod attention;
mod common;
mod conformance;
mod draw;
mod engine;
mod fuzz;
mod golden;
mod heads;
mod hostile;
mod hybrid;
mod kernel;
mod learn;
mod learned;
mod magnitudes;
mod map_gradients;
mod maps;
mod moments;
mod optimality;
mod orderings;
mod predictions;
mod products;
mod storage;
mod streams;
mod threads;
mod training;
