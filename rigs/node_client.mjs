// Sends the requests in the lines of standard input over HTTP/2, each on a session of its own, and
// prints a line for each that has ended. Leaves as Node does by default: without an error code.
import { connect } from 'node:http2';
import { createInterface } from 'node:readline';

const origin = `http://127.0.0.1:${process.argv[2]}`;

const leave = {
  close: (session, stream) => stream.close(),
  destroy: (session, stream) => stream.destroy(),
  'session-close': (session, stream) => { session.close(); stream.close(); },
  'session-destroy': (session) => session.destroy(),
};

function ask({ id, path, headers, body, way, leaves_after_s: leavesAfterS }) {
  const ended = { id, status: 0, headers: {}, body: '', is_whole: false, has_left: false, error: '' };
  const session = connect(origin);
  const stream = session.request({ ':method': 'POST', ':path': path, ...headers });
  const chunks = [];
  let timer;
  const finish = () => {
    if (ended.is_over) return;
    ended.is_over = true;
    clearTimeout(timer);
    ended.body = Buffer.concat(chunks).toString('base64');
    console.log(JSON.stringify(ended));
    if (!ended.has_left || way === 'session-destroy') session.destroy();
    else setTimeout(() => session.destroy(), 1000); // what it sent is to arrive as it is
  };
  const failed = (error) => { ended.error ||= String(error); finish(); };
  session.on('error', failed);
  stream.on('error', failed);
  stream.on('response', (received) => {
    ended.status = received[':status'];
    for (const name of Object.keys(received)) {
      if (name.startsWith('x-coxswain-')) ended.headers[name] = received[name];
    }
  });
  stream.on('data', (chunk) => chunks.push(chunk));
  stream.on('end', () => { ended.is_whole = !ended.has_left; });
  stream.on('close', finish);
  timer = setTimeout(() => {
    ended.has_left = true;
    leave[way](session, stream);
    finish();
  }, 1000 * leavesAfterS);
  stream.end(body);
}

createInterface({ input: process.stdin }).on('line', (line) => ask(JSON.parse(line)));
