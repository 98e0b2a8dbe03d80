//! Picks a child by a number of any size. This never fails: without children, the result is a route
//! that finds nothing.

use std::sync::{Arc, LazyLock};

use super::{NullRoute, RouteRef};

/// The replacement for a missing child.
static NOBODY: LazyLock<RouteRef> = LazyLock::new(|| Arc::new(NullRoute));

/// The child of this number, modulo the number of children.
#[inline]
pub(super) fn child(children: &[RouteRef], number: usize) -> &RouteRef {
    children.get(number).unwrap_or_else(|| wrapped(children, number))
}

#[cold]
fn wrapped(children: &[RouteRef], number: usize) -> &RouteRef {
    let place = number.checked_rem(children.len());
    place.and_then(|place| children.get(place)).unwrap_or(&NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::DevNullRoute;

    #[test]
    fn every_number_maps_to_a_child() {
        let children: Vec<RouteRef> = vec![Arc::new(NullRoute), Arc::new(DevNullRoute)];
        let is = |number, place: usize| Arc::ptr_eq(child(&children, number), &children[place]);
        assert!(is(0, 0) && is(1, 1) && is(2, 0) && is(usize::MAX, 1));
        assert!(Arc::ptr_eq(child(&[], 7), &NOBODY));
    }
}
