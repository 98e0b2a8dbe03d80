<?php

declare(strict_types=1);

namespace Holdall;

/** A connected stream. Each exchange has a deadline, however the bytes of its reply arrive. */
final class Stream
{
    private const LINE_MAX = 4096;
    private const VALUE_MAX = 1 << 30;
    private const CHUNK = 1 << 16;

    /** What has arrived and was not read yet. */
    private string $received = '';
    private bool $hasBegun = false;
    private float $until = 0.0;

    /** @param resource $socket */
    private function __construct(private $socket)
    {
        // Select tells when there is something; PHP's own waits begin anew with each byte.
        stream_set_blocking($socket, false);
        stream_set_read_buffer($socket, 0);
    }

    /**
     * Connects to "host:port", or to the path of a Unix socket.
     *
     * @param float $until the deadline, by `now`
     */
    public static function open(string $address, float $until): self
    {
        $kind = str_starts_with($address, '/') ? 'unix' : 'tcp';
        $left = max($until - self::now(), 0.001);
        $socket = @stream_socket_client("$kind://$address", $code, $words, $left);
        if ($socket === false) {
            throw new CacheException("no connection to $address: $words");
        }
        return new self($socket);
    }

    /** The time in seconds, of a clock that nobody sets. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /** Sends a request, whose reply is to be read until the deadline. */
    public function send(string $request, float $until): void
    {
        [$this->hasBegun, $this->until] = [false, $until];
        for ($sent = 0; $sent < strlen($request); $sent += $count) {
            $chunk = substr($request, $sent, self::CHUNK);
            $count = @fwrite($this->socket, $chunk);
            if ($count === false) {
                throw new ClosedException('the connection is closed');
            }
            if ($count === 0) {
                $this->await(isWrite: true);
            }
        }
    }

    /** The next line of the reply. */
    public function line(): string
    {
        while (($end = strpos($this->received, "\n")) === false) {
            if (strlen($this->received) > self::LINE_MAX) {
                throw new CacheException('a line without an end');
            }
            $this->receive();
        }
        // Each call has a statement of its own: PHP 8.2 frees the result of an inner call twice when
        // a signal's handler throws between the two.
        $line = substr($this->received, 0, $end);
        $this->received = substr($this->received, $end + 1);
        return rtrim($line, "\r");
    }

    /** The value of a length that a line has told. */
    public function block(string $digits): string
    {
        $length = preg_match('/^\d{1,10}$/D', $digits) === 1 ? (int) $digits : PHP_INT_MAX;
        if ($length > self::VALUE_MAX) {
            throw new CacheException("no length: $digits");
        }
        while (strlen($this->received) < $length + 2) {
            $this->receive();
        }
        if (substr($this->received, $length, 2) !== "\r\n") {
            throw new CacheException('a value does not end where its length says');
        }
        $value = substr($this->received, 0, $length);
        $this->received = substr($this->received, $length + 2);
        return $value;
    }

    /** Whether nothing has arrived behind what was read. */
    public function isRead(): bool
    {
        return $this->received === '';
    }

    public function close(): void
    {
        fclose($this->socket);
    }

    private function receive(): void
    {
        $chunk = @fread($this->socket, self::CHUNK);
        if ($chunk !== false && $chunk !== '') {
            $this->received .= $chunk;
            $this->hasBegun = true;
        } elseif (!feof($this->socket)) {
            $this->await(isWrite: false);
        } elseif ($this->hasBegun) {
            throw new CacheException('the connection was closed within a reply');
        } else {
            throw new ClosedException('the connection is closed');
        }
    }

    /** Waits until the socket may be ready. */
    private function await(bool $isWrite): void
    {
        $left = $this->until - self::now();
        if ($left <= 0) {
            throw new CacheException('no reply in time');
        }
        [$read, $write, $none] = $isWrite ? [null, [$this->socket], null] : [[$this->socket], null, null];
        $secs = (int) $left;
        if (@stream_select($read, $write, $none, $secs, (int) (($left - $secs) * 1e6)) === false) {
            // A signal; or the descriptor's number is above those that select knows.
            usleep(200);
        }
    }
}
