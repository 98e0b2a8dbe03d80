<?php

// Connections that break or get out of step, at servers that this file plays itself.

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    require __DIR__ . '/../src/' . basename(str_replace('\\', '/', $class)) . '.php';
});

use Holdall\CacheException;
use Holdall\Client;

const STOPPED = 'stopped by the handler';

/** Runs a server in a process of its own, and a client's calls against it; what they give. */
function against(callable $server, callable $calls, float $timeout = 20.0): mixed
{
    $listener = stream_socket_server('tcp://127.0.0.1:0');
    $child = pcntl_fork();
    if ($child === 0) {
        $server(static fn () => stream_socket_accept($listener, 20));
        sleep(20);
        posix_kill(getmypid(), SIGKILL);
    }
    try {
        return $calls(new Client(stream_socket_get_name($listener, false), $timeout));
    } finally {
        posix_kill($child, SIGKILL);
        pcntl_waitpid($child, $status);
    }
}

/** A server that answers each request with the next of these replies, on one connection. */
function answers(string ...$replies): callable
{
    return static function (callable $accept) use ($replies): void {
        $stream = $accept();
        foreach ($replies as $reply) {
            fgets($stream);
            fwrite($stream, $reply);
        }
        // The connection stays.
        $accept();
    };
}

function same(string $what, mixed $got, mixed $want): void
{
    if ($got !== $want) {
        fwrite(STDERR, "$what: got " . var_export($got, true) . ', want ' . var_export($want, true) . "\n");
        exit(1);
    }
}

/** What a call throws of this class, or gives. */
function outcome(string $class, callable $call): mixed
{
    try {
        return $call();
    } catch (\Exception $error) {
        return $error instanceof $class ? $class : throw $error;
    }
}

$parent = getmypid();
pcntl_async_signals(true);

$halves = static function (callable $accept) use ($parent): void {
    $first = $accept();
    fgets($first);
    fwrite($first, "VALUE one 0 5\r\nva");
    posix_kill($parent, SIGUSR1);
    // An exchange that was given up is on a stream that is closed.
    $second = $accept();
    fwrite($first, "lue\r\nEND\r\n");
    fgets($second);
    fwrite($second, "VALUE two 0 3\r\n2nd\r\nEND\r\n");
};
pcntl_signal(SIGUSR1, static fn () => throw new RuntimeException(STOPPED));
$got = against($halves, static function (Client $cache): array {
    $one = outcome(RuntimeException::class, static fn () => $cache->getOrLoad('one', static fn () => 'loaded'));
    return [$one, $cache->getOrLoad('two', static fn () => 'loaded')];
});
same('behind a handler that throws within a reply', $got, [RuntimeException::class, '2nd']);

$nested = static function (callable $accept) use ($parent): void {
    $first = $accept();
    fgets($first);
    fwrite($first, "VALUE one 0 5\r\nva");
    posix_kill($parent, SIGUSR1);
    $second = $accept();
    fgets($second);
    fwrite($second, "DELETED\r\n");
    fwrite($first, "lue\r\nEND\r\n");
};
$got = against($nested, static function (Client $cache): array {
    $deleted = null;
    pcntl_signal(SIGUSR1, static function () use ($cache, &$deleted): void {
        $deleted = $cache->delete('two');
    });
    $one = $cache->getOrLoad('one', static fn () => 'loaded');
    return [$one, $deleted];
});
same('a handler that asks within a reply', $got, ['value', true]);

$loads = static fn (float $early = 0.0): callable => static fn (Client $cache): string
    => $cache->getOrLoad('one', static fn () => 'loaded', earlyRefresh: $early);

$other = "VALUE other 0 5\r\nwrong\r\nEND\r\n";
same('a value of another key', against(answers($other), $loads()), 'loaded');
$other = "LVALUE other 77 0 0\r\n\r\nEND\r\n";
same('a lease of another key', against(answers($other), $loads()), 'loaded');
same('mg: another key', against(answers("VA 5 kother f0 c9\r\nwrong\r\n"), $loads(1.0)), 'loaded');
same('mg: no key', against(answers("VA 5 f0 c9\r\nwrong\r\n"), $loads(1.0)), 'loaded');
same('mg: the key', against(answers("VA 5 kone f0 c9\r\nright\r\n"), $loads(1.0)), 'right');

$got = against(answers("VALUE one 0 5\r\nright\r\nCLIENT_ERROR late\r\n"), $loads());
same('an error in place of the end', $got, 'loaded');

$delete = static fn (Client $cache): mixed => outcome(CacheException::class, static fn () => $cache->delete('one'));
same('a reply to another command', against(answers("STORED\r\n"), $delete), CacheException::class);

$twice = static fn (Client $cache): array => [$delete($cache), $delete($cache)];
$got = against(answers("SERVER_ERROR busy\r\n", "DELETED\r\n"), $twice);
same('a connection goes on behind SERVER_ERROR', $got, [CacheException::class, true]);

$closing = static fn (string $last): callable => static function (callable $accept) use ($last): void {
    $stream = $accept();
    fgets($stream);
    fwrite($stream, "DELETED\r\n");
    fgets($stream);
    fwrite($stream, $last);
    fclose($stream);
    answers("DELETED\r\n")($accept);
};
same('an idle connection that was closed', against($closing(''), $twice), [true, true]);
$got = against($closing('DELE'), $twice);
same('a connection that was closed within a reply', $got, [true, CacheException::class]);

$drips = static function (callable $accept): void {
    $stream = $accept();
    foreach (str_split("VALUE one 0 5\r\nwrong\r\nEND\r\n") as $byte) {
        fwrite($stream, $byte);
        usleep(100_000);
    }
};
same('a reply that drips', against($drips, $loads(), 0.5), 'loaded');

$forked = static function (Client $cache) use ($delete): mixed {
    $cache->delete('one');
    [$mine, $childs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    if (pcntl_fork() === 0) {
        fwrite($childs, json_encode($delete($cache)));
        posix_kill(getmypid(), SIGKILL);
    }
    fclose($childs);
    return json_decode(stream_get_contents($mine));
};
$two = static function (callable $accept): void {
    $first = $accept();
    fgets($first);
    fwrite($first, "DELETED\r\n");
    answers("DELETED\r\n")($accept);
};
same('a forked process', against($two, $forked, 2.0), true);
