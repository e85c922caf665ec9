-- Decides as decide.lua does, if all rates are buckets and no charge is delayed, as in most requests. It has no functions
-- of its own, because Lua makes them anew whenever a script runs, which takes longer than this decision.
if ARGV[1] ~= '' and redis.pcall('GET', ARGV[3]) ~= ARGV[1] then
  return { 2 }
end
local call, pcall = redis.call, redis.pcall
local unpack = struct.unpack
local args = ARGV[2]
local now, _, _, charges, pos = unpack('<dddd', args)
local margin_ms = 0
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  margin_ms = 3600000
end

-- The states of all rates, and of each charge the units that are granted, the number of its rates, and whether the server
-- keeps one of its states under another rule.
local states, granted, rates_of, outdated, count = {}, {}, {}, {}, 0
local is_admitted, is_set_back = true, false
for charge = 1, charges do
  local handling, max_debt, cost, want, divisor, rates
  handling, max_debt, cost, want, divisor, rates, pos = unpack('<dddddd', args, pos)
  local free = MOST
  for _ = 1, rates do
    local kind, burst, interval, tag, tag_ceil, shapes
    kind, burst, interval, tag, tag_ceil, shapes, pos = unpack('<dddddd', args, pos)
    count = count + 1
    local deficit, ahead, refunded, changes, adopted, lost = 0, 0, 0, 0, false, ''
    local value = pcall('GET', KEYS[count])
    if type(value) == 'string' and (#value == 40 or #value == 64) then
      local of, at, was_deficit, was_tag, mark = unpack('<ddddd', value)
      if of == kind and at >= 0 and at < MOST and was_deficit >= 0 and was_deficit < MOST and was_tag > 0
        and was_tag < MOST and mark >= 0 and mark < MOST then
        is_set_back = is_set_back or at > now
        refunded = fmod(mark, 4294967296)
        changes = mark - refunded
        ahead = now > at and was_deficit - (now - at) * 1000 or was_deficit
        deficit = ahead > 0 and ahead or 0
        if #value == 64 then
          -- What only refunds need, see bucket.lua.
          lost = value:sub(41)
        end
        if was_tag ~= tag then
          deficit = scaled_up(deficit, interval, was_tag)
          ahead = deficit
          adopted = deficit > 0 or refunded > 0
          -- No receipt is valid any more.
          refunded, changes, lost = 0, fmod(changes + 4294967296, MOST), ''
        end
      end
    end
    outdated[charge] = outdated[charge] or adopted
    local capacity, left = burst * interval, 0
    if shapes == 1 then
      left = deficit == 0 and burst or 0
    elseif deficit < capacity then
      left = quotient(capacity - deficit, interval)
    end
    if left < free then
      free = left
    end
    states[count] = {
      kind = kind, deficit = deficit, ahead = ahead, refunded = refunded, interval = interval, tag = tag,
      tag_ceil = tag_ceil, changes = changes, lost = lost,
    }
  end
  rates_of[charge] = rates
  if cost <= free then
    local grant = cost
    if want > cost then
      local part = quotient(free, divisor)
      grant = want < part and want or part
      if grant < cost then
        grant = cost
      end
    end
    granted[charge] = grant
  else
    granted[charge] = -1
    if handling == 0 then
      is_admitted = false
    end
  end
end

local out, n, index = { is_admitted and 1 or 0, now }, 2, 0
for charge = 1, charges do
  local grant = granted[charge]
  local charged = is_admitted and grant > 0 and grant or 0
  local mark = charged > 0 and 1 or outdated[charge] and 2 or 0
  out[n + 1], out[n + 2], out[n + 3] = grant > 0 and grant or 0, charged, mark
  n = n + 3
  for _ = 1, rates_of[charge] do
    index = index + 1
    local state = states[index]
    local deficit, refunded, tag, lost = state.deficit, state.refunded, state.tag, state.lost
    if charged > 0 or is_set_back and deficit > 0 then
      if state.ahead + state.tag_ceil * refunded <= 0 then
        refunded, lost = 0, ''
      end
      deficit = deficit + charged * state.interval
      local value = struct.pack('<ddddd', state.kind, now, deficit, tag, refunded + state.changes) .. lost
      local idle_ns = deficit
      if refunded > 0 then
        -- Receipts give units back until then.
        idle_ns = min(deficit + refunded * (tag + math.ceil(tag / 33554432)), MOST)
      end
      call('SET', KEYS[index], value, 'PX', (idle_ns - fmod(idle_ns, 1000000)) / 1000000 + 1 + margin_ms)
    end
    out[n + 1], out[n + 2] = deficit, refunded + state.changes
    n = n + 2
  end
end
return out
