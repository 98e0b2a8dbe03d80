//! A topology file for `holdall plan FILE --emit`.

use crate::candidate::Candidate;
use crate::sizing::Sizing;
use crate::units::grouped;

/// The text of a topology with the servers of `candidate`: one region, one cluster, a gutter.
///
/// It has numbers of pods, as Kubernetes needs them; for systemd the numbers become addresses.
#[must_use]
pub fn topology(sizing: &Sizing, candidate: &Candidate) -> String {
    let threads = candidate.threads.unwrap_or(4);
    format!(
        "# {} gets a second at the peak, {} servers of kind {}.\n\
         # For systemd give addresses in place of numbers: servers = [\"10.0.0.1\", ..].\n\n\
         name = \"cache\"\n\n\
         [cache]\n\
         memory_mb = {:.0}\n\
         threads = {threads}\n\n\
         [[region]]\n\
         name = \"main\"\n\
         master = true\n\n\
         [[region.cluster]]\n\
         name = \"a\"\n\
         servers = {:.0}\n\
         gutter = {:.0}\n",
        grouped(sizing.demand.peak),
        grouped(candidate.servers),
        candidate.platform.name,
        (candidate.limit_bytes / f64::from(1 << 20)).ceil().max(1.0),
        candidate.servers,
        candidate.gutter,
    )
}
