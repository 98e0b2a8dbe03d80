//! Lists of CPUs in the kernel's format, and the places of a host's CPUs.

use crate::host::Host;

const CPUS: &str = "/sys/devices/system/cpu";

/// One logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub number: u32,
    /// The socket.
    pub package: u32,
    /// The core within the socket.
    pub core: u32,
}

/// The CPUs of a list such as `0-3,8`; none for an invalid text.
pub(crate) fn list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>())
        else {
            return Vec::new();
        };
        // Linux has room for 8192 CPUs.
        cpus.extend(first..=last.min(8191));
    }
    cpus
}

/// A mask in the format of `rps_cpus`: groups of 32 bits in hexadecimal, highest first.
pub(crate) fn mask(cpus: &[u32]) -> String {
    let groups = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let words: Vec<String> = (0..groups)
        .rev()
        .map(|group| {
            let bits = cpus.iter().filter(|cpu| **cpu / 32 == group);
            let word = bits.fold(0_u32, |word, cpu| word | 1 << (cpu % 32));
            if group + 1 == groups { format!("{word:x}") } else { format!("{word:08x}") }
        })
        .collect();
    words.join(",")
}

/// The CPUs that are online.
pub(crate) fn online(host: &Host) -> Vec<Cpu> {
    let numbers = host.text(&format!("{CPUS}/online")).map_or_else(Vec::new, |text| list(&text));
    let of = |number: u32, name: &str| {
        let file = format!("{CPUS}/cpu{number}/topology/{name}");
        host.number(&file).and_then(|value| u32::try_from(value).ok())
    };
    numbers
        .into_iter()
        .map(|number| Cpu {
            number,
            package: of(number, "physical_package_id").unwrap_or(0),
            // Without this information, each CPU is a core.
            core: of(number, "core_id").unwrap_or(number),
        })
        .collect()
}

/// Physical cores: CPUs that are not siblings of an earlier one.
pub(crate) fn cores(cpus: &[Cpu]) -> usize {
    let mut cores: Vec<(u32, u32)> = cpus.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_masks_written() {
        assert_eq!(list("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(list("5\n"), [5]);
        for bad in ["", "a", "1-", "-", "1,x"] {
            assert_eq!(list(bad), Vec::<u32>::new(), "{bad}");
        }
        assert_eq!(mask(&[0, 1, 2, 3]), "f");
        assert_eq!(mask(&[0, 33]), "2,00000001");
        assert_eq!(mask(&[]), "0");
    }

    #[test]
    fn siblings_are_one_core() {
        let cpu = |number, package, core| Cpu { number, package, core };
        assert_eq!(cores(&[cpu(0, 0, 0), cpu(1, 0, 1), cpu(2, 0, 0), cpu(3, 1, 0)]), 3);
    }
}
