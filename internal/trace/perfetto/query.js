// Answers SQL queries about a trace with Perfetto's trace processor.
//
//	node query.js DIRECTORY TRACE QUERY
//
// DIRECTORY has engine_bundle.js and the WebAssembly of Perfetto's user interface. That
// script is made for a worker of a browser: here it gets what it uses of one. The answer is
// a list of rows as JSON.
"use strict";
const fs = require("fs");
const path = require("path");

const [directory, trace, query] = process.argv.slice(2);

// The messages of perfetto/protos/perfetto/trace_processor/trace_processor.proto.
const rpc = { message: 1, sequence: 1, request: 2, appendData: 101, queryArguments: 103, appendResult: 201, queryResult: 203 };
const method = { appendData: 1, finish: 2, query: 3 };
const appendError = 2;
const chunk = 8 << 20; // of a trace that is sent at a time: the processor's buffer has 32 MiB
const result = { columns: 1, error: 2, batch: 3 };
const batch = { cells: 1, varints: 2, floats: 3, strings: 5 };
const cell = { none: 1, varint: 2, float: 3, string: 4 };
const wire = { varint: 0, fixed64: 1, bytes: 2 };

function varint(n) {
  const out = [];
  for (n = BigInt(n); n > 127n; n >>= 7n) out.push(Number(n & 127n) | 128);
  return Buffer.from([...out, Number(n)]);
}
const number = (field, n) => Buffer.concat([varint((field << 3) | wire.varint), varint(n)]);
const bytes = (field, data) => Buffer.concat([varint((field << 3) | wire.bytes), varint(data.length), data]);

// A reader takes a message apart.
class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }
  varint() {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const b = this.data[this.at++];
      n |= BigInt(b & 127) << shift;
      if (b < 128) return BigInt.asIntN(64, n);
    }
  }
  *varints() {
    while (this.at < this.data.length) yield this.varint();
  }
  *fields() {
    while (this.at < this.data.length) {
      const key = Number(this.varint());
      let value;
      if ((key & 7) === wire.varint) value = this.varint();
      else {
        const length = (key & 7) === wire.fixed64 ? 8 : Number(this.varint());
        value = this.data.subarray(this.at, (this.at += length));
      }
      yield [key >> 3, value];
    }
  }
  static first(data, field) {
    for (const [id, value] of new Reader(data).fields()) if (id === field) return value;
  }
}

function rowsOf(answers) {
  const rows = [];
  let columns = 0;
  let row = [];
  for (const answer of answers) {
    const fields = [...new Reader(answer).fields()];
    for (const [id, value] of fields) {
      if (id === result.error && value.length > 0) throw new Error(value.toString());
      if (id === result.columns) columns++;
    }
    for (const [, data] of fields.filter(([id]) => id === result.batch)) {
      const values = { [cell.varint]: [], [cell.float]: [], [cell.string]: [] };
      let kinds = [];
      for (const [id, value] of new Reader(data).fields()) {
        if (id === batch.cells) kinds = [...new Reader(value).varints()].map(Number);
        if (id === batch.varints) values[cell.varint] = [...new Reader(value).varints()].map(Number);
        if (id === batch.floats) for (let i = 0; i < value.length; i += 8) values[cell.float].push(value.readDoubleLE(i));
        if (id === batch.strings) values[cell.string] = value.toString().split("\0");
      }
      for (const kind of kinds) {
        row.push(kind === cell.none ? null : values[kind].shift());
        if (row.length === columns) row = (rows.push(row), []);
      }
    }
  }
  return rows;
}

// A worker's way to read a file that lies beside its script.
class Request {
  open(_, url) {
    this.url = url;
  }
  send() {
    this.response = fs.readFileSync(path.join(directory, path.basename(this.url)));
  }
}

const worker = { location: new URL("http://localhost/engine_bundle.js") };
const silent = { log() {}, warn() {}, error: console.error };
const script = fs.readFileSync(path.join(directory, "engine_bundle.js"), "utf8");
new Function("self", "location", "XMLHttpRequest", "WorkerGlobalScope", "process", "console", script)(
  worker, worker.location, Request, class {}, undefined, silent);

setImmediate(() => { // the script initializes itself in a promise
  let replies = [];
  const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
  worker.onmessage({ data: port });
  let sequence = 0;
  const call = (id, request = Buffer.alloc(0)) => {
    replies = [];
    const body = Buffer.concat([number(rpc.sequence, sequence++), number(rpc.request, id), request]);
    port.onmessage({ data: new Uint8Array(bytes(rpc.message, body)) });
    return [...new Reader(Buffer.concat(replies)).fields()].map(([, message]) => message);
  };
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += chunk) {
    const [answer] = call(method.appendData, bytes(rpc.appendData, data.subarray(at, at + chunk)));
    const error = Reader.first(Reader.first(answer, rpc.appendResult), appendError);
    if (error && error.length > 0) throw new Error(`${trace}: ${error}`);
  }
  call(method.finish);
  const answers = call(method.query, bytes(rpc.queryArguments, bytes(1, Buffer.from(query))));
  console.log(JSON.stringify(rowsOf(answers.map((a) => Reader.first(a, rpc.queryResult)))));
});
