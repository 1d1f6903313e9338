//! What holds with and without TensorRT on the machine.

use super::{Libraries, ShimRuntime};
use crate::runtime::RuntimeFault;

#[test]
fn e11_without_tensorrt_there_is_one_sentence() {
    let nowhere =
        Libraries { tensorrt: Some(c"/nonexistent/libnvinfer.so".to_owned()), parser: None };
    let error = ShimRuntime::open(&nowhere, Box::new(|_, _| {})).expect_err("there is none");
    assert_eq!(error.fault, RuntimeFault::Unavailable);
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text}");
    let names_it = text.contains("/nonexistent/libnvinfer.so cannot be loaded");
    assert!(names_it || text.starts_with("this program has no TensorRT: "), "{text}");
}

#[test]
fn the_user_may_name_the_libraries() {
    let named =
        |name: &str| (name == "TENSORWIRE_TENSORRT").then(|| "/opt/libnvinfer.so.10".into());
    let libraries = Libraries::of_user(named);
    assert_eq!(libraries.tensorrt.as_deref(), Some(c"/opt/libnvinfer.so.10"));
    assert_eq!(libraries.parser, None);
}

/// A library that is not TensorRT is refused by the symbol it lacks.
#[cfg(has_tensorrt)]
#[test]
fn another_library_is_refused_by_name() {
    let libc = Libraries { tensorrt: Some(c"libc.so.6".to_owned()), parser: None };
    let error = ShimRuntime::open(&libc, Box::new(|_, _| {})).expect_err("it is libc");
    assert_eq!(error.to_string(), "libc.so.6 has no symbol getInferLibVersion");
    assert_eq!(error.fault, RuntimeFault::Unavailable);
}
