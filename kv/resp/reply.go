package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Functions that append the replies of the protocol. Those with the parameter resp3 differ
// between RESP2 and RESP3.

func appendSimple(out []byte, text string) []byte {
	out = append(out, '+')
	out = append(out, text...)
	return append(out, "\r\n"...)
}

// appendError appends an error reply. text begins with its code, such as ERR.
func appendError(out []byte, text string) []byte {
	out = append(out, '-')
	out = append(out, oneLine.Replace(text)...)
	return append(out, "\r\n"...)
}

func appendInt(out []byte, n int64) []byte { return appendHead(out, ':', n) }

func appendHead(out []byte, kind byte, n int64) []byte {
	out = append(out, kind)
	out = strconv.AppendInt(out, n, 10)
	return append(out, "\r\n"...)
}

func appendBulk[T string | []byte](out []byte, value T) []byte {
	out = appendHead(out, '$', int64(len(value)))
	out = append(out, value...)
	return append(out, "\r\n"...)
}

// appendDouble appends a number with a fraction; in RESP2, as a string.
func appendDouble(out []byte, resp3 bool, f float64) []byte {
	if resp3 {
		return append(appendScore(append(out, ','), f), "\r\n"...)
	}
	var buf [32]byte
	return appendBulk(out, appendScore(buf[:0], f))
}

func appendNull(out []byte, resp3 bool) []byte {
	if resp3 {
		return append(out, "_\r\n"...)
	}
	return append(out, "$-1\r\n"...)
}

func appendNullArray(out []byte, resp3 bool) []byte {
	if resp3 {
		return append(out, "_\r\n"...)
	}
	return append(out, "*-1\r\n"...)
}

func appendStrings(out []byte, all []string) []byte {
	out = appendArray(out, len(all))
	for _, s := range all {
		out = appendBulk(out, s)
	}
	return out
}

// appendSet appends the head of a set of n elements; in RESP2, of an array.
func appendSet(out []byte, resp3 bool, n int) []byte {
	if resp3 {
		return appendHead(out, '~', int64(n))
	}
	return appendArray(out, n)
}

// appendPush appends the head of a message of n elements that is not a reply; in RESP2, of an
// array.
func appendPush(out []byte, resp3 bool, n int) []byte {
	if resp3 {
		return appendHead(out, '>', int64(n))
	}
	return appendArray(out, n)
}

func appendArray(out []byte, n int) []byte { return appendHead(out, '*', int64(n)) }

// appendMap appends the head of a map of n pairs; in RESP2, of an array.
func appendMap(out []byte, resp3 bool, n int) []byte {
	if resp3 {
		return appendHead(out, '%', int64(n))
	}
	return appendArray(out, 2*n)
}

// appendText appends text for people to read.
func appendText(out []byte, resp3 bool, text string) []byte {
	if !resp3 {
		return appendBulk(out, text)
	}
	out = appendHead(out, '=', int64(len("txt:")+len(text)))
	out = append(out, "txt:"...)
	out = append(out, text...)
	return append(out, "\r\n"...)
}

// Redis's errors, word for word.
const (
	errSyntax            = "ERR syntax error"
	errWrongType         = "WRONGTYPE Operation against a key holding the wrong kind of value"
	errNotInteger        = "ERR value is not an integer or out of range"
	errNotPositive       = "ERR value is out of range, must be positive"
	errOutOfRange        = "ERR value is out of range"
	errNotLong           = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	errNumKeys           = "ERR numkeys should be greater than 0"
	errTooManyKeys       = "ERR Number of keys can't be greater than number of args"
	errLimit             = "ERR LIMIT can't be negative"
	errNotInt32          = "ERR value is out of range, value must between -2147483648 and 2147483647"
	errNotFloat          = "ERR value is not a valid float"
	errInfinity          = "ERR increment would produce NaN or Infinity"
	errOverflow          = "ERR increment or decrement would overflow"
	errDecrementOverflow = "ERR decrement would overflow"
	errTooLong           = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	errHashNotInteger    = "ERR hash value is not an integer"
	errHashNotFloat      = "ERR hash value is not a float"
	errHashInfinity      = "ERR value is NaN or Infinity"
	errDatabase          = "ERR DB index is out of range"
	errNoKey             = "ERR no such key"
	errSameKey           = "ERR source and destination objects are the same"
	errProtocolVersion   = "ERR Protocol version is not an integer or out of range"
	errNoProtocol        = "NOPROTO unsupported protocol version"
	errClientName        = "ERR Client names cannot contain spaces, newlines or special characters."
	errTooManyClients    = "ERR max number of clients reached"
	errProtected         = "DENIED this server is in protected mode: while the default user has no password, only clients on this machine may connect. Set a password, or turn protected mode off if everybody on the network is trusted."
	errNoCluster         = "ERR This instance has cluster support disabled"
	errNoFreq            = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
	errNoClient          = "ERR No such client"

	errLoading         = "LOADING Redis is loading the dataset in memory"
	errNoAuth          = "NOAUTH Authentication required."
	errNoHello         = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
	errWrongPassword   = "WRONGPASS invalid username-password pair or user is disabled."
	errNoPassword      = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	errNoKeyPermission = "NOPERM this user has no permissions to access one of the keys used as arguments"
	errNoChannel       = "NOPERM this user has no permissions to access one of the channels used as arguments"

	errNestedMulti    = "ERR MULTI calls can not be nested"
	errNoMulti        = "ERR Command not allowed inside a transaction"
	errExecAlone      = "ERR EXEC without MULTI"
	errDiscardAlone   = "ERR DISCARD without MULTI"
	errWatchInMulti   = "ERR WATCH inside MULTI is not allowed"
	errExecAborted    = "EXECABORT Transaction discarded because of previous errors."
	errExecBecause    = "EXECABORT Transaction discarded because of: "
	errExecDenied     = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: "
	errExpireNX       = "ERR NX and XX, GT or LT options at the same time are not compatible"
	errExpireGT       = "ERR GT and LT options at the same time are not compatible"
	errCursor         = "ERR invalid cursor"
	errBusyKey        = "BUSYKEY Target key name already exists."
	errBadDump        = "ERR DUMP payload version or checksum are wrong"
	errBadFormat      = "ERR Bad data format"
	errFieldExpires   = "ERR the hash has fields that expire, which this server does not keep"
	errConfigSettings = "ERR Unknown option or number of arguments for CONFIG SET - '%s'"
	errIndex          = "ERR index out of range"
	errRank           = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list"
	errUnblocked      = "UNBLOCKED client unblocked via CLIENT UNBLOCK"
	errNotANumber     = "ERR resulting score is not a number (NaN)"
	errScoreRange     = "ERR min or max is not a float"
	errLexRange       = "ERR min or max not valid string range item"
	errWeight         = "ERR weight value is not a float"
	errShardInMulti   = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
	errNoScript       = "NOSCRIPT No matching script. Please use EVAL."
	errConfigFailed   = "ERR CONFIG SET failed (possibly related to argument '%s') - %s"
)

// Errors that Redis does not have.
const (
	errDamagedList   = "ERR this list is damaged"
	errDamagedSorted = "ERR this sorted set is damaged"
	errSessionFailed = "ERR the store failed; see the server's log"
	errDamagedHash   = "ERR this hash is damaged"
	errDamagedSet    = "ERR this set is damaged"
	errTooLarge      = "ERR the transaction is too large"
	errTooLargeReply = "ERR the replies of the transaction are too large"
	errMemory        = "ERR the reply is too large for the memory that all clients' buffers may take"
)

// shown is the most bytes of a client's input that an error quotes.
const shown = 128

// text returns b as C prints it: up to the first zero byte, and at most that many bytes.
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

// subcommandSyntax is the error for too many arguments of a subcommand that accepts several
// numbers of arguments.
func subcommandSyntax(r request) string {
	return fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%s'. Try %s HELP.", text(r.arg(1), shown), strings.ToUpper(string(r.arg(0))))
}

// wrongArity takes the name of a command or subcommand.
func wrongArity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// onlyForSubscribers is the error for a command that a client with subscriptions cannot use in
// RESP2.
func onlyForSubscribers(name string) string {
	return "ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}

func noPermission(name string) string {
	return "NOPERM this user has no permissions to run the '" + name + "' command"
}

// badExpiry is the error for an invalid expiry time.
func badExpiry(r request) string {
	return "ERR invalid expire time in '" + strings.ToLower(string(r.arg(0))) + "' command"
}
