# A program that checks a server with dalli: ruby dalli.rb HOST PORT, with TRY_PROTOCOL (binary or meta),
# TRY_USER, TRY_PASSWORD and TRY_CA in the environment. Prints a line for each check; exits with 1 if one
# failed.

require "dalli"
require "logger"
require "openssl"
require "securerandom"

Dalli.logger = Logger.new(File::NULL)
HOST, PORT = ARGV
USER, PASSWORD, CA = ENV.values_at("TRY_USER", "TRY_PASSWORD", "TRY_CA")
PROTOCOL = ENV.fetch("TRY_PROTOCOL").to_sym
META = PROTOCOL == :meta
RAW = { raw: true }.freeze

def connect(password = PASSWORD)
  options = { protocol: PROTOCOL, socket_timeout: 10, socket_max_failures: 0 }
  options.update(username: USER, password: password) if USER
  options[:ssl_context] = OpenSSL::SSL::SSLContext.new.tap { |tls| tls.ca_file = CA; tls.verify_mode = 1 } if CA
  Dalli::Client.new("#{HOST}:#{PORT}", options)
end

def same(what, got, want)
  raise "#{what}: #{got.inspect[0, 80]} is not #{want.inspect[0, 80]}" unless got == want
end

def refused(what)
  answer = begin
    yield
  rescue Dalli::DalliError, ArgumentError
    nil
  end
  raise "#{what} is not refused: #{answer.inspect}" if answer
end

# Waits until items with a TTL of one second have expired.
def pause
  sleep 2.1
end

C = connect
CHECKS = {
  "connect" => -> { C.flush },

  "set and get" => lambda {
    same "get nothing", C.get("nothing"), nil
    C.set("key", "value")
    same "get", C.get("key"), "value"
    C.set("key", "another", 100)
    same "get", C.get("key"), "another"
    C.set("empty", "", nil, RAW)
    same "get empty", C.get("empty", RAW), ""
  },

  "add" => lambda {
    same "add", !!C.add("added", "one"), true
    same "add once more", !!C.add("added", "two"), false
    same "get", C.get("added"), "one"
  },

  "replace" => lambda {
    same "replace nothing", !!C.replace("replaced", "one"), false
    C.set("replaced", "one")
    same "replace", !!C.replace("replaced", "two"), true
    same "get", C.get("replaced"), "two"
  },

  "append and prepend" => lambda {
    same "append to nothing", !!C.append("joined", "x"), false
    C.set("joined", "b", nil, RAW)
    C.append("joined", "c")
    C.prepend("joined", "a")
    same "get", C.get("joined", RAW), "abc"
  },

  "cas" => lambda {
    C.set("swapped", "one")
    value, unique = C.get_cas("swapped")
    same "gets", value, "one"
    same "cas", !!C.set_cas("swapped", "two", unique), true
    same "cas once more", !!C.set_cas("swapped", "three", unique), false
    same "cas with a block", !!C.cas("swapped") { |held| "#{held}!" }, true
    same "get", C.get("swapped"), "two!"
    _, unique = C.get_cas("swapped")
    same "delete with cas", !!C.delete_cas("swapped", unique), true
    same "cas of nothing", !!C.set_cas("swapped", "three", unique), false
  },

  "incr and decr" => lambda {
    C.set("count", "10", nil, RAW)
    same "incr", C.incr("count", 5), 15
    same "decr", C.decr("count", 3), 12
    same "decr below 0", C.decr("count", 100), 0
    C.set("count", "18446744073709551615", nil, RAW)
    same "incr above 2**64", C.incr("count", 2), 1
    same "incr of nothing", C.incr("nothing", 1), nil
    C.set("count", "word", nil, RAW)
    refused("incr of a word") { C.incr("count", 1) }
  },

  "incr with initial value" => lambda {
    same "at first", C.incr("begun", 5, 100, 10), 10
    same "then", C.incr("begun", 5, 100, 10), 15
  },

  "touch" => lambda {
    same "touch nothing", !!C.touch("touched", 100), false
    C.set("touched", "value", 1)
    same "touch", !!C.touch("touched", 100), true
    pause
    same "get", C.get("touched"), "value"
  },

  "gat" => lambda {
    same "gat nothing", C.gat("gat", 100), nil
    C.set("gat", "value", 1)
    same "gat", C.gat("gat", 100), "value"
    pause
    same "get", C.get("gat"), "value"
  },

  "delete" => lambda {
    C.set("deleted", "value")
    same "delete", !!C.delete("deleted"), true
    same "delete once more", !!C.delete("deleted"), false
    same "get", C.get("deleted"), nil
  },

  # Quiet writes and a multi-get, pipelined.
  "multi-get" => lambda {
    keys = (0...200).to_h { |n| ["many-#{n}", "value-#{n}"] }
    C.multi { keys.each { |key, value| C.set(key, value) } }
    same "get_multi", C.get_multi(*keys.keys, "nothing"), keys
    same "get_multi_cas", C.get_multi_cas(*keys.keys).transform_values(&:first), keys
  },

  # Objects: the flags tell how they were serialized.
  "flags" => lambda {
    object = { "numbers" => [1, 2.5], "long" => "x" * 10_000 }
    C.set("object", object, nil, compress: true)
    same "get", C.get("object"), object
  },

  "large value" => lambda {
    large = SecureRandom.bytes(1_000_000)
    # In the meta protocol dalli would compress the value, but ignore the flag for raw values.
    C.set("large", large, nil, raw: true, compress: false)
    same "get", C.get("large", RAW).b == large, true
  },

  "too large" => lambda {
    refused("2 MB") { C.set("large", SecureRandom.bytes(2_000_000), nil, RAW) }
    C.set("after", "value")
    same "get", C.get("after"), "value"
  },

  "odd keys" => lambda {
    ["k" * 250, "k" * 300, "!\"\#$%&'()*+,/:;<=>?@[]^`{|}~", "schlüssel-鍵", "with a space", "1"].each do |key|
      C.set(key, key)
      same "get #{key[0, 20]}", C.get(key), key
    end
  },

  "expiry" => lambda {
    C.set("soon", "value", 1)
    C.set("then", "value", 10_000_000) # more than 30 days: dalli converts it to a time
    same "get", C.get("soon"), "value"
    same "get", C.get("then"), "value"
    pause
    same "get", C.get("soon"), nil
  },

  "stats" => lambda {
    _, fields = C.stats.first
    same "curr_items and pid", fields.key?("curr_items") && fields.key?("pid"), true
    same "stats items", C.stats(:items).first.last.any?, true
  },

  "version" => -> { same "version", C.version.first.last.include?("."), true },

  "flush" => lambda {
    C.set("flushed", "value")
    C.flush
    same "get", C.get("flushed"), nil
  },

  "concurrent" => lambda {
    workers = (0...20).map do |worker|
      Thread.new do
        Thread.current.report_on_exception = false
        own = connect
        20.times do |n|
          own.set("worker-#{worker}", n)
          same "get", own.get("worker-#{worker}"), n
        end
        own.close
      end
    end
    workers.each(&:join)
  },
}
if META && C.respond_to?(:fetch_with_lock)
  # One of the clients that miss recomputes the value, the others get the old one.
  CHECKS["recache"] = lambda {
    C.set("recached", "old", 10)
    made = (1..3).map { C.fetch_with_lock("recached", ttl: 100, recache_threshold: 20) { "new" } }
    same "values", made, %w[new new new]
    same "found", C.get_with_metadata("recached")[:value], "new"
    same "a miss is filled once", C.fetch_with_lock("filled", ttl: 100) { "made" }, "made"
    same "and found", C.fetch_with_lock("filled", ttl: 100) { "made again" }, "made"
  }
end
if USER
  CHECKS["wrong password"] = -> { refused("it") { connect("#{PASSWORD}x").set("key", "value") } }
end

failed = false
CHECKS.each do |name, check|
  check.call
  puts "ok #{name}"
rescue StandardError => e
  puts "FAILED #{name}: #{e.class}: #{e.message.tr("\n", ' ')[0, 200]}"
  failed = true
end
exit 1 if failed
