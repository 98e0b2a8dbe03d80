<?php

// Runs the file of scenarios that HOLDALL_SCENARIOS names, at each of HOLDALL_TARGETS, "name=host:port" separated by blanks. A process of
// PHP has one caller, so several callers are processes, and scenarios of one process with several callers are not for PHP.

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    require __DIR__ . '/../src/' . basename(str_replace('\\', '/', $class)) . '.php';
});

final class Run
{
    /** @var array<string, string> */
    private array $words;
    private Holdall\Client $client;

    public function __construct(private string $name, private string $target, private string $address, int $number)
    {
        $this->words = ['{k}' => "php:$target:$number"];
        $this->client = new Holdall\Client($address, 60.0);
    }

    private function same(mixed $got, mixed $want, string $what): void
    {
        if ($got !== $want) {
            $words = var_export($got, true) . ', want ' . var_export($want, true);
            fwrite(STDERR, "{$this->name} at {$this->target}: $what: got $words\n");
            exit(1);
        }
    }

    private function fill(string $text): string
    {
        return strtr($text, $this->words);
    }

    /** @param list<array<string, mixed>> $steps */
    public function steps(array $steps): void
    {
        foreach ($steps as $step) {
            if (isset($step['wire'])) {
                $this->wire($step);
            } elseif (isset($step['read'])) {
                $this->read($step);
            } elseif (isset($step['delete'])) {
                $this->client->delete($this->fill($step['delete']));
            } elseif (isset($step['write'])) {
                $this->write($step['write'], $step['error'] ?? null);
                echo "result: {$this->name} at {$this->target}: written\n";
            } elseif (isset($step['position'])) {
                $this->position($step);
            } else {
                for ($n = 0; $n < $step['repeat']; $n++) {
                    $this->words['{n}'] = (string) $n;
                    $this->steps($step['steps']);
                }
            }
        }
    }

    /** A write under a marker; with places by a process for each, none of which ends before all of them have begun. */
    private function write(array $write, ?string $error): void
    {
        $want = $write['marked'] ?? true;
        $want = $error === null ? ['result' => 'done', 'marked' => $want, 'deleted' => $want] : $error;
        $key = $this->fill($write['key']);
        if (!isset($write['at'])) {
            $written = $this->client->writeMarked($key, fn () => 'done', $write['markers'], $write['ttl']);
            $this->same($written, $want, 'a marked write');
            return;
        }
        $pipes = [];
        foreach ($write['at'] as $at) {
            [$mine, $childs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            if (pcntl_fork() === 0) {
                $call = function () use ($write, $at, $childs): array {
                    fwrite($childs, '.');
                    fread($childs, 1);
                    $this->steps($write['during'] ?? []);
                    if (isset($write['fails'])) {
                        throw new RuntimeException($write['fails']);
                    }
                    return ['done', Holdall\Position::parse($at)];
                };
                $client = new Holdall\Client($this->address, 60.0);
                try {
                    $written = $client->writeMarkedAt($key, $call, $write['markers'], $write['ttl']);
                } catch (RuntimeException $error) {
                    $written = $error->getMessage();
                }
                fwrite($childs, json_encode($written));
                posix_kill(getmypid(), SIGKILL);
            }
            fclose($childs);
            $pipes[] = $mine;
        }
        array_map(fn ($pipe) => $this->same(fread($pipe, 1), '.', 'a writer begins'), $pipes);
        array_map(fn ($pipe) => fwrite($pipe, '.'), $pipes);
        foreach ($pipes as $pipe) {
            $this->same(json_decode(stream_get_contents($pipe), true), $want, 'a marked write');
        }
        while (pcntl_wait($status) > 0);
    }

    private function position(array $step): void
    {
        try {
            $place = Holdall\Position::parse($step['position']);
            $got = [(string) $place, $place->reachedQuery()];
        } catch (InvalidArgumentException) {
            $got = [null, null];
        }
        $this->same($got, [$step['text'] ?? null, $step['query'] ?? null], $step['position']);
        echo "result: {$this->name} at {$this->target}: ", $got[0] ?? 'none', "\n";
    }

    /** The reply's {token} is any number above 1. */
    private function wire(array $step): void
    {
        for ($left = 4000;; $left--) {
            $stream = stream_socket_client("tcp://{$this->address}");
            stream_set_timeout($stream, 20);
            fwrite($stream, $this->fill($step['wire']));
            for ($got = '', $lines = substr_count($step['reply'], "\n"); $lines > 0; $lines--) {
                $got .= fgets($stream);
            }
            fclose($stream);
            $parts = array_map($this->fill(...), explode('{token}', $step['reply']));
            if (count($parts) === 1 && $got === $parts[0]) {
                return;
            }
            $token = count($parts) === 1 ? '' : substr($got, strlen($parts[0]), strlen($got) - strlen(implode('', $parts)));
            if (ctype_digit($token) && (int) $token > 1 && $got === implode($token, $parts)) {
                $this->words['{token}'] = $token;
                return;
            }
            if (!isset($step['until']) || $left === 0) {
                $this->same($got, $step['reply'], $step['wire']);
            }
            usleep(5000);
        }
    }

    /** One call: what came of it, the number of loads, and the database that was asked. */
    private function call(array $read, Holdall\Client $client): array
    {
        $loads = 0;
        $from = null;
        $load = function (?string $source, ?Holdall\Position $place = null) use ($read, &$loads, &$from): string {
            $loads++;
            $from = $place === null ? $source : "$source $place";
            $this->steps($read['during'] ?? []);
            usleep(($read['takes_ms'] ?? 0) * 1000);
            if (isset($read['fails']) || isset($read['cancelled'])) {
                throw new RuntimeException($read['fails'] ?? 'cancelled');
            }
            return $read['returns'];
        };
        $options = [
            'exptime' => $read['exptime'] ?? 0,
            'takesStale' => $read['takes_stale'] ?? true,
            'waitTotal' => ($read['wait_total_ms'] ?? 15000) / 1000,
            'earlyRefresh' => (float) ($read['early_refresh'] ?? 0),
            'markers' => $read['markers'] ?? null,
            'exact' => $read['exact'] ?? false,
        ];
        try {
            $got = 'value ' . $client->getOrLoad($this->fill($read['key']), $load, ...$options);
        } catch (RuntimeException $error) {
            $got = 'error ' . $error->getMessage();
        }
        return [$got, $loads, $from];
    }

    /** Calls in processes of their own; the outcome of each. */
    private function together(array $read, int $callers): array
    {
        $pipes = [];
        for ($n = 0; $n < $callers; $n++) {
            [$mine, $childs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            if (pcntl_fork() === 0) {
                fwrite($childs, json_encode($this->call($read, new Holdall\Client($this->address, 60.0))));
                posix_kill(getmypid(), SIGKILL);
            }
            fclose($childs);
            $pipes[] = $mine;
        }
        $outcomes = array_map(fn ($pipe) => json_decode(stream_get_contents($pipe)), $pipes);
        while (pcntl_wait($status) > 0);
        return $outcomes;
    }

    private function read(array $step): void
    {
        $read = $step['read'];
        $other = null;
        if (isset($read['then'])) {
            $other = pcntl_fork();
            if ($other === 0) {
                usleep($read['after_ms'] * 1000);
                $this->steps($read['then']);
                posix_kill(getmypid(), SIGKILL);
            }
        }
        $callers = $read['callers'] ?? 1;
        $outcomes = $callers === 1 ? [$this->call($read, $this->client)] : $this->together($read, $callers);
        if ($other !== null) {
            pcntl_waitpid($other, $status);
            $this->same(pcntl_wifsignaled($status), true, 'the other process');
        }
        $want = isset($step['error']) ? "error {$step['error']}" : "value {$step['value']}";
        foreach ($outcomes as [$got]) {
            $this->same($got, $want, 'a read');
        }
        $loads = array_sum(array_column($outcomes, 1));
        $this->same($loads, $step['loads'], 'loads');
        $this->same($outcomes[0][2], $step['source'] ?? null, 'source');
        echo "result: {$this->name} at {$this->target}: $loads loads\n";
    }
}

$lines = file((string) getenv('HOLDALL_SCENARIOS'), FILE_IGNORE_NEW_LINES);
foreach (explode(' ', (string) getenv('HOLDALL_TARGETS')) as $target) {
    [$name, $address] = explode('=', $target);
    foreach ($lines as $number => $line) {
        $scenario = json_decode($line, true, flags: JSON_THROW_ON_ERROR);
        if (in_array($name, $scenario['on'], true) && !isset($scenario['in_one_process'])) {
            (new Run($scenario['name'], $name, $address, $number))->steps($scenario['steps']);
        }
    }
}
