package manager

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// strictJSON is the JSON of requests that people write by hand. Connect's own passes over
// a field that it does not know: an SLO that is misspelt would be none at all.
type strictJSON string

// withStrictJSON has a handler take JSON by either of the names that connect has for it.
func withStrictJSON() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(strictJSON("json")), connect.WithCodec(strictJSON("json; charset=utf-8")))
}

// maxFieldError bounds what is said of a request that cannot be read, in characters: the
// name of a field may be as long as the request.
const maxFieldError = 300

// Name implements [connect.Codec].
func (c strictJSON) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (c strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", message)
	}
	return protojson.Marshal(m)
}

// Unmarshal implements [connect.Codec].
func (c strictJSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", message)
	}
	if len(data) == 0 {
		return errors.New("want a JSON object, have nothing")
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		return fmt.Errorf("%.*v", maxFieldError, err)
	}
	return nil
}
