package resp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// parsed returns the commands in a stream, and how it ended.
func parsed(stream []byte, chunk func() int) (commands []string, used int, err error) {
	p := parser{maxBulk: 1 << 10, maxRequest: 4 * maxLine}
	data := bytes.Clone(stream)
	start, end := 0, 0
	for {
		size, err := p.next(data[start:end])
		switch {
		case err != nil:
			return commands, start, err
		case size > 0:
			r := request{data[start : start+size], p.args}
			var args []string
			for i := range r.len() {
				args = append(args, strconv.Quote(string(r.arg(i))))
			}
			commands = append(commands, strings.Join(args, " "))
			start += size
		case end == len(data):
			return commands, start, nil
		default:
			end = min(end+chunk(), len(data))
		}
	}
}

var streams = []string{
	encode("SET", "a", "1") + encode("GET", "a"),
	"PING\r\nGET \"a b\\x00\\n\" 'c\\'d'\n\r\n  \r\nSET a 1\n",
	"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n",
	"*1\r\n$4\r\nPI",
	"*1\r\n:4\r\n",
	"*1048577\r\n",
	"*x\r\n",
	"*1\r\n$-1\r\n",
	"*1\r\n$1025\r\n",
	"*1\r\n$01\r\n",
	"GET \"a\r\n",
	"GET \"a\"b\r\n",
}

func TestParser(t *testing.T) {
	for i, want := range []string{
		`"SET" "a" "1"; "GET" "a"`,
		`"PING"; "GET" "a b\x00\n" "c'd"; ; ; "SET" "a" "1"`,
		`; ; "PING"`,
		``,
		`; Protocol error: expected '$', got ':'`,
		`; Protocol error: invalid multibulk length`,
		`; Protocol error: invalid multibulk length`,
		`; Protocol error: invalid bulk length`,
		`; Protocol error: invalid bulk length`,
		`; Protocol error: invalid bulk length`,
		`; Protocol error: unbalanced quotes in request`,
		`; Protocol error: unbalanced quotes in request`,
	} {
		commands, _, err := parsed([]byte(streams[i]), func() int { return 1 })
		got := strings.Join(commands, "; ")
		if err != nil {
			got += "; " + err.Error()
		}
		if got != want {
			t.Errorf("%q\n got %s\nwant %s", streams[i], got, want)
		}
	}
}

// FuzzParser: the commands in a stream do not depend on how it is cut into pieces. Every
// argument lies within its command, and none is larger than allowed.
func FuzzParser(f *testing.F) {
	for i, s := range streams {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		whole, used, err := parsed(stream, func() int { return len(stream) + 1 })
		pieces, usedPieces, errPieces := parsed(stream, func() int { return 1 + rng.IntN(8) })
		if fmt.Sprint(whole) != fmt.Sprint(pieces) || used != usedPieces || fmt.Sprint(err) != fmt.Sprint(errPieces) {
			t.Fatalf("in one piece %q, %d, %v\nin many %q, %d, %v", whole, used, err, pieces, usedPieces, errPieces)
		}
	})
}

// FuzzServer: whatever a client sends, the server serves others, and sends this one complete
// replies.
func FuzzServer(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s))
	}
	for _, script := range scripts {
		var all strings.Builder
		for line := range strings.Lines(strings.TrimSpace(script)) {
			command, _, _ := strings.Cut(line, " =>")
			all.WriteString(command + "\r\n")
		}
		f.Add([]byte(all.String()))
	}
	f.Add([]byte("HELLO 3\r\nSUBSCRIBE a b\r\nPSUBSCRIBE *\r\nPUBLISH a m\r\nMULTI\r\nUNSUBSCRIBE a\r\nPUBLISH b m\r\nHELLO 2\r\nEXEC\r\nPING\r\nRESET\r\nPUBSUB NUMPAT\r\n"))
	_, addr := start(f, cold(), Options{MaxBulk: 1 << 10})
	other := dial(f, addr)
	f.Fuzz(func(t *testing.T, stream []byte) {
		p := dial(t, addr)
		var sent sync.WaitGroup
		sent.Go(func() {
			_, _ = p.conn.Write(stream) // fails if the server has closed the connection
			_ = p.conn.(*net.TCPConn).CloseWrite()
		})
		for {
			if _, err := readReply(p.in); err != nil {
				if isTimeout(err) || errors.Is(err, errBadReply) {
					t.Error(err)
				}
				break
			}
		}
		_ = p.conn.Close()
		sent.Wait()
		other.t = t
		if got := other.do("PING"); got != "+PONG" {
			t.Error(got)
		}
	})
}

func TestParseInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "-7": -7, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		if got, ok := parseInt([]byte(text)); !ok || got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1x", "9223372036854775808", "-9223372036854775809", "99999999999999999999"} {
		if got, ok := parseInt([]byte(text)); ok {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
