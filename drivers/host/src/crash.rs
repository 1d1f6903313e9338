//! A record of a crash that survives the restart.
//!
//! A file of one page is made and mapped when the program starts, so that nothing has to be opened,
//! allocated or asked for when it crashes: a panic hook, or the handler of a fatal signal, writes a
//! few fields into the mapping, and the kernel keeps the page whatever becomes of the process. The
//! next start reads the record, puts it aside under the name `FILE.1` (the one before under
//! `FILE.2`, and so on) and begins with an empty one.
//!
//! # The page
//!
//! Little-endian. A record counts only when its end says so: state and checksum are written last,
//! in this order, so that a crash in the middle of writing leaves a record that is *torn*, and read
//! as such, with what is there.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic, `TWCRASH1` |
//! | 8..12 | state: 0 empty, 1 being written, 2 whole |
//! | 12..16 | CRC-32 of bytes 16..4096 |
//! | 16..24 | wall time of the crash, nanoseconds since 1970 |
//! | 24..32 | address that faulted (signals) |
//! | 32..36 | signal, 0 for a panic |
//! | 36..40 | thread |
//! | 40..296 | the counters of that moment: 32 numbers |
//! | 296..552 | the build: length (2 bytes) and text |
//! | 552..808 | name of the thread |
//! | 808..1320 | where: file, line, column |
//! | 1320..3368 | what |

#![allow(unsafe_code)] // a mapping shared with a signal handler; each block says why it may be done

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Bytes of the file.
const PAGE: usize = 4096;
const MAGIC: &[u8; 8] = b"TWCRASH1";
/// Numbers that are kept.
pub const COUNTERS: usize = 32;
/// Records that are kept besides the newest.
const KEPT: u32 = 8;

const STATE: usize = 8;
const SUM: usize = 12;
const BODY: usize = 16;
const TIME: usize = 16;
const ADDRESS: usize = 24;
const SIGNAL: usize = 32;
const THREAD: usize = 36;
const NUMBERS: usize = 40;
const BUILD: Text = Text { at: NUMBERS + 8 * COUNTERS, room: 256 };
const NAME: Text = Text { at: BUILD.at + BUILD.room, room: 256 };
const PLACE: Text = Text { at: NAME.at + NAME.room, room: 512 };
const WHAT: Text = Text { at: PLACE.at + PLACE.room, room: 2048 };

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const WHOLE: u32 = 2;

/// A text in the page: two bytes of length, then the text.
#[derive(Clone, Copy)]
struct Text {
    at: usize,
    room: usize,
}

/// The mapping that crashes are written to; null where none was opened.
static MAPPED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Raised by the first crash: one of another thread meanwhile does not write over it.
static TAKEN: AtomicU32 = AtomicU32::new(0);
/// What a record keeps as the counters of the moment.
static NOTED: [AtomicU64; COUNTERS] = [const { AtomicU64::new(0) }; COUNTERS];

/// Notes the newest value of counter `index` for a record. What the numbers mean is the program's
/// affair; an index beyond [`COUNTERS`] is ignored. It costs one store.
pub fn note(index: usize, value: u64) {
    if let Some(noted) = NOTED.get(index) {
        noted.store(value, Ordering::Relaxed);
    }
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// It was cut off while it was written: what is here may be wrong.
    pub torn: bool,
    /// Wall time, nanoseconds since 1970.
    pub time_ns: u64,
    /// The fatal signal; 0 for a panic.
    pub signal: u32,
    /// The address that faulted, for a signal that has one.
    pub address: u64,
    /// Number of the thread.
    pub thread: u32,
    /// The counters that were noted.
    pub counters: [u64; COUNTERS],
    /// The build.
    pub build: String,
    /// Name of the thread.
    pub thread_name: String,
    /// File, line and column of a panic.
    pub place: String,
    /// Its message, or the name of the signal.
    pub what: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_ns, thread, thread_name, place, what, build, .. } = self;
        write!(f, "{what}")?;
        if !place.is_empty() {
            write!(f, " at {place}")?;
        }
        if self.address != 0 {
            write!(f, " (address {:#x})", self.address)?;
        }
        let seconds = time_ns / 1_000_000_000;
        write!(f, ", thread `{thread_name}` ({thread}), {seconds} s after 1970, build {build}")?;
        if self.torn {
            write!(f, "; the record was cut off while it was written")?;
        }
        Ok(())
    }
}

/// Opens the record `path`: what a crash before left there is put aside and told; from here on a
/// panic or a fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) is written to it. Once for a
/// process.
///
/// # Errors
///
/// What the system says.
pub fn open(path: &Path, build: &str) -> io::Result<Option<Record>> {
    let before = keep(path)?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(PAGE as u64)?;
    let page = map(&file)?;
    let mut empty = [0; PAGE];
    empty[..MAGIC.len()].copy_from_slice(MAGIC);
    put_text(&mut empty, BUILD, build.as_bytes());
    // SAFETY: the mapping is PAGE bytes long, new, and known to nobody else yet.
    unsafe { ptr::copy_nonoverlapping(empty.as_ptr(), page, PAGE) };
    MAPPED.store(page, Ordering::Release);
    install_panic_hook();
    install_signals()?;
    Ok(before)
}

/// The newest record under `path`: of this process's predecessor, or put aside earlier.
#[must_use]
pub fn newest(path: &Path) -> Option<Record> {
    let of = |path: &Path| fs::read(path).ok().and_then(|page| parse(&page));
    of(path).or_else(|| of(&numbered(path, 1)))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Puts a record aside, if there is one.
fn keep(path: &Path) -> io::Result<Option<Record>> {
    let page = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        page => page?,
    };
    let Some(record) = parse(&page) else { return Ok(None) };
    for number in (1..KEPT).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, numbered(path, 1))?;
    Ok(Some(record))
}

/// Reads a page; `None` if it holds no record.
#[must_use]
pub fn parse(page: &[u8]) -> Option<Record> {
    let page: &[u8; PAGE] = page.get(..PAGE)?.try_into().ok()?;
    let state = number32(page, STATE);
    if !page.starts_with(MAGIC) || state == EMPTY {
        return None;
    }
    let whole = state == WHOLE && number32(page, SUM) == crc32(&page[BODY..]);
    let counter = |index: usize| number64(page, NUMBERS + 8 * index);
    Some(Record {
        torn: !whole,
        time_ns: number64(page, TIME),
        signal: number32(page, SIGNAL),
        address: number64(page, ADDRESS),
        thread: number32(page, THREAD),
        counters: std::array::from_fn(counter),
        build: text(page, BUILD),
        thread_name: text(page, NAME),
        place: text(page, PLACE),
        what: text(page, WHAT),
    })
}

fn number32(page: &[u8; PAGE], at: usize) -> u32 {
    page.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn number64(page: &[u8; PAGE], at: usize) -> u64 {
    page.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn text(page: &[u8; PAGE], Text { at, room }: Text) -> String {
    let length = page.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes);
    let length = usize::from(length).min(room - 2);
    String::from_utf8_lossy(page.get(at + 2..at + 2 + length).unwrap_or_default()).into_owned()
}

fn put_text(page: &mut [u8; PAGE], Text { at, room }: Text, value: &[u8]) {
    let value = value.get(..value.len().min(room - 2)).unwrap_or_default();
    let length = u16::try_from(value.len()).unwrap_or(0);
    page[at..at + 2].copy_from_slice(&length.to_le_bytes());
    page[at + 2..at + 2 + value.len()].copy_from_slice(value);
}

/// CRC-32 (IEEE 802.3) bit by bit: a crash has time, and no table has to be in memory.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = !0u32;
    for &byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

fn map(file: &File) -> io::Result<*mut u8> {
    let (rights, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping where the kernel likes; no memory of ours is touched.
    let at = unsafe { libc::mmap(ptr::null_mut(), PAGE, rights, shared, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// What a crash is.
struct Crash<'a> {
    signal: u32,
    address: u64,
    place: &'a [u8],
    what: &'a [u8],
}

/// Writes the record. Only what may be done in a signal handler (signal-safety(7)): stores, and
/// the calls `clock_gettime`, `gettid`, `prctl`, `msync`.
fn write(crash: &Crash<'_>) {
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() || TAKEN.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    // SAFETY: the mapping is PAGE bytes long and never unmapped, and TAKEN lets one thread in.
    let page = unsafe { &mut *mapped.cast::<[u8; PAGE]>() };
    put32(page, STATE, WRITING);
    compiler_fence(Ordering::SeqCst);
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a structure of the size that the call writes.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let (seconds, rest) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    put64(page, TIME, seconds.wrapping_mul(1_000_000_000).wrapping_add(rest));
    put64(page, ADDRESS, crash.address);
    put32(page, SIGNAL, crash.signal);
    // SAFETY: it only tells a number.
    put32(page, THREAD, unsafe { libc::gettid() }.cast_unsigned());
    for (index, noted) in NOTED.iter().enumerate() {
        put64(page, NUMBERS + 8 * index, noted.load(Ordering::Relaxed));
    }
    let mut name = [0u8; 16];
    // SAFETY: the call writes at most 16 bytes to the pointer (PR_GET_NAME).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    put_text(page, NAME, &name[..end]);
    put_text(page, PLACE, crash.place);
    put_text(page, WHAT, crash.what);
    compiler_fence(Ordering::SeqCst);
    let sum = crc32(&page[BODY..]);
    put32(page, SUM, sum);
    compiler_fence(Ordering::SeqCst);
    put32(page, STATE, WHOLE);
    // SAFETY: the mapping is PAGE bytes long. The kernel keeps the page anyway; this is for a
    // machine that loses its power next.
    unsafe { libc::msync(mapped.cast(), PAGE, libc::MS_SYNC) };
}

fn put32(page: &mut [u8; PAGE], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(page: &mut [u8; PAGE], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn install_panic_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let what = payload.downcast_ref::<&str>().copied();
        let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let what = format!("panic: {}", what.unwrap_or("no message"));
        let (place, what) = (place.as_bytes(), what.as_bytes());
        write(&Crash { signal: 0, address: 0, place, what });
        before(info);
    }));
}

/// The signals that end a process by a fault of its own.
const FATAL: [(libc::c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV: memory that is not there"),
    (libc::SIGBUS, "SIGBUS: memory that cannot be read"),
    (libc::SIGILL, "SIGILL: no instruction"),
    (libc::SIGFPE, "SIGFPE: arithmetic"),
    (libc::SIGABRT, "SIGABRT: the process gave up"),
];

fn install_signals() -> io::Result<()> {
    for (signal, _) in FATAL {
        // SAFETY: all fields of the structure may be zero.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = fatal;
        action.sa_sigaction = handler as usize;
        // On a stack of its own where the thread has one (std's threads do): the stack may be
        // what is full. Once only: what happens in the handler ends the process.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: the structure is filled in, and the handler does only what a handler may.
        if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn fatal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let what =
        FATAL.iter().find(|(number, _)| *number == signal).map_or("signal", |(_, what)| what);
    // SAFETY: with SA_SIGINFO the kernel hands over a structure that is valid during the call.
    let info = unsafe { info.as_ref() }.filter(|_| signal != libc::SIGABRT);
    // One that somebody sent has none (si_code is not positive).
    let info = info.filter(|info| info.si_code > 0);
    // SAFETY: the signals of FATAL, SIGABRT apart, have an address.
    let address = info.map_or(ptr::null_mut(), |info| unsafe { info.si_addr() });
    write(&Crash {
        signal: signal.cast_unsigned(),
        address: address.addr() as u64,
        place: &[],
        what: what.as_bytes(),
    });
    // SAFETY: the action was reset when the handler was entered, so this ends the process with the
    // signal, once the handler returns at the latest.
    unsafe { libc::raise(signal) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_page_without_a_record_has_none() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0; PAGE]), None);
        let mut page = [0; PAGE];
        page[..8].copy_from_slice(MAGIC);
        assert_eq!(parse(&page), None, "an empty one");
        page[..8].copy_from_slice(b"TWCRASH9");
        put32(&mut page, STATE, WHOLE);
        assert_eq!(parse(&page), None, "another version");
    }

    #[test]
    fn a_record_that_was_cut_off_is_told_and_shown() {
        let mut page = [0; PAGE];
        page[..8].copy_from_slice(MAGIC);
        put_text(&mut page, WHAT, &[b'x'; 5_000]);
        put32(&mut page, STATE, WRITING);
        let record = parse(&page).expect("something");
        assert!(record.torn);
        assert_eq!(record.what.len(), WHAT.room - 2, "cut to its room");
        // Whole by its word, wrong by its sum: a page that was written in part.
        put32(&mut page, STATE, WHOLE);
        assert!(parse(&page).expect("something").torn);
        let sum = crc32(&page[BODY..]);
        put32(&mut page, SUM, sum);
        assert!(!parse(&page).expect("something").torn);
        // A length that reaches beyond its room is not believed.
        page[PLACE.at..PLACE.at + 2].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(parse(&page).expect("something").place.len(), PLACE.room - 2);
    }
}
