//! Running the file.

use mlua::chunk::ChunkMode;
use mlua::{HookTriggers, Lua, LuaOptions, LuaSerdeExt as _, StdLib, Value, VmState};

use super::Taken;
use crate::routing::Untranslatable;

/// A configuration of thousands of servers needs far less.
const MEMORY_BYTES_MAX: usize = 256 << 20;
const INSTRUCTIONS_MAX: u32 = 200_000_000;

/// Runs a file with the functions of routelib, and returns the arguments of its calls.
pub(super) fn run(name: &str, text: &str) -> Result<Taken, Untranslatable> {
    let failed = |error: mlua::Error| Untranslatable(without_trace(&error.to_string()));
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8;
    let lua = Lua::new_with(libraries, LuaOptions::default()).map_err(failed)?;
    lua.set_memory_limit(MEMORY_BYTES_MAX).map_err(failed)?;
    let every = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_MAX);
    lua.set_hook(every, |_, _| -> mlua::Result<VmState> {
        Err(mlua::Error::runtime("the file runs without an end"))
    })
    .map_err(failed)?;
    let taken: Value =
        lua.load(include_str!("prelude.lua")).set_name("=prelude").eval().map_err(failed)?;
    lua.load(text).set_name(format!("@{name}")).set_mode(ChunkMode::Text).exec().map_err(failed)?;
    if lua.globals().contains_key("mcp_config_routes").map_err(failed)? {
        return Err(Untranslatable(format!(
            "{name} defines mcp_config_routes, so its routes are functions in Lua; if it is \
             routelib.lua itself, name the file of -o proxy_arg"
        )));
    }
    // A function in a table is a handler written for that file: its place is left empty.
    let options = mlua::serde::de::Options::new().deny_unsupported_types(false);
    lua.from_value_with(taken, options).map_err(failed)
}

/// Lua's message starts with the place; the trace of our own calls follows it.
fn without_trace(error: &str) -> String {
    error.lines().next().unwrap_or_default().trim_start_matches("runtime error: ").to_owned()
}
