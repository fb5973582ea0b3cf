//! The operator among an API server and a CA that are played here, with a clock that the tests wind: for the tables of
//! pauses, and for an end after every single write. The real ones are in the tests of the binary.

mod authorities;
mod certificates;
mod crash;
mod played_api;
mod played_ca;
mod world;
