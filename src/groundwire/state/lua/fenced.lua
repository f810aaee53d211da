-- Runs the command ARGV[5]. Sent after packed.lua.
call(unpack(ARGV, 5))
return '1'
