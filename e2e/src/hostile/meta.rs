//! Meta lines that broke servers.

use super::{Input, LENGTHS, any, refused};

/// All inputs.
#[must_use]
pub fn inputs() -> Vec<Input> {
    let mut inputs = shapes();
    for len in LENGTHS {
        inputs.push(refused(format!("meta-len-{len}"), format!("ms k {len}\r\nversion\r\n")));
        let line = format!(
            "mg k T{len} N{len} R{len} C{len} E{len} v\r\nms k 1 T{len} F{len}\r\nx\r\n\
             ma k D{len} J{len} N{len}\r\nmd k T{len} C{len}\r\n"
        );
        inputs.push(any(format!("meta-number-{len}"), line));
    }
    inputs.extend(last_bytes());
    inputs
}

fn shapes() -> Vec<Input> {
    let key251 = "k".repeat(251);
    let opaque = "o".repeat(40);
    let flags = "v k f s t l h c ".repeat(20);
    let data = "d".repeat(400_000);
    vec![
        // CVE-2020-22570: an error text that was never set.
        any("meta-00 CVE-2020-22570", "mg\r\nms\r\nmd\r\nma\r\nme\r\nmn x y z\r\n"),
        any(
            "meta-01 CVE-2020-22570",
            format!(
                "mg {key251}\r\nms {key251} 1\r\nx\r\nmd {key251}\r\nma {key251}\r\nme {key251}\r\n"
            ),
        ),
        any("meta-02 no-length", "ms k\r\nms k T0\r\nms k S2\r\nms k -\r\n"),
        any("meta-03 flags-too-long", format!("mg k {flags}\r\n")),
        any("meta-04 symbol-flags", "mg k ! \" # $ % & ( ) * + , - . / : ; < = > ? @ [\r\n"),
        any("meta-05 every-letter", "mg k a b c d e f g h i j k l m n o p q r s t u v w x y z\r\n"),
        any(
            "meta-06 every-capital",
            "mg k A B C D E F G H I J K L M N O P Q R S T U V W X Y Z\r\n",
        ),
        any(
            "meta-07 base64",
            "mg = b\r\nmg ==== b\r\nmg a b\r\nmg YQ= b\r\nmg YQ=== b\r\nmg \u{ff} b\r\nmg Y\0== b\r\n",
        ),
        any(
            "meta-08 base64-250",
            format!("ms {} 1 b\r\nx\r\nmg {} b k v\r\n", "QUJD".repeat(62), "QUJD".repeat(62)),
        ),
        any("meta-09 base64-251", format!("ms {}A 1 b\r\nx\r\n", "QUJD".repeat(63))),
        // 152ddb68f and 93b5e10fd: an opaque that is too long drops, or keeps, a reference.
        any(
            "meta-mg-opaque-too-long",
            format!("ms k 1\r\nx\r\n{}", format!("mg k v O{opaque}\r\n").repeat(2000)),
        ),
        any("meta-ms-opaque-too-long", format!("ms k 400000 O{opaque}\r\n{data}\r\n").repeat(40)),
        any("meta-opaque-2000", format!("mg k O{}\r\n", "o".repeat(1900))),
        any("meta-quiet-flood", "mg none v q\r\nmd none q\r\nms k 1 q\r\nx\r\n".repeat(5000)),
        any(
            "meta-invalidate-unknown",
            "md none I T30\r\nmg none N30 R30 v t\r\nms none 1 I C5\r\nx\r\n".repeat(20),
        ),
        any("meta-ms-bad-mode", "ms k 1 M\r\nx\r\nms k 1 MZ\r\nx\r\nma k M\r\nma k MZ\r\n"),
        any("meta-ma-on-text", "ms k 3\r\nabc\r\nma k\r\nma k MD\r\nma k D\r\nma k J N0\r\n"),
    ]
}

/// 17684bfa9 and 7d8ef8fcd: a flag without its argument as the last bytes of the read buffer.
fn last_bytes() -> Vec<Input> {
    let mut inputs = Vec::new();
    for flag in ["T", "N", "R", "C", "E", "D", "J", "F", "M", "O", "S"] {
        for buffer in [2048, 4096, 16_384, 65_536] {
            let line = format!("mg k {flag}\r\n");
            let filler = "mn\r\n".repeat(buffer / 4);
            let bytes = format!("{}{line}", &filler[..(buffer - line.len()) / 4 * 4]);
            inputs.push(any(format!("meta-flag-{flag}-last-bytes-{buffer}"), bytes));
        }
    }
    inputs
}
