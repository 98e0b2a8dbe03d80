//! Stored logs of PostgreSQL's plugin `pgoutput`, which are the seeds of a fuzz target.

mod common;

#[test]
fn seeds_of_pgoutput_messages_hold() {
    let keys = common::replay("../../fuzz/seeds/pgoutput_messages", common::keys_of_pgoutput);
    assert_eq!(keys["outbox-and-messages"], ["k1", "k2", "k3"]);
    assert_eq!(keys["insert"], ["t:1", "n:a:1"]);
}
