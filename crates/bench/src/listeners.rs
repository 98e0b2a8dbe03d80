//! Finds the processes on this machine that serve the measured addresses, to watch their threads.
//!
//! A listening socket has an inode (`/proc/net/tcp`, `/proc/net/unix`, proc(5)); a process that has
//! it open lists it among its descriptors. Only root can inspect processes of other users:
//! otherwise nothing is found, and nothing is reported.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use generator::spec::Target;

/// The processes that listen at `targets`, each once.
#[must_use]
pub fn pids_of(targets: &[Target]) -> Vec<u32> {
    let inodes: Vec<u64> = targets.iter().flat_map(inodes_of).collect();
    if inodes.is_empty() {
        return Vec::new();
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut pids: Vec<u32> = numbered("/proc").filter(|pid| holds(*pid, &wanted)).collect();
    pids.sort_unstable();
    pids.retain(|pid| *pid != std::process::id());
    pids
}

fn inodes_of(target: &Target) -> Vec<u64> {
    let read = |name: &str| fs::read_to_string(name).unwrap_or_default();
    match target.address() {
        Some(address) if is_here(address.ip()) => {
            let (files, state) = if target.is_udp() {
                (["/proc/net/udp", "/proc/net/udp6"], "07")
            } else {
                (["/proc/net/tcp", "/proc/net/tcp6"], "0A")
            };
            let inodes = |file| inet_inodes(&read(file), address.port(), state);
            files.into_iter().flat_map(inodes).collect()
        }
        Some(_) => Vec::new(),
        None => {
            target.path().map_or_else(Vec::new, |path| unix_inodes(&read("/proc/net/unix"), path))
        }
    }
}

/// True if an address is one of this machine's: a socket can be bound to it.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// Inodes of sockets that listen on a port, in the text of `/proc/net/tcp` (state `0A`) or
/// `/proc/net/udp` (`07`).
fn inet_inodes(table: &str, port: u16, state: &str) -> Vec<u64> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_it = *fields.get(3)? == state && u16::from_str_radix(local, 16) == Ok(port);
        is_it.then(|| fields.get(9)?.parse().ok())?
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

fn unix_inodes(table: &str, path: &Path) -> Vec<u64> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (Path::new(fields.get(7)?) == path).then(|| fields.get(6)?.parse().ok())?
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

fn numbered(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().map_while(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds(pid: u32, wanted: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.map_while(Result::ok).any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|link| wanted.iter().any(|inode| link.as_os_str() == inode.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_parsed_from_proc() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:2BCB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   0        0 4242 1 0\n   \
            1: 0100007F:2BCB 0100007F:9999 01 00000000:00000000 00:00000000 00000000   0        0 4243 1 0\n";
        assert_eq!(inet_inodes(table, 11211, "0A"), [4242]);
        assert_eq!(inet_inodes(table, 11212, "0A"), [] as [u64; 0]);
        let table = "Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 10000 1 01 77 /run/a\n";
        assert_eq!(unix_inodes(table, Path::new("/run/a")), [77]);
        assert!(unix_inodes(table, Path::new("/run/b")).is_empty());
    }

    #[test]
    fn a_server_is_found_by_its_port_but_not_this_process() {
        let server: crate::process::Server =
            "memcached=memcached -U 0 -l 127.0.0.1 -p {port} -u root".parse().unwrap();
        let server = server.start(16, None).unwrap();
        let target = server.address.to_string().parse().unwrap();
        assert_eq!(pids_of(&[target]), [server.pid().unwrap()]);
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = own.local_addr().unwrap().to_string().parse().unwrap();
        assert!(pids_of(&[target]).is_empty());
    }
}
