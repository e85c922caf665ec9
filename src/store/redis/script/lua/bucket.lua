-- Token bucket and leaky bucket: the algorithm, an instant, the deficit at that instant in nanoseconds, the tag of the
-- interval, and the units given back from below later charges. See limit/token_bucket.rs.
local function bucket()
  local one = {}

  -- Nanoseconds from now to the instant at which the bucket is full, the tag, and the units given back.
  local function load(key, kind)
    local value = stored(key)
    if value and #value == 40 then
      local of, at, deficit, tag, refunded = unpack('<ddddd', value)
      if of == kind and are_valid(at, deficit, tag, refunded) and tag > 0 then
        return deficit - max(now - at, 0) * 1000, tag, fmod(refunded, WRAP)
      end
    end
  end

  -- The rule: the burst, the interval, its tag rounded down and rounded up, and whether the bucket shapes.
  function one.read(key, kind, burst, interval, tag, tag_ceil, shapes)
    local ahead, from, refunded = load(key, kind)
    ahead, from, refunded = ahead or 0, from or tag, refunded or 0
    local state = {
      key = key, kind = kind, burst = burst, interval = interval, tag = tag, tag_ceil = tag_ceil, shapes = shapes == 1,
      capacity = burst * interval, deficit = max(ahead, 0), ahead = ahead, refunded = refunded,
    }
    if from ~= tag then
      state.deficit = scaled_up(state.deficit, interval, from)
      state.ahead = state.deficit
      state.adopted = state.deficit > 0 or refunded > 0
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

  -- Units given back so far, which wrap; a number that is too large counts as the largest.
  local function counted(refunded, units)
    return fmod(refunded + min(units, WRAP - 1), WRAP)
  end

  local function fill_until(state, deficit)
    if state.refunded ~= 0 and state.ahead + state.tag_ceil * state.refunded <= 0 then
      state.refunded = 0
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
    if after < before then
      state.refunded = counted(state.refunded, quotient_up(before - after, state.interval))
    end
  end

  function one.save(state)
    local deficit, refunded = state.deficit, state.refunded
    if deficit == 0 and refunded == 0 then
      call('DEL', state.key)
      return
    end
    local value = pack('<ddddd', state.kind, now, deficit, state.tag, refunded)
    -- Receipts give units back until then.
    local idle_ns = min(deficit + refunded * (state.tag + ceil(state.tag / 33554432)), MOST)
    put(state.key, value, idle_ns / 1000)
  end

  function one.show(state, out)
    local n = #out
    out[n + 1], out[n + 2] = state.deficit, state.refunded
  end

  -- Takes the numbers of `show` if they have the larger debt.
  function one.merge(state, numbers)
    if numbers[1] > state.deficit then
      state.deficit = numbers[1]
      return true
    end
  end

  -- Gives back a charge after which the bucket was full `was_deficit` nanoseconds after `at`.
  function one.refund(key, kind, units, at, was_deficit, was_refunded, was_tag, interval)
    local ahead, tag, refunded = load(key, kind)
    if not ahead or tag ~= was_tag then
      return
    end
    local was_ahead = was_deficit - (now - at) * 1000
    local since = fmod(refunded - was_refunded + WRAP, WRAP)
    local owed = max(min(interval * units, was_ahead - since * interval), 0)
    if owed == 0 then
      return
    end
    if was_ahead - since * interval ~= ahead then
      refunded = counted(refunded, quotient_up(owed, interval))
    end
    one.save({ key = key, kind = kind, deficit = max(ahead - owed, 0), tag = tag, refunded = refunded })
  end

  return one
end
