//! The answers of a running server, as text: `stats mrc`, and `stats sizes` or `stats slabs`.

use std::collections::BTreeMap;

/// The answer to `stats mrc`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MissRatioCurve {
    /// Bytes of memory and hit ratio, by memory.
    pub(crate) points: Vec<(f64, f64)>,
    /// Bytes of memory with index and bags, and of the items that fit into it, if the server
    /// reports both.
    pub(crate) memory: Option<(f64, f64)>,
    /// The server prefers small items to large ones.
    pub(crate) weighs_size: bool,
}

/// Reads the answer to `stats mrc`.
///
/// The server reports them by bytes of items, and the memory that items of its present size take
/// with index and bags (`mrc:memory_bytes`; without it bytes of items are all).
///
/// # Errors
///
/// If no point has both.
pub(crate) fn miss_ratio_curve(text: &str) -> Result<MissRatioCurve, String> {
    let mut points: BTreeMap<&str, (Option<f64>, Option<f64>)> = BTreeMap::new();
    let (mut memory, mut weighs_size) = (None, false);
    for (name, value) in stats(text) {
        if name == "mrc:memory_bytes" {
            memory = value.parse::<f64>().ok().filter(|bytes| *bytes > 0.0);
        }
        weighs_size |= (name, value) == ("mrc:weighs_size", "yes");
        let Some((size, what)) = name.strip_prefix("mrc:").and_then(|name| name.split_once(':'))
        else {
            continue;
        };
        let Ok(value) = value.parse::<f64>() else { continue };
        let point = points.entry(size).or_default();
        match what {
            "bytes" => point.0 = Some(value),
            "hit_ratio" => point.1 = Some(value),
            _ => {}
        }
    }
    let present = points.get("1x").and_then(|point| point.0).filter(|bytes| *bytes > 0.0);
    let memory = memory.zip(present);
    let scale = memory.map_or(1.0, |(memory, items)| memory / items);
    let mut points: Vec<(f64, f64)> = points
        .into_values()
        .filter_map(|(bytes, ratio)| Some((bytes? * scale, ratio?)))
        .filter(|(bytes, ratio)| *bytes > 0.0 && (0.0..=1.0).contains(ratio))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    if points.is_empty() {
        return Err("no line such as 'STAT mrc:1x:hit_ratio 0.93': the server has not seen \
                    enough gets yet, or this is no answer to `stats mrc`"
            .to_owned());
    }
    Ok(MissRatioCurve { points, memory, weighs_size })
}

/// Bytes of an item with its header, and the number of items with that size: of the present items
/// by `stats sizes`, or of those stored by `stats slabs`.
///
/// # Errors
///
/// If there is neither.
pub(crate) fn item_sizes(text: &str) -> Result<Vec<(f64, f64)>, String> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number > 0.0);
    let mut sizes: Vec<(f64, f64)> =
        stats(text).filter_map(|(size, items)| Some((number(size)?, number(items)?))).collect();
    let mut classes: BTreeMap<&str, (Option<f64>, Option<f64>)> = BTreeMap::new();
    for (name, value) in stats(text) {
        match name.split_once(':') {
            Some((class, "chunk_size")) => classes.entry(class).or_default().0 = number(value),
            Some((class, "cmd_set")) => classes.entry(class).or_default().1 = number(value),
            _ => {}
        }
    }
    sizes.extend(classes.into_values().filter_map(|(bytes, stored)| bytes.zip(stored)));
    if sizes.is_empty() {
        return Err("no line such as 'STAT 96 1024' of `stats sizes`, which memcached has with \
                    -o track_sizes alone, or 'STAT 1:cmd_set 1024' of `stats slabs`"
            .to_owned());
    }
    Ok(sizes)
}

fn stats(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.trim_end().strip_prefix("STAT ")?.split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_sorted_by_memory() {
        let text = "STAT mrc:2x:bytes 200\r\nSTAT mrc:2x:hit_ratio 0.9\r\nSTAT mrc:1x:bytes 100\r\n\
                    STAT mrc:1x:hit_ratio 0.8\r\nSTAT mrc:4x:bytes 400\r\nSTAT mrc:sampled_reads 5\
                    \r\nEND\r\n";
        let curve = MissRatioCurve {
            points: vec![(100.0, 0.8), (200.0, 0.9)],
            memory: None,
            weighs_size: false,
        };
        assert_eq!(miss_ratio_curve(text), Ok(curve));
        let whole =
            text.replace("END", "STAT mrc:memory_bytes 125\r\nSTAT mrc:weighs_size yes\r\nEND");
        let curve = MissRatioCurve {
            points: vec![(125.0, 0.8), (250.0, 0.9)],
            memory: Some((125.0, 100.0)),
            weighs_size: true,
        };
        assert_eq!(miss_ratio_curve(&whole), Ok(curve));
        for bad in
            ["", "END", "STAT mrc:1x:bytes 5", "STAT mrc:1x:hit_ratio 2\nSTAT mrc:1x:bytes 1"]
        {
            assert!(miss_ratio_curve(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn item_sizes_are_parsed_from_server_statistics() {
        assert_eq!(
            item_sizes("STAT 96 10\r\nSTAT 128 5\r\nEND\r\n"),
            Ok(vec![(96.0, 10.0), (128.0, 5.0)])
        );
        assert!(item_sizes("STAT sizes_status disabled\r\nEND\r\n").is_err());
        assert_eq!(
            item_sizes(
                "STAT 1:chunk_size 96\r\nSTAT 1:used_chunks 7\r\nSTAT 1:cmd_set 10\r\n\
                 STAT 2:chunk_size 120\r\nSTAT 2:cmd_set 0\r\nSTAT active_slabs 2\r\nEND\r\n"
            ),
            Ok(vec![(96.0, 10.0)])
        );
    }
}
