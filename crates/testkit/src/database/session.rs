//! One connection of a database's own client, fed with statements.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A client process that accepts statements and prints rows.
#[derive(Debug)]
pub struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    pub(super) fn start(client: &mut Command) -> Self {
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = client.spawn().expect("the database's client is installed");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout }
    }

    /// Runs statements and returns the printed rows; none if the connection was lost or a statement
    /// refused, after which the session is unusable.
    pub fn run(&mut self, statements: &str) -> Option<Vec<String>> {
        const MARK: &str = "--end--";
        self.stdin.write_all(format!("{statements}; SELECT '{MARK}';\n").as_bytes()).ok()?;
        self.stdin.flush().ok()?;
        let mut rows = Vec::new();
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if line == MARK {
                return Some(rows);
            }
            rows.push(line.to_owned());
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
