//! What TensorRT calls: Rust behind C functions, from which no panic comes out.
#![allow(unsafe_code)] // pointers that the library hands back

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::LogSink;
use crate::runtime::BuildStep;

/// The text behind a pointer of the library.
fn text<'a>(pointer: *const c_char) -> std::borrow::Cow<'a, str> {
    if pointer.is_null() {
        return "".into();
    }
    // SAFETY: the shim passes strings of the library on, which end with 0 and live during the call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
}

/// A message of the library; `user` is a [`LogSink`].
pub(super) unsafe extern "C" fn log(user: *mut c_void, severity: i32, message: *const c_char) {
    // SAFETY: `user` is the box that `ShimRuntime::open` gave with this function; it is dropped
    // after the library is closed.
    let sink = unsafe { &*user.cast::<LogSink>() };
    // A message that cannot be taken is dropped: the library's threads have nowhere to unwind to.
    let _: Result<(), Box<dyn Any + Send>> =
        catch_unwind(AssertUnwindSafe(|| sink(severity, &text(message))));
}

/// What a build tells of its steps to.
pub(super) struct Watcher<'a> {
    /// The caller's function.
    pub(super) progress: &'a mut dyn FnMut(BuildStep<'_>) -> bool,
    /// What the caller's function panicked with; raised again when the build has ended.
    pub(super) panic: Option<Box<dyn Any + Send>>,
}

/// A step of a build; `user` is a [`Watcher`]. 0 stops the build.
pub(super) unsafe extern "C" fn progress(
    user: *mut c_void,
    phase: *const c_char,
    step: i32,
    steps: i32,
) -> i32 {
    // SAFETY: `user` is the watcher that `ShimRuntime::build` lends during the call of the shim,
    // which makes these calls one at a time.
    let watcher = unsafe { &mut *user.cast::<Watcher<'_>>() };
    let (step, steps) = (u32::try_from(step).unwrap_or(0), u32::try_from(steps).unwrap_or(0));
    let phase = text(phase);
    let told = catch_unwind(AssertUnwindSafe(|| {
        (watcher.progress)(BuildStep { phase: &phase, step, steps })
    }));
    match told {
        Ok(go_on) => i32::from(go_on),
        Err(panic) => {
            watcher.panic = Some(panic);
            0
        }
    }
}

/// What the times of layers are told to.
pub(super) struct Layers<'a> {
    /// The caller's function.
    pub(super) layer: &'a mut dyn FnMut(&str, f32),
    /// What the caller's function panicked with; raised again when the inference has ended.
    pub(super) panic: Option<Box<dyn Any + Send>>,
}

/// The time of a layer; `user` is a [`Layers`].
pub(super) unsafe extern "C" fn layer(user: *mut c_void, name: *const c_char, milliseconds: f32) {
    // SAFETY: `user` is the listener that `ShimContext::profile` lends during one enqueue, which
    // makes these calls one at a time.
    let listener = unsafe { &mut *user.cast::<Layers<'_>>() };
    let name = text(name);
    let told = catch_unwind(AssertUnwindSafe(|| (listener.layer)(&name, milliseconds)));
    if let Err(panic) = told {
        listener.panic = Some(panic);
    }
}
