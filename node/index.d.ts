/** Says how a value is read. Times are in milliseconds, but for `exptime`. */
export interface Options {
  /** As memcached takes it: 0, the default, is never; up to 30 days are seconds. */
  exptime?: number;
  /** Takes what may be older than a delete while another fills; true by default. */
  takesStale?: boolean;
  /** The first pause between two questions while another process loads; 2. */
  waitFirst?: number;
  /** The longest pause between two questions; 500. */
  waitLongest?: number;
  /** How long another process's load is waited for; 15,000. */
  waitTotal?: number;
  /** Loads a value anew before it expires, sooner the longer loads take; 1 is usual, 0 is off. */
  earlyRefresh?: number;
  /** Gives the call up; another process may load then. */
  signal?: AbortSignal;
  /** Remote markers of a region whose database is a replica. */
  markers?: {
    prefix: string;
    /** Writers use `writeMarkedAt`: the loader receives the place of the last write. */
    exact?: boolean;
  };
}

/** A place in a database's log, behind a write: a replica that has reached it shows the write. */
export class Position {
  private constructor();
  /** Reads "mariadb-gtid:0-1-4711", "mysql-gtid:UUID:23" or "lsn:0/16B3748". */
  static parse(text: string): Position;
  toString(): string;
  /** The place as the database itself writes it. */
  readonly inDatabase: string;
  /** Asks a replica whether it has reached the place: one column, true or 1 if it has. */
  readonly reachedQuery: string;
  /** The place behind both; undefined for places of two kinds of databases. */
  behindBoth(other: Position): Position | undefined;
}

/** What a loader receives. */
export interface Loading {
  signal?: AbortSignal;
  /** The database to ask, where there are markers. */
  source?: "local" | "master";
  /** Where markers are exact and the source is "local": read there if it has reached this place, and else from the master. */
  place?: Position;
}

export class Client {
  constructor(address?: string, options?: { timeout?: number });
  getOrLoad(
    key: string,
    load: (loading: Loading) => string | Uint8Array | Promise<string | Uint8Array>,
    options?: Options,
  ): Promise<Buffer>;
  writeMarked<T>(
    key: string,
    write: (marker: string) => T | Promise<T>,
    markers: { prefix: string; ttl: number },
  ): Promise<{ result: T; marked: boolean; deleted: boolean }>;
  writeMarkedAt<T>(
    key: string,
    write: () => Promise<{ place: Position; result?: T }> | { place: Position; result?: T },
    markers: { prefix: string; ttl: number },
  ): Promise<{ result: T; marked: boolean; deleted: boolean }>;
  delete(key: string): Promise<boolean>;
  close(): void;
}
