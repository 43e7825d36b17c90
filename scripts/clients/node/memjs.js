// A program that checks a server with memjs, by the binary protocol: node memjs.js HOST PORT, with
// TRY_USER and TRY_PASSWORD in the environment. Prints a line for each check; exits with 1 if one failed.
"use strict";

const assert = require("node:assert");
const crypto = require("node:crypto");
const { Client } = require("memjs");

const [host, port] = process.argv.slice(2);
const { TRY_USER: user, TRY_PASSWORD: password } = process.env;

const connect = (secret = password) =>
  Client.create(`${host}:${port}`, {
    username: user,
    password: secret,
    timeout: 10,
    retries: 1,
    logger: { log() {} },
  });
const client = connect();

const value = async (key) => (await client.get(key)).value?.toString() ?? null;
const now = () => Math.floor(Date.now() / 1000);
// Waits until items with a TTL of one second have expired.
const pause = () => new Promise((done) => setTimeout(done, 2100));

const checks = {
  async connect() {
    await client.flush();
  },

  async "set and get"() {
    assert.equal(await value("nothing"), null);
    assert.equal(await client.set("key", "value", {}), true);
    assert.equal(await value("key"), "value");
    await client.set("key", "another", { expires: 100 });
    assert.equal(await value("key"), "another");
    await client.set("empty", "", {});
    assert.equal(await value("empty"), "");
  },

  async add() {
    assert.equal(await client.add("added", "one", {}), true);
    assert.equal(await client.add("added", "two", {}), false);
    assert.equal(await value("added"), "one");
  },

  async replace() {
    assert.equal(await client.replace("replaced", "one", {}), false);
    await client.set("replaced", "one", {});
    assert.equal(await client.replace("replaced", "two", {}), true);
    assert.equal(await value("replaced"), "two");
  },

  // Its prepend() sends an append: a bug of the library.
  async append() {
    await assert.rejects(client.append("joined", "x"), /Item not stored/i);
    await client.set("joined", "a", {});
    assert.equal(await client.append("joined", "b"), true);
    assert.equal(await value("joined"), "ab");
  },

  async "incr and decr"() {
    await client.set("count", "10", {});
    assert.equal((await client.increment("count", 5, {})).value, 15);
    assert.equal((await client.decrement("count", 3, {})).value, 12);
    assert.equal((await client.decrement("count", 100, {})).value, 0);
    await client.set("count", "word", {});
    await assert.rejects(client.increment("count", 1, {}), /non-numeric/i);
    assert.equal(await value("count"), "word");
  },

  async "incr with initial value"() {
    assert.equal((await client.increment("begun", 5, { initial: 10 })).value, 10);
    assert.equal((await client.increment("begun", 5, { initial: 10 })).value, 15);
  },

  async touch() {
    assert.equal(await client.touch("touched", 100), false);
    await client.set("touched", "value", { expires: 1 });
    assert.equal(await client.touch("touched", 100), true);
    await pause();
    assert.equal(await value("touched"), "value");
  },

  async delete() {
    await client.set("deleted", "value", {});
    assert.equal(await client.delete("deleted"), true);
    assert.equal(await client.delete("deleted"), false);
    assert.equal(await value("deleted"), null);
  },

  async "large value"() {
    const large = crypto.randomBytes(1_000_000);
    await client.set("large", large, {});
    assert.ok(large.equals((await client.get("large")).value));
  },

  async "too large"() {
    await assert.rejects(client.set("large", Buffer.alloc(2_000_000), {}), /too large/i);
    await client.set("after", "value", {});
    assert.equal(await value("after"), "value");
  },

  async "odd keys"() {
    for (const key of ["k".repeat(250), "!\"#$%&'()*+,/:;<=>?@[]^`{|}~", "schlüssel-鍵", "1"]) {
      await client.set(key, key, {});
      assert.equal(await value(key), key);
    }
  },

  async expiry() {
    await client.set("soon", "value", { expires: 1 });
    await client.set("then", "value", { expires: now() + 100 });
    await client.set("past", "value", { expires: now() - 100 });
    assert.equal(await value("soon"), "value");
    assert.equal(await value("then"), "value");
    assert.equal(await value("past"), null);
    await pause();
    assert.equal(await value("soon"), null);
  },

  async stats() {
    const fields = await new Promise((done, failed) =>
      client.stats((error, server, found) => (error ? failed(error) : done(found))),
    );
    assert.ok(fields.curr_items && fields.pid);
  },

  async flush() {
    await client.set("flushed", "value", {});
    await client.flush();
    assert.equal(await value("flushed"), null);
  },

  // A thousand requests before the first reply.
  async concurrent() {
    const keys = Array.from({ length: 1000 }, (_, number) => `worker-${number}`);
    await Promise.all(keys.map((key) => client.set(key, key, {})));
    assert.deepEqual(await Promise.all(keys.map(value)), keys);
  },

  async "key too long"() {
    const other = connect();
    await assert.rejects(other.set("k".repeat(251), "value", {}));
    other.close();
  },
};
if (user) {
  checks["wrong password"] = async () => {
    const other = connect(`${password}x`);
    await assert.rejects(other.get("key"), undefined, "it is let in");
    other.close();
  };
}

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`FAILED ${name}: ${String(error?.message ?? error).split("\n").join(" ").slice(0, 200)}`);
      process.exitCode = 1;
    }
  }
  for (const name of ["cas", "gat", "multi-get", "flags", "version"]) {
    console.log(`without ${name}`);
  }
  client.close();
})();
