-- Shared by all scripts: numbers, time, and the form of values.
--
-- Every number is an integer below 2^53, which a double holds exactly. Instants are microseconds since the epoch.
-- A value is a string of little-endian doubles, the first of which is the number of its algorithm. A value of another form
-- counts as none. Lua makes a function anew whenever a script runs, so the functions of an algorithm are made at its first
-- use.
local call, pcall = redis.call, redis.pcall
local pack, unpack = struct.pack, struct.unpack
local ceil, floor, fmod, max, min = math.ceil, math.floor, math.fmod, math.max, math.min

local MOST = 9007199254740992 -- 2^53
local WRAP = 4294967296 -- 2^32

-- The present; the replica that asks; the time for which its units in flight count.
local now, owner, lifetime_us
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

-- `a / b`, rounded down.
local function quotient(a, b)
  return (a - fmod(a, b)) / b
end

-- `a / b`, rounded up.
local function quotient_up(a, b)
  local rest = fmod(a, b)
  return rest > 0 and (a - rest) / b + 1 or a / b
end

-- `a * b / c`, rounded up, below 2^53.
local function scaled_up(a, b, c)
  local product = a * b
  if product < MOST then
    return quotient_up(product, c)
  end
  -- Long division of `rest * b`, bit by bit. No sum exceeds 2^53.
  local rest, bits, bit = fmod(a, c), b, MOST / 2
  local whole, left = 0, 0
  while bit >= 1 do
    whole = whole * 2
    if left >= c - left then
      left, whole = left - (c - left), whole + 1
    else
      left = left + left
    end
    if bits >= bit then
      bits = bits - bit
      if left >= c - rest then
        left, whole = left - (c - rest), whole + 1
      else
        left = left + rest
      end
    end
    bit = bit / 2
  end
  if left > 0 then
    whole = whole + 1
  end
  return min(quotient(a, c) * b + whole, MOST - 1)
end

-- `used` plus `extra`, at most `count + max_debt`. The bound never lowers `used`.
local function settled(used, extra, count, max_debt)
  if extra < 0 then
    return max(used + extra, 0)
  end
  return min(used + extra, max(count + max_debt, used))
end

-- Whether all numbers are integers that a script has written.
local function are_valid(...)
  for _, number in ipairs({...}) do
    if not (number >= 0 and number < MOST) then
      return false
    end
  end
  return true
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
