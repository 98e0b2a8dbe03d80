//! Items in doubly linked lists, found by key: the basis of the simulated caches.

use std::collections::HashMap;

/// The place of an item; another item may reuse it after a removal.
pub(super) type At = usize;

/// Before the newest and after the oldest.
const NONE: At = At::MAX;

/// Lists that share their items: each item is in one of them.
pub(super) struct Lists {
    nodes: Vec<Node>,
    free: Vec<At>,
    lists: Vec<List>,
    places: HashMap<u64, At>,
}

struct Node {
    id: u64,
    bytes: u32,
    list: usize,
    /// For the policy: its number of uses, or whether it was used.
    uses: u8,
    newer: At,
    older: At,
}

#[derive(Clone, Copy)]
struct List {
    newest: At,
    oldest: At,
    bytes: u64,
}

impl Lists {
    /// This number of empty lists.
    pub(super) fn new(lists: usize) -> Self {
        let empty = List { newest: NONE, oldest: NONE, bytes: 0 };
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            lists: vec![empty; lists],
            places: HashMap::new(),
        }
    }

    pub(super) fn find(&self, id: u64) -> Option<At> {
        self.places.get(&id).copied()
    }

    pub(super) fn id(&self, at: At) -> u64 {
        self.nodes[at].id
    }

    pub(super) fn bytes(&self, at: At) -> u32 {
        self.nodes[at].bytes
    }

    pub(super) fn list(&self, at: At) -> usize {
        self.nodes[at].list
    }

    pub(super) fn uses(&mut self, at: At) -> &mut u8 {
        &mut self.nodes[at].uses
    }

    /// Items of all lists.
    pub(super) fn items(&self) -> usize {
        self.places.len()
    }

    /// Bytes of one list.
    pub(super) fn bytes_in(&self, list: usize) -> u64 {
        self.lists[list].bytes
    }

    /// Bytes of all lists.
    pub(super) fn bytes_in_all(&self) -> u64 {
        self.lists.iter().map(|list| list.bytes).sum()
    }

    pub(super) fn oldest(&self, list: usize) -> Option<At> {
        some(self.lists[list].oldest)
    }

    /// The next newer one in the same list.
    pub(super) fn newer(&self, at: At) -> Option<At> {
        some(self.nodes[at].newer)
    }

    /// Adds an unlisted item as the newest of a list.
    pub(super) fn insert(&mut self, list: usize, id: u64, bytes: u32) -> At {
        let node = Node { id, bytes, list, uses: 0, newer: NONE, older: NONE };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at] = node;
            at
        } else {
            self.nodes.push(node);
            self.nodes.len() - 1
        };
        self.places.insert(id, at);
        self.link(at, list);
        at
    }

    /// Makes an item the newest of a list.
    pub(super) fn move_to(&mut self, at: At, list: usize) {
        self.unlink(at);
        self.link(at, list);
    }

    pub(super) fn resize(&mut self, at: At, bytes: u32) {
        let list = self.nodes[at].list;
        self.lists[list].bytes += u64::from(bytes);
        self.lists[list].bytes -= u64::from(std::mem::replace(&mut self.nodes[at].bytes, bytes));
    }

    pub(super) fn remove(&mut self, at: At) {
        self.unlink(at);
        self.places.remove(&self.nodes[at].id);
        self.free.push(at);
    }

    fn link(&mut self, at: At, list: usize) {
        let ends = &mut self.lists[list];
        let older = std::mem::replace(&mut ends.newest, at);
        ends.bytes += u64::from(self.nodes[at].bytes);
        if older == NONE {
            ends.oldest = at;
        } else {
            self.nodes[older].newer = at;
        }
        let node = &mut self.nodes[at];
        (node.list, node.newer, node.older) = (list, NONE, older);
    }

    fn unlink(&mut self, at: At) {
        let Node { list, newer, older, bytes, .. } = self.nodes[at];
        self.lists[list].bytes -= u64::from(bytes);
        match some(newer) {
            Some(newer) => self.nodes[newer].older = older,
            None => self.lists[list].newest = older,
        }
        match some(older) {
            Some(older) => self.nodes[older].newer = newer,
            None => self.lists[list].oldest = newer,
        }
    }
}

fn some(at: At) -> Option<At> {
    (at != NONE).then_some(at)
}
