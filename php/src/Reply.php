<?php

declare(strict_types=1);

namespace Holdall;

/** What a server says about a key. */
final class Reply
{
    /** A token of a lease that is given to this reader is longer than this one, which says: wait. */
    private const WAIT = '1';

    public function __construct(
        public readonly string $value = '',
        /** A value is there. */
        public readonly bool $isFound = false,
        /** A value was deleted a short time ago. */
        public readonly bool $isStale = false,
        /** The value is there, and this reader is to load it anew. */
        public readonly bool $isWon = false,
        public readonly string $token = '0',
        public readonly string $cas = '0',
    ) {
    }

    public function hasLease(): bool
    {
        return !$this->isFound && $this->token !== '0' && $this->token !== self::WAIT;
    }
}
