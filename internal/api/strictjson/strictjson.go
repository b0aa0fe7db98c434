// Package strictjson has the control APIs refuse JSON with a field that they do not know.
package strictjson

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// codec is the JSON of requests that people write by hand. Connect's own passes over a
// field that it does not know: an SLO that is misspelt would be none at all.
type codec string

// Option has a handler take such JSON, by either of the names that connect has for it.
func Option() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(codec("json")), connect.WithCodec(codec("json; charset=utf-8")))
}

// maxFieldError bounds what is said of a request that cannot be read, in characters: the
// name of a field may be as long as the request.
const maxFieldError = 300

// Name implements [connect.Codec].
func (c codec) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (c codec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return protojson.Marshal(m)
}

// Unmarshal implements [connect.Codec].
func (c codec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	if len(data) == 0 {
		return errors.New("empty request: want a JSON object")
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		return fmt.Errorf("%.*v", maxFieldError, err)
	}
	return nil
}
