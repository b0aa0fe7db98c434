package redytier

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
)

// A client measures a cache that becomes slow, and its manager says that the SLO is broken, and then
// that it is kept again.
func TestSLOIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, scheduleMenu(1<<20), scheduleModels(t))
		defer w.close()
		cache, err := Create(t.Context(), w.client, w.config(Config{Capacity: 1 << 20, SLO: SLO{MaxLatency: 20 * time.Millisecond, RecordSize: 64}}))
		if err != nil {
			t.Fatal(err)
		}
		s, err := cache.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		known := func() *managerv1.Cache {
			d, err := w.known()
			if err != nil || len(d.GetCaches()) != 1 {
				t.Fatalf("the manager knows %v, %v", d, err)
			}
			return d.GetCaches()[0]
		}
		// read reads for some windows. The mem transport takes no virtual time: it passes before the poll.
		read := func(takes time.Duration) *managerv1.Cache {
			buf, done := make([]byte, 64), make([]device.Completion, 1)
			for end := time.Now().Add(10 * windowLength); time.Now().Before(end); {
				if err := s.Read(buf, 0, 0); err != nil {
					t.Fatal(err)
				}
				if err := s.Submit(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(takes)
				for s.Poll(done) == 0 {
					if err := s.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if done[0].Err != nil {
					t.Fatal(done[0].Err)
				}
			}
			return known()
		}
		if before := known(); before.GetMeasured() != nil || before.GetSloBroken() || before.GetPredicted().GetLatencyUs() != 10 {
			t.Errorf("before it is used: %v", before)
		}
		slow := read(50 * time.Millisecond)
		if got := slow.GetMeasured().GetReads(); !slow.GetSloBroken() || got.GetRecordSize() != 64 ||
			got.GetMeanLatencyUs() != 50_000 || got.GetThroughputMops() < 19e-6 || got.GetThroughputMops() > 21e-6 || got.GetInFlight() < 0.95 || got.GetInFlight() > 1.05 {
			t.Errorf("reads of 50 ms: broken %t, measured %v", slow.GetSloBroken(), got)
		}
		fast := read(5 * time.Millisecond)
		if got := fast.GetMeasured().GetReads(); fast.GetSloBroken() || got.GetMeanLatencyUs() != 5000 {
			t.Errorf("reads of 5 ms: broken %t, measured %v", fast.GetSloBroken(), got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := cache.Delete(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
