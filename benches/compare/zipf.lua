-- Makes requests whose x-api-key is one of many keys, the k-th in proportion to 1/k (Zipf's law, exponent 1).
-- Argument: number of keys. Each thread draws with the same seed.

local DRAWS = 65536

local requests, at = {}, 0

function init(arguments)
   local keys, sums, sum = tonumber(arguments[1]), {}, 0
   for key = 1, keys do
      sum = sum + 1 / key
      sums[key] = sum
   end
   local made = {}
   math.randomseed(1)
   for draw = 1, DRAWS do
      local point, low, high = math.random() * sum, 1, keys
      while low < high do
         local middle = math.floor((low + high) / 2)
         if sums[middle] < point then low = middle + 1 else high = middle end
      end
      if not made[low] then
         wrk.headers["x-api-key"] = "key-" .. string.format("%d", low)
         made[low] = wrk.format("GET")
      end
      requests[draw] = made[low]
   end
end

function request()
   at = at % DRAWS + 1
   return requests[at]
end
