// Looks up what each line of standard input says, "HOW NAME", and prints a line of what it found: "ok" and the
// results, or "no" and the failure, apart by tabs.
const dns = require('node:dns').promises;
const readline = require('node:readline');

const ways = {
  lookup: async (name) => (await dns.lookup(name, { all: true })).map((a) => a.address),
  resolve4: (name) => dns.resolve4(name),
  resolveSrv: async (name) => (await dns.resolveSrv(name)).map((s) => `${s.priority} ${s.weight} ${s.port} ${s.name}`),
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [how, name] = line.split(' ');
    try {
      console.log(['ok', ...(await ways[how](name))].join('\t'));
    } catch (e) {
      console.log(['no', e.code].join('\t'));
    }
  }
})();
