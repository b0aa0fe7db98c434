package beats

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// appendMessage appends a message with its length to b.
func appendMessage(b []byte, m proto.Message) ([]byte, error) {
	options := proto.MarshalOptions{}
	size := options.Size(m)
	if size > MaxMessage {
		return b, fmt.Errorf("beat of %d bytes: want at most %d", size, MaxMessage)
	}
	options.UseCachedSize = true
	return options.MarshalAppend(protowire.AppendVarint(b, uint64(size)), m)
}

// beat is a received Beat: one of the calls is not nil, or neither if it is of a later version.
// The requests are used again for the next one.
type beat struct {
	heartbeat *managerv1.HeartbeatRequest
	renew     *managerv1.RenewRequest

	ofServer managerv1.HeartbeatRequest
	ofClient managerv1.RenewRequest
}

// Numbers of fields.
const (
	beatHeartbeat       = 1
	beatRenew           = 2
	heartbeatVMID       = 1
	heartbeatFreeMemory = 2
	heartbeatStart      = 3
	renewCacheID        = 1
	renewHolder         = 2
)

// decode decodes a message. What this package's clients send is decoded without
// proto.Unmarshal, which would take a tenth of the time that a beat costs.
func (b *beat) decode(message []byte) error {
	b.heartbeat, b.renew = nil, nil
	number, kind, n := protowire.ConsumeTag(message)
	if n >= 0 && kind == protowire.BytesType {
		call, size := protowire.ConsumeBytes(message[n:])
		switch {
		case size < 0 || n+size < len(message): // proto.Unmarshal says what it is
		case number == beatHeartbeat && b.decodeHeartbeat(call):
			b.heartbeat = &b.ofServer
			return nil
		case number == beatRenew && b.decodeRenew(call):
			b.renew = &b.ofClient
			return nil
		}
	}
	var p managerv1.Beat
	if err := proto.Unmarshal(message, &p); err != nil {
		return err
	}
	b.heartbeat, b.renew = p.GetHeartbeat(), p.GetRenew()
	return nil
}

// decodeHeartbeat returns false for a request that is not as this package's clients encode it,
// as does decodeRenew.
func (b *beat) decodeHeartbeat(call []byte) bool {
	call, ok := decodeID(call, heartbeatVMID, &b.ofServer.VmId)
	b.ofServer.FreeMemory, b.ofServer.Start = 0, 0
	for ok && len(call) > 0 {
		number, kind, n := protowire.ConsumeTag(call)
		if n < 0 || kind != protowire.VarintType {
			return false
		}
		value, size := protowire.ConsumeVarint(call[n:])
		if size < 0 {
			return false
		}
		switch number {
		case heartbeatFreeMemory:
			b.ofServer.FreeMemory = value
		case heartbeatStart:
			b.ofServer.Start = value
		default:
			return false
		}
		call = call[n+size:]
	}
	return ok
}

func (b *beat) decodeRenew(call []byte) bool {
	call, ok := decodeID(call, renewCacheID, &b.ofClient.CacheId)
	b.ofClient.Holder = 0
	if !ok || len(call) == 0 {
		return ok
	}
	number, kind, n := protowire.ConsumeTag(call)
	if n < 0 || number != renewHolder || kind != protowire.VarintType {
		return false
	}
	value, size := protowire.ConsumeVarint(call[n:])
	b.ofClient.Holder = value
	return size >= 0 && n+size == len(call)
}

// decodeID decodes the field with which a request begins, an id, and returns the rest.
func decodeID(call []byte, field protowire.Number, id *string) (rest []byte, ok bool) {
	number, kind, n := protowire.ConsumeTag(call)
	if number != field || kind != protowire.BytesType || n < 0 {
		return nil, false
	}
	text, size := protowire.ConsumeBytes(call[n:])
	if size < 0 || !utf8.Valid(text) {
		return nil, false
	}
	if *id != string(text) { // else it is that of the beat before
		*id = string(text)
	}
	return call[n+size:], true
}
