"""How programs with a client end: `check_exit.py ADDRESS`. Each program is a process of its own."""

import subprocess
import sys

from checking import passed, same
from holdall import Client

ADDRESS = sys.argv[1]

HEAD = f"""
import asyncio, multiprocessing, os, socket, threading, time
from holdall import AsyncClient, Client
ADDRESS = {ADDRESS!r}
"""

DAEMON = """
def daemon(work):
    threading.Thread(target=work, daemon=True).start()
"""

# Threads that nobody joins are in calls when their program ends.
DAEMONS = {
    "gets": """
client = Client(ADDRESS)
def work():
    while True:
        client.get("k")
for _ in range(4):
    daemon(work)
time.sleep(0.2)
""",
    "a load": """
client, begun = Client(ADDRESS, timeout=60), threading.Event()
def load():
    begun.set()
    while True:
        pass
daemon(lambda: client.get_or_load(f"exit:{os.getpid()}", load))
begun.wait()
""",
    "a lease of another's": """
host, port = ADDRESS.split(":")
key = f"exit:{os.getpid()}"
other = socket.create_connection((host, int(port)))
other.sendall(f"lease-get {key}\\r\\n".encode())
other.recv(100)
client = Client(ADDRESS)
daemon(lambda: client.get_or_load(key, lambda: b"v"))
time.sleep(0.2)
""",
    "tasks of a loop": """
client, begun = AsyncClient(ADDRESS), threading.Event()
async def gets():
    while True:
        await client.get("k")
        begun.set()
async def many():
    await asyncio.gather(*(gets() for _ in range(50)))
daemon(lambda: asyncio.run(many()))
begun.wait()
time.sleep(0.2)
""",
}

DELETE = """
def delete():
    client = Client(ADDRESS, timeout=60, connect_timeout=60)
    assert client.delete("exit:deleted") is True
"""

PROCESS = """
process = multiprocessing.get_context("fork").Process(target=delete)
process.start()
process.join()
"""

# A process's threads go on when its target has returned, and its finalizers have run. They make more calls than `ended` has seconds.
OUTLIVING = """
import multiprocessing.util
client = Client(ADDRESS, timeout=60, connect_timeout=60)
def work(ended):
    ended.wait()
    for _ in range(300):
        client.get("k")
    assert client.delete("exit:deleted") is True
def delete():
    ended = threading.Event()
    multiprocessing.util.Finalize(None, ended.set, exitpriority=1)
    threading.Thread(target=work, args=(ended,)).start()
"""

# What they have deleted without waiting is deleted when they have ended.
DELETES = {
    "a client that was dropped": DELETE + "delete()",
    "a process of multiprocessing": DELETE + PROCESS,
    "a client from before the process": """
client = Client(ADDRESS, timeout=60, connect_timeout=60)
client.get("k")
def delete():
    assert client.delete("exit:deleted") is True
"""
    + PROCESS,
    "a thread that outlives its process's target": OUTLIVING + PROCESS,
    "a dropped client beside a process": DELETE + PROCESS.replace("delete", "lambda: None") + "delete()",
}

# What ends the program may wait for a thread that is in calls.
JOINED = """
import atexit
wanted, got = threading.Event(), []
def work():
    wanted.wait()
    got.append(client.get("k"))
thread = threading.Thread(target=work, daemon=True)
def ends():
    wanted.set()
    thread.join()
    print(len(got))
atexit.register(ends)
"""

# A function that `atexit` calls last, because it was registered before the library was imported.
LAST = """
import atexit
def last():
    assert Client("127.0.0.1:1").delete("exit:deleted") is True
    assert client.set("k", b"v") is True and client.delete("exit:deleted") is True
    print(client.stats()[ADDRESS]["answered"])
atexit.register(last)
"""


def begun(text):
    program = [sys.executable, "-c", text]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd="/")


def ended(program, what):
    output = program.communicate(timeout=120)[0]
    same(program.returncode, 0, f"the exit status of a program with {what}")
    return output


def daemons():
    for what, text in DAEMONS.items():
        for program in [begun(HEAD + DAEMON + text) for _ in range(6)]:
            ended(program, what)


def deletes():
    client = Client(ADDRESS, timeout=60, default_noreply=False)
    for what, text in DELETES.items():
        for _ in range(6):
            client.set("exit:deleted", b"old")
            ended(begun(HEAD + text), what)
            same(client.get("exit:deleted"), None, f"what was deleted by {what}")


def joined():
    text = JOINED + HEAD + "client = Client(ADDRESS, timeout=60)\nthread.start()\n"
    text = "import threading\n" + text
    same(ended(begun(text), "a thread that is joined"), "1\n", "the thread has its answer")


def last():
    text = LAST + HEAD + "client = Client(ADDRESS, timeout=60, connect_timeout=60)\n"
    client = Client(ADDRESS, timeout=60, default_noreply=False)
    client.set("exit:deleted", b"old")
    same(ended(begun(text), "a last function"), "2\n", "answers to a last function")
    same(client.get("exit:deleted"), None, "what was deleted by a last function")


daemons()
deletes()
joined()
last()
passed("holdall for Python, exit")
