//! mcrouter's macros, one line each; and texts that would run forever.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use routeconf::ast::Route;
use routeconf::{MemorySources, Params, load};

/// The expansion of `expression`, shown through the text of an ErrorRoute; or the error.
fn eval_with(macros: &str, expression: &str, files: &[(&str, &str)]) -> Result<String, String> {
    let text = format!(
        r#"{{"macros": {{{macros}}}, "route": {{"type": "ErrorRoute", "response": {{"type": "show", "it": {expression}}}}}}}"#
    );
    // A list is shown as its parts between bars, an object as its keys and values, others by @str.
    let show = r#""show": {"type": "macroDef", "params": ["it"], "result": {"type": "if", "condition": "@isString(%it%)", "is_true": "%it%",
        "is_false": {"type": "if", "condition": "@isArray(%it%)", "is_true": {"type": "process", "dictionary": "%it%", "initialValue": "", "itemName": "x",
            "transform": {"type": "merge", "params": ["%value%", {"type": "show", "it": "%x%"}, "|"]}},
        "is_false": {"type": "if", "condition": "@isObject(%it%)", "is_true": {"type": "process", "dictionary": "%it%", "initialValue": "", "itemName": "x",
            "transform": {"type": "merge", "params": ["%value%", "%key%", "=", {"type": "show", "it": "%x%"}, ";"]}},
        "is_false": {"type": "str", "value": "%it%"}}}}}"#;
    let comma = if macros.is_empty() { "" } else { ", " };
    let text = text.replacen("\"macros\": {", &format!("\"macros\": {{{show}{comma}"), 1);
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let mut params = Params::new("/us/east/");
    params.set_text("extra", "from outside");
    match load("m.json", &text, &params, &mut MemorySources(files.collect())) {
        Ok(loaded) => match &loaded.config.handles[0].route {
            Route::Error { message, .. } => Ok(message.clone()),
            other => panic!("{other:?}"),
        },
        Err(rejected) => Err(rejected.render()),
    }
}

#[track_caller]
fn is(expression: &str, want: &str) {
    assert_eq!(eval_with("", expression, &[]).as_deref(), Ok(want), "{expression}");
}

#[track_caller]
fn fails(macros: &str, expression: &str, part: &str) {
    let error = eval_with(macros, expression, &[]).unwrap_err();
    assert!(error.contains(part), "{expression}\n{error}\nwanted: {part}");
}

#[test]
fn built_ins() {
    for (expression, want) in [
        (r#""@add(@int(1),@int(2))""#, "3"),
        (r#""@sub(@int(1),@int(2))""#, "-1"),
        (r#""@mul(@int(6),@int(7))""#, "42"),
        (r#""@div(@int(7),@int(2))""#, "3"),
        (r#""@mod(@int(7),@int(4))""#, "3"),
        (r#""@bitwiseOr(@int(5),@int(2))""#, "7"),
        (r#""@bitwiseXor(@int(5),@int(1))""#, "4"),
        (r#""@bitwiseAnd(@int(6),@int(3))""#, "2"),
        (r#""@bitwiseLeftShift(@int(1),@int(4))""#, "16"),
        (r#""@str(@double(1.5))""#, "1.5"),
        (r#""@bool(yes)""#, "true"),
        (r#""@if(@less(@int(1),@int(2)),yes,no)""#, "yes"),
        (r#""@if(@and(@bool(true),@not(@bool(true))),yes,no)""#, "no"),
        (r#""@or(@bool(true),@fail(never))""#, "true"),
        (r#""@if(@equals(a,a),@str(x),@fail(never))""#, "x"),
        (r#""@range(@int(1),@int(3))""#, "1|2|3|"),
        (r#""@split(a.b.,.)""#, "a|b||"),
        (r#""@size(abc)""#, "3"),
        (r#""@empty()""#, "true"),
        (r#""@contains(haystack,st)""#, "true"),
        (r#""@defined(default-region)""#, "true"),
        (r#""@defined(no-such)""#, "false"),
        (r#""@isLocalIp(127.0.0.1)""#, "true"),
        (r#""@isLocalIp(192.0.2.1)""#, "false"),
        (r#""@isLocalIp(nonsense)""#, "false"),
        (r#""%default-route% and %extra%""#, "/us/east/ and from outside"),
        (r#""\\@not a macro, 100\\% \\\\""#, "@not a macro, 100% \\"),
        (r#"{"type": "merge", "params": [[1, 2], ["x"]]}"#, "1|2|x|"),
        (r#"{"type": "merge", "params": [{"a": 1, "b": 2}, {"b": 3}]}"#, "a=1;b=3;"),
        (r#"{"type": "merge", "params": ["a", "b"]}"#, "ab"),
        (r#"{"type": "select", "dictionary": {"a": "x"}, "key": "a"}"#, "x"),
        (r#"{"type": "select", "dictionary": [1, 2, 3], "key": -1}"#, "3"),
        (r#"{"type": "select", "dictionary": {}, "key": "a", "default": "d"}"#, "d"),
        (r#"{"type": "slice", "dictionary": [1, 2, 3, 4], "from": 1, "to": 2}"#, "2|3|"),
        (r#"{"type": "slice", "dictionary": "abcdef", "from": 1, "to": 3}"#, "bcd"),
        (
            r#"{"type": "slice", "dictionary": {"a": 1, "c": 2, "e": 3}, "from": "b", "to": "e"}"#,
            "c=2;e=3;",
        ),
        (r#"{"type": "set", "dictionary": {"a": 1}, "key": "b", "value": 2}"#, "a=1;b=2;"),
        (r#"{"type": "sort", "dictionary": [3, 1, 2]}"#, "1|2|3|"),
        (r#"{"type": "keys", "dictionary": {"a": 1, "b": 2}}"#, "a|b|"),
        (r#"{"type": "values", "dictionary": {"a": 1, "b": 2}}"#, "1|2|"),
        (
            r#"{"type": "transform", "dictionary": [1, 2], "itemTransform": "@add(%item%,%key%)"}"#,
            "1|3|",
        ),
        (
            r#"{"type": "transform", "dictionary": {"a": "x", "b": "y"}, "keyTransform": "k%key%", "itemTransform": "%item%%item%"}"#,
            "ka=xx;kb=yy;",
        ),
        (
            r#"{"type": "transform", "dictionary": {"a": 1}, "keyTransform": ["p", "q"]}"#,
            "p=1;q=1;",
        ),
        (
            r#"{"type": "process", "dictionary": [1, 2, 3], "initialValue": 0, "transform": "@add(%item%,%value%)"}"#,
            "6",
        ),
        (
            r#"{"type": "foreach", "from": [1, 2, 3, 4], "where": "@less(%item%,@int(4))", "top": 2}"#,
            "1|2|",
        ),
        (r#"{"type": "foreach", "from": {"a": 1, "b": 2}, "use": ["%key%"]}"#, "a|b|"),
        (r#"{"type": "foreach", "from": [], "noMatchResult": "none"}"#, "none"),
        (r#"{"vars": {"a": "%b%!", "b": "x"}, "type": "define", "result": "%a%%b%"}"#, "x!x"),
    ] {
        is(expression, want);
    }
}

#[test]
fn macros_constants_and_defaults() {
    let macros = r#""twice": {"type": "macroDef", "params": ["x", {"name": "sep", "default": "-"}], "result": "%x%%sep%%x%"},
        "zone": {"type": "constDef", "result": "%region%1"}, "region": {"type": "constDef", "result": "eu"},
        "list": {"type": "macroDef", "params": [{"name": "of", "optional": true}], "result": ["@defined(of)"]}"#;
    for (expression, want) in [
        (r#""@twice(a)""#, "a-a"),
        (r#""@twice(a, b)""#, "aba"),
        (r#""@twice(@twice(a,+),=)""#, "a+a=a+a"),
        (r#"{"type": "twice", "x": "%zone%", "sep": "/"}"#, "eu1/eu1"),
        (r#""@%region%ro""#, "europe"),
        (r#""@list""#, "false|"),
        (r#""@list(1)""#, "true|"),
    ] {
        let macros = format!(r#"{macros}, "euro": {{"type": "macroDef", "result": "europe"}}"#);
        assert_eq!(eval_with(&macros, expression, &[]).as_deref(), Ok(want), "{expression}");
    }
}

#[test]
fn imports() {
    let files = [
        ("v.json", r#"["@add(@int(1),@int(1))", /* two */]"#),
        ("a.json", "\"@import(b.json)\""),
        ("b.json", "\"@import(a.json)\""),
    ];
    assert_eq!(eval_with("", r#""@import(v.json)""#, &files).as_deref(), Ok("2|"));
    assert_eq!(eval_with("", r#""@import(file:none, d)""#, &files).as_deref(), Ok("d"));
    let error = eval_with("", r#""@import(a.json)""#, &files).unwrap_err();
    assert!(
        error.contains("b.json:1:1: error: the import is a cycle: a.json -> b.json -> a.json"),
        "{error}"
    );
    let error = eval_with("", r#""@import(none)""#, &files).unwrap_err();
    assert!(error.contains("cannot import 'none': there is no such file"), "{error}");
}

#[test]
fn invalid_calls_are_reported_with_a_reason() {
    fails(
        "",
        r#""@adds(@int(1),@int(2))""#,
        "there is no macro 'adds', in macro 'show' at m.json:6:104 (did you mean @add?)",
    );
    fails("", r#""@add(@int(1))""#, "'add' takes 2 arguments, not 1");
    fails(
        "",
        r#""@add(@int(1),x)""#,
        "expected an integer, not a string, in macro 'add' at m.json:",
    );
    fails("", r#""@div(@int(1),@int(0))""#, "'div' has no result in 64 bits");
    fails("", r#""@add(@int(9223372036854775807),@int(1))""#, "'add' has no result in 64 bits");
    fails("", r#""%nope%""#, "there is no parameter 'nope'");
    fails("", r#""50%""#, "the percent signs of '50%' do not pair");
    fails("", r#""@add(1""#, "does not end with its closing bracket");
    fails("", r#""@fail(my words)""#, "my words");
    fails(
        "",
        r#"{"type": "slice", "dictionary": "ä", "from": 0, "to": 0}"#,
        "cuts a character in two",
    );
    fails(
        r#""a": {"type": "constDef", "result": "%b%"}, "b": {"type": "constDef", "result": "%a%"}"#,
        r#""%a%""#,
        "the constant 'a' is made of itself",
    );
    fails("", r#"{"vars": {"a": "%b%", "b": "%a%"}, "x": 1}"#, "is made of itself");
    fails(
        r#""a": {"type": "macroDef", "params": [{"name": "p", "default": 1}, "q"], "result": 1}"#,
        "1",
        "'q' follows an optional parameter",
    );
}

/// None of these may take much time or memory.
#[test]
fn expansion_bombs_are_refused() {
    fails(r#""loop": {"type": "macroDef", "result": "@loop"}"#, r#""@loop""#, "nested more than");
    fails(
        r#""fork": {"type": "macroDef", "params": ["n"], "result": ["@fork(%n%)", "@fork(%n%)"]}"#,
        r#""@fork(x)""#,
        "nested more than",
    );
    let doubling: Vec<_> = (1..40)
        .map(|level| {
            format!(
                r#""b{level}": {{"type": "constDef", "result": ["%b{0}%", "%b{0}%"]}}"#,
                level - 1
            )
        })
        .collect();
    let bomb = format!(r#""b0": {{"type": "constDef", "result": 1}}, {}"#, doubling.join(", "));
    fails(&bomb, r#""%b39%""#, "values");
    let strings: Vec<_> = (1..60)
        .map(|level| {
            format!(r#""s{level}": {{"type": "constDef", "result": "%s{0}%%s{0}%"}}"#, level - 1)
        })
        .collect();
    let bomb = format!(
        r#""s0": {{"type": "constDef", "result": "xxxxxxxxxxxxxxxx"}}, {}"#,
        strings.join(", ")
    );
    fails(&bomb, r#""%s59%""#, "values");
    fails("", r#""@range(@int(0),@int(9000000000000000000))""#, "values");
    fails(
        "",
        r#"{"type": "process", "dictionary": "@range(@int(0),@int(1000))", "initialValue": 0, "transform": ["%value%"]}"#,
        "levels",
    );
    fails(
        "",
        r#"{"type": "transform", "dictionary": "@range(@int(0),@int(2000))", "itemTransform": {"type": "transform", "dictionary": "@range(@int(0),@int(2000))", "itemTransform": 1}}"#,
        "values",
    );
}
