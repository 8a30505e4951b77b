// Topics: what subscriptions get, their rules, and the rule manager.
"use strict";
const assert = require("node:assert/strict");
const { bodies, receiveAll, serviceBusError } = require("./common");

async function rulesOf(manager) {
  const rules = [];
  // Where there are no rules at all, the SDK gives one that is undefined.
  for await (const rule of manager.listRules()) if (rule !== undefined) rules.push(rule);
  return rules;
}

const namesOf = async (manager) => (await rulesOf(manager)).map((rule) => rule.name);

// What arrives at a subscription of `events` after the message was sent, without waiting for what does not.
async function arrives(client, subscription, message, sb) {
  const path = `events/Subscriptions/${subscription}`;
  const before = (await sb.counts(path)).active;
  await client.createSender("events").sendMessages(message);
  return (await sb.counts(path)).active > before;
}

module.exports = {
  async "every subscription gets its own copy"(sb) {
    const client = sb.client();
    await client.createSender("events").sendMessages([{ body: 1, messageId: "a" }, { body: 2, messageId: "b" }]);
    for (const subscription of ["all", "ruled"]) {
      const receiver = client.createReceiver("events", subscription);
      const got = await receiveAll(receiver, 2);
      assert.deepEqual(got.map(({ body, messageId }) => [body, messageId]), [[1, "a"], [2, "b"]]);
      await receiver.completeMessage(got[0]);
    }
    assert.equal((await sb.counts("events/Subscriptions/all")).active, 1);
  },

  async "an SQL filter chooses and its action changes"(sb) {
    const client = sb.client();
    await client.createSender("events").sendMessages([
      { body: "small", subject: "order", applicationProperties: { amount: 10 } },
      { body: "large", subject: "order", applicationProperties: { amount: 1000, draft: true } },
      { body: "other", subject: "note", applicationProperties: { amount: 5000 } },
      { body: "unknown", subject: "order" },
    ]);
    assert.equal((await sb.counts("events/Subscriptions/large")).active, 1);
    const [got] = await receiveAll(client.createReceiver("events", "large"), 1);
    assert.equal(got.body, "large");
    assert.equal(got.applicationProperties.priority, "high");
    assert.equal("draft" in got.applicationProperties, false);
    const others = await receiveAll(client.createReceiver("events", "all"), 4);
    assert.equal(others[1].applicationProperties.priority, undefined);
  },

  async "a correlation filter compares system and own properties"(sb) {
    const client = sb.client();
    await client.createSender("events").sendMessages([
      { body: "match", subject: "order", applicationProperties: { region: "eu" } },
      { body: "label", subject: "note", applicationProperties: { region: "eu" } },
      { body: "region", subject: "order", applicationProperties: { region: "us" } },
    ]);
    assert.equal((await sb.counts("events/Subscriptions/eu")).active, 1);
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("events", "eu"), 1)), ["match"]);
  },

  async "a subscription starts with the default rule"(sb) {
    const [rule] = await rulesOf(sb.client().createRuleManager("events", "all"));
    assert.equal(rule.name, "$Default");
    assert.deepEqual(rule.filter, { sqlExpression: "1=1" });
  },

  async "an SQL rule with an action is created, listed, takes effect and is deleted"(sb) {
    const client = sb.client();
    const manager = client.createRuleManager("events", "ruled");
    await manager.createRule("cheap", { sqlExpression: "price < 10" }, { sqlExpression: "SET class = 'cheap'" });
    await manager.deleteRule("$Default");
    const [rule] = await rulesOf(manager);
    assert.equal(rule.name, "cheap");
    assert.deepEqual(rule.filter, { sqlExpression: "price < 10" });
    assert.deepEqual(rule.action, { sqlExpression: "SET class = 'cheap'" });

    assert.equal(await arrives(client, "ruled", { body: 1, applicationProperties: { price: 5 } }, sb), true);
    assert.equal(await arrives(client, "ruled", { body: 2, applicationProperties: { price: 50 } }, sb), false);
    const [got] = await receiveAll(client.createReceiver("events", "ruled"), 1);
    assert.equal(got.applicationProperties.class, "cheap");

    await manager.deleteRule("cheap");
    assert.deepEqual(await namesOf(manager), []);
    assert.equal(await arrives(client, "ruled", { body: 3, applicationProperties: { price: 5 } }, sb), false);
  },

  async "a correlation rule with every field is created, listed and takes effect"(sb) {
    const client = sb.client();
    const manager = client.createRuleManager("events", "ruled");
    const filter = {
      correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "s", sessionId: "one", replyToSessionId: "rs",
      contentType: "text/plain", applicationProperties: { text: "x", whole: 7, half: 1.5, yes: true },
    };
    await manager.createRule("exact", filter);
    await manager.deleteRule("$Default");
    const [rule] = await rulesOf(manager);
    assert.deepEqual({ ...rule.filter, applicationProperties: { ...rule.filter.applicationProperties } }, filter);
    const { applicationProperties, ...system } = filter;
    assert.equal(await arrives(client, "ruled", { body: 1, ...system, applicationProperties }, sb), true);
    assert.equal(await arrives(client, "ruled", { body: 2, ...system, to: "elsewhere", applicationProperties }, sb), false);
    assert.equal(await arrives(client, "ruled", { body: 3, ...system, applicationProperties: { ...applicationProperties, whole: 8 } }, sb), false);
  },

  async "a correlation rule of a date compares timestamps"(sb) {
    const client = sb.client();
    const manager = client.createRuleManager("events", "ruled");
    const day = new Date("2030-01-02T03:04:05.678Z");
    await manager.createRule("day", { applicationProperties: { day } });
    await manager.deleteRule("$Default");
    assert.equal(await arrives(client, "ruled", { body: 1, applicationProperties: { day } }, sb), true);
    assert.equal(await arrives(client, "ruled", { body: 2, applicationProperties: { day: new Date(0) } }, sb), false);
  },

  async "a correlation rule has an action too"(sb) {
    const client = sb.client();
    const manager = client.createRuleManager("events", "ruled");
    await manager.createRule("marked", { subject: "s" }, { sqlExpression: "SET sys.Label = 'seen'; SET n = n + 1" });
    await manager.deleteRule("$Default");
    await client.createSender("events").sendMessages({ body: 1, subject: "s", applicationProperties: { n: 1 } });
    const [got] = await receiveAll(client.createReceiver("events", "ruled"), 1);
    assert.equal(got.subject, "seen");
    assert.equal(got.applicationProperties.n, 2);
  },

  async "true and false filters are listed and take effect"(sb) {
    const client = sb.client();
    const manager = client.createRuleManager("events", "ruled");
    await manager.deleteRule("$Default");
    await manager.createRule("never", { sqlExpression: "1=0" });
    assert.equal(await arrives(client, "ruled", { body: 1 }, sb), false);
    await manager.createRule("always", { sqlExpression: "1=1" });
    assert.equal(await arrives(client, "ruled", { body: 2 }, sb), true);
    assert.deepEqual((await rulesOf(manager)).map(({ name, filter }) => [name, filter.sqlExpression]).sort(), [["always", "1=1"], ["never", "1=0"]]);
  },

  async "more rules than a page are all listed"(sb) {
    const manager = sb.client().createRuleManager("events", "ruled");
    const names = Array.from({ length: 120 }, (_, n) => `rule${String(n).padStart(3, "0")}`);
    await Promise.all(names.map((name) => manager.createRule(name, { sqlExpression: "a = 1" })));
    assert.deepEqual((await namesOf(manager)).sort(), ["$Default", ...names]);
    const pages = [];
    for await (const page of manager.listRules().byPage({ maxPageSize: 50 })) pages.push(page.length);
    assert.equal(pages.reduce((sum, count) => sum + count, 0), 121);
    assert.ok(pages.length >= 3);
  },

  async "a rule that exists cannot be created again"(sb) {
    const manager = sb.client().createRuleManager("events", "ruled");
    await manager.createRule("once", { sqlExpression: "a = 1" });
    await assert.rejects(manager.createRule("once", { sqlExpression: "a = 2" }), serviceBusError("MessagingEntityAlreadyExists"));
    const rule = (await rulesOf(manager)).find(({ name }) => name === "once");
    assert.equal(rule.filter.sqlExpression, "a = 1");
  },

  async "a rule that does not exist cannot be deleted"(sb) {
    const manager = sb.client().createRuleManager("events", "ruled");
    await assert.rejects(manager.deleteRule("missing"), serviceBusError("MessagingEntityNotFound"));
  },

  async "a rule that cannot be read is refused with its place"(sb) {
    const manager = sb.client().createRuleManager("events", "ruled");
    await assert.rejects(manager.createRule("bad", { sqlExpression: "a = = 1" }), /column|position|line/i);
    await assert.rejects(manager.createRule("bad", { sqlExpression: "a = 1" }, { sqlExpression: "SET" }), /column|position|line/i);
    assert.deepEqual(await namesOf(manager), ["$Default"]);
  },

  async "a scheduled message stands at the topic until its time"(sb) {
    const client = sb.client();
    const sender = client.createSender("events");
    const [kept, cancelled] = await sender.scheduleMessages([{ body: "kept" }, { body: "cancelled" }], await sb.later(60));
    assert.ok(kept.lessThan(cancelled));
    assert.deepEqual(await client.createReceiver("events", "all").peekMessages(1), []);
    assert.equal((await sb.counts("events")).scheduled, 2);
    await sender.cancelScheduledMessages(cancelled);
    await sb.advance(60);
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("events", "all"), 1)), ["kept"]);
    assert.equal((await sb.counts("events/Subscriptions/all")).active, 1);
  },

  async "a subscription has a dead-letter queue of its own"(sb) {
    const client = sb.client();
    await client.createSender("events").sendMessages({ body: "bad" });
    const receiver = client.createReceiver("events", "all");
    const [message] = await receiveAll(receiver, 1);
    await receiver.deadLetterMessage(message, { deadLetterReason: "why" });
    const [dead] = await receiveAll(client.createReceiver("events", "all", { subQueueType: "deadLetter" }), 1);
    assert.equal(dead.deadLetterReason, "why");
    assert.equal((await sb.counts("events/Subscriptions/ruled")).active, 1);
  },
};
