package resp

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"
)

// oddCommands are commands that random ones rarely contain, one per line as typed. They run in
// order, each in the state that the previous ones left.
//
//go:embed testdata/odd.txt
var oddCommands string

// TestOddCommandsAsRedis compares the replies to commands at their limits with Redis's, byte
// for byte.
func TestOddCommandsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	for _, p := range []*peer{redis, ours} {
		p.do("CONFIG", "SET", "slowlog-log-slower-than", "-1")
	}
	for line := range strings.Lines(oddCommands) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		command := words(t, line)
		if want, got := redis.do(command...), ours.do(command...); !alike(command, got, want) {
			t.Errorf("%s\n  got %s\nRedis %s", line, got, want)
		}
	}
}

// TestClientFieldsAsRedis: CLIENT LIST has all of Redis's fields, which libraries parse.
func TestClientFieldsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr).do("CLIENT", "INFO")
	for _, field := range regexp.MustCompile(`[a-z-]+=`).FindAllString(redis.do("CLIENT", "INFO"), -1) {
		if !strings.Contains(ours, field) {
			t.Errorf("%s lacks %s", ours, field)
		}
	}
}
