//! The runner of the scenarios for the Rust library.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use client::{
    Client, LoadError, LookAside, Markers, Position, ReadFrom, Source, Written, block_on,
};
use serde_json::Value as Json;
use testkit::Wire;

use crate::folder;
use crate::targets::Targets;

/// Runs all scenarios; returns the results of all, and of those that do not need a process with
/// several callers.
pub(crate) fn run(targets: &Targets) -> (Vec<String>, Vec<String>) {
    let text = std::fs::read_to_string(folder("e2e/scenarios/look-aside.jsonl")).unwrap();
    let (mut all, mut of_many_processes) = (Vec::new(), Vec::new());
    for (target, address) in targets.pairs() {
        for (number, line) in text.lines().enumerate() {
            let scenario: Json = serde_json::from_str(line).unwrap();
            if !scenario["on"].as_array().unwrap().iter().any(|name| name == target) {
                continue;
            }
            let run = Run::new(&scenario, target, *address, number);
            run.steps(&scenario["steps"]);
            let results = run.results.into_inner().unwrap();
            if scenario.get("in_one_process").is_none() {
                of_many_processes.extend(results.clone());
            }
            all.extend(results);
        }
    }
    all.sort();
    of_many_processes.sort();
    (all, of_many_processes)
}

/// A scenario at one target.
struct Run {
    name: String,
    address: SocketAddr,
    client: Client,
    reads: LookAside,
    words: Mutex<BTreeMap<&'static str, String>>,
    results: Mutex<Vec<String>>,
}

impl Run {
    fn new(scenario: &Json, target: &str, address: SocketAddr, number: usize) -> Self {
        let builder = Client::builder().servers([address.to_string()]);
        let client = builder.timeout(Duration::from_secs(60)).build().unwrap();
        let words = BTreeMap::from([("{k}", format!("rust:{target}:{number}"))]);
        Self {
            name: format!("{} at {target}", scenario["name"].as_str().unwrap()),
            address,
            reads: client.look_aside(),
            client,
            words: Mutex::new(words),
            results: Mutex::default(),
        }
    }

    fn fill(&self, text: &Json) -> String {
        let words = self.words.lock().unwrap();
        words.iter().fold(text.as_str().unwrap().to_owned(), |text, (word, meaning)| {
            text.replace(word, meaning)
        })
    }

    fn steps(&self, steps: &Json) {
        for step in steps.as_array().into_iter().flatten() {
            if step.get("wire").is_some() {
                self.wire(step);
            } else if step.get("read").is_some() {
                self.read(step);
            } else if let Some(key) = step.get("delete") {
                block_on(self.client.delete(self.fill(key))).unwrap();
            } else if let Some(write) = step.get("write") {
                self.write(write, step.get("error").and_then(Json::as_str));
                self.result("written");
            } else if let Some(text) = step.get("position") {
                self.position(text.as_str().unwrap(), step);
            } else {
                for number in 0..step["repeat"].as_u64().unwrap() {
                    self.words.lock().unwrap().insert("{n}", number.to_string());
                    self.steps(&step["steps"]);
                }
            }
        }
    }

    /// A write under a marker; with positions, one writer for each, and none ends before all have
    /// started.
    fn write(&self, write: &Json, error: Option<&str>) {
        let prefix = write["markers"].as_str().unwrap();
        let markers = Markers::new(self.client.clone(), prefix, 300);
        let key = self.fill(&write["key"]);
        let is_marked = write["marked"].as_bool().unwrap_or(true);
        let check = |written: Result<Written<()>, LoadError<String>>| match (written, error) {
            (Ok(written), None) => {
                let outcome = (written.unmarked.is_none(), written.undeleted.is_none());
                assert_eq!(outcome, (is_marked, is_marked), "{}", self.name);
            }
            (Err(LoadError::Loader(words)), Some(error)) => assert_eq!(words.as_str(), error),
            (written, _) => panic!("{}: {written:?}", self.name),
        };
        let Some(places) = write["at"].as_array() else {
            return check(block_on(markers.write(&key, async |_| Ok(()))));
        };
        let barrier = Barrier::new(places.len());
        let write_at = |place: &Json| {
            let written = markers.write_at(&key, async || {
                barrier.wait();
                self.steps(&write["during"]);
                match write["fails"].as_str() {
                    Some(words) => Err(words.to_owned()),
                    None => Ok(((), place.as_str().unwrap().parse::<Position>().unwrap())),
                }
            });
            check(block_on(written));
        };
        thread::scope(|scope| {
            for place in places {
                scope.spawn(move || write_at(place));
            }
        });
    }

    fn position(&self, text: &str, step: &Json) {
        let place = text.parse::<Position>().ok();
        let got = place.map(|place| (place.to_string(), place.reached_query()));
        let want = step["text"].as_str().map(|text| (text.to_owned(), self.fill(&step["query"])));
        assert_eq!(got, want, "{}: {text}", self.name);
        self.result(got.as_ref().map_or("none", |(text, _)| text));
    }

    /// Sends raw bytes and compares the reply; its `{token}` matches any number above 1.
    fn wire(&self, step: &Json) {
        let reply = step["reply"].as_str().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let mut wire = Wire::connect(self.address);
            wire.send(self.fill(&step["wire"]).as_bytes());
            let lines = (0..reply.matches('\n').count()).map(|_| wire.line() + "\r\n");
            let got: String = lines.collect();
            let want = reply.split("{token}").map(|part| self.fill(&Json::from(part)));
            let want: Vec<String> = want.collect();
            let token = match &want[..] {
                [before, after] => got
                    .strip_prefix(before.as_str())
                    .and_then(|got| got.strip_suffix(after.as_str())),
                _ => None,
            };
            if want.len() == 1 && got == want[0] {
                return;
            }
            if let Some(token) = token.filter(|token| token.parse::<u64>().is_ok_and(|n| n > 1)) {
                self.words.lock().unwrap().insert("{token}", token.to_owned());
                return;
            }
            let may_come = step.get("until").is_some() && Instant::now() < until;
            assert!(may_come, "{}: {}: got {got:?}, want {reply:?}", self.name, step["wire"]);
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn read(&self, step: &Json) {
        let read = &step["read"];
        let ms = |name: &str| Duration::from_millis(read[name].as_u64().unwrap_or(0));
        let callers = read["callers"].as_u64().unwrap_or(1);
        let (loads, source) = (AtomicI64::new(0), Mutex::default());
        thread::scope(|scope| {
            if let Some(then) = read.get("then") {
                scope.spawn(move || {
                    thread::sleep(ms("after_ms"));
                    self.steps(then);
                });
            }
            for _ in 0..callers {
                scope.spawn(|| {
                    let got = block_on(self.call(read, &loads, &source));
                    let want = match step.get("error") {
                        Some(error) => Err(error.as_str().unwrap().to_owned()),
                        None => Ok(step["value"].as_str().unwrap().to_owned()),
                    };
                    assert_eq!(got, want, "{}", self.name);
                });
            }
        });
        let loads = loads.into_inner();
        assert_eq!(Some(loads), step["loads"].as_i64(), "{}", self.name);
        assert_eq!(source.into_inner().unwrap(), step["source"].as_str().unwrap_or(""));
        self.result(&format!("{loads} loads"));
    }

    fn result(&self, what: &str) {
        self.results.lock().unwrap().push(format!("result: {}: {what}", self.name));
    }

    async fn call(
        &self,
        read: &Json,
        loads: &AtomicI64,
        source: &Mutex<String>,
    ) -> Result<String, String> {
        let ms = |name: &str| read[name].as_u64().map(Duration::from_millis);
        let mut reads = self.reads.clone().exptime(read["exptime"].as_i64().unwrap_or(0));
        reads = reads.takes_stale(read["takes_stale"].as_bool().unwrap_or(true));
        reads = reads.early_refresh(read["early_refresh"].as_f64().unwrap_or(0.0));
        if let Some(total) = ms("wait_total_ms") {
            reads = reads.waits(Duration::from_millis(2), Duration::from_millis(500), total);
        }
        let load = async |from: &str| {
            loads.fetch_add(1, Ordering::SeqCst);
            from.clone_into(&mut source.lock().unwrap());
            self.steps(&read["during"]);
            thread::sleep(ms("takes_ms").unwrap_or_default());
            if read.get("cancelled").is_some() {
                // The caller gives up during this wait.
                std::future::pending::<()>().await;
            }
            match read.get("fails") {
                Some(words) => Err(words.as_str().unwrap().to_owned()),
                None => Ok(read["returns"].as_str().unwrap().as_bytes().to_vec()),
            }
        };
        let key = self.fill(&read["key"]);
        let call = async {
            let Some(prefix) = read.get("markers") else {
                return reads.get_or_load(&key, async || load("").await).await;
            };
            let markers = Markers::new(self.client.clone(), prefix.as_str().unwrap(), 300);
            if read["exact"].as_bool().unwrap_or(false) {
                let load = async |from| match from {
                    ReadFrom::Local => load("local").await,
                    ReadFrom::LocalAt(place) => load(&format!("local {place}")).await,
                    ReadFrom::Master => load("master").await,
                };
                return reads.get_or_load_at(&markers, &key, load).await;
            }
            let load =
                async |from| load(if from == Source::Master { "master" } else { "local" }).await;
            reads.get_or_load_from(&markers, &key, load).await
        };
        let mut call = Box::pin(call);
        let got = std::future::poll_fn(|context| {
            let polled = call.as_mut().poll(context).map(Some);
            let is_loading = loads.load(Ordering::SeqCst) > 0;
            if read.get("cancelled").is_some() && is_loading {
                return std::task::Poll::Ready(None);
            }
            polled
        });
        match got.await {
            None => Err("cancelled".to_owned()),
            Some(Ok(value)) => Ok(String::from_utf8(value).unwrap()),
            Some(Err(LoadError::Loader(words))) => Err(words.as_ref().clone()),
            Some(Err(error)) => Err(error.to_string()),
        }
    }
}
