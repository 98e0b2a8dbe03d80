//! Keys, and the screens as text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::draw::draw;
use super::{Asked, Screen, Top};
use crate::poller::Member;
use crate::row::{Health, Row};
use plan::Target;
use tools::{Reading, Role};

fn reading(role: Role, at: Instant, stats: &[(&str, &str)]) -> Option<Arc<Reading>> {
    let stats: BTreeMap<String, String> =
        stats.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Some(Arc::new(Reading { role, at, round_trip: Duration::from_micros(420), stats }))
}

fn member(address: &str, group: &str) -> Member {
    let target = Target { address: address.to_owned(), group: group.to_owned() };
    Member::new(target)
}

/// Two servers, one of them down, a proxy that misses a server, and an invalidator.
fn tier() -> Vec<Member> {
    let (then, now) = (Instant::now(), Instant::now() + Duration::from_secs(2));
    let mut server = member("10.0.0.1:11211", "west/front");
    let fixed = [
        ("accepting_conns", "1"),
        ("bytes", "700"),
        ("limit_maxbytes", "1000"),
        ("curr_items", "123456"),
        ("curr_connections", "12"),
        ("latency:get:p99_seconds", "0.000012"),
        ("hotkeys:1:key", "user%3A42"),
        ("hotkeys:1:requests_per_second", "5000"),
        ("hotkeys:1:share_ratio", "0.25"),
        ("uptime", "90000"),
    ];
    let counts = |gets, hits, misses| {
        let counts = [("cmd_get", gets), ("get_hits", hits), ("get_misses", misses)];
        let sets = [("cmd_set", "200"), ("evictions", "0")];
        [&fixed[..], &counts, &sets].concat()
    };
    server.before = reading(Role::Server, then, &counts("1000", "900", "100"));
    server.now = reading(Role::Server, now, &counts("41000", "30900", "10100"));
    let mut away = member("10.0.0.2:11211", "west/front");
    away.error = Some("Connection refused (os error 111)".to_owned());
    let mut proxy = member("10.0.1.1:5000", "west/front");
    let stats = [
        ("num_servers", "10"),
        ("num_suspect_servers", "1"),
        ("duration_us", "350"),
        ("duration_p50_us", "180.22"),
        ("duration_p99_us", "1250"),
        ("duration_p999_us", "20400"),
    ];
    proxy.now = reading(Role::Proxy, now, &stats);
    let mut invalidator = member("10.0.2.1:9200", "");
    let stats = [
        ("delivered_position", "1-1-5"),
        ("source_connected", "1"),
        ("working", "1"),
        ("cluster:east:canary_ms", "1500"),
        ("cluster:east:connected", "1"),
        ("cluster:west:canary_ms", "500"),
        ("cluster:west:connected", "1"),
        ("gaps", "0"),
        ("check_age_ms", "95000"),
        ("check_late", "0"),
    ];
    invalidator.now = reading(Role::Invalidator, now, &stats);
    vec![server, away, proxy, invalidator]
}

fn top() -> Top {
    let mut top = Top::new(Duration::from_secs(1));
    top.update(tier());
    top
}

/// The screen of a terminal of this size, without trailing spaces.
fn screen(top: &mut Top, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, top)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[test]
fn eighty_columns_show_the_tier() {
    assert_eq!(screen(&mut top(), 80, 17), include_str!("snapshots/members_80.txt"));
}

#[test]
fn two_hundred_columns_show_more_of_the_tier() {
    assert_eq!(screen(&mut top(), 200, 17), include_str!("snapshots/members_200.txt"));
}

#[test]
fn an_invalidator_with_a_late_check_is_in_trouble() {
    let mut invalidator = tier().remove(3);
    assert_eq!(Row::new(3, &invalidator).health, Health::Good);
    let mut now = invalidator.now.as_deref().unwrap().clone();
    now.stats.insert("check_late".to_owned(), "1".to_owned());
    invalidator.now = Some(Arc::new(now));
    let row = Row::new(3, &invalidator);
    assert_eq!(row.health, Health::Trouble("the check of the log is late".to_owned()));
}

#[test]
fn details_show_all_statistics_with_their_rates() {
    let mut top = top();
    // The unavailable server comes first.
    top.press(KeyCode::Down);
    top.press(KeyCode::Enter);
    assert_eq!(top.screen, Screen::Details(0));
    assert_eq!(screen(&mut top, 80, 22), include_str!("snapshots/details_80.txt"));
    top.press(KeyCode::Esc);
    assert_eq!(top.screen, Screen::Members);
}

#[test]
fn hot_keys_name_their_server() {
    let mut top = top();
    top.press(KeyCode::Char('k'));
    let shown = screen(&mut top, 80, 6);
    assert!(shown.contains("5.00k/s   25.0%  10.0.0.1:11211               user%3A42\n"), "{shown}");
}

#[test]
fn a_filter_can_be_typed_and_removed() {
    let mut top = top();
    for letter in "/proxy".chars() {
        top.press(KeyCode::Char(letter));
    }
    assert_eq!((top.rows().len(), top.is_typing), (1, true));
    assert!(screen(&mut top, 80, 8).contains("/proxy_\n"));
    top.press(KeyCode::Enter);
    assert_eq!(top.press(KeyCode::Char('q')), Asked::End, "q is a letter only of a filter");
    assert_eq!(top.press(KeyCode::Esc), Asked::Nothing, "it ends the filter first");
    assert_eq!(top.rows().len(), 4);
    assert_eq!(top.press(KeyCode::Esc), Asked::End);
}

#[test]
fn a_pause_freezes_the_screen() {
    let mut top = top();
    top.press(KeyCode::Char(' '));
    top.update(Vec::new());
    assert_eq!(top.members.len(), 4);
    assert!(screen(&mut top, 80, 8).contains("PAUSED"));
    top.press(KeyCode::Char(' '));
    top.update(Vec::new());
    assert!(top.members.is_empty());
}

#[test]
fn every_window_size_and_key_is_handled() {
    for (width, height) in [(1, 1), (10, 3), (40, 5), (80, 24), (200, 60)] {
        let mut top = top();
        for code in [
            KeyCode::End,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Char('<'),
            KeyCode::Char('>'),
            KeyCode::Char('r'),
            KeyCode::Char('k'),
            KeyCode::End,
            KeyCode::Char('?'),
            KeyCode::Down,
            KeyCode::Esc,
            KeyCode::Enter,
            KeyCode::End,
        ] {
            top.press(code);
            screen(&mut top, width, height);
        }
    }
}
