<?php

declare(strict_types=1);

namespace Holdall;

/**
 * Look-aside reads through a memcached tier: a value comes from the cache or else from a loader, and one caller of all processes loads a
 * missing key.
 *
 * It speaks to a holdall router on the same host, or to one server. Programs keep their usual memcached client for everything else. The
 * protocol is described in docs/look-aside.md.
 */
final class Client
{
    /** For how many seconds a key whose lease was refused is read without one. */
    private const REFUSED_SECS = 30;
    private const REFUSED_MAX = 1024;

    /** Attempts to put a place into a marker that others change as well. */
    private const PUT_ATTEMPTS = 16;
    /** The longest text of a place. Behind a longer one, of many writes to MySQL, the marker is without a place. */
    private const PLACE_MAX = 1000;

    private readonly Connection $connection;
    /** @var array<string, float> until when, by key */
    private array $refused = [];
    /** @var array{string, string}|null key and token of the lease that is held */
    private ?array $held = null;
    private float $meanLoad = 0.0;

    /**
     * @param string $address "host:port", or the path of a Unix socket
     * @param float $timeout for each request with its reply, in seconds
     */
    public function __construct(string $address = '127.0.0.1:11211', float $timeout = 1.0)
    {
        $this->connection = new Connection($address, $timeout);
        $weak = \WeakReference::create($this);
        // A fatal error in a loader, or exit, runs no finally.
        register_shutdown_function(static fn () => $weak->get()?->giveBack());
    }

    /** Deletes a key, and tells whether it was there. Call it when a write is committed. */
    public function delete(string $key): bool
    {
        self::check($key);
        return $this->connection->delete($key);
    }

    /**
     * The value of a key, from the cache or else from `$load`, which is called once at the most. It throws what `$load` throws; that the
     * cache fails is no error.
     *
     * One caller of all processes loads a missing key. If `$load` throws, or its script ends, another process loads at once. A value that
     * a delete has overtaken is not stored.
     *
     * @param callable $load with `$markers` it receives "local" or "master", the database to ask; with `$exact`
     *     it may receive "local" and a place: it reads there if that has reached the place, and else from the master
     * @param int $exptime as memcached takes it: 0 is never, up to 30 days are seconds
     * @param bool $takesStale takes a value that was deleted a short time ago while another process fills
     * @param float $waitFirst the first pause between two questions while another process loads, in seconds
     * @param float $waitLongest the longest one
     * @param float $waitTotal all of them; after that the value is loaded in spite of the other, and not stored
     * @param float $earlyRefresh loads a value anew before it expires, sooner the longer loads take; 1 is usual, 0 is off
     * @param string|null $markers the prefix of the remote markers of a region whose database is a replica
     * @param bool $exact writers use `writeMarkedAt`
     */
    public function getOrLoad(
        string $key,
        callable $load,
        int $exptime = 0,
        bool $takesStale = true,
        float $waitFirst = 0.002,
        float $waitLongest = 0.5,
        float $waitTotal = 15.0,
        float $earlyRefresh = 0.0,
        ?string $markers = null,
        bool $exact = false,
    ): string {
        self::check($key);
        $from = fn (): array => $markers === null ? [null] : $this->from($markers . $key, $exact);
        $until = Stream::now() + $waitTotal;
        for ($wait = $waitFirst;; $wait = min($wait * 2, $waitLongest)) {
            try {
                [$reply, $isRefused] = $this->ask($key, $earlyRefresh);
            } catch (CacheException) {
                return $this->load($key, $load, $exptime, $from, '', '');
            }
            if ($reply->isFound && $reply->isWon) {
                return $this->load($key, $load, $exptime, $from, 'cas', $reply->cas, $reply->value);
            }
            if ($reply->isFound) {
                return $reply->value;
            }
            if ($isRefused) {
                return $this->load($key, $load, $exptime, $from, 'add', '');
            }
            if ($reply->hasLease()) {
                return $this->load($key, $load, $exptime, $from, 'lease-set', $reply->token);
            }
            if ($reply->isStale && $takesStale) {
                return $reply->value;
            }
            $left = $until - Stream::now();
            if ($left <= 0) {
                return $this->load($key, $load, $exptime, $from, '', '');
            }
            usleep((int) (min($wait, $left) * 1e6));
        }
    }

    /**
     * Writes what a key shows, in a region whose database is a replica: sets the marker, calls `$write` with the marker's key, which is to
     * be invalidated with the write, and deletes the key. It throws only what `$write` throws.
     *
     * @template T
     * @param callable(string): T $write
     * @return array{result: T, marked: bool, deleted: bool} the last two tell whether the cache had its part
     */
    public function writeMarked(string $key, callable $write, string $prefix, int $ttl): array
    {
        $marker = $prefix . $key;
        self::check($marker);
        $marked = self::tried(fn () => $this->mark('set', $marker, $ttl, null));
        $result = $write($marker);
        return ['result' => $result, 'marked' => $marked, 'deleted' => self::tried(fn () => $this->delete($key))];
    }

    /**
     * As `writeMarked` with an exact marker: `$write` also returns the place of its commit in the master's log. Nothing but time ends such
     * markers, so what follows the replica's log deletes the key alone, and readers have `exact: true`.
     *
     * @template T
     * @param callable(): array{T, Position} $write
     * @return array{result: T, marked: bool, deleted: bool} the last two tell whether the cache had its part
     */
    public function writeMarkedAt(string $key, callable $write, string $prefix, int $ttl): array
    {
        $marker = $prefix . $key;
        self::check($marker);
        // That it fails does not matter: the marker is written once more below, or that fails.
        self::tried(fn () => $this->mark('set', $marker, $ttl, null));
        [$result, $place] = $write();
        $marked = self::tried(fn () => $this->put($marker, $ttl, $place));
        return ['result' => $result, 'marked' => $marked, 'deleted' => self::tried(fn () => $this->delete($key))];
    }

    public function close(): void
    {
        $this->giveBack();
        $this->connection->close();
    }

    private static function check(string $key): void
    {
        if (preg_match('/^[^\x00-\x20\x7f]{1,250}$/D', $key) !== 1) {
            throw new \InvalidArgumentException('a key is 1 to 250 bytes without blanks or control characters');
        }
    }

    /** Asks, and tells whether the cache has answered. */
    private static function tried(callable $ask): bool
    {
        try {
            $ask();
            return true;
        } catch (CacheException) {
            return false;
        }
    }

    /** @return array{Reply, bool} what the cache says, and whether leases are not for this key */
    private function ask(string $key, float $earlyRefresh): array
    {
        if (($this->refused[$key] ?? 0.0) <= Stream::now()) {
            try {
                if ($earlyRefresh <= 0) {
                    return [$this->connection->retrieve('lease-get', $key), false];
                }
                // So many seconds before its end this caller would load a value anew.
                $random = mt_rand(1, mt_getrandmax()) / mt_getrandmax();
                $early = $this->meanLoad * $earlyRefresh * -log($random);
                $secs = (int) min($early + 1, 0xffffffff);
                return [$this->connection->retrieveEarly($key, $secs), false];
            } catch (RefusedException) {
                unset($this->refused[$key]);
                $this->refused = array_slice($this->refused, -(self::REFUSED_MAX - 1), null, true);
                $this->refused[$key] = Stream::now() + self::REFUSED_SECS;
            }
        }
        return [$this->connection->retrieve('get', $key), true];
    }

    /** Calls the loader, and stores its value by `$command`, if that is not empty. */
    private function load(
        string $key,
        callable $load,
        int $exptime,
        callable $from,
        string $command,
        string $number,
        ?string $old = null,
    ): string {
        $isLease = $command === 'lease-set';
        $outer = $this->held;
        $this->held = $isLease ? [$key, $number] : null;
        try {
            // Behind the token: a write in between takes the token away.
            $arguments = $from();
            $begun = Stream::now();
            $value = $load(...$arguments);
            $took = Stream::now() - $begun;
            $this->meanLoad += ($took - $this->meanLoad) / ($this->meanLoad === 0.0 ? 1 : 8);
            if ($command !== '') {
                $this->store($command, $key, $exptime, $value, $number);
            }
            return $value;
        } catch (\Exception $error) {
            if ($old !== null) {
                return $old;
            }
            throw $error;
        } finally {
            try {
                $this->giveBack();
            } finally {
                $this->held = $outer;
            }
        }
    }

    /** Puts the place of a write into a marker, behind the place that it has. */
    private function put(string $marker, int $ttl, Position $own): void
    {
        for ($left = self::PUT_ATTEMPTS; $left > 0; $left--) {
            $there = $this->connection->retrieve('gets', $marker);
            // Without a place somebody's write is under way, or nobody's: ours says enough for us.
            $other = $there->isFound ? self::placeIn($there->value) : null;
            $place = $other === null ? $own : $own->behindBoth($other);
            if ($this->mark($there->isFound ? 'cas' : 'add', $marker, $ttl, $place, $there->cas) === 'STORED') {
                return;
            }
        }
        $this->mark('set', $marker, $ttl, null);
    }

    /** Writes a marker with a place or without; the server's word. */
    private function mark(string $command, string $marker, int $ttl, ?Position $place, string $cas = ''): string
    {
        [$flags, $value] = [0, (string) $place];
        if ($value === '' || strlen($value) > self::PLACE_MAX) {
            [$flags, $value] = [2, '1'];
        }
        $length = strlen($value);
        return $this->connection->store(rtrim("$command $marker $flags $ttl $length " . ($command === 'cas' ? $cas : '')), $value);
    }

    /** The place in a marker, if it has one. */
    private static function placeIn(string $value): ?Position
    {
        try {
            return Position::parse($value);
        } catch (\InvalidArgumentException) {
            return null;
        }
    }

    /** @return array{string, 1?: ?Position} the database that a marker names, and with `$exact` the place that it must have reached */
    private function from(string $marker, bool $exact): array
    {
        try {
            $reply = $this->connection->retrieve('get', $marker);
            $place = $exact && $reply->isFound ? self::placeIn($reply->value) : null;
            $source = $reply->isFound && $place === null ? 'master' : 'local';
        } catch (CacheException) {
            [$source, $place] = ['master', null];
        }
        return $exact ? [$source, $place] : [$source];
    }

    private function store(string $command, string $key, int $exptime, string $value, string $number): void
    {
        $length = strlen($value);
        $head = match ($command) {
            'add' => "add $key 0 $exptime $length",
            'cas' => "cas $key 0 $exptime $length $number",
            'lease-set' => "lease-set $key $number 0 $exptime $length",
        };
        try {
            $this->connection->store($head, $value);
            // The server has used the token up, or refused it.
            $this->held = null;
        } catch (CacheException) {
            // The value is there, only not in the cache.
        }
    }

    /** Gives the lease back that is held, so that the next reader gets one at once. */
    private function giveBack(): void
    {
        if ($this->held === null) {
            return;
        }
        [$key, $token] = $this->held;
        $this->held = null;
        try {
            $this->connection->store("lease-set $key $token 0 -1 0", '');
        } catch (CacheException) {
            // It ends by its own time.
        }
    }
}
