//! The reading of requests against the zoo, what we encode against OpenSSL, and both against chance.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod authority;
mod carriers;
mod facts;
mod judged;
mod masking;
mod mutations;
mod openssl;
mod round_trip;
mod zoo;
