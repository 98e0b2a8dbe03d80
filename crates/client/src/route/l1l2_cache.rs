//! `L1L2CacheRoute`: a small cache before a large one. What the large one has is copied into the small one.

use std::rc::Rc;

use super::all::ask_aside;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::reply::{Outcome, OwnedReply};
use crate::request::{Op, Request};

/// Gets ask the small one first; everything else goes to the large one. Keys that neither has are not noted.
#[derive(Debug)]
pub struct L1L2CacheRoute {
    /// The small one.
    pub l1: RouteRef,
    /// The large one.
    pub l2: RouteRef,
    /// Lifetime of copies in the small one, in seconds.
    pub upgrading_exptime: i64,
}

impl Route for L1L2CacheRoute {
    fn name(&self) -> String {
        "l1l2-cache".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Rc<Context>, request: Request<'a>) -> Answer<'a> {
        if request.op != Op::Get {
            return self.l2.route(cx, request);
        }
        Box::pin(async move {
            let near = self.l1.route(cx, request).await;
            if near.outcome == Outcome::Found {
                return near;
            }
            let far: OwnedReply = self.l2.route(cx, request).await;
            if far.outcome == Outcome::Found && near.outcome == Outcome::NotFound {
                let copy = Request {
                    flags: far.flags,
                    exptime: self.upgrading_exptime,
                    value: &far.value,
                    ..Request::new(Op::Add, request.key)
                };
                ask_aside(std::slice::from_ref(&self.l1), cx, &copy);
            }
            far
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Rc::clone(&self.l1), Rc::clone(&self.l2)]
    }
}
