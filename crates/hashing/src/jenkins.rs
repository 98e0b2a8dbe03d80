//! Bob Jenkins's lookup3 (`hashlittle`) with the initial value 13 that libmemcached and twemproxy
//! give it.

/// lookup3 of the key, in 32 bits.
pub(crate) fn jenkins(key: &[u8]) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the originals truncate")]
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(13);
    let mut state = [start; 3];
    let mut rest = key;
    while rest.len() > 12 {
        let (block, tail) = rest.split_at(12);
        add(&mut state, block);
        mix(&mut state);
        rest = tail;
    }
    if !rest.is_empty() {
        add(&mut state, rest);
        finish(&mut state);
    }
    state[2]
}

/// Adds up to twelve bytes as three little-endian words.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    for (lane, word) in state.iter_mut().zip(bytes.chunks(4)) {
        let word = word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        *lane = lane.wrapping_add(word);
    }
}

fn mix(state: &mut [u32; 3]) {
    for (step, turn) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (a, b, c) = (step % 3, (step + 1) % 3, (step + 2) % 3);
        state[a] = state[a].wrapping_sub(state[c]) ^ state[c].rotate_left(turn);
        state[c] = state[c].wrapping_add(state[b]);
    }
}

fn finish(state: &mut [u32; 3]) {
    for (step, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (to, from) = ((step + 2) % 3, (step + 1) % 3);
        state[to] = (state[to] ^ state[from]).wrapping_sub(state[from].rotate_left(turn));
    }
}
