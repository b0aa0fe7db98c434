package resp

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// startLoading starts a server without a store. The test ends it.
func startLoading(t *testing.T, opts Options) (s *Server, addr string, end func()) {
	t.Helper()
	opts.Logger = quietly
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(nil, opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	return s, ln.Addr().String(), func() {
		t.Helper()
		shutDown(t, s, served)
	}
}

// TestLoading: without a store the server answers as Redis does while it loads. The connections go on when
// it has the store.
func TestLoading(t *testing.T) {
	for durability := range durabilities {
		t.Run(durability.String(), func(t *testing.T) {
			s, addr, end := startLoading(t, Options{Durability: durability})
			s.Loading(30, 40)
			p := dial(t, addr)
			for _, c := range [][2]string{
				{"PING", "-LOADING Redis is loading the dataset in memory"},
				{"GET a", "-LOADING Redis is loading the dataset in memory"},
				{"NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "},
				{"SELECT 1", "+OK"}, {"CLIENT SETNAME me", "+OK"}, {"ECHO a", `"a"`},
				{"SUBSCRIBE c", `["subscribe" "c" :1]`}, {"UNSUBSCRIBE", `["unsubscribe" "c" :0]`},
			} {
				if got := p.do(strings.Fields(c[0])...); got != c[1] {
					t.Errorf("%s: %s, want %s", c[0], got, c[1])
				}
			}
			got := p.do("INFO", "everything")
			for _, line := range []string{"loading:1", "loading_total_bytes:40", "loading_loaded_bytes:30", "loading_loaded_perc:75.00", "used_memory:0", "expired_keys:0"} {
				if !strings.Contains(got, `\r\n`+line+`\r\n`) {
					t.Errorf("INFO lacks %s: %s", line, got)
				}
			}
			store := inMemory()
			store.Logger = quietly
			st, err := kv.Open(store)
			if err != nil {
				end()
				t.Fatal(err)
			}
			s.Opened(st)
			for _, c := range [][2]string{
				{"PING", "+PONG"}, {"SET a 1", "+OK"}, {"SELECT 0", "+OK"}, {"GET a", "nil"}, {"CLIENT GETNAME", `"me"`},
			} {
				if got := p.do(strings.Fields(c[0])...); got != c[1] {
					t.Errorf("%s: %s, want %s", c[0], got, c[1])
				}
			}
			if got := p.do("INFO"); !strings.Contains(got, `loading:0\r\n`) {
				t.Error(got)
			}
			c := only(t, s)
			testrun.Until(t, "a loop takes the connection", func() bool { p.do("PING"); return c.looped.Owned() == nil })
			end()
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNoCommandNeedsTheStoreWhileLoading runs all commands that may run then.
func TestNoCommandNeedsTheStoreWhileLoading(t *testing.T) {
	s, addr, end := startLoading(t, Options{Durability: DurabilityEverySecond, Shutdown: func() {}})
	defer end()
	for _, cmd := range s.table.all {
		if !cmd.whileLoading() {
			continue
		}
		for more := range 3 {
			p := dial(t, addr)
			args := strings.Split(cmd.name, "|")
			for n := len(args); n < max(cmd.arity, -cmd.arity)+more; n++ {
				args = append(args, "1")
			}
			p.send(encode(args...) + encode("QUIT"))
			for { // to the end of the connection
				if _, err := p.in.ReadByte(); err != nil {
					break
				}
			}
		}
	}
	if got := dial(t, addr).do("ECHO", fmt.Sprint(1)); got != `"1"` {
		t.Error(got)
	}
}
