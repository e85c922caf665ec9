-- The algorithms by their numbers, each made at its first use.
local makers = { bucket, bucket, window, log, sliding, log, flight }
local made = {}
local function kind_of(number)
  local maker = makers[number]
  local one = made[maker]
  if not one then
    one = maker()
    made[maker] = one
  end
  return one
end
