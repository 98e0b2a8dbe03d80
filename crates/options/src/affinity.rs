//! The CPU that each worker is bound to (`-o affinity=`).
//!
//! The deployment guide binds every thread to a CPU "and only to that CPU", by "an incremental
//! value" (`FIRST+STEP` here). Commas separate `-o` elements, so a list uses colons.

use super::bad_value::BadValue;

/// A binding of workers to CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The system moves workers freely.
    #[default]
    Unbound,
    /// Worker *n* is bound to the *n*th CPU that the process may use, cyclically.
    Auto,
    /// Worker *n* is bound to the *n*th of these, cyclically. Never empty.
    List(Vec<usize>),
    /// Worker *n* is bound to CPU `first + n * step`.
    Stride {
        /// CPU of worker 0.
        first: usize,
        /// Distance of neighbours; at least 1.
        step: usize,
    },
}

impl Affinity {
    /// The CPU of this worker, counted from 0; `allowed` are the CPUs that the process may use,
    /// ascending.
    ///
    /// # Errors
    ///
    /// A sentence for the operator when the CPU is not among `allowed`.
    pub fn cpu(&self, worker: usize, allowed: &[usize]) -> Result<Option<usize>, String> {
        let cpu = match self {
            Self::Unbound => return Ok(None),
            Self::Auto => return Ok(allowed.get(worker % allowed.len().max(1)).copied()),
            Self::List(cpus) => cpus.get(worker % cpus.len().max(1)).copied(),
            Self::Stride { first, step } => {
                worker.checked_mul(*step).and_then(|distance| distance.checked_add(*first))
            }
        };
        match cpu {
            Some(cpu) if allowed.contains(&cpu) => Ok(Some(cpu)),
            _ => Err(format!(
                "-o affinity: worker {worker} would be bound to CPU {}, which this process may not use",
                cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string())
            )),
        }
    }
}

/// Reads `auto`, `FIRST+STEP` or `CPU:CPU:..`.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn affinity(text: &str) -> Result<Affinity, BadValue> {
    if text == "auto" {
        return Ok(Affinity::Auto);
    }
    if let Some((first, step)) = text.split_once('+') {
        let step = cpu_number(step)?;
        if step == 0 {
            return Err(BadValue::NoStep);
        }
        return Ok(Affinity::Stride { first: cpu_number(first)?, step });
    }
    text.split(':').map(cpu_number).collect::<Result<Vec<_>, _>>().map(Affinity::List)
}

fn cpu_number(text: &str) -> Result<usize, BadValue> {
    super::number::number(text, 0..=CPU_MAX)
}

/// The largest CPU number of a Linux `cpu_set_t`.
const CPU_MAX: u64 = 1023;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_affinity_are_parsed() {
        assert_eq!(affinity("auto"), Ok(Affinity::Auto));
        assert_eq!(affinity("0:2:4"), Ok(Affinity::List(vec![0, 2, 4])));
        assert_eq!(affinity("1+2"), Ok(Affinity::Stride { first: 1, step: 2 }));
        for bad in ["", "0:", "+", "1+", "0+0", "1024", "-1", "0,2", "AUTO"] {
            assert!(affinity(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn workers_take_cpus_in_turn() {
        let allowed = [0, 1, 4, 5];
        let cpus = |affinity: Affinity| -> Vec<_> {
            (0..5).map(|worker| affinity.cpu(worker, &allowed)).collect()
        };
        assert_eq!(cpus(Affinity::Unbound), vec![Ok(None); 5]);
        assert_eq!(cpus(Affinity::Auto), [0, 1, 4, 5, 0].map(|cpu| Ok(Some(cpu))).to_vec());
        assert_eq!(
            cpus(Affinity::List(vec![5, 1])),
            [5, 1, 5, 1, 5].map(|cpu| Ok(Some(cpu))).to_vec()
        );
        let stride = Affinity::Stride { first: 0, step: 4 };
        assert_eq!(stride.cpu(1, &allowed), Ok(Some(4)));
        assert!(stride.cpu(2, &allowed).is_err());
    }
}
