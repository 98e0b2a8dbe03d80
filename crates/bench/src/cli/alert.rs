//! `holdall bench alert`: a bound on latency as an alert of Prometheus.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::sla::Sla;
use crate::terminal;

/// Prints an alert rule of Prometheus that fires while a bound on latency does not hold.
///
/// The rule reads the histograms of `holdall route` (from a request to its server's reply) or of
/// `holdall serve` (in the server). A quantile is as exact as their buckets, which grow by 2 to
/// 2.5.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct AlertArgs {
    /// The bound: p99<1ms, 'mean<=100us && p99.73<=1ms' and the like.
    #[arg(long, default_value = "p99<1ms", value_name = "BOUND")]
    sla: Sla,
    /// Whose latencies.
    #[arg(long, value_enum, default_value_t)]
    role: Role,
    /// The time over which latencies are taken together, as Prometheus writes it.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = duration)]
    over: String,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench alert > sla.yml                                  p99 below 1 ms, seen from the proxies
  holdall bench alert --sla 'p99.5<=1ms' --role serve --over 10m
  promtool check rules sla.yml";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Proxies: what their clients wait for.
    #[default]
    Route,
    /// Servers, without the network.
    Serve,
}

impl Role {
    fn metric(self) -> &'static str {
        match self {
            Self::Route => "holdall_route_request_duration_seconds",
            Self::Serve => "holdall_request_duration_seconds",
        }
    }
}

pub(super) fn run(args: &AlertArgs) -> Result<ExitCode> {
    terminal::print(&rule(&args.sla, args.role, &args.over)?);
    Ok(ExitCode::SUCCESS)
}

fn rule(sla: &Sla, role: Role, over: &str) -> Result<String> {
    let broken = sla.broken_in(role.metric(), over);
    ensure!(broken.is_some(), "a histogram has no greatest latency: the bound may not name max");
    let expression = broken.unwrap_or_default().join("\n            or ");
    Ok(format!(
        "groups:
  - name: holdall-sla
    rules:
      - alert: HoldallLatencyBoundBroken
        expr: |
          {expression}
        for: {over}
        labels: {{ severity: warning }}
        annotations:
          summary: \"{{{{ $labels.instance }}}} does not keep {sla}: {{{{ $value }}}} seconds\"
"
    ))
}

fn duration(text: &str) -> Result<String> {
    let number = text.strip_suffix(['s', 'm', 'h']).unwrap_or_default();
    ensure!(number.parse::<u32>().is_ok_and(|number| number > 0), "a time such as 5m is wanted");
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn promtool_takes_the_rule_of_every_kind_of_bound() {
        for bound in ["p99<1ms", "mean<=100us && p99.73<=1ms", "median<2s"] {
            for role in [Role::Route, Role::Serve] {
                let rule = rule(&bound.parse().unwrap(), role, "5m").unwrap();
                let mut file = tempfile::NamedTempFile::new().unwrap();
                file.write_all(rule.as_bytes()).unwrap();
                let check =
                    Command::new("promtool").args(["check", "rules"]).arg(file.path()).output();
                let check = check.unwrap();
                assert!(check.status.success(), "{rule}{check:?}");
            }
        }
    }

    #[test]
    fn the_rule_compares_in_seconds() {
        let rule = rule(&"mean<=100us && p99.5<1ms".parse().unwrap(), Role::Route, "5m").unwrap();
        assert!(rule.contains("_sum[5m])) / sum by (instance) ("), "{rule}");
        assert!(rule.contains(" > 0.0001\n            or histogram_quantile(0.995, "), "{rule}");
        assert!(rule.contains("_bucket[5m]))) >= 0.001\n        for: 5m"), "{rule}");
    }

    #[test]
    fn a_greatest_latency_and_a_time_without_a_unit_are_refused() {
        assert!(rule(&"max<1s".parse().unwrap(), Role::Route, "5m").is_err());
        for wrong in ["", "5", "m", "0m", "5m;"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
