//! Large blocks of a whole program: freed memory returns to the system.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::alloc::System;

use reserve::{Allocator, KEPT_BYTES, LARGE_BYTES, Mapped};

#[global_allocator]
static ALLOCATOR: Allocator<Mapped<System>> = Allocator::new(Mapped::new(System));

/// Bytes of this process that are in memory.
fn resident() -> usize {
    usize::try_from(processes::usage::rss_bytes(std::process::id()).unwrap()).unwrap()
}

/// A block whose bytes identify its owner.
fn block(number: usize, len: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); len]
}

fn is_whole(block: &[u8], number: usize) -> bool {
    block.iter().all(|byte| usize::from(*byte) == number % 251)
}

/// One test: resident memory is that of the whole process.
#[test]
fn freed_blocks_return_to_the_system_and_contents_are_preserved() {
    const BLOCKS: usize = 2000;
    let before = resident();
    // Of all sizes, with small ones between that stay: a heap would keep the memory in between.
    let mut large: Vec<_> =
        (0..BLOCKS).map(|number| block(number, LARGE_BYTES + number * 53 % 90_000)).collect();
    let small: Vec<_> = (0..BLOCKS).map(|number| block(number, 100)).collect();
    let all: usize = large.iter().map(Vec::len).sum();
    assert!(resident() > before + all * 9 / 10);
    for (number, bytes) in large.iter().enumerate() {
        assert!(is_whole(bytes, number), "block {number}");
    }
    // One in ten stays.
    let mut number = 0;
    large.retain(|_| {
        number += 1;
        number % 10 == 1
    });
    let left: usize = large.iter().map(|bytes| bytes.len() + LARGE_BYTES / 2).sum();
    let kept = resident().saturating_sub(before);
    assert!(kept < left + KEPT_BYTES + (2 << 20), "{kept} bytes for {left}");
    for (number, bytes) in large.iter().enumerate() {
        assert!(is_whole(bytes, number * 10), "block {number}");
    }
    drop(large);

    // They grow over the limit, and shrink again.
    let mut grown = Vec::new();
    for byte in 0..300_000_usize {
        grown.push(u8::try_from(byte % 256).unwrap());
        if byte % 50_000 == 0 {
            grown.shrink_to_fit();
        }
    }
    grown.truncate(LARGE_BYTES / 2);
    grown.shrink_to_fit();
    assert!(grown.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 256));
    // Kept memory comes back as zeros if zeros are requested.
    drop(block(7, 40_000));
    assert!(vec![0_u8; 40_000].iter().all(|byte| *byte == 0));

    // Many threads at once.
    std::thread::scope(|scope| {
        for mark in 0..4 {
            scope.spawn(move || {
                let mut held: Vec<(usize, Vec<u8>)> = Vec::new();
                for round in 0..3000 {
                    let number = mark + round;
                    held.push((number, block(number, 10_000 + round * 97 % 40_000)));
                    if held.len() > 8 {
                        let (number, bytes) = held.swap_remove(round % 8);
                        assert!(is_whole(&bytes, number));
                    }
                }
            });
        }
    });
    assert!(small.iter().enumerate().all(|(number, bytes)| is_whole(bytes, number)));
    let end = resident().saturating_sub(before);
    assert!(end < KEPT_BYTES + (4 << 20), "{end} bytes are left");
}
