<?php

declare(strict_types=1);

namespace Holdall;

/** The server does not know the request, or the user has no right to it. */
final class RefusedException extends CacheException
{
}
