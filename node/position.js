// Places in the log of a database, which a replica has reached or not.

const NUMBER = /^\d{1,20}$/;
const U32 = 2n ** 32n;
const U64 = 2n ** 64n;

// Each reads the text of one kind of database, and gives its parts or undefined.
const READERS = {
  lsn(place) {
    if (!/^[\da-f]{1,8}\/[\da-f]{1,8}$/i.test(place)) return undefined;
    const [high, low] = place.split("/").map((half) => BigInt(`0x${half}`));
    return (high << 32n) | low;
  },

  // The last transaction of each domain.
  "mariadb-gtid"(place) {
    const domains = new Map();
    for (const part of place.split(",")) {
      const words = part.trim().split("-");
      if (words.length !== 3 || !words.every((word) => NUMBER.test(word))) return undefined;
      const [domain, server, number] = words.map(BigInt);
      if (domain >= U32 || server >= U32 || number >= U64) return undefined;
      domains.set(Number(domain), { server, number });
    }
    return domains;
  },

  // Sets of transactions, as they are written; with tags from MySQL 8.3 on.
  "mysql-gtid"(place) {
    const sets = place.split(",").map((part) => part.trim());
    return sets.every((set) => /^[\da-f-]{36}:[\w:-]+$/i.test(set)) ? new Set(sets) : undefined;
  },
};

const WRITERS = {
  lsn: (lsn) => [lsn >> 32n, lsn & 0xffffffffn].map((half) => half.toString(16)).join("/").toUpperCase(),
  "mariadb-gtid": (domains) =>
    [...domains]
      .sort(([one], [other]) => one - other)
      .map(([domain, { server, number }]) => `${domain}-${server}-${number}`)
      .join(","),
  "mysql-gtid": (sets) => [...sets].sort().join(","),
};

const BOTH = {
  lsn: (one, other) => (one > other ? one : other),
  "mariadb-gtid"(one, other) {
    const both = new Map(one);
    for (const [domain, last] of other) {
      if (!(both.get(domain)?.number >= last.number)) both.set(domain, last);
    }
    return both;
  },
  "mysql-gtid": (one, other) => new Set([...one, ...other]),
};

const QUERIES = {
  lsn: (place) => `SELECT coalesce(pg_last_wal_replay_lsn() >= '${place}', false)`,
  "mariadb-gtid": (place) => `SELECT MASTER_GTID_WAIT('${place}', 0) = 0`,
  "mysql-gtid": (place) => `SELECT GTID_SUBSET('${place}', @@global.gtid_executed)`,
};

// A place in a database's log, behind a write: a replica that has reached it shows the write.
export class Position {
  #kind;
  #place;

  // For this file alone.
  constructor(kind, place) {
    this.#kind = kind;
    this.#place = place;
  }

  // Reads "mariadb-gtid:0-1-4711", "mysql-gtid:UUID:23" or "lsn:0/16B3748". The queries that give
  // these texts to a writer are in docs/client.md.
  static parse(text) {
    const [, kind, place] = /^([a-z-]+):(.*)$/s.exec(text) ?? [];
    const parts = Object.hasOwn(READERS, kind ?? "") ? READERS[kind](place) : undefined;
    if (parts === undefined) {
      const kinds = "mariadb-gtid:0-1-2, mysql-gtid:UUID:3, lsn:0/16B3748";
      throw new TypeError(`${JSON.stringify(String(text).slice(0, 100))} is none of ${kinds}`);
    }
    return new Position(kind, parts);
  }

  // The text that `parse` reads.
  toString() {
    return `${this.#kind}:${this.inDatabase}`;
  }

  // The place as the database itself writes it. It has letters, digits, and "-:,/_" only.
  get inDatabase() {
    return WRITERS[this.#kind](this.#place);
  }

  // The query that asks a replica whether it has reached the place: one row with one column, true
  // or 1 if it has. It does not wait.
  get reachedQuery() {
    return QUERIES[this.#kind](this.inDatabase);
  }

  // The place behind both; undefined for places of two kinds of databases.
  behindBoth(other) {
    if (this.#kind !== other.#kind) return undefined;
    return new Position(this.#kind, BOTH[this.#kind](this.#place, other.#place));
  }
}
