//! `stats items`, `slabs` and `sizes`, and the bags of `stats bags`: memory use by items, classes
//! and bags.

use engine::CLASS_COUNTERS;
use store::{BagStats, ClassStats};

use super::Context;
use super::stat_line::{Sink, number};

fn classes(context: &Context<'_>) -> Vec<ClassStats> {
    let mut classes = context.shared.engine.store().class_stats(context.now_secs);
    classes.retain(|class| class.pages > 0 || class.evicted > 0);
    classes
}

/// `stats items`: holdall has one kind of list, shown in place of memcached's coldest.
pub(super) fn items(context: &Context<'_>, sink: Sink<'_>) {
    for class in classes(context).into_iter().filter(|class| class.items > 0 || class.evicted > 0) {
        let mut show =
            |name: &str, value| number(sink, &format!("items:{}:{name}", class.id), value);
        show("number", class.items);
        show("number_hot", 0);
        show("number_warm", 0);
        show("number_cold", class.items);
        show("age_hot", 0);
        show("age_warm", 0);
        show("age", u64::from(class.oldest_age_secs));
        show("mem_requested", class.bytes_requested);
        show("evicted", class.evicted);
        show("evicted_nonzero", class.evicted_nonzero);
        show("evicted_time", class.evicted_age_secs);
        show("outofmemory", class.out_of_memory);
        show("tailrepairs", 0);
        show("reclaimed", class.reclaimed);
        show("expired_unfetched", class.expired_unfetched);
        show("evicted_unfetched", class.evicted_unfetched);
        show("evicted_active", 0);
        show("crawler_reclaimed", class.cleaner_reclaimed);
        show("crawler_items_checked", class.cleaner_checked);
        show("lrutail_reflocked", 0);
        show("moves_to_cold", 0);
        show("moves_to_warm", 0);
        show("moves_within_lru", class.moved);
        show("direct_reclaims", class.direct_reclaims);
        show("hits_to_hot", 0);
        show("hits_to_warm", 0);
        show("hits_to_cold", 0);
        show("hits_to_temp", 0);
    }
}

/// `stats slabs`
pub(super) fn slabs(context: &Context<'_>, sink: Sink<'_>) {
    let totals = context.shared.engine.totals();
    let classes = classes(context);
    for class in &classes {
        let mut show = |name: &str, value| number(sink, &format!("{}:{name}", class.id), value);
        show("chunk_size", u64::from(class.chunk_bytes));
        show("chunks_per_page", u64::from(class.chunks_per_page));
        show("total_pages", class.pages);
        show("total_chunks", class.chunks);
        show("used_chunks", class.chunks_used);
        show("free_chunks", class.chunks_free);
        show("free_chunks_end", 0);
        for (counter, name) in CLASS_COUNTERS {
            show(name, totals.of_class(class.id, *counter));
        }
    }
    number(sink, "active_slabs", classes.len() as u64);
    number(sink, "total_malloced", context.shared.engine.store().memory().arena);
}

/// `stats sizes`: items by the chunk that they occupy, which is their cost.
pub(super) fn sizes(context: &Context<'_>, sink: Sink<'_>) {
    for class in classes(context).into_iter().filter(|class| class.items > 0) {
        number(sink, &class.chunk_bytes.to_string(), class.items);
    }
}

/// One bag's part of `stats bags`.
pub(crate) fn bag(bag: &BagStats, sink: Sink<'_>) {
    let name = |field: &str| format!("bags:{}:{}:{field}", bag.class, bag.place);
    sink(name("role").as_bytes(), bag.role.as_bytes());
    sink(name("queue").as_bytes(), bag.queue.as_bytes());
    for (field, value) in [
        ("items", bag.items),
        ("slots", bag.slots),
        ("opened", bag.opened_secs),
        ("closed", bag.closed_secs),
    ] {
        number(sink, &name(field), u64::from(value));
    }
}
