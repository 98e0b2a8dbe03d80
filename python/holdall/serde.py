"""How values become bytes and client flags, and back. The flags are pymemcache's, which the Rust library uses, too."""

from __future__ import annotations

import pickle
from typing import Any

FLAG_PICKLE = 1 << 0
FLAG_INTEGER = 1 << 1
FLAG_LONG = 1 << 2
FLAG_COMPRESSED = 1 << 3
FLAG_TEXT = 1 << 4


class RawSerde:
    """Bytes as they are, text in ASCII, anything else as its text; what is read is bytes. pymemcache's way without a serde."""

    def serialize(self, key: Any, value: Any) -> tuple[bytes, int]:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value), 0
        return str(value).encode("ascii"), 0

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        return value


class TypedSerde:
    """Bytes, text and integers come back as what they were; a bytearray and a memoryview become bytes. Nothing that is read runs code."""

    def serialize(self, key: Any, value: Any) -> tuple[bytes, int]:
        # Their subclasses would come back as these.
        if type(value) is bytes:
            return value, 0
        if type(value) is str:
            return value.encode("utf-8"), FLAG_TEXT
        if type(value) is int:
            return b"%d" % value, FLAG_INTEGER
        return self.other(value)

    def other(self, value: Any) -> tuple[bytes, int]:
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value), 0
        raise TypeError(f"bytes, str and int can be stored, not {type(value).__name__}")

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        if flags & FLAG_COMPRESSED:
            raise ValueError("the value is compressed by pymemcache's CompressedSerde, which reads it")
        if flags & FLAG_TEXT:
            return value.decode("utf-8")
        if flags & (FLAG_INTEGER | FLAG_LONG):
            return int(value)
        if flags & FLAG_PICKLE:
            return self.pickled(value)
        return value

    def pickled(self, value: bytes) -> Any:
        raise ValueError("the value is pickled; PickleSerde reads it, and runs what it says")


class PickleSerde(TypedSerde):
    """As TypedSerde, and anything else pickled, subclasses of bytes, str and int, too. Only for caches that nobody else can write to: a pickle runs code."""

    def __init__(self, pickle_version: int = pickle.HIGHEST_PROTOCOL) -> None:
        self.pickle_version = pickle_version

    def other(self, value: Any) -> tuple[bytes, int]:
        return pickle.dumps(value, self.pickle_version), FLAG_PICKLE

    def pickled(self, value: bytes) -> Any:
        return pickle.loads(value)
