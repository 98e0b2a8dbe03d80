//! The numbers of the last minutes, so that an opened page shows charts at once.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tools::Role;
use top::columns;

/// Maximum number of stored answers: a quarter of an hour at one per second. With 200 members they
/// take 10 MB.
const FRAMES_MAX: usize = 900;

/// The numbers of one member, or of all of one role, in the order of the role's columns. Unknown
/// ones are NaN.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    role: Role,
    numbers: Box<[f32]>,
}

impl Line {
    /// A line of these numbers.
    pub(crate) fn new(role: Role, numbers: &[Option<f64>]) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a chart has fewer pixels")]
        let numbers = numbers.iter().map(|number| number.map_or(f32::NAN, |it| it as f32));
        Self { role, numbers: numbers.collect() }
    }
}

/// All numbers of one time.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// By the members' indexes.
    pub(crate) members: Vec<Line>,
    /// One for each role in the tier.
    pub(crate) totals: Vec<Line>,
}

/// The last frames.
#[derive(Debug, Default)]
pub(crate) struct History {
    frames: VecDeque<Frame>,
}

impl History {
    /// Adds a frame, and drops the oldest.
    pub(crate) fn add(&mut self, frame: Frame) {
        if self.frames.len() == FRAMES_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back(frame);
    }

    /// The series of the member with this index, in its current role.
    pub(crate) fn of_member(&self, place: usize) -> Option<Value> {
        let role = self.frames.back()?.members.get(place)?.role;
        Some(self.series(role, |frame| frame.members.get(place)))
    }

    /// The series of all members of a role.
    pub(crate) fn of_role(&self, role: Role) -> Value {
        self.series(role, |frame| frame.totals.iter().find(|line| line.role == role))
    }

    fn series(&self, role: Role, line: impl Fn(&Frame) -> Option<&Line>) -> Value {
        let times: Vec<u64> = self.frames.iter().map(|frame| frame.at_ms).collect();
        let column = |at: usize| -> Vec<Option<f32>> {
            let of = |frame| {
                let line: &Line = line(frame).filter(|line| line.role == role)?;
                line.numbers.get(at).copied().filter(|number| number.is_finite())
            };
            self.frames.iter().map(of).collect()
        };
        let named = columns(role).iter().enumerate();
        let named = named.map(|(at, it)| (it.name.to_owned(), json!(column(at))));
        json!({
            "role": role.name(),
            "at_ms": times,
            "numbers": named.collect::<serde_json::Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(at_ms: u64, role: Role, gets: Option<f64>) -> Frame {
        let mut numbers = vec![None; columns(role).len()];
        numbers[0] = gets;
        let line = Line::new(role, &numbers);
        Frame { at_ms, members: vec![line.clone()], totals: vec![line] }
    }

    #[test]
    fn unknown_numbers_are_gaps_in_a_series() {
        let mut history = History::default();
        assert!(history.of_member(0).is_none());
        history.add(frame(1, Role::Server, Some(5.0)));
        history.add(frame(2, Role::Server, None));
        let series = history.of_member(0).unwrap();
        assert_eq!(series["at_ms"], json!([1, 2]));
        assert_eq!(series["numbers"]["gets_per_second"], json!([5.0, null]));
        assert_eq!(history.of_role(Role::Server)["numbers"], series["numbers"]);
        assert!(history.of_member(1).is_none());
    }

    #[test]
    fn the_numbers_of_another_role_are_left_out() {
        let mut history = History::default();
        // A member that is unavailable at first counts as a server.
        history.add(frame(1, Role::Server, Some(5.0)));
        history.add(frame(2, Role::Proxy, Some(7.0)));
        let series = history.of_member(0).unwrap();
        assert_eq!(series["role"], "proxy");
        assert_eq!(series["numbers"]["gets_per_second"], json!([null, 7.0]));
    }

    #[test]
    fn the_oldest_frames_are_dropped() {
        let mut history = History::default();
        for at in 0..FRAMES_MAX as u64 + 10 {
            history.add(frame(at, Role::Server, None));
        }
        let series = history.of_role(Role::Server);
        let times = series["at_ms"].as_array().unwrap();
        assert_eq!((times.len(), &times[0]), (FRAMES_MAX, &json!(10)));
    }
}
