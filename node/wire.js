// One connection to a router or a server: requests are written as they come, and replies are
// matched in their order.

import { connect } from "node:net";

// Values above this many bytes are not read.
const VALUE_MAX = 1 << 30;

// A server's refusal of a request that it does not know, or has no right to.
export class Refused extends Error {}

// A reply that is not there yet.
const MORE = Symbol("more");

// A line that begins at `at`: its text and where the next one begins; or MORE.
function lineAt(buffer, at) {
  const end = buffer.indexOf("\n", at);
  if (end < 0) {
    if (buffer.length - at > 4096) throw new Error("a line without an end");
    return MORE;
  }
  const text = buffer.toString("latin1", at, end).replace(/\r$/, "");
  if (text.startsWith("SERVER_ERROR")) throw Object.assign(new Error(text), { next: end + 1 });
  if (text === "ERROR" || text.startsWith("CLIENT_ERROR")) {
    throw Object.assign(new Refused(text), { next: end + 1 });
  }
  return { text, next: end + 1 };
}

// The value of a length that a line has told, and where it ends; or MORE.
function blockAt(buffer, at, digits) {
  const length = Number(digits);
  if (!/^\d+$/.test(digits) || length > VALUE_MAX) throw new Error(`no length: ${digits}`);
  if (buffer.length < at + length + 2) return MORE;
  if (buffer.toString("latin1", at + length, at + length + 2) !== "\r\n") {
    throw new Error("a value does not end where its length says");
  }
  return { value: Buffer.from(buffer.subarray(at, at + length)), next: at + length + 2 };
}

// Readers of replies: each gives what the reply says, and where the next one begins; or MORE.

export function simple(buffer) {
  const line = lineAt(buffer, 0);
  return line === MORE ? MORE : { word: line.text, next: line.next };
}

// The reply to get, gets and lease-get of one key.
export function retrieved(buffer) {
  const line = lineAt(buffer, 0);
  if (line === MORE) return MORE;
  if (line.text === "END") return { found: false, token: 0n, next: line.next };
  const words = line.text.split(" ");
  const found = [4, 5].includes(words.length) && words[0] === "VALUE";
  if (!found && !(words.length === 5 && words[0] === "LVALUE")) {
    throw new Error(`an unexpected reply: ${line.text}`);
  }
  const block = blockAt(buffer, line.next, found ? words[3] : words[4]);
  if (block === MORE) return MORE;
  const end = lineAt(buffer, block.next);
  if (end === MORE) return MORE;
  if (end.text !== "END") throw new Error(`an unexpected reply: ${end.text}`);
  const [token, cas] = found ? [0n, BigInt(words[4] ?? 0)] : [BigInt(words[2]), 0n];
  const stale = !found && block.value.length > 0;
  return { found, token, cas, stale, value: block.value, next: end.next };
}

// The reply to mg with the flags v, c, G and R.
export function meta(buffer) {
  const line = lineAt(buffer, 0);
  if (line === MORE) return MORE;
  const [code, length, ...words] = line.text.split(" ");
  if (code !== "VA") throw new Error(`an unexpected reply: ${line.text}`);
  const block = blockAt(buffer, line.next, length);
  if (block === MORE) return MORE;
  const number = (letter) => words.find((word) => word[0] === letter)?.slice(1);
  const [token, cas] = [number("G"), BigInt(number("c") ?? 0)];
  const found = token === undefined && cas !== 0n;
  return {
    found,
    cas,
    won: words.includes("W"),
    stale: words.includes("X"),
    token: BigInt(token ?? 1),
    value: block.value,
    next: block.next,
  };
}

export class Connection {
  #address;
  #timeout;
  #socket = null;
  // Requests without a reply: how it is read, and who waits.
  #asked = [];
  #chunks = [];

  // `address` is that of `net.connect`; `timeout` is in milliseconds, for each reply.
  constructor(address, timeout) {
    this.#address = address;
    this.#timeout = timeout;
  }

  // Sends a request; the promise is of what its reply says.
  ask(request, read) {
    return new Promise((resolve, reject) => {
      const socket = (this.#socket ??= this.#open());
      const late = setTimeout(() => this.#fail(socket, new Error("no reply in time")), this.#timeout);
      this.#asked.push({ read, resolve, reject, late });
      socket.ref();
      socket.write(request);
    });
  }

  close() {
    if (this.#socket) this.#fail(this.#socket, new Error("the client is closed"));
  }

  #open() {
    const socket = connect(this.#address);
    this.#chunks = [];
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#take(socket, chunk));
    socket.on("error", (error) => this.#fail(socket, error));
    socket.on("close", () => this.#fail(socket, new Error("the connection was closed")));
    return socket;
  }

  #take(socket, chunk) {
    if (socket !== this.#socket) return;
    this.#chunks.push(chunk);
    let buffer = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    while (this.#asked.length > 0 && buffer.length > 0) {
      const asked = this.#asked[0];
      let settle;
      try {
        const reply = asked.read(buffer);
        if (reply === MORE) break;
        buffer = buffer.subarray(reply.next);
        settle = () => asked.resolve(reply);
      } catch (error) {
        // Only behind an error line is the next reply's place known.
        if (error.next === undefined) return this.#fail(socket, error);
        buffer = buffer.subarray(error.next);
        settle = () => asked.reject(error);
      }
      this.#asked.shift();
      clearTimeout(asked.late);
      settle();
    }
    this.#chunks = buffer.length > 0 ? [buffer] : [];
    // A connection without work does not keep the process alive.
    if (this.#asked.length === 0) socket.unref();
  }

  #fail(socket, error) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    socket.destroy();
    for (const { reject, late } of this.#asked.splice(0)) {
      clearTimeout(late);
      reject(error);
    }
  }
}
