//! The system calls, each behind a safe function. Nothing on the packet path allocates.
#![allow(unsafe_code)] // calls of the C library, and the structures that they take

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;

/// Most datagrams of one [`receive`].
pub(crate) const MAX_MESSAGES: usize = 64;

/// Most parts of one [`receive`].
pub(crate) const MAX_PARTS: usize = 1_032;

/// Most pieces of one [`send`].
pub(crate) const MAX_PIECES: usize = 256;

/// Entry of `SO_MEMINFO` that counts dropped datagrams (`SK_MEMINFO_DROPS`, linux/sock_diag.h).
const MEMINFO_DROPS: usize = 8;

/// Entries of `SO_MEMINFO`.
const MEMINFO: usize = 9;

/// `SO_MEMINFO` of asm-generic/socket.h, which the libc crate does not name.
const SO_MEMINFO: libc::c_int = 55;

/// A message that was received: a datagram, or a group of them that the kernel put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// Its true length in bytes, also where it did not fit.
    pub(crate) len: usize,
    /// Bytes of each datagram of a group, of which the last may be shorter; 0 where the kernel
    /// says nothing of a group.
    pub(crate) piece: usize,
    /// Who sent it.
    pub(crate) from: SocketAddrV4,
}

/// What [`Datagram`]s are before they are received.
pub(crate) const NOTHING: Datagram =
    Datagram { len: 0, piece: 0, from: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0) };

/// Receives a message into the parts of each of `messages`, one part after the other, as far as
/// some have come, and returns how many; the front of `out` says what each is. Takes [`MAX_PARTS`]
/// parts in all. Never blocks.
pub(crate) fn receive<'p, P: Iterator<Item = &'p mut [u8]>>(
    socket: &UdpSocket,
    messages: impl Iterator<Item = P>,
    out: &mut [Datagram],
) -> io::Result<usize> {
    let mut names: [MaybeUninit<libc::sockaddr_in>; MAX_MESSAGES] =
        [const { MaybeUninit::zeroed() }; MAX_MESSAGES];
    let mut controls: [MaybeUninit<Control>; MAX_MESSAGES] =
        [const { MaybeUninit::uninit() }; MAX_MESSAGES];
    let mut vectors: [MaybeUninit<libc::iovec>; MAX_PARTS] =
        [const { MaybeUninit::uninit() }; MAX_PARTS];
    let mut headers: [MaybeUninit<libc::mmsghdr>; MAX_MESSAGES] =
        [const { MaybeUninit::uninit() }; MAX_MESSAGES];
    let mut count = 0;
    let mut left = &mut vectors[..];
    let places = names.iter_mut().zip(&mut controls).zip(&mut headers);
    for ((parts, _), ((name, control), header)) in messages.zip(&*out).zip(places) {
        let mut size = 0;
        for (vector, part) in left.iter_mut().zip(parts) {
            let (iov_base, iov_len) = (part.as_mut_ptr().cast(), part.len());
            vector.write(libc::iovec { iov_base, iov_len });
            size += 1;
        }
        let (own, others) = left.split_at_mut(size);
        left = others;
        let header = header.write(message(name.as_mut_ptr(), own.as_mut_ptr().cast()));
        header.msg_hdr.msg_iovlen = size as _;
        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = size_of::<Control>() as _;
        count += 1;
    }
    let first = headers.as_mut_ptr().cast();
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the first `count` headers were written above, with a name, vectors and control data
    // that live in this function; the bytes of the parts are borrowed mutably for longer.
    let came =
        unsafe { libc::recvmmsg(socket.as_raw_fd(), first, count, flags as _, ptr::null_mut()) };
    let came = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
    for ((name, header), place) in names.iter().zip(&headers).zip(out).take(came) {
        // SAFETY: this header was written above, and its lengths by the kernel.
        let header = unsafe { header.assume_init_ref() };
        // SAFETY: the name was zeroed, and the kernel has written to it.
        let name = unsafe { name.assume_init_ref() };
        let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
        let from = SocketAddrV4::new(ip, u16::from_be(name.sin_port));
        // SAFETY: its control data is that of the array above, as far as the kernel has written.
        let piece = unsafe { piece_of(&header.msg_hdr) };
        *place = Datagram { len: header.msg_len as usize, piece, from };
    }
    Ok(came)
}

/// Bytes of each datagram of a group, as the message's control data says (udp(7), `UDP_GRO`); 0
/// where it does not.
///
/// # Safety
///
/// The control data of the header is alive, and as long as the header says.
unsafe fn piece_of(header: &libc::msghdr) -> usize {
    // SAFETY: it only looks at the header.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: CMSG_LEN only computes.
    let wanted = unsafe { libc::CMSG_LEN(length(size_of::<libc::c_int>())) };
    // SAFETY: an entry lies in the control data, which is aligned for it, and the kernel wrote it.
    while let Some(found) = unsafe { entry.as_ref() } {
        let ours = (found.cmsg_level, found.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO);
        if ours && found.cmsg_len >= wanted as _ {
            // SAFETY: the entry's data begins in the control data.
            let data = unsafe { libc::CMSG_DATA(entry) };
            // SAFETY: the entry is long enough for an int; it need not be aligned.
            let bytes = unsafe { data.cast::<libc::c_int>().read_unaligned() };
            return usize::try_from(bytes).unwrap_or(0);
        }
        // SAFETY: the entry is one of this header, and its length is what the kernel wrote.
        entry = unsafe { libc::CMSG_NXTHDR(header, entry) };
    }
    0
}

/// Lets the kernel hand over what it has put together as one message (udp(7), `UDP_GRO`).
pub(crate) fn coalesce(socket: &UdpSocket) -> io::Result<()> {
    option(socket, libc::SOL_UDP, libc::UDP_GRO, &[1])
}

/// The interface that has the address `ip`, if one has.
pub(crate) fn interface_of(ip: Ipv4Addr) -> Option<String> {
    let mut list = ptr::null_mut();
    // SAFETY: the pointer is ours to write to.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let mut found = None;
    let mut next = list.cast_const();
    while !next.is_null() && found.is_none() {
        // SAFETY: an entry of the list, which lives until it is given back below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: an address is absent (null) or has at least its family.
        let family = unsafe { entry.ifa_addr.as_ref() }.map(|address| address.sa_family);
        if family != Some(FAMILY) {
            continue;
        }
        // SAFETY: of that family, so it is such a structure; the list need not align it for us.
        let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
        if Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)) == ip {
            // SAFETY: every entry has a name that ends in a zero byte.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found = name.to_str().ok().map(str::to_owned);
        }
    }
    // SAFETY: from the call above, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// `AF_INET`, as addresses hold it.
#[expect(clippy::cast_possible_truncation, reason = "it is 2")]
const FAMILY: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;

/// The size of a structure, as the calls take it.
#[expect(clippy::cast_possible_truncation, reason = "structures have a few bytes")]
const fn length(of: usize) -> libc::socklen_t {
    of as libc::socklen_t
}

/// A message with one piece.
fn message(name: *mut libc::sockaddr_in, piece: *mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all zero is a message without name, pieces and control data.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_name = name.cast();
    message.msg_hdr.msg_namelen = length(size_of::<libc::sockaddr_in>());
    message.msg_hdr.msg_iov = piece;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// Room for the control data of one message: the size of a segment.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 24]);

/// Sends `pieces`, which lie in `groups` of so many pieces with so many bytes each: a group of one
/// is a datagram, a group of several one message that the kernel cuts into datagrams. Returns how
/// many groups were taken. Never blocks.
pub(crate) fn send<'p>(
    socket: &UdpSocket,
    to: SocketAddrV4,
    pieces: impl Iterator<Item = &'p [u8]>,
    groups: impl Iterator<Item = (usize, u16)>,
) -> io::Result<usize> {
    let mut name = address(to);
    let name: *mut libc::sockaddr_in = &raw mut name;
    let mut vectors: [MaybeUninit<libc::iovec>; MAX_PIECES] =
        [const { MaybeUninit::uninit() }; MAX_PIECES];
    let mut filled = 0;
    for (place, piece) in vectors.iter_mut().zip(pieces) {
        // The kernel only reads what is sent; the structure has one type for both.
        let base = piece.as_ptr().cast_mut().cast();
        place.write(libc::iovec { iov_base: base, iov_len: piece.len() });
        filled += 1;
    }
    let mut controls = [Control([0; 24]); MAX_MESSAGES];
    let mut headers: [MaybeUninit<libc::mmsghdr>; MAX_MESSAGES] =
        [const { MaybeUninit::uninit() }; MAX_MESSAGES];
    let (mut at, mut count) = (0, 0);
    for ((size, bytes), (header, control)) in groups.zip(headers.iter_mut().zip(&mut controls)) {
        let Some(vectors) = vectors.get_mut(at..at + size).filter(|_| at + size <= filled) else {
            break;
        };
        let header = header.write(message(name, vectors.as_mut_ptr().cast()));
        header.msg_hdr.msg_iovlen = size as _;
        if size > 1 {
            segmented(&mut header.msg_hdr, control, bytes);
        }
        at += size;
        count += 1;
    }
    let (fd, first) = (socket.as_raw_fd(), headers.as_mut_ptr().cast());
    // SAFETY: the first `count` headers were written above; name, vectors and control data live in
    // this function, and the bytes of the pieces are borrowed for longer than the call.
    let taken = unsafe { libc::sendmmsg(fd, first, count, libc::MSG_DONTWAIT as _) };
    usize::try_from(taken).map_err(|_| io::Error::last_os_error())
}

fn address(of: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: FAMILY,
        sin_port: of.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*of.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// Tells the kernel to cut the message into datagrams of `bytes` bytes (udp(7), `UDP_SEGMENT`).
fn segmented(header: &mut libc::msghdr, control: &mut Control, bytes: u16) {
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
    let space = unsafe { libc::CMSG_SPACE(length(size_of::<u16>())) };
    debug_assert!(space as usize <= size_of::<Control>(), "{space} bytes of control data");
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = space as _;
    // SAFETY: the control data just given to the header has room for one entry.
    let entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: as above, it only computes.
    let len = unsafe { libc::CMSG_LEN(length(size_of::<u16>())) };
    // SAFETY: the entry lies in `control`, which is aligned for it and borrowed mutably here.
    let entry = unsafe { &mut *entry };
    entry.cmsg_level = libc::SOL_UDP;
    entry.cmsg_type = libc::UDP_SEGMENT;
    entry.cmsg_len = len as _;
    // SAFETY: the entry's data begins in `control`.
    let data = unsafe { libc::CMSG_DATA(entry) };
    // SAFETY: there is room for a u16 behind the entry's header; it need not be aligned.
    unsafe { data.cast::<u16>().write_unaligned(bytes) };
}

/// Whether the kernel cuts large messages into datagrams itself.
pub(crate) fn segments(socket: &UdpSocket) -> bool {
    option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &[0]).is_ok()
}

/// Asks for so many bytes of receive buffer, beyond the limit of the system where we are allowed
/// to, and returns what was granted.
pub(crate) fn receive_buffer(socket: &UdpSocket, bytes: usize) -> usize {
    let wanted = [libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX)];
    if option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted).is_err() {
        // Without the right to force it the system takes as much of it as it allows; what that was
        // is asked for below.
        let _ = option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted);
    }
    let mut granted = [0];
    // The kernel doubles what is asked for, for its own bookkeeping, and tells that (socket(7)).
    ask(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &mut granted)
        .map_or(0, |()| granted[0].unsigned_abs() as usize)
}

/// The datagrams that the kernel dropped for want of room in the receive buffer.
pub(crate) fn drops(socket: &UdpSocket) -> u64 {
    let mut info = [0; MEMINFO];
    // A kernel without it (before 4.12) counts nothing.
    ask(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut info)
        .map_or(0, |()| u64::from(info[MEMINFO_DROPS].cast_unsigned()))
}

fn option(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: &[libc::c_int],
) -> io::Result<()> {
    let (fd, len) = (socket.as_raw_fd(), length(size_of_val(value)));
    // SAFETY: the value is borrowed for the call, with its size.
    let done = unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of the largest IP packet that the way to `remote` takes in one piece (ip(7), `IP_MTU`).
pub(crate) fn mtu(remote: SocketAddrV4) -> io::Result<usize> {
    let socket = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(remote)?;
    let mut mtu = [0];
    ask(&socket, libc::IPPROTO_IP, libc::IP_MTU, &mut mtu)?;
    Ok(mtu[0].unsigned_abs() as usize)
}

fn ask(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [libc::c_int],
) -> io::Result<()> {
    let (fd, out) = (socket.as_raw_fd(), value.as_mut_ptr().cast());
    let mut len = length(size_of_val(value));
    // SAFETY: the kernel writes at most `len` bytes to the value, which is borrowed mutably.
    let done = unsafe { libc::getsockopt(fd, level, name, out, &raw mut len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
