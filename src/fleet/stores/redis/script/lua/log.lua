-- Sliding log and sub-windows: the algorithm, the period, the length of a sub-window (0 for a log), the number of entries
-- that have expired, and the sum of their units; then the entries in order of time. An entry is an instant, and the units
-- of all entries up to it. So the units of any span are one subtraction, and a search looks at few entries.
--
-- An entry of sub-windows has the beginning of its sub-window. See limit/sliding_log.rs and limit/sub_window.rs.
local function log()
  local one = {}
  local HEAD, ENTRY = 40, 16
  -- Entries that are read at once.
  local CHUNK = 64
  -- Entries that are shown exactly, and entries that are shown in all.
  local EXACT, SHOWN = 4, 8
  -- The most charges after a charge that is given back.
  local REFUND_MOST = 16384

  local function offset(index)
    return HEAD + ENTRY * index
  end

  -- The instant of an entry, and the units up to it.
  local function entry(state, index)
    if index >= state.tail_from then
      return unpack('<dd', state.tail, (index - state.tail_from) * ENTRY + 1)
    end
    local from = index - state.chunk_from
    if from < 0 or from >= state.chunk_count then
      local first = max(min(index, state.count - CHUNK / 4), 0)
      state.chunk = call('GETRANGE', state.key, offset(first), offset(first + CHUNK / 4) - 1)
      state.chunk_at, state.chunk_from, state.chunk_count = 1, first, #state.chunk / ENTRY
      from = index - first
    end
    return unpack('<dd', state.chunk, state.chunk_at + from * ENTRY)
  end

  -- The first entry from `from` on that `is_wanted`, as all entries behind it are.
  local function first_from(state, from, is_wanted)
    local low, high, step = from, from, 1
    while high < state.count and not is_wanted(entry(state, high)) do
      low, high, step = high + 1, high + step, step * 2
    end
    high = min(high, state.count)
    while low < high do
      local middle = floor((low + high) / 2)
      if is_wanted(entry(state, middle)) then
        high = middle
      else
        low = middle + 1
      end
    end
    return low
  end

  -- The units of all entries before this one.
  local function before(state, index)
    if index <= state.first then
      return state.base
    end
    local _, units = entry(state, index - 1)
    return units
  end

  local function used(state)
    return before(state, state.count) - before(state, state.live)
  end

  local function begin_anew(state)
    state.first, state.base, state.live, state.count = 0, 0, 0, 0
    state.tail_from, state.tail, state.is_new = 0, '', true
  end

  -- Reads the value. Returns its period and its sub-window, or nothing.
  local function load(state)
    local value = pcall('GETRANGE', state.key, 0, offset(CHUNK) - 1)
    local length = type(value) == 'string' and #value or 0
    if length < HEAD + ENTRY then
      return
    end
    if length == offset(CHUNK) then
      length = call('STRLEN', state.key)
    end
    local of, period, sub, first, base = unpack('<ddddd', value)
    local count = (length - HEAD) / ENTRY
    if of ~= state.kind or not are_valid(period, sub, first, base) or first ~= floor(first) or first >= count
      or count ~= floor(count) then
      return
    end
    state.chunk, state.chunk_at, state.chunk_from, state.chunk_count = value, HEAD + 1, 0, (#value - HEAD) / ENTRY
    state.first, state.base, state.count, state.stored = first, base, count, count
    state.tail_from, state.is_new = count, false
    return period, sub
  end

  local function date(state, at)
    return state.sub > 0 and at - fmod(at, state.sub) or at
  end

  -- Drops all entries from `index` on, and appends others in their packed form.
  local function replace(state, index, entries)
    state.tail = state.tail:sub(1, max(index - state.tail_from, 0) * ENTRY) .. entries
    state.tail_from, state.count = min(state.tail_from, index), index + #entries / ENTRY
  end

  -- Appends units to the last entry, or to a new one.
  local function push(state, units)
    if units == 0 then
      return
    end
    if state.live == state.count then
      begin_anew(state)
    end
    local at, sum = date(state, now), before(state, state.count) + units
    local last = state.count > 0 and entry(state, state.count - 1) or -1
    local index = last >= at and state.count - 1 or state.count
    replace(state, index, pack('<dd', max(last, at), sum))
  end

  -- Dates entries that are later than now as of now: the clock was set back since. `last` is the latest of them.
  local function date_back(state, last, shortest)
    state.live = first_from(state, state.first, function(at)
      return at + shortest > last
    end)
    local ahead = first_from(state, state.live, function(at)
      return at > now
    end)
    local units = before(state, state.count) - before(state, ahead)
    replace(state, ahead, '')
    push(state, units)
    -- By the clock that was set back, entries that have expired would count again.
    state.is_new = true
  end

  -- The rule: the count, the period, and the length of a sub-window.
  function one.read(key, kind, units, period, sub)
    local state = { key = key, kind = kind, units = units, period = period, sub = sub, stored = 0 }
    begin_anew(state)
    local was, was_sub = load(state)
    if not was then
      return state
    end
    local shortest = sub > 0 and was or min(was, period)
    state.live = first_from(state, state.first, function(at)
      return at + shortest > now
    end)
    local last = state.live < state.count and entry(state, state.count - 1) or 0
    if at_most(last, now) < last then
      date_back(state, last, shortest)
    end
    if was ~= period or was_sub ~= sub then
      state.adopted, state.is_new = true, true
      if sub > 0 then
        -- All units that count are dated now.
        local units_used = used(state)
        begin_anew(state)
        push(state, units_used)
      end
      -- Entries of a log that have expired must not count again under a longer period.
    end
    return state
  end

  function one.free(state)
    return max(state.units - used(state), 0)
  end

  function one.over(state)
    return max(used(state) - state.units, 0)
  end

  function one.add(state, units)
    push(state, units)
  end

  -- Drops all entries from `index` on, and entries before it that have no units.
  local function cut(state, index)
    while index > state.live and before(state, index) == before(state, index - 1) do
      index = index - 1
    end
    replace(state, index, '')
  end

  -- A negative number removes the newest units.
  function one.settle(state, extra, max_debt)
    local units = used(state)
    local target = settled(units, extra, state.units, max_debt)
    if target >= units then
      push(state, target - units)
      return
    end
    local sum = before(state, state.live) + target
    local last = first_from(state, state.live, function(_, up_to)
      return up_to >= sum
    end)
    if sum > before(state, last) then
      local at = entry(state, last)
      replace(state, last, pack('<dd', at, sum))
    else
      cut(state, last)
    end
  end

  -- Units have the time of their charge, unless very many charges came after it.
  function one.settle_late(state, late, max_debt)
    local count, charged, added = used(state), {}, 0
    local most = max(state.units + max_debt, count)
    for _, charge in ipairs(late) do
      local at, units = date(state, now - charge.age), min(charge.units, most - count - added)
      if at + state.period > now and units > 0 then
        charged[#charged + 1] = { at, units }
        added = added + units
      end
    end
    if added == 0 then
      return
    end
    if state.live == state.count then
      begin_anew(state)
    end
    local from = first_from(state, max(state.live, state.count - REFUND_MOST), function(at)
      return at >= charged[1][1]
    end)
    local earliest = from < state.count and from > state.live and entry(state, from - 1) or 0
    -- Both lists in order of time, as entries.
    local rest, sum, last, place = {}, before(state, from), nil, 1
    local function append(at, units)
      sum = sum + units
      rest[at == last and #rest or #rest + 1] = pack('<dd', at, sum)
      last = at
    end
    local function append_until(at)
      while charged[place] and max(charged[place][1], earliest) <= at do
        append(max(charged[place][1], earliest), charged[place][2])
        place = place + 1
      end
    end
    local stored_sum = sum
    for index = from, state.count - 1 do
      local at, up_to = entry(state, index)
      append_until(at - 1)
      append(at, up_to - stored_sum)
      stored_sum = up_to
    end
    append_until(math.huge)
    replace(state, from, table.concat(rest))
  end

  -- Gives a charge back: exactly, unless very many charges came after it.
  function one.refund(key, kind, units, date_of_charge, sub)
    local state = { key = key, kind = kind, stored = 0 }
    begin_anew(state)
    local period, stored_sub = load(state)
    if not period or stored_sub ~= sub then
      return
    end
    state.period, state.sub = period, sub
    state.live = first_from(state, state.first, function(at)
      return at + period > now
    end)
    local index = first_from(state, state.live, function(at)
      return at >= date_of_charge
    end)
    if index == state.count or state.count - index > REFUND_MOST or entry(state, index) ~= date_of_charge then
      return
    end
    local sum = before(state, index)
    local removed, rest, kept = min(units, before(state, index + 1) - sum), {}, 0
    for of = index, state.count - 1 do
      local at, up_to = entry(state, of)
      rest[#rest + 1] = pack('<dd', at, up_to - removed)
      if up_to - removed > sum then
        sum, kept = up_to - removed, #rest
      end
    end
    if kept == 0 then
      cut(state, index)
    else
      replace(state, index, table.concat(rest, '', 1, kept))
    end
    one.save(state)
  end

  function one.save(state)
    if state.live == state.count then
      call('DEL', state.key)
      return
    end
    local last = entry(state, state.count - 1)
    local idle_us = last + state.period - now
    local is_small, is_cut = state.stored <= CHUNK, state.count < state.stored
    if is_small or is_cut or state.is_new or state.live > max(CHUNK, state.count / 2) then
      local base = before(state, state.live)
      local head = pack('<ddddd', state.kind, state.period, state.sub, 0, base)
      local stays, chunk_from = '', state.chunk_from
      if state.live < state.tail_from then
        if chunk_from <= state.live and chunk_from + state.chunk_count >= state.tail_from then
          local at = state.chunk_at - chunk_from * ENTRY
          stays = state.chunk:sub(at + state.live * ENTRY, at + state.tail_from * ENTRY - 1)
        else
          stays = call('GETRANGE', state.key, offset(state.live), offset(state.tail_from) - 1)
        end
      end
      put(state.key, head .. stays .. state.tail, idle_us)
      return
    end
    call('SETRANGE', state.key, offset(state.tail_from), state.tail)
    if state.live - state.first >= CHUNK / 4 then
      local base = before(state, state.live)
      call('SETRANGE', state.key, 0, pack('<ddddd', state.kind, state.period, state.sub, state.live, base))
    end
    call('PEXPIRE', state.key, ttl_ms(idle_us))
  end

  -- Shows few entries: the first ones exactly, the others in groups that have the instant of their last entry. `cost` is
  -- the cost of a request that is decided exactly as by all entries.
  function one.show(state, out, cost)
    local shown, live, count = {}, state.live, state.count
    if count - live <= SHOWN then
      for index = live, count - 1 do
        shown[#shown + 1] = index
      end
    else
      for index = live, live + EXACT - 1 do
        shown[#shown + 1] = index
      end
      local groups = SHOWN - EXACT
      local behind = count - live - EXACT
      for group = 1, groups do
        shown[#shown + 1] = live + EXACT - 1 + floor(behind * group / groups)
      end
      local most = before(state, count) - state.units + cost
      if cost <= state.units and most > before(state, live) then
        shown[#shown + 1] = first_from(state, live, function(_, up_to)
          return up_to >= most
        end)
        table.sort(shown)
      end
    end
    local n, entries, sum = #out + 1, 0, before(state, live)
    for _, index in ipairs(shown) do
      local at, up_to = entry(state, index)
      if up_to > sum then
        out[n + 2 * entries + 1], out[n + 2 * entries + 2] = max(now - at, 0), up_to - sum
        entries, sum = entries + 1, up_to
      end
    end
    out[n] = entries
  end

  -- Takes the numbers of `show` if they have more units.
  function one.merge(state, numbers)
    local sum = 0
    for index = 3, #numbers, 2 do
      sum = sum + numbers[index]
    end
    if sum <= used(state) then
      return
    end
    begin_anew(state)
    local present = now
    for index = 2, #numbers - 1, 2 do
      now = present - numbers[index]
      push(state, numbers[index + 1])
    end
    now = present
    return true
  end

  return one
end
