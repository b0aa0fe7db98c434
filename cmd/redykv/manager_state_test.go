package main

import (
	"net"
	"testing"
)

func TestDefaultState(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070}
	t.Setenv("HOME", "/home/ada")
	for base, want := range map[string]string{
		"":         "/home/ada/.local/state/redykv/manager/127.0.0.1-7070",
		"relative": "/home/ada/.local/state/redykv/manager/127.0.0.1-7070",
		"/state":   "/state/redykv/manager/127.0.0.1-7070",
	} {
		t.Setenv("XDG_STATE_HOME", base)
		if got, err := defaultState(at); err != nil || got != want {
			t.Errorf("$XDG_STATE_HOME %q: %s, %v", base, got, err)
		}
	}
}
