-- What all scripts but one share: time, and the form of values.
--
-- Instants are microseconds since the epoch.
-- A value is a string of little-endian doubles, the first of which is the number of its algorithm. A value of another form
-- counts as none. Lua makes a function anew whenever a script runs, so the functions of an algorithm are made at its first
-- use.
local call, pcall = redis.call, redis.pcall
local pack, unpack = struct.pack, struct.unpack
local ceil, floor, max = math.ceil, math.floor, math.max

local WRAP = 4294967296 -- 2^32

-- The present; the replica that asks; the time for which its units in flight count, in scripts that let them count.
local now, owner, lifetime_us = nil, nil, MOST
-- Whether the clock was set back after a state was written. Then a denial saves states too: otherwise they would not age
-- before the clock reaches their old instants.
local is_set_back = false
-- Added to the time to live of every key.
local margin_ms = 0

-- `given_us` is the present of a test, or 0. The clock of a test is not that of the server, so keys live for longer.
local function start(given_us)
  now = given_us
  if now == 0 then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  else
    margin_ms = 3600000
  end
end

-- `used` plus `extra`, at most `count + max_debt`. The bound never lowers `used`.
local function settled(used, extra, count, max_debt)
  if extra < 0 then
    return max(used + extra, 0)
  end
  return min(used + extra, max(count + max_debt, used))
end

-- Whether these are integers that a script may have written.
local function are_valid(a, b, c, d)
  return a >= 0 and a < MOST and b >= 0 and b < MOST and c >= 0 and c < MOST and d >= 0 and d < MOST
end

-- An instant of a state, which is later than `most` only if the clock was set back since.
local function at_most(at, most)
  is_set_back = is_set_back or at > most
  return min(at, most)
end

-- The value of a key; `nil` if it has none, or a value that is no string.
local function stored(key)
  local value = pcall('GET', key)
  return type(value) == 'string' and value or nil
end

-- The time to live of a key that is idle after `us` microseconds: longer, and never 0.
local function ttl_ms(us)
  return floor(max(us, 0) / 1000) + 1 + margin_ms
end

local function put(key, value, us)
  call('SET', key, value, 'PX', ttl_ms(us))
end
