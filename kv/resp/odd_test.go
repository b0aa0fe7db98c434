package resp

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"
)

// oddCommands are what random ones seldom come to: each line a command, as one types it.
// They follow one another, so that what one leaves behind is there for the next.
//
//go:embed testdata/odd.txt
var oddCommands string

// Commands at their limits get from this server, byte for byte, the replies of Redis.
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

// What Redis says of a client is in our line as well: libraries look for all of it.
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
