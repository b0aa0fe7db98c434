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
	key := SourceKey("secret")
	public := func(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }
	s := &managerv1.PullSource{Transport: "tcp", FabricAddr: "10.0.0.1:7072", NotAfterUnixMs: now.UnixMilli()}
	SignSource(key, s)
	if err := CheckSource(public(SourceKey("secret")), s, now); err != nil {
		t.Fatal(err)
	}
	if err := CheckSource(public(key), s, now.Add(time.Millisecond)); err == nil {
		t.Error("accepted when its time was over")
	}
	for name, other := range map[string]ed25519.PublicKey{"another key": public(SourceKey("other")), "no key": nil} {
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
		if err := CheckSource(public(key), changed, now); err == nil {
			t.Errorf("%s is not signed", f.Name())
		}
	}
}
