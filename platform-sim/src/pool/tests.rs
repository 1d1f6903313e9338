use std::thread;

use tensorwire_core::memory::MemoryKind;
use tensorwire_kernels::Conversion;

use super::*;

fn fp16() -> Kernel {
    Kernel::new(Conversion::Int8ToFp16)
}

#[test]
fn buffers_are_aligned_zero_and_apart() {
    let (pool, mut free) = PacketPool::new(3, 100).expect("small");
    assert_eq!((pool.buffers(), pool.frame_bytes(), free.len()), (3, 100, 3));
    let mut starts = Vec::new();
    for (i, buf) in free.iter_mut().enumerate() {
        let bytes = pool.bytes_mut(buf, 100).expect("its own");
        assert!(bytes.iter().all(|b| *b == 0));
        starts.push(bytes.as_ptr() as usize);
        bytes.fill(u8::try_from(i).expect("three"));
    }
    assert!(starts.iter().all(|at| at.is_multiple_of(64)));
    for (i, buf) in free.into_iter().enumerate() {
        let packet = pool.publish(buf, 100, 7).expect("its own");
        assert_eq!(packet.flow(), 7);
        assert_eq!(pool.bytes(&packet), [u8::try_from(i).expect("three"); 100]);
    }
    starts.sort_unstable();
    assert!(starts.windows(2).all(|w| w[1] - w[0] >= 128));
}

#[test]
fn all_buffers_can_be_written_at_once() {
    // Two exclusive slices live at the same time: Miri would object if they overlapped.
    let (pool, mut free) = PacketPool::new(2, 64).expect("small");
    let (first, rest) = free.split_first_mut().expect("two");
    let a = pool.bytes_mut(first, 64).expect("its own");
    let b = pool.bytes_mut(&mut rest[0], 64).expect("its own");
    a[63] = 1;
    b[0] = 2;
    a[0] = 3;
    assert_eq!((a[0], a[63], b[0]), (3, 1, 2));
}

#[test]
fn a_frame_that_does_not_fit_is_refused_or_cut() {
    let (pool, mut free) = PacketPool::new(1, 100).expect("small");
    let mut buf = free.pop().expect("one");
    assert!(pool.bytes_mut(&mut buf, 101).is_none());
    assert!(pool.bytes_mut(&mut buf, 0).is_some_and(|b| b.is_empty()));
    // A frame longer than the buffer keeps its length and shows the bytes that are there.
    let packet = pool.publish(buf, 150, 0).expect("its own");
    assert_eq!((packet.len(), pool.bytes(&packet).len()), (150, 100));
}

#[test]
fn tokens_of_another_pool_are_refused_and_come_back() {
    let (pool, _free) = PacketPool::new(2, 64).expect("small");
    let (other, mut others) = PacketPool::new(2, 64).expect("small");
    let mut buf = others.pop().expect("two");
    assert!(pool.bytes_mut(&mut buf, 1).is_none());
    let buf = pool.publish(buf, 1, 0).expect_err("not its own");
    let packet = other.publish(buf, 1, 0).expect("its own");
    assert!(pool.bytes(&packet).is_empty());
    let packet = pool.reclaim(packet).expect_err("not its own");
    assert!(!other.reclaim(packet).expect("its own").is_none());
    assert!(pool.bytes(&PacketDesc::EMPTY).is_empty());
    assert!(pool.reclaim(PacketDesc::EMPTY).is_err());
    let mut none = FreeBuf::NONE;
    assert!(pool.bytes_mut(&mut none, 1).is_none());
}

#[test]
fn a_handle_that_is_an_address_is_never_ours() {
    let (pool, _free) = PacketPool::new(2, 64).expect("small");
    for handle in [0, 1, pool.mark & !HANDLE_MARK, (pool.mark & !HANDLE_MARK) | 1] {
        // SAFETY: there is no such buffer; the token only serves to be refused.
        let foreign = unsafe { PacketDesc::claim(handle, 64, 0) };
        assert!(pool.bytes(&foreign).is_empty());
        assert!(pool.reclaim(foreign).is_err());
    }
}

#[test]
fn an_index_beyond_the_pool_is_refused() {
    let (pool, _free) = PacketPool::new(2, 64).expect("small");
    // SAFETY: there is no such buffer; the token only serves to be refused.
    let beyond = unsafe { PacketDesc::claim(pool.mark | 2, 64, 0) };
    assert!(pool.bytes(&beyond).is_empty());
    assert!(pool.reclaim(beyond).is_err());
}

#[test]
fn a_buffer_travels_between_threads() {
    let (pool, mut free) = PacketPool::new(1, 64).expect("small");
    let (to_app, from_wire) = std::sync::mpsc::channel::<PacketDesc>();
    let (to_wire, from_app) = std::sync::mpsc::channel::<FreeBuf>();
    let pool = &pool;
    thread::scope(|scope| {
        scope.spawn(move || {
            for packet in from_wire {
                let bytes = pool.bytes(&packet);
                let first = bytes[0];
                assert!(bytes.iter().all(|b| *b == first), "torn frame");
                let buf = pool.reclaim(packet).expect("its own");
                to_wire.send(buf).expect("the other side waits for it");
            }
        });
        let mut buf = free.pop().expect("one");
        for round in 0..50_u8 {
            pool.bytes_mut(&mut buf, 64).expect("its own").fill(round);
            let packet = pool.publish(buf, 64, 0).expect("its own");
            to_app.send(packet).expect("the other side lives");
            buf = from_app.recv().expect("the other side sends it");
        }
        drop((to_app, buf));
    });
}

#[test]
fn sizes_that_cannot_be_are_errors() {
    for (buffers, bytes) in [(0, 64), (1, 0), (2, usize::MAX), (usize::MAX, 64)] {
        let error = PacketPool::new(buffers, bytes).map(|_| ()).expect_err("cannot be");
        assert_eq!(error, MemoryError::Size { buffers, bytes });
        assert!(error.to_string().contains(&format!("{buffers} buffers of {bytes} bytes")));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no limit to run into")]
fn too_much_memory_is_an_error_and_no_abort() {
    let bytes = isize::MAX as usize / 4;
    let error = PacketPool::new(3, bytes).map(|_| ()).expect_err("nobody has that much");
    assert!(matches!(error, MemoryError::Exhausted { .. }), "{error}");
}

#[test]
fn a_batch_is_written_while_filling_and_read_when_ready() {
    let mut bursts = BurstPool::new(2).expect("two");
    let memory = BatchMemory::new(&bursts, 1000, fp16()).expect("small");
    let mut first = bursts.take().expect("two").begin();
    let mut second = bursts.take().expect("two").begin();
    // Both at once, in different places: Miri would object to an overlap.
    let a = memory.slot_mut(&mut first, 10, 5).expect("inside");
    let b = memory.slot_mut(&mut second, 0, 1000).expect("inside");
    a.fill(1);
    b.fill(2);
    a[0] = 9;
    let first = first.seal();
    let bytes = memory.bytes(&first).expect("its own");
    assert_eq!(&bytes[9..16], &[0, 9, 1, 1, 1, 1, 0]);
    let first = first.submit();
    assert_eq!(memory.bytes(&first).expect("its own")[10], 9);
    let second = second.seal();
    assert!(memory.bytes(&second).expect("its own").iter().all(|b| *b == 2));
}

#[test]
fn batches_of_another_pool_and_bytes_beyond_the_buffer_are_refused() {
    let mut bursts = BurstPool::new(1).expect("one");
    let mut others = BurstPool::new(1).expect("one");
    let memory = BatchMemory::new(&bursts, 100, fp16()).expect("small");
    let mut own = bursts.take().expect("one").begin();
    let mut foreign = others.take().expect("one").begin();
    assert!(memory.slot_mut(&mut foreign, 0, 1).is_none());
    assert!(memory.bytes(&foreign.seal()).is_none());
    assert!(memory.slot_mut(&mut own, 100, 0).is_some());
    for (offset, len) in [(100, 1), (101, 0), (0, 101), (usize::MAX, 2), (2, usize::MAX)] {
        assert!(memory.slot_mut(&mut own, offset, len).is_none(), "{offset} {len}");
    }
}

#[test]
fn more_tokens_than_buffers_is_no_way_out_of_the_memory() {
    // Memory for one pool of one buffer; the token of index 1 can only be of another pool.
    let mut bursts = BurstPool::new(2).expect("two");
    let small = BurstPool::new(1).expect("one");
    let memory = BatchMemory::new(&small, 100, fp16()).expect("small");
    let _ = bursts.take().expect("two").begin().abandon();
    let mut second = bursts.take().expect("two").begin();
    assert!(memory.slot_mut(&mut second, 0, 1).is_none());
}

/// 1, 2, 3 and 4 as binary16, little-endian.
const ONE_TO_FOUR: [u8; 8] = [0x00, 0x3c, 0x00, 0x40, 0x00, 0x42, 0x00, 0x44];

#[test]
fn a_slot_is_readable_after_the_fence_and_not_before() {
    let mut bursts = BurstPool::new(2).expect("two");
    let memory = BatchMemory::new(&bursts, 100, fp16()).expect("small");
    let mut batch = bursts.take().expect("two").begin();
    let mut other = bursts.take().expect("two").begin();
    memory.slot_mut(&mut batch, 0, 100).expect("in order").fill(9);
    assert!(memory.convert(&mut batch, 4, &[1, 2, 3, 4]));
    assert!(memory.slot_mut(&mut batch, 0, 1).is_none());
    assert!(memory.slot_mut(&mut other, 0, 1).is_some(), "each buffer has its own mark");
    // The token may go on, the bytes stay shut.
    let batch = batch.seal();
    assert!(memory.bytes(&batch).is_none());
    let mut batch = batch.discard().begin();
    assert!(memory.fence(&mut batch));
    let batch = batch.seal();
    let bytes = memory.bytes(&batch).expect("in order");
    assert_eq!((&bytes[..4], &bytes[4..12]), (&[9; 4][..], &ONE_TO_FOUR[..]));
    assert_eq!(bytes[12], 9);
}

#[test]
fn a_buffer_that_another_thread_has_not_fenced_is_refused() {
    let mut bursts = BurstPool::new(1).expect("one");
    let memory = BatchMemory::new(&bursts, 100, fp16()).expect("small");
    let mut batch = bursts.take().expect("one").begin();
    thread::scope(|scope| {
        scope.spawn(|| assert!(memory.convert(&mut batch, 0, &[1])));
    });
    assert!(!memory.convert(&mut batch, 0, &[2]));
    assert!(!memory.fence(&mut batch));
    assert!(memory.slot_mut(&mut batch, 0, 1).is_none());
    // Its memory is not given back either (there is nothing to see of it here but the mark).
}

#[test]
fn a_fenced_buffer_may_change_threads() {
    let mut bursts = BurstPool::new(1).expect("one");
    let memory = BatchMemory::new(&bursts, 8, fp16()).expect("small");
    let mut batch = bursts.take().expect("one").begin();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(memory.convert(&mut batch, 0, &[1, 2]));
            assert!(memory.fence(&mut batch));
        });
    });
    assert!(memory.convert(&mut batch, 4, &[3, 4]));
    assert!(memory.fence(&mut batch));
    assert_eq!(memory.bytes(&batch.seal()), Some(&ONE_TO_FOUR[..]));
}

#[test]
fn kernels_do_not_write_beyond_the_buffer() {
    let mut bursts = BurstPool::new(1).expect("one");
    let mut others = BurstPool::new(1).expect("one");
    let memory = BatchMemory::new(&bursts, 8, fp16()).expect("small");
    let mut batch = bursts.take().expect("one").begin();
    let mut foreign = others.take().expect("one").begin();
    assert!(!memory.convert(&mut batch, 0, &[1; 5]));
    assert!(!memory.convert(&mut batch, 7, &[1; 1]));
    assert!(!memory.convert(&mut foreign, 0, &[1]) && !memory.fence(&mut foreign));
    assert!(memory.fence(&mut batch));
    assert_eq!(memory.bytes(&batch.seal()), Some(&[0; 8][..]));
    assert_eq!((memory.kernel(), memory.batch_bytes()), (fp16(), 8));
}

/// Memory as a driver would lend it, which tells when it goes.
#[derive(Debug)]
pub(super) struct Driver {
    pages: NonNull<Page>,
    count: usize,
    gone: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(4096))]
#[expect(dead_code, reason = "bytes to point at")]
struct Page([u8; 4096]);

impl Driver {
    pub(super) fn lend(count: usize) -> (Box<dyn HostMemory>, Arc<AtomicU64>) {
        let gone = Arc::new(AtomicU64::new(0));
        let pages = Box::leak(vec![Page([0; 4096]); count].into_boxed_slice());
        let pages = NonNull::from(pages).cast();
        (Box::new(Self { pages, count, gone: Arc::clone(&gone) }), gone)
    }
}

// SAFETY: plain memory that belongs to whoever has the value.
unsafe impl Send for Driver {}

// SAFETY: as above.
unsafe impl Sync for Driver {}

// SAFETY: `count` pages of 4096 bytes, zeroed, leaked by `lend` and freed by `drop` only.
unsafe impl HostMemory for Driver {
    fn base(&self) -> NonNull<u8> {
        self.pages.cast()
    }

    fn len(&self) -> usize {
        self.count * 4096
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::HostPinned
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let pages = std::ptr::slice_from_raw_parts_mut(self.pages.as_ptr(), self.count);
        // SAFETY: leaked by `lend` with this length, and freed here only.
        drop(unsafe { Box::from_raw(pages) });
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn pools_are_built_in_memory_that_a_driver_lends_and_give_it_back() {
    assert_eq!(PacketPool::bytes_needed(60, 100), Ok(60 * 128));
    let (memory, gone) = Driver::lend(2);
    let base = memory.base().addr().get();
    let (pool, mut free) = PacketPool::new_in(60, 100, memory).expect("7680 of 8192 bytes");
    assert_eq!(pool.read, 64, "the CPU reads the headers alone, and asks the caches for no more");
    assert_eq!(PacketPool::new(60, 100).expect("small").0.read, 100);
    let mut buf = free.pop().expect("the first buffer");
    pool.bytes_mut(&mut buf, 3).expect("it fits").copy_from_slice(&[1, 2, 3]);
    let packet = pool.publish(buf, 3, 0).expect("its own");
    assert_eq!(pool.bytes(&packet), [1, 2, 3]);
    assert_eq!(pool.bytes(&packet).as_ptr().addr(), base, "the lent memory itself");
    let view = PacketView::new(Arc::new(pool));
    assert_eq!(view.number(&packet), Some(0));
    assert_eq!(view.number(&PacketDesc::EMPTY), None);
    drop(view);
    assert_eq!(gone.load(Ordering::Relaxed), 1);

    let (memory, gone) = Driver::lend(2);
    let error = PacketPool::new_in(65, 100, memory).map(|_| ()).expect_err("8320 bytes");
    assert_eq!(error, MemoryError::Lent { given: 8192, bytes: 8320 });
    assert_eq!(gone.load(Ordering::Relaxed), 1, "what is refused goes back too");

    let mut bursts = BurstPool::new(2).expect("two");
    let (memory, gone) = Driver::lend(1);
    let base = memory.base().addr().get();
    let memory = BatchMemory::new_in(&bursts, 1000, fp16(), memory).expect("2048 of 4096 bytes");
    let _first = bursts.take().expect("buffer 0").begin();
    let mut filling = bursts.take().expect("buffer 1").begin();
    assert!(memory.convert(&mut filling, 0, &[1; 500]));
    assert!(memory.fence(&mut filling));
    let ready = filling.seal();
    let bytes = memory.bytes(&ready).expect("its own");
    assert_eq!((bytes.as_ptr().addr(), &bytes[..2]), (base + 1024, &[0x00, 0x3c][..]));
    drop(memory);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}
