//! The check of the fuzz target `users_and_rights`.

use scram::KEY_BYTES;

use crate::rights::{Permission, Table};
use crate::users::{BYTE_ORDER_MARK, Check, Users, UsersError};
use crate::words::{plain, split};

/// Reads a users file and, after a zero byte, a rights file and, after another, the message of a
/// PLAIN login.
///
/// # Panics
///
/// Panics when a user is accepted or refused wrongly.
#[allow(clippy::expect_used, reason = "a target stops where it fails")]
pub fn check(bytes: &[u8]) {
    let (users, rest) = split(bytes, 0).unwrap_or((bytes, b""));
    let (rights, message) = split(rest, 0).unwrap_or((rest, b""));
    let table = str::from_utf8(rights).ok().and_then(|text| match Table::parse(text) {
        Ok(table) => Some(table),
        Err(why) => {
            assert_names_a_line(&why.to_string(), rights);
            None
        }
    });
    let read = match Users::parse(users, table.as_ref(), [7; KEY_BYTES]) {
        Ok(read) => read,
        Err(UsersError::NoUser) => return,
        Err(why) => return assert_names_a_line(&why.to_string(), users),
    };
    let users = users.strip_prefix(BYTE_ORDER_MARK).unwrap_or(users);
    for line in users.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some((name, password)) = split(line, b':').filter(|_| !line.starts_with(b"#")) else {
            continue;
        };
        assert!(read.has(name));
        match read.check(name, password) {
            // With a file that has a verifier, every name costs work.
            Check::Slow => continue,
            Check::Done(user) => {
                let user = user.expect("the password lets its user in");
                assert_eq!(*user.name, *name);
                let own = table.as_ref().map(|table| table.of(name));
                assert_eq!(user.rights, own);
                if let Some(rights) = own {
                    let both = rights.allow(Permission::ReadWrite, password);
                    let each = [Permission::Read, Permission::Write];
                    assert_eq!(both, each.into_iter().all(|one| rights.allow(one, password)));
                }
            }
        }
        let longer = [password, b"x"].concat();
        assert!(!matches!(read.check(name, &longer), Check::Done(Some(_))));
    }
    if let Some((name, password)) = plain(message) {
        assert!(!name.is_empty() && !password.contains(&0));
        let _ = read.check(name, password);
    }
}

/// Asserts that a refusal starts with the number of a line of the file.
fn assert_names_a_line(refusal: &str, file: &[u8]) {
    let number = refusal.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    let number: Option<usize> = number.and_then(|(number, _)| number.parse().ok());
    let lines = file.split(|byte| *byte == b'\n').count();
    assert!(number.is_some_and(|number| (1..=lines).contains(&number)), "{refusal}");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn fuzzing_seeds_pass() {
        let folder = "../../fuzz/seeds/users_and_rights";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|seed| seed.unwrap()).collect();
        assert!(!seeds.is_empty());
        seeds.iter().for_each(|seed| check(&fs::read(seed.path()).unwrap()));
    }
}
