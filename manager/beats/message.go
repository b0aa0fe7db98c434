package beats

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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
