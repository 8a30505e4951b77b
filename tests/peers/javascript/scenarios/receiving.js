// Receiving from queues: both modes, three ways to receive, every way to settle, locks, peeking.
"use strict";
const assert = require("node:assert/strict");
const Long = require("long");
const { arrival, bodies, receiveAll, serviceBusError } = require("./common");

const deadLetters = (client, queue) => client.createReceiver(queue, { subQueueType: "deadLetter" });

// One message is sent to the queue and received.
async function receiveOne(client, queue, message = { body: "one" }) {
  await client.createSender(queue).sendMessages(message);
  const receiver = client.createReceiver(queue);
  const [received] = await receiveAll(receiver, 1);
  return [receiver, received];
}

module.exports = {
  async "a completed message is gone"(sb) {
    const [receiver, message] = await receiveOne(sb.client(), "orders");
    assert.equal((await sb.counts("orders")).active, 1);
    await receiver.completeMessage(message);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "receive and delete takes the message at once and locks nothing"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages([{ body: 1 }, { body: 2 }]);
    const receiver = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
    const got = await receiveAll(receiver, 2);
    assert.deepEqual(bodies(got), [1, 2]);
    assert.equal(got[0].lockToken, undefined);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "an empty queue gives nothing within the time, and later what comes"(sb) {
    const client = sb.client();
    const receiver = client.createReceiver("orders");
    assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 50 }), []);
    await client.createSender("orders").sendMessages({ body: "then" });
    // What was sent after the drain goes to the next call and to no other.
    assert.deepEqual(bodies(await receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 })), ["then"]);
  },

  async "a receiver that waits gets a message as it is sent"(sb) {
    const client = sb.client();
    const waiting = client.createReceiver("orders").receiveMessages(1, { maxWaitTimeInMs: 10000 });
    await client.createSender("orders").sendMessages({ body: "soon" });
    assert.deepEqual(bodies(await waiting), ["soon"]);
  },

  async "subscribe with auto-complete settles what the handler took"(sb) {
    const client = sb.client();
    const receiver = client.createReceiver("orders");
    const seen = [];
    const all = arrival();
    const subscription = receiver.subscribe({
      async processMessage(message) {
        if (seen.push(message.body) === 20) all.resolve();
      },
      async processError({ error }) {
        all.reject(error);
      },
    });
    await client.createSender("orders").sendMessages(Array.from({ length: 20 }, (_, n) => ({ body: n })));
    await all.promise;
    await subscription.close();
    await receiver.close();
    assert.deepEqual(seen, Array.from({ length: 20 }, (_, n) => n));
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "subscribe abandons what its handler throws on, until it is dead-lettered"(sb) {
    const client = sb.client();
    const receiver = client.createReceiver("orders");
    const counts = [];
    const third = arrival();
    const subscription = receiver.subscribe({
      async processMessage(message) {
        counts.push(message.deliveryCount);
        throw new Error("no");
      },
      async processError({ error, errorSource }) {
        if (errorSource !== "processMessageCallback") third.reject(error);
        if (counts.length === 3) third.resolve();
      },
    });
    await client.createSender("orders").sendMessages({ body: "poison" });
    await third.promise;
    const [dead] = await receiveAll(deadLetters(client, "orders"), 1);
    await subscription.close();
    assert.deepEqual(counts, [0, 1, 2]);
    assert.equal(dead.body, "poison");
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  },

  async "subscribe without auto-complete, several calls at once, settled by hand"(sb) {
    const client = sb.client();
    const receiver = client.createReceiver("orders");
    const held = [];
    const four = arrival();
    const subscription = receiver.subscribe(
      {
        async processMessage(message) {
          if (held.push(message) === 4) four.resolve();
          await four.promise;
          await receiver.completeMessage(message);
        },
        async processError({ error }) {
          four.reject(error);
        },
      },
      { autoCompleteMessages: false, maxConcurrentCalls: 4 },
    );
    await client.createSender("orders").sendMessages([1, 2, 3, 4].map((body) => ({ body })));
    await four.promise;
    await subscription.close();
    await receiver.close();
    assert.deepEqual(bodies(held).sort(), [1, 2, 3, 4]);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "a message iterator gives one message after the other"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages([1, 2, 3].map((body) => ({ body })));
    const receiver = client.createReceiver("orders");
    const got = [];
    for await (const message of receiver.getMessageIterator()) {
      got.push(message.body);
      await receiver.completeMessage(message);
      if (got.length === 3) break;
    }
    assert.deepEqual(got, [1, 2, 3]);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "an abandoned message comes again with its properties changed"(sb) {
    const message = { body: "one", applicationProperties: { kept: "yes", changed: "old" } };
    const [receiver, received] = await receiveOne(sb.client(), "orders", message);
    await receiver.abandonMessage(received, { changed: "new", added: 7, flag: true });
    const [again] = await receiveAll(receiver, 1);
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.sequenceNumber.toString(), received.sequenceNumber.toString());
    assert.notEqual(again.lockToken, received.lockToken);
    assert.deepEqual(again.applicationProperties, { kept: "yes", changed: "new", added: 7, flag: true });
  },

  async "a deferred message is passed over and stands as deferred"(sb) {
    const client = sb.client();
    const [receiver, message] = await receiveOne(client, "orders", { body: "later", applicationProperties: { a: 1 } });
    await receiver.deferMessage(message, { why: "busy" });
    assert.equal((await sb.counts("orders")).deferred, 1);
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 50 }), []);
    const [peeked] = await receiver.peekMessages(1);
    assert.equal(peeked.state, "deferred");
    assert.deepEqual(peeked.applicationProperties, { a: 1, why: "busy" });
  },

  async "a dead-lettered message says its reason and its source"(sb) {
    const client = sb.client();
    const [receiver, message] = await receiveOne(client, "orders", { body: "bad", messageId: "m", applicationProperties: { a: 1 } });
    await receiver.deadLetterMessage(message, { deadLetterReason: "why", deadLetterErrorDescription: "because", mine: "too" });
    const [dead] = await receiveAll(deadLetters(client, "orders"), 1);
    assert.equal(dead.body, "bad");
    assert.equal(dead.messageId, "m");
    assert.equal(dead.sequenceNumber.toString(), message.sequenceNumber.toString());
    assert.equal(dead.deadLetterReason, "why");
    assert.equal(dead.deadLetterErrorDescription, "because");
    assert.equal(dead.applicationProperties.mine, "too");
    assert.equal(dead.applicationProperties.a, 1);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "a dead-lettered message without a reason has none"(sb) {
    const client = sb.client();
    const [receiver, message] = await receiveOne(client, "orders");
    await receiver.deadLetterMessage(message);
    const dead = deadLetters(client, "orders");
    const [got] = await receiveAll(dead, 1);
    assert.equal(got.deadLetterReason, undefined);
    await dead.completeMessage(got);
    assert.equal((await sb.counts("orders/$DeadLetterQueue")).active, 0);
  },

  async "the dead-letter queue can be peeked, and its messages deferred and taken by number"(sb) {
    const client = sb.client();
    const [receiver, message] = await receiveOne(client, "orders");
    await receiver.deadLetterMessage(message);
    const dead = deadLetters(client, "orders");
    assert.deepEqual(bodies(await dead.peekMessages(1)), ["one"]);
    const [got] = await receiveAll(dead, 1);
    await dead.deferMessage(got);
    const [deferred] = await dead.receiveDeferredMessages(got.sequenceNumber);
    await dead.completeMessage(deferred);
    assert.equal((await sb.counts("orders/$DeadLetterQueue")).deferred, 0);
  },

  async "a renewed lock holds longer"(sb) {
    const [receiver, message] = await receiveOne(sb.client(), "orders");
    await sb.advance(50);
    const until = await receiver.renewMessageLock(message);
    assert.equal(until.getTime(), (await sb.later(60)).getTime());
    assert.equal(message.lockedUntilUtc.getTime(), until.getTime());
    await sb.advance(50);
    await receiver.completeMessage(message);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "a lock that ran out is lost, and the message comes again"(sb) {
    const client = sb.client();
    const [receiver, message] = await receiveOne(client, "orders");
    await sb.advance(61);
    await assert.rejects(receiver.completeMessage(message), serviceBusError("MessageLockLost"));
    await assert.rejects(receiver.renewMessageLock(message), serviceBusError("MessageLockLost"));
    const [again] = await receiveAll(receiver, 1);
    assert.equal(again.deliveryCount, 1);
    await receiver.completeMessage(again);
  },

  async "settling twice is lock lost for every way to settle"(sb) {
    for (const settle of ["completeMessage", "abandonMessage", "deferMessage", "deadLetterMessage"]) {
      const client = sb.client();
      const [receiver, message] = await receiveOne(client, "orders");
      await receiver.completeMessage(message);
      // The SDK refuses by itself what it knows to be settled; another receiver, that only has the token, does not know.
      await assert.rejects(receiver[settle](message), /settled|lock/i, settle);
    }
  },

  async "messages of a receiver that closed can still be settled, by the management node"(sb) {
    const client = sb.client();
    for (const [settle, left] of [
      ["completeMessage", { active: 0, deferred: 0 }],
      ["deadLetterMessage", { active: 0, deferred: 0 }],
      ["deferMessage", { active: 0, deferred: 1 }],
      ["abandonMessage", { active: 1, deferred: 1 }],
    ]) {
      const [receiver, message] = await receiveOne(client, "orders");
      await receiver.close();
      const before = await sb.requests("update-disposition");
      await client.createReceiver("orders")[settle](message);
      assert.equal(await sb.requests("update-disposition"), before + 1, settle);
      const { active, deferred } = await sb.counts("orders");
      assert.deepEqual({ active, deferred }, left, settle);
    }
    assert.equal((await sb.counts("orders/$DeadLetterQueue")).active, 1);
  },

  async "messages of a receiver that closed are free for the next one"(sb) {
    const client = sb.client();
    const [receiver] = await receiveOne(client, "orders");
    await receiver.close();
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("orders"), 1)), ["one"]);
  },

  async "two receivers never hold the same message"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages(Array.from({ length: 100 }, (_, n) => ({ body: n })));
    const pages = await Promise.all([0, 1].map(() => receiveAll(client.createReceiver("orders"), 50)));
    const all = bodies(pages.flat()).sort((one, other) => one - other);
    assert.deepEqual(all, Array.from({ length: 100 }, (_, n) => n));
  },

  async "peek starts at a number, sees every state, and goes on where it ended"(sb) {
    const client = sb.client();
    const sender = client.createSender("orders");
    await sender.sendMessages(["locked", "deferred", "active"].map((body) => ({ body })));
    await sender.scheduleMessages({ body: "scheduled" }, await sb.later(60));
    const receiver = client.createReceiver("orders");
    const [, second] = await receiveAll(receiver, 2);
    await receiver.deferMessage(second);

    const states = (messages) => messages.map(({ body, state }) => [body, state]);
    const expected = [["locked", "active"], ["deferred", "deferred"], ["active", "active"], ["scheduled", "scheduled"]];
    assert.deepEqual(states(await receiver.peekMessages(10, { fromSequenceNumber: Long.ZERO })), expected);
    assert.deepEqual(states(await receiver.peekMessages(10, { fromSequenceNumber: second.sequenceNumber })), expected.slice(1));
    assert.deepEqual(await receiver.peekMessages(10, { fromSequenceNumber: Long.fromNumber(1000) }), []);

    // Receivers of one client share the place where a peek goes on.
    const walker = sb.client().createReceiver("orders");
    assert.deepEqual(states(await walker.peekMessages(3)), expected.slice(0, 3));
    assert.deepEqual(states(await walker.peekMessages(3)), expected.slice(3));
    assert.deepEqual(await walker.peekMessages(3), []);
  },

  async "peek of many large messages takes several pages, and all arrive"(sb) {
    const client = sb.client();
    const sender = client.createSender("orders");
    for (let n = 0; n < 12; n += 1) await sender.sendMessages({ body: Buffer.alloc(200000, n) });
    const receiver = client.createReceiver("orders");
    const sizes = [];
    const seen = [];
    for (let page; (page = await receiver.peekMessages(100)).length > 0; ) {
      sizes.push(page.length);
      seen.push(...page.map((message) => message.body[199999]));
    }
    assert.ok(sizes.length > 1, `12 messages of 200 KB came in ${sizes.length} page`);
    assert.deepEqual(seen, Array.from({ length: 12 }, (_, n) => n));
  },
};
