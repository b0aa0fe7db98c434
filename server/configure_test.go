package server

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
)

// Configure calls may be repeated, arrive late, or outlive their callers. Of the calls that
// succeed, the one with the highest number holds.
func TestConfigureIsNumbered(t *testing.T) {
	s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 3})
	answer := lend(t, client, "cache", "", 1)
	lend(t, client, "other", "", 1) // two cores are left for the first grant
	ended, end := context.WithCancel(t.Context())
	end()
	for _, step := range []struct {
		name    string
		ctx     context.Context
		change  uint64
		threads uint32
		want    connect.Code // 0: success
		has     int          // threads afterwards
	}{
		{"without a number", t.Context(), 0, 2, connect.CodeInvalidArgument, 1},
		{"first", t.Context(), 2, 2, 0, 2},
		{"repeated", t.Context(), 2, 1, 0, 2},
		{"outdated", t.Context(), 1, 1, connect.CodeFailedPrecondition, 2},
		{"too few cores", t.Context(), 4, 3, connect.CodeResourceExhausted, 2},
		{"caller gave up", ended, 4, 1, connect.CodeCanceled, 2},
		{"below a refused one", t.Context(), 3, 1, 0, 1},
		{"the refused one again", t.Context(), 4, 2, 0, 2},
	} {
		// The handler is called directly: a client would not send a call whose context has ended.
		_, err := s.Configure(step.ctx, connect.NewRequest(&serverv1.ConfigureRequest{
			CacheId: "cache", Ticket: answer.Ticket, Configuration: configuration(step.threads, 4), Change: step.change,
		}))
		var code connect.Code
		if err != nil {
			code = connect.CodeOf(err)
		}
		if got := len(*s.grants[grantID{cache: "cache"}].threads.Load()); code != step.want || got != step.has {
			t.Errorf("%s: %v, %d threads; want %d", step.name, err, got, step.has)
		}
	}
}
