// Deferred messages, taken by their numbers from the management node and settled there.
"use strict";
const assert = require("node:assert/strict");
const Long = require("long");
const { bodies, deferAll, receiveAll, serviceBusError } = require("./common");

module.exports = {
  async "deferred messages are received by number, locked, and completed"(sb) {
    const client = sb.client();
    const numbers = await deferAll(client, "orders", ["a", "b", "c"]);
    const receiver = client.createReceiver("orders");
    const got = await receiver.receiveDeferredMessages([numbers[0], numbers[2]]);
    assert.deepEqual(bodies(got), ["a", "c"]);
    assert.match(got[0].lockToken, /^[0-9a-f-]{36}$/);
    assert.equal(got[0].state, "deferred");
    assert.equal(got[0].lockedUntilUtc.getTime(), (await sb.later(60)).getTime());
    for (const message of got) await receiver.completeMessage(message);
    assert.equal((await sb.counts("orders")).deferred, 1);
  },

  async "a deferred message that is abandoned stays deferred, with its properties changed"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    const receiver = client.createReceiver("orders");
    const [message] = await receiver.receiveDeferredMessages(number);
    await receiver.abandonMessage(message, { tried: 1 });
    const [again] = await receiver.receiveDeferredMessages(number);
    assert.equal(again.state, "deferred");
    assert.equal(again.applicationProperties.tried, 1);
    assert.equal(again.deliveryCount, message.deliveryCount + 1);
  },

  async "a deferred message can be deferred again"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    const receiver = client.createReceiver("orders");
    const [message] = await receiver.receiveDeferredMessages(number);
    await receiver.deferMessage(message, { note: "again" });
    const [again] = await receiver.receiveDeferredMessages(number);
    assert.equal(again.applicationProperties.note, "again");
  },

  async "a deferred message is dead-lettered with its reason"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    const receiver = client.createReceiver("orders");
    const [message] = await receiver.receiveDeferredMessages(number);
    await receiver.deadLetterMessage(message, { deadLetterReason: "why", deadLetterErrorDescription: "because", mine: "too" });
    const [dead] = await receiveAll(client.createReceiver("orders", { subQueueType: "deadLetter" }), 1);
    assert.equal(dead.body, "a");
    assert.equal(dead.deadLetterReason, "why");
    assert.equal(dead.deadLetterErrorDescription, "because");
    assert.equal(dead.applicationProperties.mine, "too");
    assert.equal((await sb.counts("orders")).deferred, 0);
  },

  async "a deferred message can be received and deleted in one"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    const receiver = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
    assert.deepEqual(bodies(await receiver.receiveDeferredMessages(number)), ["a"]);
    assert.equal((await sb.counts("orders")).deferred, 0);
  },

  async "the lock of a deferred message is renewed, and lost when it runs out"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    const receiver = client.createReceiver("orders");
    const [message] = await receiver.receiveDeferredMessages(number);
    await sb.advance(50);
    assert.equal((await receiver.renewMessageLock(message)).getTime(), (await sb.later(60)).getTime());
    await sb.advance(61);
    for (const settle of ["completeMessage", "abandonMessage", "deferMessage", "deadLetterMessage", "renewMessageLock"]) {
      await assert.rejects(receiver[settle](message), serviceBusError("MessageLockLost"), settle);
    }
    assert.deepEqual(bodies(await receiver.receiveDeferredMessages(number)), ["a"]);
  },

  async "a number that is not there is message not found, and nothing is locked"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    const receiver = client.createReceiver("orders");
    await assert.rejects(receiver.receiveDeferredMessages(Long.fromNumber(4711)), serviceBusError("MessageNotFound"));
    // All or nothing: the other one is still to be had.
    await assert.rejects(receiver.receiveDeferredMessages([number, Long.fromNumber(4711)]), serviceBusError("MessageNotFound"));
    assert.deepEqual(bodies(await receiver.receiveDeferredMessages(number)), ["a"]);
  },

  async "a deferred message that is locked is message not found"(sb) {
    const client = sb.client();
    const [number] = await deferAll(client, "orders", ["a"]);
    await client.createReceiver("orders").receiveDeferredMessages(number);
    await assert.rejects(client.createReceiver("orders").receiveDeferredMessages(number), serviceBusError("MessageNotFound"));
  },

  async "a message that is not deferred cannot be had by number"(sb) {
    const client = sb.client();
    await client.createSender("orders").sendMessages({ body: "active" });
    const receiver = client.createReceiver("orders");
    const [{ sequenceNumber }] = await receiver.peekMessages(1);
    await assert.rejects(receiver.receiveDeferredMessages(sequenceNumber), serviceBusError("MessageNotFound"));
  },

  async "deferred messages of a subscription are received by number"(sb) {
    const client = sb.client();
    await client.createSender("events").sendMessages({ body: "news" });
    const receiver = client.createReceiver("events", "all");
    const [message] = await receiveAll(receiver, 1);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await receiver.completeMessage(deferred);
    assert.equal((await sb.counts("events/Subscriptions/all")).deferred, 0);
  },
};
