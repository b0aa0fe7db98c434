package controltoken

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

func TestTokensDiffer(t *testing.T) {
	secret := NewSecret()
	seen := make(map[string]string)
	for name, token := range map[string]string{
		"manager":               Incarnation{}.Token(secret),
		"grant a b":             Grant(secret, &managerv1.Terms{CacheId: "a", Grant: "b"}),
		"grant ab and none":     Grant(secret, &managerv1.Terms{CacheId: "ab"}),
		"grant none and ab":     Grant(secret, &managerv1.Terms{Grant: "ab"}),
		"grant b a":             Grant(secret, &managerv1.Terms{CacheId: "b", Grant: "a"}),
		"another secret":        Grant(NewSecret(), &managerv1.Terms{CacheId: "a", Grant: "b"}),
		"another manager":       Incarnation{}.Token(NewSecret()),
		"manager of an epoch":   Incarnation{Epoch: 1}.Token(secret),
		"manager of that name":  Incarnation{ID: "a"}.Token(secret),
		"manager of that bound": Incarnation{Bound: time.Second}.Token(secret),
		"manager with no parts": sum(secret, "manager", ""),
	} {
		if other, ok := seen[token]; ok {
			t.Errorf("%s has the token of %s", name, other)
		}
		seen[token] = name
	}
}

// Each field of the terms is signed, also one that a later version adds.
func TestAllTermsAreSigned(t *testing.T) {
	secret := NewSecret()
	terms := &managerv1.Terms{CacheId: "a", Grant: "b", VmId: "c", Regions: 1, RegionSize: 2, Cores: 3, Epoch: 4, KeepMs: 5}
	token := Grant(secret, terms)
	if !Equal(token, Grant(secret, proto.CloneOf(terms))) || Equal(token, "") {
		t.Fatal("tokens do not compare")
	}
	fields := terms.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		changed := proto.CloneOf(terms)
		m, f := changed.ProtoReflect(), fields.Get(i)
		value := map[protoreflect.Kind]protoreflect.Value{
			protoreflect.StringKind: protoreflect.ValueOfString("other"),
			protoreflect.Uint32Kind: protoreflect.ValueOfUint32(9),
			protoreflect.Uint64Kind: protoreflect.ValueOfUint64(9),
			protoreflect.Int64Kind:  protoreflect.ValueOfInt64(9),
		}[f.Kind()]
		m.Set(f, value)
		if Equal(Grant(secret, changed), token) {
			t.Errorf("%s is not signed", f.Name())
		}
	}
}

// Terms from the network have the token of other terms only if their fields are equal.
func FuzzTerms(f *testing.F) {
	terms := &managerv1.Terms{CacheId: "a", Grant: "b", VmId: "c", Regions: 1, RegionSize: 2, Cores: 3, Epoch: 4, KeepMs: 5}
	seed, err := proto.Marshal(terms)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, message []byte) {
		got := new(managerv1.Terms)
		if proto.Unmarshal(message, got) != nil {
			return
		}
		got.ProtoReflect().SetUnknown(nil)
		if Equal(Grant("secret", got), Grant("secret", terms)) != proto.Equal(got, terms) {
			t.Errorf("token of %v", got)
		}
	})
}

func TestParseIncarnation(t *testing.T) {
	want := Incarnation{Epoch: 1<<64 - 1, ID: "ABC", Bound: 1500 * time.Millisecond}
	if got, err := ParseIncarnation(want.String()); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "1 a", "a 1 1", "-1 a 1", "1 a -1", "1 a b", "1 a 1 1", "01 a 1", " 1 a 1", "1\na 1", "1 a 9223372036854775807"} {
		if got, err := ParseIncarnation(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

// What is parsed has one form, which the manager's token signs.
func FuzzParseIncarnation(f *testing.F) {
	f.Add(Incarnation{Epoch: 7, ID: "ABC", Bound: time.Second}.String())
	f.Add("1 a 9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := ParseIncarnation(s)
		if err == nil && (i.String() != s || i.Bound < 0 || strings.ContainsAny(i.ID, " \n")) {
			t.Errorf("%q is %+v", s, i)
		}
	})
}
