-- Concurrency: the algorithm, and for each replica its number, its units in flight, and the instant until which they count
-- unless it renews them. See limit/concurrency.rs.
local function flight()
  local one = {}

  -- The rule: the most units.
  function one.read(key, kind, most)
    local state = { key = key, kind = kind, count = most, used = 0, units = {}, expires = {} }
    local value = stored(key)
    if value and #value >= 8 and fmod(#value, 24) == 8 and unpack('<d', value) == kind then
      for at = 9, #value, 24 do
        local of, units, expires = unpack('<ddd', value, at)
        if are_valid(of, units, expires, 0) and expires > now and units > 0 then
          state.units[of], state.expires[of] = units, at_most(expires, now + lifetime_us)
          state.used = state.used + units
        end
      end
    end
    return state
  end

  function one.free(state)
    return max(state.count - state.used, 0)
  end

  function one.over(state)
    return max(state.used - state.count, 0)
  end

  -- Changes the units of one replica by `units`. A replica never has less than none.
  local function change(state, of, units)
    local before = state.units[of] or 0
    local after = max(before + units, 0)
    state.used = state.used + after - before
    state.units[of] = after
    state.expires[of] = max(state.expires[of] or 0, now + lifetime_us)
  end

  function one.add(state, units)
    change(state, owner, units)
  end

  function one.settle(state, extra, max_debt)
    change(state, owner, settled(state.used, extra, state.count, max_debt) - state.used)
  end

  -- Units in flight have no age.
  function one.settle_late(state, late, max_debt)
    for _, charge in ipairs(late) do
      one.settle(state, charge.units, max_debt)
    end
  end

  function one.save(state)
    local parts, last = { pack('<d', state.kind) }, 0
    for of, units in pairs(state.units) do
      if units > 0 then
        parts[#parts + 1] = pack('<ddd', of, units, state.expires[of])
        last = max(last, state.expires[of])
      end
    end
    if last == 0 then
      call('DEL', state.key)
    else
      put(state.key, table.concat(parts), last - now)
    end
  end

  function one.show(state, out)
    out[#out + 1] = state.used
  end

  -- Units in flight end with their replica, which renews its own.
  function one.merge() end

  -- Releases units of a replica.
  function one.refund(key, kind, units, of)
    local state = one.read(key, kind, 0)
    if state.units[of] then
      change(state, of, -units)
      one.save(state)
    end
  end

  -- Lets the units of a replica count for longer, and notes its units: all of them if they are exact, else no less.
  function one.renew(state, of, units, is_exact)
    local before = state.units[of] or 0
    change(state, of, (is_exact and units or max(units, before)) - before)
  end

  return one
end
