//! `lru_crawler`: crawls for dead items, as in memcached, and the start of key dumps.

use options::CRAWLER_SLEEP_MICROS_MAX;
use proto::number;
use proto::reply;
use proto::text::Words;
use store::CrawlError;

use super::dump::{self, Dump, Kind};
use super::{Answer, BAD_FORMAT, Context, ERROR};

/// memcached's answer if a class does not exist.
const BAD_CLASS: Answer = b"BADCLASS invalid class id\r\n";

/// A dump to start, or the answer.
pub(crate) fn command(
    context: &Context<'_>,
    is_datagram: bool,
    mut words: Words<'_>,
) -> Result<Dump, Answer> {
    Err(match (words.next(), words.next(), words.next()) {
        (Some(b"enable"), None, None) => enable_crawls(context, true),
        (Some(b"disable"), None, None) => enable_crawls(context, false),
        (Some(b"sleep"), Some(micros), None) => match number::parse_u32(micros) {
            None => BAD_FORMAT,
            Some(micros @ 0..=CRAWLER_SLEEP_MICROS_MAX) => {
                context.shared.crawler.set_sleep_micros(micros);
                reply::OK
            }
            Some(_) => b"CLIENT_ERROR sleep must be one second or less\r\n",
        },
        (Some(b"tocrawl"), Some(items), None) => match number::parse_u32(items) {
            None => BAD_FORMAT,
            Some(items) => {
                context.shared.crawler.set_to_crawl(items);
                reply::OK
            }
        },
        (Some(b"crawl"), Some(classes), None) => crawl(context, classes),
        (Some(b"metadump"), Some(classes), None) => {
            return dump(context, is_datagram, Kind::Metadump, classes);
        }
        (Some(b"mgdump"), Some(classes), None) => {
            return dump(context, is_datagram, Kind::Mgdump, classes);
        }
        _ => ERROR,
    })
}

fn enable_crawls(context: &Context<'_>, is_enabled: bool) -> Answer {
    context.shared.crawler.enable(is_enabled);
    if !is_enabled {
        context.shared.engine.store().stop_crawl();
    }
    reply::OK
}

fn crawl(context: &Context<'_>, classes: &[u8]) -> Answer {
    let crawler = &context.shared.crawler;
    if !crawler.is_enabled() {
        return b"CLIENT_ERROR lru crawler disabled\r\n";
    }
    let Some(classes) = dump::classes(classes) else { return BAD_CLASS };
    let most = u64::from(crawler.to_crawl());
    match context.shared.engine.store().crawl(&classes, most) {
        Ok(()) => {
            context.shared.count_walk();
            reply::OK
        }
        Err(CrawlError::BadClass) => BAD_CLASS,
        Err(CrawlError::Busy) => b"BUSY currently processing crawler request\r\n",
    }
}

fn dump(
    context: &Context<'_>,
    is_datagram: bool,
    kind: Kind,
    classes: &[u8],
) -> Result<Dump, Answer> {
    if !context.shared.dump_enabled || is_datagram {
        return Err(match kind {
            Kind::Mgdump => b"ERROR key dump not allowed\r\n",
            _ => b"ERROR metadump not allowed\r\n",
        });
    }
    let Some(classes) = dump::classes(classes) else { return Err(BAD_CLASS) };
    context.shared.count_walk();
    Ok(Dump::new(kind, classes))
}
