//! Deletes on the disk that a changed configuration would leave there permanently.

use std::fs;
use std::io;
use std::path::Path;

use super::{Config, Fault};
use crate::disk_queue::SpoolFolder;

impl Config {
    /// Refuses deletes on the disk that no cluster of this configuration would deliver.
    ///
    /// # Errors
    ///
    /// The first folder with such deletes, or one that cannot be read.
    pub fn refuse_left_over(&self) -> Result<(), Fault> {
        let (folder, usual) = (self.spool_folder(), self.usual_spool_folder());
        let has_disk = self.delivery.spool_bytes_max > 0;
        let is_known = |name: &str| self.clusters.iter().any(|cluster| cluster.name == name);
        left_over(
            &folder,
            |name| has_disk && is_known(name),
            |name| {
                if is_known(name) { no_disk() } else { no_cluster(name) }
            },
        )?;
        if folder == usual {
            return Ok(());
        }
        let why = format!("spool is {}: move the folder there", folder.display());
        left_over(&usual, |_| false, |_| why.clone())
    }
}

/// The fault of a configuration without a disk, and the remedy.
pub(super) fn no_disk() -> String {
    "spool_bytes_max is 0: set it above 0 until they are delivered".to_owned()
}

/// The fault of a configuration without the cluster, and the remedy.
pub(super) fn no_cluster(name: &str) -> String {
    format!("no cluster has the name '{name}': name one so until they are delivered")
}

/// Refuses deletes in a folder whose cluster is not among the targets.
fn left_over(
    folder: &Path,
    is_delivered: impl Fn(&str) -> bool,
    why: impl Fn(&str) -> String,
) -> Result<(), Fault> {
    let fault = |cluster: &str, error| Fault::Spool {
        folder: folder.to_owned(),
        cluster: cluster.to_owned(),
        error,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fault("", error)),
    };
    for entry in entries {
        let name = entry.map_err(|error| fault("", error))?.file_name();
        let Some(name) = name.to_str().filter(|name| !is_delivered(name)) else { continue };
        let records = SpoolFolder::waiting(folder, name).map_err(|error| fault(name, error))?;
        if records > 0 {
            return Err(Fault::LeftOver { folder: folder.join(name), records, why: why(name) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tokio::time::Instant;

    use super::*;
    use crate::delivery::{Delivery, Work};
    use crate::disk_queue::DiskQueue as _;

    fn config(folder: &Path, delivery: &str, cluster: &str) -> Config {
        let text = format!(
            "checkpoint = \"{}\"\n[source]\nkind = \"mariadb\"\nservers = [\"127.0.0.1:3306\"]\n\
             user = \"holdall\"\nserver_id = 4001\n[keys]\ncomments = true\n[delivery]\n{delivery}\n\
             [[cluster]]\nname = \"{cluster}\"\nrouters = [\"127.0.0.1:5000\"]\n",
            folder.join("cp").display()
        );
        let (top, rest) = text.split_once("[source]").unwrap();
        let spool = delivery.strip_prefix("# spool ").map(|name| folder.join(name));
        let spool =
            spool.map_or(String::new(), |spool| format!("spool = \"{}\"\n", spool.display()));
        Config::parse(Path::new("f"), &format!("{top}{spool}[source]{rest}")).unwrap()
    }

    /// The error of a configuration with these lines about deletes that wait in `spool` for `east`.
    fn refusal(folder: &Path, delivery: &str, cluster: &str) -> String {
        let refused = config(folder, delivery, cluster).refuse_left_over();
        refused.err().map_or(String::new(), |fault| fault.to_string())
    }

    /// The folder of a cluster exists from its first start on, also without deletes.
    #[tokio::test]
    async fn a_removed_folder_with_deletes_is_a_loss() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "", "east");
        let spooled = vec!["east".to_owned()];
        let spool = config.spool_folder();
        for (removed, is_asked) in [("", false), ("east", true), ("east/east", false)] {
            drop(config.disk_queues(&[]).unwrap());
            assert_eq!(config.removed_spools(spooled.clone()), [""; 0], "they are delivered");
            fs::remove_dir_all(spool.join(removed)).unwrap();
            if is_asked {
                // SIGHUP: the new configuration's folders are tried.
                config.refuse_successor(&config, &[1]).unwrap();
            }
            let lost = config.removed_spools(spooled.clone());
            assert_eq!(lost, spooled, "{removed}");
            let (queues, damage) = config.disk_queues(&lost).unwrap();
            assert_eq!(damage, ["east: files of its spool were removed"]);
            let queue = queues[0].as_ref().unwrap();
            let found = queue.read().await.unwrap();
            assert_eq!(found.lost, 1);
            let is_noted = config.removed_spools(spooled.clone()).is_empty();
            assert!(is_noted, "it is noted in the new folder");
            queue.acknowledge(found.records[0].0, Vec::new()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_configuration_that_abandons_queued_deletes_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert_eq!(refusal(at, "spool_bytes_max = 0", "east"), "", "there is no folder");
        let open = || SpoolFolder::open(&at.join("cp.spool"), "east", 1 << 20).unwrap().0;
        let queue = open();
        let work = Work::Delete(vec![Bytes::from_static(b"a")]);
        let read_at = Instant::now();
        let delivery = Delivery { seq: 1, work, committed_us: 7, read_at, is_seen: false };
        queue.append(vec![Arc::new(delivery)]).await.unwrap();
        assert_eq!(refusal(at, "spool_bytes_max = 0", "west"), "", "another program has them");
        drop(queue);
        assert_eq!(refusal(at, "", "east"), "", "they will be delivered");
        for (delivery, cluster, said) in [
            ("spool_bytes_max = 0", "east", "spool_bytes_max is 0: set it above 0"),
            ("", "west", "no cluster has the name 'east': name one so"),
            ("# spool other", "east", "other: move the folder there"),
        ] {
            let text = refusal(at, delivery, cluster);
            let place = format!("spool {}: deletes of 1 trans", at.join("cp.spool/east").display());
            assert!(text.starts_with(&place) && text.contains(said), "{text}");
            assert!(text.contains("holdall invalidate flush"), "{text}");
        }
        let queue = open();
        queue.read().await.unwrap();
        queue.acknowledge(0, Vec::new()).await.unwrap();
        drop(queue);
        assert_eq!(refusal(at, "spool_bytes_max = 0", "west"), "", "they are delivered");
    }
}
