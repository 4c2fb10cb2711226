//! The rules of the store against a real Postgres. Each test has its own database.

mod access;
mod answers;
mod held;
mod pausing;
mod place;
mod queue;
mod race;
mod rules;
mod sql;
