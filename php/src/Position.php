<?php

declare(strict_types=1);

namespace Holdall;

/** A place in a database's log, behind a write: a replica that has reached it shows the write. */
final class Position
{
    private const U32_MAX = '4294967295';
    private const U64_MAX = '18446744073709551615';

    /** @param array<mixed> $place halves of an LSN; server and number by domain; or sets of MySQL, ordered */
    private function __construct(private readonly string $kind, private readonly array $place)
    {
    }

    /**
     * Reads "mariadb-gtid:0-1-4711", "mysql-gtid:UUID:23" or "lsn:0/16B3748". The queries that give these texts to a writer are in
     * docs/client.md.
     */
    public static function parse(string $text): self
    {
        [$kind, $place] = explode(':', $text, 2) + ['', ''];
        $parsed = match ($kind) {
            'lsn' => self::lsn($place),
            'mariadb-gtid' => self::domains($place),
            'mysql-gtid' => self::sets($place),
            default => null,
        };
        if ($parsed === null) {
            $start = substr($text, 0, 100);
            throw new \InvalidArgumentException("\"$start\" is none of mariadb-gtid:0-1-2, mysql-gtid:UUID:3, lsn:0/16B3748");
        }
        return new self($kind, $parsed);
    }

    /** The text that `parse` reads. */
    public function __toString(): string
    {
        return "{$this->kind}:{$this->inDatabase()}";
    }

    /** The place as the database itself writes it. It has letters, digits, and "-:,/_" only. */
    public function inDatabase(): string
    {
        if ($this->kind === 'lsn') {
            return sprintf('%X/%X', ...$this->place);
        }
        $parts = $this->place;
        if ($this->kind === 'mariadb-gtid') {
            $gtid = static fn (int $domain, array $last): string => "$domain-{$last[0]}-{$last[1]}";
            $parts = array_map($gtid, array_keys($parts), $parts);
        }
        return implode(',', $parts);
    }

    /** The query that asks a replica whether it has reached the place: one row with one column, true or 1 if it has. It does not wait. */
    public function reachedQuery(): string
    {
        $place = $this->inDatabase();
        return match ($this->kind) {
            'lsn' => "SELECT coalesce(pg_last_wal_replay_lsn() >= '$place', false)",
            'mariadb-gtid' => "SELECT MASTER_GTID_WAIT('$place', 0) = 0",
            'mysql-gtid' => "SELECT GTID_SUBSET('$place', @@global.gtid_executed)",
        };
    }

    /** The place behind both; null for places of two kinds of databases. */
    public function behindBoth(self $other): ?self
    {
        if ($this->kind !== $other->kind) {
            return null;
        }
        if ($this->kind === 'lsn') {
            return new self('lsn', max($this->place, $other->place));
        }
        if ($this->kind === 'mysql-gtid') {
            return new self('mysql-gtid', self::ordered([...$this->place, ...$other->place]));
        }
        $both = $this->place;
        foreach ($other->place as $domain => $last) {
            if (self::isGreater($last[1], $both[$domain][1] ?? '')) {
                $both[$domain] = $last;
            }
        }
        ksort($both);
        return new self('mariadb-gtid', $both);
    }

    /** @return array{int, int}|null */
    private static function lsn(string $place): ?array
    {
        $isPlace = preg_match('~^([[:xdigit:]]{1,8})/([[:xdigit:]]{1,8})$~D', $place, $halves) === 1;
        return $isPlace ? [(int) hexdec($halves[1]), (int) hexdec($halves[2])] : null;
    }

    /** @return array<int, array{string, string}>|null */
    private static function domains(string $place): ?array
    {
        $domains = [];
        foreach (explode(',', $place) as $part) {
            if (preg_match('/^(\d+)-(\d+)-(\d+)$/D', trim($part), $words) !== 1) {
                return null;
            }
            [$domain, $server, $number] = array_map(static fn ($word) => ltrim($word, '0') ?: '0', array_slice($words, 1));
            if (self::isGreater($domain, self::U32_MAX) || self::isGreater($server, self::U32_MAX) || self::isGreater($number, self::U64_MAX)) {
                return null;
            }
            $domains[(int) $domain] = [$server, $number];
        }
        ksort($domains);
        return $domains;
    }

    /** @return list<string>|null */
    private static function sets(string $place): ?array
    {
        $sets = array_map('trim', explode(',', $place));
        $isSet = static fn (string $set): bool => preg_match('/^[[:xdigit:]-]{36}:[[:alnum:]:_-]+$/D', $set) === 1;
        return array_filter($sets, $isSet) === $sets ? self::ordered($sets) : null;
    }

    /**
     * @param list<string> $sets
     * @return list<string>
     */
    private static function ordered(array $sets): array
    {
        $sets = array_values(array_unique($sets, SORT_STRING));
        sort($sets, SORT_STRING);
        return $sets;
    }

    /** Numbers of up to 64 bits, which an int does not hold. */
    private static function isGreater(string $one, string $other): bool
    {
        return [strlen($one), strcmp($one, $other)] > [strlen($other), 0];
    }
}
