package resp

import (
	"math"
	"strings"

	glua "github.com/yuin/gopher-lua"

	"github.com/redykv/redykv/kv/resp/internal/lua"
)

// The library redis of scripts.

var scriptConstants = map[string]glua.LValue{
	"LOG_DEBUG": glua.LNumber(0), "LOG_VERBOSE": glua.LNumber(1), "LOG_NOTICE": glua.LNumber(2), "LOG_WARNING": glua.LNumber(3),
	"REPL_NONE": glua.LNumber(0), "REPL_AOF": glua.LNumber(1), "REPL_SLAVE": glua.LNumber(2), "REPL_REPLICA": glua.LNumber(2), "REPL_ALL": glua.LNumber(3),
	"REDIS_VERSION": glua.LString(redisVersion), "REDIS_VERSION_NUM": glua.LNumber(redisVersionNumber),
}

// Errors of scripts.
const (
	errScriptNoArgs  = "ERR Please specify at least one argument for this redis lib call"
	errScriptType    = "ERR Lua redis lib command arguments must be strings or integers"
	errScriptUnknown = "ERR Unknown Redis command called from script"
	errScriptArity   = "ERR Wrong number of args calling Redis command from script"
	errScriptCommand = "ERR This Redis command is not allowed from script"
	errScriptWrites  = "ERR Write commands are not allowed from read-only scripts."
	errScriptReply   = "ERR wrong number or type of arguments"
	errScriptKeys    = "ERR The script uses keys that it has not declared, or the whole keyspace, which other clients use at the same time. Declare the keys, or pass none"
	errBusy          = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
)

func (in *interpreter) functions() map[string]glua.LGFunction {
	return map[string]glua.LGFunction{
		"call":               func(l *glua.LState) int { return in.call(l, true) },
		"pcall":              func(l *glua.LState) int { return in.call(l, false) },
		"error_reply":        func(l *glua.LState) int { return in.replyTable(l, "err", codedError) },
		"status_reply":       func(l *glua.LState) int { return in.replyTable(l, "ok", func(s string) string { return s }) },
		"sha1hex":            in.sha1hex,
		"log":                in.log,
		"setresp":            in.setResp,
		"set_repl":           in.setRepl,
		"acl_check_cmd":      in.aclCheck,
		"replicate_commands": func(l *glua.LState) int { l.Push(glua.LTrue); return 1 },
	}
}

// errorTable returns an error as scripts see it.
func (in *interpreter) errorTable(text string) *glua.LTable {
	t := in.state.NewTable(0, 1)
	t.RawSetString("err", glua.LString(text))
	return t
}

func (in *interpreter) raise(l *glua.LState, text string) { l.Error(in.errorTable(text), 0) }

// codedError puts the code ERR before an error without one.
func codedError(text string) string {
	text = strings.Trim(strings.TrimPrefix(text, "-"), "\r\n")
	if strings.Contains(text, " ") {
		return text
	}
	return "ERR " + text
}

func (in *interpreter) replyTable(l *glua.LState, field string, text func(string) string) int {
	s, ok := l.Get(1).(glua.LString)
	if l.GetTop() != 1 || !ok {
		l.Push(in.errorTable(errScriptReply))
		return 1
	}
	t := in.state.NewTable(0, 1)
	t.RawSetString(field, glua.LString(text(string(s))))
	l.Push(t)
	return 1
}

// argument appends an argument of a command. It returns false for a value that is none.
func appendArgument(out []byte, v glua.LValue) (_ []byte, ok bool) {
	switch v := v.(type) {
	case glua.LString:
		return append(out, v...), true
	case glua.LNumber:
		return lua.AppendNumber(out, float64(v), 17), true
	}
	return out, false
}

// request returns the command in the arguments of a function.
func (in *interpreter) request(l *glua.LState) (r request, refusal string) {
	n := l.GetTop()
	if n == 0 {
		return r, errScriptNoArgs
	}
	in.data, in.args = in.data[:0], in.args[:0]
	for i := 1; i <= n; i++ {
		start := len(in.data)
		var ok bool
		if in.data, ok = appendArgument(in.data, l.Get(i)); !ok {
			return r, errScriptType
		}
		if len(in.data) > in.run.c.server.opts.MaxRequest {
			return r, errTooLarge
		}
		in.args = append(in.args, span{int32(start), int32(len(in.data))})
	}
	return request{in.data, in.args}, ""
}

// call runs a command and pushes its reply. If raises is set, an error is raised.
func (in *interpreter) call(l *glua.LState, raises bool) int {
	run := in.run
	r, refusal := in.request(l)
	var reply glua.LValue
	if refusal == "" {
		reply, refusal = run.command(l, r)
	}
	if cap(in.data) > keptOutput {
		in.data = nil
	}
	if run.c.quit {
		in.state.Meter().End(errScriptSession)
	}
	if refusal != "" {
		run.c.server.stats.addError(refusal)
		reply = in.errorTable(refusal)
	}
	if t, ok := reply.(*glua.LTable); ok && raises && t.RawGetString("err") != glua.LNil {
		l.Error(t, 0)
	}
	l.Push(reply)
	return 1
}

// command runs a command of the script.
func (run *scriptRun) command(l *glua.LState, r request) (reply glua.LValue, refusal string) {
	c := run.c
	cmd, refusal := c.server.table.find(r)
	switch {
	case cmd == nil:
		return nil, errScriptUnknown
	case refusal != "":
		return nil, errScriptArity
	case cmd.flags&(flagNoScript|flagAtOnce) != 0 || cmd.run == nil:
		return nil, errScriptCommand
	case run.readOnly && cmd.flags&flagWrite != 0:
		return nil, errScriptWrites
	}
	if refusal := c.refusalOf(cmd, r); refusal != "" {
		return nil, scriptRefusal(refusal)
	}
	in := run.in
	in.keys, _ = c.server.appendKeys(in.keys[:0], queued{cmd, r}, c.db)
	if refusal := run.lockFor(cmd, in.keys); refusal != "" {
		return nil, refusal
	}
	if cmd.flags&(flagWrite|flagPubSub) != 0 {
		if err := run.wrote(); err != nil {
			in.state.Meter().End(err)
			return nil, "ERR " + err.Error()
		}
	}
	at, excessAt, excess := len(c.out), c.excessAt, c.excess
	c.excessAt, c.excess = at, false
	c.count(cmd)
	c.enter(cmd, r)
	cmd.run(c, r)
	c.flush()
	tooLarge := c.excess
	c.excessAt, c.excess = excessAt, excess
	switch {
	case c.quit:
		return glua.LNil, ""
	case tooLarge:
		c.out = c.out[:at]
		return nil, errMemory
	}
	written := c.out[at:]
	c.out = c.out[:at]
	in.state.Meter().Charge(l, len(written))
	reply, _ = in.fromReply(written, 0)
	return reply, ""
}

// scriptRefusal returns the error of a script for the refusal of a command.
func scriptRefusal(refusal string) string {
	switch {
	case refusal == errNoKeyPermission:
		return "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
	case refusal == errNoChannel:
		return "ERR The user executing the script can't publish to the channel mentioned in the command"
	case isDenial(refusal):
		return "ERR The user executing the script can't run this command or subcommand"
	}
	return refusal
}

func (in *interpreter) sha1hex(l *glua.LState) int {
	if l.GetTop() != 1 {
		in.raise(l, "ERR wrong number of arguments")
	}
	data, _ := appendArgument(nil, l.Get(1))
	l.Push(glua.LString(shaOf(data)))
	return 1
}

func (in *interpreter) log(l *glua.LState) int {
	level, ok := l.Get(1).(glua.LNumber)
	switch {
	case l.GetTop() < 2:
		in.raise(l, "ERR redis.log() requires two arguments or more.")
	case !ok:
		in.raise(l, "ERR First argument must be a number (log level).")
	case level < 0 || level > 3:
		in.raise(l, "ERR Invalid debug level.")
	}
	var words []byte
	for i := 2; i <= l.GetTop(); i++ {
		if i > 2 {
			words = append(words, ' ')
		}
		words, _ = appendArgument(words, l.Get(i))
		if len(words) > maxLine {
			words = words[:maxLine]
		}
	}
	logger, message := in.run.c.server.opts.Logger, "a script says"
	attrs := []any{"text", string(words), "client", in.run.c.id}
	switch level {
	case 0, 1:
		logger.Debug(message, attrs...)
	case 2:
		logger.Info(message, attrs...)
	default:
		logger.Warn(message, attrs...)
	}
	return 0
}

func (in *interpreter) setResp(l *glua.LState) int {
	if l.GetTop() != 1 {
		in.raise(l, "ERR redis.setresp() requires one argument.")
	}
	version, ok := l.Get(1).(glua.LNumber)
	if !ok || version != 2 && version != 3 {
		in.raise(l, "ERR RESP version must be 2 or 3.")
	}
	in.run.c.resp3 = version == 3
	return 0
}

func (in *interpreter) setRepl(l *glua.LState) int {
	if l.GetTop() != 1 {
		in.raise(l, "ERR redis.set_repl() requires two arguments.")
	}
	if flags, ok := l.Get(1).(glua.LNumber); !ok || flags < 0 || flags > 3 || flags != glua.LNumber(math.Floor(float64(flags))) {
		in.raise(l, "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return 0
}

func (in *interpreter) aclCheck(l *glua.LState) int {
	r, refusal := in.request(l)
	if refusal != "" {
		in.raise(l, refusal)
	}
	c := in.run.c
	cmd, refusal := c.server.table.find(r)
	if refusal != "" {
		in.raise(l, "ERR Invalid command passed to redis.acl_check_cmd()")
	}
	l.Push(glua.LBool(c.free || c.permitted(cmd, r) == ""))
	return 1
}
