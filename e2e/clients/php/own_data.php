<?php
// Readers get only their own data, whatever the server refuses: PHP's memcached (libmemcached),
// which may give up a server for seconds after a refusal. A reader retries until it has a value.
[$host, $port] = explode(':', $argv[1]);
$users = ['alice', 'bob', 'carol', 'dave'];
$checks = 0;

function own($got, string $name, string $what): void {
    global $checks;
    $checks++;
    if ($got !== false && $got !== null && $got !== "data-$name") {
        fwrite(STDERR, "$what: asked for $name, got " . substr(var_export($got, true), 0, 80) . "\n");
        exit(1);
    }
}

function read_all(Memcached $client, string $what): void {
    global $users;
    foreach ($users as $name) {
        $end = microtime(true) + 20;
        while (($got = $client->get("user:$name")) === false) {
            if (microtime(true) > $end) {
                fwrite(STDERR, "$what: $name reads nothing: {$client->getResultMessage()}\n");
                exit(1);
            }
            usleep(100000);
        }
        own($got, $name, $what);
    }
}

foreach ([false, true] as $binary) {
    $kind = $binary ? 'binary' : 'text';
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $client->setOption(Memcached::OPT_COMPRESSION, false);
    $client->addServer($host, (int) $port);
    foreach ($users as $name) {
        if (!$client->set("user:$name", "data-$name")) {
            fwrite(STDERR, "$kind: user:$name could not be stored\n");
            exit(1);
        }
    }
    $client->get('large');
    read_all($client, "$kind after a large value");
    $many = $client->getMulti(['user:alice', 'large', 'user:bob']) ?: [];
    own($many['user:alice'] ?? null, 'alice', "$kind many keys");
    own($many['user:bob'] ?? null, 'bob', "$kind many keys");
    read_all($client, "$kind after many keys with a refused one");
    $client->set('user:photo', str_repeat('x', 2 << 20));
    read_all($client, "$kind after a value that is too large");
    $client->increment('user:alice');
    read_all($client, "$kind after a count of what is no number");
}
echo "php: $checks checks passed\n";
