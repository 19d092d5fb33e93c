// Measures BullMQ: `node measure.mjs CASE MODE SOCKET NUMBER...` prints a metric and its value on each line.
//
//   clients MODE SOCKET CLIENTS SECONDS          clients add a job each and wait for the answer
//   batches MODE SOCKET SECONDS                  jobs are added a thousand at a time
//   lateness MODE SOCKET PENDING PER_SECOND SECONDS   jobs that become due beside others that are far
//
// SOCKET is the Unix socket of a Redis server. MODE is `shipped`, with one job at a time in a worker, or `tuned`, with 256.

import { Queue, Worker } from 'bullmq'

const [name, mode, path, ...rest] = process.argv.slice(2)
const numbers = rest.map(Number)
const connection = { path, maxRetriesPerRequest: null }
const queue = new Queue(`bench-${process.pid}`, { connection })
const payload = '7'.repeat(256)
const far = 30 * 86_400_000
const options = { removeOnComplete: true }
const batch = 1000

const say = (metric, value) => console.log(`${metric} ${value}`)
const quantile = (sorted, share) => sorted[Math.floor((sorted.length - 1) * share)] ?? 0
const addFar = count => queue.addBulk(Array.from({ length: count }, () => ({ name: 'fire', data: { payload }, opts: { delay: far, ...options } })))

async function clients(count, seconds) {
  const end = performance.now() + seconds * 1000
  const begin = performance.now()
  const times = []
  const client = async () => {
    while (performance.now() < end) {
      const start = performance.now()
      await queue.add('fire', { payload }, { delay: far, ...options })
      times.push(performance.now() - start)
    }
  }
  await Promise.all(Array.from({ length: count }, client))
  say('creates_per_s', times.length / ((performance.now() - begin) / 1000))
  times.sort((a, b) => a - b)
  say('answer_p50_ms', quantile(times, 0.5))
  say('answer_p99_ms', quantile(times, 0.99))
}

async function batches(seconds) {
  const begin = performance.now()
  let count = 0
  while (performance.now() - begin < seconds * 1000) {
    await Promise.all([addFar(batch), addFar(batch)])
    count += 2 * batch
  }
  say('creates_per_s', count / ((performance.now() - begin) / 1000))
}

async function lateness(pending, perSecond, seconds) {
  for (let added = 0; added < pending; added += 4 * batch) await Promise.all(Array.from({ length: 4 }, () => addFar(batch)))
  const begin = Date.now() + 8000
  for (let second = 0; second < seconds; second++) {
    const jobs = Array.from({ length: perSecond }, (_, index) => {
      const due = begin + second * 1000 + Math.floor(index * 1000 / perSecond)
      return { name: 'fire', data: { payload, due }, opts: { delay: Math.max(0, due - Date.now()), ...options } }
    })
    await queue.addBulk(jobs)
  }
  if (Date.now() > begin) console.error('warning: some jobs were due before they were added')
  const late = []
  const worker = new Worker(queue.name, async job => { late.push(Date.now() - job.data.due) }, { connection, concurrency: mode === 'tuned' ? 256 : 1 })
  const limit = Date.now() + (seconds + 60) * 1000
  while (late.length < perSecond * seconds && Date.now() < limit) await new Promise(done => setTimeout(done, 20))
  late.sort((a, b) => a - b)
  // A queue that delivered nothing has no lateness.
  if (late.length > 0) {
    say('p50_us', quantile(late, 0.5) * 1000)
    say('p99_us', quantile(late, 0.99) * 1000)
    say('max_us', quantile(late, 1) * 1000)
  }
  say('delivered', late.length)
  say('expected', perSecond * seconds)
  await worker.close(true)
}

await { clients, batches, lateness }[name](...numbers)
process.exit(0)
