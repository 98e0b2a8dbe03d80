//! Random bytes, and random sentences in each protocol's own words: nothing panics, and no split
//! changes the meaning.

mod common;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Meaningful words, and words that are nearly meaningful.
fn text_word() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"get",
        b"gets",
        b"gat",
        b"gats",
        b"set",
        b"add",
        b"cas",
        b"append",
        b"mg",
        b"ms",
        b"md",
        b"ma",
        b"me",
        b"mn",
        b"delete",
        b"incr",
        b"touch",
        b"flush_all",
        b"stats",
        b"noreply",
        b"HTTP/1.1",
        b"key",
        b"YQ==",
        b"0",
        b"1",
        b"3",
        b"-1",
        b"4294967296",
        b"99999999999999999999",
        b"b",
        b"k",
        b"v",
        b"q",
        b"T30",
        b"Oabc",
        b"ME",
        b"MI",
        b"C5",
        b" ",
        b"  ",
        b"\r",
        b"\r\n",
        b"\n",
        b"abc\r\n",
        b"\0",
        b"\x80",
        b"\xff",
        b"\t",
    ];
    prop_oneof![
        8 => select(words).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..8),
        1 => (245usize..256).prop_map(|len| vec![b'k'; len]),
    ]
}

fn text_sentence() -> impl Strategy<Value = Vec<u8>> {
    let separator = select(vec![b" ".as_slice(), b" ", b" ", b"\r\n", b"\n", b""]);
    vec((text_word(), separator), 0..40).prop_map(|words| {
        words
            .into_iter()
            .flat_map(|(word, separator)| [word, separator.to_vec()].concat())
            .collect()
    })
}

/// Packets whose lengths are mostly correct.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let sizes =
        select(vec![(0u8, 1u16, 0u32), (8, 3, 9), (20, 1, 0), (4, 1, 0), (0, 0, 0), (0, 5, 7)]);
    let lie = prop_oneof![9 => Just(0u32), 1 => any::<u32>()];
    let packet = (0u8..0x28, sizes, lie, vec(any::<u8>(), 40));
    vec(packet, 0..6).prop_map(|packets| {
        let mut bytes = Vec::new();
        for (opcode, (extras, key, value), lie, body) in packets {
            let len = u32::from(extras) + u32::from(key) + value;
            bytes.extend([0x80, opcode]);
            bytes.extend(key.to_be_bytes());
            bytes.extend([extras, 0, 0, 0]);
            bytes.extend((len ^ lie).to_be_bytes());
            bytes.extend([0; 12]);
            bytes.extend(body.iter().cycle().take(usize::try_from(len).unwrap_or(0)));
        }
        bytes
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..400)) {
        common::check_text(&bytes);
        common::check_binary(&bytes);
        common::check_udp(&bytes);
        common::check_binary(&[b"\x80", bytes.as_slice()].concat());
    }

    #[test]
    fn text_sentences(bytes in text_sentence()) {
        common::check_text(&bytes);
        common::check_meta(&bytes);
    }

    #[test]
    fn binary_packets(bytes in packets()) {
        common::check_binary(&bytes);
    }

    /// Numbers as `str::parse` reads them, without its `+`.
    #[test]
    fn numbers(text in "[-+0-9 x]{0,3}[0-9]{0,21}") {
        let bytes = text.as_bytes();
        let unsigned = text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
        let signed = text.parse::<i64>().ok().filter(|_| !text.starts_with('+'));
        prop_assert_eq!(proto::number::parse_u64(bytes), unsigned);
        prop_assert_eq!(proto::number::parse_i64(bytes), signed);
        let narrow = unsigned.and_then(|number| u32::try_from(number).ok());
        prop_assert_eq!(proto::number::parse_u32(bytes), narrow);
    }
}
