// Sends the requests in the lines of standard input with Node's own clients, each as Node does by
// default, and prints a line for each that has ended. Ends with standard input.
import { request as requestHttp1 } from 'node:http';
import { connect } from 'node:http2';
import { createInterface } from 'node:readline';

const WHILE_IT_ARRIVES_MS = 1000;

// Each begins a request and returns how to leave it.

function http2({ port, path, headers, body, way }, seen) {
  const session = connect(`http://127.0.0.1:${port}`);
  const stream = session.request({ ':method': 'POST', ':path': path, ...headers });
  session.on('error', seen.failed);
  stream.on('error', seen.failed);
  stream.on('response', (received) => seen.begun(received[':status'], received));
  stream.on('data', seen.data);
  stream.on('end', () => seen.ended(stream.rstCode === 0));
  stream.on('close', () => {
    seen.ended(false);
    setTimeout(() => session.destroy(), WHILE_IT_ARRIVES_MS); // what it sent last, as it is
  });
  stream.end(body);
  return {
    'node-close': () => stream.close(),
    'node-destroy': () => stream.destroy(),
    'node-session-close': () => { session.close(); stream.close(); },
    'node-session-destroy': () => session.destroy(),
  }[way];
}

function http1({ port, path, headers, body }, seen) {
  const request = requestHttp1({ port, path, headers, host: '127.0.0.1', method: 'POST', agent: false });
  request.on('error', seen.failed);
  request.on('response', (response) => {
    seen.begun(response.statusCode, response.headers);
    response.on('error', seen.failed);
    response.on('data', seen.data);
    response.on('end', () => seen.ended(response.complete));
  });
  request.end(body);
  return () => request.destroy();
}

function fetched({ port, path, headers: { 'content-length': _, ...headers }, body }, seen) {
  const controller = new AbortController();
  const read = async () => {
    const url = `http://127.0.0.1:${port}${path}`;
    const response = await fetch(url, { method: 'POST', headers, body, signal: controller.signal });
    seen.begun(response.status, Object.fromEntries(response.headers));
    for await (const chunk of response.body) seen.data(chunk);
    seen.ended(true);
  };
  read().catch((error) => seen.failed(error.cause ?? error));
  return () => controller.abort();
}

function ask(line) {
  const result = { id: line.id, status: 0, headers: {}, has_left: false, is_whole: false, error: '' };
  const chunks = [];
  let isOver = false;
  const ended = (isWhole) => {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    const body = Buffer.concat(chunks).toString('base64');
    const endedAt = Number(process.hrtime.bigint()) / 1e9;
    console.log(JSON.stringify({ ...result, is_whole: isWhole, ended_at: endedAt, body }));
  };
  const leave = (line.way === 'node-http1' ? http1 : line.way === 'node-fetch' ? fetched : http2)(line, {
    begun: (status, headers) => {
      result.status = status;
      for (const name of Object.keys(headers)) {
        if (name.startsWith('x-coxswain-')) result.headers[name] = headers[name];
      }
    },
    data: (chunk) => chunks.push(chunk),
    ended,
    failed: (error) => { result.error ||= String(error); ended(false); },
  });
  const timer = setTimeout(() => {
    result.has_left = true;
    leave();
    ended(false);
  }, 1000 * line.leaves_after_s);
}

createInterface({ input: process.stdin })
  .on('line', (line) => ask(JSON.parse(line)))
  .on('close', () => process.exit());
