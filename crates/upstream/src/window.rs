//! The window: a limit on the number of outstanding requests over all servers. It prevents incast
//! (section 3.1 of the paper), and "grows slowly upon a successful request and shrinks when a
//! request goes unanswered".
//!
//! At first, each answer lets the window grow by one request, until one goes unanswered. From then
//! on it grows by one in [`WINDOWS_TO_GROW`] windows of answers, and an unanswered request removes
//! a quarter of it, at most once per window. TCP's steps, one per window and a half, would lose a
//! part of every large multiget. Further requests wait in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use crate::destination_id::DestinationId;
use crate::micros::micros;
use crate::reply::Reply;
use crate::request::{OwnedRequest, Request};
use crate::sink::{Exchange, Sink, Ticket};
use proto::Failure;

/// The width of the window, in requests.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Window {
    /// Between 2 and 65,536, by answers and losses.
    Adaptive,
    /// Always this number.
    Fixed(u32),
}

/// Windows of answers that let the window grow by one.
const WINDOWS_TO_GROW: f64 = 32.0;

/// The initial, the minimum and the maximum width.
const WIDTH_FIRST: f64 = 16.0;
const WIDTH_MIN: f64 = 2.0;
const WIDTH_MAX: f64 = 65_536.0;

/// The factor of the width when a request goes unanswered.
const SHRINKS_TO: f64 = 0.75;

/// The limits of requests that wait for room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Waiting {
    /// Maximum number of requests; further ones are [`Failure::Busy`].
    pub max: usize,
    /// The maximum wait, after which a request is [`Failure::Busy`]. `None`: unlimited.
    pub timeout: Option<Duration>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { max: 100_000, timeout: None }
    }
}

/// The current width, the outstanding requests, and the waiting ones.
#[derive(Debug)]
pub(crate) struct Sliding {
    adapts: bool,
    /// No request has been lost so far.
    begins: bool,
    width: f64,
    outstanding: u32,
    /// Answers until the next loss counts: requests outstanding at a loss were sent before it.
    recovering: u32,
    limits: Waiting,
    /// Waiting requests with their arrival times, in microseconds.
    waiting: VecDeque<(u64, DestinationId, OwnedRequest, Ticket)>,
}

impl Sliding {
    pub(crate) fn new(window: Window, limits: Waiting) -> Self {
        let (adapts, width) = match window {
            Window::Adaptive => (true, WIDTH_FIRST),
            Window::Fixed(width) => (false, f64::from(width.max(1))),
        };
        Self {
            adapts,
            begins: true,
            width,
            outstanding: 0,
            recovering: 0,
            limits,
            waiting: VecDeque::new(),
        }
    }

    /// Returns true if a request may be sent now; waiting ones go first.
    pub(crate) fn is_open(&self) -> bool {
        self.waiting.is_empty() && f64::from(self.outstanding) < self.width
    }

    /// Counts a sent request.
    pub(crate) fn asked(&mut self) {
        self.outstanding += 1;
    }

    /// Keeps a request until there is room.
    pub(crate) fn wait(
        &mut self,
        id: DestinationId,
        request: &Request<'_>,
        ticket: Ticket,
        now_us: u64,
    ) -> Result<(), Failure> {
        if self.waiting.len() >= self.limits.max {
            return Err(Failure::Busy);
        }
        self.waiting.push_back((now_us, id, request.to_owned(), ticket));
        Ok(())
    }

    /// The time at which the first waiting request has waited too long, in microseconds.
    pub(crate) fn due_us(&self) -> Option<u64> {
        let (came_us, ..) = self.waiting.front()?;
        Some(came_us.saturating_add(micros(self.limits.timeout?)))
    }

    /// Removes the first waiting request, if it has waited too long.
    pub(crate) fn give_up(&mut self, now_us: u64) -> Option<Ticket> {
        if self.due_us()? > now_us {
            return None;
        }
        self.waiting.pop_front().map(|(_, _, _, ticket)| ticket)
    }

    /// Returns true if a request waits, and there is room.
    pub(crate) fn has_next(&self) -> bool {
        !self.waiting.is_empty() && f64::from(self.outstanding) < self.width
    }

    /// The next waiting request, if there is room.
    pub(crate) fn next(&mut self) -> Option<(DestinationId, OwnedRequest, Ticket)> {
        if !self.has_next() {
            return None;
        }
        self.waiting.pop_front().map(|(_, id, request, ticket)| (id, request, ticket))
    }

    /// Counts a finished request.
    fn ended(&mut self, failure: Option<Failure>) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.recovering = self.recovering.saturating_sub(1);
        if !self.adapts {
            return;
        }
        match failure {
            Some(Failure::Timeout) if self.recovering == 0 => {
                self.begins = false;
                self.width = (self.width * SHRINKS_TO).max(WIDTH_MIN);
                self.recovering = self.outstanding + 1;
            }
            Some(_) => {}
            // A window that is not full shows nothing about its limit.
            None if self.waiting.is_empty() => {}
            None => {
                let step = if self.begins { 1.0 } else { 1.0 / (self.width * WINDOWS_TO_GROW) };
                self.width = (self.width + step).min(WIDTH_MAX);
            }
        }
    }

    /// Returns true if no request waits, and so none names a server.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if a request to this server waits.
    pub(crate) fn has_waiting_for(&self, server: DestinationId) -> bool {
        self.waiting.iter().any(|(_, id, ..)| id.place == server.place)
    }

    /// The limit of outstanding requests, their number, and the number of waiting ones.
    pub(crate) fn report(&self) -> (f64, u32, usize) {
        (self.width, self.outstanding, self.waiting.len())
    }
}

/// A sink that reports every answer to the window before it passes it on.
pub(crate) struct Through<'a> {
    pub(crate) window: &'a mut Sliding,
    pub(crate) sink: &'a mut dyn Sink,
}

impl Sink for Through<'_> {
    fn exchanged(&mut self, exchange: &Exchange<'_>, reply: &Reply<'_>) {
        self.sink.exchanged(exchange, reply);
    }

    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        self.window.ended(reply.outcome.failure());
        self.sink.answer(ticket, reply);
    }
}

#[cfg(test)]
mod tests {
    use proto::Command;

    use super::*;

    /// A window with a waiting request.
    fn busy(window: Window) -> Sliding {
        let mut window = Sliding::new(window, Waiting::default());
        let get = Request::new(Command::Get, b"k");
        window.wait(DestinationId::default(), &get, 1, 0).unwrap();
        window
    }

    #[test]
    fn the_window_grows_slowly_and_shrinks_once_per_window() {
        let mut window = busy(Window::Adaptive);
        for _ in 0..84 {
            window.asked();
            window.ended(None);
        }
        assert!((window.width - 100.0).abs() < 1e-9, "{}", window.width);
        for _ in 0..100 {
            window.asked();
        }
        for _ in 0..100 {
            window.ended(Some(Failure::Timeout));
        }
        assert!(
            (window.width - 75.0).abs() < 1e-9,
            "{}: losses of one window count once",
            window.width
        );
        for _ in 0..75 * 32 {
            window.asked();
            window.ended(None);
        }
        assert!((75.9..76.1).contains(&window.width), "{}", window.width);
        for _ in 0..100 {
            window.asked();
            window.ended(Some(Failure::Timeout));
        }
        assert!((window.width - WIDTH_MIN).abs() < 1e-9);
    }

    #[test]
    fn a_window_that_is_not_full_does_not_grow() {
        let mut window = Sliding::new(Window::Adaptive, Waiting::default());
        for _ in 0..100 {
            window.asked();
            window.ended(None);
        }
        assert!((window.width - WIDTH_FIRST).abs() < 1e-9);
    }

    #[test]
    fn waiting_requests_are_bounded_in_number_and_time() {
        let limits = Waiting { max: 2, timeout: Some(Duration::from_micros(100)) };
        let mut window = Sliding::new(Window::Fixed(1), limits);
        let get = Request::new(Command::Get, b"k");
        let mut wait = |ticket, now_us| window.wait(DestinationId::default(), &get, ticket, now_us);
        assert_eq!((wait(1, 0), wait(2, 50), wait(3, 60)), (Ok(()), Ok(()), Err(Failure::Busy)));
        assert_eq!((window.due_us(), window.give_up(99)), (Some(100), None));
        assert_eq!((window.give_up(100), window.give_up(100)), (Some(1), None));
        assert_eq!(window.give_up(150), Some(2));
        assert_eq!(window.due_us(), None);
    }

    #[test]
    fn a_fixed_window_keeps_its_width() {
        let mut window = Sliding::new(Window::Fixed(2), Waiting::default());
        window.asked();
        assert!(window.is_open());
        window.asked();
        assert!(!window.is_open());
        window.ended(Some(Failure::Timeout));
        window.ended(None);
        assert!((window.width - 2.0).abs() < 1e-9 && window.is_open());
    }
}
