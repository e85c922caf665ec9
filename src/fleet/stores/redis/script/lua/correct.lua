-- Gives charges back, and settles charges. Each correction has a number, which grows with each correction of a replica; a
-- correction that the server knows already changes nothing.
--
-- KEYS: keys that note the numbers of a replica, and a key for each correction.
-- ARGV[1]: the present in microseconds or 0, the replica, the lifetime of units in flight, the time in milliseconds for
--   which numbers are noted, and the number of corrections.
--   Each correction: the index of the key that notes its number, the number, the index of its key, and the algorithm. To
--   give back: -1, the units, and five numbers of the receipt. To settle: how many pairs follow, the largest debt, and five
--   numbers of the rule; the pairs are units and their age in microseconds: charges, the oldest first, and then what is
--   given back.
-- Returns the number of corrections that were made.
local args = ARGV[1]
local given_us, noted_ms, corrections, pos
given_us, owner, lifetime_us, noted_ms, corrections, pos = unpack('<ddddd', args)
start(given_us)

-- The last number by the key that notes it.
local noted, changed, applied = {}, {}, 0
local function is_new(key, number)
  local last = noted[key] or tonumber(stored(key) or '') or 0
  noted[key] = last
  if number <= last then
    return false
  end
  noted[key], changed[key] = number, true
  return true
end

for _ = 1, corrections do
  local of, number, index, kind, late_count, amount, a, b, c, d, e
  of, number, index, kind, late_count, amount, a, b, c, d, e, pos = unpack('<ddddddddddd', args, pos)
  local late, fresh = {}, {}
  for _ = 1, late_count do
    local units, age
    units, age, pos = unpack('<dd', args, pos)
    if units > 0 and age > 0 then
      late[#late + 1] = { units = units, age = age }
    else
      fresh[#fresh + 1] = units
    end
  end
  if is_new(KEYS[of], number) then
    local one, key = kind_of(kind), KEYS[index]
    if late_count >= 0 then
      local state = one.read(key, kind, a, b, c, d, e)
      if #late > 0 then
        one.settle_late(state, late, amount)
      end
      for _, units in ipairs(fresh) do
        one.settle(state, units, amount)
      end
      one.save(state)
    else
      one.refund(key, kind, amount, a, b, c, d, e)
    end
    applied = applied + 1
  end
end

for key in pairs(changed) do
  call('SET', key, string.format('%.0f', noted[key]), 'PX', noted_ms)
end
return applied
