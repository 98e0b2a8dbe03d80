// One connection to a router or a server: requests are written as they come, and replies are
// matched in their order.

import { connect } from "node:net";

// Values above this many bytes are not read.
const VALUE_MAX = 1 << 30;

// A server's refusal of a request that it does not know, or has no right to.
export class Refused extends Error {}

// A reply that is not there yet: it has this many bytes at the least, as far as is known.
class More {
  constructor(length) {
    this.length = length;
  }
}

const MORE_OF_LINE = new More(0);

const unexpected = (line) => new Error(`an unexpected reply: ${line}`);

// A line that begins at `at`: its text and where the next one begins; or More.
function lineAt(buffer, at) {
  const end = buffer.indexOf("\n", at);
  if (end < 0) {
    if (buffer.length - at > 4096) throw new Error("a line without an end");
    return MORE_OF_LINE;
  }
  return { text: buffer.toString("latin1", at, end).replace(/\r$/, ""), next: end + 1 };
}

// The first line of a reply, or More. One of an error is thrown, with the place of the next reply.
function headOf(buffer) {
  const line = lineAt(buffer, 0);
  if (line instanceof More) return line;
  const { text, next } = line;
  if (text.startsWith("SERVER_ERROR")) throw Object.assign(new Error(text), { next });
  if (text === "ERROR" || text.startsWith("CLIENT_ERROR")) {
    throw Object.assign(new Refused(text), { next });
  }
  return line;
}

// The value of a length that a line has told, and where it ends; or More.
function blockAt(buffer, at, digits) {
  const length = Number(digits);
  if (!/^\d+$/.test(digits) || length > VALUE_MAX) throw new Error(`no length: ${digits}`);
  if (buffer.length < at + length + 2) return new More(at + length + 2);
  if (buffer.toString("latin1", at + length, at + length + 2) !== "\r\n") {
    throw new Error("a value does not end where its length says");
  }
  return { value: Buffer.from(buffer.subarray(at, at + length)), next: at + length + 2 };
}

// Readers of replies: each gives what the reply says, and where the next one begins; or More.

const oneOf = (...words) => (buffer) => {
  const line = headOf(buffer);
  if (line instanceof More) return line;
  if (!words.includes(line.text)) throw unexpected(line.text);
  return { word: line.text, next: line.next };
};

export const deleted = oneOf("DELETED", "NOT_FOUND");

const wordOfStore = oneOf("STORED", "NOT_STORED", "EXISTS", "NOT_FOUND");

// The reply to a storage command. A server that refuses one may take its block for commands, so
// nobody knows where the next reply begins.
export function stored(buffer) {
  try {
    return wordOfStore(buffer);
  } catch (error) {
    throw error instanceof Refused ? new Refused(error.message) : error;
  }
}

// The reply to get, gets and lease-get of a key.
export const retrieved = (key) => (buffer) => {
  const line = headOf(buffer);
  if (line instanceof More) return line;
  if (line.text === "END") return { found: false, token: 0n, next: line.next };
  const words = line.text.split(" ");
  const found = [4, 5].includes(words.length) && words[0] === "VALUE";
  const leased = words.length === 5 && words[0] === "LVALUE";
  if (!(found || leased) || words[1] !== key) throw unexpected(line.text);
  const block = blockAt(buffer, line.next, found ? words[3] : words[4]);
  if (block instanceof More) return block;
  const end = lineAt(buffer, block.next);
  if (end instanceof More) return end;
  if (end.text !== "END") throw unexpected(end.text);
  const [token, cas] = found ? [0n, BigInt(words[4] ?? 0)] : [BigInt(words[2]), 0n];
  const stale = !found && block.value.length > 0;
  return { found, token, cas, stale, value: block.value, next: end.next };
};

// The reply to mg of a key with the flags k, v, c, G and R.
export const meta = (key) => (buffer) => {
  const line = headOf(buffer);
  if (line instanceof More) return line;
  const [code, length, ...words] = line.text.split(" ");
  if (code !== "VA" || !words.includes(`k${key}`)) throw unexpected(line.text);
  const block = blockAt(buffer, line.next, length);
  if (block instanceof More) return block;
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
};

export class Connection {
  #address;
  #timeout;
  #socket = null;
  // Requests without a reply: how it is read, and who waits.
  #asked = [];
  // What has come and was not read, the sum of its lengths, and the sum from which on there may be
  // a whole reply. A large value comes in many chunks: to join them for each would take the square
  // of its length.
  #chunks = [];
  #length = 0;
  #wanted = 0;
  // A reply has come on this socket.
  #isUsed = false;
  // What was asked began on an idle socket, and nothing has come since: if the server has closed
  // that, it has seen none of it.
  #isUnseen = false;

  // `address` is that of `net.connect`; `timeout` is in milliseconds, for each request with its
  // reply.
  constructor(address, timeout) {
    this.#address = address;
    this.#timeout = timeout;
  }

  // Sends a request; the promise is of what its reply says.
  ask(request, read) {
    return new Promise((resolve, reject) => {
      const socket = (this.#socket ??= this.#open());
      const isLate = () => this.#fail(this.#socket, new Error("no reply in time"));
      if (this.#asked.length === 0) this.#isUnseen = this.#isUsed;
      const late = setTimeout(isLate, this.#timeout);
      this.#asked.push({ request, read, resolve, reject, late });
      socket.ref();
      socket.write(request);
    });
  }

  close() {
    if (this.#socket) this.#fail(this.#socket, new Error("the client is closed"));
  }

  #open() {
    const socket = connect(this.#address);
    this.#keep([], 0);
    [this.#isUsed, this.#isUnseen] = [false, false];
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#take(socket, chunk));
    socket.on("error", (error) => this.#lose(socket, error));
    socket.on("close", () => this.#lose(socket, new Error("the connection was closed")));
    return socket;
  }

  #take(socket, chunk) {
    if (socket !== this.#socket) return;
    [this.#isUsed, this.#isUnseen] = [true, false];
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    if (this.#length < this.#wanted) return;
    let buffer = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    let wanted = 0;
    while (this.#asked.length > 0 && buffer.length > 0) {
      const asked = this.#asked[0];
      let settle;
      try {
        const reply = asked.read(buffer);
        if (reply instanceof More) {
          wanted = reply.length;
          break;
        }
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
    if (this.#asked.length > 0) {
      this.#keep(buffer.length > 0 ? [buffer] : [], wanted);
      return;
    }
    if (buffer.length > 0) return this.#fail(socket, new Error("more than was asked for"));
    this.#keep([], 0);
    // A connection without work does not keep the process alive.
    socket.unref();
  }

  // What is left to read, and from which length on.
  #keep(chunks, wanted) {
    this.#chunks = chunks;
    this.#length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    this.#wanted = wanted;
  }

  // The socket has ended: asks once more on a new one, or fails.
  #lose(socket, error) {
    if (socket !== this.#socket || !this.#isUnseen) return this.#fail(socket, error);
    socket.destroy();
    this.#socket = this.#open();
    for (const { request } of this.#asked) this.#socket.write(request);
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
