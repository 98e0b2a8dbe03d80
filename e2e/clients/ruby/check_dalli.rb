# Every command of dalli (binary protocol), whose registry ships no tests.
require "dalli"

ADDRESS = ARGV[0]
# Between client and servers is a proxy, which has no items to list.
ROUTED = ENV.key?("E2E_ROUTED")
$checks = 0

def same(got, want, what)
  $checks += 1
  abort "#{what}: got #{got.inspect}, want #{want.inspect}" unless got == want
end

# The library returns nil, false or 0 for a failure, depending on the protocol.
def done?(value)
  ![nil, false, 0].include?(value)
end

def check
  c = Dalli::Client.new(ADDRESS, socket_timeout: 10, expires_in: 100)
  c.flush
  same(c.get("a"), nil, "get of nothing")
  same(done?(c.set("a", "one")), true, "set")
  same(c.get("a"), "one", "get")
  [7, 1.5, [1, nil, { "x" => :y }], "\u00e9", "x" * 500_000].each do |value|
    c.set("kinds", value)
    same(c.get("kinds"), value, "a kind of value")
  end
  same(done?(c.add("a", "two")), false, "add over a value")
  same(done?(c.add("b", "two")), true, "add")
  same(done?(c.replace("a", "1")), true, "replace")
  same(done?(c.replace("none", "1")), false, "replace of nothing")
  c.set("raw", "1", 100, raw: true)
  same(done?(c.append("raw", "2")), true, "append")
  same(done?(c.prepend("raw", "0")), true, "prepend")
  same(c.get("raw", raw: true), "012", "what was added")
  same(done?(c.append("none", "2")), false, "append to nothing")
  same(c.get_multi("a", "b", "none"), { "a" => "1", "b" => "two" }, "get_multi")
  500.times { |i| c.set("m#{i}", i) }
  same(c.get_multi((0...500).map { |i| "m#{i}" }).size, 500, "get_multi of 500")
  same(c.fetch("fetched") { "made" }, "made", "fetch of nothing")
  same(c.fetch("fetched") { "again" }, "made", "fetch")
  same(done?(c.cas("a") { |value| value + "!" }), true, "cas")
  same(c.get("a"), "1!", "what cas stored")
  same(c.cas("none") { 1 }, nil, "cas of nothing")
  lost = c.cas("a") do |value|
    c.set("a", "other")
    value
  end
  same(done?(lost), false, "cas with an old unique")
  same(c.incr("n", 5, 100, 10), 10, "a new count")
  same(c.incr("n", 5), 15, "incr")
  same(c.decr("n", 100), 0, "decr stops at zero")
  same(c.incr("nothing", 1), nil, "incr of nothing")
  same(done?(c.touch("a", 100)), true, "touch")
  same(done?(c.touch("none", 100)), false, "touch of nothing")
  same(c.gat("a", 200), "other", "get and touch")
  same(done?(c.delete("a")), true, "delete")
  same(done?(c.delete("a")), false, "delete of nothing")
  c.multi do
    c.set("q1", "quiet")
    c.set("q2", "quiet")
    c.delete("q1")
  end
  same(c.get_multi("q1", "q2"), { "q2" => "quiet" }, "quiet requests")
  same(c.get("k" * 300), nil, "a long key is hashed")
  unless ROUTED
    same(c.stats.values.first.fetch("curr_items").to_i.positive?, true, "stats")
    same(c.version.values.first.count("."), 2, "version")
  end
  same(c.alive!.nil?, false, "alive") if c.respond_to?(:alive!)
  c.close
end

check
puts "dalli: #{$checks} checks passed"
