// Drives the Modal SDK. The argument is its name in package.json.
import { drive } from './drive.mjs'

const { ModalClient } = await import(process.argv[2])

let client
const sandboxes = new Map() // by id
const processes = [] // by the number that exec reports
let underWay // what begin began
const sandbox = (id) => sandboxes.get(id)

function keep(made) {
  sandboxes.set(made.sandboxId, made)
  return made.sandboxId
}

const app = (name) => client.apps.fromName(name, { createIfMissing: true })

async function create(params, image = client.images.fromRegistry('alpine:3.21')) {
  const { app: name = 'sdkcheck', ...rest } = params
  return keep(await client.sandboxes.create(await app(name), image, rest))
}

async function ids(rows) {
  const all = []
  for await (const row of rows) all.push(keep(row))
  return all
}

async function write(stream, text) {
  await stream.writeText(text)
  await stream.close()
}

async function finished(process) {
  const [stdout, stderr] = await Promise.all([process.stdout.readText(), process.stderr.readText()])
  return { stdout, stderr, exitCode: await process.wait() }
}

await drive({
  // The SDK reads its environment whenever a client is made.
  open: (env) => {
    client?.close()
    for (const name of Object.keys(process.env)) if (name.startsWith('MODAL_')) delete process.env[name]
    Object.assign(process.env, env)
    client = new ModalClient()
  },
  create: (params) => create(params),
  fromSnapshot: async (id, params) => create(params, await sandbox(id).snapshotFilesystem()),
  fromID: async (id) => keep(await client.sandboxes.fromId(id)),
  fromName: async (name, params) => keep(await client.sandboxes.fromName('sdkcheck', name, params)),
  list: async ({ app: name, ...params }) => {
    if (name) params.appId = (await app(name)).appId
    return ids(client.sandboxes.list(params))
  },
  setTags: (id, tags) => sandbox(id).setTags(tags),
  getTags: (id) => sandbox(id).getTags(),
  poll: (id) => sandbox(id).poll(),
  wait: (id) => sandbox(id).wait(),
  terminate: (id, params) => sandbox(id).terminate(params),
  detach: (id) => sandbox(id).detach(),
  tunnels: async (id) => {
    const tunnels = Object.entries(await sandbox(id).tunnels(60_000))
    return tunnels.map(([port, { url, unencryptedHost: host, unencryptedPort }]) => {
      return { port: Number(port), url, host, unencryptedPort }
    })
  },

  // The entrypoint.
  feed: (id, text) => write(sandbox(id).stdin, text),
  output: async (id) => ({ stdout: await sandbox(id).stdout.readText(), stderr: await sandbox(id).stderr.readText() }),

  exec: async (id, command, { stdin, ...params }) => {
    const process = await sandbox(id).exec(command, params)
    if (stdin !== undefined) await write(process.stdin, stdin)
    return finished(process)
  },
  execBytes: async (id, command, bytes) => {
    const process = await sandbox(id).exec(command, { mode: 'binary' })
    await process.stdin.writeBytes(Uint8Array.from(bytes))
    await process.stdin.close()
    return [...(await process.stdout.readBytes())]
  },
  start: async (id, command, params) => processes.push(await sandbox(id).exec(command, params)) - 1,
  exit: (number) => processes[number].wait(),
  begin: (id, command) => {
    underWay = sandbox(id).exec(command).then(finished)
    underWay.catch(() => {}) // end tells
  },
  end: () => underWay,

  writeText: (id, text, path) => sandbox(id).filesystem.writeText(text, path),
  readText: (id, path) => sandbox(id).filesystem.readText(path),
  writeBytes: (id, bytes, path) => sandbox(id).filesystem.writeBytes(Uint8Array.from(bytes), path),
  readBytes: async (id, path) => [...(await sandbox(id).filesystem.readBytes(path))],
  upload: (id, local, path) => sandbox(id).filesystem.copyFromLocal(local, path),
  download: (id, path, local) => sandbox(id).filesystem.copyToLocal(path, local),
  listFiles: (id, path) => sandbox(id).filesystem.listFiles(path),
  stat: (id, path) => sandbox(id).filesystem.stat(path),
  makeDirectory: (id, path, options) => sandbox(id).filesystem.makeDirectory(path, options),
  remove: (id, path, options) => sandbox(id).filesystem.remove(path, options),
})
