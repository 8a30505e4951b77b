// What scenarios share.
"use strict";
const assert = require("node:assert/strict");

const bodies = (messages) => messages.map((message) => message.body);

// So many messages, in as many rounds as the service takes; the SDK's own wait ends a round that brings too few.
async function receiveAll(receiver, count) {
  const got = [];
  while (got.length < count) {
    const page = await receiver.receiveMessages(count - got.length, { maxWaitTimeInMs: 5000 });
    assert.ok(page.length > 0, `${got.length} of ${count} messages came`);
    got.push(...page);
  }
  return got;
}

// Sends bodies, and receives and defers them all: their sequence numbers.
async function deferAll(client, queue, given) {
  const receiver = client.createReceiver(queue);
  await client.createSender(queue).sendMessages(given.map((body) => ({ body })));
  const messages = await receiveAll(receiver, given.length);
  for (const message of messages) await receiver.deferMessage(message);
  await receiver.close();
  return messages.map((message) => message.sequenceNumber);
}

// A promise to be resolved by a handler.
function arrival() {
  let resolve, reject;
  const promise = new Promise((...both) => ([resolve, reject] = both));
  return { promise, resolve, reject };
}

const serviceBusError = (code) => ({ name: "ServiceBusError", code });

module.exports = { arrival, bodies, deferAll, receiveAll, serviceBusError };
