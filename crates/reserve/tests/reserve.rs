//! A whole program whose allocator has a reserve.
#![forbid(unsafe_code)]

use reserve::{Allocator, Failing, failing_from, grants, is_low, used};

/// Bytes of the reserve.
const RESERVE_BYTES: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// Everything in one test: the allocator is the whole program's.
#[test]
fn refused_allocations_are_served_from_the_reserve() {
    let mut kept = vec![1_u8; 100];
    let (grown, outcome) = failing_from(1, true, || {
        let fresh = vec![2_u8; 1000];
        let zeroed = vec![0_u8; 4096];
        assert!(fresh.iter().all(|byte| *byte == 2) && zeroed.iter().all(|byte| *byte == 0));
        kept.resize(5000, 3);
        kept.extend_from_slice(&fresh);
        kept.len()
    });
    assert_eq!(grown, 6000);
    assert!(outcome.refused >= 3 && used() >= 6000 && grants() >= 3, "{outcome:?}");
    assert!(kept[..100].iter().all(|byte| *byte == 1));
    assert!(kept[100..5000].iter().all(|byte| *byte == 3));
    // It grows out of the reserve when the system gives memory again.
    kept.resize(100_000, 4);
    assert_eq!(used(), 0);
    assert!(!is_low());
    // A block too large for the reserve is refused, and the caller can handle that.
    let (refused, _) =
        failing_from(1, true, || Vec::<u8>::new().try_reserve(RESERVE_BYTES * 2).is_err());
    assert!(refused);
    let (low, _) = failing_from(1, true, || {
        let large = vec![5_u8; RESERVE_BYTES / 2];
        (is_low(), large.len())
    });
    assert_eq!(low, (true, RESERVE_BYTES / 2));
    // Many threads at once, each with blocks of both kinds.
    let (_, outcome) = failing_from(1, true, || {
        std::thread::scope(|scope| {
            for mark in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..2000_usize {
                        let block = vec![mark; round % 700 + 1];
                        assert!(block.iter().all(|byte| *byte == mark));
                    }
                });
            }
        });
    });
    assert!(outcome.refused > 8000, "{outcome:?}");
    // The threads' own allocations may last; eight thousand blocks would not fit.
    assert!(used() < 4096, "{} bytes", used());
}
