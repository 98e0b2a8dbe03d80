// Connections that break or get out of step, at servers that this file plays itself.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";

import { Client } from "./index.js";
import { Connection, retrieved, stored } from "./wire.js";

// Runs `use(client)` at a server that answers the requests of its nth connection with the nth list
// of replies, and closes the connection behind `null`. A request is all that comes at once.
async function against(connections, use, { host = "127.0.0.1", timeout = 20_000 } = {}) {
  let count = 0;
  const sockets = [];
  const server = createServer((socket) => {
    const replies = [...(connections[count++] ?? [])];
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", () => {
      if (replies.length === 0) return;
      const reply = replies.shift();
      if (reply === null) return socket.destroy();
      socket.write(reply);
      if (replies[0] === null) socket.end();
    });
  });
  server.listen(0, host);
  await once(server, "listening");
  const { port } = server.address();
  const client = new Client(`${host.includes(":") ? `[${host}]` : host}:${port}`, { timeout });
  try {
    return await use(client, () => count, port);
  } finally {
    client.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

const load = () => "loaded";
const read = async (client, options) => String(await client.getOrLoad("one", load, options));
const early = (client) => read(client, { earlyRefresh: 1 });

test("another key is a failure", async () => {
  assert.equal(await against([["VALUE other 0 5\r\nwrong\r\nEND\r\n"]], read), "loaded");
  assert.equal(await against([["LVALUE other 77 0 0\r\n\r\nEND\r\n"]], read), "loaded");
  assert.equal(await against([["VA 5 kother f0 c9\r\nwrong\r\n"]], early), "loaded");
  assert.equal(await against([["VA 5 f0 c9\r\nwrong\r\n"]], early), "loaded");
  assert.equal(await against([["VA 5 kone f0 c9\r\nright\r\n"]], early), "right");
});

test("a large value is joined once and not for each chunk", async (t) => {
  const value = "v".repeat(8 << 20);
  const concat = t.mock.method(Buffer, "concat");
  const got = await against([[`VALUE one 0 ${value.length}\r\n${value}\r\nEND\r\n`]], read);
  assert.ok(got === value);
  const joined = concat.mock.calls.reduce((sum, call) => sum + call.result.length, 0);
  // Once when the value is whole, and perhaps again for a last line that came behind it.
  assert.ok(joined < 3 * value.length, `${joined} bytes were joined`);
});

test("an error in place of the end is a failure, and closes", async () => {
  const broken = "VALUE one 0 5\r\nwrong\r\nCLIENT_ERROR late\r\n";
  const connections = [[broken], ["VALUE one 0 5\r\nright\r\nEND\r\n"]];
  const got = await against(connections, async (client) => [await read(client), await read(client)]);
  assert.deepEqual(got, ["loaded", "right"]);
});

test("a reply to another command is a failure, and closes", async () => {
  await against([["STORED\r\n"], ["DELETED\r\n"]], async (client) => {
    await assert.rejects(client.delete("one"), /unexpected reply: STORED/);
    assert.equal(await client.delete("one"), true);
  });
});

test("more than was asked for closes", async () => {
  await against([["DELETED\r\nDELETED\r\n"], ["NOT_FOUND\r\n"]], async (client) => {
    assert.equal(await client.delete("one"), true);
    assert.equal(await client.delete("two"), false);
  });
});

test("a refused store leaves no reply to others", async () => {
  // The server takes the block for a command, and answers that.
  const replies = ["CLIENT_ERROR no leases\r\nVALUE two 0 5\r\nwrong\r\nEND\r\n"];
  await against([replies], async (_, __, port) => {
    const connection = new Connection({ host: "127.0.0.1", port }, 20_000);
    const requests = [
      connection.ask("lease-set one 77 0 0 7\r\nget two\r\n", stored),
      connection.ask("get two\r\n", retrieved("two")),
    ];
    const settled = await Promise.allSettled(requests);
    assert.deepEqual(settled.map(({ status }) => status), ["rejected", "rejected"]);
    connection.close();
  });
});

test("a connection goes on behind SERVER_ERROR", async () => {
  await against([["SERVER_ERROR busy\r\n", "DELETED\r\n"]], async (client, connections) => {
    await assert.rejects(client.delete("one"), /SERVER_ERROR busy/);
    assert.equal(await client.delete("one"), true);
    assert.equal(connections(), 1);
  });
});

test("an idle connection that was closed is asked once more", async () => {
  const ask = async (client) => {
    assert.equal(await client.delete("one"), true);
    return Promise.all([client.delete("one"), client.delete("two")]);
  };
  const connections = [["DELETED\r\n", null], ["DELETED\r\nNOT_FOUND\r\n"]];
  assert.deepEqual(await against(connections, ask), [true, false]);
  await assert.rejects(against([["DELETED\r\n", null], [null]], ask), /closed|reset|ended/i);
  await assert.rejects(against([["DELETED\r\n", "DELE", null]], ask), /closed|reset|ended/i);
  await assert.rejects(against([[null], ["DELETED\r\n"]], ask), /closed|reset|ended/i);
});

test("an address of IPv6 has brackets", async () => {
  const got = await against([["DELETED\r\n"]], (client) => client.delete("one"), { host: "::1" });
  assert.equal(got, true);
});
