-- Fixed window: the algorithm, the end of the window, its used units, and the kind of windows: the length of a window
-- that begins with a request, or a negative number for a calendar. See limit/fixed_window.rs.
local function window()
  local one = {}

  local function is_open(state)
    return now < state.ends and state.used > 0
  end

  -- The end of a window that begins now. The caller knows two windows of a calendar by its own clock; windows
  -- before and after them count as of the same length.
  local function end_of(state)
    if state.windows > 0 then
      return now + state.windows
    end
    local begins, ends, length = state.calendar_begins, state.calendar_ends, state.calendar_next - state.calendar_ends
    if now < begins then
      return begins - quotient(begins - now - 1, length) * length
    elseif now < ends then
      return ends
    end
    return ends + (quotient(now - ends, length) + 1) * length
  end

  local function change_windows(state, was)
    if not is_open(state) then
      state.ends, state.used = 0, 0
      return
    end
    if was > 0 and state.windows > was then
      state.ends = at_most(state.ends, now + was) - was + state.windows
    elseif was > 0 and state.windows > 0 then
      state.ends = min(state.ends, now + state.windows)
    else
      state.ends = end_of(state)
    end
    state.adopted = true
  end

  -- The end of the window, its used units, and the kind of windows.
  local function load(key, kind)
    local value = stored(key)
    if value and #value == 32 then
      local of, ends, used, windows = unpack('<dddd', value)
      if of == kind and are_valid(ends, used, math.abs(windows), 0) and windows ~= 0 then
        return ends, used, windows
      end
    end
  end

  -- The rule: the count, the kind of windows; of a calendar the beginning and end of a window, and the end of the next.
  function one.read(key, kind, count, windows, begins, ends, next_ends)
    local stored_ends, used, was = load(key, kind)
    local state = {
      key = key, kind = kind, count = count, windows = windows, ends = stored_ends or 0, used = used or 0,
      calendar_begins = begins, calendar_ends = ends, calendar_next = next_ends,
    }
    if was and was ~= windows then
      change_windows(state, was)
    elseif was then
      state.ends = at_most(state.ends, end_of(state))
    end
    return state
  end

  local function used(state)
    return is_open(state) and state.used or 0
  end

  local function use_up(state, units)
    if units > 0 and not is_open(state) then
      state.ends = end_of(state)
    end
    state.used = units
  end

  function one.free(state)
    return max(state.count - used(state), 0)
  end

  function one.over(state)
    return max(used(state) - state.count, 0)
  end

  function one.add(state, units)
    use_up(state, used(state) + units)
  end

  function one.settle(state, extra, max_debt)
    use_up(state, settled(used(state), extra, state.count, max_debt))
  end

  -- Units of a calendar are of the window that is open for the caller. A window that began with a request begins with the
  -- earliest one.
  function one.settle_late(state, late, max_debt)
    for _, charge in ipairs(late) do
      local ends = state.windows > 0 and now - charge.age + state.windows or now < state.calendar_ends and end_of(state) or 0
      if ends > now then
        local before = used(state)
        if before == 0 then
          state.ends = ends
        elseif state.windows > 0 then
          state.ends = min(state.ends, ends)
        end
        state.used = settled(before, charge.units, state.count, max_debt)
      end
    end
  end

  function one.save(state)
    if is_open(state) then
      local value = pack('<dddd', state.kind, state.ends, state.used, state.windows)
      put(state.key, value, state.ends - now)
    else
      call('DEL', state.key)
    end
  end

  function one.show(state, out)
    local n, used = #out, used(state)
    out[n + 1], out[n + 2] = used > 0 and state.ends - now or 0, used
  end

  -- Takes the numbers of `show` if they have more units.
  function one.merge(state, numbers)
    if numbers[2] <= used(state) then
      return
    end
    state.ends = state.windows > 0 and max(now + numbers[1], state.ends) or end_of(state)
    state.used = numbers[2]
    return true
  end

  -- Gives back a charge of the window that ends at `ends`.
  function one.refund(key, kind, units, ends)
    local stored_ends, used, windows = load(key, kind)
    if stored_ends == ends then
      one.save({ key = key, kind = kind, ends = ends, used = max(used - units, 0), windows = windows })
    end
  end

  return one
end
