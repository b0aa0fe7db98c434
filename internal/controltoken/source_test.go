package controltoken

import (
	"crypto/ed25519"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// A source is that of one key, and each of its fields is signed, also one that a later version adds.
func TestSource(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	key := NewSourceKey("secret")
	s := &managerv1.PullSource{Transport: "tcp", FabricAddr: "10.0.0.1:7072", NotAfterUnixMs: now.UnixMilli()}
	key.Sign(s)
	if err := CheckSource(NewSourceKey("secret").Public(), s, now); err != nil {
		t.Fatal(err)
	}
	if err := CheckSource(key.Public(), s, now.Add(time.Millisecond)); err == nil {
		t.Error("accepted when its time was over")
	}
	for name, other := range map[string]ed25519.PublicKey{"another key": NewSourceKey("other").Public(), "no key": nil} {
		if err := CheckSource(other, s, now); err == nil {
			t.Errorf("accepted with %s", name)
		}
	}
	fields := s.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		changed, f := proto.CloneOf(s), fields.Get(i)
		changed.ProtoReflect().Set(f, map[protoreflect.Kind]protoreflect.Value{
			protoreflect.StringKind: protoreflect.ValueOfString("other"),
			protoreflect.Int64Kind:  protoreflect.ValueOfInt64(now.UnixMilli() + 9),
			protoreflect.BytesKind:  protoreflect.ValueOfBytes([]byte("other")),
		}[f.Kind()])
		if err := CheckSource(key.Public(), changed, now); err == nil {
			t.Errorf("%s is not signed", f.Name())
		}
	}
}
