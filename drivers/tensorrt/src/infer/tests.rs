//! The stage over a GPU that does nothing until it must.

use std::sync::{Arc, Mutex};

use allocation_counter::measure;
use tensorwire_core::burst::{Burst, BurstPool, InFlight};
use tensorwire_onnx::{ElemType, Profile};

use super::*;
use crate::fake::gpu::{BATCH, BUFFERS, FEATURES, FakeContext, FakeGpu, FakeMemory, Kind, World};
use crate::fake::models::model;
use crate::fake::runtime::{FakeEngine, FakeRuntime};
use crate::runtime::Runtime;

type Stage = TrtInfer<FakeContext, FakeGpu, FakeMemory>;

/// A stage and the buffers that it reads.
struct Bench {
    stage: Stage,
    world: World,
    buffers: Vec<Burst<InFlight>>,
    notes: Arc<Mutex<Vec<String>>>,
    next: u64,
}

/// How a bench is made.
#[derive(Clone, Copy)]
struct Setup {
    full: u32,
    least: u32,
    graphs: bool,
    dual: bool,
}

const PLAIN: Setup = Setup { full: BATCH, least: 1, graphs: false, dual: false };

const ALL: [Setup; 4] = [
    PLAIN,
    Setup { graphs: true, ..PLAIN },
    Setup { dual: true, ..PLAIN },
    Setup { graphs: true, dual: true, ..PLAIN },
];

fn engine(world: &World) -> FakeEngine {
    let mut runtime = FakeRuntime::new([8, 6, 0], 90);
    runtime.world = world.clone();
    let plan = runtime.plan(&model(-1, ""), Some(Profile { min: 1, opt: 4, max: BATCH }));
    runtime.load(&plan).expect("its own plan")
}

fn plan(setup: Setup) -> tensorwire_onnx::IoPlan {
    tensorwire_onnx::IoPlan {
        input_name: "input".into(),
        input_type: ElemType::Fp16,
        image: [3, 16, 16],
        output_name: "features".into(),
        feature_dim: FEATURES,
        logits: None,
        max_images: setup.full as usize,
        min_images: setup.least as usize,
        fixed_batch: false,
    }
}

fn start(setup: Setup, world: &World, memory: FakeMemory) -> Result<Bench, StartError> {
    let mut pool = BurstPool::new(usize::from(BUFFERS)).expect("a few buffers");
    let notes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&notes);
    let options = InferOptions {
        images_per_batch: BATCH,
        pool: pool.id(),
        graphs: setup.graphs,
        dual_context: setup.dual,
    };
    let say: Say = Box::new(move |note| kept.lock().expect("one thread").push(note.to_string()));
    let gpu = FakeGpu(world.clone());
    let stage = TrtInfer::new(&engine(world), &plan(setup), gpu, memory, &options, say)?;
    let take = |_| pool.take().expect("a buffer").begin().seal().submit();
    let buffers = (0..BUFFERS).map(take).collect();
    Ok(Bench { stage, world: world.clone(), buffers, notes, next: 0 })
}

impl Bench {
    fn new(setup: Setup) -> Self {
        start(setup, &World::default(), FakeMemory::default()).expect("a stage")
    }

    fn submit_part(&mut self, buffer: u16, first: u32, images: u32) -> Result<(), StageError> {
        let ticket = Ticket(self.next);
        let ready = Event(u64::from(buffer) + 1);
        let input = &self.buffers[usize::from(buffer)];
        self.stage.submit(ticket, input, first, images, ready)?;
        self.next += 1;
        Ok(())
    }

    fn submit(&mut self, buffer: u16) -> Result<(), StageError> {
        self.submit_part(buffer, 0, BATCH)
    }

    /// Submits a buffer that holds `value`.
    fn feed(&mut self, buffer: u16, value: f32) {
        self.world.fill(buffer, value);
        self.submit(buffer).expect("it is submitted");
    }
}

/// The ticket and the first feature of each row.
fn rows(ticket: Ticket, outputs: Outputs<'_>) -> (u64, Vec<f32>) {
    assert_eq!((outputs.feature_dim, outputs.classes), (FEATURES, 0));
    let rows = outputs.features.chunks_exact(FEATURES);
    (ticket.0, rows.map(|row| row[0]).collect())
}

/// What a batch that holds `value` gives.
fn of(ticket: u64, value: f32) -> (u64, Vec<f32>) {
    (ticket, (0..8u8).map(|place| value + f32::from(place)).collect())
}

#[test]
pub(crate) fn results_come_one_submission_late_in_order_and_whole() {
    for setup in ALL {
        let mut bench = Bench::new(setup);
        assert!(bench.stage.take_previous(rows).is_none());
        bench.feed(0, 100.0);
        assert!(bench.stage.take_previous(rows).is_none(), "only the newest is pending");
        for round in 1..20u16 {
            let buffer = round % BUFFERS;
            bench.feed(buffer, 100.0 * f32::from(round + 1));
            let result = bench.stage.take_previous(rows).expect("one is due").expect("it is well");
            assert_eq!(result, of(u64::from(round - 1), 100.0 * f32::from(round)));
            let before = (round - 1) % BUFFERS;
            assert!(!bench.world.reads(before), "reported, and still read");
        }
        let last = bench.stage.drain(rows).expect("the last").expect("it is well");
        assert_eq!(last, of(19, 2000.0));
        assert!(bench.stage.drain(rows).is_none());
        assert!(bench.stage.poll_idle(rows).is_none());
        // Each submission waited for its own reorder.
        let awaited: Vec<u64> = (0..20).map(|round| round % u64::from(BUFFERS) + 1).collect();
        assert_eq!(bench.world.awaited(), awaited);
    }
}

#[test]
pub(crate) fn an_idle_stage_gives_its_last_result_without_waiting() {
    for setup in ALL {
        let mut bench = Bench::new(setup);
        bench.feed(1, 10.0);
        bench.world.not_yet(3);
        let waits = bench.world.count(Kind::Wait) + bench.world.count(Kind::Synchronize);
        for _ in 0..3 {
            assert!(bench.stage.poll_idle(rows).is_none(), "not yet");
        }
        let result = bench.stage.poll_idle(rows).expect("now").expect("it is well");
        assert_eq!(result, of(0, 10.0));
        let after = bench.world.count(Kind::Wait) + bench.world.count(Kind::Synchronize);
        assert_eq!(after, waits, "a poll waits for nothing");
    }
}

#[test]
pub(crate) fn graphs_are_recorded_at_start_and_replayed() {
    for (setup, parts) in [
        (Setup { graphs: true, ..PLAIN }, 1),
        (Setup { graphs: true, full: 2, dual: true, ..PLAIN }, 4),
    ] {
        let mut bench = Bench::new(setup);
        let recorded = 2 * usize::from(BUFFERS) * parts;
        assert_eq!(bench.stage.graphs(), recorded, "rows × buffers × parts");
        let (enqueued, launched) = (bench.world.count(Kind::Enqueue), recorded as u64);
        assert_eq!(bench.world.count(Kind::Launch), launched, "each once, before a batch comes");
        for buffer in 0..BUFFERS {
            for part in 0..u32::try_from(parts).expect("a few") {
                bench.world.fill(buffer, 1000.0 * f32::from(buffer));
                let first = part * setup.full;
                bench.submit_part(buffer, first, setup.full).expect("it is submitted");
                let (_, got) = bench.stage.drain(rows).expect("one").expect("it is well");
                let place = f32::from(u16::try_from(first).expect("small"));
                assert_eq!(got[0], 1000.0 * f32::from(buffer) + place, "{buffer} {part}");
            }
        }
        let replayed = u64::from(BUFFERS) * parts as u64;
        assert_eq!(bench.world.count(Kind::Launch), launched + replayed);
        assert_eq!(bench.world.count(Kind::Enqueue), enqueued, "nothing goes call by call");
        assert_eq!(bench.world.count(Kind::BeginCapture), recorded as u64, "none in the loop");
    }
}

#[test]
pub(crate) fn another_size_is_launched_singly_and_that_is_said_once() {
    let mut bench = Bench::new(Setup { graphs: true, ..PLAIN });
    for images in [3, 5, 3, 8, 1] {
        bench.world.fill(0, 50.0);
        bench.submit_part(0, 0, images).expect("it is submitted");
        let (_, got) = bench.stage.drain(rows).expect("one").expect("it is well");
        assert_eq!(got.len(), images as usize);
        assert_eq!(got[0], 50.0);
    }
    let notes = bench.notes.lock().expect("one thread").clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("an inference of 3 images has no CUDA graph"), "{notes:?}");
}

#[test]
pub(crate) fn fewer_images_than_the_engine_takes_are_padded() {
    let mut bench = Bench::new(Setup { least: 4, ..PLAIN });
    bench.world.fill(2, 30.0);
    bench.submit_part(2, 4, 1).expect("padded with images 5 to 7");
    let (_, got) = bench.stage.drain(rows).expect("one").expect("it is well");
    assert_eq!(got, [34.0]);
    let error = bench.submit_part(2, 6, 1).expect_err("two images are left, four are needed");
    assert_eq!(error.call, "choice of the images");
}

#[test]
pub(crate) fn what_lies_outside_is_refused_before_anything_is_enqueued() {
    let mut bench = Bench::new(PLAIN);
    let enqueued = bench.world.count(Kind::Enqueue);
    for (first, images) in [(0, 0), (0, 9), (1, 8), (8, 1), (u32::MAX, 2)] {
        let error = bench.submit_part(0, first, images).expect_err("outside");
        assert_eq!((error.call, error.fatal), ("choice of the images", true), "{first} {images}");
    }
    let mut other = BurstPool::new(1).expect("a buffer");
    let foreign = other.take().expect("a buffer").begin().seal().submit();
    let error = bench.stage.submit(Ticket(0), &foreign, 0, BATCH, Event::DONE);
    assert_eq!(error.expect_err("of another pool").call, "choice of the batch buffer");
    assert_eq!(bench.world.count(Kind::Enqueue), enqueued);
    bench.submit(0).expect("the first");
    bench.submit(1).expect("the second");
    let error = bench.submit(2).expect_err("a third");
    assert_eq!((error.call, error.fatal), ("submission of a third inference", false));
}

#[test]
pub(crate) fn a_call_that_fails_leaves_nothing_that_reads_the_buffer() {
    let calls =
        [Kind::WaitFor, Kind::SetAddress, Kind::Enqueue, Kind::CopyOut, Kind::Record, Kind::Launch];
    for setup in ALL {
        for kind in calls {
            let mut bench = Bench::new(setup);
            bench.feed(0, 1.0);
            bench.world.fail(kind, 0, false);
            let result = bench.submit(1);
            if !bench.world.has_failed() {
                // This way of launching makes no such call.
                assert!(result.is_ok());
                bench.world.heal();
                continue;
            }
            let error = result.expect_err("the call failed");
            assert_eq!((error.code, error.fatal), (77, false), "{kind:?}");
            assert!(!bench.world.reads(1), "{kind:?}: refused, and still read");
            // The one before stays pending and is delivered by the next success.
            bench.feed(2, 3.0);
            let first = bench.stage.take_previous(rows).expect("pending").expect("it is well");
            assert_eq!(first, of(0, 1.0), "{kind:?}");
            let second = bench.stage.drain(rows).expect("pending").expect("it is well");
            assert_eq!(second, of(1, 3.0), "{kind:?}");
        }
    }
}

#[test]
pub(crate) fn a_shape_that_is_refused_is_set_again() {
    let mut bench = Bench::new(PLAIN);
    bench.world.fail(Kind::SetShape, 0, false);
    bench.submit_part(0, 0, 3).expect_err("refused");
    assert_eq!(bench.stage.last_error(), "what the library says");
    bench.world.fill(0, 5.0);
    let set = bench.world.count(Kind::SetShape);
    bench.submit_part(0, 0, 3).expect("taken");
    assert_eq!(bench.world.count(Kind::SetShape), set + 1, "the context still has the old one");
    let (_, got) = bench.stage.drain(rows).expect("one").expect("it is well");
    assert_eq!(got, [5.0, 6.0, 7.0]);
}

#[test]
pub(crate) fn when_even_the_wait_fails_the_gpu_is_lost() {
    let mut bench = Bench::new(PLAIN);
    bench.world.fail(Kind::Enqueue, 0, false);
    // And so does the wait that follows.
    bench.world.then_fail(Kind::Synchronize);
    let error = bench.submit(0).expect_err("both fail");
    assert!(error.fatal, "{error}");
}

#[test]
pub(crate) fn an_inference_that_fails_on_the_device_is_reported_under_its_turn() {
    for setup in ALL {
        for kind in [Kind::Wait, Kind::Done] {
            let mut bench = Bench::new(setup);
            bench.feed(0, 1.0);
            bench.feed(1, 2.0);
            bench.world.fail(kind, 0, true);
            let result = match kind {
                Kind::Wait => bench.stage.take_previous(rows),
                _ => bench.stage.poll_idle(rows),
            };
            let error = result.expect("it is due").expect_err("it failed");
            assert!(error.fatal);
            assert!(!bench.world.reads(0), "reported, and still read");
            let next = bench.stage.drain(rows).expect("the next one").expect("it is well");
            assert_eq!(next, of(1, 2.0));
        }
    }
}

#[test]
pub(crate) fn every_call_of_the_start_may_fail() {
    let setup = Setup { graphs: true, dual: true, ..PLAIN };
    let calls = [
        Kind::Context,
        Kind::Stream,
        Kind::Event,
        Kind::Rows,
        Kind::SetShape,
        Kind::SetAddress,
        Kind::Enqueue,
        Kind::CopyOut,
        Kind::Synchronize,
        Kind::BeginCapture,
        Kind::EndCapture,
        Kind::Launch,
        Kind::Record,
        Kind::Wait,
        Kind::Done,
    ];
    for kind in calls {
        for skip in 0..2 {
            let world = World::default();
            world.fail(kind, skip, true);
            let result = start(setup, &world, FakeMemory::default());
            let text = result.err().unwrap_or_else(|| panic!("{kind:?} {skip}")).to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text}");
        }
    }
}

#[test]
pub(crate) fn a_stage_without_graphs_says_so_and_runs() {
    for kind in [Kind::BeginCapture, Kind::EndCapture] {
        let world = World::default();
        world.fail(kind, 1, false);
        let setup = Setup { graphs: true, ..PLAIN };
        let mut bench = start(setup, &world, FakeMemory::default()).expect("it runs");
        assert_eq!(bench.stage.graphs(), 0);
        assert!(bench.notes.lock().expect("one thread")[0].contains("no CUDA graph"));
        bench.feed(0, 9.0);
        assert_eq!(bench.stage.drain(rows).expect("one").expect("it is well"), of(0, 9.0));
    }
}

#[test]
pub(crate) fn buffers_that_do_not_fit_are_refused_with_the_numbers() {
    let refused = |setup, memory| {
        let result = start(setup, &World::default(), memory);
        result.err().expect("it does not fit").to_string()
    };
    let short = FakeMemory { bytes: 12_287, ..FakeMemory::default() };
    let text = refused(PLAIN, short);
    assert_eq!(text, "a batch buffer of 12287 B, a batch takes 12288");
    let text = refused(PLAIN, FakeMemory { shift: 128, ..FakeMemory::default() });
    assert!(text.contains("batch buffer 0 lies at") && text.contains("256"), "{text}");
    let text = refused(Setup { full: 3, ..PLAIN }, FakeMemory::default());
    assert!(text.contains("batches of 8 images are not whole inferences of 3"), "{text}");
}

#[test]
pub(crate) fn nothing_is_allocated_in_the_loop() {
    for setup in ALL {
        let mut bench = Bench::new(setup);
        let mut sum = 0.0;
        let mut turn = |bench: &mut Bench, round: u16| {
            bench.submit(round % BUFFERS).expect("it is submitted");
            let take = |_: Ticket, outputs: Outputs<'_>| sum += outputs.features[0];
            let _ = bench.stage.take_previous(take);
        };
        for round in 0..10 {
            turn(&mut bench, round);
        }
        let counted = measure(|| {
            for round in 0..1000 {
                turn(&mut bench, round);
            }
        });
        assert_eq!(counted.count_total, 0, "graphs {}, dual {}", setup.graphs, setup.dual);
        assert!(sum.is_finite());
    }
}

#[test]
pub(crate) fn a_stage_that_goes_waits_for_what_runs() {
    for setup in ALL {
        let mut bench = Bench::new(setup);
        bench.feed(0, 1.0);
        bench.feed(1, 1.0);
        let world = bench.world.clone();
        drop(bench);
        assert!(!world.reads(0) && !world.reads(1));
    }
}
