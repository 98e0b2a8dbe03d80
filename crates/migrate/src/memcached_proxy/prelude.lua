-- Run before a configuration for routelib. The functions keep what they are given; the names
-- are those of routelib's README and of the proxy's own commands.
local taken = { pools = {}, routes = {}, settings = {} }

function pools(all)
    for name, pool in pairs(all) do taken.pools[name] = pool end
end

function routes(tree)
    taken.routes[tree.tag or "default"] = tree
end

function settings(all) taken.settings = all end

function local_zone(zone) taken.zone = zone end

function cmdmap(commands) return { commands = commands } end

for _, name in ipairs { "allfastest", "allsync", "direct", "failover", "split", "ttl", "zfailover" } do
    _G["route_" .. name] = function(settings) return { route = name, settings = settings } end
end

for _, name in ipairs { "verbose", "debug", "say", "dsay", "print" } do
    _G[name] = function() end
end

-- A library that is asked for is routelib, whose functions are here already.
function require() return _G end

mcp = { dist_jump_hash = "jump_hash", dist_ring_hash = "ring_hash", hash_xxhash = "xxhash" }
mcp.CMD_ANY_STORAGE = "all"
for _, name in ipairs {
    "mg", "ms", "md", "mn", "ma", "me", "get", "gat", "set", "add", "cas", "gets", "gats", "incr",
    "decr", "touch", "append", "delete", "replace", "prepend",
} do
    mcp["CMD_" .. name:upper()] = name
end

return taken
