//! Modules import each other in one direction only: no two sibling modules, in a crate or in a
//! folder of it, may reach each other through imports.
//!
//! A module and the modules inside it are a unit, so paths between them are not imports. Names are
//! followed through re-exports to the module that defines them. Globs are not followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports;

type Path = Vec<String>;

/// The modules that one module imports, each with the place of an import.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// A crate's modules, each with its file and the paths in that file.
#[derive(Debug, Default)]
struct Crate {
    files: BTreeMap<Path, (String, imports::Imports)>,
    /// For each module, the names that its imports bring into it.
    names: BTreeMap<Path, BTreeMap<String, Path>>,
}

/// A breach for each cycle of modules, in sources of many crates.
pub(super) fn knots(sources: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str, &str)>> = BTreeMap::new();
    for (name, text) in sources {
        if let Some((folder, inside)) = name.split_once("/src/") {
            crates.entry(folder).or_default().push((inside, name, text));
        }
    }
    let mut breaches = Vec::new();
    for files in crates.values() {
        let has_library = files.iter().any(|(inside, ..)| *inside == "lib.rs");
        let is_apart =
            |inside: &str| inside.starts_with("bin/") || (inside == "main.rs" && has_library);
        let mut of_crate = Crate::default();
        for (inside, name, text) in files.iter().filter(|(inside, ..)| !is_apart(inside)) {
            let file = ((*name).to_owned(), imports::read(text));
            of_crate.files.insert(module_of(inside), file);
        }
        breaches.extend(of_crate.knots());
    }
    breaches
}

/// The module of a file below `src`.
fn module_of(inside: &str) -> Path {
    let mut path: Path = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

impl Crate {
    fn knots(mut self) -> Vec<String> {
        let tests: Vec<Path> = self
            .files
            .iter()
            .flat_map(|(module, (_, file))| file.tests.iter().map(|name| child(module, name)))
            .collect();
        self.files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        for (module, (_, file)) in &self.files {
            for named in &file.named {
                if let Some(alias) = &named.alias {
                    let around = [&module[..], &named.inside[..]].concat();
                    let names = self.names.entry(around.clone()).or_default();
                    names.insert(alias.clone(), absolute(&around, &named.path));
                }
            }
        }
        let mut arrows: BTreeMap<Path, Arrows> = BTreeMap::new();
        for (module, (name, file)) in &self.files {
            for named in &file.named {
                let around = [&module[..], &named.inside[..]].concat();
                let target = self.owner(&absolute(&around, &named.path), 0);
                let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                    let beside = arrows.entry(target[..common].to_vec()).or_default();
                    let to = beside.entry(from.clone()).or_default().entry(to.clone());
                    to.or_insert_with(|| format!("{name}:{}", named.line));
                }
            }
        }
        arrows.values().flat_map(in_folder).collect()
    }

    /// The module that defines the item with this path, as far as it is known.
    fn owner(&self, path: &[String], depth: usize) -> Path {
        const REEXPORTS_MAX: usize = 16;
        let mut module = Path::new();
        for (at, name) in path.iter().enumerate() {
            let inner = child(&module, name);
            if self.files.contains_key(&inner) {
                module = inner;
                continue;
            }
            let renamed = self.names.get(&module).and_then(|names| names.get(name));
            return match renamed {
                Some(renamed) if depth < REEXPORTS_MAX => {
                    self.owner(&[&renamed[..], &path[at + 1..]].concat(), depth + 1)
                }
                _ => module,
            };
        }
        module
    }
}

fn child(module: &[String], name: &str) -> Path {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

/// The path from the crate's root, for a path written inside this module.
fn absolute(module: &[String], path: &[String]) -> Path {
    let mut from = module.to_vec();
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        match first.as_str() {
            "crate" => from.clear(),
            "super" => drop(from.pop()),
            "self" => {}
            _ => break,
        }
        rest = behind;
    }
    from.extend_from_slice(rest);
    from
}

/// The cycles among sibling modules.
fn in_folder(arrows: &Arrows) -> Vec<String> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|from| (from, reachable(arrows, from))).collect();
    let mut breaches = Vec::new();
    let mut seen = BTreeSet::new();
    for (from, to) in reached.iter().filter(|(from, to)| to.contains(*from)) {
        let is_mutual = |other: &&&String| reached.get(**other).is_some_and(|to| to.contains(from));
        let knot: Vec<&str> = to.iter().filter(is_mutual).map(|name| name.as_str()).collect();
        if seen.insert(knot.clone()) {
            let (place, steps) = shortest(arrows, from);
            let count = knot.len();
            breaches.push(format!(
                "{place}: {count} modules import each other ({}): {steps}",
                knot.join(", ")
            ));
        }
    }
    breaches
}

/// The direct and indirect imports of a module.
fn reachable<'a>(arrows: &'a Arrows, from: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut work: Vec<&String> = arrows.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(module) = work.pop() {
        if found.insert(module) {
            work.extend(arrows.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

/// The place of the first import in a shortest cycle through this module, and the whole cycle.
fn shortest(arrows: &Arrows, from: &str) -> (String, String) {
    let mut work = VecDeque::from([(from, String::new(), from.to_owned())]);
    let mut seen = BTreeSet::new();
    while let Some((module, first, steps)) = work.pop_front() {
        for (to, place) in arrows.get(module).into_iter().flatten() {
            let first = if first.is_empty() { place.clone() } else { first.clone() };
            let steps = format!("{steps} -> {to} ({place})");
            if to == from {
                return (first, steps);
            }
            if seen.insert(to) {
                work.push_back((to, first, steps));
            }
        }
    }
    (String::new(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let named =
            |(name, text): &(&str, &str)| (format!("crates/x/src/{name}"), (*text).to_owned());
        knots(&files.iter().map(named).collect::<Vec<_>>())
    }

    #[test]
    fn a_cycle_is_reported_with_its_lines() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "\nuse crate::b::B;"),
            ("b.rs", "fn f() { super::c::g() }"),
            ("c/mod.rs", "mod inner;"),
            ("c/inner.rs", "use crate::a;"),
            ("d.rs", "use crate::{a, b, c};"),
        ];
        assert_eq!(
            of(&files),
            ["crates/x/src/a.rs:2: 3 modules import each other (a, b, c): \
              a -> b (crates/x/src/a.rs:2) -> c (crates/x/src/b.rs:1) -> a (crates/x/src/c/inner.rs:1)"]
        );
        assert!(of(&files[..4]).is_empty());
    }

    #[test]
    fn a_re_export_hides_no_import() {
        let root = ("lib.rs", "mod a; mod b;\npub use a::{A as Name};");
        let one = ("a.rs", "use crate::b::B;");
        assert_eq!(of(&[root, one, ("b.rs", "fn f(_: crate::Name) {}")]).len(), 1);
        assert!(of(&[root, one, ("b.rs", "fn f(_: crate::Other) {}")]).is_empty());
    }

    #[test]
    fn cycles_are_refused_between_siblings_but_not_with_a_parent() {
        let folder = ("a/mod.rs", "mod b; mod c; pub use b::B;");
        let up = ("a/b.rs", "use super::A;");
        assert!(of(&[("lib.rs", "mod a;"), folder, up, ("a/c.rs", "use super::b::B;")]).is_empty());
        let back = ("a/b.rs", "use super::c::C;");
        assert_eq!(of(&[("lib.rs", "mod a;"), folder, back, ("a/c.rs", "use super::B;")]).len(), 1);
    }

    #[test]
    fn tests_and_programs_are_exempt() {
        let root = ("lib.rs", "mod a;\n#[cfg(test)]\nmod b;");
        let files = [root, ("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")];
        assert!(of(&files).is_empty());
        let program = ("bin/c.rs", "use crate::a;");
        assert!(of(&[("lib.rs", "mod a;"), ("a.rs", "use crate::c;"), program]).is_empty());
    }

    #[test]
    fn a_self_import_terminates() {
        assert!(of(&[("lib.rs", "mod a;\nuse b::b;"), ("a.rs", "use crate::b;")]).is_empty());
    }
}
