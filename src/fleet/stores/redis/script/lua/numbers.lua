-- Exact division. Every number is an integer below 2^53, which a double holds exactly.
local fmod, min = math.fmod, math.min

local MOST = 9007199254740992 -- 2^53

-- `a / b`, rounded down.
local function quotient(a, b)
  return (a - fmod(a, b)) / b
end

-- `a / b`, rounded up.
local function quotient_up(a, b)
  local rest = fmod(a, b)
  return rest > 0 and (a - rest) / b + 1 or a / b
end

-- `a * b / c`, rounded up, below 2^53.
local function scaled_up(a, b, c)
  local product = a * b
  if product < MOST then
    return quotient_up(product, c)
  end
  -- Long division of `rest * b`, bit by bit. No sum exceeds 2^53.
  local rest, bits, bit = fmod(a, c), b, MOST / 2
  local whole, left = 0, 0
  while bit >= 1 do
    whole = whole * 2
    if left >= c - left then
      left, whole = left - (c - left), whole + 1
    else
      left = left + left
    end
    if bits >= bit then
      bits = bits - bit
      if left >= c - rest then
        left, whole = left - (c - rest), whole + 1
      else
        left = left + rest
      end
    end
    bit = bit / 2
  end
  if left > 0 then
    whole = whole + 1
  end
  return min(quotient(a, c) * b + whole, MOST - 1)
end

