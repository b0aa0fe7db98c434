package server

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
)

// Without a manager, a server takes a grant back when its client has been silent for as long
// as its terms say: at most two sweeps later, and never earlier, whenever it was lent.
func TestTermsRunOut(t *testing.T) {
	const keep = 3 * time.Second
	for _, at := range []time.Duration{0, sweepEvery / 2, sweepEvery - 1} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(Options{Memory: 4 * regionSize, ControlSecret: testSecret, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(at)
				terms := termsOf("cache", "g1")
				terms.KeepMs = keep.Milliseconds()
				if _, err := s.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{Terms: terms, Configuration: configuration(0, 1)})); err != nil {
					t.Fatal(err)
				}
				time.Sleep(keep - 1)
				synctest.Wait()
				if got := leases(t, s); len(got) != 1 {
					t.Error("taken back early")
				}
				time.Sleep(2 * sweepEvery)
				synctest.Wait()
				if got := leases(t, s); len(got) != 0 || s.Metrics().Expired != 1 {
					t.Errorf("not taken back: %v", got)
				}
			})
		})
	}
}

// Status says for how long clients have been silent, also of grants that are kept for ever.
func TestSilenceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Memory: 4 * regionSize, ControlSecret: testSecret, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		terms := termsOf("cache", "g1")
		terms.KeepMs = 0
		lent, err := s.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{Terms: terms, Configuration: configuration(0, 1)}))
		if err != nil {
			t.Fatal(err)
		}
		silent := func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return time.Duration(s.status().GetGrants()[0].GetSilentMs()) * time.Millisecond
		}
		for range 2 {
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := silent(); got > time.Hour || got < time.Hour-2*sweepEvery {
				t.Errorf("silent for %v after an hour", got)
			}
			if _, err := s.Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{
				CacheId: terms.CacheId, Grant: terms.Grant, Ticket: lent.Msg.GetTicket(),
			})); err != nil {
				t.Fatal(err)
			}
			if got := silent(); got != 0 {
				t.Errorf("silent for %v after a call", got)
			}
		}
	})
}
