//! Statistics as pages of metrics, and as text.

use std::io::{Seek as _, Write as _};
use std::process::Command;

use super::*;

#[test]
fn the_page_names_each_cluster() {
    let stats = Stats::new(["a".to_owned(), "b".to_owned()]);
    stats.clusters[1].delivered.store(7, Relaxed);
    let page = stats.page(0).into_text();
    let lines: Vec<_> = page.lines().filter(|line| line.contains("_delivered_total{")).collect();
    assert!(!page.contains("A number of the invalidator."), "{page}");
    assert!(page.contains("\n# TYPE holdall_invalidate_delivered_total counter\n"), "{page}");
    let name = "holdall_invalidate_delivered_total";
    let expected = [format!("{name}{{cluster=\"a\"}} 0"), format!("{name}{{cluster=\"b\"}} 7")];
    assert_eq!(lines, expected);
    assert!(page.contains("\nholdall_invalidate_gaps_total 0\n"), "{page}");
}

#[test]
fn promtool_accepts_the_metric_names() {
    let stats = Stats::new(["a".to_owned()]);
    stats.behind_bytes.store(1, Relaxed);
    stats.log_room_bytes.store(1, Relaxed);
    let at = tokio::time::Instant::now();
    *stats.last_check.lock() = Some(LastCheck { at, every: Duration::from_secs(60) });
    stats.canary_every.set(Duration::from_secs(2)).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(stats.page(0).into_text().as_bytes()).unwrap();
    file.rewind().unwrap();
    let mut check = Command::new("promtool");
    let check = check.args(["check", "metrics"]).stdin(file).output().unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn times_are_in_seconds() {
    let stats = Stats::new(["a".to_owned()]);
    stats.clusters[0].monitor.stale_us.lock().record(500_000).unwrap();
    stats.clusters[0].oldest_us.store(1_000_000, Relaxed);
    let page = stats.page(2_500_000).into_text();
    for line in ["lag_seconds{cluster=\"a\"} 1.5\n", "monitor_stale_max_seconds{cluster=\"a\"} 0.5"]
    {
        assert!(page.contains(&format!("\nholdall_invalidate_{line}")), "{line}: {page}");
    }
}

#[test]
fn a_number_that_also_falls_is_a_gauge() {
    let stats = Stats::new(["a".to_owned()]);
    stats.clusters[0].monitor.still_stale.store(1, Relaxed);
    let page = stats.page(0).into_text();
    let name = "holdall_invalidate_monitor_still_stale";
    assert!(page.contains(&format!("\n# TYPE {name} gauge\n")), "{page}");
    assert!(page.contains(&format!("\n{name}{{cluster=\"a\"}} 1\n")), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_late_canary_shows_its_age_and_blocks_readiness() {
    let stats = Stats::new(["a".to_owned(), "b".to_owned()]);
    assert!(!stats.page(0).into_text().contains("canary"), "there is none");
    stats.canary_every.set(Duration::from_secs(2)).unwrap();
    tokio::time::advance(Duration::from_millis(4500)).await;
    let line = "\ninvalidation_canary_seconds{cluster=\"b\"} 4.5\n";
    assert!(stats.page(0).into_text().contains(line), "{}", stats.page(0).into_text());
    assert!(stats.text(0).contains("STAT cluster:a:canary_ms 4500\r\n"), "{}", stats.text(0));
    let there = || Obstacle::StillThere("k".to_owned());
    stats.clusters[0].canary.set_obstacle(there());
    stats.clusters[1].canary.set_obstacle(Obstacle::Hop("away".to_owned()));
    assert!(!stats.is_stuck(), "a hop is cut");
    stats.clusters[1].canary.set_obstacle(there());
    assert!(stats.is_stuck());
    stats.clusters[1].canary.prove(tokio::time::Instant::now());
    assert!(!stats.is_stuck());
    let line = "STAT cluster:a:canary_obstacle k\r\n";
    assert!(stats.text(0).contains(line), "{}", stats.text(0));
    assert!(!stats.text(0).contains("cluster:b:canary_obstacle"), "{}", stats.text(0));
    let ready = stats.ready();
    let canary = ready.iter().find(|check| check.name == "canary").unwrap();
    assert_eq!(canary.fault.as_deref(), Some("late: a"));
    assert_eq!(stats.canary_line(), "last proven change: a 4.5 s, b 0.0 s");
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_last_check_is_exported() {
    let stats = Stats::new(["c".to_owned()]);
    assert!(!stats.text(0).contains("check_"), "there was none");
    let at = tokio::time::Instant::now();
    *stats.last_check.lock() = Some(LastCheck { at, every: Duration::from_secs(1) });
    tokio::time::advance(Duration::from_millis(2500)).await;
    assert!(stats.text(0).contains("STAT check_age_ms 2500\r\nSTAT check_late 0\r\n"));
    tokio::time::advance(Duration::from_millis(500)).await;
    let page = stats.page(0).into_text();
    assert!(page.contains("\nholdall_invalidate_check_age_seconds 3\n"), "{page}");
    assert!(page.contains("\nholdall_invalidate_check_late 1\n"), "{page}");
    assert!(!page.contains("A number of the invalidator."), "{page}");
}

#[test]
fn lag_grows_while_the_database_is_silent() {
    let stats = Stats::new(["c".to_owned()]);
    let lag = |now_us| {
        let text = stats.text(now_us);
        let line = text.lines().find_map(|line| line.strip_prefix("STAT cluster:c:lag_ms "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap()
    };
    assert_eq!(lag(9_000_000), 0, "it has not begun");
    stats.heard_us.store(1_000_000, Relaxed);
    assert_eq!(lag(3_000_000), 2000, "there is no connection");
    stats.source_connected.store(true, Relaxed);
    assert_eq!(lag(3_000_000), 0, "a pause");
    assert_eq!(lag(7_000_000), 6000, "a silence");
    stats.clusters[0].oldest_us.store(500_000, Relaxed);
    assert_eq!(lag(7_000_000), 6500);
    assert_eq!(lag(2_000_000), 1500);
}
