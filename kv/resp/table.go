package resp

// maxName is the length in bytes of the longest name of a command.
const maxName = 16

// command is one of those that the server knows. A positive arity is the number
// of its arguments with its name, a negative one the least number.
type command struct {
	arity int
	run   func(*client, request)
}

// commandTable is by names in lower case.
func commandTable() map[string]command {
	return map[string]command{
		"get":    {2, get},
		"set":    {-3, set},
		"setnx":  {3, setNX},
		"getset": {3, getSet},
		"getdel": {2, getDel},
		"mget":   {-2, mget},
		"mset":   {-3, mset},
		"strlen": {2, strlen},
		"append": {3, appendTo},
		"incr":   {2, incr},
		"decr":   {2, decr},
		"incrby": {3, incrBy},
		"decrby": {3, decrBy},

		"del":    {-2, del},
		"unlink": {-2, del},
		"exists": {-2, exists},
		"type":   {2, typeOf},

		"ping":    {-1, ping},
		"echo":    {2, echo},
		"quit":    {-1, quit},
		"select":  {2, selectDB},
		"hello":   {-1, hello},
		"client":  {-2, clientCommand},
		"command": {-1, commandCommand},
		"config":  {-2, config},
		"info":    {-1, info},
	}
}

// lower writes a name in lower case into buf; nothing of one that is too long.
func lower(buf *[maxName]byte, name []byte) []byte {
	if len(name) > len(buf) {
		return nil
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		buf[i] = c
	}
	return buf[:len(name)]
}

// is says whether arg is the word, which is in lower case.
func is(arg []byte, word string) bool {
	var buf [maxName]byte
	return string(lower(&buf, arg)) == word
}
