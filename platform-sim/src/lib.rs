//! Software NIC and CPU stages.
