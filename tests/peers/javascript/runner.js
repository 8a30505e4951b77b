// Runs scenarios, one line of JSON each, for test_javascript_sdk.py, which holds the other end.
//   in   {"run": name, ...what the scenario is given}    {"answer": value}
//   out  {"ask": command, "arguments": {...}}            {"passed": true} or {"failed": text}
// A scenario uses the SDK by its public API only. What the SDK has no words for, the service's clock, faults on purpose and how many
// messages stand where, it asks of the emulator, by way of the test.
"use strict";
const readline = require("node:readline");
const { ServiceBusClient } = require("@azure/service-bus");
const scenarios = require("./scenarios");

// A scenario takes well under a second; this says which await did not come back, before the test's own time is over.
const DEADLINE_MS = 20000;

const answers = [];
let failCurrent = () => {};
// What the SDK does beside the calls that are awaited must not fail in silence either.
process.on("unhandledRejection", (error) => failCurrent(error));
process.on("uncaughtException", (error) => failCurrent(error));

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

function ask(command, given = {}) {
  return new Promise((resolve) => {
    answers.push(resolve);
    say({ ask: command, arguments: given });
  });
}

function world(given) {
  const open = [];
  return {
    ...given,
    // Closed at the end of the scenario. An error shows at once: whoever wants the SDK's own retries says so.
    client(options = {}, connectionString = given.connectionString, Client = ServiceBusClient) {
      const client = new Client(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 10000 }, ...options });
      open.push(client);
      return client;
    },
    // Closed before the clients, the last one first.
    closing(closeable) {
      open.push(closeable);
      return closeable;
    },
    advance: (seconds) => ask("advance", { seconds }),
    now: async () => new Date(await ask("now")),
    later: async (seconds) => new Date((await ask("now")) + seconds * 1000),
    counts: (entity) => ask("counts", { entity }),
    requests: async (operation) => (await ask("requests"))[operation] ?? 0,
    fault: (fault) => ask("fault", fault),
    async close() {
      for (const closeable of open.reverse()) await closeable.close();
    },
  };
}

async function run(name, given) {
  const scenario = scenarios[name];
  if (scenario === undefined) throw new Error(`there is no scenario '${name}'`);
  const sb = world(given);
  await scenario(sb);
  await sb.close();
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const message = JSON.parse(line);
    if ("answer" in message) {
      answers.shift()(message.answer);
    } else if ("list" in message) {
      say({ list: Object.keys(scenarios) });
    } else {
      const { run: name, ...given } = message;
      let timer;
      const failed = new Promise((_, reject) => {
        failCurrent = reject;
        timer = setTimeout(() => reject(new Error(`'${name}' still waits after ${DEADLINE_MS} ms`)), DEADLINE_MS);
      });
      // Not awaited here: the scenario's questions are answered on the lines that follow.
      Promise.race([run(name, given), failed])
        .then(() => say({ passed: true }), (error) => say({ failed: error?.stack ?? String(error) }))
        .finally(() => clearTimeout(timer));
    }
  }
  process.exit(0);
}

main();
