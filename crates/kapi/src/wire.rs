//! Protocol Buffers wire format, as much as Kubernetes messages use: varints and length-delimited fields.
//!
//! Written by hand because the peer chooses the bytes: list and map entries are counted against one budget, which
//! generated decoders do not do, and empty scalars are written out, as Kubernetes does.

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// A field reaches beyond the end.
    #[error("unexpected end of message")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("varint longer than 64 bits")]
    LongVarint,
    /// A tag without a valid field number.
    #[error("field number zero or too large")]
    FieldNumber,
    /// A group or an unassigned wire type.
    #[error("wire type {0} is not used by Kubernetes")]
    WireType(u8),
    /// A known field in a foreign wire type.
    #[error("field {0} has another wire type")]
    Mismatch(u32),
    /// Text that is not UTF-8.
    #[error("field {0} is not UTF-8")]
    Text(u32),
    /// A value that does not fit its type.
    #[error("field {0} is out of range")]
    Range(u32),
    /// More list and map entries than the limit.
    #[error("too many values")]
    TooMany,
}

/// One field of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    value: FieldValue<'a>,
}

#[derive(Debug, Clone, Copy)]
enum FieldValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The fields of a message, in order.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field, or nothing at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, WireFault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|n| (1..=MAX_FIELD_NUMBER).contains(n));
        let number = number.ok_or(WireFault::FieldNumber)?;
        let value = match tag & 7 {
            0 => FieldValue::Varint(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| WireFault::Truncated)?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| FieldValue::Fixed)?,
            3 => return Err(WireFault::WireType(3)),
            4 => return Err(WireFault::WireType(4)),
            6 => return Err(WireFault::WireType(6)),
            _ => return Err(WireFault::WireType(7)),
        };
        Ok(Some(Field { number, value }))
    }

    fn varint(&mut self) -> Result<u64, WireFault> {
        let mut value = 0;
        for position in 0..10_u32 {
            let (byte, rest) = self.rest.split_first().ok_or(WireFault::Truncated)?;
            self.rest = rest;
            if position == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireFault::LongVarint)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireFault> {
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireFault::Truncated)?;
        self.rest = rest;
        Ok(head)
    }
}

impl<'a> Field<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], WireFault> {
        match self.value {
            FieldValue::Bytes(bytes) => Ok(bytes),
            FieldValue::Varint(_) | FieldValue::Fixed => Err(WireFault::Mismatch(self.number)),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, WireFault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireFault::Text(self.number))
    }

    pub(crate) fn string(self) -> Result<String, WireFault> {
        self.text().map(str::to_owned)
    }

    pub(crate) fn int64(self) -> Result<i64, WireFault> {
        match self.value {
            FieldValue::Varint(value) => Ok(value.cast_signed()),
            FieldValue::Bytes(_) | FieldValue::Fixed => Err(WireFault::Mismatch(self.number)),
        }
    }

    pub(crate) fn int32(self) -> Result<i32, WireFault> {
        i32::try_from(self.int64()?).map_err(|_| WireFault::Range(self.number))
    }

    pub(crate) fn boolean(self) -> Result<bool, WireFault> {
        Ok(self.int64()? != 0)
    }
}

/// How many list and map entries may still come.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) fn new(values: usize) -> Self {
        Self(values)
    }

    pub(crate) fn spend(&mut self, values: usize) -> Result<(), WireFault> {
        self.0 = self.0.checked_sub(values).ok_or(WireFault::TooMany)?;
        Ok(())
    }

    pub(crate) fn left(&self) -> usize {
        self.0
    }
}

/// A message being written.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.begin(number, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// What stands before so many bytes.
    pub(crate) fn begin(&mut self, number: u32, length: usize) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(length as u64);
    }

    pub(crate) fn text(&mut self, number: u32, text: &str) {
        self.bytes(number, text.as_bytes());
    }

    pub(crate) fn int(&mut self, number: u32, value: i64) {
        self.varint(u64::from(number) << 3);
        self.varint(value.cast_unsigned());
    }

    pub(crate) fn message(&mut self, number: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(number, &inner.0);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let low = value.to_le_bytes()[0] & 0x7f;
            value >>= 7;
            if value == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;
