// Drives the Vercel Sandbox SDK. The argument is its name in package.json.
import { drive } from './drive.mjs'

const { Sandbox, Snapshot } = await import(process.argv[2])

let access // what each call without a handle takes
const sandboxes = new Map() // by name
const sessions = new Map() // by id
const commands = new Map() // by id
const snapshots = new Map() // by id
let underWay // what begin or beginCreate began
let given // up, by abort
const properties = (
  'name status persistent tags timeout createdAt expiresAt image runtime vcpus memory ' +
  'currentSnapshotId sourceSnapshotId'
).split(' ')
const sandbox = (name) => sandboxes.get(name)

function keep(made) {
  sandboxes.set(made.name, made)
  return tell(made)
}

function tell(made) {
  const session = made.currentSession()
  sessions.set(session.sessionId, session)
  const told = { sessionId: session.sessionId, sessionTimeout: session.timeout }
  for (const property of properties) told[property] = made[property]
  return told
}

function keepSnapshot(made) {
  snapshots.set(made.snapshotId, made)
  return { id: made.snapshotId, session: made.sourceSessionId, status: made.status, expiresAt: made.expiresAt }
}

async function finished(command) {
  return { exitCode: command.exitCode, stdout: await command.stdout(), stderr: await command.stderr() }
}

async function paged(first, items) {
  const pages = []
  for await (const page of first.pages()) pages.push(page[items])
  return pages
}

function begin(promise) {
  underWay = promise
  promise.catch(() => {}) // end tells
}

await drive({
  // The SDK asks at one address only, but takes another fetch.
  open: ({ url, ...credentials }) => {
    access = { ...credentials, fetch: (address, init) => fetch(address.replace('https://vercel.com', url), init) }
  },
  create: async (params) => keep(await Sandbox.create({ ...access, ...params })),
  beginCreate: (params) => {
    given = new AbortController()
    begin(Sandbox.create({ ...access, ...params, signal: given.signal }))
  },
  abort: () => given.abort(),
  end: () => underWay,
  get: async (name, params) => keep(await Sandbox.get({ ...access, name, ...params })),
  getOrCreate: async (params) => keep(await Sandbox.getOrCreate({ ...access, ...params })),
  fork: async (sourceSandbox, params) => keep(await Sandbox.fork({ ...access, sourceSandbox, ...params })),
  known: (name) => tell(sandbox(name)), // without a request
  pages: async (params) => paged(await Sandbox.list({ ...access, ...params }), 'sandboxes'),
  sessions: async (name, params) => paged(await sandbox(name).listSessions(params), 'sessions'),
  update: (name, params) => sandbox(name).update(params),
  extend: (name, ms) => sandbox(name).extendTimeout(ms),
  extendSession: (id, ms) => sessions.get(id).extendTimeout(ms),
  stop: async (name) => {
    const { id, status, snapshot } = await sandbox(name).stop()
    return { session: id, status, snapshot: snapshot?.id }
  },
  stopSession: (id) => sessions.get(id).stop(),
  dispose: (name) => sandbox(name)[Symbol.asyncDispose](), // what `await using` does at the end of a block
  delete: (name, params) => sandbox(name).delete(params),
  domain: (name, port) => sandbox(name).domain(port),

  snapshot: async (name, params) => keepSnapshot(await sandbox(name).snapshot(params)),
  getSnapshot: async (snapshotId) => keepSnapshot(await Snapshot.get({ ...access, snapshotId })),
  snapshots: async (params) => paged(await Snapshot.list({ ...access, ...params }), 'snapshots'),
  deleteSnapshot: async (id) => {
    await snapshots.get(id).delete()
    return snapshots.get(id).status
  },

  run: async (name, params) => finished(await sandbox(name).runCommand(params)),
  runInSession: async (id, params) => finished(await sessions.get(id).runCommand(params)),
  begin: (name, params) => begin(sandbox(name).runCommand(params).then(finished)),
  start: async (name, params) => {
    const command = await sandbox(name).runCommand({ ...params, detached: true })
    commands.set(command.cmdId, command)
    return { id: command.cmdId, exitCode: command.exitCode }
  },
  find: async (name, id) => {
    const command = await sandbox(name).getCommand(id)
    commands.set(id, command)
    return { id: command.cmdId, exitCode: command.exitCode }
  },
  follow: async (id) => {
    const heard = []
    for await (const { stream, data } of commands.get(id).logs()) heard.push([stream, data])
    return heard
  },
  wait: async (id) => finished(await commands.get(id).wait()),
  kill: (id, signal) => commands.get(id).kill(signal),

  write: (name, files) =>
    sandbox(name).writeFiles(files.map(({ data, ...file }) => ({ ...file, content: Buffer.from(data) }))),
  read: async (name, path, cwd) => (await sandbox(name).readFileToBuffer({ path, cwd }))?.toString(),
  readBytes: async (name, path) => [...(await sandbox(name).readFileToBuffer({ path }))],
  makeDir: (name, path) => sandbox(name).mkDir(path),
  exists: (name, path) => sandbox(name).fs.exists(path),
  listDir: (name, path) => sandbox(name).fs.readdir(path),
  rename: (name, from, to) => sandbox(name).fs.rename(from, to),
  remove: (name, path) => sandbox(name).fs.rm(path),
  readText: (name, path) => sandbox(name).fs.readFile(path, 'utf8'),
})
