//! A GPU that does nothing until somebody waits for it, so that a stage that takes a result too
//! early, or gives a buffer back too early, is found out.
#![allow(unsafe_code)] // implements traits with unsafe functions; nothing here is unsafe itself

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::rc::Rc;

use tensorwire_core::port::{Event, StageError};
use tensorwire_onnx::Dim;

use crate::gpu::{BatchMemory, Gpu, RawStream};
use crate::runtime::{Context, RuntimeError, RuntimeFault};

pub(crate) const IMAGE_BYTES: u64 = 3 * 16 * 16 * 2;
pub(crate) const BATCH: u32 = 8;
pub(crate) const BUFFERS: u16 = 3;
pub(crate) const FEATURES: usize = 8;
const BASE: u64 = 0x1_0000;
const STRIDE: u64 = IMAGE_BYTES * BATCH as u64;
const ROWS: u64 = 0x100_0000;

pub(super) fn open_or_fixed(dim: &Dim) -> i64 {
    match dim {
        Dim::Fixed(n) => i64::try_from(*n).expect("a small number"),
        _ => -1,
    }
}

/// The calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Event,
    Rows,
    WaitFor,
    CopyOut,
    Record,
    Done,
    Wait,
    Synchronize,
    BeginCapture,
    EndCapture,
    Launch,
    Context,
    SetShape,
    SetAddress,
    Enqueue,
    Enter,
    Fill,
    CopyIn,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    WaitFor(u64),
    Infer {
        input: u64,
        run: u32,
        features: u64,
    },
    Copy {
        rows: usize,
        values: usize,
    },
    /// From the host, in an eighth of a millisecond.
    Load {
        rows: usize,
        values: usize,
    },
    Record(usize),
}

#[derive(Debug)]
struct Inner {
    /// One queue for each stream.
    queues: Vec<VecDeque<Work>>,
    capture: Option<(usize, Vec<Work>)>,
    reached: Vec<bool>,
    /// For each set of rows what the device and what the host has.
    rows: Vec<(Vec<f32>, Vec<f32>)>,
    /// What each batch buffer holds.
    contents: [f32; BUFFERS as usize],
    fail: Option<(Kind, u32, StageError)>,
    /// What fails after that.
    then: Option<Kind>,
    counts: [u64; 19],
    /// How often the GPU is entered just now.
    entered: u32,
    polls: u32,
    /// Reorder events that a stream waited for, in the order of execution.
    awaited: Vec<u64>,
    /// Milliseconds since the start: an inference takes 1, and an eighth for each image.
    clock: f64,
    /// When each event came.
    times: Vec<f64>,
}

/// What runtime, contexts, GPU and test share.
#[derive(Clone, Debug)]
pub(crate) struct World(Rc<RefCell<Inner>>);

impl Default for World {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(Inner {
            queues: Vec::new(),
            capture: None,
            reached: Vec::new(),
            rows: Vec::new(),
            contents: [0.0; BUFFERS as usize],
            fail: None,
            then: None,
            counts: [0; 19],
            entered: 0,
            polls: 0,
            awaited: Vec::with_capacity(1 << 16),
            clock: 0.0,
            times: Vec::new(),
        })))
    }
}

impl World {
    /// The call of this kind after `skip` more fails.
    pub(crate) fn fail(&self, kind: Kind, skip: u32, fatal: bool) {
        let error = StageError { call: "a call of the test", code: 77, fatal };
        self.0.borrow_mut().fail = Some((kind, skip, error));
    }

    /// After the failure that was asked for, the next call of this kind fails too.
    pub(crate) fn then_fail(&self, kind: Kind) {
        self.0.borrow_mut().then = Some(kind);
    }

    pub(crate) fn heal(&self) {
        self.0.borrow_mut().fail = None;
    }

    /// Whether the failure that was asked for has happened.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.borrow().fail.is_none()
    }

    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.0.borrow().counts[kind as usize]
    }

    pub(crate) fn fill(&self, buffer: u16, value: f32) {
        self.0.borrow_mut().contents[usize::from(buffer)] = value;
    }

    /// The next polls say "not yet".
    pub(crate) fn not_yet(&self, polls: u32) {
        self.0.borrow_mut().polls = polls;
    }

    pub(crate) fn awaited(&self) -> Vec<u64> {
        self.0.borrow().awaited.clone()
    }

    /// Whether an inference that is still to be done reads the buffer.
    pub(crate) fn reads(&self, buffer: u16) -> bool {
        let range = BASE + u64::from(buffer) * STRIDE..BASE + u64::from(buffer + 1) * STRIDE;
        let reads =
            |work: &Work| matches!(work, Work::Infer { input, .. } if range.contains(input));
        self.0.borrow().queues.iter().flatten().any(reads)
    }

    pub(super) fn context(&self) -> Result<FakeContext, RuntimeError> {
        self.call(Kind::Context).map_err(|error| RuntimeError {
            fault: RuntimeFault::Other(error.code),
            text: "no memory for a context".into(),
        })?;
        let world = self.clone();
        Ok(FakeContext {
            world,
            run: 0,
            input: 0,
            features: 0,
            ran: false,
            failed: false,
            synced: false,
        })
    }

    fn call(&self, kind: Kind) -> Result<(), StageError> {
        let inner = &mut *self.0.borrow_mut();
        inner.counts[kind as usize] += 1;
        match &mut inner.fail {
            Some((wanted, skip, error)) if *wanted == kind => {
                if *skip > 0 {
                    *skip -= 1;
                    return Ok(());
                }
                let error = *error;
                inner.fail = inner.then.take().map(|kind| (kind, 0, error));
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn push(&self, stream: usize, work: Work) {
        let inner = &mut *self.0.borrow_mut();
        match &mut inner.capture {
            Some((captured, list)) if *captured == stream => list.push(work),
            _ => inner.queues[stream].push_back(work),
        }
    }

    /// Does the work of a stream, up to the record of an event or all of it.
    fn run(&self, stream: usize, until: Option<usize>) {
        let inner = &mut *self.0.borrow_mut();
        while let Some(work) = inner.queues[stream].pop_front() {
            match work {
                Work::WaitFor(event) => inner.awaited.push(event),
                Work::Infer { input, run, features } => inner.infer(input, run, features),
                Work::Copy { rows, values } => {
                    let (device, host) = &mut inner.rows[rows];
                    host[..values].copy_from_slice(&device[..values]);
                    inner.clock += 0.0625;
                }
                Work::Load { rows, values } => {
                    let (device, host) = &mut inner.rows[rows];
                    device[..values].copy_from_slice(&host[..values]);
                    inner.clock += 0.125;
                }
                Work::Record(event) => {
                    inner.reached[event] = true;
                    inner.times[event] = inner.clock;
                    if until == Some(event) {
                        return;
                    }
                }
            }
        }
    }
}

impl Inner {
    /// Every feature of an image is what its buffer holds plus the image's place in it.
    fn infer(&mut self, input: u64, run: u32, features: u64) {
        self.clock += 1.0 + f64::from(run) / 8.0;
        if input >= ROWS {
            // A measurement or a dump, over memory of its own: every feature is the first value.
            let of = |address: u64| usize::try_from((address - ROWS) / 0x1_0000).expect("rows");
            let first = self.rows[of(input)].0[0];
            self.rows[of(features)].0.fill(first);
            return;
        }
        let buffer = usize::try_from((input - BASE) / STRIDE).expect("a buffer");
        let first = (input - BASE) % STRIDE / IMAGE_BYTES;
        let rows = usize::try_from((features - ROWS) / 0x1_0000).expect("rows");
        for image in 0..run {
            let place = u16::try_from(first + u64::from(image)).expect("a few images");
            let row = image as usize * FEATURES..(image as usize + 1) * FEATURES;
            self.rows[rows].0[row].fill(self.contents[buffer] + f32::from(place));
        }
    }
}

/// A context of the tests.
#[derive(Debug)]
pub(crate) struct FakeContext {
    world: World,
    run: u32,
    input: u64,
    features: u64,
    /// It has run once, as the real one must before it is recorded.
    ran: bool,
    failed: bool,
    synced: bool,
}

impl FakeContext {
    fn call(&mut self, kind: Kind) -> Result<(), StageError> {
        let entered = self.world.0.borrow().entered;
        assert!(entered > 0, "{kind:?}: TensorRT would work on whichever GPU comes first");
        let result = self.world.call(kind);
        self.failed = result.is_err();
        result
    }
}

impl Context for FakeContext {
    fn set_shape(&mut self, input: &CStr, shape: &[i64]) -> Result<(), StageError> {
        self.call(Kind::SetShape)?;
        assert_eq!((input, &shape[1..]), (c"input", &[3, 16, 16][..]));
        self.run = u32::try_from(shape[0]).expect("a few images");
        Ok(())
    }

    fn set_address(&mut self, tensor: &CStr, address: u64) -> Result<(), StageError> {
        self.call(Kind::SetAddress)?;
        let place = if tensor == c"input" { &mut self.input } else { &mut self.features };
        *place = address;
        Ok(())
    }

    unsafe fn enqueue(&mut self, stream: RawStream) -> Result<(), StageError> {
        let stream = stream.0 as usize;
        let capturing = self.world.0.borrow().capture.is_some();
        assert!(self.ran || !capturing, "recorded before it ran");
        self.ran = true;
        let Self { run, input, features, .. } = *self;
        self.world.push(stream, Work::Infer { input, run, features });
        // After the push: a call may fail when part of it is under way.
        self.call(Kind::Enqueue)
    }

    fn debug_sync(&mut self, on: bool) {
        self.synced = on;
    }

    unsafe fn profile(
        &mut self,
        stream: RawStream,
        layer: &mut dyn FnMut(&str, f32),
    ) -> Result<(), StageError> {
        // SAFETY: as for `enqueue`, of which nothing is asked here.
        unsafe { self.enqueue(stream)? };
        layer("Reformatting CopyNode for Input 0", 0.125);
        layer("conv1 + relu", 0.5);
        layer("fc", 0.25);
        Ok(())
    }

    fn last_error(&self) -> &'static str {
        match (self.failed, self.synced) {
            (false, _) => "",
            (true, false) => "what the library says",
            (true, true) => "layer fc: what the library says",
        }
    }
}

/// The batch buffers of the tests.
#[derive(Debug)]
pub(crate) struct FakeMemory {
    pub(crate) bytes: usize,
    pub(crate) shift: u64,
}

impl Default for FakeMemory {
    fn default() -> Self {
        Self { bytes: usize::try_from(STRIDE).expect("it is small"), shift: 0 }
    }
}

// SAFETY: no GPU follows these addresses.
unsafe impl BatchMemory for FakeMemory {
    fn buffers(&self) -> u16 {
        BUFFERS
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn address(&self, buffer: u16) -> Option<u64> {
        (buffer < BUFFERS).then(|| BASE + u64::from(buffer) * STRIDE + self.shift)
    }
}

/// The GPU of the tests.
#[derive(Debug)]
pub(crate) struct FakeGpu(pub(crate) World);

impl FakeGpu {
    /// The stream in whose queue an event is recorded.
    fn stream_of(&self, event: usize) -> Option<usize> {
        let has = |queue: &VecDeque<Work>| queue.contains(&Work::Record(event));
        self.0.0.borrow().queues.iter().position(has)
    }
}

/// The GPU is entered as long as this lives.
#[derive(Debug)]
pub(crate) struct FakeEntered(World);

impl Drop for FakeEntered {
    fn drop(&mut self) {
        self.0.0.borrow_mut().entered -= 1;
    }
}

impl Gpu for FakeGpu {
    type Entered = FakeEntered;

    type Stream = usize;
    type Event = usize;
    type Graph = Vec<Recorded>;
    type Rows = usize;

    fn enter(&self) -> Result<FakeEntered, StageError> {
        self.0.call(Kind::Enter)?;
        self.0.0.borrow_mut().entered += 1;
        Ok(FakeEntered(self.0.clone()))
    }

    fn stream(&mut self) -> Result<usize, StageError> {
        self.0.call(Kind::Stream)?;
        let queues = &mut self.0.0.borrow_mut().queues;
        queues.push(VecDeque::with_capacity(64));
        Ok(queues.len() - 1)
    }

    fn raw(&self, stream: &usize) -> RawStream {
        RawStream(std::ptr::without_provenance_mut(*stream))
    }

    fn event(&mut self) -> Result<usize, StageError> {
        self.0.call(Kind::Event)?;
        let inner = &mut *self.0.0.borrow_mut();
        inner.reached.push(true);
        inner.times.push(f64::NAN);
        Ok(inner.reached.len() - 1)
    }

    fn timed_event(&mut self) -> Result<usize, StageError> {
        self.event()
    }

    fn milliseconds(&mut self, from: &usize, to: &usize) -> Result<f64, StageError> {
        let inner = self.0.0.borrow();
        Ok(inner.times[*to] - inner.times[*from])
    }

    fn rows(&mut self, values: usize) -> Result<usize, StageError> {
        self.0.call(Kind::Rows)?;
        let rows = &mut self.0.0.borrow_mut().rows;
        rows.push((vec![-1.0; values], vec![-1.0; values]));
        Ok(rows.len() - 1)
    }

    fn fill(&mut self, rows: &mut usize, bytes: &[u8]) -> Result<(), StageError> {
        self.0.call(Kind::Fill)?;
        let values = &mut self.0.0.borrow_mut().rows[*rows].0;
        for (value, four) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_ne_bytes(*four);
        }
        Ok(())
    }

    fn device_address(&self, rows: &usize) -> u64 {
        ROWS + 0x1_0000 * *rows as u64
    }

    unsafe fn host<'a>(&self, rows: &'a usize) -> &'a [f32] {
        let values: *const [f32] = &raw const *self.0.0.borrow().rows[*rows].1;
        // SAFETY: the rows live as long as the world, of which the stage has one; they are written
        // by `run` alone, which the caller promises not to need as long as the slice lives.
        unsafe { &*values }
    }

    fn wait_for(&mut self, stream: &usize, ready: Event) -> Result<(), StageError> {
        self.0.call(Kind::WaitFor)?;
        self.0.push(*stream, Work::WaitFor(ready.0));
        Ok(())
    }

    unsafe fn copy_in(
        &mut self,
        stream: &usize,
        rows: &mut usize,
        values: usize,
    ) -> Result<(), StageError> {
        self.0.call(Kind::CopyIn)?;
        self.0.push(*stream, Work::Load { rows: *rows, values });
        Ok(())
    }

    unsafe fn copy_out(
        &mut self,
        stream: &usize,
        rows: &mut usize,
        values: usize,
    ) -> Result<(), StageError> {
        self.0.call(Kind::CopyOut)?;
        self.0.push(*stream, Work::Copy { rows: *rows, values });
        Ok(())
    }

    fn record(&mut self, stream: &usize, event: &usize) -> Result<(), StageError> {
        self.0.call(Kind::Record)?;
        self.0.0.borrow_mut().reached[*event] = false;
        self.0.push(*stream, Work::Record(*event));
        Ok(())
    }

    fn done(&mut self, event: &usize) -> Result<bool, StageError> {
        self.0.call(Kind::Done)?;
        let polls = self.0.0.borrow().polls;
        self.0.0.borrow_mut().polls = polls.saturating_sub(1);
        if polls == 0
            && let Some(stream) = self.stream_of(*event)
        {
            self.0.run(stream, Some(*event));
        }
        Ok(self.0.0.borrow().reached[*event])
    }

    fn wait(&mut self, event: &usize) -> Result<(), StageError> {
        self.0.call(Kind::Wait)?;
        if let Some(stream) = self.stream_of(*event) {
            self.0.run(stream, Some(*event));
        }
        assert!(self.0.0.borrow().reached[*event], "an event that never comes");
        Ok(())
    }

    fn synchronize(&mut self, stream: &usize) -> Result<(), StageError> {
        self.0.call(Kind::Synchronize)?;
        self.0.run(*stream, None);
        Ok(())
    }

    fn begin_capture(&mut self, stream: &usize) -> Result<(), StageError> {
        self.0.call(Kind::BeginCapture)?;
        self.0.0.borrow_mut().capture = Some((*stream, Vec::new()));
        Ok(())
    }

    fn end_capture(&mut self, _: &usize) -> Result<Vec<Recorded>, StageError> {
        let captured = self.0.0.borrow_mut().capture.take();
        self.0.call(Kind::EndCapture)?;
        let (_, list) = captured.expect("a recording was begun");
        Ok(list.into_iter().map(Recorded).collect())
    }

    unsafe fn launch(&mut self, stream: &usize, graph: &Vec<Recorded>) -> Result<(), StageError> {
        for work in graph {
            self.0.push(*stream, work.0);
        }
        self.0.call(Kind::Launch)
    }
}

/// A step of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded(Work);
