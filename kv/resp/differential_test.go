package resp

import (
	"bufio"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/kv"
)

// startRedis starts a real server and returns a connection to it.
func startRedis(t *testing.T) *peer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("there is no redis-server here to compare with")
	}
	if version, err := exec.Command(path, "--version").Output(); err != nil || !strings.Contains(string(version), "v=7.") {
		t.Skipf("want version 7, have %q, %v", version, err)
	}
	dir, err := os.MkdirTemp("", "redis") // a socket's name must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(stdout); ; {
		if !lines.Scan() {
			t.Fatal("redis-server does not start")
		}
		if strings.Contains(lines.Text(), "eady to accept connections") {
			break
		}
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &peer{t, conn, bufio.NewReader(conn)}
}

// commander makes commands up: mostly good ones, on few keys, so that they meet.
type commander struct{ *rand.Rand }

func (c commander) one(of ...string) string { return of[c.IntN(len(of))] }

func (c commander) key() string { return c.one("a", "b", "c", "d", "e", "f", "g", "key with\r\nlines") }

func (c commander) value() string {
	return c.one("", "0", "1", "-1", "41", "007", "+1", " 1", "1.5", "text", "\r\n", "\x00\xff",
		"9223372036854775807", "9223372036854775806", "-9223372036854775808", "9223372036854775808",
		strings.Repeat("long", 1+c.IntN(200)))
}

func (c commander) keys() (keys []string) {
	for range 1 + c.IntN(4) {
		keys = append(keys, c.key())
	}
	return keys
}

// command is one that both servers have to answer alike.
func (c commander) command() (args []string) {
	switch name := c.one("get", "set", "set", "set", "setnx", "getset", "getdel", "mget", "mset", "del", "unlink", "exists",
		"strlen", "append", "incr", "decr", "incrby", "decrby", "type", "ping", "echo", "select", "client", "hello", "nonsense"); name {
	case "get", "strlen", "incr", "decr", "type", "getdel":
		args = []string{name, c.key()}
	case "set":
		args = []string{name, c.key(), c.value()}
		for range c.IntN(3) {
			args = append(args, c.one("nx", "xx", "get", "NX", "XX", "GET", "keepttl", "nonsense"))
		}
	case "setnx", "getset", "append", "incrby", "decrby":
		args = []string{name, c.key(), c.value()}
	case "mget", "del", "unlink", "exists":
		args = append([]string{name}, c.keys()...)
	case "mset":
		args = []string{name}
		for _, key := range c.keys() {
			args = append(args, key, c.value())
		}
	case "echo":
		args = []string{name, c.value()}
	case "select":
		args = []string{name, c.one("0", "99", "-1", "x")}
	case "client":
		args = []string{name, c.one("getname", "setname", "nonsense")}
		if args[1] == "setname" {
			args = append(args, c.one("me", "you", "", "a b", "\n"))
		}
	case "hello": // an answer that both give alike is an error
		args = []string{name, c.one("1", "x", "")}
	default:
		args = append([]string{name}, c.keys()...)
	}
	if c.IntN(20) == 0 { // too few, or too many
		if args = args[:1+c.IntN(len(args))]; c.IntN(2) == 0 {
			args = append(args, c.key())
		}
		switch args[0] {
		case "hello", "client", "select":
			args[0] = "nonsense" // not all answers of those are to be alike
		}
	}
	if c.IntN(4) == 0 {
		args[0] = strings.ToUpper(args[0])
	}
	return args
}

// Random commands get from this server, byte for byte, the replies of Redis.
func TestAsRedis(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			redis := startRedis(t)
			_, addr := start(t, options(), Options{})
			ours, other := dial(t, addr), dial(t, addr)
			c := commander{rand.New(rand.NewPCG(seed, 0))}
			for round := range 300 {
				if round%50 == 25 { // the other protocol
					version := c.one("2", "3")
					redis.do("HELLO", version)
					ours.do("HELLO", version)
				}
				commands := make([][]string, 1+c.IntN(200))
				var pipeline strings.Builder
				for i := range commands {
					commands[i] = c.command()
					pipeline.WriteString(encode(commands[i]...))
				}
				redis.send(pipeline.String())
				ours.send(pipeline.String())
				for _, command := range commands {
					want, got := redis.reply(), ours.reply()
					if got != want {
						t.Fatalf("round %d: %q\n  got %s\nRedis %s", round, command, got, want)
					}
				}
				if name == "cold" && round%10 == 0 {
					other.coolDown()
				}
			}
		})
	}
}
