package controltoken

import "testing"

func TestTokensDiffer(t *testing.T) {
	secret := NewSecret()
	seen := make(map[string]string)
	for name, token := range map[string]string{
		"manager":               Manager(secret),
		"grant a b":             Grant(secret, "a", "b"),
		"grant ab and none":     Grant(secret, "ab", ""),
		"grant none and ab":     Grant(secret, "", "ab"),
		"grant b a":             Grant(secret, "b", "a"),
		"another secret":        Grant(NewSecret(), "a", "b"),
		"another manager":       Manager(NewSecret()),
		"manager with no parts": sum(secret, "manager", ""),
	} {
		if other, ok := seen[token]; ok {
			t.Errorf("%s has the token of %s", name, other)
		}
		seen[token] = name
	}
	if !Equal(Grant(secret, "a", "b"), Grant(secret, "a", "b")) || Equal(Manager(secret), "") {
		t.Error("tokens do not compare")
	}
}
