"""Atomic steps of the durable queue: Lua scripts inside Redis, where nothing else happens between two lines.

Scripts that change something work on one job and may run twice. Redis 6.2 has all their commands.
"""

from __future__ import annotations

from llm_service.records import Status

GROUP = "consumers"
"""Name of the one consumer group."""

SUBMIT = f"""
local waiting, answers, pending, buried = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key, job, length = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HEXISTS', answers, key) == 1 then return {Status.OK} end
if redis.call('HEXISTS', buried, key) == 1 then return {Status.DEAD} end
if redis.call('HEXISTS', pending, key) == 1 then return {Status.PENDING} end
if redis.call('XLEN', waiting) >= length then return {Status.BUSY} end
if redis.call('EXISTS', waiting) == 0 then
  local made = redis.pcall('XGROUP', 'CREATE', waiting, '{GROUP}', '0', 'MKSTREAM')
  if made.err then return string.find(made.err, 'OOM') and {Status.BUSY} or made end
end
local entry = redis.pcall('XADD', waiting, '*', 'key', key, 'job', job)
if type(entry) == 'table' then return string.find(entry.err, 'OOM') and {Status.BUSY} or entry end
redis.call('HSET', pending, key, entry)
return {Status.PENDING}
"""
"""Accept one job, unless it is known or there is no room. Returns a Status."""

FETCH = """
local answers, buried, pending = unpack(KEYS)
local rows = {}
for i, key in ipairs(ARGV) do
  rows[i] = {redis.call('HGET', answers, key), redis.call('HGET', buried, key), redis.call('HGET', pending, key)}
end
return rows
"""
"""The state of some keys: (answer, grave, entry) of each. Unlike MULTI, a script can read when memory is full."""

FINISH = f"""
local waiting, answers, pending, buried, dead, expiry = unpack(KEYS)
local key, entry, answer, now, keep = unpack(ARGV)
local function settle(id)
  redis.call('XACK', waiting, '{GROUP}', id)
  redis.call('XDEL', waiting, id)
end
settle(entry)
local again = redis.call('HGET', pending, key)
if again and again ~= entry then settle(again) end
redis.call('HDEL', pending, key)
local grave = redis.call('HGET', buried, key)
if grave then
  redis.call('XDEL', dead, string.match(grave, '^%S+'))
  redis.call('HDEL', buried, key)
end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, 16)) do
  redis.call('HDEL', answers, old)
  redis.call('ZREM', expiry, old)
end
local stored = redis.call('HSETNX', answers, key, answer)
if stored == 1 and keep ~= '' then redis.call('ZADD', expiry, keep, key) end
return stored
"""
"""Store the answer of one job unless it has one, delete the job, and delete a few expired answers.

Returns 1 if stored. It frees memory before it uses some: see `durable`.
"""

BURY = f"""
local waiting, answers, pending, buried, dead = unpack(KEYS)
local key, entry, reason, at, deliveries = unpack(ARGV)
local found = redis.call('XRANGE', waiting, entry, entry)[1]
redis.call('XACK', waiting, '{GROUP}', entry)
redis.call('XDEL', waiting, entry)
if not found then return 0 end
if key ~= '' then
  local current = redis.call('HGET', pending, key)
  if current and current ~= entry then return 0 end
  redis.call('HDEL', pending, key)
  if redis.call('HEXISTS', answers, key) == 1 then return 0 end
end
local fields = found[2]
local grave = redis.call('XADD', dead, '*', 'reason', reason, 'at', at, 'deliveries', deliveries,
  unpack(fields, 1, math.min(#fields, 1000)))
if key ~= '' then redis.call('HSET', buried, key, grave .. ' ' .. reason) end
return 1
"""
"""Move one entry to the dead letters, unless its job has ended meanwhile. Returns 1 if moved."""

_OPEN_LETTER = """
local entry, key = ARGV[1], nil
local found = redis.call('XRANGE', dead, entry, entry)[1]
if not found then return 0 end
local fields = found[2]
for i = 1, #fields, 2 do
  if fields[i] == 'key' then key = fields[i + 1] end
end
redis.call('XDEL', dead, entry)
if key then redis.call('HDEL', buried, key) end
"""
"""Remove one dead letter if it exists: sets its fields, and its job's key unless that is unreadable."""

RETRY = f"""
local waiting, pending, buried, dead = unpack(KEYS)
{_OPEN_LETTER}
if redis.call('EXISTS', waiting) == 0 then redis.call('XGROUP', 'CREATE', waiting, '{GROUP}', '0', 'MKSTREAM') end
local again = redis.call('XADD', waiting, '*', unpack(fields, 7))
if key then redis.call('HSET', pending, key, again) end
return 1
"""
"""Put one dead letter back as a new entry, without the six items that `BURY` put first. Returns 1 if it existed.

Like `FINISH`, it frees memory before it uses some.
"""

DROP = f"""
local buried, dead = unpack(KEYS)
{_OPEN_LETTER}
return 1
"""
"""Drop one dead letter. Returns 1 if it existed."""
