// What the service refuses, what goes wrong on the way, and the other transports.
"use strict";
const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const Long = require("long");
const WebSocket = require("ws");
const { arrival, bodies, receiveAll, serviceBusError } = require("./common");

const withKey = (connectionString, name, key) =>
  connectionString.replace(/SharedAccessKeyName=[^;]*/, `SharedAccessKeyName=${name}`).replace(/SharedAccessKey=[^;]*/, `SharedAccessKey=${key}`);

// A ready-made signature, good until that time.
function signed(connectionString, path, expires) {
  const resource = encodeURIComponent(`sb://127.0.0.1/${path}`);
  const until = Math.floor(expires.getTime() / 1000);
  const signature = crypto.createHmac("sha256", "SAS_KEY_VALUE").update(`${resource}\n${until}`).digest("base64");
  const token = `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(signature)}&se=${until}&skn=RootManageSharedAccessKey`;
  const [endpoint] = connectionString.split(";");
  return `${endpoint};SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

// Retries are the SDK's own, and soon. It waits in vain for the outcome of a send whose link is gone: that long.
const patient = { retryOptions: { maxRetries: 3, retryDelayInMs: 10, timeoutInMs: 500 } };

async function sendAndReceive(client) {
  await client.createSender("orders").sendMessages({ body: "there" });
  const receiver = client.createReceiver("orders");
  const [message] = await receiveAll(receiver, 1);
  await receiver.completeMessage(message);
  assert.equal(message.body, "there");
  const number = (await client.createSender("orders").scheduleMessages({ body: "later" }, new Date(Date.now() + 3600000)))[0];
  assert.deepEqual(bodies(await receiver.peekMessages(1, { fromSequenceNumber: Long.ZERO })), ["later"]);
  await client.createSender("orders").cancelScheduledMessages(number);
}

module.exports = {
  async "a message that is too large is refused"(sb) {
    // The link goes with it, and the SDK may have to try again before it has another.
    const sender = sb.client(patient).createSender("small");
    await assert.rejects(sender.sendMessages({ body: Buffer.alloc(5000) }), serviceBusError("MessageSizeExceeded"));
    await sender.sendMessages({ body: "still works" });
    assert.equal((await sb.counts("small")).active, 1);
  },

  async "a batch that is too large is refused as a whole"(sb) {
    const sender = sb.client().createSender("small");
    const messages = Array.from({ length: 10 }, () => ({ body: Buffer.alloc(1000) }));
    await assert.rejects(sender.sendMessages(messages), serviceBusError("MessageSizeExceeded"));
    assert.equal((await sb.counts("small")).active, 0);
  },

  async "a scheduled message that is too large is refused"(sb) {
    const sender = sb.client().createSender("small");
    await assert.rejects(
      sender.scheduleMessages({ body: Buffer.alloc(5000) }, await sb.later(60)),
      serviceBusError("MessageSizeExceeded"),
    );
    assert.equal((await sb.counts("small")).scheduled, 0);
  },

  async "an entity that does not exist is not found"(sb) {
    const client = sb.client();
    const missing = serviceBusError("MessagingEntityNotFound");
    await assert.rejects(client.createSender("nowhere").sendMessages({ body: 1 }), missing);
    await assert.rejects(client.createReceiver("nowhere").receiveMessages(1, { maxWaitTimeInMs: 1000 }), missing);
    await assert.rejects(client.createReceiver("events", "nobody").receiveMessages(1, { maxWaitTimeInMs: 1000 }), missing);
    await assert.rejects(client.createReceiver("nowhere").peekMessages(1), missing);
    await assert.rejects(client.acceptSession("nowhere", "one"), missing);
  },

  async "subscribing to an entity that does not exist tells the handler"(sb) {
    const told = arrival();
    // It tries again for ever.
    const receiver = sb.client(patient).createReceiver("nowhere");
    const subscription = receiver.subscribe({
      async processMessage() {},
      async processError({ error, entityPath }) {
        told.resolve({ code: error.code, entityPath });
      },
    });
    assert.deepEqual(await told.promise, { code: "MessagingEntityNotFound", entityPath: "nowhere" });
    await subscription.close();
  },

  async "a wrong key is unauthorized"(sb) {
    const client = sb.client({}, withKey(sb.connectionString, "RootManageSharedAccessKey", "WRONG_KEY"));
    const refused = serviceBusError("UnauthorizedAccess");
    await assert.rejects(client.createSender("orders").sendMessages({ body: 1 }), refused);
    await assert.rejects(client.createReceiver("orders").receiveMessages(1, { maxWaitTimeInMs: 1000 }), refused);
    await assert.rejects(client.createReceiver("orders").peekMessages(1), refused);
    assert.equal((await sb.counts("orders")).active, 0);
  },

  async "an unknown policy is unauthorized"(sb) {
    const client = sb.client({}, withKey(sb.connectionString, "nobody", "SAS_KEY_VALUE"));
    await assert.rejects(client.createSender("orders").sendMessages({ body: 1 }), serviceBusError("UnauthorizedAccess"));
  },

  async "a policy that may only listen receives but does not send"(sb) {
    await sb.client().createSender("orders").sendMessages({ body: "heard" });
    const client = sb.client({}, withKey(sb.connectionString, "listener", "LISTEN_KEY"));
    const receiver = client.createReceiver("orders");
    assert.deepEqual(bodies(await receiver.peekMessages(1)), ["heard"]);
    const [message] = await receiveAll(receiver, 1);
    await receiver.completeMessage(message);
    await assert.rejects(client.createSender("orders").sendMessages({ body: 1 }), serviceBusError("UnauthorizedAccess"));
    await assert.rejects(client.createSender("orders").scheduleMessages({ body: 1 }, await sb.later(60)), serviceBusError("UnauthorizedAccess"));
  },

  async "a policy that may only send sends and schedules but does not receive or peek"(sb) {
    const client = sb.client({}, withKey(sb.connectionString, "sender", "SEND_KEY"));
    const sender = client.createSender("orders");
    await sender.sendMessages({ body: "sent" });
    const [number] = await sender.scheduleMessages({ body: "later" }, await sb.later(60));
    await sender.cancelScheduledMessages(number);
    await assert.rejects(client.createReceiver("orders").receiveMessages(1, { maxWaitTimeInMs: 1000 }), serviceBusError("UnauthorizedAccess"));
    await assert.rejects(client.createReceiver("orders").peekMessages(1), serviceBusError("UnauthorizedAccess"));
  },

  async "a ready-made signature is good until it expires, then links go"(sb) {
    const client = sb.client({}, signed(sb.connectionString, "orders", await sb.later(600)));
    const sender = client.createSender("orders");
    await sender.sendMessages({ body: 1 });
    await sb.advance(599);
    await sender.sendMessages({ body: 2 });
    await sb.advance(2);
    await assert.rejects(sender.sendMessages({ body: 3 }), serviceBusError("UnauthorizedAccess"));
    assert.equal((await sb.counts("orders")).active, 2);
  },

  async "an expired signature is unauthorized"(sb) {
    const client = sb.client({}, signed(sb.connectionString, "orders", await sb.later(-1)));
    await assert.rejects(client.createSender("orders").sendMessages({ body: 1 }), serviceBusError("UnauthorizedAccess"));
  },

  async "a signature for one entity is good for that one only"(sb) {
    const client = sb.client({}, signed(sb.connectionString, "orders", await sb.later(600)));
    assert.deepEqual(await client.createReceiver("orders").peekMessages(1), []);
    await assert.rejects(client.createSender("small").sendMessages({ body: 1 }), serviceBusError("UnauthorizedAccess"));
  },

  async "a throttled request says so, and is tried again by the SDK"(sb) {
    await sb.fault({ action: "throttle", operation: "peek-message", seconds: 0.01 });
    await assert.rejects(sb.client().createReceiver("orders").peekMessages(1), serviceBusError("ServiceBusy"));
    await sb.fault({ action: "throttle", operation: "peek-message", seconds: 0.01, count: 2 });
    assert.deepEqual(await sb.client(patient).createReceiver("orders").peekMessages(1), []);
    assert.equal(await sb.requests("peek-message"), 4);
  },

  async "a throttled send is tried again by the SDK and stored once"(sb) {
    await sb.fault({ action: "throttle", operation: "send", seconds: 0.01 });
    await sb.client(patient).createSender("orders").sendMessages({ body: "once" });
    assert.equal((await sb.counts("orders")).active, 1);
  },

  async "a connection that is lost is opened again"(sb) {
    const client = sb.client(patient);
    const sender = client.createSender("orders");
    await sender.sendMessages({ body: 1 });
    await sb.fault({ action: "drop-connection", operation: "send" });
    await sender.sendMessages({ body: 2 });
    await sb.fault({ action: "drop-link", operation: "send" });
    await sender.sendMessages({ body: 3 });
    assert.deepEqual(bodies(await receiveAll(client.createReceiver("orders"), 3)), [1, 2, 3]);
  },

  async "a subscription goes on after its connection is lost"(sb) {
    const client = sb.client(patient);
    const seen = new Set();
    const both = arrival();
    const first = arrival();
    const receiver = client.createReceiver("orders");
    const subscription = receiver.subscribe({
      async processMessage(message) {
        seen.add(message.body);
        first.resolve();
        if (seen.has("after")) both.resolve();
      },
      async processError() {},
    });
    const sender = sb.client(patient).createSender("orders");
    await sender.sendMessages({ body: "before" });
    await first.promise;
    // A request of the same client loses the connection that the subscription is on.
    await sb.fault({ action: "drop-connection", operation: "peek-message" });
    await receiver.peekMessages(1);
    await sender.sendMessages({ body: "after" });
    await both.promise;
    await subscription.close();
  },

  async "TLS works as plain TCP does"(sb) {
    await sendAndReceive(sb.client({}, `Endpoint=sb://localhost:${sb.tlsPort};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE`));
  },

  async "AMQP over a secure WebSocket works as TCP does"(sb) {
    const options = { webSocketOptions: { webSocket: WebSocket } };
    await sendAndReceive(
      sb.client(options, `Endpoint=sb://localhost:${sb.webSocketPort};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE`),
    );
  },

  async "AMQP over a plain WebSocket works as TCP does"(sb) {
    // The SDK always asks for a secure one; a development emulator may be without a certificate.
    class PlainWebSocket extends WebSocket {
      constructor(url, ...others) {
        super(url.replace("wss:", "ws:"), ...others);
      }
    }
    const connectionString = sb.connectionString.replace(/:\d+;/, `:${sb.webSocketPort};`);
    await sendAndReceive(sb.client({ webSocketOptions: { webSocket: PlainWebSocket } }, connectionString));
  },
};
