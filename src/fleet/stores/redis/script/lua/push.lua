-- Takes the states that a replica knows, after this server has lost its own. Of two states of a key it keeps that with the
-- larger debt.
--
-- KEYS: a key for each state.
-- ARGV[1]: the present in microseconds or 0. Each state: its algorithm, five numbers of its rule, how many numbers follow,
--   and these: its numbers.
-- Returns the number of states that were taken.
local args = ARGV[1]
local given_us, pos = unpack('<d', args)
start(given_us)

local taken = 0
for _, key in ipairs(KEYS) do
  local kind, a, b, c, d, e, count
  kind, a, b, c, d, e, count, pos = unpack('<ddddddd', args, pos)
  local numbers = {}
  for index = 1, count do
    numbers[index], pos = unpack('<d', args, pos)
  end
  local one = kind_of(kind)
  local state = one.read(key, kind, a, b, c, d, e)
  if one.merge(state, numbers) then
    one.save(state)
    taken = taken + 1
  end
end
return taken
