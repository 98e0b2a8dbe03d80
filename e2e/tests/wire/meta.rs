//! Meta commands.

use super::{Row, changed, check, row};
use testkit::{Kind, Server};

const BAD: &str = "CLIENT_ERROR bad command line format\r\n";

const GET: &[Row] = &[
    row("mg <k>\r\nmg <k> v q\r\n", "EN\r\n"),
    row(
        "set <k> 7 0 3\r\nabc\r\nmg <k>\r\nmg <k> v\r\nmg <k> s v f t\r\n",
        "STORED\r\nHD\r\nVA 3\r\nabc\r\nVA 3 s3 f7 t-1\r\nabc\r\n",
    ),
    row("set <k> 0 0 1\r\na\r\nmg <k> k Oxyz c\r\n", "STORED\r\nHD k<k> Oxyz c<n>\r\n"),
    row(
        "set <k> 0 0 1\r\na\r\nmg <k> h\r\nmg <k> h\r\nmg <k> u h l\r\n",
        "STORED\r\nHD h0\r\nHD h1\r\nHD h1 l<n>\r\n",
    ),
    row("set <k> 0 100 1\r\na\r\nmg <k> t T50\r\nmg <k> t\r\n", "STORED\r\nHD t<n>\r\nHD t<n>\r\n"),
    row("mg <k> N30 v t\r\nmg <k> v\r\nmg <k>\r\n", "VA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\nHD Z\r\n"),
    row(
        "set <k> 0 20 1\r\na\r\nmg <k> R30 v\r\nmg <k> R30\r\nmg <k> R10\r\n",
        "STORED\r\nVA 1 W\r\na\r\nHD Z\r\nHD Z\r\n",
    ),
    row("mg <k> k Oab\r\n", "EN k<k> Oab\r\n"),
    row("mg <k> z\r\n", "CLIENT_ERROR invalid flag\r\n"),
    row("mg <k> v v\r\n", "CLIENT_ERROR duplicate flag\r\n"),
    row("mg <k> Tx\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
    changed("mg\r\n", BAD, "ERROR\r\n"),
];

const SET: &[Row] = &[
    row("ms <k> 3\r\nabc\r\nmg <k> v\r\n", "HD\r\nVA 3\r\nabc\r\n"),
    row("ms <k> 3 q\r\nabc\r\nmg <k> v f\r\n", "VA 3 f0\r\nabc\r\n"),
    row("ms <k> 2 F5 T90 c k Oq1\r\nhi\r\nmg <k> f t\r\n", "HD c<n> k<k> Oq1\r\nHD f5 t<n>\r\n"),
    row(
        "ms <k> 1 MR\r\na\r\nms <k> 1 ME\r\nb\r\nms <k> 1 ME\r\nc\r\nms <k> 1 MA\r\nd\r\nms <k> 1 MP\r\ne\r\nget <k>\r\n",
        "NS\r\nHD\r\nNS\r\nHD\r\nHD\r\nVALUE <k> 0 3\r\nebd\r\nEND\r\n",
    ),
    changed("ms <k> 1 MA\r\na\r\nms <k> 1 MA N60\r\nb\r\n", "NS\r\nHD\r\n", "NS\r\nNS\r\n"),
    row(
        "ms <k> 1 C5\r\na\r\nset <k> 0 0 1\r\nb\r\nms <k> 1 C18446744073709551615\r\nc\r\n",
        "NF\r\nSTORED\r\nEX\r\n",
    ),
    row("ms <k> 1 MX\r\na\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"),
    row("ms <k>\r\n", BAD),
    row("ms <k> x\r\n", BAD),
    changed(
        "ms <k> 2\r\nfour\r\nmg <k>\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nEN\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nEN\r\n",
    ),
];

const DELETE_AND_ARITHMETIC: &[Row] = &[
    row(
        "md <k>\r\nset <k> 0 0 1\r\na\r\nmd <k> k Oz\r\nmd <k> q\r\n",
        "NF\r\nSTORED\r\nHD k<k> Oz\r\nNF\r\n",
    ),
    row("set <k> 0 0 1\r\na\r\nmd <k> q\r\nmg <k>\r\n", "STORED\r\nEN\r\n"),
    row(
        "set <k> 0 0 1\r\na\r\nmd <k> C18446744073709551615\r\nmd <k>\r\n",
        "STORED\r\nEX\r\nHD\r\n",
    ),
    row(
        "set <k> 0 0 1\r\na\r\nmd <k> I T30\r\nmg <k> v\r\nmg <k> v\r\n",
        "STORED\r\nHD\r\nVA 1 X W\r\na\r\nVA 1 Z X\r\na\r\n",
    ),
    row(
        "set <k> 0 0 2\r\n50\r\nmd <k> I\r\nincr <k> 1\r\nmg <k> v\r\n",
        "STORED\r\nHD\r\n51\r\nVA 2 X W\r\n51\r\n",
    ),
    row(
        "ma <k>\r\nset <k> 0 0 1\r\n5\r\nma <k>\r\nma <k> v\r\nma <k> v D10 MI\r\nma <k> MD v D3\r\n",
        "NF\r\nSTORED\r\nHD\r\nVA 1\r\n7\r\nVA 2\r\n17\r\nVA 2\r\n14\r\n",
    ),
    row("ma <k> N0 J13 v\r\nma <k> v\r\n", "VA 2\r\n13\r\nVA 2\r\n14\r\n"),
    row(
        "ma <k> N90 t v\r\nma <k> q\r\nma <k> MX\r\n",
        "VA 1 t90\r\n0\r\nCLIENT_ERROR invalid mode for ma M token\r\n",
    ),
    row(
        "set <k> 0 0 1\r\na\r\nma <k>\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    row("ma <k> N0 J5 q\r\nma <k> q\r\n", ""),
    row(
        "set <k> 0 0 1\r\na\r\nma <k> C18446744073709551615\r\nmg <k> v\r\n",
        "STORED\r\nEX\r\nVA 1\r\na\r\n",
    ),
    row("me <k>\r\n", "EN\r\n"),
];

/// 1.6.45 replies differently from 1.6.18 and holdall; see docs/protocol.md.
const REFUSED_STORES: &[Row] = &[
    row(
        "set <k> 0 0 1\r\nx\r\nms <k> 3 ME s\r\nabc\r\nms <k> 3 C18446744073709551615 s\r\nabc\r\n",
        "STORED\r\nNS s3\r\nEX s3\r\n",
    ),
    row(
        "ms <k> 3 C18446744073709551615 s\r\nabc\r\nms <k> 3 MA s\r\nabc\r\n",
        "NF s3\r\nNS s3\r\n",
    ),
    row("ms <k> 3 MA N30 C18446744073709551615\r\nabc\r\nmg <k>\r\n", "NS\r\nEN\r\n"),
];

const BASE64: &[Row] = &[
    row(
        "ms Zm9v 2 b k\r\nhi\r\nmg Zm9v b k v\r\nget foo\r\n",
        "HD kZm9v b\r\nVA 2 kZm9v b\r\nhi\r\nVALUE foo 0 2\r\nhi\r\nEND\r\n",
    ),
    row("mg not/base64! b\r\n", "CLIENT_ERROR error decoding key\r\n"),
];

#[test]
fn meta_get() {
    check(&Server::under_test(&[]), GET);
}

#[test]
fn meta_set() {
    check(&Server::under_test(&[]), SET);
}

#[test]
fn meta_delete_and_arithmetic() {
    check(&Server::under_test(&[]), DELETE_AND_ARITHMETIC);
}

/// memcached forgets it if a reply to an earlier request has not been sent yet.
#[test]
fn stale_and_won_flags_survive_changes() {
    let server = Server::holdall(&[]);
    let mut wire = server.connect();
    wire.expect(
        b"set n 0 0 2\r\n99\r\nmd n I\r\nincr n 1\r\nmg n v\r\ndecr n 1\r\nmg n v h\r\n",
        b"STORED\r\nHD\r\n100\r\nVA 3 X W\r\n100\r\n99\r\nVA 3 h1 Z X\r\n99 \r\n",
    );
    wire.expect(
        b"set w 0 20 1\r\n5\r\nmg w R30\r\nma w\r\nmg w R30\r\n",
        b"STORED\r\nHD W\r\nHD\r\nHD Z\r\n",
    );
    wire.expect(
        b"set a 0 0 1\r\n1\r\nmd a I\r\nappend a 0 0 1\r\n2\r\nmg a v\r\nms a 1 MP\r\n0\r\nmg a v\r\n",
        b"STORED\r\nHD\r\nSTORED\r\nVA 2 X W\r\n12\r\nHD\r\nVA 3 Z X\r\n012\r\n",
    );
    wire.expect(b"set a 0 0 1\r\n3\r\nmg a v\r\n", b"STORED\r\nVA 1\r\n3\r\n");
}

#[test]
fn refused_meta_stores() {
    check(&Server::under_test(&[]), REFUSED_STORES);
}

#[test]
fn keys_in_base64() {
    check(&Server::under_test(&[]), BASE64);
}

/// `E` sets the new cas unique; 1.6.18 does not know it.
#[test]
fn a_client_can_set_the_cas_unique() {
    let server = Server::under_test(&[]);
    if server.kind() == Kind::Memcached {
        return;
    }
    check(
        &server,
        &[
            row(
                "ms <k> 1 E100 c\r\na\r\nmg <k> c\r\nms <k> 1 C100 E205\r\nb\r\ngets <k>\r\n",
                "HD c100\r\nHD c100\r\nHD\r\nVALUE <k> 0 1 205\r\nb\r\nEND\r\n",
            ),
            row(
                "ms <k> 1 E18446744073709551615\r\na\r\n\
                 cas <k> 0 0 1 18446744073709551615\r\nb\r\n\
                 cas <k> 0 0 1 18446744073709551615\r\nc\r\n",
                "HD\r\nSTORED\r\nEXISTS\r\n",
            ),
            row(
                "set <k> 0 0 1\r\na\r\nmd <k> x\r\nmg <k> v f t\r\n",
                "STORED\r\nHD\r\nVA 0 f0 t-1\r\n\r\n",
            ),
        ],
    );
}

#[test]
fn quiet_gets_end_with_the_fence() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    wire.expect(b"set b 0 0 1\r\nx\r\n", b"STORED\r\n");
    wire.expect(b"mg a v q\r\nmg b v q k\r\nmg c v q\r\nmn\r\n", b"VA 1 kb\r\nx\r\nMN\r\n");
}
