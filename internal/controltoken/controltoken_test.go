package controltoken

import "testing"

func TestTokensDiffer(t *testing.T) {
	secret := NewSecret()
	seen := make(map[string]string)
	for name, token := range map[string]string{
		"manager":               Manager(secret),
		"grant a b":             Terms{Cache: "a", Grant: "b"}.Token(secret),
		"grant ab and none":     Terms{Cache: "ab"}.Token(secret),
		"grant none and ab":     Terms{Grant: "ab"}.Token(secret),
		"grant b a":             Terms{Cache: "b", Grant: "a"}.Token(secret),
		"one region":            Terms{Cache: "a", Grant: "b", Regions: 1}.Token(secret),
		"one byte":              Terms{Cache: "a", Grant: "b", RegionSize: 1}.Token(secret),
		"one core":              Terms{Cache: "a", Grant: "b", Cores: 1}.Token(secret),
		"another secret":        Terms{Cache: "a", Grant: "b"}.Token(NewSecret()),
		"another manager":       Manager(NewSecret()),
		"manager with no parts": sum(secret, "manager", ""),
	} {
		if other, ok := seen[token]; ok {
			t.Errorf("%s has the token of %s", name, other)
		}
		seen[token] = name
	}
	if terms := (Terms{"a", "b", 1, 2, 3}); !Equal(terms.Token(secret), terms.Token(secret)) || Equal(Manager(secret), "") {
		t.Error("tokens do not compare")
	}
}
