// Package beats carries the calls that every server and every client of a manager makes
// every few seconds, Heartbeat and Renew, over one long connection of each process.
//
// A stream begins as an HTTP/1.1 request for [Path] that upgrades the connection to
// [Protocol]. Then the client sends managerv1.Beat messages and the manager answers each, in
// their order, with a managerv1.BeatAnswer. Each message is preceded by its length as a
// varint (package protodelim) and has at most [MaxMessage] bytes. A beat costs the manager one
// read and one write. On Linux one goroutine serves all streams without TLS; elsewhere, and with
// TLS, an idle stream costs a goroutine with a small buffer.
//
// The unary calls do the same. A [Client] uses them where streams are not served, where a beat
// on a stream is refused, for the error's details, and now and then to find the leader.
package beats

import "time"

const (
	// Path is the path of the requests that begin streams.
	Path = "/redykv.manager.v1.Beats"
	// Protocol is what the connection of a stream is upgraded to.
	Protocol = "redykv-beats-v1"
	// MaxMessage bounds the bytes of a message.
	MaxMessage = 1 << 10
	// Silence is the time without a beat after which the manager ends a stream.
	Silence = 2 * time.Minute
)

// readBuffer is the buffer of a stream's reader: a few beats.
const readBuffer = 256
