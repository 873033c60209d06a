// Drives the E2B SDK. The argument is its name in package.json, for two lines of it are checked.
import { drive } from './drive.mjs'

const { Sandbox } = await import(process.argv[2])

const sandboxes = new Map() // by id
const commands = new Map() // by process id
const sandbox = (id) => sandboxes.get(id)

function keep(made) {
  sandboxes.set(made.sandboxId, made)
  return made.sandboxId
}

await drive({
  open: (env) => void Object.assign(process.env, env), // where each call looks anew
  create: async (template, options) => keep(await Sandbox.create(template, options)),
  connect: async (id, options) => keep(await Sandbox.connect(id, options)),
  info: (id) => sandbox(id).getInfo(),
  infoByID: (id) => Sandbox.getInfo(id),
  isRunning: (id) => sandbox(id).isRunning(),
  setTimeout: (id, ms) => sandbox(id).setTimeout(ms),
  pause: (id) => sandbox(id).pause(),
  kill: (id) => sandbox(id).kill(),
  killByID: (id) => Sandbox.kill(id),
  pages: async (options) => {
    const pages = []
    for (const list = Sandbox.list(options); list.hasNext; ) pages.push(await list.nextItems())
    return pages
  },

  run: (id, command, options) => sandbox(id).commands.run(command, options),
  stream: async (id, command) => {
    const heard = []
    await sandbox(id).commands.run(command, {
      onStdout: (data) => void heard.push(['stdout', data]),
      onStderr: (data) => void heard.push(['stderr', data]),
    })
    return heard
  },
  start: async (id, command, options) => {
    const handle = await sandbox(id).commands.run(command, { ...options, background: true })
    commands.set(handle.pid, handle)
    return handle.pid
  },
  processes: async (id) => (await sandbox(id).commands.list()).map((p) => p.pid),
  sendStdin: (id, pid, data) => sandbox(id).commands.sendStdin(pid, data),
  closeStdin: (id, pid) => sandbox(id).commands.closeStdin(pid),
  killProcess: (id, pid) => sandbox(id).commands.kill(pid),
  disconnect: (pid) => commands.get(pid).disconnect(),
  reconnect: async (id, pid) => void commands.set(pid, await sandbox(id).commands.connect(pid)),
  wait: (pid) => commands.get(pid).wait(),

  write: (id, path, data) => sandbox(id).files.write(path, data),
  writeMany: (id, files) => sandbox(id).files.write(files),
  writeStream: (id, path, data) => sandbox(id).files.write(path, new Blob([data]).stream()),
  read: (id, path) => sandbox(id).files.read(path),
  readBytes: async (id, path) => [...(await sandbox(id).files.read(path, { format: 'bytes' }))],
  exists: (id, path) => sandbox(id).files.exists(path),
  stat: (id, path) => sandbox(id).files.getInfo(path),
  listDir: (id, path) => sandbox(id).files.list(path),
  makeDir: (id, path) => sandbox(id).files.makeDir(path),
  rename: (id, from, to) => sandbox(id).files.rename(from, to),
  remove: (id, path) => sandbox(id).files.remove(path),
})
