<?php

declare(strict_types=1);

namespace Holdall;

/** The cache gave no answer, or none that is understood. */
class CacheException extends \RuntimeException
{
}
