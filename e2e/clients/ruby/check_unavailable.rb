# dalli through a proxy, one of whose two servers is unavailable: a multiget has every hit of the
# other.
require "dalli"

client = Dalli::Client.new(ARGV[0], socket_timeout: 10)
stored = (0...40).map { |number| "k#{number}" }.select do |key|
  client.set(key, "value of #{key}")
rescue Dalli::DalliError
  false
end
abort "all or no servers are available: #{stored}" unless (1...40).cover?(stored.size)
got = client.get_multi((0...40).map { |number| "k#{number}" })
want = stored.to_h { |key| [key, "value of #{key}"] }
abort "got #{got}, want #{want}" unless got == want
puts "dalli: 2 checks passed"
