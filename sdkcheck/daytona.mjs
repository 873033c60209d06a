// Drives the Daytona SDK. The argument is its name in package.json. How it learns of new states is up to the
// environment: by events, which it falls back from, or with DAYTONA_USE_DEPRECATED_POLLING by looking.
import { drive } from './drive.mjs'

const { Daytona } = await import(process.argv[2])

let daytona
const sandboxes = new Map() // by id
const sandbox = (id) => sandboxes.get(id)

function keep(made) {
  sandboxes.set(made.id, made)
  return tell(made)
}

function tell({ id, name, state, labels, autoDestroyAt, autoStopInterval, autoDeleteInterval, errorReason }) {
  return { id, name, state, labels, autoDestroyAt, autoStopInterval, autoDeleteInterval, errorReason }
}

async function fresh(made) {
  await made.refreshData()
  return tell(made)
}

await drive({
  open: (env) => {
    Object.assign(process.env, env)
    daytona = new Daytona()
  },
  create: async (params, options) => keep(await daytona.create(params, options)),
  get: async (idOrName) => keep(await daytona.get(idOrName)),
  info: (id) => fresh(sandbox(id)),
  known: (id) => tell(sandbox(id)), // without a request
  list: async (query) => {
    const found = []
    for await (const made of daytona.list(query)) found.push(tell(made))
    return found
  },
  setTtl: (id, minutes) => sandbox(id).setTtl(minutes),
  setAutostop: (id, minutes) => sandbox(id).setAutostopInterval(minutes),
  setAutoDelete: (id, minutes) => sandbox(id).setAutoDeleteInterval(minutes),
  setAutoArchive: (id, minutes) => sandbox(id).setAutoArchiveInterval(minutes),
  setLabels: (id, labels) => sandbox(id).setLabels(labels),
  refreshActivity: (id) => sandbox(id).refreshActivity(),
  stop: (id, seconds) => sandbox(id).stop(seconds),
  start: (id, seconds) => sandbox(id).start(seconds),
  pause: (id) => sandbox(id).pause(),
  delete: (id, seconds, wait) => sandbox(id).delete(seconds, wait),

  run: (id, command, cwd, env, seconds) => sandbox(id).process.executeCommand(command, cwd, env, seconds),
  createSession: (id, session) => sandbox(id).process.createSession(session),
  session: (id, session) => sandbox(id).process.getSession(session),
  runInSession: (id, session, command, runAsync) =>
    sandbox(id).process.executeSessionCommand(session, { command, runAsync }),
  sendInput: (id, session, command, data) => sandbox(id).process.sendSessionCommandInput(session, command, data),
  command: (id, session, command) => sandbox(id).process.getSessionCommand(session, command),
  logs: (id, session, command) => sandbox(id).process.getSessionCommandLogs(session, command),
  follow: async (id, session, command) => {
    const heard = { stdout: '', stderr: '' }
    await sandbox(id).process.getSessionCommandLogs(
      session,
      command,
      (data) => void (heard.stdout += data),
      (data) => void (heard.stderr += data),
    )
    return heard
  },
  deleteSession: (id, session) => sandbox(id).process.deleteSession(session),

  upload: (id, path, data) => sandbox(id).fs.uploadFile(Buffer.from(data), path),
  uploadMany: (id, files) =>
    sandbox(id).fs.uploadFiles(files.map(({ path, data }) => ({ source: Buffer.from(data), destination: path }))),
  download: async (id, path) => (await sandbox(id).fs.downloadFile(path)).toString(),
  downloadMany: async (id, paths) =>
    (await sandbox(id).fs.downloadFiles(paths.map((source) => ({ source })))).map(({ source, result, error }) => ({
      path: source,
      data: result?.toString(),
      error,
    })),
  stat: (id, path) => sandbox(id).fs.getFileDetails(path),
  listDir: (id, path) => sandbox(id).fs.listFiles(path),
  makeDir: (id, path, mode) => sandbox(id).fs.createFolder(path, mode),
  rename: (id, from, to) => sandbox(id).fs.moveFiles(from, to),
  remove: (id, path) => sandbox(id).fs.deleteFile(path),
  workDir: (id) => sandbox(id).getWorkDir(),
  homeDir: (id) => sandbox(id).getUserHomeDir(),
})
