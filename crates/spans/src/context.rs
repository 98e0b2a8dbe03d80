//! W3C trace context, version 00: the trace of a request, the span that caused it, and the sampling
//! flag.
//!
//! Source: <https://www.w3.org/TR/trace-context/#traceparent-header>

/// Bytes of a context in text.
pub const TRACEPARENT_BYTES: usize = 55;

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Context {
    /// The trace; not all zero.
    pub trace: [u8; 16],
    /// The span that caused the request; not all zero.
    pub span: [u8; 8],
    /// The start of the trace decided to record it.
    pub is_sampled: bool,
}

impl Context {
    /// A new sampled trace, with a first span.
    #[must_use]
    pub fn begin() -> Self {
        // One of the bits is set: zero is no number of a trace.
        let trace = (fastrand::u128(..) | 1).to_be_bytes();
        Self { trace, span: span_id(), is_sampled: true }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: span_id(), ..*self }
    }

    /// Reads `00-<trace>-<span>-<flags>`: hexadecimal digits in lower case. In a later version the
    /// text after these fields is ignored, as the standard requires.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (fields, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
        let mut parts = fields.split(|byte| *byte == b'-');
        let [version] = hex(parts.next()?)?;
        let (trace, span) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let [flags] = hex(parts.next()?)?;
        let has_known_end = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let is_named = trace != [0; 16] && span != [0; 8];
        let is_sampled = flags & 1 == 1;
        (has_known_end && is_named && parts.next().is_none()).then_some(Self {
            trace,
            span,
            is_sampled,
        })
    }

    /// Appends it in text.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"00-");
        write_hex(&self.trace, out);
        out.push(b'-');
        write_hex(&self.span, out);
        out.extend_from_slice(if self.is_sampled { b"-01" } else { b"-00" });
    }
}

fn span_id() -> [u8; 8] {
    // See `begin`.
    (fastrand::u64(..) | 1).to_be_bytes()
}

fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = digits else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

const fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_round_trips() {
        let context = Context::parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!((context.trace[0], context.span[7], context.is_sampled), (0x0a, 0x31, true));
        let mut text = Vec::new();
        context.write(&mut text);
        assert_eq!(text, EXAMPLE.as_bytes());
        assert_eq!(text.len(), TRACEPARENT_BYTES);
        let mut unsampled = Vec::new();
        Context { is_sampled: false, ..context }.write(&mut unsampled);
        assert!(!Context::parse(&unsampled).unwrap().is_sampled);
    }

    #[test]
    fn only_the_sampled_bit_of_the_flags_counts() {
        for (flags, is_sampled) in [("00", false), ("02", false), ("03", true), ("ff", true)] {
            let text = format!("{}{flags}", &EXAMPLE[..53]);
            assert_eq!(Context::parse(text.as_bytes()).unwrap().is_sampled, is_sampled, "{flags}");
        }
    }

    #[test]
    fn a_later_version_may_have_more_fields() {
        let later = EXAMPLE.replacen("00", "01", 1);
        assert!(Context::parse(later.as_bytes()).is_some());
        assert!(Context::parse(format!("{later}-more").as_bytes()).is_some());
        assert!(Context::parse(format!("{later}more").as_bytes()).is_none());
    }

    #[test]
    fn malformed_contexts_are_refused() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        let shifted = "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01";
        for text in [
            "",
            "00",
            &EXAMPLE[..54],
            &EXAMPLE.replace('f', "F"),
            &EXAMPLE.replace('f', "g"),
            &EXAMPLE.replacen("00", "ff", 1),
            &format!("{EXAMPLE}-00"),
            &EXAMPLE.replace('-', "_"),
            &zero_trace,
            &zero_span,
            shifted,
        ] {
            assert_eq!(Context::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_child_is_a_new_span_of_the_same_trace() {
        let parent = Context::begin();
        let child = parent.child();
        assert_eq!(child.trace, parent.trace);
        assert_ne!(child.span, parent.span);
        assert!(child.is_sampled);
        assert_ne!(Context::begin().trace, parent.trace);
    }
}
