-- Sliding window: the algorithm, the beginning of the window, the units of the last window and of this one, and the
-- period. See limit/sliding_window.rs.
local function sliding()
  local one = {}

  -- Moves the state to the window of now.
  local function roll(state, period)
    local elapsed = now - state.began
    if elapsed >= 2 * period then
      state.began, state.last, state.this = now - fmod(now, period), 0, 0
    elseif elapsed >= period then
      state.began, state.last, state.this = state.began + period, state.this, 0
    end
  end

  local function used(state, period)
    local last = state.last
    if last == 0 then
      return state.this
    end
    return state.this + scaled_up(last, period - max(now - state.began, 0), period)
  end

  -- The state at this instant under the period that it was written under, and that period.
  local function load(key, kind, period)
    local state = { key = key, kind = kind, began = 0, last = 0, this = 0 }
    local value = stored(key)
    if value and #value == 40 then
      local of, began, last, this, was = unpack('<ddddd', value)
      if of == kind and are_valid(began, last, this, was) and was > 0 then
        state.began, state.last, state.this, period = began, last, this, was
      end
    end
    roll(state, period)
    return state, period
  end

  -- The rule: the count, and the period.
  function one.read(key, kind, count, period)
    local state, was = load(key, kind, period)
    state.count, state.period = count, period
    if at_most(state.began, now) < state.began then
      -- How much of the last window counts is not known any more: no more than fits.
      state.this, state.last = max(state.this, min(state.this + state.last, count)), 0
      state.began = now - fmod(now, was)
    end
    if was ~= period then
      -- All units that count are dated now.
      state.this, state.last, state.began = used(state, was), 0, now - fmod(now, period)
      state.adopted = state.this > 0
    end
    return state
  end

  function one.free(state)
    return max(state.count - used(state, state.period), 0)
  end

  function one.over(state)
    return max(used(state, state.period) - state.count, 0)
  end

  function one.add(state, units)
    state.this = state.this + units
  end

  function one.settle(state, extra, max_debt)
    if extra < 0 then
      local from_this = min(-extra, state.this)
      state.this = state.this - from_this
      state.last = max(state.last + extra + from_this, 0)
    else
      local before = used(state, state.period)
      state.this = state.this + settled(before, extra, state.count, max_debt) - before
    end
  end

  -- Units count in the window of their charge.
  function one.settle_late(state, late, max_debt)
    for _, charge in ipairs(late) do
      local at, before = now - charge.age, used(state, state.period)
      local units = settled(before, charge.units, state.count, max_debt) - before
      if at >= state.began then
        state.this = state.this + units
      elseif at >= state.began - state.period then
        state.last = state.last + units
      end
    end
  end

  function one.save(state)
    local windows = state.this > 0 and 2 or state.last > 0 and 1 or 0
    if windows == 0 then
      call('DEL', state.key)
      return
    end
    local value = pack('<ddddd', state.kind, state.began, state.last, state.this, state.period)
    put(state.key, value, state.began + windows * state.period - now)
  end

  function one.show(state, out)
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = max(now - state.began, 0), state.last, state.this
  end

  -- Takes the numbers of `show` if they have more units, in the window of this server's clock that is the nearest.
  function one.merge(state, numbers)
    local period = state.period
    local began = now - numbers[1] + floor(period / 2)
    began = began - fmod(began, period)
    local pushed = { began = began, last = numbers[2], this = numbers[3] }
    roll(pushed, period)
    if used(pushed, period) <= used(state, period) then
      return
    end
    state.began, state.last, state.this = pushed.began, pushed.last, pushed.this
    return true
  end

  -- Gives back a charge of the window that began at `began`.
  function one.refund(key, kind, units, began, period)
    local state, was = load(key, kind, period)
    if was ~= period then
      return
    end
    state.period = period
    if state.began == began and state.this > 0 then
      state.this = max(state.this - units, 0)
    elseif state.began == began + period and state.last > 0 then
      state.last = max(state.last - units, 0)
    else
      return
    end
    one.save(state)
  end

  return one
end
