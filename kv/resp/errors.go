package resp

import (
	"bytes"
	"fmt"
	"strings"
)

// Redis's errors, word for word.
const (
	errSyntax            = "ERR syntax error"
	errNotInteger        = "ERR value is not an integer or out of range"
	errOverflow          = "ERR increment or decrement would overflow"
	errDecrementOverflow = "ERR decrement would overflow"
	errTooLong           = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	errDatabase          = "ERR DB index is out of range"
	errProtocolVersion   = "ERR Protocol version is not an integer or out of range"
	errNoProtocol        = "NOPROTO unsupported protocol version"
	errClientName        = "ERR Client names cannot contain spaces, newlines or special characters."
	errTooManyClients    = "ERR max number of clients reached"
	errProtected         = "DENIED this server is in protected mode: as long as the default user has no password, clients from other machines are turned away. Give it one, or turn protected mode off where the network keeps strangers out."
)

// shown is how many bytes of a client's words an error repeats.
const shown = 128

// text is b as C prints it: up to a zero byte or most bytes.
func text(b []byte, most int) string {
	b = b[:min(len(b), most)]
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}

func unknownCommand(r request) string {
	var args strings.Builder
	for i := 1; i < r.len() && args.Len() < shown; i++ {
		fmt.Fprintf(&args, "'%s' ", text(r.arg(i), shown-args.Len()))
	}
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", text(r.arg(0), shown), args.String())
}

func unknownSubcommand(r request) string {
	return fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", text(r.arg(1), shown), strings.ToUpper(string(r.arg(0))))
}

// wrongArity takes the names of a command and its subcommand.
func wrongArity(names ...[]byte) string {
	return fmt.Sprintf("ERR wrong number of arguments for '%s' command", bytes.ToLower(bytes.Join(names, []byte("|"))))
}
