//! What the tests of this crate share.

use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_core::port::{SendError, TxQueue};

use crate::nic::{Oversize, SwNicConfig, TxMode};
use crate::prng::Prng;

/// A NIC of small numbers, so that its limits are met.
pub(crate) const SMALL: SwNicConfig = SwNicConfig {
    rx_bufs: 12,
    rx_buf_size: 256,
    rx_ring: 5,
    tx_bufs: 64,
    tx_buf_size: 300,
    tx_ring: 64,
    mode: TxMode::Lossless,
    oversize: Oversize::Cut,
    tx_eth_src: None,
    flows: None,
};

/// Length of frame `n`: 8 to 256 bytes, a function of the number.
pub(crate) fn length_of(n: u64) -> usize {
    8 + usize::try_from(Prng::new(n).below(249)).expect("below 249")
}

/// Writes frame `n`: its number, then bytes that follow from the number.
pub(crate) fn write_frame(n: u64, frame: &mut [u8]) {
    let (number, rest) = frame.split_at_mut(8);
    number.copy_from_slice(&n.to_le_bytes());
    let mut prng = Prng::new(n);
    for word in rest.chunks_mut(8) {
        word.copy_from_slice(&prng.next_u64().to_le_bytes()[..word.len()]);
    }
}

/// The number of a frame; panics if any of its bytes is not what was written.
pub(crate) fn read_frame(frame: &[u8]) -> u64 {
    let number = u64::from_le_bytes(frame[..8].try_into().expect("8 bytes"));
    let mut expected = vec![0; frame.len()];
    write_frame(number, &mut expected);
    assert_eq!(frame, expected, "bytes of frame {number}");
    number
}

/// Sends frame `n`.
pub(crate) fn send<T: TxQueue>(tx: &mut T, n: u64) -> Result<(), SendError> {
    tx.send(length_of(n), |frame| write_frame(n, frame))
}

/// Sends frame `n` from where it lies; its front is put right on the way.
pub(crate) fn lend<T: TxQueue>(tx: &mut T, n: u64) -> Result<(), SendError> {
    let mut frame = vec![0; length_of(n)];
    write_frame(n, &mut frame);
    let front = frame.len().min(HEADER_BYTES);
    let right = frame[..front].to_vec();
    frame[..front].fill(0xbb);
    tx.send_from(&frame, |bytes| bytes.copy_from_slice(&right))
}

/// One or the other, as the number decides.
pub(crate) fn send_or_lend<T: TxQueue>(tx: &mut T, n: u64) -> Result<(), SendError> {
    if n.is_multiple_of(3) { send(tx, n) } else { lend(tx, n) }
}
