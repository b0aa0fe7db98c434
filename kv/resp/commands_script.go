package resp

import (
	"bytes"
	"strings"
)

// Commands about scripts in Lua.

func scriptCommands() []command {
	const runs = flagNoScript | flagStale | flagSkipMonitor | flagNoMandatoryKeys | flagMovableKeys | flagSolo | flagScript
	return of(groupScripting, []command{
		{name: "eval", arity: -3, run: eval, flags: runs, keys: lateKeys, since: "2.6.0", about: "Run a script"},
		{name: "evalsha", arity: -3, run: eval, flags: runs, keys: lateKeys, since: "2.6.0", about: "Run a script that the server has"},
		{name: "eval_ro", arity: -3, run: eval, flags: runs | flagReadOnly, keys: lateKeys, since: "7.0.0", about: "Run a script that changes nothing"},
		{name: "evalsha_ro", arity: -3, run: eval, flags: runs | flagReadOnly, keys: lateKeys, since: "7.0.0", about: "Run a script that the server has, and that changes nothing"},
		{name: "script", arity: -2, since: "2.6.0", about: "Commands about scripts"},
		{name: "script|load", arity: 3, run: scriptLoad, flags: flagNoScript | flagStale, since: "2.6.0", about: "Keep a script, and get its SHA-1"},
		{name: "script|exists", arity: -3, run: scriptExists, flags: flagNoScript, since: "2.6.0", about: "Say which scripts the server has"},
		{name: "script|flush", arity: -2, run: scriptFlush, flags: flagNoScript, since: "2.6.0", about: "Forget all scripts"},
		{name: "script|kill", arity: 2, run: scriptKill, flags: flagNoScript | flagAllowBusy, since: "2.6.0", about: "End the scripts that run for too long and have changed nothing"},
	})
}

// source reports whether a command that runs a script has its source.
func (cmd *command) source() bool { return !strings.HasPrefix(cmd.name, "evalsha") }

// shaArgument returns a SHA-1 in lower case, or "" if it is none.
func shaArgument(arg []byte) string {
	if len(arg) != 2*20 {
		return ""
	}
	return string(bytes.ToLower(arg))
}

// eval implements EVAL, EVALSHA, EVAL_RO and EVALSHA_RO.
func eval(c *client, r request) {
	cmd, _ := c.server.table.find(r)
	if !cmd.source() && len(r.arg(1)) != 2*20 {
		c.fail(errNoScript)
		return
	}
	n, ok := parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
		return
	case n > int64(r.len()-3):
		c.fail("ERR Number of keys can't be greater than number of args")
		return
	case n < 0:
		c.fail("ERR Number of keys can't be negative")
		return
	}
	s := c.scriptOf(cmd, r)
	if s == nil {
		return
	}
	readOnly := cmd.flags&flagReadOnly != 0
	if readOnly && s.shebang && !s.readOnly {
		c.fail("ERR Can not execute a script with write flag using *_ro command.")
		return
	}
	c.flush()
	args := make([][]byte, 0, r.len()-3)
	for i := 3; i < r.len(); i++ {
		args = append(args, r.arg(i))
	}
	c.runScript(s, args[:n], args[n:], readOnly)
}

// scriptOf returns the script that a command runs. If there is none, it has replied.
func (c *client) scriptOf(cmd *command, r request) *script {
	if !cmd.source() {
		s := c.server.scripts.find(shaArgument(r.arg(1)))
		if s == nil {
			c.fail(errNoScript)
		}
		return s
	}
	s, err := c.server.scripts.load(r.arg(1))
	if err != nil {
		c.fail("ERR " + err.Error())
	}
	return s
}

func scriptLoad(c *client, r request) {
	s, err := c.server.scripts.load(r.arg(2))
	if err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.out = appendBulk(c.reply(), s.sha)
}

func scriptExists(c *client, r request) {
	out := appendArray(c.reply(), r.len()-2)
	for i := 2; i < r.len(); i++ {
		n := int64(0)
		if c.server.scripts.find(shaArgument(r.arg(i))) != nil {
			n = 1
		}
		out = appendInt(out, n)
	}
	c.out = out
}

func scriptFlush(c *client, r request) {
	if r.len() > 3 || r.len() == 3 && !is(r.arg(2), "sync") && !is(r.arg(2), "async") {
		c.fail("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
		return
	}
	c.server.scripts.flush()
	c.out = appendSimple(c.reply(), "OK")
}

func scriptKill(c *client, _ request) {
	switch killed, busy := c.server.scripts.kill(); {
	case busy == 0:
		c.fail("NOTBUSY No scripts in execution right now.")
	case killed == 0:
		c.fail("UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.")
	default:
		c.out = appendSimple(c.reply(), "OK")
	}
}
