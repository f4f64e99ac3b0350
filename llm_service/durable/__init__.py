"""The durable lane: what may be late and must not be lost.

queue         jobs in Redis Streams: submit, take, finish, bury, fetch
scripts       the steps of a job as Lua, so that each happens or does not
consumer      takes jobs, asks the service, stores what it says
redis_server  a real Redis, ours or yours
"""
