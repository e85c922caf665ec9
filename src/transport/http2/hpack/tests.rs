//! The decoder against the examples of RFC 7541 and against what other encoders write.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::huffman;
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap_or_default();
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, CompressionError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, |name, value| fields.push((text(name), text(value)))).map(|()| fields)
}

/// Decodes blocks one after another: hexadecimal, fields as `name: value` in lines, the size of the table after each.
fn check(table_size: usize, blocks: &[(&str, &str, usize)]) {
    let mut decoder = Decoder::default();
    decoder.table.resize(table_size);
    for (hex, expected, size) in blocks {
        let fields = decode(&mut decoder, &bytes(hex)).unwrap_or_default();
        let lines: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected: Vec<_> = expected.lines().map(str::trim).collect();
        assert_eq!((lines, decoder.table().size()), (expected.iter().map(|line| (*line).to_owned()).collect(), *size));
    }
}

const FIRST: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com";
const SECOND: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache";
const THIRD: &str =
    ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value";

const ANSWER_1: &str = ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
                        location: https://www.example.com";
const ANSWER_2: &str = ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
                        location: https://www.example.com";
const ANSWER_3: &str = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
                        location: https://www.example.com\ncontent-encoding: gzip\n\
                        set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

/// RFC 7541, appendix C.2: one representation each.
#[test]
fn representations() {
    check(
        4096,
        &[("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key: custom-header", 55)],
    );
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0)]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0)]);
    check(4096, &[("82", ":method: GET", 0)]);
}

/// RFC 7541, appendices C.3 and C.4.
#[test]
fn requests() {
    let plain = [
        ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST, 57),
        ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND, 110),
        ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD, 164),
    ];
    let coded = [
        ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST, 57),
        ("8286 84be 5886 a8eb 1064 9cbf", SECOND, 110),
        ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD, 164),
    ];
    check(4096, &plain);
    check(4096, &coded);
}

/// RFC 7541, appendices C.5 and C.6: the table is too small for all of it.
#[test]
fn responses() {
    let plain = [
        (
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 \
             474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            ANSWER_1,
            222,
        ),
        ("4803 3330 37c1 c0bf", ANSWER_2, 222),
        (
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 \
             666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 \
             3630 303b 2076 6572 7369 6f6e 3d31",
            ANSWER_3,
            215,
        ),
    ];
    let coded = [
        (
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
             63c7 8f0b 97c8 e9ae 82ae 43d3",
            ANSWER_1,
            222,
        ),
        ("4883 640e ffc1 c0bf", ANSWER_2, 222),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
             b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            ANSWER_3,
            215,
        ),
    ];
    check(256, &plain);
    check(256, &coded);
}

#[test]
fn what_is_no_block_is_refused() {
    for (name, hex) in [
        ("index 0", "80"),
        ("an index of no field", "be"),
        ("an index of no field, far away", "ff80 8080 08"),
        ("a name of no field", "7f00 0161"),
        ("no value", "4001 61"),
        ("a value that is too short", "4001 6105 62"),
        ("a name that is too short", "4005 61"),
        ("an integer without its end", "ff80"),
        ("an integer that is too large", "ffff ffff ffff 0f"),
        ("an integer with too many zeros", "ff80 8080 8080 00"),
        ("a table that is too large", "3fe2 1f"),
        ("a size behind a field", "8220"),
        ("a string with the end of a string", "0001 6184 ffff ffff"),
        ("padding of a byte", "0001 6182 07ff"),
        ("padding of zeros", "0001 6181 06"),
    ] {
        assert_eq!(decode(&mut Decoder::default(), &bytes(hex)), Err(CompressionError), "{name}");
    }
    for (name, hex) in [("several sizes", "203f e11f 82"), ("the largest size", "3fe1 1f82"), ("nothing", "")] {
        assert!(decode(&mut Decoder::default(), &bytes(hex)).is_ok(), "{name}");
    }
}

#[test]
fn a_name_outlives_its_entry() {
    let mut decoder = Decoder::default();
    decoder.table.resize(40);
    let mut block = b"\x40\x03abc\x01x".to_vec();
    block.extend(b"\x7e\x02yy"); // the name at 62, of the entry that this one evicts
    let fields = decode(&mut decoder, &block).unwrap_or_default();
    assert_eq!(fields, [("abc".into(), "x".into()), ("abc".into(), "yy".into())]);
    assert_eq!(decoder.table().size(), 37);
}

proptest! {
    /// Any field in any representation.
    #[test]
    fn fields_are_decoded_as_they_were_encoded(
        // Values are parts of one text, because a text is expensive to make.
        text in "\\PC{0,200}",
        fields in prop::collection::vec(("[a-z-]{1,20}", any::<[Index; 2]>(), any::<bool>(), any::<bool>()), 0..30),
    ) {
        let text: Vec<_> = text.chars().collect();
        let fields = fields.into_iter().map(|(name, ends, is_indexed, is_coded)| {
            let [one, other] = ends.map(|end| end.index(text.len() + 1));
            let value: String = text[one.min(other)..one.max(other)].iter().collect();
            (name, value, is_indexed, is_coded)
        });
        let fields: Vec<_> = fields.collect();
        let mut block = Vec::new();
        for (name, value, is_indexed, is_coded) in &fields {
            block.push(if *is_indexed { 0x40 } else { 0 });
            for text in [name, value] {
                let mut string = Vec::new();
                if *is_coded {
                    huffman::encode(text.as_bytes(), &mut string);
                } else {
                    string.extend_from_slice(text.as_bytes());
                }
                let flag = if *is_coded { 0x80 } else { 0 };
                let len = string.len();
                if len < 127 {
                    block.push(flag | len as u8);
                } else {
                    block.extend([flag | 127, ((len - 127) % 128) as u8 | 128, ((len - 127) / 128) as u8]);
                }
                block.extend(string);
            }
        }
        let expected: Vec<_> = fields.iter().map(|(name, value, ..)| (name.clone(), value.clone())).collect();
        prop_assert_eq!(decode(&mut Decoder::default(), &block), Ok(expected));
    }

    #[test]
    fn no_block_panics(blocks in prop::collection::vec(any::<Vec<u8>>(), 0..10)) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let _ = decode(&mut decoder, &block);
            prop_assert!(decoder.table().size() <= TABLE_SIZE);
        }
    }
}
