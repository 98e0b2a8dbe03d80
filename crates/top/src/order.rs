//! The choice and the order of rows.

use std::cmp::Ordering;

use crate::row::{Row, columns};
use tools::Role;

/// The order of rows within a role.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Order {
    /// Faulty ones first, then by group and address.
    #[default]
    TroubleFirst,
    /// By the column of this name in JSON, greatest first.
    Column(&'static str),
}

/// The choice of rows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Shown {
    /// The order.
    pub(crate) order: Order,
    /// True to reverse it.
    pub(crate) is_reversed: bool,
    /// A part of the address, the group, the role or the reason; empty for all.
    pub(crate) filter: String,
}

impl Order {
    /// The order after or before this one, among those of the roles.
    #[must_use]
    pub(crate) fn next(self, roles: &[Role], step: isize) -> Self {
        let mut all = vec![Self::TroubleFirst];
        for column in roles.iter().flat_map(|role| columns(*role)) {
            let order = Self::Column(column.name);
            if !all.contains(&order) {
                all.push(order);
            }
        }
        let at = all.iter().position(|order| *order == self).unwrap_or(0);
        let next = at.checked_add_signed(step).unwrap_or(all.len() - 1) % all.len();
        all.get(next).copied().unwrap_or_default()
    }

    /// Its name: the head of its column.
    #[must_use]
    pub(crate) fn title(self) -> &'static str {
        let Self::Column(name) = self else { return "trouble first" };
        [Role::Server, Role::Proxy, Role::Invalidator]
            .iter()
            .flat_map(|role| columns(*role))
            .find(|column| column.name == name)
            .map_or(name, |column| column.title)
    }
}

impl Shown {
    /// The rows that pass the filter: servers, proxies, invalidators, each in the order.
    #[must_use]
    pub(crate) fn rows(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let filter = self.filter.to_lowercase();
        rows.retain(|row| {
            let parts = [&row.address, &row.group, row.role.name(), row.health.reason()];
            parts.iter().any(|part| part.to_lowercase().contains(&filter))
        });
        rows.sort_by(|one, other| {
            let within = self.compare(one, other);
            let within = if self.is_reversed { within.reverse() } else { within };
            let by_name = || (&one.group, &one.address).cmp(&(&other.group, &other.address));
            one.role.cmp(&other.role).then(within).then_with(by_name)
        });
        rows
    }

    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        match self.order {
            Order::TroubleFirst => one.health.rank().cmp(&other.health.rank()),
            Order::Column(name) => {
                let number = |row: &Row| {
                    let at = columns(row.role).iter().position(|column| column.name == name)?;
                    row.numbers.get(at).copied().flatten()
                };
                // Rows without the number are last.
                let of = |row| number(row).unwrap_or(f64::NEG_INFINITY);
                of(other).total_cmp(&of(one))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Health;

    fn row(address: &str, health: Health, gets: Option<f64>) -> Row {
        let mut numbers = vec![None; columns(Role::Server).len()];
        numbers[0] = gets;
        Row {
            place: 0,
            address: address.to_owned(),
            group: String::new(),
            role: Role::Server,
            version: String::new(),
            health,
            numbers,
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            row("a", Health::Good, Some(5.0)),
            row("b", Health::Away("refused".to_owned()), None),
            row("c", Health::Good, Some(50.0)),
        ]
    }

    fn shown(shown: &Shown) -> String {
        shown.rows(rows()).iter().map(|row| row.address.as_str()).collect()
    }

    #[test]
    fn rows_follow_the_selected_order() {
        let mut choice = Shown::default();
        assert_eq!(shown(&choice), "bac", "trouble first");
        choice.order = Order::Column("gets_per_second");
        assert_eq!(shown(&choice), "cab", "who does not tell is last");
        choice.is_reversed = true;
        assert_eq!(shown(&choice), "bac");
    }

    #[test]
    fn a_filter_matches_addresses_and_reasons() {
        let of = |filter: &str| shown(&Shown { filter: filter.to_owned(), ..Shown::default() });
        assert_eq!((of("C"), of("REFUSED"), of("nobody")), ("c".into(), "b".into(), String::new()));
    }

    #[test]
    fn orders_cycle_through_every_column() {
        let roles = [Role::Server];
        let mut order = Order::TroubleFirst;
        for _ in 0..=columns(Role::Server).len() {
            order = order.next(&roles, 1);
        }
        assert_eq!(order, Order::TroubleFirst);
        assert_eq!(order.next(&roles, -1).next(&roles, 1), order);
    }
}
