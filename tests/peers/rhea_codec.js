// The AMQP codec under @azure/service-bus (rhea), asked over stdin and stdout: one JSON array of cases in, one JSON array of answers out.
//   {"decode": hex}                          what rhea reads in an encoded message, as plain JSON
//   {"encode": {"type": t, "value": text}}   the message whose body is that typed value, in hex
"use strict";
const rhea = require("rhea");
const { types, message } = rhea;

const wrap = {
  null: () => null,
  boolean: (text) => types.wrap_boolean(text === "true"),
  ubyte: (text) => types.wrap_ubyte(Number(text)),
  ushort: (text) => types.wrap_ushort(Number(text)),
  uint: (text) => types.wrap_uint(Number(text)),
  ulong: (text) => types.wrap_ulong(Number(text)),
  byte: (text) => types.wrap_byte(Number(text)),
  short: (text) => types.wrap_short(Number(text)),
  int: (text) => types.wrap_int(Number(text)),
  long: (text) => types.wrap_long(Number(text)),
  double: (text) => types.wrap_double(Number(text)),
  float: (text) => types.wrap_float(Number(text)),
  timestamp: (text) => types.wrap_timestamp(Number(text)),
  binary: (text) => types.wrap_binary(Buffer.from(text, "hex")),
  string: (text) => types.wrap_string(text),
  symbol: (text) => types.wrap_symbol(text),
  list: (items) => types.wrap_list(items.map(typed)),
  array: (items) => types.wrap_array(items.map(Number), 0x81),
};
const typed = ({ type, value }) => wrap[type](value);

function plain(value) {
  if (value === null || value === undefined) return null;
  if (Buffer.isBuffer(value)) return { hex: value.toString("hex") };
  if (value instanceof Date) return { milliseconds: value.getTime() };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  }
  return value;
}

const answers = JSON.parse(require("fs").readFileSync(0, "utf8")).map((ask) =>
  "decode" in ask
    ? plain(message.decode(Buffer.from(ask.decode, "hex")))
    : message.encode({ body: typed(ask.encode) }).toString("hex"),
);
process.stdout.write(JSON.stringify(answers));
