//! Counts the items of each stripe by a new table of namespaces.

use crate::linked::{item_bytes, with_key};
use crate::namespaces::Namespaces;
use crate::thread::ThreadState;
use arena::chunks::Shape;
use std::sync::Arc;

/// Counts items by `table` from now on, and limits stores. Examines every item, unless the prefixes
/// are unchanged; each stripe's stores wait while its items are examined.
pub(crate) fn set_namespaces(thread: &ThreadState, table: &Arc<Namespaces>) {
    let store = &*thread.store;
    let (threads, stripes) = (store.counters.threads(), store.table.stripes());
    let gauges = store.namespaces.make(threads, stripes, |bytes| store.charge_fixed(bytes));
    let _change = gauges.begin_change();
    for stripe in 0..stripes {
        // A hash of that stripe.
        let locked = store.table.lock(stripe as u64);
        gauges.change(thread.slot, stripe, table, |count| {
            locked.for_each(|chunk| {
                let header = store.arena.header(chunk);
                let shape = header.shape();
                if !shape.has(Shape::DELETED) {
                    let bytes = item_bytes(store, header, shape);
                    with_key(store, chunk, |key| count(key, bytes));
                }
            });
        });
    }
}
