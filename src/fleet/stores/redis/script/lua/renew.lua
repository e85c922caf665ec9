-- Lets the units in flight of a replica count for longer.
--
-- KEYS: the keys under which the replica has units in flight.
-- ARGV[1]: the present in microseconds or 0, the replica, and the lifetime of units in flight. For each key: the units, and
--   1 if these are all its units, or 0 if it may have more.
local args = ARGV[1]
local given_us, pos
given_us, owner, lifetime_us, pos = unpack('<ddd', args)
start(given_us)

local one = kind_of(7)
for _, key in ipairs(KEYS) do
  local units, is_exact
  units, is_exact, pos = unpack('<dd', args, pos)
  local state = one.read(key, 7, 0)
  one.renew(state, owner, units, is_exact == 1)
  one.save(state)
end
return #KEYS
