//! The changes of a configuration that a running invalidator cannot take up: they would leave its
//! position, or deletes on the disk, behind.

use std::path::Path;

use super::{Config, Fault};
use crate::disk_queue::SpoolFolder;

impl Config {
    /// Refuses to continue with `next` where that would lose changes, or where it cannot start.
    /// `waiting` has the number of records on the disk for each cluster of this configuration.
    ///
    /// # Errors
    ///
    /// The first reason.
    pub(crate) fn refuse_successor(&self, next: &Self, waiting: &[u64]) -> Result<(), Fault> {
        self.refuse_another_position(next)?;
        for (cluster, records) in self.clusters.iter().zip(waiting) {
            if *records > 0 {
                self.refuse_another_folder(next, &cluster.name, *records)?;
            }
        }
        next.refuse_left_over()?;
        self.refuse_unusable_folders(next)
    }

    /// Without a checkpoint, the new process would start at the end of the log.
    fn refuse_another_position(&self, next: &Self) -> Result<(), Fault> {
        let has_position = |path: &Path| path.try_exists().unwrap_or(true);
        if !has_position(&self.checkpoint) {
            return Ok(());
        }
        if self.source.kind != next.source.kind {
            return Err(Fault::AnotherKind);
        }
        if self.checkpoint != next.checkpoint && !has_position(&next.checkpoint) {
            return Err(Fault::NoCheckpointThere {
                from: self.checkpoint.clone(),
                to: next.checkpoint.clone(),
            });
        }
        Ok(())
    }

    /// This process has locked its folders, so their contents are not visible to
    /// [`Self::refuse_left_over`].
    fn refuse_another_folder(&self, next: &Self, name: &str, records: u64) -> Result<(), Fault> {
        let (folder, folder_then) = (self.spool_folder(), next.spool_folder());
        let why = if next.delivery.spool_bytes_max == 0 {
            super::left_over::no_disk()
        } else if !next.clusters.iter().any(|cluster| cluster.name == name) {
            super::left_over::no_cluster(name)
        } else if folder != folder_then {
            format!(
                "the new spool is {}: stop the invalidator, move the folder there, and start it",
                folder_then.display()
            )
        } else {
            return Ok(());
        };
        Err(Fault::LeftOver { folder: folder.join(name), records, why })
    }

    /// A folder that exists is not opened, because only its user may repair damage in it. This
    /// process may be about to open its own folders. One that another program removed stays removed
    /// for the new process.
    fn refuse_unusable_folders(&self, next: &Self) -> Result<(), Fault> {
        if next.delivery.spool_bytes_max == 0 {
            return Ok(());
        }
        let folder = next.spool_folder();
        for cluster in &next.clusters {
            if self.uses_folder(&folder, &cluster.name)
                || folder.join(&cluster.name).try_exists().unwrap_or(false)
            {
                continue;
            }
            let bytes_max = next.delivery.spool_bytes_max;
            let opened = SpoolFolder::open_unprepared(&folder, &cluster.name, bytes_max);
            opened.map_err(|error| Fault::Spool {
                folder: folder.clone(),
                cluster: cluster.name.clone(),
                error,
            })?;
        }
        Ok(())
    }

    /// True if this configuration keeps the deletes of a cluster in this folder.
    fn uses_folder(&self, folder: &Path, name: &str) -> bool {
        self.delivery.spool_bytes_max > 0
            && self.spool_folder() == folder
            && self.clusters.iter().any(|cluster| cluster.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn config(folder: &Path, top: &str, kind: &str, cluster: &str, delivery: &str) -> Config {
        let text = format!(
            "{top}\n[source]\nkind = \"{kind}\"\nservers = [\"127.0.0.1:3306\"]\n\
             user = \"holdall\"\nserver_id = 4001\n[keys]\ncomments = true\n[delivery]\n{delivery}\n\
             [[cluster]]\nname = \"{cluster}\"\nrouters = [\"127.0.0.1:5000\"]\n",
        );
        let text = text.replace("FOLDER", &folder.display().to_string());
        Config::parse(Path::new("f"), &text).unwrap()
    }

    #[test]
    fn neither_the_position_nor_deletes_on_the_disk_stay_behind() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let top = "checkpoint = \"FOLDER/cp\"";
        let other = "checkpoint = \"FOLDER/other\"";
        let moved = "checkpoint = \"FOLDER/cp\"\nspool = \"FOLDER/moved\"";
        let now = config(at, top, "mariadb", "east", "");
        let refusal = |next: &Config, waiting: u64| {
            let refused = now.refuse_successor(next, &[waiting]);
            refused.err().map_or(String::new(), |fault| fault.to_string())
        };
        let next = config(at, other, "mysql", "east", "");
        assert_eq!(refusal(&next, 0), "", "there is no position yet");
        fs::write(at.join("cp"), "").unwrap();
        for (next, waiting, said) in [
            (config(at, top, "mysql", "east", ""), 0, "source.kind"),
            (config(at, other, "mariadb", "east", ""), 0, "other does not exist"),
            (config(at, top, "mariadb", "west", ""), 3, "no cluster has the name 'east'"),
            (config(at, top, "mariadb", "east", "spool_bytes_max = 0"), 3, "spool_bytes_max is 0"),
            (config(at, moved, "mariadb", "east", ""), 3, "moved: stop the invalidator"),
        ] {
            let text = refusal(&next, waiting);
            assert!(text.contains(said), "{said}: {text}");
            if waiting > 0 {
                assert!(text.contains("deletes of 3 transactions wait there"), "{text}");
                assert_eq!(refusal(&next, 0), "", "nothing waits");
            }
        }
        fs::write(at.join("other"), "").unwrap();
        let next = config(at, other, "mariadb", "east", "");
        assert_eq!(refusal(&next, 0), "", "its position was copied");
        assert!(refusal(&next, 3).contains("other.spool: stop the invalidator"));
        assert_eq!(refusal(&now, 3), "", "nothing has changed");
    }

    /// At a start, SIGHUP may arrive while the process opens its folders.
    #[test]
    fn the_own_folders_are_not_opened_twice() {
        let folder = tempfile::tempdir().unwrap();
        let now = config(folder.path(), "checkpoint = \"FOLDER/cp\"", "mariadb", "east", "");
        now.refuse_successor(&now, &[0]).unwrap();
        assert!(!now.spool_folder().join("east").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("file"), "").unwrap();
        let now = config(at, "checkpoint = \"FOLDER/cp\"", "mariadb", "east", "");
        let top = "checkpoint = \"FOLDER/cp\"\nspool = \"FOLDER/file\"";
        let next = config(at, top, "mariadb", "east", "");
        let refused = now.refuse_successor(&next, &[0]).unwrap_err().to_string();
        assert!(refused.contains("file"), "{refused}");
    }
}
