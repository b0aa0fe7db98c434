package controltoken

import (
	"testing"
	"time"
)

func TestTokensDiffer(t *testing.T) {
	secret := NewSecret()
	seen := make(map[string]string)
	for name, token := range map[string]string{
		"manager":               Incarnation{}.Token(secret),
		"grant a b":             Terms{Cache: "a", Grant: "b"}.Token(secret),
		"grant ab and none":     Terms{Cache: "ab"}.Token(secret),
		"grant none and ab":     Terms{Grant: "ab"}.Token(secret),
		"grant b a":             Terms{Cache: "b", Grant: "a"}.Token(secret),
		"one region":            Terms{Cache: "a", Grant: "b", Regions: 1}.Token(secret),
		"one byte":              Terms{Cache: "a", Grant: "b", RegionSize: 1}.Token(secret),
		"one core":              Terms{Cache: "a", Grant: "b", Cores: 1}.Token(secret),
		"another secret":        Terms{Cache: "a", Grant: "b"}.Token(NewSecret()),
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
	if terms := (Terms{"a", "b", 1, 2, 3}); !Equal(terms.Token(secret), terms.Token(secret)) || Equal(Incarnation{}.Token(secret), "") {
		t.Error("tokens do not compare")
	}
}

func TestParseIncarnation(t *testing.T) {
	want := Incarnation{Epoch: 1<<64 - 1, ID: "ABC", Bound: 1500 * time.Millisecond}
	if got, err := ParseIncarnation(want.String()); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "1 a", "a 1 1", "-1 a 1", "1 a -1", "1 a b"} {
		if got, err := ParseIncarnation(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}
