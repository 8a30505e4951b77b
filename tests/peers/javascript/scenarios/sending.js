// Sending: single messages, batches, scheduled ones; what the service makes of them before anybody receives.
"use strict";
const assert = require("node:assert/strict");
const Long = require("long");
const { bodies, receiveAll } = require("./common");

module.exports = {
  async "every property of a message arrives as it was sent"(sb) {
    const client = sb.client();
    const sent = {
      body: "hello", messageId: "m1", correlationId: "c1", contentType: "text/plain", subject: "label", to: "there", replyTo: "back",
      replyToSessionId: "rs", partitionKey: "p1", timeToLive: 90000,
      applicationProperties: { text: "zwei", whole: 7, half: 1.5, yes: true, no: null, when: new Date("2030-01-02T03:04:05.678Z") },
    };
    const before = await sb.now();
    await client.createSender("orders").sendMessages(sent);
    const [got] = await receiveAll(client.createReceiver("orders", { skipConvertingDate: true }), 1);
    for (const key of Object.keys(sent)) assert.deepEqual(got[key], sent[key], key);
    assert.equal(got.deliveryCount, 0);
    assert.equal(got.state, "active");
    assert.equal(got.sequenceNumber.toNumber(), 1);
    assert.equal(got.enqueuedTimeUtc.getTime(), before.getTime());
    assert.equal(got.expiresAtUtc.getTime(), before.getTime() + 90000);
    assert.equal(got.lockedUntilUtc.getTime(), before.getTime() + 60000);
  },

  async "a message without an id is given one by the service"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages([{ body: "a", subject: "label" }, { body: "b" }]);
    const [first, second] = await receiveAll(client.createReceiver("orders"), 2);
    assert.match(first.messageId, /^[0-9a-f]{32}$/);
    assert.match(second.messageId, /^[0-9a-f]{32}$/);
    assert.notEqual(first.messageId, second.messageId);
    assert.equal(first.subject, "label");
  },

  async "bodies of every kind arrive as they were sent"(sb) {
    const client = sb.client();
    const sender = client.createSender("orders");
    const kinds = ["text", "", 7, 1.5, true, null, { a: [1, { b: null }] }, ["x", 2], Buffer.from([0, 255, 1])];
    await sender.sendMessages(kinds.map((body) => ({ body })));
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("orders"), kinds.length)), kinds);
  },

  async "value and sequence bodies and all AMQP sections arrive"(sb) {
    const client = sb.client();
    const annotated = (bodyType, body) => ({
      bodyType, body, header: { priority: 4 }, footer: { f: "end" }, messageAnnotations: { "x-mine": "noted" },
      applicationProperties: { a: 1 }, properties: { messageId: `id-${bodyType}`, groupSequence: 3 },
    });
    const sent = [annotated("value", "one"), annotated("sequence", [[1, "two"]]), annotated("data", Buffer.from("three"))];
    const sender = client.createSender("orders");
    for (const message of sent) await sender.sendMessages(message);
    const got = await receiveAll(client.createReceiver("orders"), 3);
    assert.deepEqual(got.map((message) => message._rawAmqpMessage.bodyType), ["value", "sequence", "data"]);
    assert.equal(got[0].body, "one");
    assert.deepEqual(got[1].body, [[1, "two"]]);
    for (const { _rawAmqpMessage: raw } of got) {
      assert.equal(raw.header.priority, 4);
      assert.equal(raw.footer.f, "end");
      assert.equal(raw.messageAnnotations["x-mine"], "noted");
      assert.equal(raw.properties.groupSequence, 3);
      assert.deepEqual(raw.applicationProperties, { a: 1 });
    }
  },

  async "an array of messages is stored in its order"(sb) {
    const client = sb.client();
    const sent = Array.from({ length: 200 }, (_, n) => ({ body: n, messageId: `m${n}` }));
    await client.createSender("orders").sendMessages(sent);
    assert.equal((await sb.counts("orders")).active, 200);
    const got = await receiveAll(client.createReceiver("orders", { receiveMode: "receiveAndDelete" }), 200);
    assert.deepEqual(got.map((message) => message.messageId), sent.map((message) => message.messageId));
    assert.deepEqual(got.map((message) => message.sequenceNumber.toNumber()), sent.map((_, n) => n + 1));
  },

  async "a batch takes what fits and is sent as one"(sb) {
    const client = sb.client();
    const sender = client.createSender("small");
    const batch = await sender.createMessageBatch();
    assert.equal(batch.maxSizeInBytes, 4096);
    let fits = 0;
    while (batch.tryAddMessage({ body: Buffer.alloc(500, fits), applicationProperties: { n: fits } })) fits += 1;
    assert.equal(batch.count, fits);
    assert.ok(fits >= 5 && fits <= 8, `${fits} messages of 500 bytes in a batch of 4096`);
    await sender.sendMessages(batch);
    const got = await receiveAll(client.createReceiver("small"), fits);
    assert.deepEqual(got.map((message) => message.applicationProperties.n), Array.from({ length: fits }, (_, n) => n));
    assert.deepEqual(got[3].body, Buffer.alloc(500, 3));
  },

  async "a batch can be asked for with a smaller size"(sb) {
    const sender = sb.client().createSender("orders");
    const batch = await sender.createMessageBatch({ maxSizeInBytes: 600 });
    assert.equal(batch.tryAddMessage({ body: Buffer.alloc(200) }), true);
    assert.equal(batch.tryAddMessage({ body: Buffer.alloc(400) }), false);
    await assert.rejects(sender.createMessageBatch({ maxSizeInBytes: 1024 * 1024 * 1024 }), /larger|greater|exceed/i);
  },

  async "a scheduled message stands as scheduled and is delivered at its time"(sb) {
    const client = sb.client();
    const due = await sb.later(600);
    const numbers = await client.createSender("orders").scheduleMessages([{ body: "a", messageId: "a" }, { body: "b" }], due);
    assert.equal(numbers.length, 2);
    assert.ok(numbers.every(Long.isLong));
    const receiver = client.createReceiver("orders");
    const standing = await receiver.peekMessages(10);
    assert.deepEqual(standing.map((message) => message.state), ["scheduled", "scheduled"]);
    assert.deepEqual(standing.map((message) => message.sequenceNumber.toString()), numbers.map(String));
    assert.equal(standing[0].scheduledEnqueueTimeUtc.getTime(), due.getTime());
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 50 }), []);
    await sb.advance(599);
    assert.equal((await sb.counts("orders")).scheduled, 2);
    await sb.advance(1);
    const got = await receiveAll(receiver, 2);
    assert.deepEqual(bodies(got), ["a", "b"]);
    assert.equal(got[0].messageId, "a");
    assert.equal(got[0].state, "active");
    assert.equal(got[0].enqueuedTimeUtc.getTime(), due.getTime());
  },

  async "a message sent with a time to enqueue is scheduled too"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages({ body: "later", scheduledEnqueueTimeUtc: await sb.later(60) });
    const { active, scheduled } = await sb.counts("orders");
    assert.deepEqual({ active, scheduled }, { active: 0, scheduled: 1 });
    await sb.advance(60);
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("orders"), 1)), ["later"]);
  },

  async "a cancelled message never comes, the others do"(sb) {
    const client = sb.client();
    const sender = client.createSender("orders");
    const due = await sb.later(60);
    const numbers = await sender.scheduleMessages(["a", "b", "c"].map((body) => ({ body })), due);
    await sender.cancelScheduledMessages([numbers[0], numbers[2]]);
    await sb.advance(60);
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("orders"), 1)), ["b"]);
    const { active, scheduled } = await sb.counts("orders");
    assert.deepEqual({ active, scheduled }, { active: 1, scheduled: 0 });
  },

  async "cancelling a number that is not scheduled is message not found"(sb) {
    const sender = sb.client().createSender("orders");
    await assert.rejects(sender.cancelScheduledMessages(Long.fromNumber(4711)), { name: "ServiceBusError", code: "MessageNotFound" });
  },

  async "a duplicate within the window is dropped, after it is taken"(sb) {
    const client = sb.client();
    const sender = client.createSender("once");
    await sender.sendMessages({ body: 1, messageId: "same" });
    await sender.sendMessages({ body: 2, messageId: "same" });
    await sb.advance(301);
    await sender.sendMessages({ body: 3, messageId: "same" });
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("once"), 2)), [1, 3]);
    assert.equal((await sb.counts("once")).active, 2);
  },

  async "an expired message goes to the dead-letter queue"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages({ body: "old", timeToLive: 1000 });
    await sb.advance(2);
    const [dead] = await receiveAll(client.createReceiver("orders", { subQueueType: "deadLetter" }), 1);
    assert.equal(dead.body, "old");
    assert.equal(dead.deadLetterReason, "TTLExpiredException");
  },

  async "a forwarding queue hands its messages on"(sb) {
    const client = sb.client();
    await client.createSender("inbox").sendMessages({ body: "forwarded", messageId: "f" });
    const [got] = await receiveAll(client.createReceiver("orders"), 1);
    assert.equal(got.body, "forwarded");
    assert.equal(got.messageId, "f");
  },

  async "a name with a slash is an entity like any other"(sb) {
    const client = sb.client();
    await client.createSender("site1/orders").sendMessages({ body: "nested" });
    const receiver = client.createReceiver("site1/orders");
    assert.deepEqual(bodies(await receiver.peekMessages(1)), ["nested"]);
    assert.deepEqual(bodies(await receiveAll(receiver, 1)), ["nested"]);
  },

  async "letter case of a name makes no difference"(sb) {
    const client = sb.client();
    await client.createSender("Orders").sendMessages({ body: "case" });
    assert.deepEqual(bodies(await client.createReceiver("ORDERS").peekMessages(1)), ["case"]);
  },

  async "messages of one partition key share the top bits of their numbers"(sb) {
    const client = sb.client();
    const sender = client.createSender("partitioned");
    for (const key of ["one", "two", "one", "two"]) await sender.sendMessages({ body: key, partitionKey: key });
    const got = await receiveAll(client.createReceiver("partitioned"), 4);
    const partitions = (key) => new Set(got.filter((message) => message.body === key).map(({ sequenceNumber }) => sequenceNumber.shiftRight(48).toNumber()));
    assert.equal(partitions("one").size, 1);
    assert.equal(partitions("two").size, 1);
    assert.deepEqual(got.map((message) => message.partitionKey).sort(), ["one", "one", "two", "two"]);
  },
};
