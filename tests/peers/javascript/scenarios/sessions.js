// Sessions: accepted by name or whichever is next, their locks, their state, what stands in them.
"use strict";
const assert = require("node:assert/strict");
const Long = require("long");
const { arrival, bodies, receiveAll, serviceBusError } = require("./common");

const send = (client, queue, ...messages) =>
  client.createSender(queue).sendMessages(messages.map(([sessionId, body]) => ({ sessionId, body })));

module.exports = {
  async "a session is accepted by name and gives its messages in order, and no others"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1], ["two", 2], ["one", 3]);
    const session = await client.acceptSession("sessions", "one");
    assert.equal(session.sessionId, "one");
    assert.equal(session.sessionLockedUntilUtc.getTime(), (await sb.later(60)).getTime());
    const got = await receiveAll(session, 2);
    assert.deepEqual(bodies(got), [1, 3]);
    assert.ok(got.every((message) => message.sessionId === "one"));
    for (const message of got) await session.completeMessage(message);
    assert.deepEqual(await session.receiveMessages(1, { maxWaitTimeInMs: 50 }), []);
    assert.equal((await sb.counts("sessions")).active, 1);
  },

  async "a session without messages can be accepted, and gets those that come"(sb) {
    const client = sb.client();
    const session = await client.acceptSession("sessions", "new");
    const waiting = session.receiveMessages(1, { maxWaitTimeInMs: 10000 });
    await send(client, "sessions", ["new", "here"]);
    assert.deepEqual(bodies(await waiting), ["here"]);
  },

  async "the next session is one that nobody holds"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1], ["two", 2]);
    const first = await client.acceptNextSession("sessions");
    const second = await client.acceptNextSession("sessions");
    assert.deepEqual([first.sessionId, second.sessionId].sort(), ["one", "two"]);
    assert.deepEqual(bodies(await receiveAll(first, 1)), [first.sessionId === "one" ? 1 : 2]);
  },

  async "accepting the next session waits until there is one"(sb) {
    const client = sb.client();
    const accepting = client.acceptNextSession("sessions");
    await send(client, "sessions", ["late", 1]);
    assert.equal((await accepting).sessionId, "late");
  },

  async "accepting the next session times out when there is none"(sb) {
    const client = sb.client({ retryOptions: { maxRetries: 0, timeoutInMs: 5000 } });
    const outcome = client.acceptNextSession("sessions").then(
      () => assert.fail("a session was accepted where there is none"),
      (error) => error,
    );
    // The service waits by its own clock, from when the attach came; when that is, cannot be seen from here.
    let error;
    while (error === undefined) error = await Promise.race([outcome, sb.advance(1)]).then((result) => result ?? undefined);
    assert.equal(error.name, "ServiceBusError");
    assert.equal(error.code, "ServiceTimeout");
  },

  async "a session that another holds cannot be locked"(sb) {
    await sb.client().acceptSession("sessions", "one");
    await assert.rejects(sb.client().acceptSession("sessions", "one"), serviceBusError("SessionCannotBeLocked"));
  },

  async "a closed session receiver frees the session and its messages"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1]);
    const session = await client.acceptSession("sessions", "one");
    await receiveAll(session, 1);
    await session.close();
    const again = await client.acceptSession("sessions", "one");
    assert.deepEqual(bodies(await receiveAll(again, 1)), [1]);
  },

  async "the state of a session is null, is set, is kept and is cleared"(sb) {
    const client = sb.client();
    const session = await client.acceptSession("sessions", "one");
    assert.equal(await session.getSessionState(), null);
    await session.setSessionState({ step: 3, done: ["a"] });
    assert.deepEqual(await session.getSessionState(), { step: 3, done: ["a"] });
    await session.close();
    const again = await client.acceptSession("sessions", "one");
    assert.deepEqual(await again.getSessionState(), { step: 3, done: ["a"] });
    await again.setSessionState("text");
    assert.equal(await again.getSessionState(), "text");
    await again.setSessionState(null);
    assert.equal(await again.getSessionState(), null);
  },

  async "a renewed session lock holds longer"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1]);
    const session = await client.acceptSession("sessions", "one", { maxAutoLockRenewalDurationInMs: 0 });
    await sb.advance(50);
    const until = await session.renewSessionLock();
    assert.equal(until.getTime(), (await sb.later(60)).getTime());
    assert.equal(session.sessionLockedUntilUtc.getTime(), until.getTime());
    await sb.advance(50);
    const [message] = await receiveAll(session, 1);
    await session.completeMessage(message);
    assert.equal((await sb.counts("sessions")).active, 0);
  },

  async "a session lock that ran out is lost for everything"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1]);
    const session = await client.acceptSession("sessions", "one", { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receiveAll(session, 1);
    await sb.advance(61);
    await assert.rejects(session.completeMessage(message), serviceBusError("SessionLockLost"));
    await assert.rejects(session.renewSessionLock(), serviceBusError("SessionLockLost"));
    await assert.rejects(session.setSessionState("x"), serviceBusError("SessionLockLost"));
    await assert.rejects(session.getSessionState(), serviceBusError("SessionLockLost"));
    await assert.rejects(session.receiveMessages(1, { maxWaitTimeInMs: 50 }), serviceBusError("SessionLockLost"));
    const next = await client.acceptNextSession("sessions");
    assert.equal((await receiveAll(next, 1))[0].deliveryCount, 1);
  },

  async "peek within a session sees only that session, from a number on"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1], ["two", 2], ["one", 3], ["one", 4]);
    const session = await client.acceptSession("sessions", "one");
    const all = await session.peekMessages(10, { fromSequenceNumber: Long.ZERO });
    assert.deepEqual(bodies(all), [1, 3, 4]);
    assert.deepEqual(bodies(await session.peekMessages(10, { fromSequenceNumber: all[1].sequenceNumber })), [3, 4]);
    assert.deepEqual(bodies(await session.peekMessages(1, { fromSequenceNumber: all[1].sequenceNumber })), [3]);
  },

  async "peek of a session entity without a session sees all of them"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1], ["two", 2], ["one", 3]);
    const got = await client.createReceiver("sessions").peekMessages(10);
    assert.deepEqual(got.map(({ sessionId, body }) => [sessionId, body]), [["one", 1], ["two", 2], ["one", 3]]);
  },

  async "messages of a session are settled every way"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", "complete"], ["one", "abandon"], ["one", "defer"], ["one", "dead"]);
    const session = await client.acceptSession("sessions", "one");
    const [complete, abandon, defer, dead] = await receiveAll(session, 4);
    await session.completeMessage(complete);
    await session.deferMessage(defer);
    await session.deadLetterMessage(dead, { deadLetterReason: "why" });
    await session.abandonMessage(abandon, { tried: 1 });
    const [again] = await receiveAll(session, 1);
    assert.equal(again.body, "abandon");
    assert.equal(again.applicationProperties.tried, 1);
    assert.equal(again.deliveryCount, 1);
    await session.completeMessage(again);

    const [deferred] = await session.receiveDeferredMessages(defer.sequenceNumber);
    assert.equal(deferred.body, "defer");
    await session.completeMessage(deferred);

    const [letter] = await receiveAll(client.createReceiver("sessions", { subQueueType: "deadLetter" }), 1);
    assert.equal(letter.sessionId, "one");
    assert.equal(letter.deadLetterReason, "why");
    const { active, deferred: left } = await sb.counts("sessions");
    assert.deepEqual({ active, left }, { active: 0, left: 0 });
  },

  async "deferred messages of a session are settled every way"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", "complete"], ["one", "abandon"], ["one", "defer"], ["one", "dead"]);
    const session = await client.acceptSession("sessions", "one");
    const messages = await receiveAll(session, 4);
    for (const message of messages) await session.deferMessage(message);
    const numbers = messages.map((message) => message.sequenceNumber);
    const [complete, abandon, defer, dead] = await session.receiveDeferredMessages(numbers);
    await session.completeMessage(complete);
    await session.abandonMessage(abandon);
    await session.deferMessage(defer);
    await session.deadLetterMessage(dead, { deadLetterReason: "why" });
    assert.deepEqual(bodies(await session.receiveDeferredMessages(numbers.slice(1, 3))), ["abandon", "defer"]);
    assert.equal((await sb.counts("sessions")).deferred, 2);
    assert.equal((await sb.counts("sessions/$DeadLetterQueue")).active, 1);
  },

  async "a session can be subscribed to"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1], ["one", 2], ["one", 3]);
    const session = await client.acceptSession("sessions", "one");
    const seen = [];
    const all = arrival();
    const subscription = session.subscribe({
      async processMessage(message) {
        if (seen.push(message.body) === 3) all.resolve();
      },
      async processError({ error }) {
        all.reject(error);
      },
    });
    await all.promise;
    await subscription.close();
    await session.close();
    assert.deepEqual(seen, [1, 2, 3]);
    assert.equal((await sb.counts("sessions")).active, 0);
  },

  async "a session is received from and deleted in one"(sb) {
    const client = sb.client();
    await send(client, "sessions", ["one", 1], ["one", 2]);
    const session = await client.acceptSession("sessions", "one", { receiveMode: "receiveAndDelete" });
    assert.deepEqual(bodies(await receiveAll(session, 2)), [1, 2]);
    assert.equal((await sb.counts("sessions")).active, 0);
  },

  async "a scheduled message of a session comes to it"(sb) {
    const client = sb.client();
    await client.createSender("sessions").scheduleMessages({ body: "later", sessionId: "one" }, await sb.later(30));
    await sb.advance(30);
    const session = await client.acceptNextSession("sessions");
    assert.equal(session.sessionId, "one");
    assert.deepEqual(bodies(await receiveAll(session, 1)), ["later"]);
  },

  async "a subscription with sessions is accepted and received from"(sb) {
    const client = sb.client();
    await send(client, "events", ["one", 1]);
    const named = await client.acceptSession("events", "by-session", "one");
    const [message] = await receiveAll(named, 1);
    await named.completeMessage(message);
    await named.close();
    await send(client, "events", ["two", 2]);
    const next = await client.acceptNextSession("events", "by-session");
    assert.equal(next.sessionId, "two");
  },

  async "an entity with sessions takes no message without one"(sb) {
    const client = sb.client();
    await assert.rejects(client.createSender("sessions").sendMessages({ body: "none" }), { name: "ServiceBusError" });
    assert.equal((await sb.counts("sessions")).active, 0);
  },

  async "an entity with sessions has no receiver without one, and one without them has no sessions"(sb) {
    const client = sb.client();
    await assert.rejects(client.createReceiver("sessions").receiveMessages(1, { maxWaitTimeInMs: 1000 }), /sessions/);
    await assert.rejects(client.acceptSession("orders", "one"), /session/);
  },
};
