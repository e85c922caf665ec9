-- Token bucket and leaky bucket: the algorithm, an instant, the deficit at that instant in nanoseconds, the tag of the
-- interval, and its mark: the units given back from below later charges, below 2^32, and above them the number of changes of
-- the interval. See limit/token_bucket.rs. Three numbers may follow: the begin of the time that refunds have lost, its length
-- in nanoseconds, and the instant of the last settlement that gave units back. See limit/lost_time.rs.
local function bucket()
  local one = {}

  -- The lost time of a value.
  local function lost_of(value)
    local lost = { from = 0, length = 0, settled = 0 }
    if #value == 64 then
      local from, length, settled = unpack('<ddd', value, 41)
      if are_valid(from, length, settled, 0) then
        lost.from, lost.length, lost.settled = from, length, at_most(settled, now)
      end
    end
    return lost
  end

  -- Nanoseconds from now to the instant at which the bucket is full, the tag, the units given back, the changes of the
  -- interval times 2^32, and the lost time.
  local function load(key, kind)
    local value = stored(key) or ''
    if #value == 40 or #value == 64 then
      local of, at, deficit, tag, mark = unpack('<ddddd', value)
      if of == kind and are_valid(at, deficit, tag, mark) and tag > 0 then
        local refunded = fmod(mark, WRAP)
        return deficit - (now - at_most(at, now)) * 1000, tag, refunded, mark - refunded, lost_of(value)
      end
    end
  end

  -- The rule: the burst, the interval, its tag rounded down and rounded up, and whether the bucket shapes.
  function one.read(key, kind, burst, interval, tag, tag_ceil, shapes)
    local ahead, from, refunded, changes, lost = load(key, kind)
    ahead, from, refunded, changes, lost = ahead or 0, from or tag, refunded or 0, changes or 0, lost or lost_of('')
    local state = {
      key = key, kind = kind, burst = burst, interval = interval, tag = tag, tag_ceil = tag_ceil, shapes = shapes == 1,
      capacity = burst * interval, deficit = max(ahead, 0), ahead = ahead, refunded = refunded,
      changes = changes, lost = lost,
    }
    if from ~= tag then
      state.deficit = scaled_up(state.deficit, interval, from)
      state.ahead = state.deficit
      state.adopted = state.deficit > 0 or refunded > 0
      -- No receipt is valid any more.
      state.refunded, state.changes, state.lost = 0, fmod(changes + WRAP, MOST), lost_of('')
    end
    return state
  end

  function one.free(state)
    if state.shapes then
      return state.deficit == 0 and state.burst or 0
    end
    return state.deficit < state.capacity and quotient(state.capacity - state.deficit, state.interval) or 0
  end

  function one.over(state)
    return state.deficit > state.capacity and quotient_up(state.deficit - state.capacity, state.interval) or 0
  end

  -- Units given back so far. The largest number says that they are not known.
  local function counted(refunded, units)
    return min(refunded + units, WRAP - 1)
  end

  local function fill_until(state, deficit)
    if state.ahead + state.tag_ceil * state.refunded <= 0 then
      state.refunded, state.lost = 0, lost_of('')
    end
    state.deficit = deficit
  end

  function one.add(state, units)
    fill_until(state, state.deficit + units * state.interval)
  end

  function one.settle(state, extra, max_debt)
    local before, after = state.deficit, 0
    if extra >= 0 then
      local most = max(min(state.capacity + max_debt * state.interval, MOST - 1), before)
      after = min(before + extra * state.interval, most)
    else
      after = max(before + extra * state.interval, 0)
    end
    fill_until(state, after)
    if extra < 0 then
      state.lost.settled = now
    end
    if after < before then
      state.refunded = counted(state.refunded, quotient_up(before - after, state.interval))
    end
  end

  -- Time has given back what comes back in the age of a charge, unless others have taken it: the bucket is at its limit.
  function one.settle_late(state, late, max_debt)
    local is_at_limit = state.deficit >= state.capacity - quotient(state.capacity, 8)
    for _, charge in ipairs(late) do
      local before = state.deficit
      local most = max(min(state.capacity + max_debt * state.interval, MOST - 1), before)
      local back = is_at_limit and 0 or charge.age * 1000
      local left = max(charge.units * state.interval - back, 0)
      fill_until(state, min(before + left, most))
    end
  end

  function one.save(state)
    local deficit, refunded, lost = state.deficit, state.refunded, state.lost
    if deficit == 0 and refunded == 0 and state.changes == 0 then
      call('DEL', state.key)
      return
    end
    local value = pack('<ddddd', state.kind, now, deficit, state.tag, refunded + state.changes)
    if lost.length > 0 or lost.settled > 0 then
      value = value .. pack('<ddd', lost.from, lost.length, lost.settled)
    end
    -- Receipts give units back until then.
    local idle_ns = min(deficit + refunded * (state.tag + ceil(state.tag / 33554432)), MOST)
    put(state.key, value, idle_ns / 1000)
  end

  function one.show(state, out)
    local n = #out
    out[n + 1], out[n + 2] = state.deficit, state.refunded + state.changes
  end

  -- Takes the numbers of `show` if they have the larger debt.
  function one.merge(state, numbers)
    if numbers[1] > state.deficit then
      state.deficit = numbers[1]
      return true
    end
  end

  -- The nanoseconds that the refund of a charge of `at` loses, at most `most`. They are lost from now on.
  local function lose(lost, at, most)
    if at <= lost.settled then
      return most
    end
    local begin, age = (at - lost.from) * 1000, max(now - at, 0) * 1000
    local known = max(min(lost.length, begin + age) - max(begin, 0), 0)
    local length = min(max(age - known, 0), most)
    if length > 0 and (lost.length == 0 or begin > lost.length) then
      lost.from, lost.length = at, length
    elseif length > 0 and length >= -begin then
      lost.from, lost.length = min(lost.from, at), lost.length + length
    end
    return length
  end

  -- Gives back a charge after which the bucket was full `was_deficit` nanoseconds after `at`.
  function one.refund(key, kind, units, at, was_deficit, was_mark, was_tag, interval)
    local ahead, tag, refunded, changes, lost = load(key, kind)
    local was_refunded = fmod(was_mark, WRAP)
    if not ahead or tag ~= was_tag or changes ~= was_mark - was_refunded or ahead <= 0 or at > now then
      return -- also if the clock was set back since
    end
    local full_at = 0
    if refunded < WRAP - 1 and refunded >= was_refunded then
      full_at = min(was_deficit, (WRAP - 1) * interval) - (now - at) * 1000 - (refunded - was_refunded) * interval
    end
    local given = interval * units
    local unknown = given - max(full_at, 0)
    if unknown > 0 then
      given = given - lose(lost, at, unknown)
    end
    if full_at ~= ahead then
      refunded = counted(refunded, quotient_up(given, interval))
    end
    one.save({
      key = key, kind = kind, deficit = max(ahead - given, 0), tag = tag, refunded = refunded, changes = changes, lost = lost,
    })
  end

  return one
end
