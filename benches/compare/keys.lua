-- Makes requests whose x-api-key goes through all keys, each as often as any other.
-- Arguments: number of the first key, number of keys, step (prime to that number), requests in one write.

local head, tail, key, keys, step, depth

function init(arguments)
   key, keys = tonumber(arguments[1]), tonumber(arguments[2])
   step, depth = tonumber(arguments[3]), tonumber(arguments[4])
   wrk.headers["x-api-key"] = "@"
   local request = wrk.format("GET")
   local from = request:find("@", 1, true)
   head, tail = request:sub(1, from - 1), request:sub(from + 1)
end

function request()
   local parts = {}
   for i = 1, depth do
      key = (key + step) % keys
      parts[i] = head .. "key-" .. string.format("%d", key) .. tail
   end
   return depth == 1 and parts[1] or table.concat(parts)
end
