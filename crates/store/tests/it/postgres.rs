//! What is PostgreSQL's alone.
