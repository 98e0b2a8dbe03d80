//! mcrouter's macros: `"@name(a,b)"`, `{"type": "name", ...}`, `%parameter%`, `vars`, `macros`.
//!
//! Source: mcrouter's `lib/config/ConfigPreprocessor.cpp`, whose rules these are. This version
//! counts its steps, so that no text makes it run forever, and records the place of its results.
//!
//! The methods of [`Expander`] are in four files, since macros call each other: values and
//! constants here, calls in `call`, mcrouter's own macros in `lists` and `builtins`. All count
//! steps.

mod builtins;
mod call;
mod lists;
mod scope;

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::json::{self, Map, Node, Value};
use crate::params::{ParamValue, Params};
use crate::source::{At, Diagnostic, Fallible, Files, Sources, fail};
use builtins::{BUILTINS, Builtin};
use scope::Scope;

/// Maximum nesting of calls and values; mcrouter's own limit.
const NESTED_MAX: u32 = 250;
/// Maximum number of expanded values in total.
const STEPS_MAX: u64 = 3_000_000;

/// Expands the macros of a configuration.
pub(crate) struct Expander<'s> {
    sources: &'s mut dyn Sources,
    files: &'s mut Files,
    warnings: &'s mut Vec<Diagnostic>,
    params: &'s Params,
    consts: BTreeMap<Arc<str>, Const>,
    macros: BTreeMap<Arc<str>, Arc<Macro>>,
    imports: BTreeMap<String, Node>,
    importing: Vec<String>,
    steps: u64,
    nested: u32,
}

enum Const {
    Raw(Node),
    Expanding,
    Ready(Node),
}

struct Macro {
    params: Vec<Param>,
    required: usize,
    result: Node,
}

struct Param {
    name: Arc<str>,
    default: Option<Node>,
    required: bool,
}

impl<'s> Expander<'s> {
    pub(crate) fn new(
        sources: &'s mut dyn Sources,
        files: &'s mut Files,
        warnings: &'s mut Vec<Diagnostic>,
        params: &'s Params,
    ) -> Self {
        let consts = params.values().iter().map(|(name, value)| {
            let value = match value {
                ParamValue::Text(text) => Value::String(text.as_str().into()),
                ParamValue::Number(number) => Value::Int(*number),
            };
            (name.as_str().into(), Const::Ready(Node { value, at: At::default() }))
        });
        Self {
            sources,
            files,
            warnings,
            params,
            consts: consts.collect(),
            macros: BTreeMap::new(),
            imports: BTreeMap::new(),
            importing: Vec::new(),
            steps: 0,
            nested: 0,
        }
    }

    /// The configuration with its macros expanded, and without its `macros`.
    pub(crate) fn config(&mut self, config: &Node) -> Fallible<Node> {
        let Some(map) = config.as_object() else {
            return fail(
                config.at,
                format!("a configuration is an object, not {}", config.value.kind()),
            );
        };
        let mut members = map.members().clone();
        if let Some(macros) = members.shift_remove("macros") {
            let macros = self.expand(&macros, &Scope::base())?;
            self.define(&macros)?;
        }
        let rest = Node::object(members, config.at)?;
        self.expand(&rest, &Scope::base())
    }

    fn define(&mut self, macros: &Node) -> Fallible<()> {
        if let Some(list) = macros.as_array() {
            return list.iter().try_for_each(|macros| self.define(macros));
        }
        let Some(map) = macros.as_object() else {
            let kind = macros.value.kind();
            return fail(
                macros.at,
                format!("'macros' is an object or a list of objects, not {kind}"),
            );
        };
        for (name, definition) in map.members() {
            let result = || match definition.get("result") {
                Some(result) => Ok(result.clone()),
                None => fail(definition.at, format!("the macro '{name}' has no 'result'")),
            };
            match definition.get("type").and_then(Node::as_str) {
                Some("macroDef") => {
                    let (params, required) = params_of(name, definition)?;
                    let definition = Macro { params, required, result: result()? };
                    self.macros.insert(Arc::clone(name), Arc::new(definition));
                }
                Some("constDef") => {
                    self.consts.insert(Arc::clone(name), Const::Raw(result()?));
                }
                _ => {
                    let message =
                        format!("the macro '{name}' needs \"type\": \"macroDef\" or \"constDef\"");
                    return fail(definition.at, message);
                }
            }
        }
        Ok(())
    }

    /// Counts work, in values and in bytes of strings.
    fn charge(&mut self, steps: u64, at: At) -> Fallible<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX {
            return fail(at, format!("the macros write out more than {STEPS_MAX} values"));
        }
        Ok(())
    }

    /// Expands one value.
    fn expand(&mut self, node: &Node, scope: &Scope<'_>) -> Fallible<Node> {
        self.charge(1, node.at)?;
        self.nested += 1;
        if self.nested > NESTED_MAX {
            self.nested -= 1;
            return fail(
                node.at,
                format!("macros nested more than {NESTED_MAX} deep; is there a cycle?"),
            );
        }
        let result = match &node.value {
            Value::String(text) => self.expand_text(text, node.at, scope),
            Value::Array(list) => self.expand_list(list.items(), node.at, scope),
            Value::Object(map) => self.expand_object(map, node.at, scope),
            _ => Ok(node.clone()),
        };
        self.nested -= 1;
        result
    }

    fn expand_list(&mut self, items: &[Node], at: At, scope: &Scope<'_>) -> Fallible<Node> {
        let items = items.iter().map(|item| self.expand(item, scope)).collect::<Fallible<_>>()?;
        Node::array(items, at)
    }

    fn expand_object(&mut self, map: &Map, at: At, outer: &Scope<'_>) -> Fallible<Node> {
        let extended;
        let scope = match map.get("vars") {
            None => outer,
            Some(vars) => {
                extended = self.vars(vars, outer)?;
                &extended
            }
        };
        if let Some(kind) = map.get("type") {
            let kind = self.expand(kind, scope)?;
            if let Some(name) = kind.as_str()
                && let Some(result) = self.expand_call(name, map, at, scope)
            {
                return result;
            }
        }
        let mut members = IndexMap::with_capacity(map.members().len());
        for (name, value) in map.members() {
            if &**name == "vars" {
                continue;
            }
            let name = self.expand_text(name, value.at, scope)?;
            let Value::String(name) = name.value else {
                let kind = name.value.kind();
                return fail(value.at, format!("the name of this member is {kind}, written out"));
            };
            members.insert(name, self.expand(value, scope)?);
        }
        Node::object(members, at)
    }

    /// The scope with `vars`, which may use each other.
    fn vars<'o>(&mut self, vars: &Node, outer: &'o Scope<'o>) -> Fallible<Scope<'o>> {
        let Some(map) = vars.as_object() else {
            return fail(vars.at, format!("'vars' is an object, not {}", vars.value.kind()));
        };
        let scope = Scope::inside(outer);
        for (name, value) in map.members() {
            scope.add_lazy(name, value.clone(), value.at)?;
        }
        for name in map.members().keys() {
            self.lookup(name, vars.at, &scope)?;
        }
        Ok(scope)
    }

    /// The value of a parameter or constant.
    fn lookup(&mut self, name: &str, at: At, scope: &Scope<'_>) -> Fallible<Node> {
        match scope.find(name) {
            Some(scope::Found::Ready(node)) => return Ok(node),
            Some(scope::Found::Busy) => return fail(at, format!("'{name}' is made of itself")),
            Some(scope::Found::Lazy(node, owner)) => {
                owner.set_busy(name);
                let node = self.expand(&node, owner)?;
                owner.set(name, node.clone());
                return Ok(node);
            }
            None => {}
        }
        match self.consts.insert(name.into(), Const::Expanding) {
            None => {
                self.consts.remove(name);
                let error = Diagnostic::error(at, format!("there is no parameter '{name}'"));
                Err(Box::new(error.meant(name, self.consts.keys().map(|name| &**name))))
            }
            Some(Const::Expanding) => fail(at, format!("the constant '{name}' is made of itself")),
            Some(Const::Ready(node)) => {
                self.consts.insert(name.into(), Const::Ready(node.clone()));
                Ok(node)
            }
            Some(Const::Raw(node)) => {
                let node = self.expand(&node, &Scope::base())?;
                self.consts.insert(name.into(), Const::Ready(node.clone()));
                Ok(node)
            }
        }
    }

    fn is_defined(&self, name: &str, scope: &Scope<'_>) -> bool {
        scope.find(name).is_some() || self.consts.contains_key(name)
    }

    /// The long form of a call; `None` if the type is not a macro.
    fn expand_call(
        &mut self,
        name: &str,
        map: &Map,
        at: At,
        scope: &Scope<'_>,
    ) -> Option<Fallible<Node>> {
        let result = match name {
            "macroDef" | "constDef" => {
                let mut members = map.members().clone();
                members.shift_remove("vars");
                return Some(Node::object(members, at));
            }
            "transform" => self.transform(map, at, scope),
            "process" => self.process(map, at, scope),
            "foreach" => self.foreach(map, at, scope),
            _ if self.macros.contains_key(name) => {
                let params = self.params_of_macro(name);
                let arguments = params.iter().map(|name| map.get(name).cloned()).collect();
                self.call_macro(name, arguments, at, scope)
            }
            _ => {
                let builtin = BUILTINS.iter().find(|builtin| builtin.name == name)?;
                let arguments = builtin.params.iter().map(|(name, _)| map.get(name).cloned());
                self.call_builtin(builtin, arguments.collect(), at, scope)
            }
        };
        Some(result.map_err(|error| self.called(error, name, at)))
    }

    fn params_of_macro(&self, name: &str) -> Vec<Arc<str>> {
        let params = self.macros.get(name).map(|definition| &definition.params);
        params.into_iter().flatten().map(|param| Arc::clone(&param.name)).collect()
    }

    /// Adds the call to an error from it; the innermost two suffice to find it.
    fn called(&self, mut error: Box<Diagnostic>, name: &str, at: At) -> Box<Diagnostic> {
        const MENTION: &str = ", in macro '";
        if error.message.matches(MENTION).count() < 2 {
            let place = self.files.place(at);
            error.message = format!("{}{MENTION}{name}' at {place}", error.message);
        }
        error
    }

    /// A macro of the configuration, whose arguments are not expanded yet.
    fn call_macro(
        &mut self,
        name: &str,
        arguments: Vec<Option<Node>>,
        at: At,
        scope: &Scope<'_>,
    ) -> Fallible<Node> {
        let Some(definition) = self.macros.get(name).cloned() else {
            return fail(at, format!("there is no macro '{name}'"));
        };
        let inner = Scope::base();
        for (param, argument) in definition.params.iter().zip(arguments) {
            let value = match argument {
                Some(argument) => self.expand(&argument, scope)?,
                None if param.required => {
                    return fail(at, format!("the parameter '{}' is missing", param.name));
                }
                None => match &param.default {
                    Some(default) => default.clone(),
                    None => continue,
                },
            };
            inner.add_ready(&param.name, value, at)?;
        }
        self.expand(&definition.result, &inner)
    }

    /// A built-in macro.
    fn call_builtin(
        &mut self,
        builtin: &Builtin,
        arguments: Vec<Option<Node>>,
        at: At,
        scope: &Scope<'_>,
    ) -> Fallible<Node> {
        for ((name, required), argument) in builtin.params.iter().zip(&arguments) {
            if *required && argument.is_none() {
                return fail(at, format!("the parameter '{name}' is missing"));
            }
        }
        if builtin.lazy {
            return self.lazy(builtin.name, &arguments, at, scope);
        }
        let mut written = Vec::with_capacity(arguments.len());
        for argument in &arguments {
            let argument = argument.as_ref().map(|argument| self.expand(argument, scope));
            written.push(argument.transpose()?.unwrap_or(Node { value: Value::Null, at }));
        }
        self.eager(builtin.name, &written, at, scope)
    }

    /// `@import(path)`: read once for each path, however often it is used.
    fn import(&mut self, path: &Node, default: Option<&Node>, scope: &Scope<'_>) -> Fallible<Node> {
        let path = self.expand(path, scope)?;
        let Some(name) = path.as_str() else {
            return fail(
                path.at,
                format!("the path of an import is a string, not {}", path.value.kind()),
            );
        };
        if let Some(known) = self.imports.get(name) {
            return Ok(known.clone());
        }
        if self.importing.iter().any(|busy| busy == name) {
            let cycle = self.importing.join(" -> ");
            return fail(path.at, format!("the import is a cycle: {cycle} -> {name}"));
        }
        self.importing.push(name.to_owned());
        let result = self.read_import(name, path.at);
        self.importing.pop();
        let result = match (result, default) {
            (Err(_), Some(default)) => self.expand(default, scope)?,
            (result, _) => result?,
        };
        self.imports.insert(name.to_owned(), result.clone());
        Ok(result)
    }

    fn read_import(&mut self, name: &str, at: At) -> Fallible<Node> {
        let (text, shown) = match self.sources.read(name) {
            Ok(read) => read,
            Err(error) => return fail(at, format!("cannot import '{name}': {error}")),
        };
        let file = self.files.add(&shown);
        self.charge(text.len() as u64 / 64, at)?;
        let node = json::parse(&text, file, self.warnings)?;
        self.expand(&node, &Scope::base())
    }
}

/// The parameters of a definition, and the number that a call must give.
fn params_of(name: &str, definition: &Node) -> Fallible<(Vec<Param>, usize)> {
    let Some(list) = definition.get("params") else { return Ok((Vec::new(), 0)) };
    let Some(items) = list.as_array() else {
        return fail(
            list.at,
            format!("'params' of the macro '{name}' is a list, not {}", list.value.kind()),
        );
    };
    let mut params: Vec<Param> = Vec::new();
    for item in items {
        let given = item.as_str().or_else(|| item.get("name").and_then(Node::as_str));
        let Some(given) = given else {
            return fail(item.at, "a parameter is a name, or an object with a 'name'");
        };
        let default = item.get("default").filter(|default| default.value != Value::Null).cloned();
        let optional = match item.get("optional").map(|optional| &optional.value) {
            None => item.get("default").is_some(),
            Some(Value::Bool(optional)) if *optional || item.get("default").is_none() => *optional,
            Some(_) => {
                return fail(
                    item.at,
                    format!(
                        "'optional' of the parameter '{given}' is a boolean, and not false beside a default"
                    ),
                );
            }
        };
        if !optional && params.iter().any(|param| !param.required) {
            return fail(
                item.at,
                format!("'{given}' follows an optional parameter, so it must be optional, too"),
            );
        }
        if params.iter().any(|param| &*param.name == given) {
            return fail(item.at, format!("there are two parameters '{given}'"));
        }
        params.push(Param { name: given.into(), default, required: !optional });
    }
    let required = params.iter().filter(|param| param.required).count();
    Ok((params, required))
}
