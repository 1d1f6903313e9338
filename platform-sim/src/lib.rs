//! Software NIC and CPU stages.

pub mod pool;
