"""SASL: python-binary-memcached logs in; scramp, a SCRAM library, uses raw packets."""

import socket
import struct
import time

import bmemcached
from common import HOST, PORT, done, same
from scramp import ScramClient


class Raw:
    """One connection in the binary protocol."""

    def __init__(self):
        self.socket = socket.create_connection((HOST, PORT), timeout=20)

    def ask(self, opcode, key=b"", value=b""):
        body = key + value
        self.socket.sendall(struct.pack("!BBHBBHIIQ", 0x80, opcode, len(key), 0, 0, 0, len(body), 7, 0) + body)
        header = self.read(24)
        magic, _, _, _, _, status, length, opaque, _ = struct.unpack("!BBHBBHIIQ", header)
        same((magic, opaque), (0x81, 7), "the answer's header")
        return status, self.read(length)

    def read(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise EOFError(f"closed after {data!r}")
            data += part
        return data


def scram(mechanism, user, password):
    raw = Raw()
    same(mechanism in raw.ask(0x20)[1].decode().split(), True, f"{mechanism} is offered")
    client = ScramClient([mechanism], user, password)
    status, challenge = raw.ask(0x21, mechanism.encode(), client.get_client_first().encode())
    same(status, 0x21, "the challenge")
    client.set_server_first(challenge.decode())
    status, answer = raw.ask(0x22, mechanism.encode(), client.get_client_final().encode())
    if status != 0x21:
        return status, raw
    client.set_server_final(answer.decode())  # checks that the server knows the password, too
    return raw.ask(0x22, mechanism.encode())[0], raw


for user in ("plain", "hashed"):
    client = bmemcached.Client((f"{HOST}:{PORT}",), user, "secret")
    same(client.set(f"b-{user}", "value"), True, "bmemcached sets")
    same(client.get(f"b-{user}"), "value", "bmemcached gets")
    client.disconnect_all()

for mechanism, user in (("SCRAM-SHA-256", "plain"), ("SCRAM-SHA-256", "hashed"), ("SCRAM-SHA-1", "plain")):
    status, raw = scram(mechanism, user, "secret")
    same(status, 0, f"{mechanism} of {user}")
    same(raw.ask(0x00, b"b-plain")[0], 0, "a get after it")
# A verifier for SHA-256 works for no other hash; wrong passwords and unknown users look alike.
for mechanism, user, password in (
    ("SCRAM-SHA-1", "hashed", "secret"),
    ("SCRAM-SHA-256", "plain", "wrong"),
    ("SCRAM-SHA-256", "hashed", "wrong"),
    ("SCRAM-SHA-256", "nobody", "secret"),
):
    begun = time.monotonic()
    status, raw = scram(mechanism, user, password)
    same(status, 0x20, f"{mechanism} of {user} with {password}")
    same(time.monotonic() - begun > 0.9, True, "a refusal takes its time")
    same(raw.ask(0x00, b"b-plain")[0], 0x20, "nobody is logged in")
for message in (b"\0plain\0wrong", b"\0hashed\0wrong", b"\0nobody\0secret", b"", b"plain"):
    raw = Raw()
    same(raw.ask(0x21, b"PLAIN", message)[0], 0x20, f"PLAIN of {message!r}")
done("sasl")
