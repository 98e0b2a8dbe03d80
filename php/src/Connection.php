<?php

declare(strict_types=1);

namespace Holdall;

/** A connection to a router or a server, made when it is needed. */
final class Connection
{
    /**
     * The stream between two exchanges. An exchange takes it away, and brings it back when it has
     * read its whole reply. So nobody finds one that is out of step: not after an exception in the
     * middle, and not in the handler of a signal that came there.
     */
    private ?Stream $idle = null;
    private int $process = 0;

    /** @param float $timeout for each request with its reply, in seconds */
    public function __construct(private readonly string $address, private readonly float $timeout)
    {
    }

    /** Deletes a key, and tells whether it was there. */
    public function delete(string $key): bool
    {
        return $this->word("delete $key\r\n", ['DELETED', 'NOT_FOUND'], false) === 'DELETED';
    }

    /** Sends a storage command; the server's word. */
    public function store(string $head, string $value): string
    {
        return $this->word("$head\r\n$value\r\n", ['STORED', 'NOT_STORED', 'EXISTS', 'NOT_FOUND'], true);
    }

    /** Sends get, gets or lease-get of one key. */
    public function retrieve(string $command, string $key): Reply
    {
        return $this->ask("$command $key\r\n", static function (Stream $stream, string $line) use ($key): Reply {
            if ($line === 'END') {
                return new Reply();
            }
            $words = explode(' ', $line);
            $isFound = $words[0] === 'VALUE' && in_array(count($words), [4, 5], true);
            $isLease = $words[0] === 'LVALUE' && count($words) === 5;
            if (!$isFound && !$isLease || $words[1] !== $key) {
                throw self::unexpected($line);
            }
            $value = $stream->block($words[$isFound ? 3 : 4]);
            $end = $stream->line();
            if ($end !== 'END') {
                throw self::unexpected($end);
            }
            $isStale = !$isFound && $value !== '';
            [$token, $cas] = $isFound ? ['0', $words[4] ?? '0'] : [$words[2], '0'];
            return new Reply($value, $isFound, $isStale, token: $token, cas: $cas);
        });
    }

    /** Asks for a value, or for a lease also some seconds before the value ends. */
    public function retrieveEarly(string $key, int $secs): Reply
    {
        return $this->ask("mg $key k v c G R$secs\r\n", static function (Stream $stream, string $line) use ($key): Reply {
            $words = explode(' ', $line);
            $facts = [];
            foreach ($words as $word) {
                $facts[$word[0] ?? ''] = substr($word, 1);
            }
            if ($words[0] !== 'VA' || ($facts['k'] ?? '') !== $key) {
                throw self::unexpected($line);
            }
            $value = $stream->block($words[1]);
            $cas = $facts['c'] ?? '0';
            $isFound = !isset($facts['G']) && $cas !== '0';
            return new Reply($value, $isFound, isset($facts['X']), isset($facts['W']), $facts['G'] ?? '1', $cas);
        });
    }

    public function close(): void
    {
        $this->take()?->close();
    }

    private static function unexpected(string $line): CacheException
    {
        return new CacheException("an unexpected reply: $line");
    }

    /** The idle stream, if there is one. */
    private function take(): ?Stream
    {
        [$stream, $this->idle] = [$this->idle, null];
        // The stream of a process that has forked this one stays with that.
        return $this->process === getmypid() ? $stream : null;
    }

    /** @param list<string> $words the replies that the request may have */
    private function word(string $request, array $words, bool $hasBlock): string
    {
        return $this->ask($request, static function (Stream $stream, string $line) use ($words): string {
            return in_array($line, $words, true) ? $line : throw self::unexpected($line);
        }, $hasBlock);
    }

    /**
     * @template T
     * @param callable(Stream, string): T $read reads what follows the first line
     * @return T
     */
    private function ask(string $request, callable $read, bool $hasBlock = false): mixed
    {
        $until = Stream::now() + $this->timeout;
        $stream = $this->take();
        if ($stream !== null) {
            try {
                return $this->exchange($stream, $until, $request, $read, $hasBlock);
            } catch (ClosedException) {
                // The server has closed it while nobody used it, so it has not seen the request.
            }
        }
        return $this->exchange(Stream::open($this->address, $until), $until, $request, $read, $hasBlock);
    }

    /** @see ask */
    private function exchange(Stream $stream, float $until, string $request, callable $read, bool $hasBlock): mixed
    {
        $isInStep = false;
        try {
            $stream->send($request, $until);
            $line = $stream->line();
            if ($line === 'ERROR' || str_starts_with($line, 'CLIENT_ERROR')) {
                // A server that refuses a storage command may take its block for commands.
                $isInStep = !$hasBlock && $stream->isRead();
                throw new RefusedException($line);
            }
            if (str_starts_with($line, 'SERVER_ERROR')) {
                $isInStep = $stream->isRead();
                throw new CacheException($line);
            }
            $reply = $read($stream, $line);
            $isInStep = $stream->isRead();
            return $reply;
        } finally {
            if ($isInStep) {
                [$this->idle, $this->process] = [$stream, getmypid()];
            } else {
                $stream->close();
            }
        }
    }
}
