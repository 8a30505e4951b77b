// Every management call that @azure/service-bus, and its beta, can make, once each, against the service of the connection string in argv[2].
// The values are those of tests/operations/test_sdk_requests.py.
"use strict";
const { ServiceBusClient } = require("@azure/service-bus");
const Beta = require("service-bus-beta");
const Long = require("long");

const number = Long.fromString("281474976710663");
const when = new Date("2030-01-02T03:04:05.678Z");

async function main() {
  const options = { retryOptions: { maxRetries: 0, timeoutInMs: 10000 } };
  const client = new ServiceBusClient(process.argv[2], options);

  const sender = client.createSender("orders");
  const message = {
    body: Buffer.from("hello"), messageId: "m1", sessionId: "s1", partitionKey: "s1", subject: "label", correlationId: "c1",
    to: "there", replyTo: "back", replyToSessionId: "rs", contentType: "text/plain", timeToLive: 60000,
    applicationProperties: { text: "zwei", yes: true, half: 1.5 },
  };
  await sender.scheduleMessages([message], when);
  await sender.cancelScheduledMessages([number, Long.fromNumber(-47)]);

  const receiver = client.createReceiver("orders");
  await receiver.peekMessages(10, { fromSequenceNumber: number });
  await receiver.peekMessages(5, { fromSequenceNumber: Long.fromNumber(7), omitMessageBody: true });
  const [deferred] = await receiver.receiveDeferredMessages([number]);
  await receiver.renewMessageLock(deferred);
  const [first, second, third, fourth] = await receiver.receiveDeferredMessages([1, 2, 3, 4].map((n) => Long.fromNumber(n)));
  await receiver.completeMessage(first);
  await receiver.abandonMessage(second, { text: "zwei" });
  await receiver.deferMessage(third);
  await receiver.deadLetterMessage(fourth, { deadLetterReason: "why", deadLetterErrorDescription: "because" });
  await receiver.close();

  const deleting = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
  await deleting.receiveDeferredMessages([number]);

  const session = await client.acceptSession("orders", "s1");
  await session.peekMessages(3, { fromSequenceNumber: Long.fromNumber(7) });
  await session.renewSessionLock();
  await session.getSessionState();
  await session.setSessionState("abc");
  const [held] = await session.receiveDeferredMessages([number]);
  await session.completeMessage(held);
  // No public method of this version asks for sessions; the code that would is there.
  await client._connectionContext.getManagementClient("orders").listMessageSessions(0, 100, when);

  const rules = client.createRuleManager("news", "all");
  await rules.createRule("sql", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" });
  await rules.createRule("correlation", { correlationId: "c1", subject: "label", applicationProperties: { text: "zwei" } });
  await rules.deleteRule("sql");
  for await (const _ of rules.listRules()) break;
  await client.close();

  const beta = new Beta.ServiceBusClient(process.argv[2], options);
  await beta.createReceiver("orders").deleteMessages({ maxMessageCount: 5, beforeEnqueueTime: when });
  const inSession = await beta.acceptSession("orders", "s1");
  await inSession.deleteMessages({ maxMessageCount: 5, beforeEnqueueTime: when });
  await beta.close();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
