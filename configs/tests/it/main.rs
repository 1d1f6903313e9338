//! What the configuration reader promises, through its public functions.

mod cases;
mod cases_app;
mod corpus;
mod device;
mod docs;
mod mutants;
mod mutations;
mod output;
mod robustness;
mod rules;
mod shipped;
mod socket;
mod statics;
mod support;
mod types;
