//! `holdall bench alert`: a latency bound as a Prometheus alert.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{WrongUse, output};
use crate::sla::Sla;
use crate::terminal;

/// Prints an alert rule of Prometheus that fires while a bound on latency does not hold.
///
/// The rule reads the histograms of `holdall route` (from a request to its server's reply, or to
/// its timeout) or of `holdall serve` (in the server). A quantile is as exact as their buckets,
/// which grow by 2 to 2.5.
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
    /// Write the rule as JSON, which Prometheus reads like YAML, into this file; `-`: print it, and
    /// the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench alert > sla.yml                                  p99 below 1 ms, seen from the proxies
  holdall bench alert --sla 'p99.5<=1ms' --role serve --over 10m
  holdall bench alert --json - 2>/dev/null | jq -r '.groups[0].rules[0].expr'
  promtool check rules sla.yml";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Proxies: the time to a server's reply or timeout.
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

/// The rule, which has two forms.
struct Rule {
    /// Expressions, one of which has a value where the bound does not hold.
    broken: Vec<String>,
    hold: String,
    summary: String,
}

const GROUP: &str = "holdall-sla";
const ALERT: &str = "HoldallLatencyBoundBroken";
const SEVERITY: &str = "warning";

impl Rule {
    fn new(args: &AlertArgs) -> Result<Self> {
        let broken = args.sla.broken_in(args.role.metric(), &args.over);
        let sla = &args.sla;
        Ok(Self {
            broken: broken.ok_or_else(|| {
                let why = "a histogram has no greatest latency: the bound may not name max";
                WrongUse(format!("--sla: {why}"))
            })?,
            hold: args.over.clone(),
            summary: format!(
                "{{{{ $labels.instance }}}} does not keep {sla}: {{{{ $value }}}} seconds"
            ),
        })
    }

    fn to_yaml(&self) -> String {
        let Self { broken, hold, summary } = self;
        let expression = broken.join("\n            or ");
        format!(
            "groups:
  - name: {GROUP}
    rules:
      - alert: {ALERT}
        expr: |
          {expression}
        for: {hold}
        labels: {{ severity: {SEVERITY} }}
        annotations:
          summary: \"{summary}\"
"
        )
    }

    fn to_json(&self) -> Value {
        let Self { broken, hold, summary } = self;
        json!({ "groups": [{ "name": GROUP, "rules": [{
            "alert": ALERT,
            "expr": broken.join(" or "),
            "for": hold,
            "labels": { "severity": SEVERITY },
            "annotations": { "summary": summary },
        }] }] })
    }
}

pub(super) fn run(args: &AlertArgs) -> Result<ExitCode> {
    let rule = Rule::new(args)?;
    let file = output::begun(args.json.as_deref(), &[])?;
    terminal::print(&rule.to_yaml());
    output::keep(file, &rule.to_json())?;
    Ok(ExitCode::SUCCESS)
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

    fn rule(sla: &str, role: Role) -> Result<Rule> {
        let (over, json) = ("5m".to_owned(), None);
        Rule::new(&AlertArgs { sla: sla.parse().unwrap(), role, over, json })
    }

    fn assert_promtool_takes(text: &str) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let check = Command::new("promtool").args(["check", "rules"]).arg(file.path()).output();
        let check = check.unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success() && said.contains("1 rules found"), "{text}{check:?}");
    }

    #[test]
    fn promtool_accepts_rules_for_every_kind_of_bound() {
        for bound in ["p99<1ms", "mean<=100us && p99.73<=1ms", "median<2s"] {
            for role in [Role::Route, Role::Serve] {
                let rule = rule(bound, role).unwrap();
                assert_promtool_takes(&rule.to_yaml());
                assert_promtool_takes(&rule.to_json().to_string());
            }
        }
    }

    #[test]
    fn the_rule_compares_in_seconds() {
        let rule = rule("mean<=100us && p99.5<1ms", Role::Route).unwrap().to_yaml();
        assert!(rule.contains("_sum[5m])) / sum by (instance) ("), "{rule}");
        assert!(rule.contains(" > 0.0001\n            or histogram_quantile(0.995, "), "{rule}");
        assert!(rule.contains("_bucket[5m]))) >= 0.001\n        for: 5m"), "{rule}");
    }

    #[test]
    fn bounds_on_the_maximum_and_times_without_a_unit_are_refused() {
        assert!(rule("max<1s", Role::Route).is_err());
        for wrong in ["", "5", "m", "0m", "5m;"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
