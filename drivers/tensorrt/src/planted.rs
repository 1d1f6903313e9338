//! Bugs planted on purpose, to show that a test notices each. Only in the test build; elsewhere
//! every place that asks for one is the constant `false`.

/// Whether a bug is on, at the place where it would be.
#[cfg(test)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is($crate::planted::Bug::$bug)
    };
}
#[cfg(not(test))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}
pub(crate) use planted;

#[cfg(test)]
pub(crate) use bugs::{Bug, is};

#[cfg(test)]
mod bugs {
    use std::cell::Cell;
    use std::panic::catch_unwind;

    use crate::{cache::tests as cache, infer::tests as infer};

    thread_local! {
        static ACTIVE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether `bug` is on in this thread; a test runs in one.
    pub(crate) fn is(bug: Bug) -> bool {
        ACTIVE.get() == Some(bug)
    }

    macro_rules! bugs {
        ($($(#[$doc:meta])* $name:ident: $test:path),* $(,)?) => {
            /// A bug that can be turned on.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) enum Bug {
                $($(#[$doc])* $name),*
            }

            /// Each bug, with the test that has to notice it.
            const ALL: &[(Bug, fn())] = &[$((Bug::$name, $test)),*];
        };
    }

    bugs! {
        /// The version of TensorRT is no part of the key.
        VersionUnseen: cache::e01_an_engine_of_another_tensorrt_is_seen_before_it_is_loaded,
        /// An engine is built although that is not allowed.
        RebuildAnyway: cache::e01_an_engine_of_another_tensorrt_is_seen_before_it_is_loaded,
        /// The bytes of the model are no part of the key.
        ModelByName: cache::e02_the_content_of_the_model_counts_not_its_name_or_age,
        /// The GPU is no part of the key.
        GpuUnseen: cache::e03_two_gpus_share_a_folder_without_undoing_each_others_work,
        /// The profile of a plain plan is not looked at.
        ProfileUnchecked: cache::e08_a_plain_plan_whose_profile_is_too_small_is_not_used,
        /// The precision is no part of the key.
        PrecisionUnseen: cache::e10_another_precision_is_another_engine,
        /// A file of ours under the plain name is used whatever it was built for.
        PlainTrusted: cache::one_of_our_files_under_the_plain_name_counts_by_what_it_says,
        /// The checksum of an engine file is not compared.
        ChecksumUnread: cache::every_byte_of_an_engine_file_is_guarded,
        /// What is written is not what was built.
        BodyCut: cache::an_engine_is_built_once_and_kept_with_a_header_of_plain_text,
        /// Times that another library measured are used.
        StaleTimes: cache::times_of_another_machine_are_not_used,
        /// A result is taken without waiting for its event.
        ResultEarly: infer::results_come_one_submission_late_in_order_and_whole,
        /// The second submission writes the rows of the first.
        SameRows: infer::results_come_one_submission_late_in_order_and_whole,
        /// Images behind the first are inferred from the beginning of the buffer.
        FirstForgotten: infer::fewer_images_than_the_engine_takes_are_padded,
        /// The inference does not wait for the reorder.
        ReorderUnawaited: infer::results_come_one_submission_late_in_order_and_whole,
        /// TensorRT is called with whichever GPU is current.
        NotEntered: infer::results_come_one_submission_late_in_order_and_whole,
        /// An idle stage takes a result that has not come.
        IdleEarly: infer::an_idle_stage_gives_its_last_result_without_waiting,
        /// The graph of the first buffer is replayed for all.
        GraphOfFirst: infer::graphs_are_recorded_at_start_and_replayed,
        /// That a size has no graph is said each time.
        SaidAgain: infer::another_size_is_launched_singly_and_that_is_said_once,
        /// Fewer images than the engine takes are not padded.
        Unpadded: infer::fewer_images_than_the_engine_takes_are_padded,
        /// A buffer of another pool is read.
        OtherPool: infer::what_lies_outside_is_refused_before_anything_is_enqueued,
        /// A failed submission gives its buffer back while it is still read.
        FreedEarly: infer::a_call_that_fails_leaves_nothing_that_reads_the_buffer,
        /// A shape that was refused counts as set.
        ShapeKept: infer::a_shape_that_is_refused_is_set_again,
        /// A failure of the last wait is not fatal.
        LostUnseen: infer::when_even_the_wait_fails_the_gpu_is_lost,
        /// A stage goes while its inferences run.
        GoneEarly: infer::a_stage_that_goes_waits_for_what_runs,
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "who asks for it (--nocapture) sees what was noticed")]
    fn every_planted_bug_is_noticed() {
        let mut missed = Vec::new();
        for &(bug, test) in ALL {
            ACTIVE.set(Some(bug));
            let noticed = catch_unwind(test).is_err();
            ACTIVE.set(None);
            // Without the bug the same test passes: what it noticed was the bug.
            test();
            println!("{bug:?}: {}", if noticed { "noticed" } else { "MISSED" });
            if !noticed {
                missed.push(bug);
            }
        }
        assert!(missed.is_empty(), "not noticed: {missed:?}");
    }
}
