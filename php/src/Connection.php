<?php

declare(strict_types=1);

namespace Holdall;

/** A connection to a router or a server, made when it is needed. */
final class Connection
{
    private const LINE_MAX = 4096;

    /** @var resource|null */
    private $stream = null;

    public function __construct(private readonly string $address, private readonly float $timeout)
    {
    }

    /** Sends a request whose reply is one line, and returns that. */
    public function simple(string $request): string
    {
        return $this->ask($request, fn (): string => $this->line());
    }

    /** Sends a storage command. A server that refuses it may take its block for commands, so the connection is closed then. */
    public function store(string $head, string $value): string
    {
        try {
            return $this->simple("$head\r\n$value\r\n");
        } catch (RefusedException $error) {
            $this->close();
            throw $error;
        }
    }

    /** Sends get, gets or lease-get of one key. */
    public function retrieve(string $request): Reply
    {
        return $this->ask($request, function (): Reply {
            $line = $this->line();
            if ($line === 'END') {
                return new Reply();
            }
            $words = explode(' ', $line);
            $isFound = $words[0] === 'VALUE' && in_array(count($words), [4, 5], true);
            if (!$isFound && ($words[0] !== 'LVALUE' || count($words) !== 5)) {
                throw new CacheException("an unexpected reply: $line");
            }
            $value = $this->block($words[$isFound ? 3 : 4]);
            $end = $this->line();
            if ($end !== 'END') {
                throw new CacheException("an unexpected reply: $end");
            }
            $isStale = !$isFound && $value !== '';
            [$token, $cas] = $isFound ? ['0', $words[4] ?? '0'] : [$words[2], '0'];
            return new Reply($value, $isFound, $isStale, token: $token, cas: $cas);
        });
    }

    /** Sends mg with the flags v, c, G and R. */
    public function meta(string $request): Reply
    {
        return $this->ask($request, function (): Reply {
            $line = $this->line();
            $words = explode(' ', $line);
            if ($words[0] !== 'VA' || count($words) < 2) {
                throw new CacheException("an unexpected reply: $line");
            }
            $value = $this->block($words[1]);
            $facts = [];
            foreach (array_slice($words, 2) as $word) {
                $facts[$word[0] ?? ''] = substr($word, 1);
            }
            $cas = $facts['c'] ?? '0';
            $isFound = !isset($facts['G']) && $cas !== '0';
            return new Reply($value, $isFound, isset($facts['X']), isset($facts['W']), $facts['G'] ?? '1', $cas);
        });
    }

    public function close(): void
    {
        if ($this->stream !== null) {
            fclose($this->stream);
            $this->stream = null;
        }
    }

    /**
     * @template T
     * @param callable(): T $read
     * @return T
     */
    private function ask(string $request, callable $read): mixed
    {
        $isOld = $this->stream !== null;
        try {
            $this->write($request);
            return $read();
        } catch (ClosedException $error) {
            $this->close();
            if (!$isOld) {
                throw $error;
            }
            // The server has closed it while nobody used it, so it has not seen the request.
            return $this->ask($request, $read);
        } catch (RefusedException $error) {
            throw $error;
        } catch (CacheException $error) {
            // Nobody knows where the next reply begins.
            $this->close();
            throw $error;
        }
    }

    private function write(string $request): void
    {
        if ($this->stream === null) {
            $kind = str_starts_with($this->address, '/') ? 'unix' : 'tcp';
            $stream = @stream_socket_client("$kind://{$this->address}", $code, $words, $this->timeout);
            if ($stream === false) {
                throw new CacheException("no connection to {$this->address}: $words");
            }
            $seconds = (int) $this->timeout;
            stream_set_timeout($stream, $seconds, (int) (($this->timeout - $seconds) * 1e6));
            $this->stream = $stream;
        }
        for ($sent = 0; $sent < strlen($request); $sent += $count) {
            $count = @fwrite($this->stream, $sent === 0 ? $request : substr($request, $sent));
            if ($count === false || $count === 0) {
                throw new ClosedException('the connection is closed');
            }
        }
    }

    /** The next line; a server's error is thrown. */
    private function line(): string
    {
        $line = fgets($this->stream, self::LINE_MAX);
        if ($line === false || !str_ends_with($line, "\n")) {
            $isLate = stream_get_meta_data($this->stream)['timed_out'];
            $isClosed = $line === false && !$isLate;
            throw $isClosed ? new ClosedException('the connection is closed') : new CacheException('no reply');
        }
        $line = rtrim($line, "\r\n");
        if ($line === 'ERROR' || str_starts_with($line, 'CLIENT_ERROR')) {
            throw new RefusedException($line);
        }
        if (str_starts_with($line, 'SERVER_ERROR')) {
            throw new CacheException($line);
        }
        return $line;
    }

    /** The value of a length that a line has told. */
    private function block(string $length): string
    {
        if (!ctype_digit($length)) {
            throw new CacheException("no length: $length");
        }
        $value = stream_get_contents($this->stream, (int) $length + 2);
        if ($value === false || strlen($value) !== (int) $length + 2 || !str_ends_with($value, "\r\n")) {
            throw new CacheException('a value does not end where its length says');
        }
        return substr($value, 0, -2);
    }
}
