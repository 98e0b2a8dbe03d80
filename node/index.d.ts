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
  markers?: { prefix: string };
}

/** What a loader receives. */
export interface Loading {
  signal?: AbortSignal;
  /** The database to ask, where there are markers. */
  source?: "local" | "master";
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
  delete(key: string): Promise<boolean>;
  close(): void;
}
