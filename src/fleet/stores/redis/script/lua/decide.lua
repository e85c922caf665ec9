-- Decides all charges of a request that are on this server: all are made, or none.
--
-- KEYS: a key for each rate of each charge.
-- ARGV[1]: the expected generation of the server, or empty.
-- ARGV[2]: the present in microseconds or 0, the replica, the lifetime of units in flight, and the number of charges.
--   Each charge: its handling (0 enforced, 1 shadow, 2 delayed), the largest debt, the cost, the units that are wanted, the
--   divisor of what remains, and the number of rates. Each rate: its algorithm, and five numbers of its rule.
-- ARGV[3]: the key of the marker. It is no member of KEYS, which are in one slot of a cluster: the marker is in another slot
--   of the same server.
-- Returns {2} if the generation differs. Else 1 or 0 for all charges, and the present. Each charge: the units admitted, the
--   units charged, and 1 if it is charged, 2 if it is not and the server keeps its state under another rule, else 0. Each
--   rate: the numbers of its state.
--
-- A charge that is not made writes nothing, unless the clock was set back.
if ARGV[1] ~= '' and pcall('GET', ARGV[3]) ~= ARGV[1] then
  return { 2 }
end
local args = ARGV[2]
local given_us, charges, pos
given_us, owner, lifetime_us, charges, pos = unpack('<dddd', args)
start(given_us)

local function least_free(states)
  local free = MOST
  for _, state in ipairs(states) do
    free = min(free, state.one.free(state))
  end
  return free
end

local function most_over(states)
  local over = 0
  for _, state in ipairs(states) do
    over = max(over, state.one.over(state))
  end
  return over
end

local all, is_admitted, next_key = {}, true, 1
for index = 1, charges do
  local handling, max_debt, cost, want, divisor, rates
  handling, max_debt, cost, want, divisor, rates, pos = unpack('<dddddd', args, pos)
  local states = {}
  for rate = 1, rates do
    local kind, a, b, c, d, e
    kind, a, b, c, d, e, pos = unpack('<dddddd', args, pos)
    local one = kind_of(kind)
    local state = one.read(KEYS[next_key], kind, a, b, c, d, e)
    state.one = one
    states[rate] = state
    next_key = next_key + 1
  end
  local free = least_free(states)
  local charge = { states = states, cost = cost, free = free, handling = handling, max_debt = max_debt }
  if cost <= free then
    charge.granted = max(cost, min(want, quotient(free, divisor)))
  elseif handling == 0 then
    is_admitted = false
  end
  all[index] = charge
end

-- Makes a charge that was denied as a debt. Returns the units that were charged.
local function slow_down(charge)
  local states = charge.states
  local over = most_over(states)
  for _, state in ipairs(states) do
    state.one.settle(state, charge.cost, charge.max_debt)
  end
  return min(charge.free - least_free(states) + most_over(states) - over, charge.cost)
end

local out = { is_admitted and 1 or 0, now }
for _, charge in ipairs(all) do
  local granted, charged, is_charged = charge.granted, 0, false
  if is_admitted and granted then
    charged, is_charged = granted, granted > 0
    for _, state in ipairs(charge.states) do
      state.one.add(state, granted)
    end
  elseif is_admitted and charge.handling == 2 then
    charged, is_charged = slow_down(charge), true
  end
  local n, is_outdated = #out, false
  out[n + 1], out[n + 2], out[n + 3] = granted or 0, charged, 0
  for _, state in ipairs(charge.states) do
    state.one.show(state, out, charge.cost)
    if is_charged or is_set_back then
      state.one.save(state)
    end
    is_outdated = is_outdated or state.adopted
  end
  out[n + 3] = is_charged and 1 or is_outdated and 2 or 0
end
return out
