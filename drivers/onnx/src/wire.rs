//! The Protocol Buffers wire format, as far as ONNX files need it.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>. A message is a run of fields; a
//! field is a tag (`number << 3 | wire type`, a varint) and a value. Wire types: 0 varint, 1 eight
//! bytes, 2 length and bytes, 5 four bytes. The group types 3 and 4 are not used by ONNX.

use std::io::{BufRead, Seek, SeekFrom};

use crate::header::HeaderErrorKind;

/// Appends `value` as a varint: seven bits a byte, lowest first, the top bit says "more".
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // The mask leaves 7 bits and the flag makes 8.
        out.push((value & 0x7f | 0x80).to_le_bytes()[0]);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends the integer field `field`. Negative values take ten bytes, as the format asks.
pub(crate) fn put_int(out: &mut Vec<u8>, field: u32, value: i64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value.cast_unsigned());
}

/// Appends the `float` field `field`.
pub(crate) fn put_float(out: &mut Vec<u8>, field: u32, value: f32) {
    put_varint(out, u64::from(field) << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends the tag and the length of a field of `len` bytes, which must follow.
pub(crate) fn put_len(out: &mut Vec<u8>, field: u32, len: usize) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, len as u64);
}

/// Appends the string field `field`.
pub(crate) fn put_str(out: &mut Vec<u8>, field: u32, value: &str) {
    put_len(out, field, value.len());
    out.extend_from_slice(value.as_bytes());
}

/// Appends the message field `field`, whose content `write` appends.
pub(crate) fn put_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    put_len(out, field, inner.len());
    out.extend_from_slice(&inner);
}

/// The value of a field that was just read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Wire type 0.
    Varint(u64),
    /// Wire types 1 and 5; read over.
    Fixed,
    /// Wire type 2: the position behind its bytes. Nothing of them is read yet.
    Len {
        /// First position behind the field.
        end: u64,
    },
}

/// Reads fields one by one, keeps the position for messages, and never reads beyond an end that
/// it was given. What is skipped is not loaded.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    inner: R,
    at: u64,
    len: u64,
}

impl<R: BufRead + Seek> Reader<R> {
    /// A reader from the start of `inner`.
    pub(crate) fn new(mut inner: R) -> Result<Self, HeaderErrorKind> {
        let len = inner.seek(SeekFrom::End(0)).map_err(|e| HeaderErrorKind::Read(0, e))?;
        inner.seek(SeekFrom::Start(0)).map_err(|e| HeaderErrorKind::Read(0, e))?;
        Ok(Self { inner, at: 0, len })
    }

    /// Length of the whole input in bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// An error at the current position.
    pub(crate) const fn malformed(&self, what: &'static str) -> HeaderErrorKind {
        HeaderErrorKind::Malformed { at: self.at, what }
    }

    fn byte(&mut self, end: u64) -> Result<u8, HeaderErrorKind> {
        if self.at >= end {
            return Err(self.malformed("a number runs over the end of its message"));
        }
        let mut one = [0];
        self.inner.read_exact(&mut one).map_err(|e| HeaderErrorKind::Read(self.at, e))?;
        self.at += 1;
        Ok(one[0])
    }

    fn varint(&mut self, end: u64) -> Result<u64, HeaderErrorKind> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(end)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte may only carry bit 63.
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number longer than 64 bits"))
    }

    fn seek_by(&mut self, bytes: u64) -> Result<(), HeaderErrorKind> {
        let by = i64::try_from(bytes).map_err(|_| self.malformed("a length beyond 2^63"))?;
        self.inner.seek_relative(by).map_err(|e| HeaderErrorKind::Read(self.at, e))?;
        self.at += bytes;
        Ok(())
    }

    /// The next field of the message that ends at `end`, `None` at its end.
    pub(crate) fn field(&mut self, end: u64) -> Result<Option<(u64, Value)>, HeaderErrorKind> {
        if self.at >= end {
            return Ok(None);
        }
        let tag = self.varint(end)?;
        let number = tag >> 3;
        if number == 0 {
            return Err(self.malformed("a field with number 0"));
        }
        let fixed = match tag & 7 {
            0 => return Ok(Some((number, Value::Varint(self.varint(end)?)))),
            1 => 8,
            2 => {
                let len = self.varint(end)?;
                let room = end - self.at;
                if len > room {
                    return Err(HeaderErrorKind::Overrun { at: self.at, len, room });
                }
                return Ok(Some((number, Value::Len { end: self.at + len })));
            }
            5 => 4,
            _ => return Err(self.malformed("a field of an unknown wire type")),
        };
        if end - self.at < fixed {
            return Err(self.malformed("a number runs over the end of its message"));
        }
        self.seek_by(fixed)?;
        Ok(Some((number, Value::Fixed)))
    }

    /// Where the next byte is read.
    pub(crate) const fn position(&self) -> u64 {
        self.at
    }

    /// The numbers up to `end`: a repeated field in packed form.
    pub(crate) fn varints(
        &mut self,
        end: u64,
        mut take: impl FnMut(u64),
    ) -> Result<(), HeaderErrorKind> {
        while self.at < end {
            take(self.varint(end)?);
        }
        Ok(())
    }

    /// Moves behind `value`, without reading it.
    pub(crate) fn skip(&mut self, value: Value) -> Result<(), HeaderErrorKind> {
        match value {
            Value::Len { end } => self.seek_by(end.saturating_sub(self.at)),
            Value::Varint(_) | Value::Fixed => Ok(()),
        }
    }

    /// The bytes up to `end` as text of at most `limit` bytes.
    pub(crate) fn text(&mut self, end: u64, limit: usize) -> Result<String, HeaderErrorKind> {
        let len = usize::try_from(end - self.at)
            .ok()
            .filter(|len| *len <= limit)
            .ok_or_else(|| self.malformed("a name that is too long"))?;
        let mut bytes = vec![0; len];
        self.inner.read_exact(&mut bytes).map_err(|e| HeaderErrorKind::Read(self.at, e))?;
        let text = String::from_utf8(bytes).map_err(|_| self.malformed("a name is not UTF-8"))?;
        self.at = end;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_written() {
        for value in [0, 1, 127, 128, 300, -1, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_int(&mut bytes, 20, value);
            let end = bytes.len() as u64;
            let mut reader = Reader::new(Cursor::new(bytes)).expect("in memory");
            let field = reader.field(end).expect("well formed");
            assert_eq!(field, Some((20, Value::Varint(value.cast_unsigned()))));
            assert_eq!(reader.field(end).expect("at the end"), None);
        }
    }

    #[test]
    fn the_tenth_byte_of_a_number_has_one_bit() {
        let mut bytes = vec![8];
        bytes.extend([0xff; 9]);
        bytes.push(2);
        let end = bytes.len() as u64;
        let mut reader = Reader::new(Cursor::new(bytes)).expect("in memory");
        assert!(matches!(reader.field(end), Err(HeaderErrorKind::Malformed { .. })));
    }

    #[test]
    fn a_length_beyond_its_message_is_refused_with_both_numbers() {
        let bytes = vec![0x0a, 0x05, 1, 2];
        let mut reader = Reader::new(Cursor::new(bytes)).expect("in memory");
        let error = reader.field(4).expect_err("5 bytes in a room of 2");
        assert!(matches!(error, HeaderErrorKind::Overrun { at: 2, len: 5, room: 2 }), "{error}");
    }
}
