<?php

declare(strict_types=1);

namespace Holdall;

/** The connection was closed before a reply began. */
final class ClosedException extends CacheException
{
}
