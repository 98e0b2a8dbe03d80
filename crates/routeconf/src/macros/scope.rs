//! Names for use between percent signs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::json::Node;
use crate::source::{At, Fallible, fail};

/// Local names, with those of the outer scope. A macro's body sees its parameters and the
/// constants, but not its caller's names.
pub(super) struct Scope<'o> {
    locals: RefCell<BTreeMap<Arc<str>, Var>>,
    outer: Option<&'o Self>,
}

enum Var {
    Ready(Node),
    Lazy(Node),
    Busy,
}

/// The meaning of a name.
pub(super) enum Found<'s> {
    Ready(Node),
    /// To be expanded in its own scope.
    Lazy(Node, &'s Scope<'s>),
    /// Its expansion is in progress.
    Busy,
}

impl<'o> Scope<'o> {
    pub(super) fn base() -> Self {
        Self { locals: RefCell::default(), outer: None }
    }

    pub(super) fn inside(outer: &'o Self) -> Self {
        Self { locals: RefCell::default(), outer: Some(outer) }
    }

    fn add(&self, name: &str, var: Var, at: At) -> Fallible<()> {
        match self.locals.borrow_mut().insert(name.into(), var) {
            None => Ok(()),
            Some(_) => fail(at, format!("'{name}' is there already")),
        }
    }

    pub(super) fn add_ready(&self, name: &str, node: Node, at: At) -> Fallible<()> {
        self.add(name, Var::Ready(node), at)
    }

    pub(super) fn add_lazy(&self, name: &str, node: Node, at: At) -> Fallible<()> {
        self.add(name, Var::Lazy(node), at)
    }

    /// Sets a name of this scope.
    pub(super) fn set(&self, name: &str, node: Node) {
        self.locals.borrow_mut().insert(name.into(), Var::Ready(node));
    }

    pub(super) fn set_busy(&self, name: &str) {
        self.locals.borrow_mut().insert(name.into(), Var::Busy);
    }

    pub(super) fn find(&self, name: &str) -> Option<Found<'_>> {
        let mut scope: &Scope<'_> = self;
        loop {
            match scope.locals.borrow().get(name) {
                Some(Var::Ready(node)) => return Some(Found::Ready(node.clone())),
                Some(Var::Lazy(node)) => return Some(Found::Lazy(node.clone(), scope)),
                Some(Var::Busy) => return Some(Found::Busy),
                None => {}
            }
            scope = scope.outer?;
        }
    }
}
