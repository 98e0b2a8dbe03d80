#!/usr/bin/env python3
"""Prints where libmemcached puts keys, and the hashes it computes, by asking the installed library.

The library needs no server for that: memcached_generate_hash() answers from the list of servers. One line a case:

    hash <hash> <key in hex> <value>
    place <distribution> <hash> <host:port:weight,..> <index of key:0, key:1, ..>

crates/hashing/tests/libmemcached.rs runs it and compares.
"""

import ctypes

memcached = ctypes.CDLL("libmemcached.so.11")
memcached.memcached_create.restype = ctypes.c_void_p
memcached.memcached_create.argtypes = [ctypes.c_void_p]
memcached.memcached_free.argtypes = [ctypes.c_void_p]
memcached.memcached_behavior_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
memcached.memcached_server_add_with_weight.argtypes = [
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_uint16,
    ctypes.c_uint32,
]
memcached.memcached_generate_hash.restype = ctypes.c_uint32
memcached.memcached_generate_hash.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
memcached.memcached_generate_hash_value.restype = ctypes.c_uint32
memcached.memcached_generate_hash_value.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]

# libmemcached-1.0/types/behavior.h, types/server_distribution.h, libhashkit-1.0/types.h
BEHAVIOR_HASH, BEHAVIOR_DISTRIBUTION, BEHAVIOR_KETAMA_WEIGHTED = 2, 9, 16
MODULA, CONSISTENT, KETAMA, KETAMA_SPY = 0, 1, 2, 4
# Without hsieh (7): Debian builds the library without it, and it gives 1 for every key.
HASHES = {
    "one_at_a_time": 0,
    "md5": 1,
    "crc32": 2,
    "fnv1_64": 3,
    "fnv1a_64": 4,
    "fnv1_32": 5,
    "fnv1a_32": 6,
    "murmur": 8,
    "jenkins": 9,
    "murmur3": 10,
}

KEYS = [b"", b"a", b"ab", b"abc", b"abcd", b"key:1", b"user:1234567890:profile", b"x" * 250]
KEYS += [bytes([0x80]), "schlüssel".encode(), bytes(range(0x80, 0x100)), b"abc\xff", b"12\xe4", b"\xfe\xff"]
KEYS += [b"k" * length for length in range(5, 40, 3)]

POOLS = {
    "one": [("10.0.0.1", 11211, 1)],
    "three": [("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 1), ("10.0.0.3", 11211, 1)],
    "ports": [("cache-a.example", 11211, 1), ("cache-a.example", 11212, 1), ("cache-b.example", 22122, 1)],
    "weights": [("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 2), ("10.0.0.3", 11212, 5), ("10.0.0.4", 11211, 3)],
    "many": [("10.1.0.%d" % host, 11211 + host % 3, 1 + host % 7) for host in range(40)],
}


def hashes():
    for name, number in HASHES.items():
        for key in KEYS:
            value = memcached.memcached_generate_hash_value(key, len(key), number)
            print("hash", name, key.hex() or "-", value)


def places(distribution, hash_name, pool_name):
    ptr = memcached.memcached_create(None)
    if distribution == "ketama_weighted":
        memcached.memcached_behavior_set(ptr, BEHAVIOR_KETAMA_WEIGHTED, 1)
    elif distribution == "ketama_spy":
        memcached.memcached_behavior_set(ptr, BEHAVIOR_KETAMA_WEIGHTED, 1)
        memcached.memcached_behavior_set(ptr, BEHAVIOR_DISTRIBUTION, KETAMA_SPY)
    else:
        number = {"modula": MODULA, "consistent": CONSISTENT, "ketama": KETAMA}[distribution]
        memcached.memcached_behavior_set(ptr, BEHAVIOR_DISTRIBUTION, number)
    memcached.memcached_behavior_set(ptr, BEHAVIOR_HASH, HASHES[hash_name])
    servers = POOLS[pool_name]
    for host, port, weight in servers:
        # Ketama with a weight above 1 is weighted ketama, whatever was asked for.
        weight = weight if "weighted" in distribution or "spy" in distribution else 1
        memcached.memcached_server_add_with_weight(ptr, host.encode(), port, weight)
    keys = [b"key:%d" % number for number in range(150)]
    found = [memcached.memcached_generate_hash(ptr, key, len(key)) for key in keys]
    pool = ",".join("%s:%d:%d" % server for server in servers)
    print("place", distribution, hash_name, pool, ",".join(map(str, found)))
    memcached.memcached_free(ptr)


hashes()
for distribution in ["modula", "consistent", "ketama", "ketama_weighted", "ketama_spy"]:
    for hash_name in ["one_at_a_time", "md5", "crc32", "fnv1a_64"]:
        for pool_name in POOLS:
            places(distribution, hash_name, pool_name)
