//! A configuration from its text to its tree.

use std::path::Path;

use crate::ast::Config;
use crate::fanout;
use crate::json::{self, Node};
use crate::macros::Expander;
use crate::params::Params;
use crate::parse::Builder;
use crate::source::{At, Diagnostic, FileSources, Files, Severity, Sources};
use crate::twemproxy;
use crate::yaml;

/// A usable configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The tree.
    pub config: Config,
    /// Findings for its author.
    pub warnings: Vec<Diagnostic>,
}

/// An unusable configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render())]
pub struct Rejected {
    /// The files read before the refusal; a reload watches them, too.
    pub files: Files,
    /// At least one error, and any warnings.
    pub findings: Vec<Diagnostic>,
}

impl Rejected {
    /// The findings, one per line.
    #[must_use]
    pub fn render(&self) -> String {
        let lines = self.findings.iter().map(|finding| finding.render(&self.files));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The language of a text, one of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// mcrouter's.
    Mcrouter,
    /// twemproxy's.
    Twemproxy,
}

impl Language {
    /// mcrouter's configurations start with a brace or a comment; twemproxy's are files named
    /// `.yml` or `.yaml`.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        let yaml = Path::new(name)
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("yml") || end.eq_ignore_ascii_case("yaml"));
        if yaml && !text.trim_start().starts_with(['{', '/']) {
            Self::Twemproxy
        } else {
            Self::Mcrouter
        }
    }
}

/// Reads the configuration in `text`; messages call it `name`.
///
/// # Errors
///
/// The findings, with their places.
pub fn load(
    name: &str,
    text: &str,
    params: &Params,
    sources: &mut dyn Sources,
) -> Result<Loaded, Rejected> {
    let mut files = Files::default();
    let file = files.add(name);
    if let Language::Twemproxy = Language::of(name, text) {
        let (config, findings) = twemproxy::read(text, file, params.default_route());
        return finish(config, findings, files);
    }
    let mut warnings = Vec::new();
    let root = json::parse(text, file, &mut warnings)
        .and_then(|root| Expander::new(sources, &mut files, &mut warnings, params).config(&root));
    let root = match root {
        Ok(root) => root,
        Err(error) => {
            warnings.push(*error);
            return Err(Rejected { files, findings: warnings });
        }
    };
    let (config, findings) =
        Builder::new(sources, &mut files).config(&root, params.default_route());
    warnings.extend(findings);
    finish(config, warnings, files)
}

/// Another program's YAML text as JSON values: mappings, lists, and scalars as texts.
///
/// # Errors
///
/// If it is not such a document: second documents, anchors and tags are not read.
pub fn yaml_values(name: &str, text: &str) -> Result<serde_json::Value, Rejected> {
    let mut files = Files::default();
    let file = files.add(name);
    match yaml::parse(text, file) {
        Ok(root) => Ok(json(&root)),
        Err(error) => Err(Rejected { files, findings: vec![*error] }),
    }
}

fn json(node: &Node) -> serde_json::Value {
    if let Some(items) = node.as_array() {
        return items.iter().map(json).collect();
    }
    if let Some(members) = node.as_object() {
        let members = members.members().iter();
        return members.map(|(name, node)| (name.to_string(), json(node))).collect();
    }
    node.as_str().unwrap_or_default().into()
}

/// Reads the configuration in the file at `path`, and its imports from the same folder.
///
/// # Errors
///
/// If the file cannot be read, or as for [`load`].
pub fn load_file(path: &Path, params: &Params) -> Result<Loaded, Rejected> {
    load_path(path, |_| params.clone(), &mut FileSources::beside(path))
}

/// As [`load_file`], with parameters that depend on the text.
pub(crate) fn load_path(
    path: &Path,
    params: impl FnOnce(&str) -> Params,
    sources: &mut dyn Sources,
) -> Result<Loaded, Rejected> {
    let name = path.display().to_string();
    match FileSources::read_path(path) {
        Ok(text) => load(&name, &text, &params(&text), sources),
        Err(error) => {
            let mut files = Files::default();
            let at = At { file: files.add(&name), line: 0, column: 0 };
            let error = Diagnostic::error(at, format!("cannot be read: {error}"));
            Err(Rejected { files, findings: vec![error] })
        }
    }
}

fn finish(
    mut config: Config,
    mut findings: Vec<Diagnostic>,
    files: Files,
) -> Result<Loaded, Rejected> {
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.at));
    findings.dedup();
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(Rejected { files, findings });
    }
    if let Some(error) = fanout::excess(&config) {
        findings.insert(0, error);
        return Err(Rejected { files, findings });
    }
    config.files = files;
    Ok(Loaded { config, warnings: findings })
}
