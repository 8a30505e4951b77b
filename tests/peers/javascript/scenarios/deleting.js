// Deleting many messages at once: what only the newest SDK, still a beta, can ask for.
"use strict";
const assert = require("node:assert/strict");
const Beta = require("service-bus-beta");
const { bodies, deferAll, receiveAll } = require("./common");

const numbered = (count) => Array.from({ length: count }, (_, n) => ({ body: n }));
// The SDK says its own time if none is given; the service's may be behind it.
const beta = (sb) => sb.client({}, sb.connectionString, Beta.ServiceBusClient);

module.exports = {
  async "the oldest messages are deleted, as many as asked for"(sb) {
    const client = beta(sb);
    await client.createSender("orders").sendMessages(numbered(10));
    await sb.advance(1);
    const receiver = client.createReceiver("orders");
    assert.equal(await receiver.deleteMessages({ maxMessageCount: 4, beforeEnqueueTime: await sb.now() }), 4);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), [4, 5, 6, 7, 8, 9]);
  },

  async "messages of a time after the cut-off stay"(sb) {
    const client = beta(sb);
    const sender = client.createSender("orders");
    await sender.sendMessages(numbered(3));
    await sb.advance(60);
    const cutOff = await sb.now();
    await sb.advance(60);
    await sender.sendMessages({ body: "new" });
    await sb.advance(60);
    const receiver = client.createReceiver("orders");
    assert.equal(await receiver.deleteMessages({ maxMessageCount: 100, beforeEnqueueTime: cutOff }), 3);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), ["new"]);
  },

  async "locked messages are passed over"(sb) {
    const client = beta(sb);
    await client.createSender("orders").sendMessages(numbered(3));
    await sb.advance(1);
    const [held] = await receiveAll(client.createReceiver("orders"), 1);
    const receiver = client.createReceiver("orders");
    assert.equal(await receiver.deleteMessages({ maxMessageCount: 100, beforeEnqueueTime: await sb.now() }), 2);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), [held.body]);
  },

  async "an empty queue has nothing to delete"(sb) {
    const receiver = beta(sb).createReceiver("orders");
    assert.equal(await receiver.deleteMessages({ maxMessageCount: 5 }), 0);
    assert.equal(await receiver.purgeMessages(), 0);
  },

  async "a purge takes several batches and leaves nothing that can be received"(sb) {
    const client = beta(sb);
    const sender = client.createSender("orders");
    for (let n = 0; n < 3; n += 1) await sender.sendMessages(numbered(400));
    await sb.advance(1);
    const purged = await client.createReceiver("orders").purgeMessages({ beforeEnqueueTime: await sb.now() });
    assert.equal(purged, 1200);
    assert.equal((await sb.counts("orders")).active, 0);
    assert.equal(await sb.requests("batch-delete-messages"), 3);
  },

  async "a dead-letter queue and a subscription are purged too"(sb) {
    const client = beta(sb);
    await client.createSender("orders").sendMessages({ body: "bad" });
    const receiver = client.createReceiver("orders");
    await receiver.deadLetterMessage((await receiveAll(receiver, 1))[0]);
    await client.createSender("events").sendMessages(numbered(2));
    await sb.advance(1);
    const beforeEnqueueTime = await sb.now();
    assert.equal(await client.createReceiver("orders", { subQueueType: "deadLetter" }).purgeMessages({ beforeEnqueueTime }), 1);
    assert.equal(await client.createReceiver("events", "all").purgeMessages({ beforeEnqueueTime }), 2);
    assert.equal((await sb.counts("events/Subscriptions/ruled")).active, 2);
  },

  async "messages of one session are deleted by its receiver"(sb) {
    const client = beta(sb);
    await client.createSender("sessions").sendMessages(["one", "two", "one"].map((sessionId) => ({ sessionId, body: sessionId })));
    await sb.advance(1);
    const session = await client.acceptSession("sessions", "one");
    assert.equal(await session.purgeMessages({ beforeEnqueueTime: await sb.now() }), 2);
    assert.equal((await sb.counts("sessions")).active, 1);
  },

  async "the newest SDK settles deferred messages as the older does"(sb) {
    const client = beta(sb);
    const numbers = await deferAll(client, "orders", ["a", "b"]);
    const receiver = client.createReceiver("orders");
    for (const message of await receiver.receiveDeferredMessages(numbers)) await receiver.completeMessage(message);
    assert.equal((await sb.counts("orders")).deferred, 0);
  },
};
